//! Copy-on-write overlays of granted folders. An overlay belongs to a run: all its rooms and plugins
//! that were granted a folder as an overlay see the same one. Reads of unchanged files go to the
//! folder; the first write copies a file; a removal is a line of a log. The core decides which layer
//! answers for a path.

mod reads;
mod recording;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::SystemTime;

use cap_fs_ext::MetadataExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use conclave_core::overlay::changes::{ChangeRecord, ChangedFile, Changes, Layer};
use conclave_core::types::side_effect::Digest as FileDigest;
use sha2::{Digest, Sha256};

use self::reads::FirstReads;
use self::recording::{ChangeInProgress, Recording};
use super::ledger::FolderSize;
use super::listing::{self, KEPT, Listing, NamedEntries, Page, PageRequest};
use super::write::{Existing, existing, perform, sync_directory, to_write, write_at};
use super::{FileChange, FileModes, FolderEntry, FolderFailure, GrantedFolder};
use crate::support::durable_file::make_folders;
use crate::support::overlay_files::{
    FILES, OverlayLog, OverlayOrigin, OverlayPlace, RecordFailure, content_name, lock,
    overlay_folder,
};

/// Bytes that are copied or hashed at once.
const PIECE: usize = 256 << 10;
/// Maximum bytes of a file of the folder that an overlay replaces or removes. It is hashed, so that
/// a later change of it is found; this takes a second at most.
const HASHED: u64 = 1 << 30;

/// The overlays of a run. Its first change takes the lock of the run's changes, which is released
/// when the run is over.
#[derive(Debug)]
pub(crate) struct RunOverlays {
    place: OverlayPlace,
    /// Those that were opened. Reads on the threads of the executor take this lock, so it is never
    /// held over work on a disk.
    open: Mutex<BTreeMap<PathBuf, Arc<Overlay>>>,
    /// Held while an overlay is opened: two at once would each remove what the other writes.
    opening: Mutex<()>,
    /// The lock of the run's changes, which the first change takes.
    claim: Mutex<Option<std::fs::File>>,
}

/// The overlays of all runs of this process. They are global because the rooms of a run's observers
/// have a context of their own.
static RUNS: Mutex<Vec<Weak<RunOverlays>>> = Mutex::new(Vec::new());

fn lock_data<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunOverlays {
    /// The overlays at a run's place.
    pub(crate) fn of(place: OverlayPlace) -> Arc<Self> {
        let mut all = lock_data(&RUNS);
        all.retain(|run| run.strong_count() > 0);
        let open = all.iter().filter_map(Weak::upgrade).find(|run| run.folder() == place.folder());
        open.unwrap_or_else(|| {
            let run = Arc::new(Self {
                place,
                open: Mutex::default(),
                opening: Mutex::default(),
                claim: Mutex::default(),
            });
            all.push(Arc::downgrade(&run));
            run
        })
    }

    /// The overlays that a run of this process has open in a folder.
    pub(crate) fn in_folder(folder: &Path) -> Option<Arc<Self>> {
        lock_data(&RUNS).iter().filter_map(Weak::upgrade).find(|run| run.folder() == folder)
    }

    /// The run's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// Opens the overlay of a folder.
    pub(super) fn open(&self, origin: &OverlayOrigin) -> Result<Arc<Overlay>, FolderFailure> {
        if let Some(overlay) = self.opened(origin) {
            return Ok(overlay);
        }
        // Held while it waits: for the first use of an overlay, whose log is short.
        let _opening = lock_data(&self.opening);
        if let Some(overlay) = self.opened(origin) {
            return Ok(overlay);
        }
        let folder = overlay_folder(self.folder(), &origin.dir);
        let mut index = OverlayIndex::default();
        let mut store = None;
        let recording = self.place.recorder().map(|recorder| {
            // A working copy of before may have changes that were not recorded.
            Recording::begin(recorder, origin, &folder)
        });
        let recording = recording.transpose()?;
        if folder.is_dir() {
            // Read under the lock, or another process could apply the changes meanwhile.
            self.claim()?;
            if let Some((log, changes)) = OverlayLog::open(&folder)? {
                let opened = OverlayStore::open(&folder, log)?;
                opened.remove_unrecorded(&changes)?;
                index = OverlayIndex { changes, files: Some(Arc::clone(&opened.files)) };
                store = Some(opened);
            }
        }
        let (index, writer) = (RwLock::new(index), Mutex::new(store));
        let (origin, reads) = (origin.clone(), FirstReads::open(&folder)?);
        let overlay = Arc::new(Overlay { folder, origin, reads, index, writer, recording });
        lock_data(&self.open).insert(overlay.origin.dir.clone(), Arc::clone(&overlay));
        Ok(overlay)
    }

    fn opened(&self, origin: &OverlayOrigin) -> Option<Arc<Overlay>> {
        let open = lock_data(&self.open).get(&origin.dir).cloned();
        open.filter(|overlay| !overlay.recording.as_ref().is_some_and(Recording::is_stale))
    }

    /// Takes the lock of the run's changes.
    fn claim(&self) -> Result<(), FolderFailure> {
        let mut claim = lock_data(&self.claim);
        if claim.is_none() {
            *claim = Some(lock(self.folder())?.ok_or(FolderFailure::OverlayInUse)?);
        }
        Ok(())
    }
}

