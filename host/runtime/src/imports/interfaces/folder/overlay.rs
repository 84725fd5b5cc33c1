//! Copy-on-write overlays of granted folders. An overlay belongs to a run: all its rooms and plugins
//! that were granted a folder as an overlay see the same one. Reads of unchanged files go to the
//! folder; the first write copies a file; a removal is a line of a log. The core decides which layer
//! answers for a path.

mod reads;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use conclave_core::overlay::changes::{ChangeRecord, ChangedFile, Changes, Layer};
use conclave_core::types::side_effect::Digest as FileDigest;
use sha2::{Digest, Sha256};

use self::reads::FirstReads;
use super::ledger::FolderSize;
use super::listing::{self, KEPT, Listing, NamedEntries, Page, PageRequest};
use super::write::{Existing, existing, perform, sync_directory, to_write, write_at};
use super::{FileChange, FileModes, FolderEntry, FolderFailure, GrantedFolder};
use crate::support::durable_file::make_folders;
use crate::support::overlay_files::{
    FILES, OverlayLog, OverlayOrigin, content_name, lock, overlay_folder,
};

/// Bytes that are copied or hashed at once.
const PIECE: usize = 256 << 10;

/// The overlays of a run. Its first change takes the lock of the run's changes, which is released
/// when the run is over.
#[derive(Debug)]
pub(crate) struct RunOverlays {
    folder: PathBuf,
    state: Mutex<RunState>,
}

#[derive(Debug, Default)]
struct RunState {
    lock: Option<std::fs::File>,
    open: BTreeMap<PathBuf, Arc<Overlay>>,
}

/// The overlays of all runs of this process. They are global because the rooms of a run's observers
/// have a context of their own.
static RUNS: Mutex<Vec<Weak<RunOverlays>>> = Mutex::new(Vec::new());

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunOverlays {
    /// Returns the overlays in a run's folder, which need not exist.
    pub(crate) fn of(folder: &Path) -> Arc<Self> {
        let mut all = held(&RUNS);
        all.retain(|run| run.strong_count() > 0);
        let open = all.iter().filter_map(Weak::upgrade).find(|run| run.folder == folder);
        open.unwrap_or_else(|| {
            let run = Arc::new(Self { folder: folder.to_owned(), state: Mutex::default() });
            all.push(Arc::downgrade(&run));
            run
        })
    }

    /// Returns the run's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Opens the overlay of a folder.
    pub(super) fn open(&self, origin: &OverlayOrigin) -> Result<Arc<Overlay>, FolderFailure> {
        let mut state = held(&self.state);
        if let Some(overlay) = state.open.get(&origin.dir) {
            return Ok(Arc::clone(overlay));
        }
        let folder = overlay_folder(&self.folder, &origin.dir);
        let mut overlay = OverlayState::default();
        if folder.is_dir() {
            // Read under the lock, or another process could apply the changes meanwhile.
            state.lock(&self.folder)?;
            overlay = OverlayState::open(&folder)?;
        }
        let (origin, reads) = (origin.clone(), FirstReads::open(&folder)?);
        let overlay = Arc::new(Overlay { folder, origin, reads, state: Mutex::new(overlay) });
        state.open.insert(overlay.origin.dir.clone(), Arc::clone(&overlay));
        Ok(overlay)
    }

    fn lock(&self) -> Result<(), FolderFailure> {
        make_folders(&self.folder, 0o700)?;
        held(&self.state).lock(&self.folder)
    }
}

impl RunState {
    fn lock(&mut self, run_folder: &Path) -> Result<(), FolderFailure> {
        if self.lock.is_none() {
            self.lock = Some(lock(run_folder)?.ok_or(FolderFailure::OverlayInUse)?);
        }
        Ok(())
    }
}

/// The overlay of one folder.
#[derive(Debug)]
pub(super) struct Overlay {
    folder: PathBuf,
    origin: OverlayOrigin,
    reads: FirstReads,
    state: Mutex<OverlayState>,
}

