//! `files`: reading below the granted folders. The path's text is checked first, then the folder's handle decides; both walls hold alone.

mod write;

use std::sync::Arc;
use std::time::Instant;

use conclave_core::grant::{DenialRecord, Layer};
use conclave_core::manifest::Capability;

use super::folder::{Entry, Trouble, read_at};
use crate::bindings::conclave::plugin::files;
pub(crate) use crate::bindings::conclave::plugin::files::FileError;
use crate::sandbox::CallState;

/// Entries that one call gives at most.
const ENTRIES: usize = 1_000;
/// Bytes of the `read` limit that looking at one entry costs, about what the operating system hands over for it.
const ENTRY: u64 = 256;
/// Bytes that one call gives at most; a guest asks again from where it stopped.
const PIECE: u64 = 8 << 20;
/// Bytes that are read at once; a longer read is handed to another thread, which by itself costs about as much as this read.
const INLINE: u64 = 256 << 10;

/// Where a path of a plugin leads: which of its folders, and what follows.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: usize,
    pub(crate) rest: String,
}

impl CallState {
    /// Finds the folder of a path.
    fn place(&mut self, path: &str) -> Result<Place, FileError> {
        let folder = match self.find(path, false) {
            Ok(place) => return Ok(place),
            Err(record) => record,
        };
        Err(FileError::Denied(self.refuse(*folder)))
    }

    /// The place of a path that may be read.
    pub(crate) fn may_read(&mut self, path: &str) -> Result<Place, FileError> {
        self.place(path)
    }

    /// What a path leads to; costs as much as an entry of a listing.
    pub(crate) fn look_at(&mut self, path: &str) -> Result<Entry, FileError> {
        let place = self.place(path)?;
        let limit = self.grantee.limits().read;
        if limit.saturating_sub(self.read.get()) < ENTRY {
            return Err(FileError::QuotaExceeded(limit));
        }
        self.read.add(ENTRY);
        let looked = self.grantee.folders[place.folder].look(&place.rest);
        looked.map_err(|trouble| self.file_error(path, trouble))
    }

    /// Folders stand in the order of their grants.
    fn find(&self, path: &str, writes: bool) -> Result<Place, Box<DenialRecord>> {
        let (folder, rest) = self.rights().may_touch(path, writes)?;
        Ok(Place { folder, rest: rest.to_owned() })
    }

    /// The folders that this call may look into, by their places.
    pub(crate) fn roots_left(&self) -> Vec<(String, bool)> {
        // Not asked for, not granted: there are none, which is no refusal.
        let rights = self.rights();
        let left = |path: &str, writes| rights.may_touch(path, writes).is_ok();
        let folders = self.grantee.folders.iter().filter(|folder| left(&folder.at, false));
        folders.map(|folder| (folder.at.clone(), folder.is_writable() && left(&folder.at, true))).collect()
    }

    /// What the plugin is told of a trouble; a refusal is recorded.
    fn file_error(&mut self, path: &str, trouble: Trouble) -> FileError {
        match self.trouble_record(path, &trouble) {
            Some(record) => FileError::Denied(self.refuse(*record)),
            None => self.plain_error(&trouble),
        }
    }

    /// The refusal that a trouble stands for.
    fn trouble_record(&self, path: &str, trouble: &Trouble) -> Option<Box<DenialRecord>> {
        let is_refusal = match trouble {
            Trouble::LeadsOutside | Trouble::Forbidden | Trouble::ReadOnly | Trouble::Kept | Trouble::Link | Trouble::HardLink => true,
            Trouble::NotFound | Trouble::NotAFile | Trouble::NotADirectory | Trouble::TooMany | Trouble::Quota(_) | Trouble::Other(_) => {
                false
            }
        };
        is_refusal.then(|| self.rights().refuse(Capability::Files, path, Layer::Runtime, &trouble.to_string(), None))
    }

    /// A trouble that is no refusal.
    fn plain_error(&self, trouble: &Trouble) -> FileError {
        match trouble {
            Trouble::NotFound => FileError::NotFound,
            Trouble::NotAFile => FileError::NotAFile,
            Trouble::NotADirectory => FileError::NotADirectory,
            Trouble::TooMany => FileError::QuotaExceeded(self.grantee.limits().read),
            Trouble::Quota(limit) => FileError::QuotaExceeded(*limit),
            other => FileError::Other(other.to_string()),
        }
    }

