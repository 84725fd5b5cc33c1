//! A granted folder as a file system of the shell. Contents go through the `files` import, with its
//! checks and limits. Two facts that the host does not store are stored here and saved with the
//! shell's state: directories without a file, and modes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bashkit::{DirEntry, FileType, FsBackend, Metadata, async_trait};
use conclave_sdk::files::{self, Entry, EntryKind, FileError, FileErrorKind};
use serde::{Deserialize, Serialize};

/// Bytes of one write: a call is stopped if it hands over more than `limits.output` (1 MiB) at once.
const PIECE: usize = 512 << 10;

type Listing = BTreeMap<String, Entry>;

/// What the host does not store about a folder. Paths begin with `/`, the folder itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FolderNotes {
    /// Directories that the shell made and that hold no file yet. The host makes a directory with
    /// the first file in it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    made: BTreeSet<String>,
    /// Directories that the shell removed. The host removes files only, so they stay on its disk,
    /// empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    removed: BTreeSet<String>,
    /// Modes that differ from 644 and 755.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    modes: BTreeMap<String, u32>,
}

impl FolderNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.removed.is_empty() && self.modes.is_empty()
    }
}

/// A granted folder during one call.
pub(crate) struct Folder {
    /// The operator's path, such as `/work`.
    at: String,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    notes: FolderNotes,
    /// Listings of this call, so that a walk costs one call to the host for each directory. Writes
    /// of the shell update them; those of others during the call are seen by the next one.
    listings: BTreeMap<String, Listing>,
}

impl Folder {
    pub(crate) fn new(at: &str, notes: FolderNotes) -> Self {
        let known = Known { notes, listings: BTreeMap::new() };
        Self { at: at.to_owned(), known: Mutex::new(known) }
    }

