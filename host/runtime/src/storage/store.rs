//! The event log: one SQLite file in its own folder, with one writing process at a time and any
//! number of readers. Its content is specified in docs/reference/journal-format.md.
//!
//! [`Store`] is the writer: one thread that commits the records of all rooms in groups.
//! [`StoreReader`] reads it, from this process or another. [`ControlMessage`] sends a control
//! message from another process to the writing one, where [`crate::ControlInbox`] receives it.

mod address;
mod chain;
mod closing;
mod lock;
pub(crate) mod mail;
#[cfg(feature = "postgres")]
pub(super) mod overlays;
#[cfg(feature = "postgres")]
mod placement;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod reached;
mod read;
mod reader;
mod record;
mod rows;
mod schema;
mod snapshot;
mod sql;
#[cfg(feature = "postgres")]
mod wake_at;
mod wal;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use conclave_core::journal::snapshot::SNAPSHOT_EVERY;
pub use conclave_core::types::durability::Durability;
#[cfg(feature = "postgres")]
use conclave_core::types::ids::ControlId;
use conclave_core::types::ids::{Millis, RoomId};

use crate::storage::journal::Journals;
use crate::support::blobs::Blobs;

pub use address::{AddressError, PostgresAddress, StoreAddress};
pub use conclave_core::protocol::control::ControlCommand;
pub use mail::{ControlMessage, DecisionSent, Mail, MailState};
#[cfg(feature = "postgres")]
pub use placement::HostRow;
#[cfg(feature = "postgres")]
pub(crate) use placement::RunOutlook;
#[cfg(all(test, feature = "postgres"))]
pub(crate) use postgres::TestDatabase;
#[cfg(feature = "postgres")]
pub use postgres::{CopiedFiles, DatabaseCopy, PostgresKv};
pub use reader::{
    AuditRow, NoRunListPlace, NoRunPosition, RunFilter, RunListPlace, RunMatch, RunPosition,
    RunRecord, RunSpent, RunTotals, StoreReader, WithDamaged,
};
pub use rows::{CLOSED, DamagedRow, QuestionRow, RoomRow, RunRow, RunState, SERVED, WaitRow};
pub use writer::{ChainCheck, Collected, OpenStore, RemovedRun, Retention, StoreCheck};

/// The reason why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process is writing to it.
    #[error("the store {} is in use by {who}; one process at a time writes to a store", .store)]
    InUse {
        /// The store.
        store: StoreAddress,
        /// The other process, for display.
        who: String,
    },
    /// There is no store.
    #[error("there is no store at {}", .store)]
    Missing {
        /// The address without a store.
        store: StoreAddress,
    },
    /// Its bytes differ from the written ones.
    #[error("the store {} is damaged: {what}; `conclave store check` says how far, `conclave store backup` saves what can be read", .store)]
    Damaged {
        /// The store.
        store: StoreAddress,
        /// The damage, for display.
        what: String,
    },
    /// A newer host created it.
    #[error("the store {} was written by a newer host (its format is {version}, this host knows {known})", .store)]
    Newer {
        /// The store.
        store: StoreAddress,
        /// The format version of the store.
        version: i64,
        /// The newest format version that this host reads.
        known: i64,
    },
    /// An older host created it. Opening it for writing brings it up to this host's format.
    #[error("the store {} has the format {version}, and this host reads {known}; `conclave resume`, `run` and `store gc` bring it up to that", .store)]
    Older {
        /// The store.
        store: StoreAddress,
        /// The format version of the store.
        version: i64,
        /// The format version that this host reads.
        known: i64,
    },
    /// The shared folder of its large blobs is not named, not there, or another store's.
    #[error("the large blobs of the store {} cannot be reached: {what}", .store)]
    BlobFolder {
        /// The store.
        store: StoreAddress,
        /// The reason, and what mends it, for display.
        what: String,
    },
    /// Its server cannot be reached, or does not answer. It may come back.
    #[error("the store {} cannot be reached: {what}", .store)]
    Unreachable {
        /// The store.
        store: StoreAddress,
        /// The reason, for display.
        what: String,
    },
    /// Its tables are not those that this host made, or may not be used.
    #[error("the tables of the store {} cannot be used: {what}", .store)]
    Tables {
        /// The store.
        store: StoreAddress,
        /// What is missing, for display.
        what: String,
        /// The statements that mend it, for display.
        remedy: String,
    },
    /// It has no room of this name.
    #[error("the store {} has no room {room}", .store)]
    UnknownRoom {
        /// The store.
        store: StoreAddress,
        /// The room.
        room: RoomId,
    },
    /// Any other error of the operating system or the database.
    #[error("the store {} cannot be used: {what}", .store)]
    Other {
        /// The store.
        store: StoreAddress,
        /// The reason, for display.
        what: String,
    },
}

