//! The changes of runs in overlays, as a database has them. A store in a folder has them in files
//! beside its tables.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use conclave_core::overlay::apply::ChangeDecision;
use conclave_core::overlay::changes::ChangeRecord;
use conclave_core::types::ids::RoomId;

use super::postgres::{self, Link, PostgresReader};
use super::sql::{Sql, SqlError, SqlErrorKind, SqlResult, SqlRow};
use super::{PostgresAddress, StoreError, read};
use crate::support::digest;
use crate::support::overlay_files::{OverlayOrigin, content_name, overlay_name};

/// A changed file.
#[derive(Clone, Debug)]
pub(in crate::storage) struct FileRow {
    pub(in crate::storage) record: ChangeRecord,
    /// The digest of a written file, whose bytes are a blob.
    pub(in crate::storage) content: Option<String>,
    /// Whether the content is missing.
    pub(in crate::storage) is_lost: bool,
}

const FILES: &str = "SELECT change, content, content IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.sha256 = content) FROM overlay_files";

/// Returns the number of the newest change of an overlay; 0 if there is none.
pub(super) fn number(tables: &dyn Sql, run: &RoomId, dir: &Path) -> SqlResult<u64> {
    let statement = "SELECT changes FROM overlays WHERE run = ?1 AND overlay = ?2";
    let overlay = overlay_name(dir);
    let values = [run.as_str().into(), (&overlay).into()];
    Ok(tables.first(statement, &values, |row| row.get(0))?.unwrap_or(0))
}

/// Returns the changed files of an overlay, in the order of their paths.
pub(super) fn files(tables: &dyn Sql, run: &RoomId, dir: &Path) -> SqlResult<Vec<FileRow>> {
    let statement = format!("{FILES} WHERE run = ?1 AND overlay = ?2 ORDER BY path");
    tables.rows(&statement, &[run.as_str().into(), (&overlay_name(dir)).into()], file)
}

fn file(row: &SqlRow<'_>) -> SqlResult<FileRow> {
    Ok(FileRow { record: json(row.bytes(0)?)?, content: row.get(1)?, is_lost: row.get(2)? })
}

/// The number of changed files of a run.
pub(super) fn pending(tables: &dyn Sql, run: &RoomId) -> SqlResult<usize> {
    let statement = "SELECT count(*) FROM overlay_files WHERE run = ?1";
    let count = tables.first(statement, &[run.as_str().into()], |row| row.get::<u64>(0))?;
    Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
}

/// The number of those that cannot be applied, whatever the folder has now.
pub(super) fn blocked(tables: &dyn Sql, run: &RoomId) -> SqlResult<usize> {
    let files = tables.rows(&format!("{FILES} WHERE run = ?1"), &[run.as_str().into()], file)?;
    let is_blocked = |file: &&FileRow| match file.record {
        ChangeRecord::Written { changed_since_read, .. }
        | ChangeRecord::Removed { changed_since_read, .. } => changed_since_read || file.is_lost,
        ChangeRecord::Reverted { .. } => false,
    };
    Ok(files.iter().filter(is_blocked).count())
}

/// Returns the folders of which a run has overlays, in a stable order.
pub(super) fn origins(tables: &dyn Sql, run: &RoomId) -> SqlResult<Vec<OverlayOrigin>> {
    let statement = "SELECT dir, display_path FROM overlays WHERE run = ?1 ORDER BY overlay";
    tables.rows(statement, &[run.as_str().into()], |row| {
        Ok(OverlayOrigin { dir: row.get::<String>(0)?.into(), display_path: row.get(1)? })
    })
}

/// Forgets the change of a file, for a person. A host that has the overlay open must read it anew.
pub(super) fn forget(tables: &dyn Sql, run: &RoomId, dir: &Path, name: &str) -> SqlResult<()> {
    let statement = "WITH counted AS (
            UPDATE overlays SET changes = changes + 1, epoch = 0 WHERE run = ?1 AND overlay = ?2)
        DELETE FROM overlay_files WHERE run = ?1 AND overlay = ?2 AND name = ?3";
    let overlay = overlay_name(dir);
    let values = [run.as_str().into(), (&overlay).into(), name.into()];
    tables.execute(statement, &values).map(drop)
}

/// Stores a decision about a run's changes.
pub(super) fn add_decision(
    tables: &dyn Sql,
    run: &RoomId,
    decision: &ChangeDecision,
) -> SqlResult<()> {
    let body = serde_json::to_string(decision).map_err(malformed)?;
    let statement = "INSERT INTO overlay_decisions (run, body) VALUES (?1, ?2)";
    tables.execute(statement, &[run.as_str().into(), (&body).into()]).map(drop)
}

/// Returns the decisions about a run's changes, oldest first, each with its begin and its end.
pub(super) fn decisions(tables: &dyn Sql, run: &RoomId) -> SqlResult<Vec<ChangeDecision>> {
    let statement = "SELECT body FROM overlay_decisions WHERE run = ?1 ORDER BY number";
    tables.rows(statement, &[run.as_str().into()], |row| json(row.bytes(0)?))
}

