//! The changes that a stored run made in overlays of its folders, for the person who applies or
//! drops them. It reads beside a live run, and changes only what no run has open. The core decides
//! about conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use conclave_core::overlay::apply::{
    ApplyStep, BaseEntry, ChangeContent, apply_step, interrupted, summarized,
};
pub use conclave_core::overlay::apply::{ChangeDecision, ChangeDecisionKind};
use conclave_core::overlay::changes::{ChangeRecord, ChangedFile, Changes};
use conclave_core::protocol::event::Principal;
use conclave_core::types::ids::{OPERATOR, RoomId};
pub use conclave_core::types::side_effect::Digest as FileDigest;

use crate::imports::folder::AppliedFolder;
use crate::support::clock::{Clock, SystemClock};
use crate::support::digest::sha256;
pub use crate::support::overlay_files::OverlayPlace;
use crate::support::overlay_files::{self, OverlayLog, OverlayOrigin};
use source::{ChangesLock, OverlaySource, RunSource};

pub use conclave_core::overlay::diff;
pub use source::ChangeStore;

pub mod named_files;
mod source;
#[cfg(test)]
mod tests;

/// The pending changes of a run in one folder.
#[derive(Debug)]
pub struct FolderChanges {
    /// The folder's canonical path.
    pub dir: PathBuf,
    /// The path as the operator wrote it.
    pub display_path: String,
    /// The changed files, in the order of their paths.
    pub files: Vec<PendingChange>,
    overlay: OverlaySource,
}

/// A changed file that was neither applied nor dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// The path relative to the folder.
    pub path: String,
    /// The file when the run first changed it; `None` if there was none.
    pub base: Option<FileDigest>,
    /// The file in the folder now; `None` if there is none.
    pub old: Option<FileDigest>,
    /// The changed file; `None` if it was removed or is lost.
    pub new: Option<FileDigest>,
    /// Whether the run wrote the file, and its content is missing from the store. Such a change can
    /// only be dropped.
    pub is_lost: bool,
    /// Why the change cannot be applied: the folder has changed since. `None` if it can be.
    pub conflict: Option<String>,
}

impl PendingChange {
    /// Whether the folder has this content already.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        self.conflict.is_none() && !self.is_lost && self.old == self.new
    }
}

/// The contents of a changed file; `None` where there is no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContents {
    /// The bytes in the folder now.
    pub old: Option<Vec<u8>>,
    /// The bytes in the overlay.
    pub new: Option<Vec<u8>>,
}

/// A change that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path relative to the folder.
    pub path: String,
    /// What has changed in the folder since.
    pub reason: String,
}

/// Why changes cannot be read, applied or dropped.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// A process has the run open.
    #[error(
        "the changes of {run} are in use: its run has not ended, or another command applies them"
    )]
    InUse {
        /// The run.
        run: RoomId,
    },
    /// The folder has changed since the run; nothing was applied.
    #[error("{} changed in {display_path} since the run", Paths(.files))]
    Conflicts {
        /// The folder as the operator wrote it.
        display_path: String,
        /// The files.
        files: Vec<Conflict>,
    },
    /// The run changed files again after its changes were read; nothing was applied or dropped.
    #[error("the run changed {files:?} in {display_path} again after its changes were read")]
    ChangedAgain {
        /// The folder as the operator wrote it.
        display_path: String,
        /// The paths relative to the folder.
        files: Vec<String>,
    },
    /// The folder or a file in it cannot be read or changed.
    #[error("{path} cannot be used: {reason}")]
    Folder {
        /// The path on this machine, for display.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The stored changes cannot be read or changed.
    #[error("the changes in {place} cannot be used: {cause}")]
    Store {
        /// The folder of the overlay, or the database, for display.
        place: String,
        /// The error of the operating system or the database.
        cause: io::Error,
    },
}

struct Paths<'a>(&'a [Conflict]);

impl fmt::Display for Paths<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.0.iter().map(|file| format!("{:?}", file.path)).collect();
        write!(out, "{}", paths.join(", "))
    }
}

/// The pending changes of a run.
#[derive(Debug)]
pub struct RunChanges {
    run: RoomId,
    source: RunSource,
    /// The folders with changes, in a stable order.
    pub folders: Vec<FolderChanges>,
    /// The person on whose behalf the changes are applied or dropped.
    pub principal: Principal,
}

