//! Pauses of runs, and their end.

use std::collections::BTreeSet;
use std::time::Duration;

use conclave_core::protocol::control::HANDOVER;
use conclave_core::protocol::event::Event;
use conclave_core::types::ids::RoomId;

use super::delivery::{Delivery, send, until};
use super::{SteeringError, row_of};
use crate::storage::store::{ControlCommand, ControlMessage, RunState, StoreError, StoreReader};

/// The result of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// It was paused before.
    Before,
    /// Calls in progress run to their end, and nothing new begins.
    InProcess,
    /// No host has the run, and no worker takes it.
    WithoutHost,
}

/// Pauses a run: a message with the command `Pause`.
///
/// # Errors
/// `Ended` and `Interrupted` if the run is not in progress, and those of [`send`].
pub fn pause(
    reader: &StoreReader,
    message: &ControlMessage,
    most: Duration,
) -> Result<Paused, SteeringError> {
    let run = message.room.run();
    in_progress(reader, &run)?;
    if pause_reason(reader, &run)?.is_some() {
        return Ok(Paused::Before);
    }
    if send(reader, message, most)? == Delivery::Waiting {
        return Ok(Paused::WithoutHost);
    }
    // Any process that looks at the run next, or resumes it, must find it paused.
    until(most, || {
        row_of(reader, &run).map_or(true, |row| !row.state.goes_on())
            || matches!(pause_reason(reader, &run), Ok(Some(_)))
    });
    in_progress(reader, &run)?;
    Ok(Paused::InProcess)
}

/// Checks that a process has the run, or a worker takes it by itself.
fn in_progress(reader: &StoreReader, run: &RoomId) -> Result<(), SteeringError> {
    match row_of(reader, run)?.state {
        RunState::Running | RunState::Queued | RunState::Asleep => Ok(()),
        RunState::Ended(status) => Err(SteeringError::Ended { run: run.clone(), status }),
        RunState::Interrupted => Err(SteeringError::Interrupted { run: run.clone() }),
    }
}

/// The result of lifting a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaused {
    /// The run was not paused.
    Before,
    /// The run continues in its process.
    InProcess,
    /// The run continues when a worker takes it.
    WithoutHost,
}

/// Lifts the pause of a run in another process, or of one that waits for a worker: a message with
/// the command `Unpause`.
///
/// # Errors
/// `Ended` and `Interrupted` if the run is not in progress, and those of [`send`].
pub fn unpause(
    reader: &StoreReader,
    message: &ControlMessage,
    most: Duration,
) -> Result<Unpaused, SteeringError> {
    let run = message.room.run();
    in_progress(reader, &run)?;
    // A run that cannot be read for a moment is not known to go on.
    let is_unpaused = || matches!(pause_reason(reader, &run), Ok(None));
    if is_unpaused() {
        return Ok(Unpaused::Before);
    }
    withdraw_pauses(reader, &run)?;
    let mut has_host = row_of(reader, &run)?.state == RunState::Running;
    if !is_unpaused() {
        has_host = send(reader, message, most)? != Delivery::Waiting;
    }
    if !has_host {
        return Ok(Unpaused::WithoutHost);
    }
    until(most, is_unpaused);
    Ok(Unpaused::InProcess)
}

/// Returns why a run is paused, or `None` if it is not paused. A run of a database is also paused by
/// a message that waits for the worker which takes it next.
///
/// # Errors
/// If the run cannot be read.
pub fn pause_reason(reader: &StoreReader, run: &RoomId) -> Result<Option<String>, StoreError> {
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
fn withdraw_pauses(reader: &StoreReader, run: &RoomId) -> Result<(), StoreError> {
    for message in waiting(reader, run) {
        if matches!(message.word, ControlCommand::Pause { .. }) {
            reader.mail().withdraw(&message)?;
        }
    }
    Ok(())
}
