//! A granted folder: a directory handle that is opened once at start, and reads below it. The
//! handle is the authority; no absolute path is used afterwards. The operating system refuses links
//! that leave the folder (`RESOLVE_BENEATH`).

mod applied_folder;
mod call_folder;
mod ledger;
mod listing;
mod overlay;
mod write;

pub(crate) use applied_folder::AppliedFolder;
pub(crate) use call_folder::CallFolder;
pub(crate) use listing::{Listing, PageRequest};
pub(crate) use overlay::RunOverlays;
pub(crate) use write::{FileChange, FileModes};

use std::io;
use std::path::PathBuf;

use cap_fs_ext::{MetadataExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileExt, Metadata, OpenOptions};
use conclave_core::permissions::grants::{FileGrant, FileMode};
use conclave_core::types::ids::PluginName;
use serde::{Deserialize, Serialize};

use crate::support::overlay_files::{OverlayOrigin, RecordFailure};
use ledger::{FolderSize, Ledger};

/// A granted folder that cannot be opened.
#[expect(unreachable_pub, reason = "the bindings export it again")]
#[derive(Debug, thiserror::Error)]
#[error("plugins.{plugin}.grants.files: {display_path} cannot be opened: {cause}")]
pub struct FolderError {
    plugin: PluginName,
    /// The path as the operator wrote it.
    display_path: String,
    cause: io::Error,
}

/// One granted folder.
#[derive(Debug)]
pub(crate) struct GrantedFolder {
    /// The path for the plugin: `/folder`.
    pub(crate) at: String,
    dir: Dir,
    /// The path at which it was opened.
    path: PathBuf,
    access: FolderAccess,
    /// Directories below it that have a read-only grant of their own.
    read_only: Vec<Identity>,
}

/// The access to a folder.
#[derive(Debug)]
enum FolderAccess {
    ReadOnly,
    ReadWrite(Ledger),
    Overlay(OverlayGrant),
}

/// A folder that is granted as an overlay. The overlay itself belongs to the run.
#[derive(Debug)]
struct OverlayGrant {
    origin: OverlayOrigin,
    /// The quota of the changed files.
    most: FolderSize,
}

/// The identity of a directory, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(dir: &Dir) -> io::Result<Self> {
        let metadata = dir.dir_metadata()?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }
}

/// Why a path below a folder cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderFailure {
    #[error("there is no such file")]
    NotFound,
    #[error("it is no file")]
    NotAFile,
    #[error("it is no directory")]
    NotADirectory,
    #[error("a link on the way leads out of the folder")]
    LeadsOutside,
    #[error("the host's own user may not do that")]
    Forbidden,
    #[error("there are more entries than may be looked at")]
    TooMany,
    #[error("the folder is for reading only")]
    ReadOnly,
    #[error("a directory on the way was granted for reading only, at a place of its own")]
    Kept,
    #[error("nothing is changed through a link, and there is one on the way")]
    Link,
    #[error("the file has a second name, which may be outside the folder (a hard link)")]
    HardLink,
    #[error("a limit of the folder is reached: {0}")]
    Quota(u64),
    #[error(
        "an overlay keeps its changes in the store of the run, and this run is not stored; \
         run it with a store, or grant the folder as `read`"
    )]
    NotStored,
    #[error("the file is too large to be replaced or removed in an overlay: at most {most} bytes")]
    TooLarge { most: u64 },
    #[error(
        "the file is too large for an overlay in a database: at most {most} bytes, whatever the \
         quota of the folder"
    )]
    TooLargeToRecord { most: u64 },
    #[error("the changes of this run are in use by another process, such as `conclave diff`")]
    OverlayInUse,
    #[error("the change is not recorded: {0}")]
    NotRecorded(#[from] RecordFailure),
    // The text of the operating system's error can contain host paths.
    #[error("it cannot be done: {}", error_kind(.0))]
    Other(io::Error),
}

/// The kind of an error without the operating system's text. The standard library has no kind for a
/// host that is out of descriptors.
fn error_kind(error: &io::Error) -> String {
    #[cfg(unix)]
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::MFILE) => {
            return "the host has as many files open as it may (`ulimit -n`)".to_owned();
        }
        Some(rustix::io::Errno::NFILE) => {
            return "this machine has as many files open as it can".to_owned();
        }
        _ => {}
    }
    error.kind().to_string()
}

/// A file or a directory in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderEntry {
    pub(crate) name: String,
    pub(crate) is_directory: bool,
    pub(crate) length: u64,
}

impl GrantedFolder {
    /// Opens the directories of a plugin's grants.
    pub(crate) fn open_all(
        plugin: &PluginName,
        grants: &[FileGrant],
    ) -> Result<Vec<Self>, FolderError> {
        let mut folders =
            grants.iter().map(|grant| Self::open(plugin, grant)).collect::<Result<Vec<_>, _>>()?;
        let identities: Vec<Option<Identity>> =
            folders.iter().map(|folder| Identity::of(&folder.dir).ok()).collect();
        let read_only: Vec<Identity> = folders
            .iter()
            .zip(&identities)
            .filter(|(folder, _)| !folder.is_writable())
            .filter_map(|(_, identity)| *identity)
            .collect();
        for (folder, own) in
            folders.iter_mut().zip(identities).filter(|(folder, _)| folder.is_writable())
        {
            // A directory that is granted twice stays writable under the writable grant.
            folder.read_only =
                read_only.iter().copied().filter(|identity| Some(*identity) != own).collect();
        }
        Ok(folders)
    }

