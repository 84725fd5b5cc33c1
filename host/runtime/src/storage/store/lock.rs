//! The lock of a store's writer: a file that its process keeps locked while it lives, so a crash
//! releases it. The file's content is informative only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conclave_core::types::text::cut_chars;

/// The name of the lock file in the store's folder.
const NAME: &str = "lock";
/// The number of attempts: a reader that checks for a writer holds the lock for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);
/// The maximum number of characters shown of a command line.
const SHOWN: usize = 160;

/// The lock of a store; dropping it releases the lock.
pub(super) struct StoreLock(File);

/// The reason why there is no lock.
pub(super) enum NotLocked {
    /// Another process has the lock; the text describes the process.
    InUse(String),
    Failed(io::Error),
}

impl StoreLock {
    /// Takes the lock of a store.
    pub(super) fn take(folder: &Path) -> Result<Self, NotLocked> {
        let mut file = open(folder).map_err(NotLocked::Failed)?;
        for retries in (0..TRIES).rev() {
            match file.try_lock() {
                Ok(()) => {
                    // The content describes the holder for error messages; the lock does not depend
                    // on it.
                    let _ = write(&mut file);
                    return Ok(Self(file));
                }
                Err(TryLockError::WouldBlock) if retries > 0 => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Err(NotLocked::InUse(who(&mut file))),
                Err(TryLockError::Error(error)) => return Err(NotLocked::Failed(error)),
            }
        }
        Err(NotLocked::InUse(who(&mut file)))
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

/// Whether a process, this one included, writes to the store now.
pub(super) fn is_held(folder: &Path) -> bool {
    let Ok(file) = File::open(path(folder)) else { return false };
    // A shared lock, so that readers do not mistake each other for writers. Closing the file
    // releases it.
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

fn open(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path(folder))
}

fn write(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn who(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.take(1 << 10).read_to_end(&mut bytes));
    let Ok(process) = String::from_utf8_lossy(&bytes).trim().parse::<u32>() else {
        return "another process".to_owned();
    };
    match command(process) {
        Some(command) => format!("process {process} ({command})"),
        None => format!("process {process}"),
    }
}

/// The command line of a process, where the operating system shows it.
fn command(process: u32) -> Option<String> {
    let parts = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let parts: Vec<_> = parts
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    (!parts.is_empty()).then(|| plain(&parts.join(" ")))
}

/// The text as one line of limited length without control characters, which is safe for terminals.
fn plain(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(SHOWN + 40)
        .collect();
    cut_chars(&plain, SHOWN).into_owned()
}
