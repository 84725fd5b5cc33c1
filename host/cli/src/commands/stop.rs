//! `conclave stop RUN`: ends a run of another process, or an interrupted one.

use std::time::{Duration, Instant};

use conclave_core::types::outcome::Status;
use conclave_runtime::store::{
    ControlCommand, ControlMessage, RunRow, RunState, Store, StoreError,
};
use serde_json::json;

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{EVERY, not_received, report};
use crate::state::stored_run::StoredRun;
use crate::state::stores::open;
use crate::ui::show::printable;
use crate::ui::stdout;

/// The type of the JSON line about a run that has ended.
const STOPPED: &str = "stopped";

pub(crate) async fn stop(args: &args::StopArgs, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_ref())?;
    if let Err(StoreError::Damaged { .. }) = found.reader.run(&found.run()) {
        return end_damaged(&found, &args.reason, output);
    }
    let row = found.row()?;
    let had_ended = |state: &RunState| match state {
        RunState::Ended(status) => Some(format!("had already ended: {}", status.as_str())),
        _ => None,
    };
    if let Some(what) = had_ended(&row.state) {
        report(&row, STOPPED, &what, output)?;
        return Ok(exit::OK);
    }
    let Some(store) = open_if_free(&row)? else {
        let command = ControlCommand::Stop { reason: args.reason.clone() };
        let message = ControlMessage::new(row.run.clone(), command);
        found.reader.mail().send(&message)?;
        return wait(&found, (&row, &message), Duration::from_secs(args.wait), output).await;
    };
    // No process has the run in progress. It may have ended while this one waited for its store.
    if let Some(what) = had_ended(&found.row()?.state) {
        report(&row, STOPPED, &what, output)?;
        return Ok(exit::OK);
    }
    store.give_up(&row.run, &args.reason)?;
    let what = match row.state {
        RunState::Queued | RunState::Asleep => "had no host, and is now ended",
        _ => "was interrupted, and is now ended",
    };
    report(&row, STOPPED, what, output)?;
    Ok(exit::OK)
}

/// Ends a run whose row cannot be read. What state it is in is unknown, so it is ended if no other
/// process has it.
fn end_damaged(found: &StoredRun, reason: &str, output: OutputArgs) -> Result<u8, CliError> {
    let run = found.run();
    open(found.reader.address(), "stop")?.give_up(&run, reason)?;
    let what = "is damaged, and is now ended";
    stdout::report(
        output,
        json!({ "type": STOPPED, "run": run, "message": what }),
        printable(&format!("{run} {what}")),
    )?;
    Ok(exit::OK)
}

/// Opens the store of a run; `None` if a process has the run in progress. A folder opens only if
/// no process has any of its runs, while a database has the host of each run.
fn open_if_free(row: &RunRow) -> Result<Option<Store>, StoreError> {
    // A run of workers is ended here unless one has it: `give_up` takes it like a worker.
    if row.store.folder().is_none() && row.state == RunState::Running {
        return Ok(None);
    }
    match open(&row.store, "stop") {
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
fn is_held(found: &StoredRun, state: &RunState) -> Result<bool, StoreError> {
    match found.reader.folder() {
        Some(_) => found.reader.is_in_use(),
        None => Ok(*state == RunState::Running),
    }
}

async fn wait(
    found: &StoredRun,
    (row, message): (&RunRow, &ControlMessage),
    most: Duration,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let until = Instant::now() + most;
    let mut was_ended = false;
    loop {
        let state = found.row()?.state;
        match next(&state, is_held(found, &state)?, was_ended, Instant::now() >= until) {
            StopStep::Ended(status) => {
                // Otherwise a resumed run would receive the stop.
                found.reader.mail().remove(message)?;
                report(row, STOPPED, &format!("has ended: {}", status.as_str()), output)?;
                return Ok(exit::OK);
            }
            StopStep::End => match (open(&row.store, "stop"), &message.word) {
                (Ok(store), ControlCommand::Stop { reason }) => {
                    found.reader.mail().remove(message)?;
                    store.give_up(&row.run, reason)?;
                    was_ended = true;
                    continue;
                }
                // Another process has resumed the run, and receives the message.
                (Err(StoreError::InUse { .. }), _) => {}
                (Err(error), _) => return Err(error.into()),
                (Ok(_), _) => was_ended = true,
            },
            StopStep::GiveUp => {
                if found.reader.mail().withdraw(message)? {
                    return Err(not_received(row, most).hint("end that process, and try again"));
                }
                let what = format!(
                    "{} received the stop, and has not ended within {} s",
                    row.run,
                    most.as_secs()
                );
                return Err(CliError::internal(what).hint(
                    "wait for it to end, or end its process; `conclave runs` shows its state",
                ));
            }
            StopStep::Sleep => {}
        }
        tokio::time::sleep(EVERY).await;
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