#[derive(Debug, Default)]
struct OverlayState {
    changes: Changes,
    /// `None` before the first change.
    store: Option<OverlayStore>,
}

/// The files of an overlay, open for changes.
#[derive(Debug)]
struct OverlayStore {
    log: OverlayLog,
    /// The changed files.
    files: Dir,
    /// The bytes of the changed files; `None` if they must be measured again.
    bytes: Option<u64>,
}

impl OverlayState {
    /// Opens an existing overlay, and removes the files of writes that were interrupted before they
    /// were recorded.
    fn open(folder: &Path) -> Result<Self, FolderFailure> {
        let Some((log, changes)) = OverlayLog::open(folder)? else { return Ok(Self::default()) };
        let store = OverlayStore::open(folder, log)?;
        let written =
            changes.iter().filter(|(_, change)| !matches!(change, ChangedFile::Removed { .. }));
        let recorded: HashSet<OsString> =
            written.map(|(path, _)| content_name(path).into()).collect();
        for entry in store.files.entries()? {
            let name = entry?.file_name();
            if !recorded.contains(&name) {
                store.files.remove_file(name)?;
            }
        }
        Ok(Self { changes, store: Some(store) })
    }

    /// Records a change. The overlay has it when this returns.
    fn record(&mut self, record: ChangeRecord, durable: bool) -> Result<(), FolderFailure> {
        let Some(store) = &mut self.store else { return Err(FolderFailure::NotStored) };
        store.log.append(&record, &self.changes, durable)?;
        self.changes.take(record);
        Ok(())
    }
}

impl OverlayStore {
    fn open(folder: &Path, log: OverlayLog) -> Result<Self, FolderFailure> {
        let files = Dir::open_ambient_dir(folder.join(FILES), ambient_authority())?;
        Ok(Self { log, files, bytes: None })
    }

    fn bytes(&mut self) -> Result<u64, FolderFailure> {
        if let Some(bytes) = self.bytes {
            return Ok(bytes);
        }
        let mut bytes = 0_u64;
        for entry in self.files.entries()? {
            bytes = bytes.saturating_add(entry?.metadata()?.len());
        }
        self.bytes = Some(bytes);
        Ok(bytes)
    }
}

/// A folder through the overlay of a run.
pub(super) struct OverlayView<'a> {
    run: &'a RunOverlays,
    overlay: &'a Overlay,
    base: &'a GrantedFolder,
    most: FolderSize,
}

impl<'a> OverlayView<'a> {
    /// Returns the view of a folder, with the quota of its grant.
    pub(super) fn new(
        run: &'a RunOverlays,
        overlay: &'a Overlay,
        base: &'a GrantedFolder,
        most: FolderSize,
    ) -> Self {
        Self { run, overlay, base, most }
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, rest: &str) -> Result<File, FolderFailure> {
        let state = held(&self.overlay.state);
        let (rest, layer) = self.resolve(&state.changes, rest)?;
        match layer {
            Layer::Upper => Ok(state.files()?.open(content_name(&rest))?),
            Layer::UpperDirectory => Err(FolderFailure::NotAFile),
            Layer::Removed => Err(FolderFailure::NotFound),
            Layer::BelowFile => Err(FolderFailure::NotADirectory),
            Layer::Base => {
                let opened = self.base.open_file(&rest);
                self.overlay.reads.note(&rest, &opened);
                opened
            }
        }
    }

    /// Returns the entry at a path, following links of the folder.
    pub(super) fn look(&self, rest: &str) -> Result<FolderEntry, FolderFailure> {
        self.entry_at(&held(&self.overlay.state), rest)
    }

