//! The files of overlays on disk, in the store beside the journals: `overlays/RUN/FOLDER/` holds
//! `folder.json`, the log `changes.jsonl`, and the changed files below `files/`, named by the digest
//! of their path. So no name that a guest chooses is a name on this disk. The core decides what the
//! log means.

#[cfg(any(feature = "sqlite", test))]
mod copying;
mod recorder;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use conclave_core::overlay::apply::ChangeDecision;
use conclave_core::overlay::changes::{ChangeRecord, ChangedFile, Changes};
use serde::{Deserialize, Serialize};

use super::digest::sha256;
use super::durable_file::{self, FileAccess, make_folders, read_own, sync_folder};
#[cfg(any(feature = "sqlite", test))]
pub(crate) use copying::copy;
pub use recorder::OverlayPlace;
#[cfg(any(feature = "postgres", test))]
pub(crate) use recorder::TakeChange;
pub(crate) use recorder::{ChangeRecorder, RecordFailure, check_out};

/// The folder of a store that holds the overlays of its runs.
const OVERLAYS: &str = "overlays";
/// The lock of a run's overlays, held by the process that may change them.
const LOCK: &str = "lock";
const ORIGIN: &str = "folder.json";
const LOG: &str = "changes.jsonl";
/// The decisions about a run's changes, a line each. It outlives the changes.
const DECISIONS: &str = "decisions.jsonl";
/// The files of the folder as the run first read them, a line each. Not part of the changes: it may
/// exist before the log, and is lost in a power cut.
const READS: &str = "reads.jsonl";
/// The changed files of an overlay.
pub(crate) const FILES: &str = "files";
/// Lines of a log beyond twice the number of changes, at which it is written anew. A guest that
/// creates and removes files in a loop must not fill the disk with lines.
const SPARE_LINES: usize = 256;

/// The granted folder of an overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverlayOrigin {
    /// The canonical path.
    pub(crate) dir: PathBuf,
    /// The path as the operator wrote it.
    #[serde(rename = "shown")]
    pub(crate) display_path: String,
}

