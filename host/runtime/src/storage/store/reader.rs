//! Looks at a store without writing to it, while another process may.

mod checks;
mod copy;
mod lists;

use std::path::{Path, PathBuf};

use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{ControlId, Millis, RoomId};
use rusqlite::Connection;
use serde::Serialize;

use super::rows::{RoomRow, RunRow, WaitRow};
use super::writer::StoreCheck;
use super::{StoreError, lock, reached, read, schema, wal};

/// Which runs are meant; what is none does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// `running`, `interrupted`, or an ending's word such as `done`.
    pub status: Option<String>,
    pub agent: Option<String>,
    /// In the first message, whatever its case.
    pub text: Option<String>,
    /// In micro-US-dollars, at least.
    pub cost: Option<u64>,
    pub since: Option<Millis>,
    /// The newest of them.
    pub most: Option<usize>,
}

/// What a name that a person wrote stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunMatch {
    One(RoomId),
    /// It begins several names.
    Several(Vec<RoomId>),
    Nothing,
}

/// A line of the audit chain, with its record where retention has left it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditRow {
    /// From 1, without gaps, over all rooms of the store.
    pub number: u64,
    pub room: RoomId,
    pub seq: u64,
    pub at: Millis,
    /// Lower-case hexadecimal, over the line before and this record.
    pub hash: String,
    pub record: Option<Record>,
}

/// An open store that is only read.
pub struct StoreReader {
    folder: PathBuf,
    connection: Connection,
}

impl StoreReader {
    /// Opens a store.
    ///
    /// # Errors
    /// `Missing`, `Newer`, `Damaged`, or what the operating system says.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let missing = || StoreError::Missing { folder: folder.to_owned() };
        let missing = || reached::emptied(folder).unwrap_or_else(missing);
        if reached::is_empty(folder) {
            return Err(missing());
        }
        let connection = schema::look(folder).map_err(|error| schema::failed(folder, &error))?;
        match schema::known(folder, &connection)? {
            // Its process is about to make it.
            0 => Err(missing()),
            schema::SCHEMA => Ok(Self { folder: folder.to_owned(), connection }),
            older => {
                let what = format!(
                    "its format is {older}; any command that writes to it brings it up to {}",
                    schema::SCHEMA
                );
                Err(StoreError::Other { folder: folder.to_owned(), what })
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs, newest first.
    ///
    /// # Errors
    /// As all of these: `Damaged`, or what SQLite says.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.of(lists::runs(self, filter))
    }

    /// The run or room that a name or its beginning means.
    pub fn find(&self, name: &str) -> Result<RunMatch, StoreError> {
        self.of(lists::find(&self.connection, name))
    }

    /// The rooms of a run, the root first.
    pub fn rooms(&self, run: &RoomId) -> Result<Vec<RoomRow>, StoreError> {
        self.of(lists::rooms(self, run))
    }

    /// The records of one room, each held against its hash; empty when there is no such room.
    pub fn records(&self, room: &RoomId) -> Result<Vec<Record>, StoreError> {
        read::records(&self.connection, room.as_str()).map_err(|error| error.of(&self.folder))
    }

    /// They as lines of JSON, as a journal of lines has them, whatever rules they were written by.
    pub fn lines(&self, room: &RoomId) -> Result<Vec<String>, StoreError> {
        read::lines(&self.connection, room.as_str()).map_err(|error| error.of(&self.folder))
    }

    /// The bytes of an attachment; none when the store does not hold them.
    pub fn blob(&self, sha256: &str) -> Result<Option<std::sync::Arc<[u8]>>, StoreError> {
        self.of(read::blob(&self.connection, sha256))
    }

    /// Milliseconds in which no host ran while the run was under way, as its root room tells it.
    pub fn down_ms(&self, run: &RoomId) -> Result<u64, StoreError> {
        self.of(lists::down_ms(&self.connection, run))
    }

    /// Whether a room has journalled this control message.
    pub fn has_received(&self, room: &RoomId, id: &ControlId) -> Result<bool, StoreError> {
        self.of(lists::has_received(&self.connection, room, id))
    }

    /// What rooms wait for, oldest first; of one run, or of all.
    pub fn waits(&self, run: Option<&RoomId>) -> Result<Vec<WaitRow>, StoreError> {
        self.of(lists::waits(self, run))
    }

    /// The audit chain from `first` on, so many lines.
    pub fn audit(&self, first: u64, most: usize) -> Result<Vec<AuditRow>, StoreError> {
        self.of(lists::audit(&self.connection, first, most))
    }

    /// Holds the whole chain and every record against it, and against a hash that somebody noted
    /// earlier.
    pub fn verify(&self, noted: Option<&str>) -> Result<StoreCheck, StoreError> {
        self.with_log(|connection| checks::verify(connection, noted))
    }

    /// Looks at every page of the file, every hash, and every reference.
    pub fn check(&self) -> Result<StoreCheck, StoreError> {
        self.with_log(checks::check)
    }

    /// A look at what SQLite reads, with what it does not read of its own log, where nobody writes
    /// to it, and what it should have read.
    fn with_log(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<StoreCheck>,
    ) -> Result<StoreCheck, StoreError> {
        // Noted before the look begins: a process that writes meanwhile only adds to what was there
        // then.
        let reached = reached::read(&self.folder);
        let mut checked = self.of(look(&self.connection))?;
        if let Some(reached) = reached {
            checked.problems.splice(0..0, self.of(reached.lacking(&self.connection))?);
        }
        let is_held = lock::is_held(&self.folder);
        let lost =
            if is_held { 0 } else { wal::lost_commits(&schema::wal(&self.folder)).unwrap_or(0) };
        if lost > 0 {
            checked.problems.insert(0, wal::damage(lost));
        }
        Ok(checked)
    }

    /// Copies the store as it is now, also while it is written, into a folder that is not there
    /// yet.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        copy::backup(self, to)
    }

    fn of<T>(&self, result: rusqlite::Result<T>) -> Result<T, StoreError> {
        result.map_err(|error| schema::failed(&self.folder, &error))
    }

    /// The generation of the process that writes now; none when there is none.
    fn live(&self) -> rusqlite::Result<Option<i64>> {
        if lock::is_held(&self.folder) {
            schema::meta(&self.connection, "generation").map(Some)
        } else {
            Ok(None)
        }
    }
}
