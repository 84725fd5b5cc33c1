//! Conversion of any TOML table to JSON, for a plugin's own settings and the arguments of a call.
//! Dates and numbers that JSON lacks are refused.

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::problem::Span;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue};

/// Returns the settings of `[plugins.NAME.config]`; an empty object after a problem.
pub(crate) fn settings(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Value {
    TableSource { reader, usage: "settings reach the plugin" }.read(item)
}

/// Returns the arguments of a call; an empty object after a problem.
pub(crate) fn arguments(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Value {
    TableSource { reader, usage: "arguments reach the tool" }.read(item)
}

/// Returns the pattern for an argument of a call.
pub(crate) fn pattern(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Value {
    TableSource { reader, usage: "arguments are compared" }.json(item.value, &item.span)
}

/// The origin of a table, and the reader of its JSON.
struct TableSource<'a> {
    reader: &'a mut ConfigReader,
    usage: &'static str,
}

impl TableSource<'_> {
    fn read(&mut self, item: &SpannedValue<'_>) -> Value {
        if let DeValue::Table(table) = item.value {
            return self.object(table);
        }
        item.expected(self.reader, "a table");
        Value::Object(Map::new())
    }

    fn object(&mut self, table: &DeTable<'_>) -> Value {
        let entries = table.iter().map(|(key, value)| {
            (key.get_ref().to_string(), self.json(value.get_ref(), &value.span()))
        });
        Value::Object(entries.collect())
    }

    fn json(&mut self, value: &DeValue<'_>, span: &Span) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Integer(integer) => {
                let number = i128::from_str_radix(integer.as_str(), integer.radix())
                    .ok()
                    .and_then(Number::from_i128);
                number.map_or_else(
                    || self.unfit(span, "a number of more than 64 bits", "write it as a string"),
                    Value::Number,
                )
            }
            DeValue::Float(float) => {
                let number = float.as_str().parse::<f64>().ok().and_then(Number::from_f64);
                number.map_or_else(
                    || self.unfit(span, "`inf` or `nan`", "leave it out, or write it as a string"),
                    Value::Number,
                )
            }
            DeValue::Datetime(date) => {
                self.unfit(span, "a date", &format!("write it as a string: \"{date}\""))
            }
            DeValue::Array(items) => Value::Array(
                items.iter().map(|item| self.json(item.get_ref(), &item.span())).collect(),
            ),
            DeValue::Table(table) => self.object(table),
        }
    }

    fn unfit(&mut self, span: &Span, what: &str, help: &str) -> Value {
        self.reader.error(
            ProblemCode::InvalidValue,
            span,
            format!("{} as JSON, which cannot hold {what}", self.usage),
            help.to_owned(),
        );
        Value::Null
    }
}
