//! The errors of a run that came to no end, could not be stored, or cannot be resumed.

use std::fmt::Display;
use std::io::ErrorKind;

use conclave_core::protocol::event::Event;
use conclave_core::types::ids::RoomId;
use conclave_runtime::journal::AppendFailure;
use conclave_runtime::store::{RunMatch, Store, StoreReader};
use conclave_runtime::{ResumeError, SessionError};

use crate::program::error::CliError;
use crate::state::journals::RunStorage;
use crate::ui::show::printable;

/// The error for a run that came to no end.
pub(crate) fn broken_off(failure: &SessionError, room: &RoomId, storage: &RunStorage) -> CliError {
    match failure {
        SessionError::FailedExchange { .. } => CliError::plugin(failure.to_string()),
        SessionError::NoModel { .. } => CliError::unreachable(failure.to_string()).hint(format!(
            "it goes on where it is: conclave resume {room}; or stop it: conclave stop {room}"
        )),
        SessionError::Journal(journal) if journal.answer == AppendFailure::Fenced => {
            goes_on_elsewhere(room, storage)
        }
        failure => unkept(failure, room, storage),
    }
}

/// The end of a run at this terminal that another host has taken over.
fn goes_on_elsewhere(room: &RoomId, storage: &RunStorage) -> CliError {
    let records = storage.records(room);
    let host = records.iter().rev().find_map(|record| match &record.event {
        Event::Owned { host, .. } => Some(format!("the host {}", printable(host))),
        _ => None,
    });
    let host = host.as_deref().unwrap_or("another host");
    CliError::taken_over(format!(
        "the run {room} goes on on {host}: `conclave show {room}` shows it"
    ))
}

/// The error for a journal that failed during the run. Its contents are safe, and the run can be
/// resumed.
pub(crate) fn unkept(failure: &impl Display, room: &RoomId, storage: &RunStorage) -> CliError {
    let error = CliError::internal(failure.to_string());
    // On a disk that was full from the start, the store has no record of the run.
    let is_there = |store: &Store| {
        StoreReader::open(store.address()).and_then(|reader| reader.find(room.as_str()))
    };
    let Some(store) = storage.store() else { return error };
    let remedy = match store.folder() {
        Some(_) => "free space on the disk",
        None => "look after the database",
    };
    if matches!(is_there(store), Ok(RunMatch::One(_))) {
        error.hint(format!("{remedy}, then resume it: conclave resume {room}"))
    } else {
        error.hint(format!(
            "nothing of this run was stored, so it cannot be resumed; {remedy}, and run it again"
        ))
    }
}

/// The error for a run that cannot be resumed.
impl From<ResumeError> for CliError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Unknown { .. } => Self::usage(error.to_string()),
            ResumeError::Changed { .. } | ResumeError::OtherPlugin { .. } => {
                Self::plugin(error.to_string())
            }
            ResumeError::Journal(journal) if journal.cause.kind() == ErrorKind::ResourceBusy => {
                let room = &journal.room;
                Self::usage(format!("the run {room} is not resumed: {}", journal.cause))
                    .hint(format!("`conclave stop {room}` stops it there"))
            }
            ResumeError::Journal(_) => Self::internal(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use conclave_runtime::store::{Durability, RunOrigin};

    use super::*;

    #[test]
    fn a_run_that_was_not_stored_is_not_offered_for_resuming() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RunStorage::in_store(
            Store::open(folder.path()).unwrap(),
            Durability::default(),
            RunOrigin::default(),
        );
        let error = unkept(&"the disk is full", &RoomId::from("d7f2ba80"), &storage).to_string();
        assert!(
            error.contains("nothing of this run was stored") && !error.contains("conclave resume"),
            "{error}"
        );
    }
}