/// The origin of a process's runs, which is needed to resume them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunOrigin {
    /// The config's file, as an absolute path.
    pub config: Option<PathBuf>,
    /// The command, such as `run`, `chat`, `batch` or `mcp`.
    pub command: String,
    /// Whether the run was checked against the lock beside the config.
    pub locked: bool,
    /// Who decides on calls that need an approval, in a word of the program that starts the run;
    /// empty if it offers no choice. A resumption begins with the same.
    pub approvals: String,
    /// Who answers the questions of tasks, likewise.
    pub questions: String,
    /// The pool of workers that may take the runs over, where hosts share the store; `None` if none
    /// may. See [`Prepared::pool`](crate::Prepared::pool).
    pub pool: Option<String>,
}

/// The options of opening a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The maximum size of the store's file in bytes, past which runs stop as on a full disk.
    /// `None` for no limit but the disk.
    pub most_bytes: Option<u64>,
    /// The number of records after which a room's snapshot is written. `None` for
    /// [`SNAPSHOT_EVERY`]; tests have fewer.
    pub snapshot_every: Option<u64>,
    /// The name of this host for display, where several hosts share a store.
    pub host: String,
    /// The command that this process runs, for display.
    pub command: String,
    /// A private folder of this machine, for working copies of overlays whose changes are in a
    /// database. `None` refuses overlays there; a store in a folder has its own.
    pub copies: Option<PathBuf>,
    /// The maximum delay of records of durability `group` that nothing waits for. Those that come
    /// meanwhile share their commit. `None` for 10 ms.
    pub group_delay: Option<Duration>,
}

/// The counters of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// The number of records committed.
    pub records: u64,
    /// The number of commits; each holds the waiting records of all rooms.
    pub commits: u64,
    /// The number of commits with an fsync.
    pub synced: u64,
    /// The number of snapshots of rooms.
    pub snapshots: u64,
}

/// A store that this process writes. Dropping the last handle commits the remaining records and
/// releases the lock.
#[derive(Clone)]
pub struct Store(Arc<writer::StoreWriter>);

impl Store {
    /// Opens or creates the store in a folder: takes its lock, migrates an older format and checks
    /// its integrity.
    ///
    /// # Errors
    /// `InUse`, `Damaged`, `Newer`, or `Other` for an error of the operating system.
    pub fn open(address: impl Into<StoreAddress>) -> Result<Self, StoreError> {
        Self::open_with(address, &StoreOptions::default())
    }

