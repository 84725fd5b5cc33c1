//! Writes and removals in a granted folder. A path is resolved part by part through directory
//! handles and follows no links. A file is checked before and after it is opened. Whole files are
//! replaced atomically.

use std::io;

use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, DirBuilder, File, Metadata, OpenOptions};

use super::ledger::FolderSize;
use super::{FolderFailure, GrantedFolder, Identity};
use conclave_core::permissions::paths::UNFINISHED;

/// A change to one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileChange<'a> {
    /// The path relative to the folder.
    pub(crate) rest: &'a str,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether the file ends after the last written byte.
    pub(crate) truncate: bool,
    /// Whether bytes and name must be on the disk before the write returns.
    pub(crate) durable: bool,
    pub(crate) modes: FileModes,
}

/// The permissions of a changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileModes {
    /// Those of a plugin: not executable, because a script that it rewrote must not run as the old
    /// one. A new file is not for everybody.
    Plugin,
    /// Those of a person who has read the change: the old file keeps all of them, and a new file
    /// has those of any other that the person makes.
    Person,
}

/// The parent directory of a path, as far as it exists.
pub(super) struct ResolvedParent<'a> {
    pub(super) dir: Dir,
    /// Directories still to be created, and the name of the file.
    pub(super) missing: Vec<&'a str>,
    pub(super) leaf: &'a str,
}

/// An existing regular file, open.
pub(super) struct Existing {
    pub(super) file: File,
    pub(super) metadata: Metadata,
}

impl GrantedFolder {
    /// Writes to a file and returns its new length. Creates the file and its parent directories if
    /// they are missing.
    pub(crate) fn write(&self, change: FileChange<'_>) -> Result<u64, FolderFailure> {
        let ledger = self.ledger().ok_or(FolderFailure::ReadOnly)?;
        let turn = ledger.turn();
        let usage = turn.usage(&self.dir)?;
        let reached = self.reach(change.rest)?;
        let existing =
            if reached.missing.is_empty() { to_write(&reached.dir, reached.leaf)? } else { None };
        let old = existing.as_ref().map_or(0, |existing| existing.metadata.len());
        // The quota is checked before anything is created, so a refused write leaves no trace.
        let new = change.new_length(old).ok_or(FolderFailure::Quota(ledger.most.bytes))?;
        let made = reached.missing.len() as u64 + u64::from(existing.is_none());
        let after = FolderSize {
            bytes: (usage.bytes - old.min(usage.bytes)).saturating_add(new),
            entries: usage.entries + made,
        };
        // A write that frees space is permitted above the quota, too.
        if new > old && after.bytes > ledger.most.bytes {
            return Err(FolderFailure::Quota(ledger.most.bytes));
        }
        if made > 0 && after.entries > ledger.most.entries {
            return Err(FolderFailure::Quota(ledger.most.entries));
        }
        let result = reached
            .make_directories(&change)
            .and_then(|dir| perform(&dir, reached.leaf, existing, &change, new));
        // After a failure the size on disk is unknown, and the next write measures it again.
        turn.changed(result.is_ok().then_some(after));
        result?;
        Ok(new)
    }

