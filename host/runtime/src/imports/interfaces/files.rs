//! The `files` import: reads below the granted folders. The text of a path is checked first, then
//! the folder's handle; each check suffices alone.

mod failure;
mod listings;
mod write;

use std::time::Instant;

use conclave_core::types::denial::DenialRecord;
use serde::{Deserialize, Serialize};

use super::folder::{CallFolder, FolderEntry, FolderFailure, PageRequest, read_at};
use crate::imports::bindings::conclave::plugin::files;
pub(crate) use crate::imports::bindings::conclave::plugin::files::FileError;
use crate::imports::call::{CallState, Packed, Recalled};
pub(crate) use failure::FileFailure;
use listings::ListingStage;
pub(crate) use listings::Listings;

/// Maximum entries of one page.
const ENTRIES: usize = 1_000;
/// Bytes of the `read` limit that one entry costs, about its size in the operating system's
/// interface.
const ENTRY: u64 = 256;
/// Maximum bytes of one read; a guest continues from its end.
const PIECE: u64 = 8 << 20;
/// Bytes up to which a read runs on the executor's thread. Moving one to another thread costs about
/// as much as such a read.
const INLINE: u64 = 256 << 10;

/// Names of the reads in the journal.
pub(crate) const LOOK: &str = "files.look";
pub(crate) const READ: &str = "files.read";
const LIST: &str = "files.list-entries";
const SYNC: &str = "files.sync";

/// A path of a plugin, resolved to one of its folders and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantedPath {
    pub(crate) folder: usize,
    pub(crate) rest: String,
}

impl CallState {
    /// A granted folder as this call sees it.
    pub(crate) fn folder(&self, index: usize) -> CallFolder {
        CallFolder::new(&self.plugin, index, self.overlays.as_ref())
    }

    /// Resolves a path, and records a refusal.
    fn place(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        let folder = match self.find(path, false) {
            Ok(place) => return Ok(place),
            Err(record) => record,
        };
        Err(FileError::Denied(self.refuse(*folder)))
    }

    /// Resolves a path for reading.
    pub(crate) fn may_read(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        self.place(path)
    }

    /// Returns the entry at a path; costs as much as an entry of a listing.
    pub(crate) fn look_at(&mut self, path: &str) -> Result<FolderEntry, FileError> {
        let place = self.place(path)?;
        let limit = self.plugin.limits().read;
        if limit.saturating_sub(self.read.get()) < ENTRY {
            return Err(FileError::QuotaExceeded(limit));
        }
        self.read.add(ENTRY);
        let looked = match self.replay.recall::<Result<FolderEntry, FileFailure>>(LOOK, path) {
            Recalled::Before(looked) => looked,
            Recalled::Lost => Err(FileFailure::deviated()),
            Recalled::Now => {
                let looked = self.folder(place.folder).look(&place.rest);
                let looked = looked.map_err(|trouble| self.failure_of(path, &trouble));
                self.replay.keep(LOOK, path, &looked, 64);
                looked
            }
        };
        looked.map_err(|failure| self.file_error(failure))
    }

    /// Resolves a path. Folders are in the order of their grants.
    fn find(&self, path: &str, writes: bool) -> Result<GrantedPath, Box<DenialRecord>> {
        let (folder, rest) = self.rights().may_touch(path, writes)?;
        Ok(GrantedPath { folder, rest: rest.to_owned() })
    }

    /// The folders that this call may read, and whether it may write them.
    pub(crate) fn roots_left(&self) -> Vec<(String, bool)> {
        // Without a request or a grant the list is empty, which is no refusal.
        let rights = self.rights();
        let may_touch = |path: &str, writes| rights.may_touch(path, writes).is_ok();
        let folders = self.plugin.folders.iter().filter(|folder| may_touch(&folder.at, false));
        folders
            .map(|folder| (folder.at.clone(), folder.is_writable() && may_touch(&folder.at, true)))
            .collect()
    }

