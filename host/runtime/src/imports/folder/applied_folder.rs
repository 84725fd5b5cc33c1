//! A folder to which a person applies the changes of an overlay. Paths are resolved like those of a
//! plugin: no link is followed, because a plugin chose the path.

use std::io::Read;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use conclave_core::overlay::apply::BaseEntry;

use super::overlay::digest;
use super::write::{Existing, existing, perform, sync_directory, to_write};
use super::{FileChange, FileModes, FolderAccess, FolderFailure, GrantedFolder};

/// The folder of an overlay, open for its changes.
#[derive(Debug)]
pub(crate) struct AppliedFolder(GrantedFolder);

impl AppliedFolder {
    /// Opens the folder at a canonical path. A link that took its place is refused, because it would
    /// lead the changes to another folder.
    pub(crate) fn open(dir: &Path) -> std::io::Result<Self> {
        if std::fs::canonicalize(dir)? != dir {
            return Err(std::io::Error::other("a link is in its place"));
        }
        let path = dir.to_owned();
        let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
        let (at, access, read_only) = (String::new(), FolderAccess::ReadOnly, Vec::new());
        Ok(Self(GrantedFolder { at, dir, path, access, read_only }))
    }

    /// The entry at a path, by the digest of a file. `may_be_linked` accepts a file with a second
    /// name, whose removal leaves the other one as it is.
    pub(crate) fn entry(&self, rest: &str, may_be_linked: bool) -> BaseEntry {
        let digest = |file: &Existing| {
            if !may_be_linked {
                file.refuse_hard_link()?;
            }
            Ok(digest(&file.file, |_| Ok(()))?)
        };
        match self.file(rest).and_then(|file| file.as_ref().map(digest).transpose()) {
            Ok(None) => BaseEntry::Absent,
            Ok(Some(digest)) => BaseEntry::File(digest),
            Err(failure) => BaseEntry::Other(failure.to_string()),
        }
    }

    /// Returns the content of a file; `None` if it is absent.
    pub(crate) fn read(&self, rest: &str) -> Result<Option<Vec<u8>>, FolderFailure> {
        let Some(existing) = self.file(rest)? else { return Ok(None) };
        let mut bytes = Vec::new();
        (&existing.file).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces or creates a file atomically. It is durable when this returns.
    pub(crate) fn write(&self, rest: &str, bytes: &[u8]) -> Result<(), FolderFailure> {
        let modes = FileModes::Person;
        let change = FileChange { rest, offset: 0, bytes, truncate: true, durable: true, modes };
        let reached = self.0.reach(rest)?;
        let old =
            if reached.missing.is_empty() { to_write(&reached.dir, reached.leaf)? } else { None };
        let dir = reached.make_directories(&change)?;
        perform(&dir, reached.leaf, old, &change, bytes.len() as u64)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, rest: &str) -> Result<(), FolderFailure> {
        let reached = self.0.reach(rest)?;
        reached.dir.remove_file(reached.leaf)?;
        Ok(sync_directory(&reached.dir)?)
    }

    fn file(&self, rest: &str) -> Result<Option<Existing>, FolderFailure> {
        let reached = match self.0.reach(rest) {
            Err(FolderFailure::NotFound) => return Ok(None),
            reached => reached?,
        };
        if !reached.missing.is_empty() {
            return Ok(None);
        }
        existing(&reached.dir, reached.leaf, OpenOptions::new().read(true))
    }
}
