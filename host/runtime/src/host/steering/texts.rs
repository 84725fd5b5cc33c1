//! Texts for the agents of a run in progress.

use std::time::Duration;

use conclave_core::journal::record::{ReplayedRecord, retold, setup_in_force};
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::ids::{ControlId, TaskName};

use super::delivery::{Delivery, after_sending, post, repeated, send};
use super::{SteeringError, row_of};
use crate::storage::store::{ControlCommand, ControlMessage, RunState, StoreReader};

/// Where a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextPlace {
    /// In the journal: the agent reads it in its next step.
    Recorded,
    /// In the mail: the worker that takes the run receives it first.
    WaitsForWorker,
    /// In the mail: the process that resumes the interrupted run receives it first.
    WaitsForResume,
}

/// Sends a text to a run: a message with the command `Tell`. One that the run has already, under an
/// id that its sender chose, is not sent again.
///
/// # Errors
/// `Ended` if the run is over, `UnknownTask` if it has no such task, `Dropped` if no agent reads the
/// text, a damaged store, and those of [`send`].
pub fn tell(
    reader: &StoreReader,
    message: &ControlMessage,
    most: Duration,
) -> Result<TextPlace, SteeringError> {
    let run = message.room.run();
    if repeated(reader, message)? {
        return received(reader, message);
    }
    let row = row_of(reader, &run)?;
    if let RunState::Ended(status) = row.state {
        return Err(SteeringError::Ended { run, status });
    }
    // No process can resume a run whose records cannot be read, so the text would be lost.
    let records = reader.records(&run)?;
    let ControlCommand::Tell { task, .. } = &message.word else {
        return send(reader, message, most).map(|_| TextPlace::Recorded);
    };
    if let Some(task) = task
        && let Some(setup) = setup_in_force(&records)
        && !setup.tasks.contains_key(task)
    {
        let known = setup.tasks.keys().map(TaskName::to_string).collect();
        return Err(SteeringError::UnknownTask { run, task: task.clone(), known });
    }
    if row.state == RunState::Interrupted {
        return post(reader, message).map(|()| TextPlace::WaitsForResume);
    }
    if send(reader, message, most)? == Delivery::Waiting {
        return Ok(TextPlace::WaitsForWorker);
    }
    received(reader, message).map_err(|error| after_sending(&run, error))
}

/// The result of a text that the run has.
fn received(reader: &StoreReader, message: &ControlMessage) -> Result<TextPlace, SteeringError> {
    let ControlCommand::Tell { text, .. } = &message.word else { return Ok(TextPlace::Recorded) };
    let run = message.room.run();
    match why_dropped(&retold(reader.records(&run)?), &message.id, text) {
        Some(reason) => Err(SteeringError::Dropped { run, reason }),
        None => Ok(TextPlace::Recorded),
    }
}

/// Returns why the text reached no agent; `None` if one reads it, or may still.
fn why_dropped(retold: &[ReplayedRecord], id: &ControlId, text: &str) -> Option<String> {
    let is_receipt = |entry: &&ReplayedRecord| matches!(&entry.record.event, Event::ControlReceived { id: received, .. } if received == id);
    // Only what follows the receipt: an earlier message may have had the same text.
    let from = retold.iter().position(|entry| is_receipt(&entry))?;
    retold[from..].iter().flat_map(|entry| &entry.notices).find_map(|notice| match notice {
        Notice::UserMessageDropped { text: dropped, reason, .. } if dropped == text => {
            Some(reason.clone())
        }
        _ => None,
    })
}