    /// Converts a failure for the plugin, and records a refusal.
    fn file_error(&mut self, failure: FileFailure) -> FileError {
        match failure {
            FileFailure::Denied(record) => FileError::Denied(self.refuse(*record)),
            FileFailure::NotFound => FileError::NotFound,
            FileFailure::NotAFile => FileError::NotAFile,
            FileFailure::NotADirectory => FileError::NotADirectory,
            FileFailure::Quota(limit) => FileError::QuotaExceeded(limit),
            FileFailure::Other(text) => FileError::Other(text),
        }
    }

    /// Converts the failure of a folder.
    fn failure_of(&self, path: &str, trouble: &FolderFailure) -> FileFailure {
        FileFailure::of(trouble, path, &self.rights(), self.plugin.limits().read)
    }

    /// Reads a piece of a file, up to the rest of the call's `read` limit.
    pub(crate) async fn read_piece(
        &mut self,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, FileError> {
        let place = self.place(path)?;
        let limit = self.plugin.limits().read;
        let remaining = limit.saturating_sub(self.read.get());
        if remaining == 0 && length > 0 {
            return Err(FileError::QuotaExceeded(limit));
        }
        let length = u64::from(length).min(remaining).min(PIECE);
        let target = format!("{path} {offset} {length}");
        let bytes = match self.replay.recall::<Result<Packed, FileFailure>>(READ, &target) {
            Recalled::Before(Ok(packed)) => {
                self.replay.unpack(packed).ok_or_else(FileFailure::deviated)
            }
            Recalled::Before(Err(failure)) => Err(failure),
            Recalled::Lost => Err(FileFailure::deviated()),
            Recalled::Now => {
                let bytes = self
                    .read_now(&place, offset, length)
                    .await
                    .map_err(|trouble| self.failure_of(path, &trouble));
                let packed =
                    bytes.as_ref().map(|bytes| self.replay.pack(bytes)).map_err(FileFailure::clone);
                let size = packed.as_ref().map_or(0, |(_, size)| *size);
                self.replay.keep(READ, &target, &packed.map(|(packed, _)| packed), size);
                bytes
            }
        };
        let bytes = bytes.map_err(|failure| self.file_error(failure))?;
        self.read.add(bytes.len() as u64);
        Ok(bytes)
    }

    async fn read_now(
        &mut self,
        place: &GrantedPath,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, FolderFailure> {
        let file = self.folder(place.folder).open_file(&place.rest)?;
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if length <= INLINE {
            return read_at(&file, offset, size);
        }
        let began = Instant::now();
        let read = tokio::task::spawn_blocking(move || read_at(&file, offset, size)).await;
        self.note_wait_since(began);
        read.unwrap_or_else(|_| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())))
    }

    /// Returns the next page of a directory. Starting a listing reads the whole directory and
    /// charges each entry once, against the `read` limit. A page that does not continue the
    /// previous one starts a new listing.
    pub(crate) async fn list_piece(
        &mut self,
        path: &str,
        after: Option<String>,
        count: u32,
    ) -> Result<Vec<FolderEntry>, FileError> {
        let place = self.place(path)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(ENTRIES);
        let target = format!("{path} after {after:?}, {count}");
        let LoggedListing { entries, cost } =
            match self.replay.recall::<LoggedListing>(LIST, &target) {
                Recalled::Before(listed) => {
                    let last = listed
                        .entries
                        .as_ref()
                        .ok()
                        .and_then(|entries| entries.last())
                        .map(|entry| entry.name.clone());
                    self.listings.recall(place, after.as_deref(), last, listed.cost / ENTRY);
                    listed
                }
                Recalled::Lost => LoggedListing { entries: Err(FileFailure::deviated()), cost: 0 },
                Recalled::Now => {
                    let listed = self.list_now(path, place, after, count).await;
                    let size = listed.entries.as_ref().map_or(0, |entries| {
                        entries.iter().map(|entry| entry.name.len() + 64).sum()
                    });
                    self.replay.keep(LIST, &target, &listed, size);
                    listed
                }
            };
        self.read.add(cost);
        entries.map_err(|failure| self.file_error(failure))
    }

