//! The writing side of a store: its lock, the opening of its file, a thread that reads for resumed
//! rooms, and a thread that commits. The committing thread writes the records of all rooms in
//! groups, with one transaction and one fsync for each group.

mod attachments;
mod commit;
pub(super) mod engine;
mod giving_up;
mod journal;
mod opening;
#[cfg(feature = "postgres")]
pub(super) mod overlays;
mod pending_work;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
mod queue;
mod reading;
mod retention;
mod sqlite;
mod thread;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
#[cfg(feature = "postgres")]
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use conclave_core::journal::ownership::one_history;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{ControlId, Millis, RoomId};
use serde::Serialize;
use tokio::sync::oneshot;

#[cfg(feature = "postgres")]
use super::closing::Closing;
use super::closing::{CloseTime, StoreThread};
use super::lock::StoreLock;
use super::reader::lists;
use super::record::Rows;
use super::sql::{Sql, SqlError, SqlResult};
use super::{Durability, RunOrigin, StoreAddress, StoreError, StoreTotals, read, snapshot};
use crate::storage::journal::Journals;
use crate::support::blobs::Blobs;
use crate::support::overlay_files;

use engine::Taken;
pub(super) use opening::{all, open_free};
use queue::{Answer, Cause, WriterTask};
use reading::ReaderThread;
use thread::{OwnedRun, WriterState};

/// The retention of ended runs. The newest `runs` stay even if they ended before `before`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The time before which ended runs are removed.
    pub before: Option<Millis>,
    /// The number of newest runs that stay.
    pub runs: Option<usize>,
    /// The config of the runs, as an absolute path. With it the runs of others neither count nor go.
    pub config: Option<PathBuf>,
    /// The maximum number of runs that one collection removes, the oldest first. Commits wait for
    /// its end.
    pub most: Option<usize>,
    /// Whether runs are only counted and not removed.
    pub dry: bool,
}

impl Retention {
    /// The config as the engines compare it; empty for every config.
    fn config_text(&self) -> Cow<'_, str> {
        self.config.as_deref().map(Path::to_string_lossy).unwrap_or_default()
    }

    /// Whether this many runs are as many as one collection may remove.
    fn is_full(&self, removed: usize) -> bool {
        self.most.is_some_and(|most| removed >= most)
    }
}

/// The removed runs and their totals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// The root rooms of the removed runs, oldest first.
    pub runs: Vec<RoomId>,
    /// The number of removed records.
    pub records: u64,
    /// The number of removed blobs; each had no reference left.
    pub blobs: u64,
    /// The total size of the removed records and blobs in bytes.
    pub bytes: u64,
    /// The root rooms of runs that stay because of changes in their overlays.
    #[serde(rename = "kept")]
    pub remaining_runs: Vec<RoomId>,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreCheck {
    /// The number of rooms.
    pub rooms: u64,
    /// The number of records that are present; retention leaves only their audit lines.
    pub records: u64,
    /// The number of blobs.
    pub blobs: u64,
    /// The size of the store's file in bytes.
    pub bytes: u64,
    /// The hash of the newest line of each audit chain, in the order of the chains. Serialised as
    /// `head`: a text if there is one chain, null if there is none, and a list if there are several.
    #[serde(rename = "head", serialize_with = "one_or_several")]
    pub heads: Vec<String>,
    /// Each audit chain that has lines, in order.
    #[serde(skip)]
    pub chains: Vec<ChainCheck>,
    /// The runs that are noted as removed by retention, oldest first. Their records are not missed, so
    /// a run that nobody removed is one that somebody took out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_runs: Vec<RemovedRun>,
    /// The descriptions of the problems; empty if the store is intact.
    pub problems: Vec<String>,
}

/// The check of an audit chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChainCheck {
    /// The number of the chain, from 1.
    pub chain: u64,
    /// The number of its newest line.
    pub lines: u64,
    /// The hash of its newest line.
    pub head: String,
    /// The number of the first line that is missing, was changed, or has another record; `None` if
    /// the chain is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_at: Option<u64>,
}

/// A run that retention removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RemovedRun {
    /// The run.
    pub run: RoomId,
    /// The time of its removal.
    pub at: Millis,
}

fn one_or_several<S: serde::Serializer>(heads: &[String], to: S) -> Result<S::Ok, S::Error> {
    match heads {
        [] => to.serialize_none(),
        [head] => to.serialize_str(head),
        several => several.serialize(to),
    }
}

