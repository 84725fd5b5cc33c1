//! Files that are there after a power cut. A file's bytes are durable once the file is synced, its
//! name once the folder is: what is reported as written goes through here, so that neither is
//! forgotten. Knows nothing of what the files hold.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Who may read a new file.
#[derive(Clone, Debug, Default)]
pub enum FileAccess {
    /// Whoever the process's umask lets.
    #[default]
    Usual,
    /// Its owner alone.
    Private,
    /// As another file has it.
    Like(Permissions),
}

/// Writes a whole file in the place of an old one or of none. A crash leaves the old file or the
/// new one; after `Ok` it is the new one.
///
/// # Errors
/// Returns what the operating system says. The old file is there then, unless only the sync of the
/// folder failed.
pub fn replace(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    let draft = draft(path)?;
    let written = write_new(&draft, bytes, access).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written?;
    sync_folder(folder_of(path))
}

/// Writes a new file; after `Ok` it is there for good. A crash in between may leave a part of it.
///
/// # Errors
/// `AlreadyExists`, and what the operating system says. What was written in part is removed.
pub fn create(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    match write_new(path, bytes, access) {
        Ok(()) => sync_folder(folder_of(path)),
        Err(error) => {
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = std::fs::remove_file(path);
            }
            Err(error)
        }
    }
}

/// Makes a folder and what is missing above it, with this mode on Unix. One that is there stays as
/// it is.
///
/// # Errors
/// What the operating system says.
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
            // Somebody else has made it meanwhile, and may not have come to the sync.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        sync_folder(folder_of(folder))?;
    }
    if folder.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Makes the names in a folder durable: of new, renamed and removed files.
///
/// # Errors
/// What the operating system says.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened like a file, and the file system keeps its names by
    // itself.
    #[cfg(unix)]
    match File::open(folder) {
        // One may write into it and not read it: then it cannot be synced, and a file's own sync
        // has to do.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        folder => folder?.sync_all()?,
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// The folder that holds the name of a file.
#[must_use]
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_new(path: &Path, bytes: &[u8], access: &FileAccess) -> io::Result<()> {
    let mut options = OpenOptions::new();
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

/// A name beside the file that nobody else uses.
fn draft(path: &Path) -> io::Result<PathBuf> {
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
        // A folder with something in it cannot be replaced by a file.
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