/// The overlay of one folder. Reads ask the index alone, also while a write waits for the disk.
#[derive(Debug)]
pub(super) struct Overlay {
    folder: PathBuf,
    origin: OverlayOrigin,
    reads: FirstReads,
    /// Never locked over work on a disk.
    index: RwLock<OverlayIndex>,
    /// The files, for one write at a time; `None` before the first change. Held over work on the
    /// disk, so only blocking threads take it.
    writer: Mutex<Option<OverlayStore>>,
    /// `None` if the files are the only place of the changes.
    recording: Option<Recording>,
}

/// What an overlay answers for.
#[derive(Debug, Default)]
struct OverlayIndex {
    changes: Changes,
    /// The changed files; `None` before the first change.
    files: Option<Arc<Dir>>,
}

impl Overlay {
    fn index(&self) -> RwLockReadGuard<'_, OverlayIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn layer(&self, path: &str) -> Layer {
        self.index().changes.layer(path)
    }

    fn change(&self, path: &str) -> Option<ChangedFile> {
        self.index().changes.get(path).cloned()
    }

    /// Whether its files must: a working copy is built from what is recorded elsewhere.
    fn must_survive_power_cuts(&self) -> bool {
        self.recording.is_none()
    }

    /// Maximum bytes of one changed file; `None` if only the quota limits it.
    fn most_file_bytes(&self) -> Option<u64> {
        self.recording.as_ref().map(Recording::most_bytes)
    }

    fn files(&self) -> Result<Arc<Dir>, FolderFailure> {
        self.index().files.clone().ok_or(FolderFailure::NotFound)
    }

    /// Records a change of a file whose content is written. The overlay has it when this returns.
    fn record(
        &self,
        store: &mut OverlayStore,
        record: ChangeRecord,
        durable: bool,
    ) -> Result<(), FolderFailure> {
        self.publish(store, &record)?;
        // Only the holder of the writer changes the index, so a copy of it stays true.
        let count = self.index().changes.len();
        if store.log.is_long(count) {
            let changes = self.index().changes.clone();
            store.log.rewrite(&changes)?;
        }
        store.log.append_line(&record, durable)?;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.changes.take(record);
        Ok(())
    }

    /// Records a change where other hosts find it, if this overlay is a working copy.
    fn publish(&self, store: &OverlayStore, record: &ChangeRecord) -> Result<(), FolderFailure> {
        let Some(recording) = &self.recording else { return Ok(()) };
        let content = match record {
            ChangeRecord::Written { path, .. } => Some(store.files.read(content_name(path))?),
            ChangeRecord::Removed { .. } | ChangeRecord::Reverted { .. } => None,
        };
        Ok(recording.record(&self.origin, record, content.as_deref())?)
    }
}

/// The files of an overlay, open for changes.
#[derive(Debug)]
struct OverlayStore {
    log: OverlayLog,
    /// The changed files.
    files: Arc<Dir>,
    /// The bytes of the changed files; `None` if they must be measured again.
    bytes: Option<u64>,
}

impl OverlayStore {
    fn open(folder: &Path, log: OverlayLog) -> Result<Self, FolderFailure> {
        let files = Dir::open_ambient_dir(folder.join(FILES), ambient_authority())?;
        Ok(Self { log, files: Arc::new(files), bytes: None })
    }