pub(super) struct StoreWriter {
    address: StoreAddress,
    /// The name under which this process owns runs; `None` if it owns the whole store.
    host: Option<String>,
    shared: Arc<WriterState>,
    rows: Rows,
    /// The number of records after which a room's snapshot is due.
    snapshot_every: u64,
    /// The thread for reads that writing needs.
    reading: Option<ReaderThread>,
    thread: Option<StoreThread>,
    close: CloseTime,
    /// The folder of this machine for working copies of overlays; `None` if none may be kept.
    #[cfg(feature = "postgres")]
    copies: Option<PathBuf>,
    /// This process's folder in it, from its first working copy on.
    #[cfg(feature = "postgres")]
    working: Mutex<Option<overlays::WorkingCopies>>,
    /// Dropped last, so that the lock outlives the threads; `None` for a database.
    lock: Option<StoreLock>,
    /// Dropped after the lock.
    open: Arc<()>,
}

/// A look at a store that this process has opened.
#[derive(Clone, Debug)]
pub struct OpenStore(Weak<()>);

impl OpenStore {
    /// Whether the store is open. Once it is not, its last records are committed and other processes
    /// may take its runs.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl StoreWriter {
    pub(super) fn address(&self) -> &StoreAddress {
        &self.address
    }

    pub(super) fn watch_open(&self) -> OpenStore {
        OpenStore(Arc::downgrade(&self.open))
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        self.address.folder()
    }

    /// Whether there is a place for the files of overlays.
    pub(super) fn has_overlays(&self) -> bool {
        #[cfg(feature = "postgres")]
        if self.copies.is_some() {
            return true;
        }
        self.folder().is_some()
    }

    /// Whether other hosts write to the store, too.
    fn is_shared(&self) -> bool {
        self.host.is_some()
    }

    /// Begins to close what uses the store, or the store.
    #[cfg(feature = "postgres")]
    pub(super) fn begin_close(&self) -> Closing {
        self.close.begin()
    }

    /// The name under which this process owns runs; `None` if it owns the whole store.
    #[cfg(feature = "postgres")]
    pub(super) fn host(&self) -> Option<String> {
        self.host.clone()
    }

    /// The epoch by which this process owns a run.
    #[cfg(feature = "postgres")]
    pub(super) fn epoch(&self, run: &RoomId) -> Option<u64> {
        self.shared.epochs().get(run).map(|owned| owned.epoch)
    }

    /// Tells the rooms of runs that another host has taken. A room that only waits would not notice.
    #[cfg(feature = "postgres")]
    pub(super) fn note_lost_runs(&self) -> Result<(), StoreError> {
        let runs: Vec<String> = self.shared.epochs().keys().map(ToString::to_string).collect();
        if runs.is_empty() {
            return Ok(());
        }
        // No name has this character.
        let runs = runs.join("\u{1}");
        let rows = self.ask_tables(move |tables| {
            tables.rows(
                "SELECT room, epoch FROM rooms WHERE room = ANY (string_to_array(?1, chr(1)))",
                &[runs.as_str().into()],
                |row| Ok((RoomId::from(row.get::<String>(0)?), row.get::<u64>(1)?)),
            )
        })?;
        let epochs = self.shared.epochs();
        for (run, epoch) in rows {
            // The epoch alone decides: this host may have taken the run anew since.
            if let Some(owned) = epochs.get(&run).filter(|owned| owned.epoch < epoch) {
                owned.is_lost.send_replace(true);
            }
        }
        Ok(())
    }

    /// The runs of which this process has a room open.
    #[cfg(feature = "postgres")]
    pub(super) fn open_runs(&self) -> Vec<RoomId> {
        self.shared.live().iter().map(RoomId::run).collect()
    }

    /// Waits until everything sent so far can be read, on a thread that may block.
    #[cfg(feature = "postgres")]
    pub(super) fn written_so_far(&self) -> Result<(), StoreError> {
        self.ask(WriterTask::Barrier).map_err(|cause| self.failed(&cause))
    }