/// The number of files that a run changed in overlays and that wait for a person, in a store that is a
/// folder. What cannot be read counts as one.
#[must_use]
pub fn pending_changes(store: &Path, run: &RoomId) -> usize {
    overlay_files::count_changes(store, run.as_str())
}

/// Returns how many of a run's [`pending_changes`] cannot be applied as they are, because their
/// content is missing or another process changed the file between the run's read and its change. More
/// conflicts may show when the folder is compared.
#[must_use]
pub fn blocked_changes(store: &Path, run: &RoomId) -> usize {
    overlay_files::count_blocked(store, run.as_str())
}

/// Returns what persons decided about a run's changes, oldest first.
///
/// # Errors
/// `Store` if the decisions cannot be read.
pub fn change_decisions(store: &Path, run: &RoomId) -> Result<Vec<ChangeDecision>, OverlayError> {
    let source = open(store.into(), run)?;
    let decisions = source.decisions().map_err(|cause| unusable(source.place(), cause))?;
    Ok(summarized(decisions, || pending_changes(store, run) > 0))
}

fn open(store: ChangeStore<'_>, run: &RoomId) -> Result<RunSource, OverlayError> {
    RunSource::open(store, run).map_err(|cause| {
        let place = match store {
            ChangeStore::Folder(folder) => folder.display().to_string(),
            #[cfg(feature = "postgres")]
            ChangeStore::Database(address) => address.to_string(),
        };
        unusable(place, cause)
    })
}

