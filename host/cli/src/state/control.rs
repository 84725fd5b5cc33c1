//! Control messages to a run that another process has in progress. A message is put into the mail
//! of the run's store, and is then journalled there or taken back. None is left behind, to take
//! effect much later.

use std::collections::BTreeSet;
use std::io::Read;
use std::time::{Duration, Instant};

use conclave_core::protocol::control::HANDOVER;
use conclave_core::protocol::event::Event;
use conclave_core::types::ids::{ControlId, RoomId};
use conclave_runtime::store::{
    ControlCommand, ControlMessage, MailState, RunRow, RunState, StoreError, StoreReader,
};
use serde_json::json;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::state::stores;
use crate::ui::show::printable;
use crate::ui::stdout;

/// The interval between two checks whether a message was received, or a run has ended.
pub(crate) const EVERY: Duration = Duration::from_millis(100);
/// Bytes of a text. A message in the mail may have 1 MiB, and JSON can make six bytes of one.
const MESSAGE_MAX: usize = 128 << 10;

/// Returns a message as written, or from stdin; `usage` is the form of the command.
pub(crate) fn message_text(argument: &str, usage: &str) -> Result<String, CliError> {
    let text = if argument == "-" {
        let mut text = String::new();
        // A byte more than allowed, so that a longer text is refused and not cut.
        let read = std::io::stdin().take(MESSAGE_MAX as u64 + 1).read_to_string(&mut text);
        read.map_err(|error| {
            CliError::usage(format!("the message could not be read from stdin: {error}"))
        })?;
        text.trim_end().to_owned()
    } else {
        argument.to_owned()
    };
    match text.len() {
        0 => Err(CliError::usage("the message is empty").hint(format!("write it as {usage}"))),
        length if length > MESSAGE_MAX => {
            Err(CliError::usage(format!("the message is longer than {MESSAGE_MAX} bytes"))
                .hint("put it into a file that the agent may read"))
        }
        _ => Ok(text),
    }
}

/// Sends a message, and waits until the run's journal holds it. Returns its id there.
///
/// # Errors
/// If that takes too long, or the run ends before. The message is then taken back, unless its room
/// has it already.
pub(crate) async fn send(
    row: &RunRow,
    word: ControlCommand,
    most: Duration,
) -> Result<ControlId, CliError> {
    let message = ControlMessage::new(row.run.clone(), word);
    deliver(row, &message, most).await?;
    Ok(message.id)
}

