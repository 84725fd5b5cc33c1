//! A granted folder: a directory handle, opened once when the host starts, and what can be read below it. The handle is the authority;
//! nothing here knows an absolute path any more, and a link that leads outside is refused by the operating system (`RESOLVE_BENEATH`).

use std::collections::BTreeMap;
use std::io;

use cap_fs_ext::OpenOptionsSyncExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, FileExt, Metadata, OpenOptions};
use conclave_core::grant::FileGrant;
use conclave_core::ids::PluginName;

/// A folder that was granted cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("plugins.{plugin}.grants.files: {shown} cannot be opened: {cause}")]
pub struct FolderError {
    plugin: PluginName,
    /// As the operator wrote it.
    shown: String,
    cause: io::Error,
}

/// One granted folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// As the plugin names it: `/folder`.
    pub(crate) at: String,
    dir: Dir,
}

/// Why something below a folder cannot be read.
#[derive(Debug)]
pub(crate) enum Trouble {
    NotFound,
    NotAFile,
    NotADirectory,
    /// A link on the way leads out of the folder.
    LeadsOutside,
    /// The host's own user may not read it.
    Forbidden,
    /// More entries than may be looked at.
    TooMany,
    Other(io::Error),
}

/// A file or a directory in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_directory: bool,
    pub(crate) length: u64,
}

impl Folder {
    /// Opens the directory of a grant.
    pub(crate) fn open(plugin: &PluginName, grant: &FileGrant) -> Result<Self, FolderError> {
        let failed = |cause| FolderError { plugin: plugin.clone(), shown: grant.shown.clone(), cause };
        let dir = Dir::open_ambient_dir(&grant.dir, ambient_authority()).map_err(failed)?;
        Ok(Self { at: grant.at.clone(), dir })
    }

    /// Opens a file for reading; `rest` is a path below the folder.
    ///
    /// Looks first, because opening a device can do something, and never waits for the other end of a pipe.
    pub(crate) fn open_file(&self, rest: &str) -> Result<File, Trouble> {
        if rest.is_empty() {
            return Err(Trouble::NotAFile);
        }
        require_file(&self.dir.metadata(rest)?)?;
        let mut options = OpenOptions::new();
        options.read(true).nonblock(true);
        let file = self.dir.open_with(rest, &options)?;
        // It may have been exchanged for something else in between.
        require_file(&file.metadata()?)?;
        Ok(file)
    }

    /// The first `count` entries after `after`, in byte order of their names, and how many were looked at: all that are there, `most` at most.
    pub(crate) fn entries(&self, rest: &str, after: Option<&str>, count: usize, most: u64) -> Result<(Vec<Entry>, u64), Trouble> {
        let dir = match rest {
            "" => self.dir.try_clone()?,
            rest if !self.dir.metadata(rest)?.is_dir() => return Err(Trouble::NotADirectory),
            rest => self.dir.open_dir(rest)?,
        };
        let mut first: BTreeMap<String, Entry> = BTreeMap::new();
        let mut seen = 0;
        for item in dir.entries()? {
            seen += 1;
            if seen > most {
                return Err(Trouble::TooMany);
            }
            // A name that is no text cannot be told to a plugin.
            let Ok(name) = item?.file_name().into_string() else { continue };
            let wanted = after.is_none_or(|after| name.as_str() > after);
            let beyond = first.len() == count && first.last_key_value().is_none_or(|(last, _)| name > *last);
            if !wanted || beyond {
                continue;
            }
            if let Some(entry) = entry(&dir, &name) {
                first.insert(name, entry);
                if first.len() > count {
                    first.pop_last();
                }
            }
        }
        Ok((first.into_values().collect(), seen))
    }
}

