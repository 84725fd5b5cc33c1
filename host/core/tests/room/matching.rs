//! Compares a report with its expectation. Objects may have additional keys, and nested lists
//! additional items. A text that begins with `~` need only be a part of the report.

use serde_json::Value;

/// Describes the first difference, or `None` if the two match.
pub(crate) fn difference(expected: &Value, seen: &Value) -> Option<String> {
    compare("", expected, seen, false)
}

fn compare(path: &str, expected: &Value, seen: &Value, within_list: bool) -> Option<String> {
    match (expected, seen) {
        (Value::Object(expected), Value::Object(seen)) => {
            expected.iter().find_map(|(key, value)| {
                compare(
                    &format!("{path}/{key}"),
                    value,
                    seen.get(key).unwrap_or(&Value::Null),
                    false,
                )
            })
        }
        (Value::Array(expected_list), Value::Array(seen_list)) => {
            let fits = expected_list.len() == seen_list.len()
                || (within_list && expected_list.len() < seen_list.len());
            if !fits {
                return Some(format!("{path}: expected {expected}\n    seen {seen}"));
            }
            let pairs = expected_list.iter().zip(seen_list).enumerate();
            pairs.into_iter().find_map(|(index, (expected, seen))| {
                compare(&format!("{path}/{index}"), expected, seen, true)
            })
        }
        (Value::String(expected), Value::String(seen))
            if expected.strip_prefix('~').is_some_and(|part| seen.contains(part)) =>
        {
            None
        }
        _ if expected == seen => None,
        _ => Some(format!("{path}: expected {expected}\n    seen {seen}")),
    }
}