impl RunChanges {
    /// Reads the pending changes of a run. Empty if there are none.
    ///
    /// # Errors
    /// `Folder` if a granted folder cannot be opened, `Store` if the overlay cannot be read.
    pub fn read<'a>(store: impl Into<ChangeStore<'a>>, run: &RoomId) -> Result<Self, OverlayError> {
        let source = open(store.into(), run)?;
        let overlays = source.overlays().map_err(|cause| unusable(source.place(), cause))?;
        let folders = overlays.into_iter().map(FolderChanges::read);
        let folders = folders.collect::<Result<Vec<_>, _>>()?;
        let folders = folders.into_iter().filter(|folder| !folder.files.is_empty()).collect();
        let principal = Principal(OPERATOR.into());
        Ok(Self { run: run.clone(), source, folders, principal })
    }

    /// Keeps only changes that `is_chosen` accepts, by their paths relative to the folder.
    pub fn retain(&mut self, is_chosen: impl Fn(&str) -> bool) {
        for folder in &mut self.folders {
            folder.files.retain(|file| is_chosen(&file.path));
        }
        self.folders.retain(|folder| !folder.files.is_empty());
    }

    /// Checks that these changes can be applied.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn check(&self) -> Result<(), OverlayError> {
        let _lock = self.lock()?;
        self.checked().map(drop)
    }

    /// Writes these changes, as they were read, to their folders, each file atomically, and forgets
    /// them. After an interruption, the changes that are read anew are the remaining ones. Returns
    /// the number of files.
    ///
    /// # Errors
    /// `Conflicts` and `ChangedAgain` before anything is written; `InUse`, `Folder` and `Store`.
    pub fn apply(&self) -> Result<usize, OverlayError> {
        let lock = self.lock()?;
        let opened = self.checked()?;
        self.begin(ChangeDecisionKind::Applied)?;
        for (folder, mut open) in opened {
            for file in &folder.files {
                open.apply(&file.path)?;
            }
        }
        self.record(ChangeDecisionKind::Applied, false)?;
        self.clean(lock)
    }

    /// Forgets these changes, as they were read. Returns the number of files.
    ///
    /// # Errors
    /// `ChangedAgain` before anything is forgotten; `InUse` and `Store`.
    pub fn discard(&self) -> Result<usize, OverlayError> {
        let lock = self.lock()?;
        let opened = self.open()?;
        self.begin(ChangeDecisionKind::Dropped)?;
        for (folder, mut open) in opened {
            for file in &folder.files {
                open.forget(&file.path)?;
            }
        }
        self.record(ChangeDecisionKind::Dropped, false)?;
        self.clean(lock)
    }

    /// Opens the overlays, which still hold the changes that were read.
    fn open(&self) -> Result<Vec<(&FolderChanges, OpenOverlay)>, OverlayError> {
        let mut opened = Vec::new();
        for folder in &self.folders {
            let open = OpenOverlay::open(&folder.overlay)?;
            // Without that check a person would apply what a resumed run wrote after the difference
            // was shown.
            open.require_as_read(&folder.files)?;
            opened.push((folder, open));
        }
        Ok(opened)
    }

    /// Opens the overlays, whose changes can be applied.
    fn checked(&self) -> Result<Vec<(&FolderChanges, OpenOverlay)>, OverlayError> {
        let opened = self.open()?;
        for (folder, open) in &opened {
            open.check(&folder.files)?;
        }
        self.require_distinct()?;
        Ok(opened)
    }

    /// Refuses two versions of one file: a run has them if the folder of one overlay lies in that
    /// of another.
    fn require_distinct(&self) -> Result<(), OverlayError> {
        let all = || self.folders.iter().flat_map(|it| it.files.iter().map(move |file| (it, file)));
        let owners: BTreeMap<PathBuf, &FolderChanges> =
            all().map(|(folder, file)| (folder.dir.join(&file.path), folder)).collect();
        for (folder, file) in all() {
            let path = folder.dir.join(&file.path);
            let other = path.ancestors().filter_map(|path| owners.get(path));
            if let Some(other) = other.into_iter().find(|other| other.dir != folder.dir) {
                let reason = format!(
                    "the run has another version of it in the overlay of {}; apply one of the two \
                     by naming its path, and drop the other",
                    other.display_path
                );
                let (display_path, path) = (folder.display_path.clone(), file.path.clone());
                let files = vec![Conflict { path, reason }];
                return Err(OverlayError::Conflicts { display_path, files });
            }
        }
        Ok(())
    }

    /// Records that a decision about these changes takes effect from now on.
    fn begin(&self, kind: ChangeDecisionKind) -> Result<(), OverlayError> {
        self.end_interrupted()?;
        self.record(kind, true)
    }

    /// Records for each interrupted decision which of its changes are applied or dropped: those that
    /// are pending no more.
    fn end_interrupted(&self) -> Result<(), OverlayError> {
        let decisions = self.source.decisions().map_err(|cause| self.unusable(cause))?;
        for begin in interrupted(&decisions) {
            let mut end = ChangeDecision {
                at: SystemClock.now(),
                is_begin: false,
                ..ChangeDecision::clone(begin)
            };
            for overlay in self.source.overlays().map_err(|cause| self.unusable(cause))? {
                let read = overlay.read().map_err(|cause| unusable(overlay.place(), cause))?;
                if read.0.display_path == end.folder {
                    end.files.retain(|path| read.1.get(path).is_none());
                }
            }
            self.source.add_decision(&end).map_err(|cause| self.unusable(cause))?;
        }
        Ok(())
    }

    /// Records the begin or the end of a decision about these changes.
    fn record(&self, kind: ChangeDecisionKind, is_begin: bool) -> Result<(), OverlayError> {
        for folder in &self.folders {
            let decision = ChangeDecision {
                at: SystemClock.now(),
                principal: self.principal.0.to_string(),
                kind,
                folder: folder.display_path.clone(),
                files: folder.files.iter().map(|file| file.path.clone()).collect(),
                is_begin,
            };
            self.source.add_decision(&decision).map_err(|cause| self.unusable(cause))?;
        }
        Ok(())
    }

    /// Removes the overlays if no change is left. Returns the number of changes that are gone.
    fn clean(&self, lock: Option<ChangesLock>) -> Result<usize, OverlayError> {
        let count = self.folders.iter().map(|folder| folder.files.len()).sum();
        let overlays = self.source.overlays().map_err(|cause| self.unusable(cause))?;
        let is_empty =
            |overlay: &OverlaySource| overlay.read().is_ok_and(|(_, changes)| changes.is_empty());
        if lock.is_some() && overlays.iter().all(is_empty) {
            self.source.clean().map_err(|cause| self.unusable(cause))?;
        }
        Ok(count)
    }

    /// Locks the changes; `None` if there are none.
    fn lock(&self) -> Result<Option<ChangesLock>, OverlayError> {
        if self.folders.is_empty() {
            return Ok(None);
        }
        let locked = self.source.lock().map_err(|cause| self.unusable(cause))?;
        locked.map(Some).ok_or_else(|| OverlayError::InUse { run: self.run.clone() })
    }

    fn unusable(&self, cause: io::Error) -> OverlayError {
        unusable(self.source.place(), cause)
    }
}

