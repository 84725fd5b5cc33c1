//! Files of the folders that the operator granted. A path starts with a folder's name:
//! `/folder/notes/a.txt`. Paging is hidden. Errors name the path and stay typed, so that a plugin can
//! distinguish an absent file from a refused one.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::bindings::imports::conclave::plugin::files as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::files as host;
use crate::{Error, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use host::roots;
pub use import::{Entry, EntryKind, FileError as FileErrorKind, Root};

/// The failure of a file's operation.
///
/// ```
/// use conclave_sdk::files::{self, FileErrorKind};
///
/// fn settings() -> conclave_sdk::Result<Vec<u8>> {
///     match files::read("/data/settings.json") {
///         Err(error) if matches!(error.kind, FileErrorKind::NotFound) => Ok(Vec::new()),
///         // `/data/settings.json: it is a directory, not a file`
///         read => Ok(read?),
///     }
/// }
/// # assert!(settings().is_err());
/// ```
#[derive(Clone, PartialEq)]
pub struct FileError {
    /// The path as the plugin gave it.
    pub path: String,
    /// What happened.
    pub kind: FileErrorKind,
}

impl FileError {
    /// A function that adds the path to a failure.
    fn at(path: &str) -> impl FnOnce(FileErrorKind) -> Self {
        move |kind| Self { path: path.to_owned(), kind }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use FileErrorKind as Kind;
        let path = &self.path;
        match &self.kind {
            Kind::NotFound => write!(out, "{path}: no such file or directory"),
            Kind::NotAFile => write!(out, "{path}: it is a directory, not a file"),
            Kind::NotADirectory => write!(out, "{path}: it is a file, not a directory"),
            // A refusal names its target.
            Kind::Denied(denial) => Error::Denied(denial.clone()).fmt(out),
            Kind::QuotaExceeded(limit) => write!(out, "{path}: the limit of {limit} is reached"),
            Kind::Other(text) => write!(out, "{path}: {text}"),
        }
    }
}

impl fmt::Debug for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} at {:?}", self.kind, self.path)
    }
}

impl std::error::Error for FileError {}

/// Bytes and entries per call to the host: large enough to make the calls' cost negligible, small
/// enough for a plugin of 1 MiB.
const PAGE_BYTES: u32 = 128 * 1024;
const PAGE_ENTRIES: u32 = 256;

/// Returns every entry of a folder, in byte order of the names.
pub fn list(path: &str) -> Result<Vec<Entry>, FileError> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map(|entry| entry.name.as_str());
        let page = host::list_entries(path, after, PAGE_ENTRIES).map_err(FileError::at(path))?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

/// Returns the whole file.
pub fn read(path: &str) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    loop {
        let page = read_at(path, bytes.len() as u64, PAGE_BYTES)?;
        if page.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(page);
    }
}

/// Returns at most `length` bytes from `offset`. Empty past the end; possibly fewer before it.
pub fn read_at(path: &str, offset: u64, length: u32) -> Result<Vec<u8>, FileError> {
    host::read(path, offset, length).map_err(FileError::at(path))
}

/// Returns the whole file as text. Fails if it is not UTF-8.
pub fn read_to_string(path: &str) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Error::Other(format!("{path} is not text in UTF-8")))
}

/// Returns the file's JSON as a `T`. The error names the path, the line and the column.
pub fn read_json<T: DeserializeOwned>(path: &str) -> Result<T> {
    serde_json::from_slice(&read(path)?).map_err(|error| Error::Other(format!("{path}: {error}")))
}

/// Returns the lines of a text file, without their ends.
pub fn lines(path: &str) -> Result<Vec<String>> {
    Ok(read_to_string(path)?.lines().map(str::to_owned).collect())
}

/// Replaces the whole file, and creates it if it is absent.
pub fn write(path: &str, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    write_at(path, 0, bytes.as_ref(), true).map(drop)
}

/// Writes at `offset` and returns the file's new length. `truncate` cuts it after the last byte
/// written.
pub fn write_at(path: &str, offset: u64, bytes: &[u8], truncate: bool) -> Result<u64, FileError> {
    host::write(path, offset, bytes, truncate).map_err(FileError::at(path))
}

/// Removes a file. An absent one counts as removed.
pub fn remove(path: &str) -> Result<(), FileError> {
    host::remove(path).map_err(FileError::at(path))
}

/// Every entry below a folder, parents before children, in byte order of the names. A folder that
/// cannot be listed is one error, and the walk continues beside it.
///
/// ```no_run
/// use conclave_sdk::files;
///
/// for root in files::roots() {
///     for found in files::walk(&root.path) {
///         let found = found?;
///         println!("{} {}", found.path, found.entry.length);
///     }
/// }
/// # Ok::<(), conclave_sdk::Error>(())
/// ```
pub fn walk(path: &str) -> Walk {
    Walk { enter: Some(path.to_owned()), entries: Vec::new() }
}

/// An entry with its full path.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The path from the root, such as `/folder/notes/a.txt`.
    pub path: String,
    /// The name, kind and length.
    pub entry: Entry,
}

/// The iterator that [`walk`] returns.
#[derive(Debug)]
pub struct Walk {
    /// The folder whose entries come next.
    enter: Option<String>,
    /// Further entries, the next one last.
    entries: Vec<Found>,
}

impl Walk {
    /// Skips the contents of the folder that was returned last, such as a hidden one.
    pub fn skip_folder(&mut self) {
        self.enter = None;
    }
}

impl Iterator for Walk {
    type Item = Result<Found, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(folder) = self.enter.take() {
            match list(&folder) {
                Ok(entries) => self
                    .entries
                    .extend(entries.into_iter().rev().map(|entry| below(&folder, entry))),
                Err(error) => return Some(Err(error)),
            }
        }
        let found = self.entries.pop()?;
        if found.entry.kind == EntryKind::Directory {
            self.enter = Some(found.path.clone());
        }
        Some(Ok(found))
    }
}

fn below(folder: &str, entry: Entry) -> Found {
    Found { path: format!("{}/{}", folder.trim_end_matches('/'), entry.name), entry }
}
