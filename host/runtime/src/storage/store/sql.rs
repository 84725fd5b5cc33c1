//! Statements in the SQL that both engines of a store understand, so that each question to a store
//! is written once. Parameters are `?1`, `?2` and so on.

mod sqlite;

use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

#[cfg(feature = "postgres")]
use conclave_core::types::ids::RoomId;

use super::{StoreAddress, StoreError};

/// A connection to the tables of a store.
pub(super) trait Sql: Send {
    /// Passes the rows of a query to `take`, until it breaks. `take` may ask further questions.
    ///
    /// # Errors
    /// Fails with an error of the engine, or that of `take`.
    fn query(&self, statement: &str, values: &[Value<'_>], take: TakeRow<'_>) -> SqlResult<()>;

    /// Runs a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// Fails with an error of the engine.
    fn execute(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<u64>;

    /// Begins a consistent look: all questions see one state of the tables, until
    /// [`end_snapshot`](Self::end_snapshot).
    ///
    /// # Errors
    /// Fails with an error of the engine.
    fn begin_snapshot(&self) -> SqlResult<()>;

    /// Ends a consistent look, and with it nothing else: it has changed nothing.
    fn end_snapshot(&self);

    /// The engine, for the few statements that differ.
    fn engine(&self) -> EngineKind;

    /// Returns the bytes of a blob whose row has none, because they are a file; `None` if the row
    /// was removed meanwhile.
    ///
    /// # Errors
    /// Fails if the file cannot be read, and as damaged if it is missing.
    fn large_blob(&self, _sha256: &str) -> SqlResult<Option<Arc<[u8]>>> {
        Ok(None)
    }

    /// Checks that all blobs of the store can be read here, so that any of its runs can go on.
    ///
    /// # Errors
    /// `BlobFolder` if the store has a shared folder, and this process has no name of it, or it is
    /// not there.
    #[cfg(feature = "postgres")]
    fn check_blob_folder(&self) -> SqlResult<()> {
        Ok(())
    }
}

/// Receives the rows of a query.
pub(super) type TakeRow<'a> = &'a mut dyn FnMut(&SqlRow<'_>) -> SqlResult<ControlFlow<()>>;

pub(crate) type SqlResult<T> = Result<T, SqlError>;

/// The engine that holds the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

impl EngineKind {
    /// The column of `rooms` that has the order of their creation.
    pub(super) fn room_order(self) -> &'static str {
        match self {
            Self::Sqlite => "rowid",
            #[cfg(feature = "postgres")]
            Self::Postgres => "number",
        }
    }

    /// The column of `audit`, `events` and `removed` with the number of the chain. A store with one
    /// writing process has one chain.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "a column is of a table of a database")
    )]
    pub(super) fn chain(self, table: &str) -> String {
        match self {
            Self::Sqlite => "1".to_owned(),
            #[cfg(feature = "postgres")]
            Self::Postgres => format!("{table}.chain"),
        }
    }

    /// The condition by which a record of `events` belongs to a line of `audit`.
    pub(super) fn record_of_line(self) -> &'static str {
        match self {
            Self::Sqlite => "events.number = audit.number",
            #[cfg(feature = "postgres")]
            Self::Postgres => "events.chain = audit.chain AND events.number = audit.number",
        }
    }
}

/// A consistent look at the tables, until it is dropped.
pub(super) struct SqlSnapshot<'a>(&'a dyn Sql);

impl Drop for SqlSnapshot<'_> {
    fn drop(&mut self) {
        self.0.end_snapshot();
    }
}