    /// Removes a file; an absent file is no error. A `durable` removal is on the disk before this
    /// returns.
    pub(crate) fn remove(&self, rest: &str, durable: bool) -> Result<(), FolderFailure> {
        let ledger = self.ledger().ok_or(FolderFailure::ReadOnly)?;
        let turn = ledger.turn();
        let reached = match self.reach(rest) {
            Ok(reached) if reached.missing.is_empty() => reached,
            Ok(_) | Err(FolderFailure::NotFound) => return Ok(()),
            Err(trouble) => return Err(trouble),
        };
        // For an absent file too: a host that removed it may have stopped before it synced.
        let sync = || if durable { sync_directory(&reached.dir) } else { Ok(()) };
        let metadata = match reached.dir.symlink_metadata(reached.leaf) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(sync()?),
            found => found?,
        };
        require_plain(&metadata)?;
        match reached.dir.remove_file(reached.leaf) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => turn.changed(None),
            removed => {
                removed?;
                turn.removed(metadata.len());
            }
        }
        Ok(sync()?)
    }

    /// Syncs a file or a directory, with its name, to the disk. A link is followed if it stays
    /// inside the folder. An absent file and a read-only folder need no sync. Neither does a file
    /// that this host cannot open, since it cannot have written it.
    pub(crate) fn sync(&self, rest: &str) -> Result<(), FolderFailure> {
        if self.ledger().is_none() {
            return Ok(());
        }
        if rest.is_empty() {
            return Ok(sync_directory(&self.dir)?);
        }
        // Reads follow links inside the folder, so a sync does too. Of a broken or outward link
        // only the name is here.
        let real = self
            .dir
            .canonicalize(rest)
            .ok()
            .and_then(|path| path.into_os_string().into_string().ok());
        let rest = real.as_deref().unwrap_or(rest);
        if ["", "."].contains(&rest) {
            return Ok(sync_directory(&self.dir)?);
        }
        let reached = match self.reach(rest) {
            Ok(reached) if reached.missing.is_empty() => reached,
            Ok(_) | Err(FolderFailure::NotFound | FolderFailure::Link) => return Ok(()),
            Err(trouble) => return Err(trouble),
        };
        match reached.dir.symlink_metadata(reached.leaf) {
            Ok(metadata) if metadata.is_dir() => allowed(
                reached.dir.open_dir_nofollow(reached.leaf).and_then(|dir| sync_directory(&dir)),
            )?,
            // Opening a device or a pipe can have side effects.
            Ok(metadata) if metadata.is_file() => allowed(sync_file(&reached.dir, reached.leaf))?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        Ok(allowed(sync_directory(&reached.dir))?)
    }

    /// Resolves the parent directory of a file.
    pub(super) fn reach<'a>(&self, rest: &'a str) -> Result<ResolvedParent<'a>, FolderFailure> {
        if rest.is_empty() {
            return Err(FolderFailure::NotAFile);
        }
        let mut parts: Vec<&str> = rest.split('/').collect();
        if parts.iter().any(|part| ["", ".", ".."].contains(part)) {
            return Err(FolderFailure::LeadsOutside);
        }
        let leaf = parts.pop().ok_or(FolderFailure::NotAFile)?;
        let mut dir = self.dir.try_clone()?;
        for (index, part) in parts.iter().enumerate() {
            match dir.symlink_metadata(part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(ResolvedParent { dir, missing: parts.split_off(index), leaf });
                }
                Err(error) => return Err(error.into()),
                Ok(metadata) if metadata.is_symlink() => return Err(FolderFailure::Link),
                Ok(metadata) if !metadata.is_dir() => return Err(FolderFailure::NotADirectory),
                // Without following again: a link may have come there since the look.
                Ok(_) => dir = dir.open_dir_nofollow(part).map_err(no_link)?,
            }
            if self.read_only.contains(&Identity::of(&dir)?) {
                return Err(FolderFailure::Kept);
            }
        }
        Ok(ResolvedParent { dir, missing: Vec::new(), leaf })
    }
}

impl FileChange<'_> {
    /// The length of the file after the change, or `None` if it overflows.
    pub(super) fn new_length(&self, old: u64) -> Option<u64> {
        let end = self.offset.checked_add(self.bytes.len() as u64)?;
        Some(if self.truncate {
            end
        } else if self.bytes.is_empty() {
            old
        } else {
            end.max(old)
        })
    }
}

impl ResolvedParent<'_> {
    pub(super) fn make_directories(&self, change: &FileChange<'_>) -> Result<Dir, FolderFailure> {
        let mut dir = self.dir.try_clone()?;
        for part in &self.missing {
            match dir.create_dir_with(part, &change.modes.new_directory()) {
                // One that another process made meanwhile is taken.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error.into());
                }
                _ if change.durable => sync_directory(&dir)?,
                _ => {}
            }
            dir = dir.open_dir_nofollow(part).map_err(no_link)?;
        }
        Ok(dir)
    }
}

/// Opens an existing file for writing, without truncating it. `None` if there is no such file.
pub(super) fn to_write(dir: &Dir, leaf: &str) -> Result<Option<Existing>, FolderFailure> {
    let existing = existing(dir, leaf, OpenOptions::new().write(true))?;
    existing.as_ref().map_or(Ok(()), Existing::refuse_hard_link)?;
    Ok(existing)
}

impl Existing {
    /// Refuses a file with a second name, which may be outside the folder.
    pub(super) fn refuse_hard_link(&self) -> Result<(), FolderFailure> {
        if self.metadata.nlink() > 1 { Err(FolderFailure::HardLink) } else { Ok(()) }
    }
}

/// Opens an existing regular file, and follows no link. `None` if there is none.
pub(super) fn existing(
    dir: &Dir,
    leaf: &str,
    options: &mut OpenOptions,
) -> Result<Option<Existing>, FolderFailure> {
    match dir.symlink_metadata(leaf) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        // Opening a device or a pipe can have side effects.
        Ok(metadata) => require_plain(&metadata)?,
    }
    // A pipe that came there since the check would block the open.
    options.nonblock(true).follow(FollowSymlinks::No);
    let file = dir.open_with(leaf, options).map_err(no_link)?;
    // Another process may have replaced the file between the check and the open.
    let metadata = file.metadata()?;
    require_plain(&metadata)?;
    Ok(Some(Existing { file, metadata }))
}

