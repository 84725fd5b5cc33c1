//! Reads records from a store's tables and checks each against its hash. It works on any
//! connection.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::protocol::event::Record;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};

use super::record::{EventRow, RowError};
use super::{StoreError, schema};

/// The columns that [`row`] reads, in order.
pub(super) const COLUMNS: &str =
    "events.seq, events.at, events.principal, events.rules, events.body, events.parts, events.hash";

/// The reason why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("record {seq} of room {room} cannot be read: {cause}")]
    Row { room: String, seq: u64, cause: RowError },
    #[error("record {expected} of room {room} is missing: the next is {actual}")]
    Gap { room: String, expected: u64, actual: u64 },
}

impl ReadError {
    pub(super) fn of(self, folder: &Path) -> StoreError {
        match self {
            Self::Sqlite(error) => schema::failed(folder, &error),
            Self::Row { cause: RowError::OtherRules { .. }, .. } => {
                StoreError::Other { folder: folder.to_owned(), what: self.to_string() }
            }
            damaged => StoreError::Damaged { folder: folder.to_owned(), what: damaged.to_string() },
        }
    }
}

/// Reads a row of `events` and its stored hash, beginning at column `from`.
pub(super) fn row(row: &SqlRow<'_>, from: usize) -> rusqlite::Result<(EventRow, Vec<u8>)> {
    let number = |index: usize| row.get::<_, i64>(from + index).map(i64::cast_unsigned);
    let read = EventRow {
        seq: number(0)?,
        at: number(1)?,
        principal: row.get::<_, String>(from + 2)?.into(),
        rules: row.get(from + 3)?,
        epoch: 0,
        body: row.get(from + 4)?,
        parts: row.get(from + 5)?,
    };
    Ok((read, row.get(from + 6)?))
}

pub(super) fn blob(connection: &Connection, sha256: &str) -> rusqlite::Result<Option<Arc<[u8]>>> {
    let mut query = connection.prepare_cached("SELECT bytes FROM blobs WHERE sha256 = ?")?;
    let bytes =
        query.query_row([sha256], |row| Ok(row.get_ref(0)?.as_blob()?.into())).optional()?;
    Ok(bytes)
}

/// Maps the records of a room with these numbers, in order.
pub(super) fn each<T>(
    connection: &Connection,
    room: &str,
    numbers: RangeInclusive<u64>,
    mut take: impl FnMut(&EventRow, &mut dyn FnMut(&str) -> Option<Arc<[u8]>>) -> Result<T, RowError>,
) -> Result<Vec<T>, ReadError> {
    let mut query = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM events WHERE room = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    ))?;
    let (first, last) = (*numbers.start(), i64::try_from(*numbers.end()).unwrap_or(i64::MAX));
    let mut rows = query.query(params![room, first.cast_signed(), last])?;
    let (mut all, mut failed) = (Vec::new(), None);
    while let Some(next) = rows.next()? {
        let (read, hash) = row(next, 0)?;
        let expected = first + all.len() as u64;
        if read.seq != expected {
            return Err(ReadError::Gap { room: room.to_owned(), expected, actual: read.seq });
        }
        // `take` cannot return an error of SQLite, so the closure stores it.
        let mut blob = |sha256: &str| {
            blob(connection, sha256).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        let result = if read.hash(room)[..] == hash[..] {
            take(&read, &mut blob)
        } else {
            Err(RowError::Hash)
        };
        if let Some(error) = failed.take() {
            return Err(error.into());
        }
        all.push(result.map_err(|cause| ReadError::Row {
            room: room.to_owned(),
            seq: expected,
            cause,
        })?);
    }
    Ok(all)
}

/// Returns the records of a room from number `first` on; empty if there is no such room.
pub(super) fn records(
    connection: &Connection,
    room: &str,
    first: u64,
) -> Result<Vec<Record>, ReadError> {
    each(connection, room, first..=u64::MAX, |row, blob| row.record(blob))
}

/// Folds the records of a room, one at a time.
pub(super) fn fold(connection: &Connection, room: &str) -> Result<RoomRowFold, ReadError> {
    let mut fold = RoomRowFold::default();
    each(connection, room, 0..=u64::MAX, |row, blob| {
        row.record(blob).map(|record| fold.take(record))
    })?;
    Ok(fold)
}

/// Returns one record of a room.
pub(super) fn record(connection: &Connection, room: &str, seq: u64) -> Result<Record, ReadError> {
    let found = each(connection, room, seq..=seq, |row, blob| row.record(blob))?.pop();
    found.ok_or_else(|| ReadError::Gap { room: room.to_owned(), expected: seq, actual: seq + 1 })
}

/// Returns the records of a room as lines of JSON, of any rules version.
pub(super) fn lines(connection: &Connection, room: &str) -> Result<Vec<String>, ReadError> {
    each(connection, room, 0..=u64::MAX, |row, blob| row.line(blob))
}