    /// Removes the files of writes that were interrupted before they were recorded.
    fn remove_unrecorded(&self, changes: &Changes) -> Result<(), FolderFailure> {
        let written =
            changes.iter().filter(|(_, change)| !matches!(change, ChangedFile::Removed { .. }));
        let recorded: HashSet<OsString> =
            written.map(|(path, _)| content_name(path).into()).collect();
        for entry in self.files.entries()? {
            let name = entry?.file_name();
            if !recorded.contains(&name) {
                self.files.remove_file(name)?;
            }
        }
        Ok(())
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
    /// The view of a folder, with the quota of its grant.
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
        let (rest, layer) = self.resolve(rest)?;
        match layer {
            Layer::Upper => Ok(self.overlay.files()?.open(content_name(&rest))?),
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
        let name = rest.rsplit('/').next().unwrap_or_default().to_owned();
        let (rest, layer) = self.resolve(rest)?;
        match layer {
            Layer::Upper => {
                let length = self.overlay.files()?.metadata(content_name(&rest))?.len();
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
        let (rest, layer) = self.resolve(request.directory)?;
        let hides_base = self.overlay.index().changes.hides_base(&rest);
        let base = match layer {
            Layer::Upper | Layer::BelowFile => return Err(FolderFailure::NotADirectory),
            Layer::Removed => return Err(FolderFailure::NotFound),
            Layer::Base => Some(self.base.directory(&rest)?),
            Layer::UpperDirectory if hides_base => None,
            Layer::UpperDirectory => match self.base.directory(&rest) {
                Err(FolderFailure::NotFound | FolderFailure::NotADirectory) => None,
                directory => Some(directory?),
            },
        };
        let merged = MergedDirectory { view: self, rest: &rest, base };
        listing::page(&merged, request, listing, KEPT)
    }

    /// Writes to a file and returns its new length.
    pub(super) fn write(&self, change: FileChange<'_>) -> Result<u64, FolderFailure> {
        let durable = change.durable && self.overlay.must_survive_power_cuts();
        let change = FileChange { durable, ..change };
        let is_whole = change.offset == 0 && change.truncate;
        let hashed = if is_whole { self.hash_base(change.rest)? } else { None };
        // Held while it waits: writes run on blocking threads, and no read takes it.
        let mut writer = self.writer()?;
        let (layer, base) = self.writable(change.rest)?;
        base.as_ref().map_or(Ok(()), Existing::refuse_hard_link)?;
        let name = content_name(change.rest);
        let upper = match (layer, writer.as_ref()) {
            (Layer::Upper, Some(store)) => to_write(&store.files, &name)?,
            _ => None,
        };
        let length = |existing: &Option<Existing>| {
            existing.as_ref().map_or(0, |existing| existing.metadata.len())
        };
        let (upper_length, base_length) = (length(&upper), length(&base));
        let new = change.new_length(upper_length.max(base_length));
        let new = new.ok_or(FolderFailure::Quota(self.most.bytes))?;
        if let Some(most) = self.overlay.most_file_bytes().filter(|most| new > *most) {
            return Err(FolderFailure::TooLargeToRecord { most });
        }
        // The quota is checked before anything is created or copied.
        let before = writer.as_mut().map_or(Ok(0), OverlayStore::bytes)?;
        let after = before.saturating_sub(upper_length).saturating_add(new);
        // A change that frees space is permitted above the quota, too.
        if after > before && after > self.most.bytes {
            return Err(FolderFailure::Quota(self.most.bytes));
        }
        self.check_files(change.rest)?;
        let store = self.store(&mut writer)?;
        // After a failure the size on disk is unknown, and the next write measures it again.
        store.bytes = None;
        let progress = ChangeInProgress::of(self.overlay.recording.as_ref());
        if layer == Layer::Upper {
            perform(&store.files, &name, upper, &change, new)?;
            store.bytes = Some(after);
            if let Some(changed) = self.overlay.change(change.rest) {
                self.overlay.publish(store, &changed.record(change.rest))?;
            }
            progress.completed();
            return Ok(new);
        }
        // Left by a write that was not recorded, or by a removed file.
        remove_if_there(&store.files, &name)?;
        let original = match &base {
            Some(base) if is_whole => Some(HashedFile::digest_of(hashed, base)?),
            Some(base) => Some(copy(&base.file, &store.files, &name, self.most.bytes)?),
            None => None,
        };
        let copied = if is_whole { None } else { to_write(&store.files, &name)? };
        perform(&store.files, &name, copied, &change, new)?;
        store.bytes = Some(after);
        // The file becomes visible with its record, after its content.
        let changed = self.overlay.change(change.rest);
        let changed_since_read = match &changed {
            Some(before) => before.changed_since_read(),
            None => self.changed_since_read(change.rest, base.as_ref()),
        };
        let base = changed.as_ref().and_then(ChangedFile::base).cloned().or(original);
        let path = change.rest.to_owned();
        let record = ChangeRecord::Written { path, base, changed_since_read };
        self.overlay.record(store, record, change.durable)?;
        progress.completed();
        Ok(new)
    }

    /// Removes a file; an absent file is no error.
    pub(super) fn remove(&self, rest: &str, durable: bool) -> Result<(), FolderFailure> {
        let hashed = match self.hash_base(rest) {
            Err(FolderFailure::NotFound) => return Ok(()),
            hashed => hashed?,
        };
        // Held while it waits: writes run on blocking threads, and no read takes it.
        let mut writer = self.writer()?;
        let path = rest.to_owned();
        let (layer, base) = match self.writable(rest) {
            Err(FolderFailure::NotFound) => return Ok(()),
            found => found?,
        };
        let original = match (self.overlay.change(rest), &base) {
            (Some(ChangedFile::Removed { .. }), _) => return Ok(()),
            (Some(ChangedFile::Written { base, .. }), _) => base,
            (None, Some(base)) => Some(HashedFile::digest_of(hashed, base)?),
            (None, None) => return Ok(()),
        };
        let record = match original {
            Some(original) => {
                self.check_files(rest)?;
                let changed_since_read = match self.overlay.change(rest) {
                    Some(before) => before.changed_since_read(),
                    None => self.changed_since_read(rest, base.as_ref()),
                };
                ChangeRecord::Removed { path, base: original, changed_since_read }
            }
            None => ChangeRecord::Reverted { path },
        };
        let store = self.store(&mut writer)?;
        let progress = ChangeInProgress::of(self.overlay.recording.as_ref());
        let durable = durable && self.overlay.must_survive_power_cuts();
        self.overlay.record(store, record, durable)?;
        progress.completed();
        if layer != Layer::Upper {
            return Ok(());
        }
        // The record hides the content already. What cannot be removed now is removed when the
        // overlay is opened next, and counts until then.
        store.bytes = None;
        remove_if_there(&store.files, &content_name(rest))
    }

    /// Returns the writer of the overlay, unless the working copy is dropped.
    fn writer(&self) -> Result<MutexGuard<'a, Option<OverlayStore>>, FolderFailure> {
        let writer = lock_data(&self.overlay.writer);
        match self.overlay.recording.as_ref().is_some_and(Recording::is_stale) {
            true => {
                let cause = "an earlier change of this overlay was not recorded".to_owned();
                Err(FolderFailure::NotRecorded(RecordFailure::Store { cause }))
            }
            false => Ok(writer),
        }
    }

    /// Whether the folder's file is another one than the run first read.
    fn changed_since_read(&self, rest: &str, now: Option<&Existing>) -> bool {
        self.overlay.reads.has_changed(rest, now.map(|now| &now.metadata))
    }

    /// Hashes the folder's file that a write replaces, or that is removed, before the overlay's
    /// writer is taken: a large file takes a while. `None` if the folder does not answer.
    fn hash_base(&self, rest: &str) -> Result<Option<HashedFile>, FolderFailure> {
        if self.overlay.change(rest).is_some() {
            return Ok(None);
        }
        match self.writable(rest)? {
            (Layer::Base, Some(base)) => HashedFile::of(&base).map(Some),
            _ => Ok(None),
        }
    }

    /// Syncs a changed file to the disk, with its record. Other files were not written here.
    pub(super) fn sync(&self, rest: &str) -> Result<(), FolderFailure> {
        // Held while it waits: syncs run on blocking threads, and no read takes it.
        let writer = lock_data(&self.overlay.writer);
        let (rest, layer) = self.resolve(rest)?;
        let Some(store) = writer.as_ref() else { return Ok(()) };
        if layer == Layer::Upper {
            store.files.open(content_name(&rest))?.sync_all()?;
        }
        sync_directory(&store.files)?;
        Ok(store.log.sync()?)
    }

    /// Returns the files of the overlay, created at the first change.
    fn store<'b>(
        &self,
        writer: &'b mut Option<OverlayStore>,
    ) -> Result<&'b mut OverlayStore, FolderFailure> {
        if writer.is_none() {
            make_folders(self.run.folder(), 0o700)?;
            self.run.claim()?;
            let log = OverlayLog::create(&self.overlay.folder, &self.overlay.origin)?;
            let store = OverlayStore::open(&self.overlay.folder, log)?;
            let files = Arc::clone(&store.files);
            *writer = Some(store);
            let mut index = self.overlay.index.write().unwrap_or_else(PoisonError::into_inner);
            index.files = Some(files);
        }
        writer.as_mut().ok_or(FolderFailure::NotStored)
    }

