//! A plugin's own settings: any TOML table as JSON. Dates and numbers that JSON does not have are refused, not guessed at.

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::problem::Span;
use super::reader::{Item, Reader};

/// The settings of `[plugins.NAME.config]`; an empty object after a problem.
pub(crate) fn settings(reader: &mut Reader, item: &Item<'_>) -> Value {
    match item.value {
        DeValue::Table(table) => object(reader, table),
        _ => {
            item.expected(reader, "a table");
            Value::Object(Map::new())
        }
    }
}

fn object(reader: &mut Reader, table: &DeTable<'_>) -> Value {
    let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), json(reader, value.get_ref(), &value.span())));
    Value::Object(entries.collect())
}

fn json(reader: &mut Reader, value: &DeValue<'_>, span: &Span) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(integer) => {
            let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok().and_then(Number::from_i128);
            number.map_or_else(|| unfit(reader, span, "a number of more than 64 bits", "write it as a string"), Value::Number)
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse::<f64>().ok().and_then(Number::from_f64);
            number.map_or_else(|| unfit(reader, span, "`inf` or `nan`", "leave it out, or write it as a string"), Value::Number)
        }
        DeValue::Datetime(date) => unfit(reader, span, "a date", &format!("write it as a string: \"{date}\"")),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| json(reader, item.get_ref(), &item.span())).collect()),
        DeValue::Table(table) => object(reader, table),
    }
}

fn unfit(reader: &mut Reader, span: &Span, what: &str, help: &str) -> Value {
    reader.error(span, format!("settings reach the plugin as JSON, which cannot hold {what}"), help.to_owned());
    Value::Null
}
