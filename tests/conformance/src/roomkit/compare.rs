//! Differences between the expectations of a RoomKit case and the report. Every expected value must
//! be present; the report may contain more. A text in angle brackets, such as `<id>`, matches any
//! non-empty text.

use serde_json::{Map, Value};

use crate::documented::Difference;

/// Returns each difference.
pub(super) fn differences(expected: &Value, got: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    below(expected, got, "", &mut differences);
    differences
}

fn below(expected: &Value, got: &Value, path: &str, differences: &mut Vec<Difference>) {
    match (expected, got) {
        (Value::Object(fields), Value::Object(seen)) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                match (seen.get(key), about(key, value, seen)) {
                    (Some(found), _) => below(value, found, &path, differences),
                    (None, Some((found, failed))) => {
                        differences.extend(failed.into_iter().map(|(place, wanted)| {
                            let path = place
                                .map_or_else(|| path.clone(), |place| format!("{path}[{place}]"));
                            Difference::new(&path, Some(wanted), Some(found))
                        }))
                    }
                    // An expected null may also be absent.
                    (None, None) if value.is_null() => {}
                    (None, None) => differences.push(Difference::new(&path, Some(value), None)),
                }
            }
        }
        (Value::Array(items), Value::Array(seen)) if items.len() == seen.len() => {
            for (index, (value, found)) in items.iter().zip(seen).enumerate() {
                below(value, found, &format!("{path}[{index}]"), differences);
            }
        }
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
        (Value::String(text), Value::String(found))
            if is_placeholder(text) && !found.is_empty() => {}
        _ if expected == got => {}
        _ => differences.push(Difference::new(path, Some(expected), Some(got))),
    }
}

fn is_placeholder(text: &str) -> bool {
    text.len() > 2
        && text.starts_with('<')
        && text.ends_with('>')
        && !text[1..text.len() - 1].contains(['<', '>'])
}

type Asks = fn(&Value, &Value) -> bool;

/// Endings with several requirements. Each is checked and reported separately.
const PARTS: [&str; 3] = ["contains", "_contains", "_include"];

/// The checks of key endings.
const ASKS: [(&str, Asks); 7] = [
    ("_has_key", has_keys),
    ("_lacks", lacks),
    ("_matches", matches),
    ("_in", |found, wanted| wanted.as_array().is_some_and(|any| any.contains(found))),
    ("_lt", |found, wanted| compared(found, wanted).is_some_and(|(found, wanted)| found < wanted)),
    ("_gte", |found, wanted| {
        compared(found, wanted).is_some_and(|(found, wanted)| found >= wanted)
    }),
    ("_prefix", begins),
];

/// Returns the key that a key with an ending refers to.
pub(super) fn asked_of(key: &str) -> Option<&str> {
    let mut endings = ASKS.iter().map(|(ending, _)| ending).chain(&PARTS[1..]);
    endings.find_map(|ending| key.strip_suffix(ending))
}

/// The unmet requirements, with their indices if there are several.
type Missed<'a> = Vec<(Option<usize>, &'a Value)>;

/// Checks the field in front of an ending. Returns the field and its unmet requirements. `None`
/// without an ending or without such a field.
fn about<'a>(
    key: &str,
    wanted: &'a Value,
    seen: &'a Map<String, Value>,
) -> Option<(&'a Value, Missed<'a>)> {
    let of = |ending: &str| {
        if key == "contains" { seen.get("text") } else { seen.get(key.strip_suffix(ending)?) }
    };
    if let Some(found) = PARTS.iter().find_map(|ending| of(ending)) {
        let parts = wanted.as_array().map(|parts| {
            parts.iter().enumerate().map(|(place, part)| (Some(place), part)).collect()
        });
        let parts: Missed<'a> = parts.unwrap_or_else(|| vec![(None, wanted)]);
        return Some((
            found,
            parts.into_iter().filter(|(_, part)| !holds_one(found, part)).collect(),
        ));
    }
    ASKS.iter().find_map(|(ending, asks)| {
        let found = of(ending)?;
        Some((found, if asks(found, wanted) { Vec::new() } else { vec![(None, wanted)] }))
    })
}

fn compared(found: &Value, wanted: &Value) -> Option<(f64, f64)> {
    Some((found.as_f64()?, wanted.as_f64()?))
}

/// Returns the items of a list, or the single value.
fn each<'a>(wanted: &'a Value) -> Vec<&'a Value> {
    wanted.as_array().map_or_else(|| vec![wanted], |all| all.iter().collect::<Vec<&'a Value>>())
}

fn holds_one(found: &Value, one: &Value) -> bool {
    match found {
        Value::String(text) => one.as_str().is_some_and(|part| text.contains(part)),
        Value::Array(items) => items.iter().any(|item| {
            // A list of texts contains a text if it equals an item or is a part of one.
            item == one
                || item.as_str().zip(one.as_str()).is_some_and(|(item, part)| item.contains(part))
        }),
        Value::Object(fields) => match one {
            Value::Object(some) => some.iter().all(|(key, value)| fields.get(key) == Some(value)),
            one => one.as_str().is_some_and(|key| fields.contains_key(key)),
        },
        _ => false,
    }
}

fn lacks(found: &Value, wanted: &Value) -> bool {
    !found.is_null() && each(wanted).into_iter().all(|one| !holds_one(found, one))
}

fn has_keys(found: &Value, wanted: &Value) -> bool {
    each(wanted).into_iter().all(|key| key.as_str().is_some_and(|key| found.get(key).is_some()))
}

fn matches(found: &Value, wanted: &Value) -> bool {
    let pattern = wanted.as_str().and_then(|pattern| regex::Regex::new(pattern).ok());
    found.as_str().zip(pattern).is_some_and(|(text, pattern)| pattern.is_match(text))
}

fn begins(found: &Value, wanted: &Value) -> bool {
    found.as_str().zip(wanted.as_str()).is_some_and(|(text, start)| text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_expected_must_be_there() {
        let got = json!({ "a": { "b": 1, "c": ["x", "y"] }, "text": "one two", "n": null, "ms": 5, "id": "task-1", "none": "" });
        for right in [
            json!({ "a": { "b": 1.0 } }),
            json!({ "a": { "c_include": ["y"] }, "text_contains": "two" }),
            json!({ "text_contains": ["one", "two"], "text_lacks": ["three"], "n": null, "other": null }),
            json!({ "ms_lt": 6, "a_has_key": "b", "id": "<id>", "id_prefix": "task-" }),
            json!({ "a": { "c_lacks": ["z"] }, "ms_in": [4, 5], "id_matches": "^task-[0-9]$" }),
        ] {
            assert_eq!(differences(&right, &got), Vec::new(), "{right}");
        }
        for wrong in [
            json!({ "a": { "b": 2 } }),
            json!({ "a": { "c": ["x"] } }),
            json!({ "a": { "c_include": ["z"] } }),
            json!({ "text_contains": ["one", "three"] }),
            json!({ "text_lacks": ["two"] }),
            json!({ "other": 1 }),
            json!({ "other_lacks": ["x"] }),
            json!({ "n_lacks": ["x"] }),
            json!({ "ms_lt": 5 }),
            json!({ "none": "<id>" }),
            json!({ "a_has_key": "x" }),
            json!({ "ms_in": [4] }),
            json!({ "id_matches": "^x" }),
        ] {
            assert_eq!(differences(&wrong, &got).len(), 1, "{wrong}");
        }
    }
}
