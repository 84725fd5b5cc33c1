//! The event log: one SQLite file in a folder of its own, which one process at a time writes and
//! any may read. What is in it is in docs/reference/journal-format.md.
//!
//! [`Store`] is the writer: one thread that commits the records of all rooms in groups. [`StoreReader`]
//! looks at it, from this process or another. [`ControlMessage`] is how another process sends a control
//! message to the one that writes, and [`crate::ControlInbox`] receives it there.

mod chain;
mod lock;
pub(crate) mod mail;
mod reached;
mod read;
mod reader;
mod record;
mod rows;
mod schema;
mod wal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use conclave_core::types::durability::Durability;
use conclave_core::types::ids::RoomId;

use crate::storage::journal::Journals;
use crate::support::blobs::Blobs;

pub use mail::{ControlCommand, ControlMessage, MailState};
pub use reader::{AuditRow, RunFilter, RunMatch, StoreReader};
pub use rows::{RoomRow, RunRow, RunState, WaitRow};
pub use writer::{Collected, Retention, StoreCheck};

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process writes to it.
    #[error("the store {} is in use by {who}; one process at a time writes to a store", .folder.display())]
    InUse { folder: PathBuf, who: String },
    /// It is not there.
    #[error("there is no store at {}", .folder.display())]
    Missing { folder: PathBuf },
    /// Its bytes are not what was written.
    #[error("the store {} is damaged: {what}; `conclave store check` says how far, `conclave store backup` saves what can be read", .folder.display())]
    Damaged { folder: PathBuf, what: String },
    /// A newer host made it.
    #[error("the store {} was written by a newer host (its format is {found}, this host knows {known})", .folder.display())]
    Newer { folder: PathBuf, found: i64, known: i64 },
    /// What the operating system or SQLite says.
    #[error("the store {} cannot be used: {what}", .folder.display())]
    Other { folder: PathBuf, what: String },
}

/// What is noted of the runs that a process keeps, so that they can be gone on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOrigin {
    /// The config's file, absolute.
    pub config: Option<PathBuf>,
    /// Such as `run`, `chat`, `batch`, `mcp`.
    pub command: String,
    /// The run was held to the lock beside the config.
    pub locked: bool,
}

/// How a store is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// What its file may take up; past it runs stop as when the disk is full. None: what the disk
    /// has.
    pub most_bytes: Option<u64>,
}

/// What a store has written since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    pub records: u64,
    pub commits: u64,
    /// Commits with an fsync.
    pub synced: u64,
}

/// A store that this process writes. Dropping the last handle commits what is left and lets the
/// lock go.
#[derive(Clone)]
pub struct Store(Arc<writer::StoreWriter>);

impl Store {
    /// Opens or makes the store in a folder, takes its lock, brings an older format up to date, and
    /// looks whether it is whole.
    ///
    /// # Errors
    /// `InUse`, `Damaged`, `Newer`, or what the operating system says.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::open_with(folder, &StoreOptions::default())
    }

    /// The same, otherwise than usual.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(folder: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        writer::StoreWriter::open(folder, options).map(|writer| Self(Arc::new(writer)))
    }

    /// The first store below a folder that no other process writes and that is whole: `1`, `2` and
    /// so on, made when it is not there.
    ///
    /// # Errors
    /// As [`open`](Self::open); `InUse`, `Damaged` and `Newer` only when all are.
    pub fn open_free(stores: &Path) -> Result<Self, StoreError> {
        writer::open_free(stores)
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// What was written so far.
    #[must_use]
    pub fn written(&self) -> StoreTotals {
        self.0.written()
    }

    /// Keeps the journals of runs.
    #[must_use]
    pub fn journals(&self, durability: Durability, about: RunOrigin) -> Arc<dyn Journals> {
        writer::journals(&self.0, durability, about)
    }

    /// Keeps attachments beside the records that refer to them.
    #[must_use]
    pub fn blobs(&self) -> Arc<dyn Blobs> {
        writer::blobs(&self.0)
    }

    /// Takes the control messages that are meant, oldest first; each is taken again until it is
    /// deleted. The others stay for the process that has their runs under way next. Those sent more
    /// than a day ago to a run that has ended, or is not here, are deleted. Those that were taken
    /// before, are left (`is_left`) and stand in a journal are deleted too.
    pub(crate) fn mail_for(
        &self,
        is_meant: impl Fn(&ControlMessage) -> bool,
        is_left: impl Fn(&ControlMessage) -> bool,
    ) -> Result<Vec<mail::ReceivedMail>, StoreError> {
        let journal_has = |mail: &ControlMessage| {
            StoreReader::open(self.folder())
                .and_then(|reader| reader.has_received(&mail.room, &mail.id))
        };
        let is_received =
            |mail: &ControlMessage| is_left(mail) && journal_has(mail).unwrap_or(false);
        mail::receive(self.folder(), &is_meant, &|room| self.0.is_over(room), &is_received)
    }

    /// Removes what need not be kept any longer: runs that have ended, and payloads that nothing
    /// refers to.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn collect(&self, keep: &Retention) -> Result<Collected, StoreError> {
        self.0.collect(keep)
    }

    /// Marks a run that will not be gone on with as over, without running any of it: for `conclave
    /// stop` of a run that was cut off. Reads its journals and waits for the disk, so it is for a
    /// thread that may.
    ///
    /// # Errors
    /// What SQLite says, or when there is no such room.
    pub fn give_up(&self, room: &RoomId, reason: &str) -> Result<(), StoreError> {
        self.0.give_up(room, reason)
    }
}

/// Whether a process, this one included, writes to the store in a folder. Looks at its lock alone:
/// nothing is opened, and nobody waits.
#[must_use]
pub fn is_in_use(folder: &Path) -> bool {
    lock::is_held(folder)
}

/// The stores below a folder, in order: each made by [`Store::open_free`].
#[must_use]
pub fn all(stores: &Path) -> Vec<PathBuf> {
    writer::all(stores)
}