impl FolderChanges {
    fn read(overlay: OverlaySource) -> Result<Self, OverlayError> {
        let open = OpenOverlay::open(&overlay)?;
        let mut files = Vec::new();
        for (path, change) in open.changes.iter() {
            let content = content_of(&open.content(path, change)?);
            // For display, every change counts as chosen.
            let now = open.entry(path, change, |_| true);
            let conflict = match apply_step(change, &content, &now) {
                ApplyStep::Conflict(reason) => Some(reason),
                ApplyStep::Write | ApplyStep::Remove | ApplyStep::Done => None,
            };
            let old = if let BaseEntry::File(digest) = now { Some(digest) } else { None };
            let (path, base) = (path.to_owned(), change.base().cloned());
            let (new, is_lost) = (content.digest().cloned(), content == ChangeContent::Lost);
            files.push(PendingChange { path, base, old, new, is_lost, conflict });
        }
        let (dir, display_path) = (open.origin.dir, open.origin.display_path);
        Ok(Self { dir, display_path, files, overlay })
    }

    /// Returns the contents of a changed file.
    ///
    /// # Errors
    /// `ChangedAgain`, `Folder` and `Store`.
    pub fn contents(&self, file: &PendingChange) -> Result<FileContents, OverlayError> {
        // Only this file: the list of all changes, read anew for each of them, would take minutes.
        let content = self.overlay.content(&file.path);
        let new = content.map_err(|cause| unusable(self.overlay.place(), cause))?;
        // A change that is gone was applied or dropped meanwhile.
        if new.as_ref().is_some_and(|bytes| Some(digest(bytes)) != file.new) {
            let (display_path, files) = (self.display_path.clone(), vec![file.path.clone()]);
            return Err(OverlayError::ChangedAgain { display_path, files });
        }
        let old = match (&file.old, AppliedFolder::open(&self.dir)) {
            (Some(_), Ok(target)) => target.read(&file.path).map_err(|failure| {
                let path = self.dir.join(&file.path).display().to_string();
                OverlayError::Folder { path, reason: failure.to_string() }
            })?,
            _ => None,
        };
        Ok(FileContents { old, new })
    }
}

/// An overlay whose run is over, with its folder.
struct OpenOverlay {
    overlay: OverlaySource,
    origin: OverlayOrigin,
    changes: Changes,
    target: Result<AppliedFolder, io::Error>,
    log: Option<OverlayLog>,
}

impl OpenOverlay {
    fn open(overlay: &OverlaySource) -> Result<Self, OverlayError> {
        let (origin, changes) = overlay.read().map_err(|cause| unusable(overlay.place(), cause))?;
        let target = AppliedFolder::open(&origin.dir);
        Ok(Self { overlay: overlay.clone(), origin, changes, target, log: None })
    }

    /// Returns the content of a changed file.
    fn content(&self, path: &str, change: &ChangedFile) -> Result<StoredContent, OverlayError> {
        match change {
            ChangedFile::Removed { .. } => Ok(StoredContent::Removed),
            ChangedFile::Written { .. } => match self.overlay.content(path) {
                Ok(Some(bytes)) => Ok(StoredContent::File(bytes)),
                Ok(None) => Ok(StoredContent::Lost),
                Err(cause) => Err(unusable(self.overlay.place(), cause)),
            },
        }
    }