    /// Reads what is left of the call's allowance, in the piece that was asked for.
    pub(crate) async fn read_piece(&mut self, path: &str, offset: u64, length: u32) -> Result<Vec<u8>, FileError> {
        let place = self.place(path)?;
        let limit = self.grantee.limits().read;
        let left = limit.saturating_sub(self.read.get());
        if left == 0 && length > 0 {
            return Err(FileError::QuotaExceeded(limit));
        }
        let length = u64::from(length).min(left).min(PIECE);
        let read = self.grantee.folders[place.folder].open_file(&place.rest);
        let file = read.map_err(|trouble| self.file_error(path, trouble))?;
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = if length <= INLINE {
            read_at(&file, offset, size)
        } else {
            let began = Instant::now();
            let read = tokio::task::spawn_blocking(move || read_at(&file, offset, size)).await;
            self.note_wait_since(began);
            read.unwrap_or_else(|_| Err(Trouble::Other(std::io::ErrorKind::Other.into())))
        };
        let bytes = bytes.map_err(|trouble| self.file_error(path, trouble))?;
        self.read.add(bytes.len() as u64);
        Ok(bytes)
    }

    /// Lists what comes next. Every entry of the directory is looked at each time, and each counts as bytes read.
    pub(crate) async fn list_piece(&mut self, path: &str, after: Option<String>, count: u32) -> Result<Vec<Entry>, FileError> {
        let place = self.place(path)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let limit = self.grantee.limits().read;
        let most = limit.saturating_sub(self.read.get()) / ENTRY;
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(ENTRIES);
        let grantee = Arc::clone(&self.grantee);
        let began = Instant::now();
        // How long a directory is shows only when it has been read.
        let list = move || grantee.folders[place.folder].entries(&place.rest, after.as_deref(), count, most);
        let listed = tokio::task::spawn_blocking(list).await;
        self.note_wait_since(began);
        let listed = listed.unwrap_or_else(|_| Err(Trouble::Other(std::io::ErrorKind::Other.into())));
        let cost = match &listed {
            Ok((_, seen)) => seen * ENTRY,
            Err(Trouble::TooMany) => limit.saturating_sub(self.read.get()),
            Err(_) => 0,
        };
        self.read.add(cost);
        listed.map(|(entries, _)| entries).map_err(|trouble| self.file_error(path, trouble))
    }
}

impl files::Host for CallState {
    fn roots(&mut self) -> wasmtime::Result<Vec<files::Root>> {
        self.enter()?;
        Ok(self.roots_left().into_iter().map(|(path, writable)| files::Root { path, writable }).collect())
    }

    async fn list_entries(
        &mut self,
        path: String,
        after: Option<String>,
        count: u32,
    ) -> wasmtime::Result<Result<Vec<files::Entry>, FileError>> {
        self.enter()?;
        let entries = self.list_piece(&path, after, count).await;
        Ok(entries.map(|entries| entries.into_iter().map(entry_out).collect()))
    }

    async fn read(&mut self, path: String, offset: u64, length: u32) -> wasmtime::Result<Result<Vec<u8>, FileError>> {
        self.enter()?;
        Ok(self.read_piece(&path, offset, length).await)
    }

    async fn write(&mut self, path: String, offset: u64, bytes: Vec<u8>, truncate: bool) -> wasmtime::Result<Result<u64, FileError>> {
        self.enter()?;
        Ok(self.write_file(&path, offset, bytes, truncate).await)
    }

    async fn remove(&mut self, path: String) -> wasmtime::Result<Result<(), FileError>> {
        self.enter()?;
        Ok(self.remove_file(&path).await)
    }
}

fn entry_out(entry: Entry) -> files::Entry {
    let kind = if entry.is_directory { files::Kind::Directory } else { files::Kind::File };
    files::Entry { name: entry.name, kind, length: entry.length }
}

#[cfg(test)]
mod tests {
    use conclave_core::grant::{FileGrant, FileMode};
    use conclave_core::manifest::Ask;

    use super::*;
    use crate::sandbox::testing::{setup, state};

    #[tokio::test]
    async fn listing_is_paid_from_what_may_be_read() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(temp.path().join(name), "x").unwrap();
        }
        let mut setup = setup();
        setup.facts.manifest.asks.insert("files".to_owned(), Ask::default());
        let dir = temp.path().to_str().unwrap().to_owned();
        setup.grants.files.push(FileGrant { dir, shown: "f".to_owned(), at: "/f".to_owned(), mode: FileMode::Read, bytes: 0, files: 0 });
        // Enough for two listings of three entries, not for a third.
        setup.limits.read = 7 * ENTRY;
        let mut state = state(setup);
        for _ in 0..2 {
            assert_eq!(state.list_piece("/f", None, 1).await.unwrap().len(), 1);
        }
        assert!(state.list_piece("/f", None, 0).await.unwrap().is_empty());
        assert_eq!(state.read.get(), 6 * ENTRY, "nothing is looked at for no entries");
        assert!(matches!(state.list_piece("/f", None, 1).await, Err(FileError::QuotaExceeded(limit)) if limit == 7 * ENTRY));
        assert!(matches!(state.read_piece("/f/a", 0, 1).await, Err(FileError::QuotaExceeded(_))), "what was looked at is used up");
    }
}
