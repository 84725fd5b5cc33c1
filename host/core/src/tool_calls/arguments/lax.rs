//! Conversions of plain values: `"5"` to 5, `"yes"` to true. The table of pydantic 2 in its lax
//! mode, as far as JSON goes.

use serde::de::IgnoredAny;
use serde_json::{Number, Value};

/// The result of comparing a value with a type.
#[derive(Debug, PartialEq)]
pub(super) enum Lax {
    Same,
    Instead(Value),
    No,
}

/// Compares a value with the name of a type in JSON Schema. An unknown name accepts everything.
pub(super) fn lax(kind: &str, value: &Value) -> Lax {
    let is = |fits| if fits { Lax::Same } else { Lax::No };
    let instead = |value: Option<Value>| value.map_or(Lax::No, Lax::Instead);
    match (kind, value) {
        ("string", _) => is(value.is_string()),
        ("null", _) => is(value.is_null()),
        ("array", _) => is(value.is_array()),
        ("object", _) => is(value.is_object()),
        ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => Lax::Same,
        ("integer", Value::Number(number)) if !number.is_f64() => Lax::Same,
        ("integer", Value::Number(number)) => instead(number.as_f64().and_then(as_integer)),
        ("integer", Value::Bool(flag)) => Lax::Instead(i32::from(*flag).into()),
        ("integer", Value::String(text)) => instead(whole_text(text)),
        ("number", Value::Bool(flag)) => Lax::Instead(f64::from(i32::from(*flag)).into()),
        ("number", Value::String(text)) => instead(number_text(text)),
        ("boolean", Value::Number(number)) => {
            instead(number.as_f64().and_then(|n| truth(n, 1.0, 0.0)))
        }
        ("boolean", Value::String(text)) => instead(truth_text(text)),
        ("integer" | "number" | "boolean", _) => Lax::No,
        _ => Lax::Same,
    }
}

/// The error for a value of another type.
pub(super) fn mismatch(kind: &str, value: &Value) -> String {
    let expected = match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "null" => "null",
        "array" => "a list",
        "object" => "an object",
        _ => "something else",
    };
    let is_float = |number: &Number| number.as_f64().is_some_and(|float| float.fract() == 0.0);
    match value {
        Value::Number(number) if kind == "integer" && is_float(number) => {
            format!(
                "must be written in digits, within 64 bits: {value} is too large to be exact as a float"
            )
        }
        Value::String(text) if kind == "object" => match unreadable(text) {
            Some(place) => format!("must be an object, but {place}"),
            None => format!("must be {expected}, not {}", describe(value)),
        },
        _ => format!("must be {expected}, not {}", describe(value)),
    }
}

/// Returns why a text is no JSON, and where; `None` if it is JSON, or does not begin like an
/// object or a list.
fn unreadable(text: &str) -> Option<String> {
    let error = serde_json::from_str::<IgnoredAny>(text).err()?;
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        return Some(format!(
            "its JSON ends too early, at line {line}, column {column}: the answer was cut, as one \
             is at its limit of tokens"
        ));
    }
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    Some(format!("its JSON is broken at line {line}, column {column}: {reason}"))
}

/// A short description of a value.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.len() > 40 => "this text".to_owned(),
        Value::String(_) => format!("the text {value}"),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// The least whole number above those that each have a float of their own, 2^53: the next one has
/// the same float, so this one may have been another in the model's text.
const WHOLE_FLOATS: f64 = 9_007_199_254_740_992.0;

/// A float without a fraction as an integer, if no other integer has the same float.
#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
fn as_integer(number: f64) -> Option<Value> {
    let fits = number.fract() == 0.0 && number.abs() < WHOLE_FLOATS;
    fits.then(|| (number as i64).into())
}

/// Parses digits with a sign, `_` between two of them, and a trailing `.0`.
fn whole_text(text: &str) -> Option<Value> {
    let text = text.trim();
    let digits = match text.split_once('.') {
        Some((before, zeros)) if !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') => before,
        Some(_) => return None,
        None => text,
    };
    // `i128` holds every `i64` and `u64`.
    let number: i128 = plain_digits(digits)?.parse().ok()?;
    Number::from_i128(number).map(Value::Number)
}

fn number_text(text: &str) -> Option<Value> {
    // JSON cannot hold a number that is not finite.
    let number: f64 = plain_digits(text.trim())?.parse().ok()?;
    Number::from_f64(number).map(Value::Number)
}

/// Removes each `_`; `None` if one is not between two digits.
fn plain_digits(text: &str) -> Option<String> {
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit)
    };
    let between =
        |(at, _): (usize, &str)| is_digit(at.checked_sub(1)) && is_digit(at.checked_add(1));
    text.match_indices('_').all(between).then(|| text.replace('_', ""))
}

#[expect(clippy::float_cmp, reason = "exactly one or zero is wanted")]
fn truth(number: f64, yes: f64, no: f64) -> Option<Value> {
    (number == yes || number == no).then(|| (number == yes).into())
}

fn truth_text(text: &str) -> Option<Value> {
    let is = |words: [&str; 6]| words.into_iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["1", "t", "true", "y", "yes", "on"]) {
        Some(true.into())
    } else if is(["0", "f", "false", "n", "no", "off"]) {
        Some(false.into())
    } else {
        None
    }
}