    fn entry_at(&self, state: &OverlayState, rest: &str) -> Result<FolderEntry, FolderFailure> {
        let name = rest.rsplit('/').next().unwrap_or_default().to_owned();
        let (rest, layer) = self.resolve(&state.changes, rest)?;
        match layer {
            Layer::Upper => {
                let length = state.files()?.metadata(content_name(&rest))?.len();
                Ok(FolderEntry { name, is_directory: false, length })
            }
            Layer::UpperDirectory => Ok(FolderEntry { name, is_directory: true, length: 0 }),
            Layer::Removed => Err(FolderFailure::NotFound),
            Layer::BelowFile => Err(FolderFailure::NotADirectory),
            Layer::Base => Ok(FolderEntry { name, ..self.base.look(&rest)? }),
        }
    }

    /// Returns a page of a directory, as [`GrantedFolder::page`].
    pub(super) fn page(
        &self,
        request: PageRequest<'_>,
        listing: Option<Listing>,
    ) -> Result<Page, FolderFailure> {
        let state = held(&self.overlay.state);
        let (rest, layer) = self.resolve(&state.changes, request.directory)?;
        let base = match layer {
            Layer::Upper | Layer::BelowFile => return Err(FolderFailure::NotADirectory),
            Layer::Removed => return Err(FolderFailure::NotFound),
            Layer::Base => Some(self.base.directory(&rest)?),
            Layer::UpperDirectory if state.changes.hides_base(&rest) => None,
            Layer::UpperDirectory => match self.base.directory(&rest) {
                Err(FolderFailure::NotFound | FolderFailure::NotADirectory) => None,
                directory => Some(directory?),
            },
        };
        let merged = MergedDirectory { view: self, state: &state, rest: &rest, base };
        listing::page(&merged, request, listing, KEPT)
    }

    /// Writes to a file and returns its new length.
    pub(super) fn write(&self, change: FileChange<'_>) -> Result<u64, FolderFailure> {
        let mut state = held(&self.overlay.state);
        let (layer, base) = self.writable(&state.changes, change.rest)?;
        base.as_ref().map_or(Ok(()), Existing::refuse_hard_link)?;
        let name = content_name(change.rest);
        let upper = match (layer, &state.store) {
            (Layer::Upper, Some(store)) => to_write(&store.files, &name)?,
            _ => None,
        };
        let length = |existing: &Option<Existing>| {
            existing.as_ref().map_or(0, |existing| existing.metadata.len())
        };
        let (upper_length, base_length) = (length(&upper), length(&base));
        let new = change.new_length(upper_length.max(base_length));
        let new = new.ok_or(FolderFailure::Quota(self.most.bytes))?;
        // The quota is checked before anything is created or copied.
        let before = state.store.as_mut().map_or(Ok(0), OverlayStore::bytes)?;
        let after = before.saturating_sub(upper_length).saturating_add(new);
        if after > before && after > self.most.bytes {
            return Err(FolderFailure::Quota(self.most.bytes));
        }
        self.check_files(&state.changes, change.rest)?;
        let store = self.store(&mut state)?;
        // After a failure the size on disk is unknown, and the next write measures it again.
        store.bytes = None;
        if layer == Layer::Upper {
            perform(&store.files, &name, upper, &change, new)?;
            store.bytes = Some(after);
            return Ok(new);
        }
        // Left by a write that was not recorded, or by a removed file.
        remove_if_there(&store.files, &name)?;
        let is_whole = change.offset == 0 && change.truncate;
        let original = match &base {
            Some(base) if is_whole => Some(digest(&base.file, |_| Ok(()))?),
            Some(base) => Some(copy(&base.file, &store.files, &name)?),
            None => None,
        };
        let copied = if is_whole { None } else { to_write(&store.files, &name)? };
        perform(&store.files, &name, copied, &change, new)?;
        store.bytes = Some(after);
        // The file becomes visible with its record, after its content.
        let (path, before) = (change.rest.to_owned(), state.changes.get(change.rest));
        let changed_since_read = match before {
            Some(before) => before.changed_since_read(),
            None => self.changed_since_read(change.rest, base.as_ref()),
        };
        let base = before.and_then(ChangedFile::base).cloned().or(original);
        let record = ChangeRecord::Written { path, base, changed_since_read };
        state.record(record, change.durable)?;
        Ok(new)
    }