    /// Takes a room for this process at a time of its host's clock, and returns its epoch; `None`
    /// if there is no such room.
    async fn take(&self, room: &RoomId, now: Millis) -> Result<Option<u64>, Cause> {
        if !self.is_shared() {
            return Ok(Some(0));
        }
        let of_task = room.clone();
        match self.submit(|answer| WriterTask::Take(of_task, now, answer)).await? {
            Taken::Owned { epoch } => {
                let mut epochs = self.shared.epochs();
                match epochs.get(&room.run()) {
                    // A child room of a run that this host owned before.
                    Some(owned) if owned.epoch == epoch => {}
                    _ => drop(epochs.insert(room.run(), OwnedRun::by(epoch))),
                }
                drop(epochs);
                Ok(Some(epoch))
            }
            Taken::Missing => Ok(None),
            Taken::Busy { host } => Err(Cause::new(
                std::io::ErrorKind::ResourceBusy,
                format!("the host {host} has it in progress"),
            )),
        }
    }

    /// Returns the epoch of a new room: that of its run.
    fn first_epoch(&self, room: &RoomId) -> Result<u64, Cause> {
        if !self.is_shared() {
            return Ok(0);
        }
        let run = room.run();
        let mut epochs = self.shared.epochs();
        if *room == run {
            epochs.insert(run, OwnedRun::by(1));
            return Ok(1);
        }
        epochs.get(&run).map(|owned| owned.epoch).ok_or_else(|| {
            Cause::new(std::io::ErrorKind::Other, "this host does not own the run of the room")
        })
    }

    pub(super) fn collect(&self, keep: &Retention) -> Result<Collected, StoreError> {
        let collected = self
            .ask(|answer| WriterTask::Collect(keep.clone(), answer))
            .map_err(|cause| self.failed(&cause))?;
        for run in collected.runs.iter().filter(|_| !keep.dry) {
            // A folder that is left here has no change, and its run is gone.
            let Some(folder) = self.folder() else { continue };
            let _ = overlay_files::remove(&overlay_files::run_folder(folder, run.as_str()));
        }
        Ok(collected)
    }

    pub(super) fn note_stop(&self, at: Millis) -> Result<(), StoreError> {
        self.ask(|answer| WriterTask::NoteStop(at, answer)).map_err(|cause| self.failed(&cause))
    }

    pub(super) fn written(&self) -> StoreTotals {
        let WriterState { records, commits, synced, snapshots, .. } = &*self.shared;
        let [records, commits, synced, snapshots] =
            [records, commits, synced, snapshots].map(|count| count.load(Ordering::Relaxed));
        StoreTotals { records, commits, synced, snapshots }
    }

    /// Returns why attachments cannot be stored at present, once for each cause.
    #[cfg(feature = "postgres")]
    pub(super) fn report_rejection(&self) -> Option<StoreError> {
        self.shared.report_rejection().map(|cause| self.failed(&cause))
    }

    /// Whether this process was started with the shared folder of large blobs.
    #[cfg(feature = "postgres")]
    pub(super) fn has_blob_folder(&self) -> bool {
        matches!(&self.address, StoreAddress::Postgres(database) if database.blobs().is_some())
    }

    fn place(&self) -> String {
        journal::place(&self.address)
    }

    fn failed(&self, cause: &Cause) -> StoreError {
        let (store, what) = (self.address.clone(), cause.text.clone());
        match cause.kind {
            std::io::ErrorKind::InvalidData => StoreError::Damaged { store, what },
            _ => StoreError::Other { store, what },
        }
    }

    /// Sends a task to the thread and returns its answer as a future. The thread never waits for a
    /// caller.
    fn submit<T, W>(&self, work: W) -> impl Future<Output = Result<T, Cause>> + use<T, W>
    where
        W: FnOnce(Answer<T>) -> WriterTask,
    {
        let (answer, answered) = oneshot::channel();
        let pushed = self.shared.queue.push(work(answer));
        async move {
            pushed?;
            answered.await.unwrap_or_else(|_| {
                Err(Cause::new(std::io::ErrorKind::BrokenPipe, "the thread that writes it is gone"))
            })
        }
    }

    /// Does the same on a thread that may block.
    fn ask<T>(&self, work: impl FnOnce(Answer<T>) -> WriterTask) -> Result<T, Cause> {
        // `unconstrained`, because the caller may be a task whose polling budget is used up; the
        // answer would then never wake it.
        futures_executor::block_on(tokio::task::unconstrained(self.submit(work)))
    }

    /// Waits until everything sent so far can be read.
    fn barrier(&self) -> impl Future<Output = Result<(), Cause>> + use<> {
        self.submit(WriterTask::Barrier)
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        self.reading.as_ref().ok_or_else(SqlError::no_reader)?.look(look).await
    }