fn json<T: serde::de::DeserializeOwned>(text: &[u8]) -> SqlResult<T> {
    serde_json::from_slice(text).map_err(malformed)
}

fn malformed(error: serde_json::Error) -> SqlError {
    SqlError::new(SqlErrorKind::Damaged, format!("a change of an overlay is malformed: {error}"))
}

/// Returns the content of a changed file; `None` if it is lost.
pub(super) fn content(
    tables: &dyn Sql,
    run: &RoomId,
    dir: &Path,
    name: &str,
) -> SqlResult<Option<Vec<u8>>> {
    let statement =
        "SELECT content FROM overlay_files WHERE run = ?1 AND overlay = ?2 AND name = ?3";
    let overlay = overlay_name(dir);
    let values = [run.as_str().into(), (&overlay).into(), name.into()];
    let sha256 = tables.first(statement, &values, |row| row.get::<Option<String>>(0))?.flatten();
    let Some(sha256) = sha256 else { return Ok(None) };
    match read::attachment(tables, &sha256) {
        Ok(bytes) => Ok(bytes.map(|bytes| bytes.to_vec())),
        // Of a large one the row is there, and the file is missing or another.
        Err(error) if error.kind == SqlErrorKind::Damaged => Ok(None),
        Err(error) => Err(error),
    }
}

/// The contents of files whose paths follow each other. Readers go through the files of an overlay in
/// this order, and a question for each of thousands of files would take minutes.
struct ReadAhead {
    overlay: String,
    paths: RangeInclusive<String>,
    /// The contents in the table, without those that are lost or in the shared folder.
    contents: BTreeMap<String, Vec<u8>>,
}

impl ReadAhead {
    /// The maximum number of files.
    const FILES: u32 = 256;
    /// The maximum number of bytes, unless the first file has more.
    const BYTES: u32 = 4 << 20;

    /// Reads the contents from a path on.
    fn from(tables: &dyn Sql, run: &RoomId, overlay: String, path: &str) -> SqlResult<Self> {
        // The order is that of `Changes`.
        let statement = "SELECT ahead.path, ahead.content, blobs.bytes FROM (
                 SELECT path, content,
                     CAST(sum(length) OVER (ORDER BY path COLLATE \"C\") AS BIGINT) AS bytes
                 FROM overlay_files WHERE run = ?1 AND overlay = ?2
                     AND path COLLATE \"C\" >= ?3 AND content IS NOT NULL
                 ORDER BY path COLLATE \"C\" LIMIT ?4
             ) AS ahead LEFT JOIN blobs ON blobs.sha256 = ahead.content
             WHERE ahead.path = ?3 OR ahead.bytes <= ?5 ORDER BY ahead.path COLLATE \"C\"";
        let values = [
            run.as_str().into(),
            (&overlay).into(),
            path.into(),
            Self::FILES.into(),
            Self::BYTES.into(),
        ];
        let (mut last, mut contents) = (path.to_owned(), BTreeMap::new());
        tables.each(statement, &values, |row| {
            last = row.get(0)?;
            let sha256: String = row.get(1)?;
            // What the table has in its place is not what the run wrote.
            let bytes = row.optional_bytes(2)?.filter(|bytes| digest::sha256(bytes) == sha256);
            contents.extend(bytes.map(|bytes| (last.clone(), bytes.to_vec())));
            Ok(())
        })?;
        Ok(Self { overlay, paths: path.to_owned()..=last, contents })
    }

    fn covers(&self, overlay: &str, path: &str) -> bool {
        self.overlay == overlay && &**self.paths.start() <= path && path <= &**self.paths.end()
    }
}

/// The tables of a database, for a person who reads, applies or drops changes.
pub(in crate::storage) struct ChangesTables {
    address: PostgresAddress,
    reader: PostgresReader,
    ahead: Option<ReadAhead>,
}

impl fmt::Debug for ChangesTables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ChangesTables").field(&self.address).finish()
    }
}

impl ChangesTables {
    pub(in crate::storage) fn open(address: &PostgresAddress) -> io::Result<Self> {
        let reader = postgres::open_reader(address).map_err(|error| match error {
            StoreError::Unreachable { .. } => io::Error::new(io::ErrorKind::NotConnected, error),
            error => io::Error::other(error),
        })?;
        Ok(Self { address: address.clone(), reader, ahead: None })
    }

    /// The database for display.
    pub(in crate::storage) fn place(&self) -> String {
        self.address.to_string()
    }

    fn ask<T>(&self, question: impl FnOnce(&dyn Sql) -> SqlResult<T>) -> io::Result<T> {
        question(&self.reader).map_err(failed)
    }

    pub(in crate::storage) fn origins(&self, run: &RoomId) -> io::Result<Vec<OverlayOrigin>> {
        self.ask(|tables| origins(tables, run))
    }

    /// Returns the changed files. Contents that are read afterwards are not older than these.
    pub(in crate::storage) fn files(
        &mut self,
        run: &RoomId,
        dir: &Path,
    ) -> io::Result<Vec<FileRow>> {
        self.ahead = None;
        self.ask(|tables| files(tables, run, dir))
    }