    /// Opens a store with these options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        address: impl Into<StoreAddress>,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let writer = match address.into() {
            StoreAddress::Folder(folder) => writer::StoreWriter::open(&folder, options),
            #[cfg(feature = "postgres")]
            StoreAddress::Postgres(address) => writer::StoreWriter::join(&address, options),
            #[cfg(not(feature = "postgres"))]
            address @ StoreAddress::Postgres(_) => {
                let what = AddressError::NoPostgres.to_string();
                Err(StoreError::Other { store: address, what })
            }
        };
        writer.map(|writer| Self(Arc::new(writer)))
    }

    /// Opens the first store below a folder that is intact and not in use: `1`, `2` and so on. A
    /// missing one is created.
    ///
    /// # Errors
    /// As [`open`](Self::open); `InUse`, `Damaged` and `Newer` only if they apply to all.
    pub fn open_free(stores: &Path) -> Result<Self, StoreError> {
        writer::open_free(stores)
    }

    /// The store's address.
    #[must_use]
    pub fn address(&self) -> &StoreAddress {
        self.0.address()
    }

    /// The store's folder; `None` for a database.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.0.folder()
    }

    /// Whether this store is still open, without holding it open.
    #[must_use]
    pub fn watch_open(&self) -> OpenStore {
        self.0.watch_open()
    }

    /// Whether runs of this store can have overlays: see [`StoreOptions::copies`].
    #[must_use]
    pub fn has_overlays(&self) -> bool {
        self.0.has_overlays()
    }

    /// The counters so far.
    #[must_use]
    pub fn written(&self) -> StoreTotals {
        self.0.written()
    }

    /// Returns journals in this store.
    #[must_use]
    pub fn journals(&self, durability: Durability, about: RunOrigin) -> Arc<dyn Journals> {
        writer::journals(&self.0, durability, about)
    }

    /// A store of attachments beside the records that refer to them.
    #[must_use]
    pub fn blobs(&self) -> Arc<dyn Blobs> {
        writer::blobs(&self.0)
    }

    /// Takes the control messages that `is_meant` accepts, oldest first; each is returned again
    /// until it is deleted. The others stay for the process that opens their runs next.
    ///
    /// Messages more than a day old are deleted if their run has ended or is unknown. Messages from
    /// an earlier delivery that is over (`is_left`) are deleted if they are journalled.
    pub(crate) fn mail_for(
        &self,
        is_meant: impl Fn(&ControlMessage) -> bool,
        is_left: impl Fn(&ControlMessage) -> bool,
    ) -> Result<Vec<mail::ReceivedMail>, StoreError> {
        let journal_has = |mail: &ControlMessage| self.0.has_received(&mail.room, &mail.id);
        let is_received =
            |mail: &ControlMessage| is_left(mail) && journal_has(mail).unwrap_or(false);
        match self.folder() {
            Some(folder) => {
                mail::receive(folder, &is_meant, &|room| self.0.is_over(room), &is_received)
            }
            #[cfg(feature = "postgres")]
            None => self.mail_in_tables(&is_meant, &is_received),
            #[cfg(not(feature = "postgres"))]
            None => Ok(Vec::new()),
        }
    }

    /// Does the same for the runs that this process owns in a database.
    #[cfg(feature = "postgres")]
    fn mail_in_tables(
        &self,
        is_meant: &dyn Fn(&ControlMessage) -> bool,
        is_received: &dyn Fn(&ControlMessage) -> bool,
    ) -> Result<Vec<mail::ReceivedMail>, StoreError> {
        let Some(host) = self.0.host() else { return Ok(Vec::new()) };
        // Whoever runs rooms looks for messages, so this is where it learns that it lost them.
        self.0.note_lost_runs()?;
        let mut received = Vec::new();
        for message in self.0.ask_tables(move |tables| mail::to_runs_of(tables, &host))? {
            let id = message.id.clone();
            if !is_meant(&message) {
                if is_received(&message) {
                    self.delete_mail(&id);
                }
            } else if self.0.ask_tables(move |tables| mail::take(tables, &id))? {
                received.push(mail::ReceivedMail::of_row(message, self.clone()));
            }
        }
        Ok(received)
    }

    /// Deletes a message from the table of messages. If that fails, it is read again, and the room
    /// ignores it.
    #[cfg(feature = "postgres")]
    fn delete_mail(&self, id: &ControlId) {
        let id = id.clone();
        let _ = self.0.ask_tables(move |tables| mail::delete(tables, &id));
    }

    /// Whether a run has a room without an outcome, or cannot be read; on a thread that may block.
    pub(crate) fn may_be_open(&self, run: &RoomId) -> bool {
        self.0.may_be_open(run)
    }

    /// Removes ended runs, and blobs without references.
    ///
    /// # Errors
    /// Fails with an error of SQLite.
    pub fn collect(&self, keep: &Retention) -> Result<Collected, StoreError> {
        self.0.collect(keep)
    }

    /// Notes the time at which this process stops running its rooms, for a program that then ends
    /// without dropping them. Their downtime counts from it; otherwise only an upper bound is known,
    /// which counts from their last records. It must be called on a blocking thread.
    ///
    /// # Errors
    /// Fails with an error of SQLite.
    pub fn note_stop(&self, at: Millis) -> Result<(), StoreError> {
        self.0.note_stop(at)
    }

    /// Marks an interrupted run as ended without running it, for `conclave stop`. It reads the
    /// run's journals and waits for the disk, so it must be called on a blocking thread.
    ///
    /// # Errors
    /// Fails with an error of SQLite, or if there is no such room.
    pub fn give_up(&self, room: &RoomId, reason: &str) -> Result<(), StoreError> {
        let word = ControlCommand::Stop { reason: reason.to_owned() };
        self.give_up_for(&ControlMessage::new(room.clone(), word))
    }

    /// Does the same for a message with the command `Stop`. The run records it, and so who sent it.
    ///
    /// # Errors
    /// As [`give_up`](Self::give_up).
    pub fn give_up_for(&self, stop: &ControlMessage) -> Result<(), StoreError> {
        self.0.give_up(stop)
    }
}

/// Whether a process, this one included, writes to the store in a folder. It only checks the lock:
/// it opens no database and does not wait.
#[must_use]
pub fn is_in_use(folder: &Path) -> bool {
    lock::is_held(folder)
}

/// The stores below a folder, in order; [`Store::open_free`] created them.
#[must_use]
pub fn all(stores: &Path) -> Vec<PathBuf> {
    writer::all(stores)
}
