//! The stores of a child's journals, and the records that the parent reads there between two lives.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conclave_core::journal::record::from_lines;
use conclave_core::protocol::event::Record;
use conclave_core::types::ids::RoomId;
use conclave_runtime::blobs::{BlobError, Blobs, describe};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, JsonLines, Keeping, Opening, Reopened,
    Reopening,
};
use conclave_runtime::message::Blob;
use conclave_runtime::models::BlobSource;
use conclave_runtime::store::{Durability, RunFilter, RunOrigin, Store, StoreReader};

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Lines,
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
            Self::Lines => "lines",
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
            "lines" => Some(Self::Lines),
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
        match self {
            Self::Lines | Self::Late => {
                let blobs = folder.join("blobs");
                std::fs::create_dir_all(&blobs).map_err(|error| error.to_string())?;
                let lines = JsonLines::in_folder(folder);
                let journals: Arc<dyn Journals> = if self == Self::Late {
                    Arc::new(LateJournals(lines))
                } else {
                    Arc::new(lines)
                };
                Ok((journals, Arc::new(BlobFiles(blobs))))
            }
            Self::Store(_) | Self::Unsynced => {
                let store = Store::open(folder).map_err(|error| error.to_string())?;
                let about = RunOrigin { command: "soak".to_owned(), ..RunOrigin::default() };
                let durability =
                    if let Self::Store(durability) = self { durability } else { Durability::Group };
                let journals = store.journals(durability, about);
                let journals =
                    if self == Self::Unsynced { Arc::new(Unsynced(journals)) } else { journals };
                Ok((journals, store.blobs()))
            }
        }
    }

    /// Reads the whole store for the parent.
    pub(crate) fn read(self, folder: &Path) -> Result<Kept, String> {
        match self {
            Self::Lines | Self::Late => read_lines(folder),
            Self::Store(_) | Self::Unsynced => read_store(folder),
        }
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

fn read_lines(folder: &Path) -> Result<Kept, String> {
    let mut kept = Kept::default();
    let Ok(files) = std::fs::read_dir(folder) else { return Ok(kept) };
    for path in files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
    {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let records = from_lines(whole).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "/");
        kept.rooms.insert(RoomId::from(name), records);
    }
    Ok(kept)
}

fn read_store(folder: &Path) -> Result<Kept, String> {
    let mut kept = Kept::default();
    if !folder.exists() {
        return Ok(kept);
    }
    let reader = match StoreReader::open(folder) {
        Ok(reader) => reader,
        // The child was killed before it had created the store.
        Err(conclave_runtime::store::StoreError::Missing { .. }) => return Ok(kept),
        Err(error) => return Err(error.to_string()),
    };
    let text = |error: conclave_runtime::store::StoreError| error.to_string();
    for run in reader.runs(&RunFilter::default()).map_err(text)? {
        for room in reader.rooms(&run.run).map_err(text)? {
            let records = reader.records(&room.room).map_err(text)?;
            kept.rooms.insert(room.room, records);
        }
    }
    kept.problems.extend(reader.check().map_err(text)?.problems);
    kept.problems.extend(reader.verify(None).map_err(text)?.problems);
    Ok(kept)
}

/// Blobs in one file each.
struct BlobFiles(PathBuf);

impl BlobSource for BlobFiles {
    fn read(&self, sha256: &str) -> Option<Arc<[u8]>> {
        std::fs::read(self.0.join(sha256)).ok().map(Into::into)
    }
}

impl Blobs for BlobFiles {
    fn keep(&self, bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
        let blob = describe(bytes, media_type, name)?;
        // Created with a rename, so that a file is complete or absent. A failure shows itself when
        // the blob is read.
        let made = self.0.join(format!("{}.{}", blob.sha256, std::process::id()));
        let _ = std::fs::write(&made, bytes)
            .and_then(|()| std::fs::rename(&made, self.0.join(&blob.sha256)));
        Ok(blob)
    }
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

    fn reopen(&self, room: &RoomId) -> Reopening {
        self.0.reopen(room)
    }
}

/// Journals that acknowledge records before they write them.
struct LateJournals(JsonLines);

struct LateJournal {
    inner: Box<dyn Journal>,
    late: Vec<Arc<Record>>,
}

impl Journals for LateJournals {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let inner = self.0.open(room)?;
        Ok(Box::pin(async { Ok(late(inner.await?)) }))
    }

    fn reopen(&self, room: &RoomId) -> Reopening {
        let reopened = self.0.reopen(room);
        Box::pin(async {
            Ok(reopened
                .await?
                .map(|Reopened { records, journal }| Reopened { records, journal: late(journal) }))
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
}