    /// The entry of the folder at the path of a change. `is_chosen` returns whether another change
    /// is applied too: below a file there is nothing once its removal is applied.
    fn entry(
        &self,
        path: &str,
        change: &ChangedFile,
        is_chosen: impl Fn(&str) -> bool,
    ) -> BaseEntry {
        let target = match &self.target {
            Ok(target) => target,
            Err(error) => {
                return BaseEntry::Other(format!("its folder cannot be opened: {error}"));
            }
        };
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            if let Some(ChangedFile::Removed { .. }) = self.changes.get(parent)
                && let BaseEntry::File(_) = target.entry(parent, true)
            {
                return match is_chosen(parent) {
                    true => BaseEntry::Absent,
                    false => BaseEntry::Other(format!(
                        "{parent:?} is a file in the folder, which the run removed; name it too"
                    )),
                };
            }
        }
        target.entry(path, matches!(change, ChangedFile::Removed { .. }))
    }

    /// Checks that the overlay holds these changes, as they were read.
    fn require_as_read(&self, files: &[PendingChange]) -> Result<(), OverlayError> {
        let mut changed = Vec::new();
        for file in files {
            // A change that is gone was applied or dropped meanwhile.
            let Some(change) = self.changes.get(&file.path) else { continue };
            let content = content_of(&self.content(&file.path, change)?);
            let is_lost = content == ChangeContent::Lost;
            if content.digest() != file.new.as_ref() || is_lost != file.is_lost {
                changed.push(file.path.clone());
            }
        }
        let display_path = self.origin.display_path.clone();
        match changed.is_empty() {
            true => Ok(()),
            false => Err(OverlayError::ChangedAgain { display_path, files: changed }),
        }
    }

    /// Checks that the folder is as it was when the run changed these files.
    fn check(&self, files: &[PendingChange]) -> Result<(), OverlayError> {
        let chosen: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let mut conflicts = Vec::new();
        for file in files {
            let step = self.step(&file.path, |path| chosen.contains(path))?;
            if let (_, ApplyStep::Conflict(reason)) = step {
                conflicts.push(Conflict { path: file.path.clone(), reason });
            }
        }
        let display_path = self.origin.display_path.clone();
        match conflicts.is_empty() {
            true => Ok(()),
            false => Err(OverlayError::Conflicts { display_path, files: conflicts }),
        }
    }

    fn step(
        &self,
        path: &str,
        is_chosen: impl Fn(&str) -> bool,
    ) -> Result<(Option<Vec<u8>>, ApplyStep), OverlayError> {
        let Some(change) = self.changes.get(path) else { return Ok((None, ApplyStep::Done)) };
        let content = self.content(path, change)?;
        let now = self.entry(path, change, is_chosen);
        let step = apply_step(change, &content_of(&content), &now);
        Ok((content.bytes(), step))
    }

    /// Applies one change and forgets it.
    fn apply(&mut self, path: &str) -> Result<(), OverlayError> {
        // Paths are applied in order, so a chosen removal above this one is done by now.
        let (content, step) = self.step(path, |_| false)?;
        let result = match (&self.target, step) {
            // The folder changed after the check, so other changes are applied already.
            (_, ApplyStep::Conflict(reason)) => return Err(self.failed(path, reason)),
            (Ok(target), ApplyStep::Write) => target.write(path, &content.unwrap_or_default()),
            (Ok(target), ApplyStep::Remove) => target.remove(path),
            _ => Ok(()),
        };
        result.map_err(|failure| self.failed(path, failure.to_string()))?;
        self.forget(path)
    }

    /// Removes a change from the overlay.
    fn forget(&mut self, path: &str) -> Result<(), OverlayError> {
        let forgotten = self.overlay.forget(path, &self.changes, &mut self.log);
        if forgotten.map_err(|cause| unusable(self.overlay.place(), cause))? {
            self.changes.take(ChangeRecord::Reverted { path: path.to_owned() });
        }
        Ok(())
    }

    fn failed(&self, path: &str, reason: String) -> OverlayError {
        let path = self.origin.dir.join(path).display().to_string();
        OverlayError::Folder { path, reason }
    }
}

/// The bytes of a change in its overlay, as [`ChangeContent`].
enum StoredContent {
    Removed,
    File(Vec<u8>),
    Lost,
}

impl StoredContent {
    fn bytes(self) -> Option<Vec<u8>> {
        if let Self::File(bytes) = self { Some(bytes) } else { None }
    }
}

fn content_of(stored: &StoredContent) -> ChangeContent {
    match stored {
        StoredContent::Removed => ChangeContent::Removed,
        StoredContent::File(bytes) => ChangeContent::File(digest(bytes)),
        StoredContent::Lost => ChangeContent::Lost,
    }
}

fn digest(bytes: impl AsRef<[u8]>) -> FileDigest {
    let bytes = bytes.as_ref();
    FileDigest { sha256: sha256(bytes), length: bytes.len() as u64 }
}

fn unusable(place: String, cause: io::Error) -> OverlayError {
    OverlayError::Store { place, cause }
}
