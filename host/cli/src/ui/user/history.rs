//! The history of messages across conversations: a file of bounded size that only its owner can
//! read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use reedline::FileBackedHistory;

/// Messages in the history.
const MESSAGES: usize = 1_000;
/// The size in bytes above which a file loses its older half. Messages can be long.
const BYTES: u64 = 1 << 20;

/// The history in this file. It is in memory only without a file, or if the file is unusable.
pub(super) fn history(file: Option<PathBuf>) -> Option<FileBackedHistory> {
    let file_history = file.and_then(|file| {
        prepare(&file).ok()?;
        FileBackedHistory::with_file(MESSAGES, file).ok()
    });
    file_history.or_else(|| FileBackedHistory::new(MESSAGES).ok())
}

/// Creates the file and its folder, readable by their owner only.
fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    shrink(&mut file)
}

fn shrink(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length <= BYTES {
        return Ok(());
    }
    file.seek(SeekFrom::Start(length - BYTES / 2))?;
    let mut newer = Vec::new();
    file.read_to_end(&mut newer)?;
    // The first line was most likely cut in two.
    let line_start =
        newer.iter().position(|byte| *byte == b'\n').map_or(newer.len(), |end| end + 1);
    file.rewind()?;
    file.write_all(&newer[line_start..])?;
    file.set_len((newer.len() - line_start) as u64)
}

#[cfg(test)]
mod tests {
    use super::{BYTES, prepare};

    #[test]
    fn the_history_file_is_private_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/chat-history");
        prepare(&path).unwrap();
        let line = format!("{}\n", "x".repeat(99));
        std::fs::write(&path, line.repeat(20_000)).unwrap();
        prepare(&path).unwrap();
        let contents = std::fs::read_to_string(&path).unwrap();
        assert!(
            contents.len() as u64 <= BYTES / 2 && contents.len() as u64 > BYTES / 2 - 200,
            "{}",
            contents.len()
        );
        assert!(contents.lines().all(|line| line.len() == 99));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