    /// Returns the content of a changed file; `None` if it is lost.
    pub(in crate::storage) fn content(
        &mut self,
        run: &RoomId,
        dir: &Path,
        path: &str,
    ) -> io::Result<Option<Vec<u8>>> {
        let overlay = overlay_name(dir);
        let ahead = self.ahead.take().filter(|ahead| ahead.covers(&overlay, path));
        let ahead = match ahead {
            Some(ahead) => ahead,
            None => self.ask(|tables| ReadAhead::from(tables, run, overlay, path))?,
        };
        let bytes = ahead.contents.get(path).cloned();
        self.ahead = Some(ahead);
        match bytes {
            Some(bytes) => Ok(Some(bytes)),
            None => self.ask(|tables| content(tables, run, dir, &content_name(path))),
        }
    }

    /// Forgets the change of a file.
    pub(in crate::storage) fn forget(
        &self,
        run: &RoomId,
        dir: &Path,
        path: &str,
    ) -> io::Result<()> {
        self.ask(|tables| forget(tables, run, dir, &content_name(path)))
    }

    pub(in crate::storage) fn add_decision(
        &self,
        run: &RoomId,
        decision: &ChangeDecision,
    ) -> io::Result<()> {
        self.ask(|tables| add_decision(tables, run, decision))
    }

    pub(in crate::storage) fn decisions(&self, run: &RoomId) -> io::Result<Vec<ChangeDecision>> {
        self.ask(|tables| decisions(tables, run))
    }

    /// Locks a run, so that no host takes it; `None` if one has it, or another command its lock.
    pub(in crate::storage) fn lock(&self, run: &RoomId) -> io::Result<Option<RunLock>> {
        let link = self.reader.own_link().map_err(failed)?;
        let locked = link.batch("BEGIN").and_then(|()| {
            let statement = "SELECT 1 FROM rooms WHERE room = ?1 AND NOT EXISTS (SELECT 1 FROM hosts
                WHERE hosts.host = rooms.host AND hosts.until > clock_timestamp()) FOR UPDATE SKIP LOCKED";
            Ok(!link.rows(statement, &[&run.as_str()])?.is_empty())
        });
        Ok(locked.map_err(failed)?.then_some(RunLock { _transaction: link }))
    }
}

/// A lock on a run. The transaction that holds it ends with its connection.
pub(in crate::storage) struct RunLock {
    _transaction: Link,
}

impl fmt::Debug for RunLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RunLock")
    }
}

fn failed(error: SqlError) -> io::Error {
    io::Error::new(error.io_kind(), error.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::{Store, StoreAddress, TestDatabase};

    #[test]
    fn contents_are_read_many_at_once_in_bounded_pieces_and_never_older_than_their_list() {
        let Some(database) = TestDatabase::new() else { return };
        let address = database.address.clone();
        let _store = Store::open(StoreAddress::Postgres(address.clone())).unwrap();
        let (run, dir) = (RoomId::from("r"), Path::new("/d"));
        let link = database.link();
        // The second one is too long for one piece with the first, and the third is lost.
        let large = ReadAhead::BYTES.to_string();
        for (path, bytes) in [("a", "1"), ("b", &*large), ("c", "1"), ("d", "1"), ("ä", "1")] {
            let bytes = path.repeat(bytes.parse().unwrap()).into_bytes();
            let (sha256, length) = (digest::sha256(&bytes), (bytes.len() as u64).cast_signed());
            if path != "c" {
                link.run(
                    "INSERT INTO blobs (sha256, length, bytes) VALUES (?1, ?2, ?3)",
                    &[&sha256, &length, &bytes],
                )
                .unwrap();
            }
            let written = ChangeRecord::Reverted { path: path.to_owned() };
            let change = serde_json::to_string(&written).unwrap();
            link.run(
                "INSERT INTO overlay_files (run, overlay, name, path, change, content, length)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                &[
                    &run.as_str(),
                    &overlay_name(dir),
                    &content_name(path),
                    &path,
                    &change,
                    &sha256,
                    &length,
                ],
            )
            .unwrap();
        }
        let mut tables = ChangesTables::open(&address).unwrap();
        let length = |tables: &mut ChangesTables, path: &str| {
            let bytes = tables.content(&run, dir, path).unwrap();
            (bytes.map(|bytes| bytes.len()), tables.ahead.as_ref().unwrap().paths.clone())
        };
        let range = |first: &str, last: &str| first.to_owned()..=last.to_owned();
        assert_eq!(length(&mut tables, "a"), (Some(1), range("a", "a")));
        assert_eq!(length(&mut tables, "b"), (Some(4 << 20), range("b", "b")));
        assert_eq!(length(&mut tables, "c"), (None, range("c", "ä")));
        link.run("DELETE FROM blobs", &[]).unwrap();
        assert_eq!(length(&mut tables, "d"), (Some(1), range("c", "ä")), "it was read");
        assert_eq!(length(&mut tables, "ä").0, Some(2));
        assert_eq!(tables.files(&run, dir).unwrap().len(), 5);
        assert_eq!(length(&mut tables, "d").0, None, "it is gone");
    }
}