/// At most `length` bytes from `offset`; empty past the end.
pub(crate) fn read_at(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Trouble> {
    // A buffer no larger than the file: a guest may ask for four gigabytes of a small one.
    let left = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
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

/// What a name stands for. A link counts as what it leads to, unless that is outside or nowhere.
fn entry(dir: &Dir, name: &str) -> Option<Entry> {
    let metadata = dir.metadata(name).ok()?;
    let is_directory = metadata.is_dir();
    let length = if is_directory { 0 } else { metadata.len() };
    (is_directory || metadata.is_file()).then(|| Entry { name: name.to_owned(), is_directory, length })
}

fn require_file(metadata: &Metadata) -> Result<(), Trouble> {
    if metadata.is_file() { Ok(()) } else { Err(Trouble::NotAFile) }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::NotADirectory => Self::NotADirectory,
            io::ErrorKind::IsADirectory => Self::NotAFile,
            // cap-std's own refusal carries no error number; the operating system's does.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::LeadsOutside,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => Self::Other(error),
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use conclave_core::grant::FileMode;
    use tempfile::TempDir;

    use super::*;

    /// A folder with files and links, and a neighbour that must stay out of reach.
    fn folder() -> (TempDir, Folder) {
        let temp = tempfile::tempdir().unwrap();
        let (inside, outside) = (temp.path().join("inside"), temp.path().join("outside"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("key"), "secret").unwrap();
        fs::write(inside.join("b.txt"), "0123456789").unwrap();
        fs::write(inside.join("a.txt"), "a").unwrap();
        symlink("b.txt", inside.join("to-b")).unwrap();
        symlink("../outside/key", inside.join("up")).unwrap();
        symlink(outside.join("key"), inside.join("absolute")).unwrap();
        symlink("../outside", inside.join("updir")).unwrap();
        symlink("nowhere", inside.join("dangling")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        let grant =
            FileGrant { dir: inside.to_str().unwrap().to_owned(), shown: "inside".to_owned(), at: "/f".to_owned(), mode: FileMode::Read, bytes: 0, files: 0 };
        let folder = Folder::open(&PluginName::from("p"), &grant).unwrap();
        (temp, folder)
    }

    fn read(folder: &Folder, rest: &str) -> Result<Vec<u8>, Trouble> {
        read_at(&folder.open_file(rest)?, 0, 100)
    }

    #[test]
    fn a_file_is_read_in_pieces() {
        let (_temp, folder) = folder();
        let file = folder.open_file("b.txt").unwrap();
        assert_eq!(read_at(&file, 0, 4).unwrap(), b"0123");
        assert_eq!(read_at(&file, 8, usize::MAX).unwrap(), b"89");
        assert_eq!(read_at(&file, 10, 4).unwrap(), b"");
        assert_eq!(read_at(&file, u64::MAX, 4).unwrap(), b"");
    }

    #[test]
    fn links_are_followed_inside_and_refused_outside() {
        let (_temp, folder) = folder();
        assert_eq!(read(&folder, "to-b").unwrap(), b"0123456789");
        for rest in ["up", "absolute", "updir/key"] {
            assert!(matches!(read(&folder, rest), Err(Trouble::LeadsOutside)), "{rest}: {:?}", read(&folder, rest));
        }
        assert!(matches!(read(&folder, "dangling"), Err(Trouble::NotFound)));
        assert!(read(&folder, "loop").is_err());
    }

    /// The lexical wall stands before this one; this one must hold by itself.
    #[test]
    fn climbing_is_refused_by_the_handle_too() {
        let (_temp, folder) = folder();
        for rest in ["../outside/key", "sub/../../outside/key", "/etc/passwd"] {
            assert!(matches!(read(&folder, rest), Err(Trouble::LeadsOutside)), "{rest}: {:?}", read(&folder, rest));
        }
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let (temp, folder) = folder();
        let fifo = temp.path().join("inside/pipe");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for rest in ["", "sub", "pipe"] {
            assert!(matches!(read(&folder, rest), Err(Trouble::NotAFile)), "{rest}");
        }
        assert!(matches!(read(&folder, "b.txt/x"), Err(Trouble::NotADirectory)));
        assert!(matches!(read(&folder, "missing"), Err(Trouble::NotFound)));
    }

    #[test]
    fn entries_come_in_order_and_in_pages_without_what_leads_outside() {
        let (temp, folder) = folder();
        std::process::Command::new("mkfifo").arg(temp.path().join("inside/pipe")).status().unwrap();
        let names = |after, count| -> Vec<String> {
            folder.entries("", after, count, 100).unwrap().0.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(None, 100), ["a.txt", "b.txt", "sub", "to-b"]);
        assert_eq!(names(None, 2), ["a.txt", "b.txt"]);
        assert_eq!(names(Some("b.txt"), 1), ["sub"]);
        assert_eq!(names(Some("to-b"), 5), [""; 0]);
        assert_eq!(names(None, 0), [""; 0]);
        assert!(matches!(folder.entries("a.txt", None, 1, 100), Err(Trouble::NotADirectory)));
        assert!(matches!(folder.entries("updir", None, 1, 100), Err(Trouble::LeadsOutside)));
    }

    #[test]
    fn every_entry_that_is_looked_at_counts() {
        let (_temp, folder) = folder();
        let (entries, seen) = folder.entries("", None, 1, 100).unwrap();
        assert_eq!((entries.len(), seen), (1, 9), "those that are not given, too");
        assert!(folder.entries("", None, 1, 9).is_ok());
        assert!(matches!(folder.entries("", None, 1, 8), Err(Trouble::TooMany)));
    }

    #[test]
    fn a_folder_that_is_missing_is_told_as_the_operator_wrote_it() {
        let grant = FileGrant { dir: "/no/such".to_owned(), shown: "such".to_owned(), at: "/f".to_owned(), mode: FileMode::Read, bytes: 0, files: 0 };
        let error = Folder::open(&PluginName::from("notes"), &grant).unwrap_err().to_string();
        assert!(error.starts_with("plugins.notes.grants.files: such cannot be opened: "), "{error}");
    }
}