pub(super) fn perform(
    dir: &Dir,
    leaf: &str,
    existing: Option<Existing>,
    change: &FileChange<'_>,
    new: u64,
) -> Result<(), FolderFailure> {
    if change.offset == 0 && change.truncate {
        return replace(dir, leaf, existing.map(|existing| existing.metadata), change);
    }
    let (file, is_changed) = match existing {
        Some(Existing { file, metadata }) => {
            let is_changed = change.modes.set(&file, &metadata)?;
            (file, is_changed)
        }
        None => (dir.open_with(leaf, &change.modes.new_file()).map_err(no_link)?, true),
    };
    write_at(&file, change.offset, change.bytes)?;
    if change.truncate {
        file.set_len(new)?;
    }
    if change.durable {
        // `sync_data` does not cover permissions.
        if is_changed {
            file.sync_all()?
        } else {
            file.sync_data()?
        }
        // Even for an existing file: a host that stopped may have created it without syncing its
        // name.
        sync_directory(dir)?;
    }
    Ok(())
}

/// Replaces a file atomically: readers see the old one or the new one. A link that another process
/// put there meanwhile is replaced, not followed.
fn replace(
    dir: &Dir,
    leaf: &str,
    old: Option<Metadata>,
    change: &FileChange<'_>,
) -> Result<(), FolderFailure> {
    let name = unfinished()?;
    let file = dir.open_with(&name, &change.modes.new_file())?;
    let written = write_at(&file, 0, change.bytes)
        .and_then(|()| old.map_or(Ok(false), |old| change.modes.set(&file, &old)));
    // The bytes go to disk before the name. Otherwise a power cut could leave an empty file in
    // place of the old one.
    let written = written.and_then(|_| if change.durable { file.sync_all() } else { Ok(()) });
    let result = written.and_then(|()| dir.rename(&name, dir, leaf));
    if result.is_err() {
        // Best effort: a leftover file conflicts with nothing, and counts against the quota.
        let _ = dir.remove_file(&name);
    }
    result?;
    if change.durable {
        sync_directory(dir)?;
    }
    Ok(())
}

/// Makes the bytes of a file durable. Some systems only sync files that are open for writing, and
/// some files can only be read.
fn sync_file(dir: &Dir, leaf: &str) -> io::Result<()> {
    let open = |options: &mut OpenOptions| {
        dir.open_with(leaf, options.nonblock(true).follow(FollowSymlinks::No))
    };
    let file =
        open(OpenOptions::new().write(true)).or_else(|_| open(OpenOptions::new().read(true)))?;
    // Another process may have replaced the file between the check and the open.
    if file.metadata()?.is_file() { file.sync_all() } else { Ok(()) }
}

/// Ignores the errors of files that this host may not open: it cannot have written them.
fn allowed(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error)
            if [io::ErrorKind::PermissionDenied, io::ErrorKind::NotFound]
                .contains(&error.kind()) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Makes the names in a directory durable.
#[cfg(unix)]
pub(super) fn sync_directory(dir: &Dir) -> io::Result<()> {
    // The handle may be a path-only one (`O_PATH`), which cannot be synced.
    dir.open(".")?.sync_all()
}

#[cfg(not(unix))]
pub(super) fn sync_directory(_: &Dir) -> io::Result<()> {
    Ok(())
}

fn unfinished() -> Result<String, FolderFailure> {
    let number = getrandom::u64()
        .map_err(|error| FolderFailure::Other(io::Error::other(error.to_string())))?;
    Ok(format!("{UNFINISHED}{number:016x}"))
}

pub(super) fn write_at(file: &File, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    use io::{Seek, SeekFrom, Write};

    let mut file = file;
    if bytes.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::Start(offset))?;
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl FileModes {
    /// The options for a new file: no link. The system takes the process's umask off.
    pub(super) fn new_file(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        #[cfg(unix)]
        cap_std::fs::OpenOptionsExt::mode(
            &mut options,
            if self == Self::Person { 0o666 } else { 0o640 },
        );
        options
    }

    fn new_directory(self) -> DirBuilder {
        #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has a mode to set"))]
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        cap_std::fs::DirBuilderExt::mode(
            &mut builder,
            if self == Self::Person { 0o777 } else { 0o750 },
        );
        builder
    }

    /// Copies the permissions of the old file. Returns whether the mode changed.
    #[cfg(unix)]
    fn set(self, file: &File, old: &Metadata) -> io::Result<bool> {
        use cap_std::fs::{Permissions, PermissionsExt};

        let mask = if self == Self::Person { 0o777 } else { 0o666 };
        let mode = old.permissions().mode() & mask;
        if file.metadata()?.permissions().mode() & 0o7777 == mode {
            return Ok(false);
        }
        file.set_permissions(Permissions::from_mode(mode)).map(|()| true)
    }

    #[cfg(not(unix))]
    fn set(self, _: &File, _: &Metadata) -> io::Result<bool> {
        Ok(false)
    }
}

/// Refuses links, devices and other non-regular files.
fn require_plain(metadata: &Metadata) -> Result<(), FolderFailure> {
    match metadata.file_type() {
        kind if kind.is_symlink() => Err(FolderFailure::Link),
        kind if kind.is_file() => Ok(()),
        _ => Err(FolderFailure::NotAFile),
    }
}

/// Maps the error of opening a link without following it.
fn no_link(error: io::Error) -> FolderFailure {
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return FolderFailure::Link;
    }
    error.into()
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
