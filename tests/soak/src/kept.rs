//! The stores of a child's journals, and the records that the parent reads there between two lives.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use conclave_core::protocol::event::Record;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_runtime::blobs::Blobs;
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Opening, Reopened, Reopening,
};
use conclave_runtime::store::{Durability, RunFilter, RunOrigin, Store, StoreOptions, StoreReader};

/// The number of records after which a room's snapshot is written: so few that most lives resume
/// from one.
pub(crate) const SNAPSHOT_EVERY: u64 = 8;

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Store(Durability),
    /// Broken on purpose: acknowledges records and writes them with the next ones. The parent must
    /// detect it.
    Late,
    /// Broken on purpose: the journal is durable, but changes of plugins are not synced. Power cuts
    /// must detect it.
    Unsynced,
}

/// The journals and the attachments of a host.
pub(crate) type Opened = (Arc<dyn Journals>, Arc<dyn Blobs>);

impl Keep {
    /// Returns the name in the child's command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Unsynced => "unsynced",
            Self::Store(Durability::Sync) => "sync",
            Self::Store(Durability::Group) => "group",
            Self::Store(Durability::Exit) => "exit",
        }
    }

    /// Parses that name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "late" => Some(Self::Late),
            "unsynced" => Some(Self::Unsynced),
            "sync" => Some(Self::Store(Durability::Sync)),
            "group" => Some(Self::Store(Durability::Group)),
            "exit" => Some(Self::Store(Durability::Exit)),
            _ => None,
        }
    }

    /// Returns whether it is broken on purpose, to test the parent.
    pub(crate) fn is_wrong(self) -> bool {
        matches!(self, Self::Late | Self::Unsynced)
    }

    /// Returns whether acknowledged records are on the disk.
    #[must_use]
    pub fn survives_power_cuts(self) -> bool {
        matches!(self, Self::Store(Durability::Sync | Durability::Group) | Self::Unsynced)
    }

    /// Opens the store for the child, which writes to it.
    pub(crate) fn open(self, folder: &Path) -> Result<Opened, String> {
        let options =
            StoreOptions { snapshot_every: Some(SNAPSHOT_EVERY), ..StoreOptions::default() };
        let store = Store::open_with(folder, &options).map_err(|error| error.to_string())?;
        let about = RunOrigin { command: "soak".to_owned(), ..RunOrigin::default() };
        let durability =
            if let Self::Store(durability) = self { durability } else { Durability::Group };
        let journals = store.journals(durability, about);
        let journals: Arc<dyn Journals> = match self {
            Self::Store(_) => journals,
            Self::Late => Arc::new(LateJournals(journals)),
            Self::Unsynced => Arc::new(Unsynced(journals)),
        };
        Ok((journals, store.blobs()))
    }
}

/// The records of each room.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub rooms: BTreeMap<RoomId, Vec<Record>>,
    /// Problems of the store itself.
    pub problems: Vec<String>,
}

/// Returns a digest that identifies a record.
pub(crate) fn digest(record: &Record) -> u64 {
    let mut hasher = DefaultHasher::new();
    // The published form equals the stored one, except for the room's secret.
    record.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Reads the whole store for the parent.
pub(crate) fn read(folder: &Path) -> Result<Kept, String> {
    if !folder.exists() {
        return Ok(Kept::default());
    }
    match StoreReader::open(folder) {
        Ok(reader) => read_all(&reader),
        // The child was killed before it had created the store.
        Err(conclave_runtime::store::StoreError::Missing { .. }) => Ok(Kept::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the whole store.
pub(crate) fn read_all(reader: &StoreReader) -> Result<Kept, String> {
    let mut kept = Kept::default();
    let text = |error: conclave_runtime::store::StoreError| error.to_string();
    for run in reader.runs(&RunFilter::default()).map_err(text)? {
        for room in reader.rooms(&run.run).map_err(text)? {
            let records = reader.records(&room.room).map_err(text)?;
            kept.rooms.insert(room.room, records);
        }
    }
    kept.problems.extend(reader.check().map_err(text)?.problems);
    kept.problems.extend(reader.verify(&[]).map_err(text)?.problems);
    Ok(kept)
}

/// Journals that report not to survive a power cut, although they do.
struct Unsynced(Arc<dyn Journals>);

impl Journals for Unsynced {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        self.0.open(room)
    }

    fn survive_power_cuts(&self) -> bool {
        false
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        self.0.reopen(room, now)
    }
}

/// Journals that acknowledge records before they write them.
struct LateJournals(Arc<dyn Journals>);

struct LateJournal {
    inner: Box<dyn Journal>,
    late: Vec<Arc<Record>>,
}

impl Journals for LateJournals {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let inner = self.0.open(room)?;
        Ok(Box::pin(async { Ok(late(inner.await?)) }))
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        let reopened = self.0.reopen(room, now);
        Box::pin(async {
            Ok(reopened
                .await?
                .map(|reopened| Reopened { journal: late(reopened.journal), ..reopened }))
        })
    }
}

fn late(inner: Box<dyn Journal>) -> Box<dyn Journal> {
    Box::new(LateJournal { inner, late: Vec::new() })
}

impl Journal for LateJournal {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let late = std::mem::replace(&mut self.late, entry.records.to_vec());
        let records: &[Arc<Record>] = if entry.outcome.is_some() {
            &[late, std::mem::take(&mut self.late)].concat()
        } else {
            &late
        };
        self.inner.append(&JournalBatch { records, ..*entry })
    }

    fn hurry(&mut self) {
        self.inner.hurry();
    }
}