    fn read_now<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        self.reading.as_ref().ok_or_else(SqlError::no_reader)?.look_now(look)
    }

    /// Asks the tables on a thread that may block.
    #[cfg(feature = "postgres")]
    pub(super) fn ask_tables<T: Send + 'static>(
        &self,
        look: impl FnOnce(&dyn Sql) -> SqlResult<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_now(look).map_err(|error| error.of(&self.address))
    }

    /// Whether a room has journalled a control message, on a thread that may block.
    pub(super) fn has_received(&self, room: &RoomId, id: &ControlId) -> Result<bool, StoreError> {
        let (room, id) = (room.clone(), id.clone());
        let found = self.read_now(move |tables| lists::has_received(tables, &room, &id));
        found.map_err(|error| error.of(&self.address))
    }

    /// Whether a run has ended or is not in this store.
    pub(super) fn is_over(&self, room: &RoomId) -> bool {
        let name = room.clone();
        let open = "SELECT 1 FROM rooms WHERE room = ?1 AND ended IS NULL";
        let is_open = self.read_now(move |tables| tables.has_row(open, &[name.as_str().into()]));
        matches!(is_open, Ok(false)) && !self.shared.live().contains(room)
    }

    /// Whether a run has a room without an outcome, or cannot be read.
    pub(super) fn may_be_open(&self, run: &RoomId) -> bool {
        let name = run.clone();
        let open = "SELECT 1 FROM rooms WHERE run = ?1 AND ended IS NULL";
        let is_open = self.read_now(move |tables| tables.has_row(open, &[name.as_str().into()]));
        is_open.unwrap_or(true)
    }

    /// Returns the records of a room that count.
    async fn records(&self, room: &RoomId) -> Result<Vec<Record>, Cause> {
        let room = room.clone();
        let read = self.read(move |tables| Ok(read::records(tables, room.as_str(), 0)));
        let records = read.await.map_err(|error| Cause::of(&error))?.map_err(cause_of)?;
        Ok(one_history(records).collect())
    }

    /// Returns the room of its snapshot, if there is one, the records behind it, and the time at
    /// which the process that ran it noted its stop.
    async fn stored(&self, room: &RoomId) -> Result<StoredRoom, Cause> {
        let room = room.clone();
        let look = move |tables: &dyn Sql| {
            let room = room.as_str();
            let mut snapshot = snapshot::read(tables, room)?;
            let behind = behind(tables, room, snapshot.as_deref_mut());
            let stopped = "SELECT stopped FROM rooms WHERE room = ?1";
            let stopped = tables.first(stopped, &[room.into()], |row| row.get::<Option<u64>>(0))?;
            let stopped = stopped.flatten().map(Millis);
            Ok(behind.map(|records| StoredRoom { snapshot, records, stopped }))
        };
        let stored = self.read(look).await;
        stored.map_err(|error| Cause::of(&error))?.map_err(cause_of)
    }
}

fn cause_of(error: read::ReadError) -> Cause {
    match error {
        read::ReadError::Sql(error) => Cause::of(&error),
        damaged => Cause::new(std::io::ErrorKind::InvalidData, damaged.to_string()),
    }
}

/// A room as the store has it.
struct StoredRoom {
    snapshot: Option<Box<Unfinished>>,
    records: Vec<Record>,
    stopped: Option<Millis>,
}

/// Returns the records behind a snapshot, and adds to the snapshot what calls in flight have read.
fn behind(
    tables: &dyn Sql,
    room: &str,
    snapshot: Option<&mut Unfinished>,
) -> Result<Vec<Record>, read::ReadError> {
    let Some(snapshot) = snapshot else { return read::records(tables, room, 0) };
    for seq in snapshot.in_flight.read_records() {
        snapshot.restore_reads([read::record(tables, room, seq)?]);
    }
    read::records(tables, room, snapshot.next)
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        let until = self.is_shared().then(|| self.close.begin_last());
        // The writer's connection closes last, so that its checkpoint leaves a single file.
        if let Some(reading) = self.reading.take() {
            reading.close(until);
        }
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            thread.join(until);
        }
    }
}

pub(super) fn journals(
    writer: &Arc<StoreWriter>,
    durability: Durability,
    about: RunOrigin,
) -> Arc<dyn Journals> {
    Arc::new(journal::StoreJournals::new(writer, durability, about))
}

pub(super) fn blobs(writer: &Arc<StoreWriter>) -> Arc<dyn Blobs> {
    Arc::new(attachments::StoreBlobs(Arc::clone(writer)))
}
