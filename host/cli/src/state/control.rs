//! Control messages to a run that another process has in progress. A message is put into the mail
//! of the run's store, and is then journalled there or taken back. None is left behind, to take
//! effect much later, unless the run waits for a worker: the one that takes it receives them first.

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
use crate::state::stored_run::StoredRun;
use crate::state::stores;
use crate::ui::show::printable;
use crate::ui::stdout;

/// The interval between two checks whether a message was received, or a run has ended.
pub(crate) const EVERY: Duration = Duration::from_millis(100);
/// The time in which a worker with free space takes a run that a message has woken.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);
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

/// What became of a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The run's journal holds it, under this id.
    Recorded(ControlId),
    /// No host has the run. The worker that takes the run next receives the message first.
    Waiting,
}

/// Sends a message, and waits until the run's journal holds it. If no host has the run, the message
/// stays for the next one.
///
/// # Errors
/// If that takes too long, or the run ends before. The message is then taken back, unless its room
/// has it already.
pub(crate) async fn send(
    row: &RunRow,
    word: ControlCommand,
    most: Duration,
) -> Result<Delivery, CliError> {
    let message = ControlMessage::new(row.run.clone(), word);
    let (address, sent) = (row.store.clone(), message.clone());
    let mut reader = blocking(move || {
        let reader = stores::read(&address)?;
        reader.mail().send(&sent)?;
        Ok(reader)
    })
    .await?;
    let began = Instant::now();
    loop {
        let (row, message, waited) = (row.clone(), message.clone(), began.elapsed());
        let (delivery, looked) = blocking(move || {
            let delivery = look(&reader, (&row, &message), (waited, most))?;
            Ok((delivery, reader))
        })
        .await?;
        if let Some(delivery) = delivery {
            return Ok(delivery);
        }
        reader = looked;
        tokio::time::sleep(EVERY).await;
    }
}

/// Runs what reads a store on a thread that may block: a database may take long to answer.
pub(crate) async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

/// Returns what has become of a message; `None` if that is not known yet.
fn look(
    reader: &StoreReader,
    (row, message): (&RunRow, &ControlMessage),
    (waited, most): (Duration, Duration),
) -> Result<Option<Delivery>, CliError> {
    let is_late = waited >= most;
    match reader.mail().state(message)? {
        MailState::Gone => return Ok(Some(Delivery::Recorded(message.id.clone()))),
        MailState::PutAside => {
            let what = format!("the process of {} could not read the message", row.run);
            return Err(CliError::internal(what)
                .hint("check whether that process runs another version of conclave"));
        }
        state => match (receiver(reader, row), state) {
            (Receiver::Gone, _) => return after_the_end(reader, row, message).map(Some),
            // No worker takes a run that is paused.
            (Receiver::NextWorker, MailState::Waiting)
                if waited >= most.min(TAKEN_WITHIN)
                    || matches!(message.word, ControlCommand::Pause { .. }) =>
            {
                return Ok(Some(Delivery::Waiting));
            }
            // If the receiver takes it in between, the next check sees it as taken.
            (_, MailState::Waiting) if is_late && reader.mail().withdraw(message)? => {
                return Err(not_received(row, most)
                    .hint("try again with a longer --wait, or end that process"));
            }
            (_, MailState::Taken) if is_late => {
                let what = format!(
                    "the process of {} received the message but did not record it within {} s; it may still take effect",
                    row.run,
                    most.as_secs()
                );
                return Err(CliError::internal(what)
                    .hint(format!("`conclave show {}` shows the state of the run", row.run)));
            }
            _ => {}
        },
    }
    Ok(None)
}

/// The error for a message that was withdrawn after this time.
pub(crate) fn not_received(row: &RunRow, most: Duration) -> CliError {
    CliError::internal(format!(
        "the process of {} did not receive the message within {} s; the message was withdrawn",
        row.run,
        most.as_secs()
    ))
}

/// Who receives a message to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// The process that has the run in progress.
    Process,
    /// The worker that takes the run next.
    NextWorker,
    /// None: the process or the run has ended.
    Gone,
}

fn receiver(reader: &StoreReader, row: &RunRow) -> Receiver {
    // In a database, the processes of other runs say nothing about this one. A failure to read is
    // retried at the next check.
    if reader.folder().is_some() && matches!(reader.is_in_use(), Ok(false)) {
        return Receiver::Gone;
    }
    let rooms = reader.rooms(&row.run.run()).unwrap_or_default();
    match rooms.iter().find(|room| room.room == row.run).map(|room| room.state) {
        Some(RunState::Ended(_)) => Receiver::Gone,
        Some(RunState::Interrupted) if reader.folder().is_none() => Receiver::Gone,
        Some(RunState::Queued | RunState::Asleep) => Receiver::NextWorker,
        Some(RunState::Running | RunState::Interrupted) | None => Receiver::Process,
    }
}

/// Returns the result of a message whose receiver has gone: the journal shows whether it arrived in
/// time.
fn after_the_end(
    reader: &StoreReader,
    row: &RunRow,
    message: &ControlMessage,
) -> Result<Delivery, CliError> {
    // Removed before the journal is read, so that a process that resumes the run cannot take it in
    // between.
    reader.mail().remove(message)?;
    if reader.has_received(&message.room, &message.id)? {
        return Ok(Delivery::Recorded(message.id.clone()));
    }
    let what = format!(
        "the process of {} ended before it received the message; the message was withdrawn",
        row.run
    );
    Err(CliError::usage(what)
        .hint(format!("`conclave show {}` shows the state of the run", row.run)))
}

/// Waits until the condition holds for a stored run, or for this time at most. Returns the run.
pub(crate) async fn until(
    mut found: StoredRun,
    most: Duration,
    is_so: fn(&StoredRun) -> bool,
) -> Result<StoredRun, CliError> {
    let end = Instant::now() + most;
    loop {
        let (looked, holds) = blocking(move || {
            let holds = is_so(&found);
            Ok((found, holds))
        })
        .await?;
        if holds || Instant::now() >= end {
            return Ok(looked);
        }
        found = looked;
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

/// Returns why a run is paused, or `None` if it is not paused. A run of a database is also paused by
/// a message that waits for the worker which takes it next.
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
    for message in waiting(reader, run).filter(|message| !received.contains(&message.id)) {
        match message.word {
            ControlCommand::Pause { reason } => paused = Some(reason),
            ControlCommand::Unpause => paused = None,
            _ => {}
        }
    }
    Ok(paused)
}

/// The messages to the root room of a run that wait for the worker which takes it next.
fn waiting(reader: &StoreReader, run: &RoomId) -> impl Iterator<Item = ControlMessage> {
    // The process of a folder takes its messages by itself.
    let of_run = reader.folder().is_none().then(|| reader.mail().of_run(run).unwrap_or_default());
    of_run.into_iter().flatten().filter(|message| message.room == *run)
}

/// Withdraws the pauses of a run that no host has received.
///
/// # Errors
/// If the store cannot be used.
pub(crate) fn withdraw_pauses(reader: &StoreReader, run: &RoomId) -> Result<(), CliError> {
    for message in waiting(reader, run) {
        if matches!(message.word, ControlCommand::Pause { .. }) {
            reader.mail().withdraw(&message)?;
        }
    }
    Ok(())
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
