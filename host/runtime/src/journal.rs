//! Where records are kept. The driver appends before it performs, so what was acknowledged is never lost. The format of a line is the
//! core's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::event::Record;
use conclave_core::ids::RoomId;
use conclave_core::journal::to_line;

/// The journal of one room; there is one writer.
pub trait Journal: Send + 'static {
    /// Keeps records, in this order, all or none, before it returns.
    ///
    /// # Errors
    /// When they could not be kept; the room stops.
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), JournalFailure>;
}

/// Makes the journal of each room of a run.
///
/// ```
/// use std::sync::{Arc, mpsc};
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::event::Record;
/// use conclave_runtime::ids::RoomId;
/// use conclave_runtime::journal::{Journal, JournalFailure, Journals};
///
/// /// Hands records to a thread; a database would answer once they are kept.
/// struct Handed(mpsc::Sender<(RoomId, Arc<Record>)>);
/// struct Of(RoomId, mpsc::Sender<(RoomId, Arc<Record>)>);
///
/// impl Journals for Handed {
///     fn open(&self, room: &RoomId) -> Result<Box<dyn Journal>, JournalFailure> {
///         Ok(Box::new(Of(room.clone(), self.0.clone())))
///     }
/// }
///
/// impl Journal for Of {
///     fn append(&mut self, records: &[Arc<Record>]) -> Result<(), JournalFailure> {
///         for record in records {
///             self.1.send((self.0.clone(), Arc::clone(record))).map_err(|_| JournalFailure {
///                 room: self.0.clone(),
///                 place: "the journal's thread".to_owned(),
///                 cause: std::io::ErrorKind::BrokenPipe.into(),
///             })?;
///         }
///         Ok(())
///     }
/// }
///
/// let (sender, kept) = mpsc::channel();
/// let options = RunOptions { journals: Arc::new(Handed(sender)), ..RunOptions::default() };
/// # drop((options, kept));
/// ```
pub trait Journals: Send + Sync + 'static {
    /// A new journal.
    ///
    /// # Errors
    /// When it cannot be made, or one of that room is there already.
    fn open(&self, room: &RoomId) -> Result<Box<dyn Journal>, JournalFailure>;
}

/// A journal that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the journal of room {room} could not be written to {place}: {cause}. The run was stopped; nothing after this point was done.")]
pub struct JournalFailure {
    pub room: RoomId,
    pub place: String,
    pub cause: std::io::Error,
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournals;

struct NoJournal;

impl Journals for NoJournals {
    fn open(&self, _: &RoomId) -> Result<Box<dyn Journal>, JournalFailure> {
        Ok(Box::new(NoJournal))
    }
}

impl Journal for NoJournal {
    fn append(&mut self, _: &[Arc<Record>]) -> Result<(), JournalFailure> {
        Ok(())
    }
}

/// Keeps records in memory, for tests and embedders.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournals(Arc<Mutex<BTreeMap<RoomId, Vec<Arc<Record>>>>>);

impl MemoryJournals {
    /// The records of a room so far; empty when there is none of that name.
    #[must_use]
    pub fn records(&self, room: &RoomId) -> Vec<Arc<Record>> {
        self.lock().get(room).cloned().unwrap_or_default()
    }

    /// The rooms that have a journal, in order of name.
    #[must_use]
    pub fn rooms(&self) -> Vec<RoomId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RoomId, Vec<Arc<Record>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journals for MemoryJournals {
    fn open(&self, room: &RoomId) -> Result<Box<dyn Journal>, JournalFailure> {
        match self.lock().entry(room.clone()) {
            Entry::Vacant(place) => drop(place.insert(Vec::new())),
            Entry::Occupied(_) => {
                let cause = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "it has a journal already");
                return Err(JournalFailure { room: room.clone(), place: "memory".to_owned(), cause });
            }
        }
        Ok(Box::new(MemoryJournal { room: room.clone(), journals: self.clone() }))
    }
}

struct MemoryJournal {
    room: RoomId,
    journals: MemoryJournals,
}

impl Journal for MemoryJournal {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), JournalFailure> {
        if let Some(kept) = self.journals.lock().get_mut(&self.room) {
            kept.extend(records.iter().cloned());
        }
        Ok(())
    }
}

/// One file of JSON lines for each room, in one folder. A child room's file is named after it, with `-` for `/`.
#[derive(Clone, Debug)]
pub struct JsonLines {
    folder: PathBuf,
}

impl JsonLines {
    /// Journals in this folder, which is made when the first room opens.
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
    fn open(&self, room: &RoomId) -> Result<Box<dyn Journal>, JournalFailure> {
        let path = self.path(room);
        let failure = |cause| JournalFailure { room: room.clone(), place: path.display().to_string(), cause };
        make_folder(&self.folder).map_err(failure)?;
        // `create_new`: two runs never share a journal.
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(failure)?;
        Ok(Box::new(JsonLinesJournal { room: room.clone(), path, file }))
    }
}

/// What it makes is its owner's alone: a journal holds all that was said.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

struct JsonLinesJournal {
    room: RoomId,
    path: PathBuf,
    file: File,
}

impl Journal for JsonLinesJournal {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), JournalFailure> {
        let mut lines = String::new();
        for record in records {
            lines.push_str(&to_line(record));
            lines.push('\n');
        }
        // One write, so that a crash leaves whole lines and at most one torn one at the end.
        self.file.write_all(lines.as_bytes()).map_err(|cause| JournalFailure {
            room: self.room.clone(),
            place: self.path.display().to_string(),
            cause,
        })
    }
}
