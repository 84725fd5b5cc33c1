//! Reads records from a store's tables and checks each against its hash.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use conclave_core::protocol::event::Record;

use super::record::{EventRow, RowError};
use super::sql::{EngineKind, Sql, SqlError, SqlResult, SqlRow};
use super::{StoreAddress, StoreError};

/// Returns the columns that [`row`] reads, in order. Where one process writes there is no epoch.
pub(super) fn columns(engine: EngineKind) -> String {
    let epoch = match engine {
        EngineKind::Sqlite => "0",
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => "events.epoch",
    };
    format!(
        "events.seq, events.at, events.principal, events.rules, {epoch}, events.body, events.parts, events.hash"
    )
}

/// The reason why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error("record {seq} of room {room} cannot be read: {cause}")]
    Row { room: String, seq: u64, cause: RowError },
    #[error("record {expected} of room {room} is missing: the next is {actual}")]
    Gap { room: String, expected: u64, actual: u64 },
}

impl ReadError {
    pub(super) fn of(self, store: &StoreAddress) -> StoreError {
        let (store, what) = (store.clone(), self.to_string());
        match self {
            Self::Sql(error) => error.of(store),
            Self::Row { cause: RowError::OtherRules { .. }, .. } => {
                StoreError::Other { store, what }
            }
            _ => StoreError::Damaged { store, what },
        }
    }
}

/// Reads a row of `events` and its stored hash, beginning at column `from`.
pub(super) fn row(row: &SqlRow<'_>, from: usize) -> SqlResult<(EventRow, Vec<u8>)> {
    let read = EventRow {
        seq: row.get(from)?,
        at: row.get(from + 1)?,
        principal: row.get::<String>(from + 2)?.into(),
        rules: row.get(from + 3)?,
        epoch: row.get(from + 4)?,
        body: row.get(from + 5)?,
        parts: row.get(from + 6)?,
    };
    Ok((read, row.get(from + 7)?))
}

/// Returns the bytes of a blob; `None` if it has no row.
pub(super) fn blob(tables: &dyn Sql, sha256: &str) -> SqlResult<Option<Arc<[u8]>>> {
    let bytes = |row: &SqlRow<'_>| Ok(row.optional_bytes(0)?.map(Arc::from));
    match tables.first("SELECT bytes FROM blobs WHERE sha256 = ?1", &[sha256.into()], bytes)? {
        Some(None) => tables.large_blob(sha256),
        bytes => Ok(bytes.flatten()),
    }
}

/// Returns the bytes of an attachment; `None` also if they are not those of its digest. The blobs of
/// a record are checked with the record.
pub(super) fn attachment(tables: &dyn Sql, sha256: &str) -> SqlResult<Option<Arc<[u8]>>> {
    let bytes = blob(tables, sha256)?;
    Ok(bytes.filter(|bytes| crate::support::digest::sha256(bytes) == sha256))
}

/// Maps the records of a room with these numbers, in order.
pub(super) fn each<T>(
    tables: &dyn Sql,
    room: &str,
    numbers: RangeInclusive<u64>,
    mut take: impl FnMut(&EventRow, &mut dyn FnMut(&str) -> Option<Arc<[u8]>>) -> Result<T, RowError>,
) -> Result<Vec<T>, ReadError> {
    let columns = columns(tables.engine());
    let statement = format!(
        "SELECT {columns} FROM events WHERE room = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq"
    );
    let (first, last) = (*numbers.start(), i64::try_from(*numbers.end()).unwrap_or(i64::MAX));
    let (mut all, mut failed) = (Vec::new(), None);
    tables.query(&statement, &[room.into(), first.into(), last.into()], &mut |next| {
        let (read, hash) = row(next, 0)?;
        match map(tables, room, first + all.len() as u64, (&read, &hash), &mut take) {
            Ok(mapped) => {
                all.push(mapped);
                Ok(ControlFlow::Continue(()))
            }
            Err(ReadError::Sql(error)) => Err(error),
            Err(error) => {
                failed = Some(error);
                Ok(ControlFlow::Break(()))
            }
        }
    })?;
    failed.map_or(Ok(all), Err)
}

/// Returns the record of a row.
///
/// # Errors
/// Fails if a blob cannot be read. A record that cannot be parsed is the inner error.
pub(super) fn parsed(tables: &dyn Sql, row: &EventRow) -> SqlResult<Result<Record, RowError>> {
    with_blobs(tables, |blob| row.record(blob))
}

/// Runs a function that reads blobs, and returns the error of the engine if it met one.
fn with_blobs<T>(
    tables: &dyn Sql,
    take: impl FnOnce(&mut dyn FnMut(&str) -> Option<Arc<[u8]>>) -> T,
) -> SqlResult<T> {
    let mut failed = None;
    // `take` cannot return an error of the engine, so the closure stores it.
    let mut read = |sha256: &str| {
        blob(tables, sha256).unwrap_or_else(|error| {
            failed = Some(error);
            None
        })
    };
    let result = take(&mut read);
    failed.map_or(Ok(result), Err)
}

/// Maps a row of `events` that must be record `expected` and match its stored hash.
fn map<T>(
    tables: &dyn Sql,
    room: &str,
    expected: u64,
    (read, hash): (&EventRow, &[u8]),
    take: &mut impl FnMut(&EventRow, &mut dyn FnMut(&str) -> Option<Arc<[u8]>>) -> Result<T, RowError>,
) -> Result<T, ReadError> {
    if read.seq != expected {
        return Err(ReadError::Gap { room: room.to_owned(), expected, actual: read.seq });
    }
    let result = if read.hash(room)[..] == *hash {
        with_blobs(tables, |blob| take(read, blob))?
    } else {
        Err(RowError::Hash)
    };
    result.map_err(|cause| ReadError::Row { room: room.to_owned(), seq: expected, cause })
}

/// Returns the records of a room from number `first` on; empty if there is no such room.
pub(super) fn records(tables: &dyn Sql, room: &str, first: u64) -> Result<Vec<Record>, ReadError> {
    each(tables, room, first..=u64::MAX, |row, blob| row.record(blob))
}

/// Folds the records of a room, one at a time.
pub(super) fn fold<F: Default + Extend<Record>>(
    tables: &dyn Sql,
    room: &str,
) -> Result<F, ReadError> {
    let mut fold = F::default();
    each(tables, room, 0..=u64::MAX, |row, blob| {
        row.record(blob).map(|record| fold.extend([record]))
    })?;
    Ok(fold)
}

/// Returns one record of a room.
pub(super) fn record(tables: &dyn Sql, room: &str, seq: u64) -> Result<Record, ReadError> {
    let found = each(tables, room, seq..=seq, |row, blob| row.record(blob))?.pop();
    found.ok_or_else(|| ReadError::Gap { room: room.to_owned(), expected: seq, actual: seq + 1 })
}

/// Returns at most `most` records of a room from number `first` on.
pub(super) fn some_records(
    tables: &dyn Sql,
    room: &str,
    first: u64,
    most: u64,
) -> Result<Vec<Record>, ReadError> {
    let end = first.saturating_add(most);
    each(tables, room, first..=end.saturating_sub(1), |row, blob| row.record(blob))
}

/// Returns the records of a room as lines of JSON, of any rules version.
pub(super) fn lines(tables: &dyn Sql, room: &str) -> Result<Vec<String>, ReadError> {
    each(tables, room, 0..=u64::MAX, |row, blob| row.line(blob))
}
