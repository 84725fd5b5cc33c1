//! One message, from its sender to the journal of its room.

use std::time::{Duration, Instant};

use conclave_core::protocol::event::Event;
use conclave_core::types::ids::{ControlId, RoomId};

use super::{EVERY, SteeringError};
use crate::storage::store::mail::bell;
use crate::storage::store::{
    ControlCommand, ControlMessage, MailState, RunState, StoreError, StoreReader,
};

/// The time in which a worker with free space takes a run that a message has woken.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// What became of a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
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
pub fn send(
    reader: &StoreReader,
    message: &ControlMessage,
    most: Duration,
) -> Result<Delivery, SteeringError> {
    post(reader, message)?;
    let began = Instant::now();
    loop {
        let deletions = bell::deletions();
        match look(reader, message, (began.elapsed(), most)) {
            Ok(Some(delivery)) => return Ok(delivery),
            Ok(None) => bell::wait_for_deletion(deletions, EVERY),
            // It was sent, and was neither seen in the journal nor taken back.
            Err(error) => return Err(after_sending(&message.room, error)),
        }
    }
}

/// Puts a message into the mail.
///
/// # Errors
/// `Unconfirmed` if the answer of the store was lost: the message may be there.
pub(super) fn post(reader: &StoreReader, message: &ControlMessage) -> Result<(), SteeringError> {
    reader.mail().send(message).map_err(|error| may_be_sent(&message.room, error))
}

/// The error of a store that was to take a message: without its answer the message may be there.
pub(super) fn may_be_sent(room: &RoomId, error: StoreError) -> SteeringError {
    match error {
        error @ StoreError::Unreachable { .. } => unconfirmed(room, error),
        error => error.into(),
    }
}

/// The error of what follows the sending of a message: it may take effect all the same.
pub(super) fn after_sending(room: &RoomId, error: SteeringError) -> SteeringError {
    match error {
        SteeringError::Store(error) => unconfirmed(room, error),
        error => error,
    }
}

pub(super) fn unconfirmed(room: &RoomId, error: StoreError) -> SteeringError {
    SteeringError::Unconfirmed { run: room.run(), error }
}

/// Returns whether this message was sent before, under an id that its sender chose.
///
/// # Errors
/// `KeyReused` if another message has the id.
pub fn repeated(reader: &StoreReader, message: &ControlMessage) -> Result<bool, SteeringError> {
    let reused = || SteeringError::KeyReused { run: message.room.run() };
    if reader.has_received(&message.room, &message.id)? {
        let event = message.clone().into_command().into_event();
        let is_it =
            |event: &Event| matches!(event, Event::ControlReceived { id, .. } if *id == message.id);
        let records = reader.records(&message.room)?;
        let recorded = records.iter().find(|record| is_it(&record.event));
        return match recorded {
            Some(record) if record.event != event => Err(reused()),
            _ => Ok(true),
        };
    }
    let of_run = reader.mail().of_run(&message.room.run())?;
    match of_run.iter().find(|sent| sent.id == message.id) {
        Some(sent) if sent != message => Err(reused()),
        _ => Ok(false),
    }
}

/// Returns what has become of a message; `None` if that is not known yet.
fn look(
    reader: &StoreReader,
    message: &ControlMessage,
    (waited, most): (Duration, Duration),
) -> Result<Option<Delivery>, SteeringError> {
    let is_late = waited >= most;
    let run = || message.room.clone();
    match reader.mail().state(message)? {
        // Only a person at a server chooses ids: another request under the same one may have been
        // recorded in place of this, or may have withdrawn it.
        MailState::Gone if message.by.is_some() && !repeated(reader, message)? => {
            return Err(SteeringError::NotReceived { run: run(), most });
        }
        MailState::Gone => return Ok(Some(Delivery::Recorded(message.id.clone()))),
        MailState::PutAside => return Err(SteeringError::Unreadable { run: run() }),
        state => match (receiver(reader, &message.room), state) {
            (Receiver::Gone, _) => return after_the_end(reader, message).map(Some),
            // No worker takes a run that is paused.
            (Receiver::NextWorker, MailState::Waiting)
                if waited >= most.min(TAKEN_WITHIN)
                    || matches!(message.word, ControlCommand::Pause { .. }) =>
            {
                return Ok(Some(Delivery::Waiting));
            }
            // If the receiver takes it in between, the next check sees it as taken.
            (_, MailState::Waiting) if is_late && reader.mail().withdraw(message)? => {
                return Err(SteeringError::NotReceived { run: run(), most });
            }
            (_, MailState::Taken) if is_late => {
                return Err(SteeringError::NotRecorded { run: run(), most });
            }
            _ => {}
        },
    }
    Ok(None)
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

fn receiver(reader: &StoreReader, recipient: &RoomId) -> Receiver {
    // In a database, the processes of other runs say nothing about this one. A failure to read is
    // retried at the next check.
    if reader.folder().is_some() && matches!(reader.is_in_use(), Ok(false)) {
        return Receiver::Gone;
    }
    let rooms = reader.rooms(&recipient.run()).unwrap_or_default();
    match rooms.iter().find(|room| room.room == *recipient).map(|room| room.state) {
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
    message: &ControlMessage,
) -> Result<Delivery, SteeringError> {
    // Removed before the journal is read, so that a process that resumes the run cannot take it in
    // between.
    reader.mail().remove(message)?;
    if reader.has_received(&message.room, &message.id)? {
        return Ok(Delivery::Recorded(message.id.clone()));
    }
    Err(SteeringError::ReceiverEnded { run: message.room.clone() })
}

/// Waits until the condition holds, or for this time at most.
pub fn until(most: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + most;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(EVERY);
    }
}