    async fn list_now(
        &mut self,
        path: &str,
        place: GrantedPath,
        after: Option<String>,
        count: usize,
    ) -> LoggedListing {
        let remaining = self.plugin.limits().read.saturating_sub(self.read.get());
        let (listing, paid) = match self.listings.take(&place) {
            Some(ListingStage::Read(listing)) => (Some(listing), 0),
            Some(ListingStage::Before(paid)) if paid.leads_on(after.as_deref()) => {
                (None, paid.seen)
            }
            Some(ListingStage::Before(_)) | None => (None, 0),
        };
        let (folder, location) = (self.folder(place.folder), place.clone());
        // The number of entries is known only after the directory was read.
        let most = (remaining / ENTRY).saturating_add(paid);
        let list = move || {
            let (directory, after) = (location.rest.as_str(), after.as_deref());
            folder.page(PageRequest { directory, after, count, most }, listing)
        };
        let page = self
            .off_loop(list)
            .await
            .unwrap_or_else(|| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())));
        match page {
            Ok(page) => {
                if let Some(rest) = page.rest {
                    self.listings.keep(place, rest);
                }
                LoggedListing {
                    entries: Ok(page.entries),
                    cost: page.seen.saturating_sub(paid) * ENTRY,
                }
            }
            Err(trouble) => {
                let cost = if matches!(trouble, FolderFailure::TooMany) { remaining } else { 0 };
                LoggedListing { entries: Err(self.failure_of(path, &trouble)), cost }
            }
        }
    }
}

/// A page as it is recorded for a replay.
#[derive(Serialize, Deserialize)]
struct LoggedListing {
    entries: Result<Vec<FolderEntry>, FileFailure>,
    /// Bytes charged to the `read` limit.
    cost: u64,
}

impl files::Host for CallState {
    fn roots(&mut self) -> wasmtime::Result<Vec<files::Root>> {
        self.enter()?;
        Ok(self
            .roots_left()
            .into_iter()
            .map(|(path, writable)| files::Root { path, writable })
            .collect())
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

    async fn read(
        &mut self,
        path: String,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, FileError>> {
        self.enter()?;
        Ok(self.read_piece(&path, offset, length).await)
    }

    async fn write(
        &mut self,
        path: String,
        offset: u64,
        bytes: Vec<u8>,
        truncate: bool,
    ) -> wasmtime::Result<Result<u64, FileError>> {
        self.enter()?;
        Ok(self.write_file(&path, offset, bytes, truncate).await)
    }

    async fn remove(&mut self, path: String) -> wasmtime::Result<Result<(), FileError>> {
        self.enter()?;
        Ok(self.remove_file(&path).await)
    }
}

fn entry_out(entry: FolderEntry) -> files::Entry {
    let kind =
        if entry.is_directory { files::EntryKind::Directory } else { files::EntryKind::File };
    files::Entry { name: entry.name, kind, length: entry.length }
}

#[cfg(test)]
mod tests {
    use conclave_core::permissions::grants::{FileGrant, FileMode};
    use conclave_core::permissions::manifest::CapabilityRequest;

    use super::*;
    use crate::imports::call::testing::{setup, state};

    #[tokio::test]
    async fn listing_is_paid_from_what_may_be_read() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(temp.path().join(name), "x").unwrap();
        }
        let mut setup = setup();
        setup.facts.manifest.asks.insert("files".to_owned(), CapabilityRequest::default());
        let dir = temp.path().to_str().unwrap().to_owned();
        setup.grants.files.push(FileGrant {
            dir,
            display_path: "f".to_owned(),
            at: "/f".to_owned(),
            mode: FileMode::Read,
            bytes: 0,
            files: 0,
        });
        // Enough for two listings of three entries, not for a third.
        setup.limits.read = 7 * ENTRY;
        let mut state = state(setup);
        for _ in 0..2 {
            assert_eq!(state.list_piece("/f", None, 1).await.unwrap().len(), 1);
        }
        assert!(state.list_piece("/f", None, 0).await.unwrap().is_empty());
        assert_eq!(state.read.get(), 6 * ENTRY, "nothing is looked at for no entries");
        assert!(
            matches!(state.list_piece("/f", None, 1).await, Err(FileError::QuotaExceeded(limit)) if limit == 7 * ENTRY)
        );
        assert!(
            matches!(state.read_piece("/f/a", 0, 1).await, Err(FileError::QuotaExceeded(_))),
            "what was looked at is used up"
        );
    }

