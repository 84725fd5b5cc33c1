//! The stop of a run: by the process that has it, or, if none has it, here.

use std::time::{Duration, Instant};

use conclave_core::types::ids::RoomId;
use conclave_core::types::outcome::Status;

use super::delivery::{may_be_sent, post, unconfirmed};
use super::{EVERY, SteeringError, row_of};
use crate::storage::store::{ControlMessage, RunRow, RunState, Store, StoreError, StoreReader};

/// The result of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The run had ended before.
    Before(Status),
    /// The run has ended with this status.
    Ended(Status),
    /// No process had the run, and it was ended here. It was in this state; `None` if its row
    /// cannot be read.
    GivenUp(Option<RunState>),
}

/// Stops a run, and waits until it has ended: a message with the command `Stop`. `open` opens the
/// store for writing, to end a run that no process has; it fails with `InUse` if one has it.
///
/// # Errors
/// `NotReceived` and `NotEnded` after the time, and a store that cannot be used.
pub fn stop(
    reader: &StoreReader,
    message: &ControlMessage,
    open: &dyn Fn() -> Result<Store, StoreError>,
    most: Duration,
) -> Result<Stopped, SteeringError> {
    let run = message.room.run();
    let row = match reader.run(&run) {
        // What state it is in is unknown, so it is ended if no other process has it.
        Err(StoreError::Damaged { .. }) => {
            give_up(&open()?, message)?;
            return Ok(Stopped::GivenUp(None));
        }
        row => row?.ok_or_else(|| SteeringError::Unknown { run: run.clone() })?,
    };
    if let RunState::Ended(status) = row.state {
        return Ok(Stopped::Before(status));
    }
    let Some(store) = open_if_free(&row, open)? else {
        post(reader, message)?;
        return wait(reader, message, open, most).map_err(|error| match error {
            SteeringError::Store(error) => unconfirmed(&run, error),
            error => error,
        });
    };
    // No process has the run in progress. It may have ended while this one waited for its store.
    if let RunState::Ended(status) = row_of(reader, &run)?.state {
        return Ok(Stopped::Before(status));
    }
    give_up(&store, message)?;
    Ok(Stopped::GivenUp(Some(row.state)))
}

/// Ends a run that no process has.
fn give_up(store: &Store, message: &ControlMessage) -> Result<(), SteeringError> {
    store.give_up_for(message).map_err(|error| may_be_sent(&message.room.run(), error))
}

/// Opens the store of a run; `None` if a process has the run in progress. A folder opens only if
/// no process has any of its runs, while a database has the host of each run.
fn open_if_free(
    row: &RunRow,
    open: &dyn Fn() -> Result<Store, StoreError>,
) -> Result<Option<Store>, StoreError> {
    // A run of workers is ended here unless one has it: `give_up` takes it like a worker.
    if row.store.folder().is_none() && row.state == RunState::Running {
        return Ok(None);
    }
    match open() {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::InUse { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The next action while waiting for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStep {
    /// The run has ended with this status.
    Ended(Status),
    /// The run's process is gone without ending it, so the run is ended here.
    End,
    /// The time is up.
    GiveUp,
    /// Check again later.
    Sleep,
}

/// The next action after one check. `End` comes at most once: a run that was ended here, but does
/// not read as ended, is waited for like any other.
fn next(state: &RunState, is_in_use: bool, was_ended: bool, is_late: bool) -> StopStep {
    match state {
        RunState::Ended(status) => StopStep::Ended(*status),
        _ if !is_in_use && !was_ended => StopStep::End,
        _ if is_late => StopStep::GiveUp,
        _ => StopStep::Sleep,
    }
}

/// Whether a process may still end the run itself: one that holds the store, or in a database the
/// host that owns the run.
fn is_held(reader: &StoreReader, state: &RunState) -> Result<bool, StoreError> {
    match reader.folder() {
        Some(_) => reader.is_in_use(),
        None => Ok(*state == RunState::Running),
    }
}

fn wait(
    reader: &StoreReader,
    message: &ControlMessage,
    open: &dyn Fn() -> Result<Store, StoreError>,
    most: Duration,
) -> Result<Stopped, SteeringError> {
    let run: RoomId = message.room.run();
    let until = Instant::now() + most;
    let mut was_ended = false;
    loop {
        let state = row_of(reader, &run)?.state;
        match next(&state, is_held(reader, &state)?, was_ended, Instant::now() >= until) {
            StopStep::Ended(status) => {
                // Otherwise a resumed run would receive the stop.
                reader.mail().remove(message)?;
                return Ok(Stopped::Ended(status));
            }
            StopStep::End => match open() {
                Ok(store) => {
                    reader.mail().remove(message)?;
                    give_up(&store, message)?;
                    was_ended = true;
                    continue;
                }
                // Another process has resumed the run, and receives the message.
                Err(StoreError::InUse { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            StopStep::GiveUp if reader.mail().withdraw(message)? => {
                return Err(SteeringError::NotReceived { run, most });
            }
            StopStep::GiveUp => return Err(SteeringError::NotEnded { run, most }),
            StopStep::Sleep => {}
        }
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_run_that_still_reads_as_open_is_waited_for_until_the_timeout() {
        let open = RunState::Interrupted;
        assert_eq!(next(&open, false, false, false), StopStep::End);
        assert_eq!(
            next(&open, false, false, true),
            StopStep::End,
            "before the time is up, however short it is"
        );
        assert_eq!(next(&open, false, true, false), StopStep::Sleep, "not again, and not at once");
        assert_eq!(next(&open, false, true, true), StopStep::GiveUp);
        assert_eq!(next(&RunState::Running, true, false, false), StopStep::Sleep);
        assert_eq!(next(&RunState::Running, true, false, true), StopStep::GiveUp);
        let ended = RunState::Ended(Status::Kill);
        for [in_use, was_ended, late] in
            [[true, false, true], [false, false, false], [false, true, true]]
        {
            assert_eq!(next(&ended, in_use, was_ended, late), StopStep::Ended(Status::Kill));
        }
    }
}