    /// Checks the quota of changed files before one more is changed.
    fn check_files(&self, rest: &str) -> Result<(), FolderFailure> {
        let index = self.overlay.index();
        let is_new = index.changes.get(rest).is_none();
        if is_new && index.changes.len() as u64 >= self.most.entries {
            return Err(FolderFailure::Quota(self.most.entries));
        }
        Ok(())
    }

    /// Returns the layer of a path that may be changed, and the folder's file if it answers for the
    /// path. Follows no links, like a write to the folder itself.
    fn writable(&self, rest: &str) -> Result<(Layer, Option<Existing>), FolderFailure> {
        let layer = self.overlay.layer(rest);
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
    /// its layer.
    fn resolve(&self, rest: &str) -> Result<(String, Layer), FolderFailure> {
        let (layer, is_unchanged) = {
            let index = self.overlay.index();
            (index.changes.layer(rest), index.changes.is_empty())
        };
        // Without a change no name can lead to a changed file, whatever the folder's links.
        if layer != Layer::Base || is_unchanged {
            return Ok((rest.to_owned(), layer));
        }
        // Otherwise a changed file would have its old content under a second name.
        let mut end = rest.len();
        while end > 0 {
            match self.base.dir.canonicalize(&rest[..end]) {
                Ok(real) => {
                    let real = real.into_os_string().into_string();
                    let real = real.map_err(|_| FolderFailure::NotFound)?;
                    let real = if real == "." { String::new() } else { real };
                    let path = format!("{real}{}", &rest[end..]);
                    let path = path.trim_start_matches('/').to_owned();
                    let layer = self.overlay.layer(&path);
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

/// A file of the folder with its digest, and what shows that it is the same file still.
struct HashedFile {
    identity: FileIdentity,
    digest: FileDigest,
}

/// The identity of a file's content, as far as it is known without reading.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: metadata.modified().ok().map(cap_std::time::SystemTime::into_std),
        }
    }
}

impl HashedFile {
    fn of(file: &Existing) -> Result<Self, FolderFailure> {
        let too_large = || FolderFailure::TooLarge { most: HASHED };
        if file.metadata.len() > HASHED {
            return Err(too_large());
        }
        let mut remaining = HASHED;
        let hashed = digest(&file.file, |piece| {
            // It may grow meanwhile.
            remaining =
                remaining.checked_sub(piece.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(())
        });
        match hashed {
            Ok(digest) => Ok(Self { identity: FileIdentity::of(&file.metadata), digest }),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(too_large()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the digest of a file, which was usually hashed before.
    fn digest_of(hashed: Option<Self>, file: &Existing) -> Result<FileDigest, FolderFailure> {
        match hashed {
            Some(hashed) if hashed.identity == FileIdentity::of(&file.metadata) => {
                Ok(hashed.digest)
            }
            // Another process has exchanged it meanwhile.
            _ => Ok(Self::of(file)?.digest),
        }
    }
}

/// A directory of the folder with the changes of the overlay.
struct MergedDirectory<'a> {
    view: &'a OverlayView<'a>,
    rest: &'a str,
    /// `None` if only the overlay has it.
    base: Option<Dir>,
}

impl NamedEntries for MergedDirectory<'_> {
    fn names(&self) -> Result<impl Iterator<Item = io::Result<OsString>>, FolderFailure> {
        let base = self.base.as_ref().map(NamedEntries::names).transpose()?;
        let index = self.view.overlay.index();
        let upper: Vec<OsString> =
            index.changes.names_in(self.rest).into_iter().map(OsString::from).collect();
        Ok(base.into_iter().flatten().chain(upper.into_iter().map(Ok)))
    }

    fn entry(&self, name: &str) -> Option<FolderEntry> {
        let rest =
            if self.rest.is_empty() { name.to_owned() } else { format!("{}/{name}", self.rest) };
        let is_link = |dir: &Dir| dir.symlink_metadata(name).is_ok_and(|found| found.is_symlink());
        match &self.base {
            // A link may lead to a changed file.
            Some(base) if self.view.overlay.layer(&rest) == Layer::Base && !is_link(base) => {
                base.entry(name)
            }
            _ => self.view.look(&rest).ok(),
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

/// Copies a file of the folder into the overlay. It may grow meanwhile.
fn copy(from: &File, files: &Dir, name: &str, most: u64) -> Result<FileDigest, FolderFailure> {
    let to = files.open_with(name, &FileModes::Plugin.new_file())?;
    let mut offset = 0;
    let copied = digest(from, |piece| {
        write_at(&to, offset, piece)?;
        offset += piece.len() as u64;
        if offset > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    });
    match copied {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(FolderFailure::Quota(most))
        }
        copied => Ok(copied?),
    }
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