    /// Removes a file; an absent file is no error.
    pub(super) fn remove(&self, rest: &str, durable: bool) -> Result<(), FolderFailure> {
        let mut state = held(&self.overlay.state);
        let path = rest.to_owned();
        let (layer, base) = match self.writable(&state.changes, rest) {
            Err(FolderFailure::NotFound) => return Ok(()),
            found => found?,
        };
        let original = match (state.changes.get(rest), &base) {
            (Some(ChangedFile::Removed { .. }), _) => return Ok(()),
            (Some(ChangedFile::Written { base, .. }), _) => base.clone(),
            (None, Some(base)) => Some(digest(&base.file, |_| Ok(()))?),
            (None, None) => return Ok(()),
        };
        let record = match original {
            Some(original) => {
                self.check_files(&state.changes, rest)?;
                let changed_since_read = match state.changes.get(rest) {
                    Some(before) => before.changed_since_read(),
                    None => self.changed_since_read(rest, base.as_ref()),
                };
                ChangeRecord::Removed { path, base: original, changed_since_read }
            }
            None => ChangeRecord::Reverted { path },
        };
        self.store(&mut state)?;
        state.record(record, durable)?;
        let Some(store) = state.store.as_mut().filter(|_| layer == Layer::Upper) else {
            return Ok(());
        };
        // The record hides the content already. What cannot be removed now is removed when the
        // overlay is opened next, and counts until then.
        store.bytes = None;
        remove_if_there(&store.files, &content_name(rest))
    }

    /// Returns whether the folder's file is another one than the run first read.
    fn changed_since_read(&self, rest: &str, now: Option<&Existing>) -> bool {
        self.overlay.reads.has_changed(rest, now.map(|now| &now.metadata))
    }

    /// Syncs a changed file to the disk, with its record. Other files were not written here.
    pub(super) fn sync(&self, rest: &str) -> Result<(), FolderFailure> {
        let state = held(&self.overlay.state);
        let (rest, layer) = self.resolve(&state.changes, rest)?;
        let Some(store) = &state.store else { return Ok(()) };
        if layer == Layer::Upper {
            store.files.open(content_name(&rest))?.sync_all()?;
        }
        sync_directory(&store.files)?;
        Ok(store.log.sync()?)
    }

