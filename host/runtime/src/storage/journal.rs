//! Journals, which store records. The driver appends before it performs, so an acknowledged record
//! is never lost. The format of a line belongs to the core.

use std::collections::{BTreeMap, btree_map};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::journal::record::to_line;
pub use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::control::SentCommand;
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Outcome;
use conclave_core::types::usage::Spent;

use crate::support::clock::BoxFuture;
use crate::support::durable_file;
use crate::support::overlay_files::OverlayPlace;

/// The records and derived data of one append.
#[derive(Clone, Copy, Debug)]
pub struct JournalBatch<'a> {
    /// The records in their order; stored all or none.
    pub records: &'a [Arc<Record>],
    /// The changes of the room's pending work, derived from the records for listings that do not
    /// replay them.
    pub waits: &'a [WaitChange],
    /// The outcome of the room's run, if these records end it.
    pub outcome: Option<&'a Arc<Outcome>>,
    /// The usage of the run after these records.
    pub spent: Spent,
}

/// The durability of an append. The futures must complete without the caller's executor, such as by
/// a thread of the journal. A dropped session blocks on them, and its executor does not run
/// meanwhile.
pub enum Keeping {
    /// The records are as durable as this journal makes them.
    Kept,
    /// Durable later, together with other records; [`Journal::hurry`] ends the delay. Until then no
    /// effect leaves the host and nothing is published.
    Soon(BoxFuture<'static, Result<(), JournalFailure>>),
    /// Durable later; until then no effect is performed at all.
    First(BoxFuture<'static, Result<(), JournalFailure>>),
}

/// The journal of one room, with a single writer.
pub trait Journal: Send + 'static {
    /// Waits until there is space for more records. It is awaited before each
    /// [`append`](Self::append), so that a full queue delays its room without blocking a thread.
    /// Like the futures of [`Keeping`], it must complete without the executor. Ready by default.
    ///
    /// # Errors
    /// Fails when no more records are accepted.
    fn ready(&mut self) -> BoxFuture<'_, Result<(), JournalFailure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Appends records. It is called in the room's loop and must not block, neither on a disk nor
    /// on another thread.
    ///
    /// # Errors
    /// Fails when the records cannot be stored; the room stops.
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure>;

    /// The epoch under which the host owns the room; the driver writes it into each record. 0, the
    /// default, in a store that only one host can open at a time.
    fn epoch(&self) -> u64 {
        0
    }

    /// Resolves when another host has taken the room over; `None`, the default, if none can. A room
    /// that only waits appends nothing, and would not notice otherwise. Asked once.
    fn watch_loss(&mut self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Makes the appended records durable without a delay, because output that leaves the host waits
    /// for them. Records that nothing waits for may be delayed, so that they share a commit with
    /// later ones. It must not block.
    fn hurry(&mut self) {}

    /// Whether the journal stores records; if not, the driver does not build them.
    fn keeps(&self) -> bool {
        true
    }

    /// Waits until all appended records survive a power loss too; awaited before an outcome is
    /// returned.
    fn settle(&mut self) -> BoxFuture<'static, Result<(), JournalFailure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The number of records at which a snapshot of the room is due. `None` if the journal keeps no
    /// snapshots, and then always; the driver does not prepare any.
    fn snapshot_due(&self) -> Option<u64> {
        None
    }

    /// Takes a snapshot of the room after all appended records, called directly after an
    /// [`append`](Self::append). It must not become readable before those records, and must not
    /// block. Cloned with shared structure: writing it as bytes is for another thread.
    fn keep_snapshot(&mut self, snapshot: Unfinished) {
        drop(snapshot);
    }
}

/// The journal of a resumed room, with its records.
pub struct Reopened {
    /// The room after the records that are not read again; `None` if `records` are all.
    pub snapshot: Option<Box<Unfinished>>,
    /// The records behind the snapshot.
    pub records: Vec<Record>,
    /// The time at which the process that ran the room noted that it stops; `None` if it noted
    /// nothing.
    pub stopped: Option<Millis>,
    /// The messages of other processes that the room has not recorded yet, oldest first. They are
    /// handled before anything of the room goes on; one that it has recorded has no effect.
    pub messages: Vec<SentCommand>,
    /// The writer, which appends after these records.
    pub journal: Box<dyn Journal>,
}

impl Reopened {
    /// The time of the last record behind the snapshot, 0 without one. That of a take-over is not
    /// in the room's own time, and comes from the clock of another host if that host took the room
    /// and did nothing more.
    pub(crate) fn last_at(&self) -> Millis {
        self.records.last().map_or(Millis(0), |last| last.at)
    }

    /// The room after all of its records, the writer and the messages.
    pub(crate) fn folded(self) -> (Unfinished, Box<dyn Journal>, Vec<SentCommand>) {
        let Self { snapshot, records, stopped, messages, journal } = self;
        let mut unfinished = snapshot.map(|snapshot| *snapshot).unwrap_or_default();
        unfinished.extend(records);
        unfinished.stopped = stopped;
        (unfinished, journal, messages)
    }
}

/// A journal that is being opened.
pub type Opening = BoxFuture<'static, Result<Box<dyn Journal>, JournalFailure>>;

/// A journal that is being read, to resume its room.
pub type Reopening = BoxFuture<'static, Result<Option<Reopened>, JournalFailure>>;

/// The records of a room that are being read.
pub type RecordsReading = BoxFuture<'static, Result<Option<Vec<Record>>, JournalFailure>>;

/// Creates the journal of each room of a run. Both methods are called where nothing may block, such
/// as in the loop of a parent room. Slow work belongs in the futures, and blocking work on a thread
/// of its own, such as by `tokio::task::spawn_blocking`.
///
/// ```
/// use std::sync::{Arc, mpsc};
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::event::Record;
/// use conclave_runtime::ids::RoomId;
/// use conclave_runtime::journal::{JournalBatch, Journal, JournalFailure, Journals, Keeping, Opening};
///
/// /// Hands records to a thread; a database would answer once they are kept.
/// struct Handed(mpsc::Sender<(RoomId, Arc<Record>)>);
/// struct Of(RoomId, mpsc::Sender<(RoomId, Arc<Record>)>);
///
/// impl Journals for Handed {
///     fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
///         let journal: Box<dyn Journal> = Box::new(Of(room.clone(), self.0.clone()));
///         Ok(Box::pin(std::future::ready(Ok(journal))))
///     }
/// }
///
/// impl Journal for Of {
///     fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
///         for record in entry.records {
///             self.1.send((self.0.clone(), Arc::clone(record))).map_err(|_| {
///                 let cause = std::io::ErrorKind::BrokenPipe.into();
///                 JournalFailure::new(self.0.clone(), "the journal's thread".to_owned(), cause)
///             })?;
///         }
///         Ok(Keeping::Kept)
///     }
/// }
///
/// let (sender, kept) = mpsc::channel();
/// let options = RunOptions { journals: Arc::new(Handed(sender)), ..RunOptions::default() };
/// # drop((options, kept));
/// ```
pub trait Journals: Send + Sync + 'static {
    /// Opens a new journal. The future is polled before the room's first event is handled, and may
    /// be dropped unpolled.
    ///
    /// # Errors
    /// Fails when the journal cannot be created, or the room has one already: at once or by the
    /// future.
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure>;

    /// Whether acknowledged records survive a power cut. If so, a plugin's changes to the disk are
    /// synced before their end is journalled; otherwise syncing would promise more than the
    /// journal.
    fn survive_power_cuts(&self) -> bool {
        true
    }

    /// The place of the overlays of granted folders of a run, which this host has by an
    /// [`epoch`](Journal::epoch). `None`, the default, refuses their use.
    fn overlays(&self, run: &RoomId, epoch: u64) -> Option<OverlayPlace> {
        let _ = (run, epoch);
        None
    }

    /// The records of a room that [count](conclave_core::journal::ownership::one_history), whether
    /// or not it is active; `None` as in [`reopen`](Self::reopen). Observers that missed events get
    /// them from here.
    fn records(&self, room: &RoomId) -> RecordsReading {
        let _ = room;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The journal of an interrupted room. `None` if there is none, or if these journals cannot be
    /// read again. The future fails if the journal exists and cannot be read. A store that several
    /// hosts share records with the time `now` of this host's clock that it has taken the room.
    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        let _ = (room, now);
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A journal that could not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal of room {room} could not be written to {place}: {cause}. The run was stopped; nothing after this point was done."
)]
pub struct JournalFailure {
    /// The room whose records could not be written.
    pub room: RoomId,
    /// The file or other location of the journal, for display.
    pub place: String,
    /// What the store answered.
    pub answer: AppendFailure,
    /// The error of the operating system or the store.
    pub cause: std::io::Error,
}

/// The answer to an append that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFailure {
    /// The room has records that its writer does not know.
    Behind,
    /// Another host has taken the room over: it goes on there, so its writer stops silently.
    Fenced,
    /// The store could not be reached, and nobody can say whether it has the records.
    Unknown,
    /// An error of the operating system or the store.
    Other,
}

