//! Writes that survive a power cut. The bytes of a file are durable once the file is synced, and
//! its name once the folder is. The functions here do both; the contents are up to the callers.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The access rights of a new file.
#[derive(Clone, Debug, Default)]
pub enum FileAccess {
    /// The default of the process's umask.
    #[default]
    Usual,
    /// Access for the owner alone.
    Private,
    /// The permissions of another file.
    Like(Permissions),
}

/// Writes a whole file, replacing an existing one atomically. After a crash the old or the new file
/// is there; after `Ok` it is the new one.
///
/// # Errors
/// Returns the operating system's error. The old file is unchanged then, unless only the sync of
/// the folder failed.
pub fn replace(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    draft_of(path, bytes, access)?.publish()
}

/// The whole content of a file under another name beside it. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    draft: PathBuf,
    path: &'a Path,
}

/// Writes and syncs the content of a file under another name beside it.
///
/// # Errors
/// Returns the operating system's error.
pub(crate) fn draft_of<'a>(
    path: &'a Path,
    bytes: &[u8],
    access: &FileAccess,
) -> io::Result<Draft<'a>> {
    let draft = Draft { draft: draft_name(path)?, path };
    write_new(&draft.draft, bytes, access)?;
    Ok(draft)
}

impl Draft<'_> {
    /// Puts it in the place of the file, and makes the name durable.
    ///
    /// # Errors
    /// As [`replace`].
    pub(crate) fn publish(self) -> io::Result<()> {
        std::fs::rename(&self.draft, self.path)?;
        sync_folder(folder_of(self.path))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Nothing is there once it has its place.
        let _ = std::fs::remove_file(&self.draft);
    }
}

/// Writes a new file, which is durable after `Ok`. A crash before that may leave a partial file.
///
/// # Errors
/// `AlreadyExists`, or the operating system's error. A partial file is removed.
pub fn create(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    match write_new(path, bytes, access) {
        Ok(()) => sync_folder(folder_of(path)),
        Err(error) => {
            // An existing file belongs to another writer.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
    }
}

/// Opens a file of this program's own folders for reading. What is in its place instead, such as a
/// link that leads elsewhere or a pipe that nobody writes, is an error and never waited for.
///
/// # Errors
/// `InvalidData` if it is no regular file, or the operating system's error.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags);
    }
    let is_link = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|file| file.is_symlink());
    let not_regular = || {
        let what = format!("{} is not a regular file", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    match options.open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Err(error) if !is_link(path) => Err(error),
        _ => Err(not_regular()),
    }
}

/// Returns the content of a file of this program's own folders, as [`open_own`] opens it.
///
/// # Errors
/// As [`open_own`].
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a folder and its missing parents, with this mode on Unix. Existing folders keep their
/// mode.
///
/// # Errors
/// Returns the operating system's error.
pub fn make_folders(folder: &Path, mode: u32) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
        .collect();
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode);
    #[cfg(not(unix))]
    let _ = mode;
    for folder in missing.iter().rev() {
        match builder.create(folder) {
            // Another process created it meanwhile, and may not have synced it yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        // After each level: a child is only durable if its parent's name is.
        sync_folder(folder_of(folder))?;
    }
    if folder.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Makes the names in a folder durable, of new, renamed and removed files.
///
/// # Errors
/// Returns the operating system's error.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // On other systems a folder cannot be opened like a file, and the file system keeps its names
    // by itself.
    #[cfg(unix)]
    match File::open(folder) {
        // A folder can be writable but not readable. It cannot be synced then, so the file's own
        // sync must suffice.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        folder => folder?.sync_all()?,
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// The folder that contains a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_new(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // What is there already, such as a link, is not written through.
    options.write(true).create_new(true);
    #[cfg(unix)]
    if matches!(access, FileAccess::Private) {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut file = options.open(path)?;
    if let FileAccess::Like(permissions) = access {
        file.set_permissions(permissions.clone())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns an unused name in the folder of the file.
fn draft_name(path: &Path) -> io::Result<PathBuf> {
    let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{number:016x}.new")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a");
        replace(&path, b"old and longer", &FileAccess::Usual).unwrap();
        replace(&path, b"new", &FileAccess::Usual).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(temp.path()), ["a"]);
    }

    #[test]
    fn a_failed_replacement_leaves_the_old_file_and_no_draft() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a");
        // A file cannot replace a folder that is not empty.
        std::fs::create_dir_all(path.join("below")).unwrap();
        replace(&path, b"new", &FileAccess::Usual).unwrap_err();
        assert!(path.join("below").is_dir());
        assert_eq!(names(temp.path()), ["a"]);
    }

    #[test]
    fn what_is_there_is_not_created_again() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a");
        create(&path, b"one", &FileAccess::Private).unwrap();
        assert_eq!(
            create(&path, b"two", &FileAccess::Private).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
    }

    #[test]
    #[cfg(unix)]
    fn access_is_as_asked() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            std::fs::metadata(temp.path().join(name)).unwrap().permissions().mode() & 0o777
        };
        create(&temp.path().join("own"), b"", &FileAccess::Private).unwrap();
        replace(&temp.path().join("like"), b"", &FileAccess::Like(Permissions::from_mode(0o640)))
            .unwrap();
        make_folders(&temp.path().join("x/y"), 0o700).unwrap();
        assert_eq!(
            (mode("own"), mode("like"), mode("x"), mode("x/y")),
            (0o600, 0o640, 0o700, 0o700)
        );
    }

    #[test]
    fn folders_that_are_there_stay_and_a_file_in_the_way_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        make_folders(&temp.path().join("a/b"), 0o755).unwrap();
        make_folders(&temp.path().join("a/b"), 0o700).unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        make_folders(&temp.path().join("file"), 0o700).unwrap_err();
        make_folders(&temp.path().join("file/below"), 0o700).unwrap_err();
    }
}
