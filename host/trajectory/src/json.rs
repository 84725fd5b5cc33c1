//! A JSON tree with ordered keys, because the wire form fixes their order (O-002) and
//! `serde_json`'s map sorts them.

use std::fmt::Write;

use serde_json::{Map, Value};

/// JSON whose objects keep the insertion order of their keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Leaf(Value),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Json {
        Json::Leaf(Value::String(text.into()))
    }

    /// A `serde_json` value, with the key order of its map.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Json::Leaf(value) => value,
            Json::List(items) => Value::Array(items.into_iter().map(Json::into_value).collect()),
            Json::Object(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.into_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// One line without blanks between tokens, with keys in order.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, ",", ":");
        out
    }

    /// One line with a blank after each comma and colon, as the stored logs of both eras have it.
    pub(crate) fn to_spaced_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, ", ", ": ");
        out
    }

    fn write(&self, out: &mut String, comma: &str, colon: &str) {
        match self {
            Json::Leaf(value) => write_value(value, out, comma, colon),
            Json::List(items) => {
                write_list(out, comma, items.iter(), |item, out| item.write(out, comma, colon))
            }
            Json::Object(fields) => write_object(out, comma, fields.iter(), |(key, value), out| {
                write_key(key, out, colon);
                value.write(out, comma, colon);
            }),
        }
    }
}

fn write_value(value: &Value, out: &mut String, comma: &str, colon: &str) {
    match value {
        Value::Array(items) => {
            write_list(out, comma, items.iter(), |item, out| write_value(item, out, comma, colon))
        }
        Value::Object(map) => write_object(out, comma, map.iter(), |(key, value), out| {
            write_key(key, out, colon);
            write_value(value, out, comma, colon);
        }),
        // A scalar `Value` prints on one line without blanks; writing to a `String` does not fail.
        leaf => {
            let _ = write!(out, "{leaf}");
        }
    }
}

fn write_key(key: &str, out: &mut String, colon: &str) {
    // Writing to a `String` does not fail.
    let _ = write!(out, "{}{colon}", Value::String(key.to_owned()));
}

fn write_list<T>(
    out: &mut String,
    comma: &str,
    items: impl Iterator<Item = T>,
    each: impl Fn(T, &mut String),
) {
    out.push('[');
    write_items(out, comma, items, each);
    out.push(']');
}

fn write_object<T>(
    out: &mut String,
    comma: &str,
    items: impl Iterator<Item = T>,
    each: impl Fn(T, &mut String),
) {
    out.push('{');
    write_items(out, comma, items, each);
    out.push('}');
}

fn write_items<T>(
    out: &mut String,
    comma: &str,
    items: impl Iterator<Item = T>,
    each: impl Fn(T, &mut String),
) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(comma);
        }
        each(item, out);
    }
}