    #[tokio::test]
    async fn a_listing_that_goes_on_in_another_attempt_is_paid_for_once() {
        let temp = tempfile::tempdir().unwrap();
        let add = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        ["a", "b", "c"].into_iter().for_each(add);
        // Enough for one whole listing and one later entry.
        let mut state = listing(temp.path(), 4 * ENTRY);
        let page = |after: &str| (!after.is_empty()).then(|| after.to_owned());
        let names = |entries: Vec<FolderEntry>| {
            entries.into_iter().map(|entry| entry.name).collect::<String>()
        };
        // Each attempt replays the pages of the one before, and gets one page further.
        for pages in 1..=4 {
            let mut after = String::new();
            for expected in ["a", "b", "c", ""].into_iter().take(pages) {
                let listed = state.list_piece("/f", page(&after), 1).await.unwrap();
                after = names(listed);
                assert_eq!(after, expected);
            }
            assert_eq!(state.read.get(), 3 * ENTRY, "{pages} pages");
            state.park();
            state.begin_attempt();
        }
        assert_eq!(names(state.list_piece("/f", None, 1).await.unwrap()), "a");
        assert_eq!(names(state.list_piece("/f", page("a"), 1).await.unwrap()), "b");
        assert_eq!(names(state.list_piece("/f", page("b"), 1).await.unwrap()), "c");
        assert!(state.list_piece("/f", page("c"), 1).await.unwrap().is_empty());
        add("d");
        assert!(
            matches!(state.list_piece("/f", None, 1).await, Err(FileError::QuotaExceeded(_))),
            "a new listing is paid for"
        );
    }

    #[tokio::test]
    async fn what_came_since_the_attempt_before_is_paid_for() {
        let temp = tempfile::tempdir().unwrap();
        let add = |name: &str| std::fs::write(temp.path().join(name), "x").unwrap();
        ["a", "b"].into_iter().for_each(add);
        let listing_state = || async {
            let mut state = listing(temp.path(), 3 * ENTRY);
            state.list_piece("/f", None, 1).await.unwrap();
            state.park();
            state.begin_attempt();
            state.list_piece("/f", None, 1).await.unwrap();
            state
        };
        let (mut goes_on, mut begins_anew) = (listing_state().await, listing_state().await);
        add("c");
        goes_on.list_piece("/f", Some("a".to_owned()), 1).await.unwrap();
        assert_eq!(goes_on.read.get(), 3 * ENTRY);
        // The page does not continue the previous one.
        let refused = begins_anew.list_piece("/f", Some("0".to_owned()), 1).await;
        assert!(matches!(refused, Err(FileError::QuotaExceeded(_))));
    }

    /// A call that can act, so that its reads are recorded.
    fn listing(dir: &std::path::Path, read: u64) -> CallState {
        let mut setup = setup();
        setup.facts.manifest.asks.insert("files".to_owned(), CapabilityRequest::default());
        let dir = dir.to_str().unwrap().to_owned();
        let grant = FileGrant {
            dir,
            display_path: "f".to_owned(),
            at: "/f".to_owned(),
            mode: FileMode::ReadWrite,
            bytes: 1 << 20,
            files: 10,
        };
        setup.grants.files.push(grant);
        setup.limits.read = read;
        state(setup)
    }
}
