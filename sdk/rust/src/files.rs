//! Files of the folders that the operator granted. A path starts with a folder's name:
//! `/folder/notes/a.txt`. Pages are hidden; errors stay typed, so that a plugin can tell an absent
//! file from a refused one.

use crate::bindings::imports::conclave::plugin::files as import;
use crate::{Error, Result};

pub use import::{Entry, FileError, Kind, Root, remove, roots};

/// Bytes and entries per call to the host: large enough that the calls do not show, small enough
/// for a plugin of 1 MiB.
const PAGE_BYTES: u32 = 128 * 1024;
const PAGE_ENTRIES: u32 = 256;

/// Every entry of a folder, in byte order of their names.
pub fn list(path: &str) -> Result<Vec<Entry>, FileError> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map(|entry| entry.name.as_str());
        let page = import::list_entries(path, after, PAGE_ENTRIES)?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

/// The whole file.
pub fn read(path: &str) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    loop {
        let page = import::read(path, bytes.len() as u64, PAGE_BYTES)?;
        if page.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(page);
    }
}

/// At most `length` bytes from `offset`; empty past the end, and maybe fewer before it.
pub fn read_at(path: &str, offset: u64, length: u32) -> Result<Vec<u8>, FileError> {
    import::read(path, offset, length)
}

/// The whole file as text. Fails when it is no UTF-8.
pub fn read_to_string(path: &str) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| Error::Other(format!("{path} is not text in UTF-8")))
}

/// The lines of a text file, without their ends.
pub fn lines(path: &str) -> Result<Vec<String>> {
    Ok(read_to_string(path)?.lines().map(str::to_owned).collect())
}

/// Replaces the whole file, making it when it is absent.
pub fn write(path: &str, bytes: impl AsRef<[u8]>) -> Result<(), FileError> {
    write_at(path, 0, bytes.as_ref(), true).map(drop)
}

/// Writes at `offset` and returns the file's new length. `truncate` cuts it after the last byte
/// written.
pub fn write_at(path: &str, offset: u64, bytes: &[u8], truncate: bool) -> Result<u64, FileError> {
    import::write(path, offset, bytes, truncate)
}

/// Every entry below a folder, parents before children, in byte order of the names. A folder that
/// cannot be listed is one error, and the walk goes on beside it.
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
    Walk { enter: Some(path.to_owned()), found: Vec::new() }
}

/// An entry with its whole path.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// From the root, such as `/folder/notes/a.txt`.
    pub path: String,
    /// Its name, kind and length.
    pub entry: Entry,
}

/// Made by [`walk`].
#[derive(Debug)]
pub struct Walk {
    /// The folder whose entries come next.
    enter: Option<String>,
    /// Entries still to come after those, the next one last.
    found: Vec<Found>,
}

impl Walk {
    /// Does not go into the folder that was found last, such as a hidden one.
    pub fn skip_folder(&mut self) {
        self.enter = None;
    }
}

impl Iterator for Walk {
    type Item = Result<Found, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(folder) = self.enter.take() {
            match list(&folder) {
                Ok(entries) => {
                    self.found.extend(entries.into_iter().rev().map(|entry| below(&folder, entry)))
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let found = self.found.pop()?;
        if found.entry.kind == Kind::Directory {
            self.enter = Some(found.path.clone());
        }
        Some(Ok(found))
    }
}

fn below(folder: &str, entry: Entry) -> Found {
    Found { path: format!("{}/{}", folder.trim_end_matches('/'), entry.name), entry }
}
