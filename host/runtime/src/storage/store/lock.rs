//! Who writes a store: a file that its process holds locked for as long as it lives, however it
//! ends. What stands in the file is only for people.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its name in the store's folder.
const NAME: &str = "lock";
/// A reader that looks whether somebody writes holds the lock for a moment: so often is it tried
/// again.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);
/// Characters of a command line that are shown.
const SHOWN: usize = 160;

/// Held for as long as it is not dropped.
pub(super) struct StoreLock(File);

/// Why there is no lock.
pub(super) enum NotLocked {
    /// In words: who has it.
    InUse(String),
    Failed(io::Error),
}

impl StoreLock {
    /// Takes the lock of a store.
    pub(super) fn take(folder: &Path) -> Result<Self, NotLocked> {
        let mut file = open(folder).map_err(NotLocked::Failed)?;
        for again in (0..TRIES).rev() {
            match file.try_lock() {
                Ok(()) => {
                    // Who holds it is told as well as it can be; the lock does not depend on it.
                    let _ = write(&mut file);
                    return Ok(Self(file));
                }
                Err(TryLockError::WouldBlock) if again > 0 => std::thread::sleep(PAUSE),
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

/// A process, this one included, writes to the store now.
pub(super) fn is_held(folder: &Path) -> bool {
    let Ok(file) = File::open(path(folder)) else { return false };
    // Shared, so that readers do not take each other for writers; closing the file lets it go.
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

/// What a process was started with, where the operating system shows it.
fn command(process: u32) -> Option<String> {
    let parts = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let parts: Vec<_> = parts
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    (!parts.is_empty()).then(|| plain(&parts.join(" ")))
}

/// One line, not too long, that no terminal takes for anything but text.
fn plain(text: &str) -> String {
    let shown: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(SHOWN + 40)
        .collect();
    match shown.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}
