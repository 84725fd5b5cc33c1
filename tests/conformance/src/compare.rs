//! Comparison of reports with expectations. Texts that a framework writes are replaced by tokens on
//! both sides, numbers are compared by their value.

use conclave_runtime::message::Role;
use serde_json::Value;

use crate::wording::tokens;

/// Returns whether both are equal.
#[must_use]
pub(crate) fn is_same(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            expected.len() == got.len()
                && expected.iter().all(|(key, value)| {
                    got.get(key).is_some_and(|other| is_same_at(key, value, other))
                })
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len()
                && expected.iter().zip(got).all(|(expected, got)| is_same(expected, got))
        }
        (Value::Number(expected), Value::Number(got)) => {
            expected == got || expected.as_f64() == got.as_f64()
        }
        (Value::String(expected), Value::String(got)) => {
            expected == got
                || tokens(expected) == tokens(got)
                || json_of(expected).is_some_and(|expected| json_of(got) == Some(expected))
        }
        // Some expectations contain a list or an object as text, as the reference's functions
        // return it.
        (Value::String(expected), Value::Object(_) | Value::Array(_)) => {
            json_of(expected).is_some_and(|expected| is_same(&expected, got))
        }
        _ => expected == got,
    }
}

/// The name of a responder ignores case (L-006).
fn is_same_at(key: &str, expected: &Value, got: &Value) -> bool {
    if let (true, Some(expected), Some(got)) = (key == "recipient", expected.as_str(), got.as_str())
        && let (Some(expected), Some(got)) = (Role::from_name(expected), Role::from_name(got))
    {
        return expected == got;
    }
    is_same(expected, got)
}

/// Parses a text that is a list or an object in JSON, because blanks in it have no meaning.
fn json_of(text: &str) -> Option<Value> {
    if text.starts_with(['{', '[']) { serde_json::from_str(text).ok() } else { None }
}

/// Returns the first differences, as `path: expected ≠ got`.
#[must_use]
pub(crate) fn differences(expected: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(expected, got, "", &mut found);
    found.truncate(8);
    found
}

fn collect(expected: &Value, got: &Value, path: &str, found: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            let null = Value::Null;
            let more = got.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(more) {
                let (expected, got) =
                    (expected.get(key).unwrap_or(&null), got.get(key).unwrap_or(&null));
                if !is_same_at(key, expected, got) {
                    collect(expected, got, &format!("{path}/{key}"), found);
                }
            }
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            for ((expected, got), index) in expected.iter().zip(got).zip(0..) {
                collect(expected, got, &format!("{path}/{index}"), found);
            }
        }
        (Value::Array(expected), Value::Array(got)) => {
            let same = expected
                .iter()
                .zip(got)
                .take_while(|(expected, got)| is_same(expected, got))
                .count();
            let (from, other) =
                (expected.get(same).unwrap_or(&Value::Null), got.get(same).unwrap_or(&Value::Null));
            found.push(format!(
                "{path}/{same}: {from} ≠ {other} ({} ≠ {} entries)",
                expected.len(),
                got.len()
            ));
        }
        _ if is_same(expected, got) => {}
        _ => found.push(format!("{path}: {expected} ≠ {got}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_key_and_a_longer_list_are_told() {
        assert!(is_same(&json!({ "a": [1, 2.0] }), &json!({ "a": [1.0, 2] })));
        let differences =
            differences(&json!({ "a": [1, 2], "b": 1 }), &json!({ "a": [1], "c": 1 }));
        assert_eq!(differences, ["/a/1: 2 ≠ null (2 ≠ 1 entries)", "/b: 1 ≠ null", "/c: null ≠ 1"]);
    }
}
