//! The meaning of an unquoted token: a number, a truth value, null, or a text. Does not find the
//! token's end.

use serde_json::{Number, Value};

/// The value of an unquoted token; a text by default.
pub(super) fn literal(token: &str) -> Value {
    let lower =
        token.get(..token.len().min(5)).filter(|_| token.len() <= 5).map(str::to_ascii_lowercase);
    match lower.as_deref() {
        Some("true") => return Value::Bool(true),
        Some("false") => return Value::Bool(false),
        Some("null") => return Value::Null,
        _ if token == "None" => return Value::Null,
        _ => {}
    }
    number(token).map_or_else(|| Value::String(token.to_owned()), Value::Number)
}

fn number(token: &str) -> Option<Number> {
    if !token.contains(|c: char| c.is_ascii_digit())
        || token.contains(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E' | '_'))
    {
        return None;
    }
    let digits = token.replace('_', "");
    let digits = digits.strip_prefix('+').unwrap_or(&digits);
    if let Ok(integer) = digits.parse::<i64>() {
        return Some(integer.into());
    }
    digits
        .parse::<u64>()
        .map(Number::from)
        .ok()
        .or_else(|| digits.parse::<f64>().ok().and_then(Number::from_f64))
}
