//! Values as text in the reference's form: text unchanged, null as empty text, everything else as
//! JSON with blanks behind `,` and `:` (L-031).

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Returns the text of a value.
///
/// ```
/// use conclave_script::text_of;
/// use serde_json::json;
///
/// assert_eq!(text_of(&json!("a")), "a");
/// assert_eq!(text_of(&json!(null)), "");
/// assert_eq!(text_of(&json!({ "a": [1, 2] })), r#"{"a": [1, 2]}"#);
/// ```
#[must_use]
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => json_text(other),
    }
}

/// Returns a value as JSON text with blanks.
#[must_use]
pub fn json_text(value: &Value) -> String {
    let mut out = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, Spaced));
    written.ok().and_then(|()| String::from_utf8(out).ok()).unwrap_or_default()
}

/// Parses an integer as a user writes it: digits, with a sign or blanks around it.
pub(crate) fn integer(text: &str) -> Option<i128> {
    text.trim().parse().ok()
}

/// Returns the integer that a value is, or that its text contains.
pub(crate) fn integer_of(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => {
            number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
        }
        Value::String(text) => integer(text),
        _ => None,
    }
}

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
