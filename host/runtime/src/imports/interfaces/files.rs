//! The `files` import: reads below the granted folders. The text of a path is checked first, then
//! the folder's handle; each check suffices alone.

mod failure;
mod listings;
pub(crate) mod replay;
mod write;

use std::sync::Arc;

use conclave_core::permissions::grants::FileMode;
use conclave_core::types::denial::DenialRecord;
use serde::{Deserialize, Serialize};

use crate::calls::CallStart;
use crate::imports::bindings::plugin::files;
pub(crate) use crate::imports::bindings::plugin::files::FileError;
use crate::imports::call::{PluginContext, Recalled};
use crate::imports::folder::{
    CallFolder, FolderEntry, FolderFailure, GrantedFolder, PageRequest, RunOverlays, read_at,
};
pub(crate) use failure::FileFailure;
use listings::{ListingStage, Listings};
use replay::{LIST, LOOK, keep_bytes, recall_bytes, recorded};

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

/// A path of a plugin, resolved to one of its folders and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantedPath {
    pub(crate) folder: usize,
    pub(crate) rest: String,
}

/// The state of the files of a call.
pub(crate) struct Files {
    /// Directory listings in progress.
    listings: Listings,
    /// The overlays of the run; `None` if it is not stored, or the plugin has none.
    overlays: Option<Arc<RunOverlays>>,
}

impl Files {
    pub(crate) fn new(plugin: &PluginContext, start: &CallStart) -> Self {
        let has_overlay = plugin.setup.grants.files.iter().any(|it| it.mode == FileMode::Overlay);
        let overlays = start.effects.overlay_folder().filter(|_| has_overlay);
        let overlays = overlays.and_then(RunOverlays::in_folder);
        Self { listings: Listings::default(), overlays }
    }

    /// Drops the listings, which a replay reads again.
    pub(crate) fn release_listings(&mut self) {
        self.listings = Listings::default();
    }
}

import_view! {
    /// The `files` import of a call.
    FilesImport { files: Files }
}