async fn deliver(row: &RunRow, message: &ControlMessage, most: Duration) -> Result<(), CliError> {
    let reader = stores::read(&row.store)?;
    reader.mail().send(message)?;
    let until = Instant::now() + most;
    loop {
        let is_late = Instant::now() >= until;
        match reader.mail().state(message)? {
            MailState::Gone => return Ok(()),
            MailState::PutAside => {
                let what = format!("the process of {} could not read the message", row.run);
                return Err(CliError::internal(what)
                    .hint("check whether that process runs another version of conclave"));
            }
            _ if is_over(&reader, row) => return after_the_end(&reader, row, message),
            // If the receiver takes it in between, the next check sees it as taken.
            MailState::Waiting if is_late => {
                if withdraw(&reader, message)? {
                    let hint = match row.state {
                        RunState::Queued | RunState::Asleep => {
                            "`conclave workers` lists the workers with their pools"
                        }
                        _ => "try again with a longer --wait, or end that process",
                    };
                    return Err(not_received(row, most).hint(hint));
                }
            }
            MailState::Taken if is_late => {
                let what = format!(
                    "the process of {} received the message but did not record it within {} s; it may still take effect",
                    row.run,
                    most.as_secs()
                );
                return Err(CliError::internal(what)
                    .hint(format!("`conclave show {}` shows the state of the run", row.run)));
            }
            MailState::Waiting | MailState::Taken => {}
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Takes a message back. Returns whether it had not been received yet.
pub(crate) fn withdraw(reader: &StoreReader, message: &ControlMessage) -> Result<bool, CliError> {
    let messages = reader.mail().take_back(|other| other.id == message.id)?;
    Ok(!messages.is_empty())
}

/// The error for a message that was withdrawn after this time.
pub(crate) fn not_received(row: &RunRow, most: Duration) -> CliError {
    if matches!(row.state, RunState::Queued | RunState::Asleep) {
        let what = format!(
            "no worker took {} within {} s; the message was withdrawn",
            row.run,
            most.as_secs()
        );
        return CliError::internal(what);
    }
    CliError::internal(format!(
        "the process of {} did not receive the message within {} s; the message was withdrawn",
        row.run,
        most.as_secs()
    ))
}

/// Whether no message to the run is received any more, because its process or the run has ended.
fn is_over(reader: &StoreReader, row: &RunRow) -> bool {
    // A failure to read is retried at the next check.
    if matches!(reader.is_in_use(), Ok(false)) {
        return true;
    }
    let rooms = reader.rooms(&row.run).unwrap_or_default();
    rooms.iter().any(|room| {
        room.room == row.run
            && match room.state {
                RunState::Ended(_) => true,
                // Of a database in use, the process of this run may have ended all the same.
                RunState::Interrupted => reader.folder().is_none(),
                RunState::Running | RunState::Queued | RunState::Asleep => false,
            }
    })
}

/// Returns the result of a message whose receiver has gone: the journal shows whether it arrived in
/// time.
fn after_the_end(
    reader: &StoreReader,
    row: &RunRow,
    message: &ControlMessage,
) -> Result<(), CliError> {
    // Removed before the journal is read, so that a process that resumes the run cannot take it in
    // between.
    reader.mail().remove(message)?;
    if reader.has_received(&message.room, &message.id)? {
        return Ok(());
    }
    let what = format!(
        "the process of {} ended before it received the message; the message was withdrawn",
        row.run
    );
    Err(CliError::usage(what)
        .hint(format!("`conclave show {}` shows the state of the run", row.run)))
}

/// Waits until the condition holds, or for this time at most.
pub(crate) async fn until(most: Duration, is_so: impl Fn() -> bool) {
    let end = Instant::now() + most;
    while !is_so() && Instant::now() < end {
        tokio::time::sleep(EVERY).await;
    }
}

/// Reports the result; with `--json` as an object of this type.
pub(crate) fn report(
    row: &RunRow,
    kind: &str,
    what: &str,
    output: OutputArgs,
) -> Result<(), CliError> {
    stdout::report(
        output,
        json!({ "type": kind, "run": row.run, "message": what }),
        printable(&format!("{} {what}", row.run)),
    )
}

/// Returns why a run is paused, or `None` if it is not paused.
///
/// # Errors
/// If the run cannot be read.
pub(crate) fn pause_reason(
    reader: &StoreReader,
    run: &RoomId,
) -> Result<Option<String>, StoreError> {
    let (mut paused, mut received) = (None, BTreeSet::new());
    for record in reader.records(run)? {
        if let Event::ControlReceived { id, .. } = &record.event
            && !received.insert(id.clone())
        {
            // It took effect before.
            continue;
        }
        match record.event.effective() {
            // The next host lifts this one by itself.
            Event::Paused { reason } if reason == HANDOVER => {}
            Event::Paused { reason } => paused = Some(reason.clone()),
            Event::Unpaused | Event::RunStarted { .. } => paused = None,
            _ => {}
        }
    }
    Ok(paused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_oversized_message_is_refused() {
        assert_eq!(message_text("look into /docs", "").unwrap(), "look into /docs");
        assert!(message_text("", "").unwrap_err().to_string().contains("is empty"));
        assert!(
            message_text(&"x".repeat(MESSAGE_MAX + 1), "")
                .unwrap_err()
                .to_string()
                .contains("131072 bytes")
        );
    }
}
