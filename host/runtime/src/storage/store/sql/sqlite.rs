//! SQLite as an engine of statements.

use std::ops::ControlFlow;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::{
    ColumnValue, EngineKind, Sql, SqlError, SqlErrorKind, SqlResult, SqlRow, TakeRow, Value,
};

impl Sql for Connection {
    fn query(&self, statement: &str, values: &[Value<'_>], take: TakeRow<'_>) -> SqlResult<()> {
        let mut query = self.prepare_cached(statement)?;
        let mut rows = query.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            if let ControlFlow::Break(()) = take(&SqlRow::Sqlite(row))? {
                break;
            }
        }
        Ok(())
    }

    fn execute(&self, statement: &str, values: &[Value<'_>]) -> SqlResult<u64> {
        Ok(self.prepare_cached(statement)?.execute(params_from_iter(values))? as u64)
    }

    fn begin_snapshot(&self) -> SqlResult<()> {
        Ok(self.execute_batch("BEGIN DEFERRED")?)
    }

    fn end_snapshot(&self) {
        let _ = self.execute_batch("ROLLBACK");
    }

    fn engine(&self) -> EngineKind {
        EngineKind::Sqlite
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

pub(super) fn value<'a>(row: &'a Row<'_>, column: usize) -> SqlResult<ColumnValue<'a>> {
    let malformed = || SqlError::new(SqlErrorKind::Damaged, format!("column {column} is no text"));
    Ok(match row.get_ref(column)? {
        ValueRef::Null => ColumnValue::Null,
        ValueRef::Integer(value) => ColumnValue::Integer(value),
        ValueRef::Text(text) => {
            ColumnValue::Text(std::str::from_utf8(text).map_err(|_| malformed())?)
        }
        ValueRef::Blob(bytes) => ColumnValue::Bytes(bytes),
        ValueRef::Real(_) => return Err(malformed()),
    })
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::TooBig) => SqlErrorKind::Full,
            Some(ErrorCode::ReadOnly) => SqlErrorKind::ReadOnly,
            Some(ErrorCode::ConstraintViolation) => SqlErrorKind::Constraint,
            Some(ErrorCode::SystemIoFailure) => SqlErrorKind::Disk,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => SqlErrorKind::Damaged,
            _ => SqlErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}