impl dyn Sql + '_ {
    /// Begins a consistent look at the tables.
    pub(super) fn snapshot(&self) -> SqlResult<SqlSnapshot<'_>> {
        self.begin_snapshot()?;
        Ok(SqlSnapshot(self))
    }

    /// Passes all rows of a query to `take`, which may ask further questions.
    pub(super) fn each(
        &self,
        statement: &str,
        values: &[Value<'_>],
        mut take: impl FnMut(&SqlRow<'_>) -> SqlResult<()>,
    ) -> SqlResult<()> {
        self.query(statement, values, &mut |row| take(row).map(ControlFlow::Continue))
    }

    /// Returns all rows of a query.
    pub(super) fn rows<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&SqlRow<'_>) -> SqlResult<T>,
    ) -> SqlResult<Vec<T>> {
        let mut all = Vec::new();
        self.each(statement, values, |row| {
            all.push(read(row)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns the first row of a query; `None` if there is none.
    pub(super) fn first<T>(
        &self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&SqlRow<'_>) -> SqlResult<T>,
    ) -> SqlResult<Option<T>> {
        let mut first = None;
        self.query(statement, values, &mut |row| {
            first = Some(read(row)?);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Whether a query has a row.
    pub(super) fn has_row(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<bool> {
        Ok(self.first(statement, values, |_| Ok(()))?.is_some())
    }
}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Value<'_> {
    /// Both engines have signed integers, so the bits are kept.
    fn from(value: u64) -> Self {
        Self::Integer(value.cast_signed())
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Bytes(value)
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a query.
pub(super) enum SqlRow<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    #[cfg(feature = "postgres")]
    Postgres(&'a tokio_postgres::Row),
}

impl SqlRow<'_> {
    /// Returns the value of a column, by its index from 0.
    pub(super) fn get<T: Column>(&self, column: usize) -> SqlResult<T> {
        T::of(self.value(column)?).ok_or_else(|| self.mismatch(column))
    }

    /// Returns the bytes of a column; those of a text are UTF-8.
    pub(super) fn bytes(&self, column: usize) -> SqlResult<&[u8]> {
        match self.value(column)? {
            ColumnValue::Text(text) => Ok(text.as_bytes()),
            ColumnValue::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch(column)),
        }
    }

    /// The same; `None` if the column is NULL.
    pub(super) fn optional_bytes(&self, column: usize) -> SqlResult<Option<&[u8]>> {
        if let ColumnValue::Null = self.value(column)? {
            return Ok(None);
        }
        self.bytes(column).map(Some)
    }

    fn value(&self, column: usize) -> SqlResult<ColumnValue<'_>> {
        match self {
            Self::Sqlite(row) => sqlite::value(row, column),
            #[cfg(feature = "postgres")]
            Self::Postgres(row) => super::postgres::value(row, column),
        }
    }

    fn mismatch(&self, column: usize) -> SqlError {
        SqlError::new(SqlErrorKind::Damaged, format!("column {column} has another type"))
    }
}

/// The value of a column, borrowed from its row.
pub(super) enum ColumnValue<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A type that a column can be read as.
pub(super) trait Column: Sized {
    fn of(value: ColumnValue<'_>) -> Option<Self>;
}

impl Column for i64 {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        if let ColumnValue::Integer(value) = value { Some(value) } else { None }
    }
}

impl Column for u64 {
    /// The bits of the signed integer, as they were written.
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        i64::of(value).map(i64::cast_unsigned)
    }
}

impl Column for u32 {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        i64::of(value)?.try_into().ok()
    }
}

impl Column for bool {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        i64::of(value).map(|value| value != 0)
    }
}

impl Column for String {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        if let ColumnValue::Text(text) = value { Some(text.to_owned()) } else { None }
    }
}

impl Column for Vec<u8> {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        if let ColumnValue::Bytes(bytes) = value { Some(bytes.to_owned()) } else { None }
    }
}

impl<T: Column> Column for Option<T> {
    fn of(value: ColumnValue<'_>) -> Option<Self> {
        if let ColumnValue::Null = value { Some(None) } else { T::of(value).map(Some) }
    }
}

/// What an error of an engine means for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlErrorKind {
    /// The disk or the permitted size is full.
    Full,
    /// The disk is read-only.
    ReadOnly,
    /// A row contradicts the tables' constraints.
    Constraint,
    /// The disk failed, so its content is unknown.
    Disk,
    /// The bytes are not what was written.
    Damaged,
    /// The connection was lost before the answer, so nobody knows whether the statement took
    /// effect; or none could be made.
    #[cfg(feature = "postgres")]
    Unknown,
    /// The server acknowledges what it can lose, so nothing that it answers counts.
    #[cfg(feature = "postgres")]
    Unsafe,
    /// The statement needs a room that is not stored. The text is its name.
    #[cfg(feature = "postgres")]
    UnknownRoom,
    /// A table, column or function of the schema is missing or is another one.
    #[cfg(feature = "postgres")]
    Incomplete,
    /// The role of the address may not use the database or its tables.
    #[cfg(feature = "postgres")]
    NoRights,
    /// Another transaction was in the way. Nothing took effect, and the same may be tried again.
    #[cfg(feature = "postgres")]
    Conflict,
    /// The shared folder of large blobs is not there, or is not this store's.
    #[cfg(feature = "postgres")]
    BlobFolder,
    /// The database refuses a write to a room, and nothing took effect.
    #[cfg(feature = "postgres")]
    WriteRefused,
    /// A blob that the statement refers to is not there, and nothing took effect.
    #[cfg(feature = "postgres")]
    BlobMissing,
    Other,
}

/// An error of an engine.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct SqlError {
    pub(super) kind: SqlErrorKind,
    pub(super) text: Cow<'static, str>,
}

impl SqlError {
    pub(super) fn new(kind: SqlErrorKind, text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The error for a reading thread that is gone, or a query that panicked on it.
    pub(super) fn no_reader() -> Self {
        Self::new(SqlErrorKind::Other, "the thread that reads the store is gone")
    }

    /// The error of the store that has these tables.
    pub(super) fn of(self, store: impl Into<StoreAddress>) -> StoreError {
        let (store, what) = (store.into(), self.text.into_owned());
        match self.kind {
            SqlErrorKind::Damaged => StoreError::Damaged { store, what },
            #[cfg(feature = "postgres")]
            SqlErrorKind::BlobFolder => StoreError::BlobFolder { store, what },
            #[cfg(feature = "postgres")]
            SqlErrorKind::Unknown => StoreError::Unreachable { store, what },
            #[cfg(feature = "postgres")]
            SqlErrorKind::Incomplete | SqlErrorKind::NoRights => {
                let remedy = super::postgres::remedy_of(self.kind, &store).unwrap_or_default();
                StoreError::Tables { store, what, remedy }
            }
            #[cfg(feature = "postgres")]
            SqlErrorKind::UnknownRoom => {
                StoreError::UnknownRoom { store, room: RoomId::from(what) }
            }
            _ => StoreError::Other { store, what },
        }
    }

    pub(super) fn io_kind(&self) -> io::ErrorKind {
        match self.kind {
            SqlErrorKind::Full => io::ErrorKind::StorageFull,
            SqlErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            SqlErrorKind::Damaged => io::ErrorKind::InvalidData,
            #[cfg(feature = "postgres")]
            SqlErrorKind::Unknown => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::Other,
        }
    }
}
