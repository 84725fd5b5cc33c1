//! PostgreSQL as the engine of a store, which many hosts share.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::sql::{ColumnValue, Sql, SqlError, SqlErrorKind, SqlResult};
use super::{StoreAddress, StoreError};

/// Opens a connection for reading.
pub(super) fn open_reader(address: &StoreAddress) -> Result<Box<dyn Sql>, StoreError> {
    let what = "a store in PostgreSQL cannot be opened yet".to_owned();
    Err(StoreError::Other { store: address.clone(), what })
}

/// Reads a column of a row.
pub(super) fn value(row: &Row, column: usize) -> SqlResult<ColumnValue<'_>> {
    let kind = row.columns().get(column).map(|column| column.type_().clone());
    let read = || -> Result<Option<ColumnValue<'_>>, tokio_postgres::Error> {
        Ok(match kind {
            Some(Type::INT8) => row.try_get::<_, Option<i64>>(column)?.map(ColumnValue::Integer),
            Some(Type::INT4) => row
                .try_get::<_, Option<i32>>(column)?
                .map(|value| ColumnValue::Integer(value.into())),
            Some(Type::BOOL) => row
                .try_get::<_, Option<bool>>(column)?
                .map(|value| ColumnValue::Integer(value.into())),
            Some(Type::BYTEA) => row.try_get::<_, Option<&[u8]>>(column)?.map(ColumnValue::Bytes),
            _ => row.try_get::<_, Option<&str>>(column)?.map(ColumnValue::Text),
        })
    };
    match read() {
        Ok(value) => Ok(value.unwrap_or(ColumnValue::Null)),
        Err(error) => Err(SqlError::new(SqlErrorKind::Damaged, error.to_string())),
    }
}
