//! The files of a folder as a run first read them. A file that another process changes between that
//! read and the run's first change of it would lose that change when the run's file is applied.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use cap_fs_ext::MetadataExt;
use cap_std::fs::{File, Metadata};

use crate::imports::folder::FolderFailure;
use crate::support::durable_file::make_folders;
use crate::support::overlay_files::{FileStamp, FirstRead, append_read, read_first_reads};

/// Maximum files whose first read is remembered. A run that reads more has the protection for
/// these.
const FILES: usize = 100_000;

/// The first reads of an overlay. They outlive the process, so that a resumed run has them.
#[derive(Debug)]
pub(super) struct FirstReads {
    overlay: PathBuf,
    files: Mutex<BTreeMap<String, FileStamp>>,
}

impl FirstReads {
    /// Reads those of earlier processes.
    pub(super) fn open(overlay: &Path) -> io::Result<Self> {
        let files = Mutex::new(read_first_reads(overlay)?);
        Ok(Self { overlay: overlay.to_owned(), files })
    }

    /// Remembers what a plugin found at a path of the folder, unless it was read before.
    pub(super) fn note(&self, rest: &str, found: &Result<File, FolderFailure>) {
        let stamp = match found {
            Ok(file) => file.metadata().map(|it| stamp(&it)),
            Err(FolderFailure::NotFound) => Ok(FileStamp::Absent),
            Err(_) => return,
        };
        let Ok(stamp) = stamp else { return };
        if !self.remember(rest, stamp) {
            return;
        }
        // A read must not fail for it: without the line, the next process does not know the read.
        let read = FirstRead { path: rest.to_owned(), stamp: Some(stamp) };
        let _ = make_folders(&self.overlay, 0o700).and_then(|()| append_read(&self.overlay, &read));
    }

    /// Returns whether it is the first read of the path, and is remembered.
    fn remember(&self, rest: &str, stamp: FileStamp) -> bool {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = files.len() < FILES && !files.contains_key(rest);
        if is_first {
            files.insert(rest.to_owned(), stamp);
        }
        is_first
    }

    /// Whether a file of the folder, which is `now`, is another one than the run first read.
    pub(super) fn has_changed(&self, rest: &str, now: Option<&Metadata>) -> bool {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now.map_or(FileStamp::Absent, stamp);
        files.get(rest).is_some_and(|first| *first != now)
    }
}

fn stamp(metadata: &Metadata) -> FileStamp {
    let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
    let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    FileStamp::File {
        device: metadata.dev(),
        file: metadata.ino(),
        length: metadata.len(),
        modified_ns: modified.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
    }
}
