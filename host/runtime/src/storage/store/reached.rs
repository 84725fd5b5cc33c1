//! How far the log reaches: the newest line of the audit chain that was acknowledged as durable, in
//! a file of its own beside the log. SQLite takes a write-ahead log that was cut off at a commit,
//! or removed, for one in which nothing more was written.
//!
//! The line is written after the commit that made it durable has returned, and never for one
//! without an fsync. It is not synced itself, but for the last one of a process: after a power cut
//! it may be behind the log, or missing, and is never ahead of it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension};

use super::chain::{ChainHead, hex};
use super::{StoreError, schema};
use crate::support::digest::sha256;

/// Its name in the store's folder.
const NAME: &str = "reached";
/// What it begins with: its format.
const FORMAT: &str = "1";
/// Longer than any line; it stays within a sector, so that it is written whole or not at all.
const MOST: u64 = 256;

/// The file, held open by the process that writes the store; without one nothing is noted.
#[derive(Default)]
pub(super) struct ReachedFile {
    file: Option<File>,
    noted: u64,
}

impl ReachedFile {
    pub(super) fn open(folder: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // Where it cannot be made, as on a full disk, what is kept is as safe as without it.
        Self { file: options.open(path(folder)).ok(), noted: 0 }
    }

    /// Notes a line that an fsync has made durable.
    pub(super) fn note(&mut self, head: &ChainHead) {
        let Some(file) = self.file.as_mut().filter(|_| head.number != self.noted) else { return };
        // One write of always the same length: the file does not grow, so a full disk does not stop
        // it.
        if file.rewind().and_then(|()| file.write_all(line(head).as_bytes())).is_ok() {
            self.noted = head.number;
        }
    }

    /// Makes the last note of this process durable too.
    pub(super) fn sync(&self) {
        if let Some(file) = &self.file {
            let _ = file.sync_all();
        }
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

fn line(head: &ChainHead) -> String {
    let text = format!("{FORMAT} {:020} {}", head.number, hex(&head.hash));
    let sum = &sha256(text.as_bytes())[..16];
    format!("{text} {sum}\n")
}

/// Returns the line that was noted; `None` where there is no file, or no whole line in it.
pub(super) fn read(folder: &Path) -> Option<ReachedLine> {
    let mut text = String::new();
    File::open(path(folder)).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    let (line, sum) = text.trim_end().rsplit_once(' ')?;
    let mut parts = line.split(' ');
    let (format, number, hash) =
        (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.to_owned());
    let is_whole = format == FORMAT && number > 0 && sha256(line.as_bytes()).get(..16) == Some(sum);
    is_whole.then_some(ReachedLine { number, hash })
}

/// A line of the audit chain that the log must hold.
pub(super) struct ReachedLine {
    number: u64,
    /// Lower-case hexadecimal.
    hash: String,
}

impl ReachedLine {
    /// Returns the damage where the log does not hold this line.
    pub(super) fn lacking(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let number = self.number;
        if schema::version(connection)? == 0 {
            return Ok(Some(self.emptied()));
        }
        let found = connection.query_row(
            "SELECT hash FROM audit WHERE number = ?",
            [number.cast_signed()],
            |row| row.get::<_, Vec<u8>>(0),
        );
        match found.optional()? {
            Some(hash) if hex(&hash) == self.hash => Ok(None),
            Some(_) => Ok(Some(format!(
                "line {number} of its audit chain is not the one that was acknowledged"
            ))),
            None => {
                let last: i64 = connection.query_row(
                    "SELECT coalesce(max(number), 0) FROM audit",
                    [],
                    |row| row.get(0),
                )?;
                Ok(Some(format!(
                    "its audit chain ends at line {last}, and line {number} was acknowledged: log.db-wal was cut off or removed, \
                     or a file was replaced by an older one"
                )))
            }
        }
    }

    /// The damage of a log in which nothing is.
    pub(super) fn emptied(&self) -> String {
        format!(
            "log.db is empty or gone, and line {} of its audit chain was acknowledged",
            self.number
        )
    }
}

/// Holds a log that nobody writes against what was noted, without writing to it.
///
/// # Errors
/// `Damaged`, or what SQLite says.
pub(super) fn check(folder: &Path) -> Result<(), StoreError> {
    let damaged = |what: String| StoreError::Damaged { folder: folder.to_owned(), what };
    if is_empty(folder) {
        return emptied(folder).map_or(Ok(()), Err);
    }
    let Some(noted) = read(folder) else { return Ok(()) };
    let failed = |error: rusqlite::Error| schema::failed(folder, &error);
    let connection = schema::look(folder).map_err(failed)?;
    // A newer host says more about its format than about this.
    schema::known(folder, &connection)?;
    noted.lacking(&connection).map_err(failed)?.map_or(Ok(()), |what| Err(damaged(what)))
}

/// Returns the damage of a log that is empty or gone although something was noted, or stands in the
/// log beside it: SQLite would remove that.
pub(super) fn emptied(folder: &Path) -> Option<StoreError> {
    let has_log = std::fs::metadata(schema::wal(folder)).is_ok_and(|log| log.len() > 0);
    let what = match read(folder) {
        Some(noted) => noted.emptied(),
        None if has_log => "log.db is empty or gone, and log.db-wal is not".to_owned(),
        None => return None,
    };
    Some(StoreError::Damaged { folder: folder.to_owned(), what })
}

/// Returns whether there is a note, and so was a log.
pub(super) fn is_noted(folder: &Path) -> bool {
    path(folder).is_file()
}

/// Nothing is in the log, or it is gone. Opening it would be the first change.
pub(super) fn is_empty(folder: &Path) -> bool {
    std::fs::metadata(schema::path(folder)).map_or(true, |log| log.len() == 0)
}
