//! `conclave stop RUN`: ends a run of another process, or an interrupted one.

use std::time::{Duration, Instant};

use conclave_core::types::outcome::Status;
use conclave_runtime::store::{
    ControlCommand, ControlMessage, RunRow, RunState, Store, StoreError, is_in_use,
};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::control::{EVERY, not_received, report, withdraw};
use crate::state::stored_run::StoredRun;

/// The type of the JSON line about a run that has ended.
const STOPPED: &str = "stopped";

pub(crate) async fn stop(args: &args::StopArgs, output: OutputArgs) -> Result<u8, CliError> {
    let found = StoredRun::resolve(Some(&args.run), args.store.as_deref())?;
    let row = found.row()?;
    let had_ended = |state: &RunState| match state {
        RunState::Ended(status) => Some(format!("had already ended: {}", status.as_str())),
        _ => None,
    };
    if let Some(what) = had_ended(&row.state) {
        report(&row, STOPPED, &what, output)?;
        return Ok(exit::OK);
    }
    match Store::open(&row.store) {
        Ok(store) => {
            // The store opened, so no process has the run in progress. It may have ended while this
            // one waited for its store.
            if let Some(what) = had_ended(&found.row()?.state) {
                report(&row, STOPPED, &what, output)?;
                return Ok(exit::OK);
            }
            store.give_up(&row.run, &args.reason)?;
            report(&row, STOPPED, "was interrupted, and is now ended", output)?;
            Ok(exit::OK)
        }
        Err(StoreError::InUse { .. }) => {
            let mail = ControlMessage::new(
                row.run.clone(),
                ControlCommand::Stop { reason: args.reason.clone() },
            );
            mail.send(&row.store)?;
            wait(&found, (&row, &mail), Duration::from_secs(args.wait), output).await
        }
        Err(error) => Err(error.into()),
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

async fn wait(
    found: &StoredRun,
    (row, mail): (&RunRow, &ControlMessage),
    most: Duration,
    output: OutputArgs,
) -> Result<u8, CliError> {
    let until = Instant::now() + most;
    let mut was_ended = false;
    loop {
        match next(&found.row()?.state, is_in_use(&row.store), was_ended, Instant::now() >= until) {
            StopStep::Ended(status) => {
                // Otherwise a resumed run would receive the stop.
                mail.remove(&row.store)?;
                report(row, STOPPED, &format!("has ended: {}", status.as_str()), output)?;
                return Ok(exit::OK);
            }
            StopStep::End => match (Store::open(&row.store), &mail.word) {
                (Ok(store), ControlCommand::Stop { reason }) => {
                    mail.remove(&row.store)?;
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
                if withdraw(mail, row)? {
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
