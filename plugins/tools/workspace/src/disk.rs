//! The storage under the tools: the granted folders, and in tests a map.

use conclave_sdk::files::{self, Entry, FileError, Root};
use conclave_sdk::{Result, scratch};

/// Bytes per call to the host.
const PAGE: u32 = 128 * 1024;

/// Files and a small memory.
pub(crate) trait Disk {
    /// The granted folders.
    fn roots(&self) -> Vec<Root>;
    /// Returns a whole file, or `None` if it has more than `most` bytes.
    fn read(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, FileError>;
    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError>;
    fn write(&mut self, path: &str, text: &str) -> Result<(), FileError>;
    /// Returns files' contents before their last edits, the newest last.
    fn before(&self) -> Vec<(String, String)>;
    /// Stores them. Returns whether there was room.
    fn keep(&mut self, before: &[(String, String)]) -> bool;
}

/// The folders that the operator granted.
pub(crate) struct Granted;

impl Disk for Granted {
    fn roots(&self) -> Vec<Root> {
        files::roots()
    }

    fn read(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, FileError> {
        let mut content = Vec::new();
        while content.len() <= most {
            let page = files::read_at(path, content.len() as u64, PAGE)?;
            if page.is_empty() {
                return Ok(Some(content));
            }
            content.extend(page);
        }
        Ok(None)
    }

    fn list(&self, path: &str) -> Result<Vec<Entry>, FileError> {
        files::list(path)
    }

    fn write(&mut self, path: &str, text: &str) -> Result<(), FileError> {
        files::write(path, text)
    }

    fn before(&self) -> Vec<(String, String)> {
        // A value of another version of the plugin counts as absent.
        scratch::get().ok().flatten().unwrap_or_default()
    }

    fn keep(&mut self, before: &[(String, String)]) -> bool {
        scratch::set(before).is_ok()
    }
}
