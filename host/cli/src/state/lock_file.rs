//! The lock file on disk: read whole, and written atomically unless it has changed since it was
//! read.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use conclave_core::config::lockfile::Lockfile;
use conclave_core::types::text::show_size;
use conclave_runtime::lock_of;

use crate::program::error::CliError;
use crate::program::shell::file_option;
use crate::state::config_file::{create, replace};
use crate::ui::show::{show_path, unwritten};

/// Bytes of a lock file, at most: far more than any real one has.
const FILE_BYTES: u64 = 64 << 20;

/// The lock of a config, as it was read.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    config: PathBuf,
    text: Option<String>,
    /// The lock, or `None` if the file does not exist.
    pub(crate) lock: Option<Lockfile>,
}

impl LockFile {
    /// Reads the lock beside a config.
    ///
    /// # Errors
    /// If the file exists and cannot be read: an unreadable lock must not count as a missing one.
    pub(crate) fn open(config: &Path) -> Result<Self, CliError> {
        let path = lock_of(config);
        let failed = |what: String| {
            CliError::usage(what).hint("correct it; or delete it and run `conclave plugin lock`, which pins the plugins as they are now")
        };
        let text = match read(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(failed(format!("{} could not be read: {error}", show_path(&path))));
            }
        };
        let lock = text.as_deref().map(Lockfile::parse).transpose();
        let lock = lock.map_err(|error| failed(format!("{}:{error}", show_path(&path))))?;
        Ok(Self { path, config: config.to_owned(), text, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// ` --file FILE` for a command, unless FILE is the default.
    pub(crate) fn option(&self) -> String {
        file_option(&self.config)
    }

    /// Replaces the lock.
    ///
    /// # Errors
    /// If the file has changed since it was read, or cannot be written. The old file is left in
    /// place.
    pub(crate) fn write(&self, lock: &Lockfile) -> Result<(), CliError> {
        if self.lock.as_ref() == Some(lock) {
            return Ok(());
        }
        if read(&self.path).ok() != self.text {
            let what = format!(
                "{} has changed since it was read; nothing was written",
                show_path(&self.path)
            );
            return Err(CliError::usage(what).hint("run the command again"));
        }
        let text = lock.to_string();
        let written = match (&self.text, fs::canonicalize(&self.path)) {
            (Some(_), Ok(target)) => replace(&target, &text),
            _ => create(&self.path, &text, false),
        };
        written.map_err(|error| unwritten(&self.path, &error))
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let metadata = match fs::metadata(path) {
        // A link is there on purpose: a missing target must not read as never pinned.
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
            return Err(std::io::Error::new(
                ErrorKind::InvalidInput,
                "it is a link to a file that does not exist",
            ));
        }
        metadata => metadata?,
    };
    if !metadata.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > FILE_BYTES {
        return Err(std::io::Error::new(
            ErrorKind::FileTooLarge,
            format!("it is larger than {}", show_size(FILE_BYTES)),
        ));
    }
    fs::read_to_string(path)
}