    /// Opens the directory of a grant.
    pub(crate) fn open(plugin: &PluginName, grant: &FileGrant) -> Result<Self, FolderError> {
        let failed = |cause| FolderError {
            plugin: plugin.clone(),
            display_path: grant.display_path.clone(),
            cause,
        };
        let dir = Dir::open_ambient_dir(&grant.dir, ambient_authority()).map_err(&failed)?;
        let most = FolderSize { bytes: grant.bytes, entries: grant.files };
        let path = || std::fs::canonicalize(&grant.dir).map_err(&failed);
        let access = match grant.mode {
            FileMode::Read => FolderAccess::ReadOnly,
            FileMode::ReadWrite => FolderAccess::ReadWrite(Ledger::open(&path()?, most)),
            FileMode::Overlay => FolderAccess::Overlay(OverlayGrant {
                origin: OverlayOrigin { dir: path()?, display_path: grant.display_path.clone() },
                most,
            }),
        };
        let path = PathBuf::from(&grant.dir);
        Ok(Self { at: grant.at.clone(), dir, path, access, read_only: Vec::new() })
    }

    /// Checks that the folder is still at its path. Otherwise changes would be made where no one looks
    /// for them, and the audit would name a folder that has none of them.
    ///
    /// # Errors
    /// The reason for the operator, who must restore the folder or start the host anew.
    pub(crate) fn check_place(&self) -> Result<(), String> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as Unix;
            let identity = |it| Identity(Unix::dev(&it), Unix::ino(&it));
            let found = std::fs::metadata(&self.path).map(identity);
            let what = match (found, Identity::of(&self.dir)) {
                (Ok(found), Ok(own)) if found == own => return Ok(()),
                (Ok(_), _) => "another folder is in its place".to_owned(),
                (Err(error), _) => error_kind(&error),
            };
            Err(format!(
                "{} is not the folder that this host has opened: {what}. Move it back, or end this host and start it again",
                self.path.display()
            ))
        }
        #[cfg(not(unix))]
        Ok(())
    }

    /// Whether the grant allows writes.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self.access, FolderAccess::ReadOnly)
    }

    pub(crate) fn is_overlay(&self) -> bool {
        matches!(self.access, FolderAccess::Overlay(_))
    }

    /// The quota in bytes; 0 for a read-only folder.
    pub(crate) fn byte_quota(&self) -> u64 {
        match &self.access {
            FolderAccess::ReadOnly => 0,
            FolderAccess::ReadWrite(ledger) => ledger.most.bytes,
            FolderAccess::Overlay(grant) => grant.most.bytes,
        }
    }

    fn ledger(&self) -> Option<&Ledger> {
        if let FolderAccess::ReadWrite(ledger) = &self.access { Some(ledger) } else { None }
    }

    /// Opens a file for reading; `rest` is a path below the folder.
    ///
    /// Checks the type first, because opening a device can have side effects. Never waits for the
    /// other end of a pipe.
    pub(crate) fn open_file(&self, rest: &str) -> Result<File, FolderFailure> {
        if rest.is_empty() {
            return Err(FolderFailure::NotAFile);
        }
        require_file(&self.dir.metadata(rest)?)?;
        let mut options = OpenOptions::new();
        options.read(true).nonblock(true);
        let file = self.dir.open_with(rest, &options)?;
        // Another process may have replaced the file between the check and the open.
        require_file(&file.metadata()?)?;
        Ok(file)
    }

    /// Returns the entry at a path, following links.
    pub(crate) fn look(&self, rest: &str) -> Result<FolderEntry, FolderFailure> {
        let metadata =
            if rest.is_empty() { self.dir.dir_metadata()? } else { self.dir.metadata(rest)? };
        let is_directory = metadata.is_dir();
        if !is_directory {
            require_file(&metadata)?;
        }
        let name = rest.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(FolderEntry {
            name,
            is_directory,
            length: if is_directory { 0 } else { metadata.len() },
        })
    }
}

/// Reads at most `length` bytes from `offset`; the result is empty past the end.
pub(crate) fn read_at(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, FolderFailure> {
    // The buffer is no larger than the file: a guest may ask for 4 GB of a small one.
    let remaining = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; length.min(usize::try_from(remaining).unwrap_or(usize::MAX))];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The entry of a name, following a link unless it leaves the folder or is broken.
fn entry(dir: &Dir, name: &str) -> Option<FolderEntry> {
    let metadata = dir.metadata(name).ok()?;
    let is_directory = metadata.is_dir();
    let length = if is_directory { 0 } else { metadata.len() };
    (is_directory || metadata.is_file()).then(|| FolderEntry {
        name: name.to_owned(),
        is_directory,
        length,
    })
}

fn require_file(metadata: &Metadata) -> Result<(), FolderFailure> {
    if metadata.is_file() { Ok(()) } else { Err(FolderFailure::NotAFile) }
}

impl From<io::Error> for FolderFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::NotADirectory => Self::NotADirectory,
            io::ErrorKind::IsADirectory => Self::NotAFile,
            // cap-std's own refusal has no error number; the operating system's has one.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::LeadsOutside,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other(error),
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