impl FilesImport<'_> {
    /// A granted folder as this call sees it.
    pub(crate) fn folder(&self, index: usize) -> CallFolder {
        CallFolder::new(&self.core.plugin.folders[index], self.files.overlays.as_ref())
    }

    /// Resolves a path for reading, and records a refusal.
    pub(crate) fn may_read(&mut self, path: &str) -> Result<GrantedPath, FileError> {
        self.find(path, false).map_err(|record| FileError::Denied(self.core.refuse(*record)))
    }

    /// Returns the entry at a path; costs as much as an entry of a listing.
    pub(crate) fn look_at(&mut self, path: &str) -> Result<FolderEntry, FileError> {
        let place = self.may_read(path)?;
        if self.core.unread() < ENTRY {
            return Err(FileError::QuotaExceeded(self.core.plugin.limits().read));
        }
        self.core.read.add(ENTRY);
        let looked = recorded(&self.core.replay, LOOK, path, || {
            let looked = self.folder(place.folder).look(&place.rest);
            looked.map_err(|trouble| self.failure_of(path, &trouble))
        });
        looked.map_err(|failure| self.file_error(failure))
    }

    /// Resolves a path. Folders are in the order of their grants.
    fn find(&self, path: &str, writes: bool) -> Result<GrantedPath, Box<DenialRecord>> {
        let (folder, rest) = self.core.rights().may_touch(path, writes)?;
        let (plugin, task) = (&self.core.plugin, &self.core.start.task);
        plugin.check_place(&plugin.folders[folder], (path, writes), task)?;
        Ok(GrantedPath { folder, rest: rest.to_owned() })
    }

    /// The folders that this call may read, and whether it may write them.
    pub(crate) fn granted_roots(&self) -> Vec<files::Root> {
        // Without a request or a grant the list is empty, which is no refusal.
        let rights = self.core.rights();
        let may_touch = |path: &str, writes| rights.may_touch(path, writes).is_ok();
        let folders = self.core.plugin.folders.iter().filter(|folder| may_touch(&folder.at, false));
        let root = |folder: &Arc<GrantedFolder>| files::Root {
            path: folder.at.clone(),
            writable: folder.is_writable() && may_touch(&folder.at, true),
        };
        folders.map(root).collect()
    }

    /// Converts a failure for the plugin, and records a refusal.
    fn file_error(&mut self, failure: FileFailure) -> FileError {
        match failure {
            FileFailure::Denied(record) => FileError::Denied(self.core.refuse(*record)),
            FileFailure::NotFound => FileError::NotFound,
            FileFailure::NotAFile => FileError::NotAFile,
            FileFailure::NotADirectory => FileError::NotADirectory,
            FileFailure::Quota(limit) => FileError::QuotaExceeded(limit),
            FileFailure::Other(text) => FileError::Other(text),
        }
    }

    /// Converts the failure of a folder.
    fn failure_of(&self, path: &str, trouble: &FolderFailure) -> FileFailure {
        FileFailure::of(trouble, path, &self.core.plugin, &self.core.start.task)
    }

    /// Reads a piece of a file, up to the rest of the call's `read` limit.
    pub(crate) async fn read_piece(
        &mut self,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<Vec<u8>, FileError> {
        let place = self.may_read(path)?;
        let remaining = self.core.unread();
        if remaining == 0 && length > 0 {
            return Err(FileError::QuotaExceeded(self.core.plugin.limits().read));
        }
        let length = u64::from(length).min(remaining).min(PIECE);
        let target = format!("{path} {offset} {length}");
        let bytes = match recall_bytes(&self.core.replay, &target) {
            Some(bytes) => bytes,
            None => {
                let bytes = self.read_now(&place, offset, length).await;
                let bytes = bytes.map_err(|trouble| self.failure_of(path, &trouble));
                keep_bytes(&self.core.replay, &target, &bytes);
                bytes
            }
        };
        let bytes = bytes.map_err(|failure| self.file_error(failure))?;
        self.core.read.add(bytes.len() as u64);
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
        self.off_loop(move || read_at(&file, offset, size)).await
    }

    /// Runs blocking work on a folder on another thread, excluded from the guest's time.
    async fn off_loop<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> Result<T, FolderFailure> + Send + 'static,
    ) -> Result<T, FolderFailure> {
        let result = self.core.off_loop(work).await;
        result.unwrap_or_else(|| Err(FolderFailure::Other(std::io::ErrorKind::Other.into())))
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
        let place = self.may_read(path)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(ENTRIES);
        let target = format!("{path} after {after:?}, {count}");
        let LoggedListing { entries, cost } =
            match self.core.replay.recall::<LoggedListing>(LIST, &target) {
                Recalled::Before(listed) => {
                    let last = listed
                        .entries
                        .as_ref()
                        .ok()
                        .and_then(|entries| entries.last())
                        .map(|entry| entry.name.clone());
                    self.files.listings.recall(place, after.as_deref(), last, listed.cost / ENTRY);
                    listed
                }
                Recalled::Lost => LoggedListing { entries: Err(FileFailure::deviated()), cost: 0 },
                Recalled::Now => {
                    let listed = self.list_now(path, place, after, count).await;
                    let size = listed.entries.as_ref().map_or(0, |entries| {
                        entries.iter().map(|entry| entry.name.len() + 64).sum()
                    });
                    self.core.replay.keep(LIST, &target, &listed, size);
                    listed
                }
            };
        self.core.read.add(cost);
        entries.map_err(|failure| self.file_error(failure))
    }

    async fn list_now(
        &mut self,
        path: &str,
        place: GrantedPath,
        after: Option<String>,
        count: usize,
    ) -> LoggedListing {
        let remaining = self.core.unread();
        let (listing, paid) = match self.files.listings.take(&place) {
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
        match self.off_loop(list).await {
            Ok(page) => {
                if let Some(rest) = page.rest {
                    self.files.listings.keep(place, rest);
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

impl files::Host for FilesImport<'_> {
    fn roots(&mut self) -> wasmtime::Result<Vec<files::Root>> {
        self.core.enter()?;
        Ok(self.granted_roots())
    }

    async fn list_entries(
        &mut self,
        path: String,
        after: Option<String>,
        count: u32,
    ) -> wasmtime::Result<Result<Vec<files::Entry>, FileError>> {
        self.core.enter()?;
        let entries = self.list_piece(&path, after, count).await;
        Ok(entries.map(|entries| entries.into_iter().map(entry_out).collect()))
    }

    async fn read(
        &mut self,
        path: String,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, FileError>> {
        self.core.enter()?;
        Ok(self.read_piece(&path, offset, length).await)
    }

    async fn write(
        &mut self,
        path: String,
        offset: u64,
        bytes: Vec<u8>,
        truncate: bool,
    ) -> wasmtime::Result<Result<u64, FileError>> {
        self.core.enter()?;
        Ok(self.write_file(&path, offset, bytes, truncate).await)
    }

    async fn remove(&mut self, path: String) -> wasmtime::Result<Result<(), FileError>> {
        self.core.enter()?;
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
    use crate::imports::state::CallState;
    use crate::imports::testing::{setup, state};

    impl CallState {
        fn files(&mut self) -> FilesImport<'_> {
            FilesImport { core: &mut self.core, files: &mut self.files }
        }
    }

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
            assert_eq!(state.files().list_piece("/f", None, 1).await.unwrap().len(), 1);
        }
        assert!(state.files().list_piece("/f", None, 0).await.unwrap().is_empty());
        assert_eq!(state.core.read.get(), 6 * ENTRY, "nothing is looked at for no entries");
        assert!(
            matches!(state.files().list_piece("/f", None, 1).await, Err(FileError::QuotaExceeded(limit)) if limit == 7 * ENTRY)
        );
        assert!(
            matches!(
                state.files().read_piece("/f/a", 0, 1).await,
                Err(FileError::QuotaExceeded(_))
            ),
            "what was looked at is used up"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_folder_that_is_replaced_is_refused_before_a_change_is_recorded() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, moved) = (temp.path().join("f"), temp.path().join("moved"));
        std::fs::create_dir(&dir).unwrap();
        let mut state = listing(&dir, 1 << 20);
        assert_eq!(state.files().write_file("/f/a", 0, b"one".to_vec(), true).await.unwrap(), 3);
        std::fs::rename(&dir, &moved).unwrap();
        for _ in 0..2 {
            let written = state.files().write_file("/f/a", 0, b"two".to_vec(), true).await;
            assert!(matches!(written, Err(FileError::Denied(_))), "{written:?}");
            let removed = state.files().remove_file("/f/a").await;
            assert!(matches!(removed, Err(FileError::Denied(_))), "{removed:?}");
            let read = state.files().read_piece("/f/a", 0, 9).await;
            assert!(matches!(read, Err(FileError::Denied(_))), "{read:?}");
            // Then another folder is there.
            let _ = std::fs::create_dir(&dir);
        }
        assert_eq!(std::fs::read(moved.join("a")).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(state.core.effects, 1, "nothing else was recorded as about to happen");
        std::fs::remove_dir(&dir).unwrap();
        std::fs::rename(&moved, &dir).unwrap();
        assert_eq!(state.files().write_file("/f/a", 0, b"two!".to_vec(), true).await.unwrap(), 4);
        let records = state.core.refusals.into_records(&state.core.start);
        let reason = &records[0].reason;
        assert!(
            reason.contains(dir.to_str().unwrap()) && reason.contains("start it again"),
            "{reason}"
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
                let listed = state.files().list_piece("/f", page(&after), 1).await.unwrap();
                after = names(listed);
                assert_eq!(after, expected);
            }
            assert_eq!(state.core.read.get(), 3 * ENTRY, "{pages} pages");
            state.park();
            state.begin_attempt();
        }
        assert_eq!(names(state.files().list_piece("/f", None, 1).await.unwrap()), "a");
        assert_eq!(names(state.files().list_piece("/f", page("a"), 1).await.unwrap()), "b");
        assert_eq!(names(state.files().list_piece("/f", page("b"), 1).await.unwrap()), "c");
        assert!(state.files().list_piece("/f", page("c"), 1).await.unwrap().is_empty());
        add("d");
        assert!(
            matches!(
                state.files().list_piece("/f", None, 1).await,
                Err(FileError::QuotaExceeded(_))
            ),
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
            state.files().list_piece("/f", None, 1).await.unwrap();
            state.park();
            state.begin_attempt();
            state.files().list_piece("/f", None, 1).await.unwrap();
            state
        };
        let (mut goes_on, mut begins_anew) = (listing_state().await, listing_state().await);
        add("c");
        goes_on.files().list_piece("/f", Some("a".to_owned()), 1).await.unwrap();
        assert_eq!(goes_on.core.read.get(), 3 * ENTRY);
        // The page does not continue the previous one.
        let refused = begins_anew.files().list_piece("/f", Some("0".to_owned()), 1).await;
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