/// The folder for the overlays of a run. Characters that a file name may lack are escaped.
pub(crate) fn run_folder(store: &Path, run: &str) -> PathBuf {
    let mut name = String::new();
    for byte in run.bytes() {
        // No dot at the beginning: `..` would lead out of the folder.
        if byte.is_ascii_alphanumeric()
            || b"-_".contains(&byte)
            || (byte == b'.' && !name.is_empty())
        {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    store.join(OVERLAYS).join(name)
}

/// The folder of one overlay.
pub(crate) fn overlay_folder(run_folder: &Path, dir: &Path) -> PathBuf {
    run_folder.join(overlay_name(dir))
}

/// The name of the overlay of a folder.
pub(crate) fn overlay_name(dir: &Path) -> String {
    let mut name = sha256(dir.as_os_str().as_encoded_bytes());
    name.truncate(16);
    name
}

/// The name of a changed file below [`FILES`].
pub(crate) fn content_name(path: &str) -> String {
    sha256(path.as_bytes())
}

/// Whether an overlay holds the content of a written file. A link is none.
pub(crate) fn has_content(overlay: &Path, path: &str) -> bool {
    let content = overlay.join(FILES).join(content_name(path));
    std::fs::symlink_metadata(content).is_ok_and(|file| file.is_file())
}

/// Returns the folders of a run's overlays in order; empty if there are none.
///
/// # Errors
/// The operating system's error.
pub(crate) fn overlays_of(run_folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(run_folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // An overlay without a log was interrupted while it was created.
        if path.join(LOG).is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Locks the overlays of a run until the file is closed. `None` if another process holds the lock.
///
/// # Errors
/// The operating system's error.
pub(crate) fn lock(run_folder: &Path) -> io::Result<Option<File>> {
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(run_folder.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the granted folder of an overlay, and its changes. A torn last line was never
/// acknowledged, and is ignored.
///
/// # Errors
/// `InvalidData` with path and line if a file is corrupt, or the operating system's error.
pub(crate) fn read(overlay: &Path) -> io::Result<(OverlayOrigin, Changes)> {
    let (origin, changes, ..) = read_whole(overlay)?;
    Ok((origin, changes))
}

/// Also returns the number of lines, and the length of the log without a torn line.
fn read_whole(overlay: &Path) -> io::Result<(OverlayOrigin, Changes, usize, usize)> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let origin = overlay.join(ORIGIN);
    let origin = serde_json::from_slice(&read_own(&origin)?)
        .map_err(|error| invalid(format!("{}: {error}", origin.display())))?;
    let log = overlay.join(LOG);
    let bytes = read_own(&log)?;
    let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&bytes[..length])
        .map_err(|error| invalid(format!("{}: {error}", log.display())))?;
    let changes = Changes::read(text.lines())
        .map_err(|line| invalid(format!("{}:{line} is no change of an overlay", log.display())))?;
    Ok((origin, changes, text.lines().count(), length))
}

/// The log of an overlay, open for writing.
#[derive(Debug)]
pub(crate) struct OverlayLog {
    overlay: PathBuf,
    file: File,
    lines: usize,
}

impl OverlayLog {
    /// Creates an overlay. Its folders are durable afterwards.
    ///
    /// # Errors
    /// The operating system's error.
    pub(crate) fn create(overlay: &Path, origin: &OverlayOrigin) -> io::Result<Self> {
        make_folders(&overlay.join(FILES), 0o700)?;
        let text = serde_json::to_vec(origin)?;
        durable_file::replace(&overlay.join(ORIGIN), &text, &FileAccess::Private)?;
        // Last: an overlay without a log is none.
        durable_file::replace(&overlay.join(LOG), b"", &FileAccess::Private)?;
        Self::open_at(overlay, 0, 0)
    }

    /// Opens an existing log. Returns its changes too; `None` if there is no overlay.
    ///
    /// # Errors
    /// As [`read`].
    pub(crate) fn open(overlay: &Path) -> io::Result<Option<(Self, Changes)>> {
        if !overlay.join(LOG).is_file() {
            return Ok(None);
        }
        let (_, changes, lines, length) = read_whole(overlay)?;
        Ok(Some((Self::open_at(overlay, lines, length)?, changes)))
    }

    fn open_at(overlay: &Path, lines: usize, length: usize) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(overlay.join(LOG))?;
        // Cuts a torn line off, so that the next one does not continue it.
        file.set_len(length as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { overlay: overlay.to_owned(), file, lines })
    }

    /// Appends a record to those that `changes` were read from. A `durable` one survives a power cut.
    ///
    /// # Errors
    /// The operating system's error. The log is as before then.
    pub(crate) fn append(
        &mut self,
        record: &ChangeRecord,
        changes: &Changes,
        durable: bool,
    ) -> io::Result<()> {
        if self.is_long(changes.len()) {
            self.rewrite(changes)?;
        }
        self.append_line(record, durable)
    }

    /// Whether the log has many more lines than the overlay has changes.
    pub(crate) fn is_long(&self, changes: usize) -> bool {
        self.lines >= 2 * changes + SPARE_LINES
    }

    /// Appends a record, as [`append`](Self::append) does.
    ///
    /// # Errors
    /// The operating system's error. The log is as before then.
    pub(crate) fn append_line(&mut self, record: &ChangeRecord, durable: bool) -> io::Result<()> {
        let before = self.file.stream_position()?;
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let written = self
            .file
            .write_all(&line)
            .and_then(|()| if durable { self.file.sync_data() } else { Ok(()) });
        if written.is_err() {
            self.file.set_len(before)?;
            self.file.seek(SeekFrom::Start(before))?;
            return written;
        }
        self.lines += 1;
        Ok(())
    }

    /// Makes all appended records durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Replaces the log by the shortest one with the same changes.
    ///
    /// # Errors
    /// The operating system's error. The log is as before then.
    pub(crate) fn rewrite(&mut self, changes: &Changes) -> io::Result<()> {
        let records = changes.records();
        let mut text = Vec::new();
        for record in &records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        durable_file::replace(&self.overlay.join(LOG), &text, &FileAccess::Private)?;
        *self = Self::open_at(&self.overlay, records.len(), text.len())?;
        Ok(())
    }
}

/// Appends a decision about a run's changes. It is durable when this returns.
///
/// # Errors
/// The operating system's error.
pub(crate) fn append_decision(run_folder: &Path, decision: &ChangeDecision) -> io::Result<()> {
    let path = run_folder.join(DECISIONS);
    // Not appended: a line that a power cut tears would make all decisions unreadable.
    let mut bytes = match read_own(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    serde_json::to_writer(&mut bytes, decision)?;
    bytes.push(b'\n');
    durable_file::replace(&path, &bytes, &FileAccess::Private)
}

/// Returns the decisions about a run's changes, oldest first.
///
/// # Errors
/// `InvalidData` with the line if the file is corrupt, or the operating system's error.
pub(crate) fn read_decisions(run_folder: &Path) -> io::Result<Vec<ChangeDecision>> {
    let path = run_folder.join(DECISIONS);
    let text = match read_own(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => String::from_utf8_lossy(&bytes?).into_owned(),
    };
    let decision = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let what = format!("{}:{}: {error}", path.display(), index + 1);
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    };
    text.lines().enumerate().map(decision).collect()
}

/// The number of changed files of a run. What cannot be read counts as one change, so that it is
/// not removed.
pub(crate) fn count_changes(store: &Path, run: &str) -> usize {
    let Ok(overlays) = overlays_of(&run_folder(store, run)) else { return 1 };
    overlays.iter().map(|overlay| read(overlay).map_or(1, |(_, changes)| changes.len())).sum()
}

/// Returns how many changed files of a run cannot be applied, whatever the folder has now: their
/// content is missing, or another process changed the file before the run did. 0 for what cannot be
/// read.
pub(crate) fn count_blocked(store: &Path, run: &str) -> usize {
    let overlays = overlays_of(&run_folder(store, run)).unwrap_or_default();
    let blocked = |overlay: &PathBuf| {
        let Ok((_, changes)) = read(overlay) else { return 0 };
        let is_lost = |path: &str| !has_content(overlay, path);
        let is_blocked = |(path, change): &(&str, &ChangedFile)| {
            change.changed_since_read() || (is_written(change) && is_lost(path))
        };
        changes.iter().filter(is_blocked).count()
    };
    overlays.iter().map(blocked).sum()
}

fn is_written(change: &ChangedFile) -> bool {
    matches!(change, ChangedFile::Written { .. })
}

/// A file of the folder, as far as it can be recognised without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(crate) enum FileStamp {
    Absent,
    File { device: u64, file: u64, length: u64, modified_ns: u64 },
}

/// A line of [`READS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstRead {
    /// The path relative to the folder.
    pub(crate) path: String,
    /// `None` if the run has not read the file since its change was applied or dropped.
    pub(crate) stamp: Option<FileStamp>,
}

/// Appends to the first reads of an overlay, whose folder exists.
///
/// # Errors
/// The operating system's error.
pub(crate) fn append_read(overlay: &Path, read: &FirstRead) -> io::Result<()> {
    let mut line = serde_json::to_vec(read)?;
    line.push(b'\n');
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(overlay.join(READS))?.write_all(&line)
}

/// Returns the files of the folder as the run first read them. A line that a kill cut is ignored.
///
/// # Errors
/// The operating system's error.
pub(crate) fn read_first_reads(overlay: &Path) -> io::Result<BTreeMap<String, FileStamp>> {
    let text = match read_own(&overlay.join(READS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => String::from_utf8_lossy(&bytes?).into_owned(),
    };
    let mut first = BTreeMap::new();
    for read in text.lines().filter_map(|line| serde_json::from_str::<FirstRead>(line).ok()) {
        match read.stamp {
            Some(stamp) => first.insert(read.path, stamp),
            None => first.remove(&read.path),
        };
    }
    Ok(first)
}

/// Removes the overlays of a run with their changes. The decisions about them stay.
///
/// # Errors
/// The operating system's error.
pub(crate) fn remove_overlays(run_folder: &Path) -> io::Result<()> {
    for overlay in overlays_of(run_folder)? {
        // The log first: without it an interrupted removal leaves no change behind.
        std::fs::remove_file(overlay.join(LOG))?;
        sync_folder(&overlay)?;
        std::fs::remove_dir_all(&overlay)?;
    }
    Ok(())
}

/// Removes all that is kept of a run's overlays.
///
/// # Errors
/// The operating system's error.
#[cfg(feature = "sqlite")]
pub(crate) fn remove(run_folder: &Path) -> io::Result<()> {
    remove_overlays(run_folder)?;
    match std::fs::remove_dir_all(run_folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str) -> ChangeRecord {
        ChangeRecord::Written { path: path.to_owned(), base: None, changed_since_read: false }
    }

    fn created(temp: &Path) -> (PathBuf, OverlayLog, Changes) {
        let overlay = overlay_folder(&run_folder(temp, "r"), Path::new("/p"));
        let origin = OverlayOrigin { dir: "/p".into(), display_path: "p".to_owned() };
        let log = OverlayLog::create(&overlay, &origin).unwrap();
        (overlay, log, Changes::default())
    }

    fn append(log: &mut OverlayLog, changes: &mut Changes, record: ChangeRecord) {
        log.append(&record, changes, true).unwrap();
        changes.take(record);
    }

    #[test]
    fn a_torn_line_is_cut_off_and_the_log_continues() {
        let temp = tempfile::tempdir().unwrap();
        let (overlay, mut log, mut changes) = created(temp.path());
        append(&mut log, &mut changes, record("a"));
        let path = overlay.join(LOG);
        let mut torn = std::fs::read(&path).unwrap();
        torn.extend_from_slice(b"{\"change\":\"removed\",\"pa");
        std::fs::write(&path, torn).unwrap();
        assert_eq!(read(&overlay).unwrap().1, changes);
        let (mut log, mut reopened) = OverlayLog::open(&overlay).unwrap().unwrap();
        append(&mut log, &mut reopened, record("b"));
        assert_eq!(read(&overlay).unwrap().1.len(), 2);
    }

    #[test]
    fn a_log_grows_with_its_changes_and_not_with_the_writes() {
        let temp = tempfile::tempdir().unwrap();
        let (overlay, mut log, mut changes) = created(temp.path());
        append(&mut log, &mut changes, record("kept"));
        for _ in 0..2 * SPARE_LINES {
            append(&mut log, &mut changes, record("a"));
            append(&mut log, &mut changes, ChangeRecord::Reverted { path: "a".to_owned() });
        }
        let lines = std::fs::read_to_string(overlay.join(LOG)).unwrap().lines().count();
        assert!(lines <= SPARE_LINES + 4, "{lines}");
        assert_eq!(read(&overlay).unwrap().1, changes);
    }

    #[test]
    fn a_log_of_others_is_refused_with_its_line() {
        let temp = tempfile::tempdir().unwrap();
        let (overlay, ..) = created(temp.path());
        std::fs::write(overlay.join(LOG), "{}\n").unwrap();
        let error = read(&overlay).unwrap_err().to_string();
        assert!(error.ends_with("changes.jsonl:1 is no change of an overlay"), "{error}");
        assert_eq!(count_changes(temp.path(), "r"), 1);
    }

    #[test]
    fn no_name_of_a_run_leaves_the_store() {
        for (run, name) in [("2026-a_b.1", "2026-a_b.1"), ("..", "%2e."), ("a/b", "a%2fb")] {
            assert_eq!(run_folder(Path::new("/s"), run), Path::new("/s/overlays").join(name));
        }
    }

    #[test]
    fn one_process_at_a_time_changes_the_overlays_of_a_run() {
        let temp = tempfile::tempdir().unwrap();
        let first = lock(temp.path()).unwrap();
        assert!(first.is_some() && lock(temp.path()).unwrap().is_none());
        drop(first);
        assert!(lock(temp.path()).unwrap().is_some());
    }
}