    /// Returns the files of the overlay, created at the first change.
    fn store<'b>(
        &self,
        state: &'b mut OverlayState,
    ) -> Result<&'b mut OverlayStore, FolderFailure> {
        if state.store.is_none() {
            self.run.lock()?;
            let log = OverlayLog::create(&self.overlay.folder, &self.overlay.origin)?;
            state.store = Some(OverlayStore::open(&self.overlay.folder, log)?);
        }
        state.store.as_mut().ok_or(FolderFailure::NotStored)
    }

    /// Checks the quota of changed files before one more is changed.
    fn check_files(&self, changes: &Changes, rest: &str) -> Result<(), FolderFailure> {
        let files = changes.len() as u64 + u64::from(changes.get(rest).is_none());
        if changes.get(rest).is_none() && files > self.most.entries {
            return Err(FolderFailure::Quota(self.most.entries));
        }
        Ok(())
    }

    /// Returns the layer of a path that may be changed, and the folder's file if it answers for the
    /// path. Follows no links, like a write to the folder itself.
    fn writable(
        &self,
        changes: &Changes,
        rest: &str,
    ) -> Result<(Layer, Option<Existing>), FolderFailure> {
        let layer = changes.layer(rest);
        match layer {
            Layer::UpperDirectory => return Err(FolderFailure::NotAFile),
            Layer::BelowFile => return Err(FolderFailure::NotADirectory),
            Layer::Removed => return Ok((layer, None)),
            Layer::Upper | Layer::Base => {}
        }
        let reached = match self.base.reach(rest) {
            // The folder has changed since; the overlay's file stays.
            Err(failure) if layer == Layer::Upper && !matches!(failure, FolderFailure::Kept) => {
                return Ok((layer, None));
            }
            reached => reached?,
        };
        if layer == Layer::Upper || !reached.missing.is_empty() {
            return Ok((layer, None));
        }
        Ok((layer, existing(&reached.dir, reached.leaf, OpenOptions::new().read(true))?))
    }

    /// Follows the links of the folder, which a guest cannot make, and returns the real path with
    /// its layer. Otherwise a changed file would have its old content under a second name.
    fn resolve(&self, changes: &Changes, rest: &str) -> Result<(String, Layer), FolderFailure> {
        let layer = changes.layer(rest);
        if layer != Layer::Base || changes.is_empty() {
            return Ok((rest.to_owned(), layer));
        }
        let mut end = rest.len();
        while end > 0 {
            match self.base.dir.canonicalize(&rest[..end]) {
                Ok(real) => {
                    let real = real.into_os_string().into_string();
                    let real = real.map_err(|_| FolderFailure::NotFound)?;
                    let real = if real == "." { String::new() } else { real };
                    let path = format!("{real}{}", &rest[end..]);
                    let path = path.trim_start_matches('/').to_owned();
                    let layer = changes.layer(&path);
                    return Ok((path, layer));
                }
                // The rest of the path may be the overlay's.
                Err(error)
                    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory]
                        .contains(&error.kind()) =>
                {
                    end = rest[..end].rfind('/').unwrap_or(0);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((rest.to_owned(), layer))
    }
}

impl OverlayState {
    fn files(&self) -> Result<&Dir, FolderFailure> {
        self.store.as_ref().map(|store| &store.files).ok_or(FolderFailure::NotFound)
    }
}

/// A directory of the folder with the changes of the overlay.
struct MergedDirectory<'a> {
    view: &'a OverlayView<'a>,
    state: &'a OverlayState,
    rest: &'a str,
    /// `None` if only the overlay has it.
    base: Option<Dir>,
}

impl NamedEntries for MergedDirectory<'_> {
    fn names(&self) -> Result<impl Iterator<Item = io::Result<OsString>>, FolderFailure> {
        let base = self.base.as_ref().map(NamedEntries::names).transpose()?;
        let upper = self.state.changes.names_in(self.rest).into_iter();
        Ok(base.into_iter().flatten().chain(upper.map(|name| Ok(name.into()))))
    }

    fn entry(&self, name: &str) -> Option<FolderEntry> {
        let rest =
            if self.rest.is_empty() { name.to_owned() } else { format!("{}/{name}", self.rest) };
        let is_link = |dir: &Dir| dir.symlink_metadata(name).is_ok_and(|found| found.is_symlink());
        match &self.base {
            // A link may lead to a changed file.
            Some(base) if self.state.changes.layer(&rest) == Layer::Base && !is_link(base) => {
                base.entry(name)
            }
            _ => self.view.entry_at(self.state, &rest).ok(),
        }
    }
}

/// Returns the digest of a file, and passes its pieces on.
pub(super) fn digest(
    mut file: &File,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<FileDigest> {
    let (mut hash, mut length, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        hash.update(&piece[..read]);
        take(&piece[..read])?;
        length += read as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(FileDigest { sha256, length })
}

/// Copies a file of the folder into the overlay.
fn copy(from: &File, files: &Dir, name: &str) -> io::Result<FileDigest> {
    let to = files.open_with(name, &FileModes::Plugin.new_file())?;
    let mut offset = 0;
    digest(from, |piece| {
        write_at(&to, offset, piece)?;
        offset += piece.len() as u64;
        Ok(())
    })
}

fn remove_if_there(dir: &Dir, name: &str) -> Result<(), FolderFailure> {
    match dir.remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