    pub(crate) fn notes(&self) -> FolderNotes {
        self.known().notes.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path for the host.
    fn at(&self, path: &str) -> String {
        if path == "/" { self.at.clone() } else { format!("{}{path}", self.at) }
    }

    /// Returns the host's listing of a directory, empty if it is the shell's own.
    fn listing<'a>(&self, known: &'a mut Known, path: &str) -> io::Result<&'a mut Listing> {
        if !known.listings.contains_key(path) {
            let entries = match files::list(&self.at(path)) {
                Err(error)
                    if error.kind == FileErrorKind::NotFound && known.notes.made.contains(path) =>
                {
                    Vec::new()
                }
                listed => listed.map_err(io_error)?,
            };
            let listing = entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
            known.listings.insert(path.to_owned(), listing);
        }
        Ok(known.listings.entry(path.to_owned()).or_default())
    }

    /// Whether a directory that the shell removed is still absent. A file that is written into
    /// it later restores it.
    fn is_removed(&self, known: &mut Known, path: &str) -> bool {
        if !known.notes.removed.contains(path) {
            return false;
        }
        let Ok(listing) = self.listing(known, path) else { return true };
        let entries: Vec<Entry> = listing.values().cloned().collect();
        entries.into_iter().all(|entry| {
            entry.kind == EntryKind::Directory && self.is_removed(known, &join(path, &entry.name))
        })
    }

    /// Returns the entries of a directory, with those that only the shell knows.
    fn entries(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut known = self.known();
        if !self.is_directory(&mut known, path)? {
            return Err(not_a_directory());
        }
        let mut entries = self.listing(&mut known, path)?.clone();
        let made = known.notes.made.iter().filter_map(|made| split(made));
        for (_, name) in made.filter(|(parent, _)| *parent == path) {
            entries.entry(name.to_owned()).or_insert_with(|| directory(name));
        }
        entries.retain(|name, _| !self.is_removed(&mut known, &join(path, name)));
        Ok(entries.into_values().collect())
    }

    /// Returns the entry at a path. Checks every parent, because a removed directory hides its
    /// contents.
    fn entry(&self, known: &mut Known, path: &str) -> io::Result<Entry> {
        let Some((parent, name)) = split(path) else { return Ok(directory("")) };
        if !self.is_directory(known, parent)? {
            return Err(not_a_directory());
        }
        if known.notes.made.contains(path) {
            return Ok(directory(name));
        }
        let found = self.listing(known, parent)?.get(name).cloned();
        let found = found.filter(|_| !self.is_removed(known, path));
        found.ok_or_else(missing)
    }

    fn is_directory(&self, known: &mut Known, path: &str) -> io::Result<bool> {
        Ok(path == "/" || self.entry(known, path)?.kind == EntryKind::Directory)
    }

    fn metadata(known: &Known, path: &str, entry: &Entry) -> Metadata {
        let is_directory = entry.kind == EntryKind::Directory;
        let usual = if is_directory { 0o755 } else { 0o644 };
        Metadata {
            file_type: if is_directory { FileType::Directory } else { FileType::File },
            size: entry.length,
            mode: known.notes.modes.get(path).copied().unwrap_or(usual),
            // `files` has no times.
            modified: UNIX_EPOCH,
            created: UNIX_EPOCH,
        }
    }

    /// Notes that a file of this length exists, and with it the directories above.
    fn wrote(&self, path: &str, length: u64) {
        let mut known = self.known();
        let mut name_of = path;
        let mut kind = EntryKind::File;
        while let Some((parent, name)) = split(name_of) {
            let length = if kind == EntryKind::File { length } else { 0 };
            let entry = Entry { name: name.to_owned(), kind, length };
            if let Some(listing) = known.listings.get_mut(parent) {
                listing.insert(name.to_owned(), entry);
            }
            known.notes.made.remove(name_of);
            known.notes.removed.remove(name_of);
            (name_of, kind) = (parent, EntryKind::Directory);
        }
    }

    fn write_file(&self, path: &str, offset: u64, bytes: &[u8], truncate: bool) -> io::Result<()> {
        // The host would make the directories that are missing.
        self.require_parent(path)?;
        let (first, mut rest) = bytes.split_at(bytes.len().min(PIECE));
        let at = self.at(path);
        let mut length = files::write_at(&at, offset, first, truncate).map_err(io_error)?;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            length = files::write_at(&at, length, piece, false).map_err(io_error)?;
            rest = after;
        }
        self.wrote(path, length);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        files::roots().iter().any(|root| root.path == self.at && root.writable)
    }

    fn require_parent(&self, path: &str) -> io::Result<()> {
        let Some((parent, _)) = split(path) else { return Ok(()) };
        match self.is_directory(&mut self.known(), parent) {
            Ok(true) => Ok(()),
            Ok(false) => Err(not_a_directory()),
            Err(error) => Err(error),
        }
    }

    fn make(&self, path: &str) -> io::Result<()> {
        if !self.is_writable() {
            return Err(read_only());
        }
        let mut known = self.known();
        known.notes.removed.remove(path);
        known.notes.made.insert(path.to_owned());
        Ok(())
    }

    fn erase(&self, path: &str, recursive: bool) -> io::Result<()> {
        let entry = self.entry(&mut self.known(), path)?;
        if entry.kind == EntryKind::File {
            files::remove(&self.at(path)).map_err(io_error)?;
            self.forget(path);
            return Ok(());
        }
        let entries = self.entries(path)?;
        if !recursive && !entries.is_empty() {
            return Err(io::Error::new(ErrorKind::DirectoryNotEmpty, "Directory not empty"));
        }
        if path == "/" {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "Device or resource busy"));
        }
        for entry in entries {
            self.erase(&join(path, &entry.name), true)?;
        }
        if !self.is_writable() {
            return Err(read_only());
        }
        let mut known = self.known();
        known.notes.made.remove(path);
        known.notes.removed.insert(path.to_owned());
        known.notes.modes.remove(path);
        Ok(())
    }

    /// Forgets a removed file.
    fn forget(&self, path: &str) {
        let mut known = self.known();
        known.notes.modes.remove(path);
        if let Some((parent, name)) = split(path)
            && let Some(listing) = known.listings.get_mut(parent)
        {
            listing.remove(name);
        }
    }

    fn copy_all(&self, from: &str, to: &str) -> io::Result<()> {
        let entry = self.entry(&mut self.known(), from)?;
        if entry.kind == EntryKind::File {
            let bytes = files::read(&self.at(from)).map_err(io_error)?;
            self.write_file(to, 0, &bytes, true)?;
        } else {
            if self.entry(&mut self.known(), to).is_err() {
                self.make(to)?;
            }
            for entry in self.entries(from)? {
                self.copy_all(&join(from, &entry.name), &join(to, &entry.name))?;
            }
        }
        let mut known = self.known();
        if let Some(mode) = known.notes.modes.get(from).copied() {
            known.notes.modes.insert(to.to_owned(), mode);
        }
        Ok(())
    }
}

#[async_trait]
impl FsBackend for Folder {
    async fn read(&self, path: &Path) -> bashkit::Result<Vec<u8>> {
        let path = text(path)?;
        self.entry(&mut self.known(), path)?;
        Ok(files::read(&self.at(path)).map_err(io_error)?)
    }

    async fn write(&self, path: &Path, content: &[u8]) -> bashkit::Result<()> {
        let path = text(path)?;
        // `sed -i` writes a hidden file and renames it, or the file itself where that is refused. A
        // rename is a copy here, so the hidden file would only add two side effects to the run.
        if is_replacement(path) {
            return Err(io::Error::from(ErrorKind::PermissionDenied).into());
        }
        Ok(self.write_file(path, 0, content, true)?)
    }

    async fn append(&self, path: &Path, content: &[u8]) -> bashkit::Result<()> {
        let path = text(path)?;
        let length = self.entry(&mut self.known(), path).map_or(0, |entry| entry.length);
        Ok(self.write_file(path, length, content, false)?)
    }