impl JournalFailure {
    /// A failure by an error of the operating system or the store.
    #[must_use]
    pub fn new(room: RoomId, place: String, cause: std::io::Error) -> Self {
        Self { room, place, answer: AppendFailure::Other, cause }
    }
}

fn opened(journal: impl Journal) -> Opening {
    let journal: Box<dyn Journal> = Box::new(journal);
    Box::pin(std::future::ready(Ok(journal)))
}

/// Runs disk work on a blocking thread.
async fn off_the_loop<T: Send + 'static>(
    room: RoomId,
    place: String,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, JournalFailure> {
    let result = tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|broken| Err(std::io::Error::other(broken)));
    result.map_err(|cause| JournalFailure::new(room, place, cause))
}

/// Journals that store no records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournals;

struct NoJournal;

impl Journals for NoJournals {
    fn open(&self, _: &RoomId) -> Result<Opening, JournalFailure> {
        Ok(opened(NoJournal))
    }

    fn survive_power_cuts(&self) -> bool {
        false
    }
}

impl Journal for NoJournal {
    fn append(&mut self, _: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        Ok(Keeping::Kept)
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// Journals in memory, for tests and embedding programs.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournals(Arc<Mutex<BTreeMap<RoomId, Vec<Arc<Record>>>>>);

impl MemoryJournals {
    /// Returns journals in which a room has these records already, such as those of an interrupted
    /// run.
    #[must_use]
    pub fn of(room: RoomId, records: impl IntoIterator<Item = Arc<Record>>) -> Self {
        Self(Arc::new(Mutex::new([(room, records.into_iter().collect())].into())))
    }

    /// The records of a room so far; empty if there is no such room.
    #[must_use]
    pub fn records(&self, room: &RoomId) -> Vec<Arc<Record>> {
        self.lock().get(room).cloned().unwrap_or_default()
    }

    /// The rooms that have a journal, ordered by name.
    #[must_use]
    pub fn rooms(&self) -> Vec<RoomId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RoomId, Vec<Arc<Record>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journals for MemoryJournals {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        match self.lock().entry(room.clone()) {
            btree_map::Entry::Vacant(place) => drop(place.insert(Vec::new())),
            btree_map::Entry::Occupied(_) => {
                let cause = std::io::Error::new(
                    std::io::ErrorKind::AlreadyExists,
                    "it has a journal already",
                );
                return Err(JournalFailure::new(room.clone(), "memory".to_owned(), cause));
            }
        }
        Ok(opened(MemoryJournal { room: room.clone(), journals: self.clone() }))
    }

    fn survive_power_cuts(&self) -> bool {
        false
    }

    fn records(&self, room: &RoomId) -> RecordsReading {
        let records = self
            .lock()
            .get(room)
            .map(|records| records.iter().map(|record| Record::clone(record)).collect());
        Box::pin(std::future::ready(Ok(records)))
    }

    fn reopen(&self, room: &RoomId, _: Millis) -> Reopening {
        let records = self
            .lock()
            .get(room)
            .map(|records| records.iter().map(|record| Record::clone(record)).collect());
        let journal = || Box::new(MemoryJournal { room: room.clone(), journals: self.clone() });
        Box::pin(std::future::ready(Ok(records.map(|records| Reopened {
            snapshot: None,
            records,
            stopped: None,
            messages: Vec::new(),
            journal: journal(),
        }))))
    }
}

struct MemoryJournal {
    room: RoomId,
    journals: MemoryJournals,
}

impl Journal for MemoryJournal {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        if let Some(records) = self.journals.lock().get_mut(&self.room) {
            let next = records.last().map_or(0, |last| last.seq + 1);
            if entry.records.iter().zip(next..).any(|(record, seq)| record.seq != seq) {
                let what = format!("record {next} is the next");
                let cause = std::io::Error::new(std::io::ErrorKind::InvalidInput, what);
                return Err(JournalFailure::new(self.room.clone(), "memory".to_owned(), cause));
            }
            records.extend(entry.records.iter().cloned());
        }
        Ok(Keeping::Kept)
    }
}

/// An export of each room's records as a file of JSON lines in one folder, written while the room
/// runs. A child room's file has its name, with `-` for `/`. No room is resumed from these files.
#[derive(Clone, Debug)]
pub struct JsonLines {
    folder: PathBuf,
}

impl JsonLines {
    /// Returns an export to this folder, which is created when the first room opens.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The file of a room.
    #[must_use]
    pub fn path(&self, room: &RoomId) -> PathBuf {
        self.folder.join(format!("{}.jsonl", room.as_str().replace('/', "-")))
    }
}

impl Journals for JsonLines {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let (room, path, folder) = (room.clone(), self.path(room), self.folder.clone());
        Ok(Box::pin(async move {
            let place = path.clone();
            let opened = off_the_loop(room.clone(), path.display().to_string(), move || {
                durable_file::make_folders(&folder, 0o700)?;
                // `create_new`, because two runs must never share a journal.
                let mut options = OpenOptions::new();
                options.append(true).create_new(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                options.open(place)
            });
            let file = opened.await?;
            let journal: Box<dyn Journal> = Box::new(JsonLinesJournal { room, path, file });
            Ok(journal)
        }))
    }

