//! A file beside the log with the newest line of the audit chain that was acknowledged as durable.
//! Without it a write-ahead log that was truncated at a commit, or removed, would look like one
//! without further commits.
//!
//! The line is written after the commit that made it durable has returned, and never for a commit
//! without an fsync. Only the last line of a process is synced. After a power cut the file may be
//! behind the log or missing, but it is never ahead of the log.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::chain::{ChainHead, hex};
use super::sql::{Sql, SqlError, SqlResult};
use super::{StoreError, schema, wal};
use crate::support::digest::sha256;

/// The name of the file in the store's folder.
const NAME: &str = "reached";
/// The format version, which begins the line.
const FORMAT: &str = "1";
/// The maximum length in bytes. It is below the size of a sector, so the line is written
/// atomically.
const LINE_BYTES: u64 = 256;

/// The file, held open by the writing process. `None` if it cannot be created; then no line is
/// noted.
#[derive(Default)]
pub(super) struct ReachedFile {
    file: Option<File>,
    length: u64,
}

impl ReachedFile {
    pub(super) fn open(folder: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // If the file cannot be created, as on a full disk, the log is as safe as without it.
        Self { file: options.open(path(folder)).ok(), length: 0 }
    }

    /// Notes a line that an fsync has made durable.
    pub(super) fn note(&mut self, head: &ChainHead) {
        let Some(file) = self.file.as_mut().filter(|_| head.number != self.length) else { return };
        // One write of constant length: the file does not grow, so a full disk does not stop it.
        if file.rewind().and_then(|()| file.write_all(line(head).as_bytes())).is_ok() {
            self.length = head.number;
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

/// The noted line; `None` if there is no file, or no complete line in it.
pub(super) fn read(folder: &Path) -> Option<ReachedLine> {
    let mut text = String::new();
    File::open(path(folder)).ok()?.take(LINE_BYTES).read_to_string(&mut text).ok()?;
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
    /// The line's hash in lower-case hexadecimal.
    hash: String,
}

impl ReachedLine {
    /// Returns the damage if the log does not hold this line.
    pub(super) fn lacking(&self, tables: &dyn Sql) -> SqlResult<Option<String>> {
        let number = self.number;
        let hash = "SELECT hash FROM audit WHERE number = ?1";
        match tables.first(hash, &[number.into()], |row| row.bytes(0).map(hex))? {
            Some(hash) if hash == self.hash => Ok(None),
            Some(_) => Ok(Some(format!(
                "line {number} of its audit chain is not the one that was acknowledged"
            ))),
            None => {
                let last = "SELECT max(number) FROM audit";
                let last = tables.first(last, &[], |row| row.get::<Option<i64>>(0))?;
                let last = last.flatten().unwrap_or(0);
                Ok(Some(format!(
                    "its audit chain ends at line {last}, and line {number} was acknowledged: log.db-wal was cut off or removed, \
                     or a file was replaced by an older one"
                )))
            }
        }
    }

    /// The description of the damage of an empty log.
    pub(super) fn describe_lost_log(&self) -> String {
        format!(
            "log.db is empty or gone, and line {} of its audit chain was acknowledged",
            self.number
        )
    }
}

/// Checks a log without a writer against the noted line, without writing to it.
///
/// # Errors
/// `Damaged`, or `Other` for an error of SQLite.
pub(super) fn check(folder: &Path) -> Result<(), StoreError> {
    let damaged = |what: String| StoreError::Damaged { store: folder.into(), what };
    if is_empty(folder) {
        return damage_of_lost_log(folder).map_or(Ok(()), Err);
    }
    let Some(reached) = read(folder) else { return Ok(()) };
    let failed = |error: SqlError| error.of(folder);
    let connection = schema::look(folder).map_err(SqlError::from).map_err(failed)?;
    // Checked first: for a newer format, `Newer` is the better error.
    let lacking = match schema::known(folder, &connection)? {
        0 => Some(reached.describe_lost_log()),
        _ => reached.lacking(&connection).map_err(failed)?,
    };
    lacking.map_or(Ok(()), |what| Err(damaged(what)))
}

/// The damage of a log that is empty or gone, if a line was noted or a write-ahead log remains;
/// `None` if there never was a log.
pub(super) fn damage_of_lost_log(folder: &Path) -> Option<StoreError> {
    let has_wal = std::fs::metadata(schema::wal(folder)).is_ok_and(|wal| wal.len() > 0);
    let what = match read(folder) {
        Some(reached) => reached.describe_lost_log(),
        // SQLite would delete that write-ahead log.
        None if has_wal => "log.db is empty or gone, and log.db-wal is not".to_owned(),
        None => return None,
    };
    Some(StoreError::Damaged { store: folder.into(), what })
}

/// The damage of a log without tables although a line was noted, or commits of its write-ahead log
/// are not read.
pub(super) fn untabled(folder: &Path) -> Option<StoreError> {
    let wal = schema::wal(folder);
    let reached = read(folder).map(|reached| reached.describe_lost_log());
    let damage = || match wal::lost_commits(&wal) {
        Ok(0) | Err(_) => None,
        Ok(commits) => Some(wal::damage(commits)),
    };
    let header = || {
        wal::has_invalid_header(&wal).then(|| {
            "the header of its write-ahead log (log.db-wal) is changed, so no commit in it is read"
                .to_owned()
        })
    };
    let what = reached.or_else(damage).or_else(header)?;
    Some(StoreError::Damaged { store: folder.into(), what })
}

/// Whether there is a noted line, and so was a log.
pub(super) fn is_noted(folder: &Path) -> bool {
    path(folder).is_file()
}

/// Whether the log is empty or gone, without opening it: opening would already change it.
pub(super) fn is_empty(folder: &Path) -> bool {
    std::fs::metadata(schema::path(folder)).map_or(true, |log| log.len() == 0)
}