    async fn mkdir(&self, path: &Path, recursive: bool) -> bashkit::Result<()> {
        let path = text(path)?;
        if recursive && let Some((parent, _)) = split(path) {
            let known = |path: &str| self.entry(&mut self.known(), path).is_ok();
            let above: Vec<&str> = ancestors(parent).filter(|above| !known(above)).collect();
            for above in above.into_iter().rev() {
                self.make(above)?;
            }
        }
        Ok(self.make(path)?)
    }

    async fn remove(&self, path: &Path, recursive: bool) -> bashkit::Result<()> {
        Ok(self.erase(text(path)?, recursive)?)
    }

    async fn stat(&self, path: &Path) -> bashkit::Result<Metadata> {
        let path = text(path)?;
        let mut known = self.known();
        let entry = self.entry(&mut known, path)?;
        Ok(Self::metadata(&known, path, &entry))
    }

    async fn read_dir(&self, path: &Path) -> bashkit::Result<Vec<DirEntry>> {
        let path = text(path)?;
        let entries = self.entries(path)?;
        let known = self.known();
        let entry = |entry: Entry| DirEntry {
            metadata: Self::metadata(&known, &join(path, &entry.name), &entry),
            name: entry.name,
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    async fn exists(&self, path: &Path) -> bashkit::Result<bool> {
        Ok(self.entry(&mut self.known(), text(path)?).is_ok())
    }

    async fn rename(&self, from: &Path, to: &Path) -> bashkit::Result<()> {
        let (from, to) = (text(from)?, text(to)?);
        if to == from {
            return Ok(());
        }
        if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
            return Err(io::Error::from(ErrorKind::InvalidInput).into());
        }
        self.copy_all(from, to)?;
        Ok(self.erase(from, true)?)
    }

    async fn copy(&self, from: &Path, to: &Path) -> bashkit::Result<()> {
        Ok(self.copy_all(text(from)?, text(to)?)?)
    }

    async fn symlink(&self, _: &Path, _: &Path) -> bashkit::Result<()> {
        Err(io::Error::new(ErrorKind::PermissionDenied, "links cannot be made in a granted folder")
            .into())
    }

    async fn read_link(&self, _: &Path) -> bashkit::Result<std::path::PathBuf> {
        Err(io::Error::from(ErrorKind::InvalidInput).into())
    }

    async fn chmod(&self, path: &Path, mode: u32) -> bashkit::Result<()> {
        let path = text(path)?;
        let mut known = self.known();
        let entry = self.entry(&mut known, path)?;
        let usual = if entry.kind == EntryKind::Directory { 0o755 } else { 0o644 };
        if mode & 0o7777 == usual {
            known.notes.modes.remove(path);
        } else {
            known.notes.modes.insert(path.to_owned(), mode);
        }
        Ok(())
    }

    /// Does nothing: `files` has no times, and `touch` must not fail.
    async fn set_modified_time(&self, _: &Path, _: SystemTime) -> bashkit::Result<()> {
        Ok(())
    }
}

fn directory(name: &str) -> Entry {
    Entry { name: name.to_owned(), kind: EntryKind::Directory, length: 0 }
}

/// The parent and the name; `None` for the folder itself.
fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then_some((if parent.is_empty() { "/" } else { parent }, name))
}

/// Whether the library makes this file in order to replace another one by it.
fn is_replacement(path: &str) -> bool {
    let name = split(path).map_or("", |(_, name)| name);
    name.starts_with(".bashkit-") && name.ends_with(".tmp")
}

fn join(path: &str, name: &str) -> String {
    format!("{}/{name}", path.trim_end_matches('/'))
}

/// The path and all above it, without the folder itself.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| split(path).map(|(parent, _)| parent))
        .take_while(|path| *path != "/")
}

fn text(path: &Path) -> io::Result<&str> {
    path.to_str().ok_or_else(|| ErrorKind::InvalidFilename.into())
}

/// Converts an error to the kind and the words of Linux, because commands print them.
fn io_error(error: FileError) -> io::Error {
    match error.kind {
        FileErrorKind::NotFound => missing(),
        FileErrorKind::NotAFile => io::Error::new(ErrorKind::IsADirectory, "Is a directory"),
        FileErrorKind::NotADirectory => not_a_directory(),
        FileErrorKind::Denied(_) => {
            io::Error::new(ErrorKind::PermissionDenied, "Permission denied")
        }
        FileErrorKind::QuotaExceeded(limit) => io::Error::new(
            ErrorKind::StorageFull,
            format!(
                "No space left: the limit of {limit} in `grants.files` or `limits.read` is used up"
            ),
        ),
        FileErrorKind::Other(text) => io::Error::other(text),
    }
}

fn missing() -> io::Error {
    io::Error::new(ErrorKind::NotFound, "No such file or directory")
}

fn not_a_directory() -> io::Error {
    io::Error::new(ErrorKind::NotADirectory, "Not a directory")
}

fn read_only() -> io::Error {
    io::Error::new(ErrorKind::ReadOnlyFilesystem, "Read-only file system")
}