    /// An acknowledged line is with the operating system only; it is synced when the run ends.
    fn survive_power_cuts(&self) -> bool {
        false
    }
}

struct JsonLinesJournal {
    room: RoomId,
    path: PathBuf,
    file: File,
}

impl JsonLinesJournal {
    fn failure(&self, cause: std::io::Error) -> JournalFailure {
        JournalFailure::new(self.room.clone(), self.path.display().to_string(), cause)
    }
}

impl Journal for JsonLinesJournal {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let mut lines = String::new();
        for record in entry.records {
            let line = to_line(record).map_err(|error| {
                self.failure(std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
            })?;
            lines.push_str(&line);
            lines.push('\n');
        }
        // A single write, so that a crash leaves whole lines and at most one torn one at the end.
        let written = self.file.write_all(lines.as_bytes());
        written.map(|()| Keeping::Kept).map_err(|cause| self.failure(cause))
    }

    /// Syncs on a thread of its own, because a sync takes milliseconds.
    fn settle(&mut self) -> BoxFuture<'static, Result<(), JournalFailure>> {
        let (room, path, place) =
            (self.room.clone(), self.path.clone(), self.path.display().to_string());
        let (answer, answered) = tokio::sync::oneshot::channel();
        let synced = self.file.try_clone().and_then(|file| {
            let sync = move || {
                let synced = file
                    .sync_all()
                    .and_then(|()| durable_file::sync_folder(durable_file::folder_of(&path)));
                let _ = answer.send(synced);
            };
            std::thread::Builder::new().name("conclave-settle".to_owned()).spawn(sync)
        });
        Box::pin(async move {
            let synced = match synced {
                Ok(_) => {
                    answered.await.unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()))
                }
                Err(error) => Err(error),
            };
            synced.map_err(|cause| JournalFailure::new(room, place, cause))
        })
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::journal::record::from_lines;
    use conclave_core::protocol::event::{Event, Principal, RULES, RunOpening as Run};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_record_that_could_not_be_read_again_is_refused_and_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let (journals, room) = (JsonLines::in_folder(temp.path()), RoomId::from("a"));
        let mut journal = journals.open(&room).unwrap().await.unwrap();
        let record = |seq: u64, levels: usize| {
            let inputs = (0..levels).fold(json!(1), |inner, _| json!([inner]));
            let event =
                Event::RunStarted { setup: None, opening: Run { inputs, ..Run::default() } };
            Arc::new(Record {
                seq,
                at: Millis(1),
                principal: Principal("ada".into()),
                rules: RULES,
                epoch: 0,
                event,
            })
        };
        let entry =
            |records| JournalBatch { records, waits: &[], outcome: None, spent: Spent::default() };
        let fine = record(0, 100);
        journal.append(&entry(std::slice::from_ref(&fine))).unwrap();
        let refused =
            journal.append(&entry(&[record(1, 1), record(2, 300)])).err().unwrap().to_string();
        assert!(refused.contains("record 2 ") && refused.contains("record_too_deep"), "{refused}");
        let written = std::fs::read_to_string(journals.path(&room)).unwrap();
        assert_eq!(from_lines(&written).unwrap(), [Record::clone(&fine)], "all of a batch or none");
        // It is an export: a run in the same room neither continues nor overwrites it.
        assert!(journals.reopen(&room, Millis(0)).await.unwrap().is_none());
        assert!(journals.open(&room).unwrap().await.is_err());
    }
}
