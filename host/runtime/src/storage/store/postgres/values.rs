//! Parameters of statements and columns of rows, as PostgreSQL types them.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::storage::store::sql::{ColumnValue, SqlError, SqlErrorKind, SqlResult, Value};

/// A parameter, which takes the type that the statement gives it.
#[derive(Debug)]
pub(super) struct Parameter<'a>(pub(super) Value<'a>);

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self.0, kind) {
            (Value::Null, _) => Ok(IsNull::Yes),
            (Value::Integer(value), &Type::BOOL) => (value != 0).to_sql(kind, out),
            (Value::Integer(value), &Type::INT4) => i32::try_from(value)?.to_sql(kind, out),
            (Value::Integer(value), &Type::INT8) => value.to_sql(kind, out),
            (Value::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::UNKNOWN) => {
                without_nul(text).as_ref().to_sql(kind, out)
            }
            (Value::Bytes(bytes), &Type::BYTEA) => bytes.to_sql(kind, out),
            (value, kind) => Err(format!("{value:?} is no {kind}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The text as PostgreSQL can hold it, which has no NUL. Bodies of records never have one, because
/// JSON escapes it.
pub(in crate::storage::store) fn without_nul(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// Reads a column of a row.
pub(in crate::storage::store) fn value(row: &Row, column: usize) -> SqlResult<ColumnValue<'_>> {
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
            Some(Type::NUMERIC) => row
                .try_get::<_, Option<WholeNumber>>(column)?
                .map(|value| ColumnValue::Integer(value.0)),
            Some(Type::BYTEA) => row.try_get::<_, Option<&[u8]>>(column)?.map(ColumnValue::Bytes),
            _ => row.try_get::<_, Option<&str>>(column)?.map(ColumnValue::Text),
        })
    };
    match read() {
        Ok(value) => Ok(value.unwrap_or(ColumnValue::Null)),
        Err(error) => Err(SqlError::new(SqlErrorKind::Damaged, error.to_string())),
    }
}

/// A NUMERIC without fraction: PostgreSQL's sum of integers is one.
struct WholeNumber(i64);

impl<'a> FromSql<'a> for WholeNumber {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        // Words of 16 bits: the number of digits to the base 10000, the exponent of the first, the
        // sign, the digits shown behind the point, and the digits.
        let mut words = raw.chunks_exact(2).map(|word| i16::from_be_bytes([word[0], word[1]]));
        let mut word = || words.next().ok_or("a number is cut off");
        let (digits, exponent, sign, _) = (word()?, word()?, word()?, word()?);
        if !matches!(sign, 0 | 0x4000) || digits > exponent.saturating_add(1) {
            return Err("a number has a fraction".into());
        }
        let mut value = 0_i64;
        for place in 0..=exponent.max(-1) {
            let digit = if place < digits { word()? } else { 0 };
            value = value
                .checked_mul(10_000)
                .and_then(|value| value.checked_add(digit.into()))
                .ok_or("a number has more than 64 bits")?;
        }
        Ok(Self(if sign == 0 { value } else { -value }))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::NUMERIC
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_whole_numbers() {
        let read = |words: &[i16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            WholeNumber::from_sql(&Type::NUMERIC, &bytes).map(|number| number.0).ok()
        };
        assert_eq!(read(&[0, 0, 0, 0]), Some(0));
        assert_eq!(read(&[1, 0, 0, 0, 42]), Some(42));
        assert_eq!(read(&[1, 1, 0, 0, 7]), Some(70_000));
        assert_eq!(read(&[2, 1, 0x4000, 0, 1, 5]), Some(-10_005));
        assert_eq!(read(&[2, 0, 0, 2, 1, 5_000]), None, "1.5");
        assert_eq!(read(&[1, 0, -0x4000, 0]), None, "NaN");
        assert_eq!(read(&[1, 0, 0, 0]), None, "cut off");
    }
}
