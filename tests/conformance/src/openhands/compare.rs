//! Differences between the expectations of an OpenHands case and the report. Every expected value
//! must be present. Data (events, plans, texts) must be equal; other reports may contain more than
//! the case expects.

use serde_json::{Map, Value};

use super::wording::plain;
use crate::documented::Difference;

/// Kinds whose results are data.
const EXACT: [&str; 12] = [
    "codec",
    "codec_error",
    "truncate",
    "read_lines",
    "write_lines",
    "plan",
    "stuck_pairs",
    "stuck_events",
    "limit",
    "unmatched",
    "event_tree",
    "search",
];

/// Kinds in which the host words sentences itself. The sentences of a case become tokens too.
const WORDED: [&str; 3] = ["controller", "limit", "delegate"];

/// Returns each difference.
pub(super) fn differences(kind: &str, expect: &Value, got: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    let expect = if WORDED.contains(&kind) { tokens(expect) } else { expect.clone() };
    below(&expect, got, "", EXACT.contains(&kind), &mut differences);
    differences
}

fn tokens(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(plain(text)),
        Value::Array(items) => items.iter().map(tokens).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), tokens(value))).collect()
        }
        other => other.clone(),
    }
}

fn below(
    expected: &Value,
    got: &Value,
    path: &str,
    exact: bool,
    differences: &mut Vec<Difference>,
) {
    match (expected, got) {
        (Value::Object(fields), Value::Object(seen)) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                match (seen.get(key), asks(key, value, seen)) {
                    (Some(found), _) => below(value, found, &path, exact, differences),
                    (None, Some(Ok(()))) => {}
                    (None, Some(Err(found))) => {
                        differences.push(Difference::new(&path, Some(value), Some(found)))
                    }
                    (None, None) => differences.push(Difference::new(&path, Some(value), None)),
                }
            }
            if exact && !path.is_empty() {
                let more = seen.iter().filter(|(key, _)| !fields.contains_key(*key));
                differences.extend(more.map(|(key, found)| {
                    Difference::new(&format!("{path}.{key}"), None, Some(found))
                }));
            }
        }
        (Value::Array(items), Value::Array(seen)) if items.len() == seen.len() => {
            for (index, (value, found)) in items.iter().zip(seen).enumerate() {
                below(value, found, &format!("{path}[{index}]"), exact, differences);
            }
        }
        // An expectation that is an event's name alone.
        (Value::String(name), Value::Object(seen)) if !exact && is_named(name, seen) => {}
        (Value::String(one), Value::String(other))
            if path == ".error" && is_same_error(one, other) => {}
        (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
        _ if expected == got => {}
        _ => differences.push(Difference::new(path, Some(expected), Some(got))),
    }
}

/// Returns whether the event has this name: `{"observation": "error", …}` or `{"agent_error":
/// "…"}`.
fn is_named(name: &str, event: &Map<String, Value>) -> bool {
    let has_name = ["observation", "action"]
        .iter()
        .any(|key| event.get(*key).is_some_and(|value| value == name));
    has_name || (event.len() == 1 && event.contains_key(name))
}

/// Names of errors with one meaning: the reference's classes and the names of the cases.
const ERRORS: [&[&str]; 4] = [
    &["value-error", "unknown-event", "unknown-event-type", "neither"],
    &["unknown-parent", "missing-parent", "parent-not-found", "no-such-parent"],
    &[
        "unknown-id",
        "unknown-event",
        "not-found",
        "event-not-found",
        "missing-event",
        "no-such-event",
        "key-error",
    ],
    &["cycle", "cyclic", "corrupt-tree", "corrupt"],
];

fn is_same_error(one: &str, other: &str) -> bool {
    let plain = |name: &str| {
        let mut plain = String::new();
        for (at, letter) in name.char_indices() {
            if letter.is_ascii_uppercase() && at > 0 && !plain.ends_with('-') {
                plain.push('-');
            }
            plain.push(if letter == '_' { '-' } else { letter.to_ascii_lowercase() });
        }
        plain
    };
    let (one, other) = (plain(one), plain(other));
    one == other
        || ERRORS
            .iter()
            .any(|names| names.contains(&one.as_str()) && names.contains(&other.as_str()))
}

type Asks = fn(&Value, &Value) -> bool;

/// The checks of key endings: the start of a text, a part of it, the last item of a list.
const ENDINGS: [(&str, Asks); 6] = [
    ("_prefix", starts_with),
    ("_starts_with", starts_with),
    ("_startswith", starts_with),
    ("_starts", starts_with),
    ("_contains", |whole, part| {
        texts(whole, part).is_some_and(|(whole, part)| whole.contains(part))
    }),
    ("_tail", |list, last| {
        list.as_array().is_some_and(|list| list.last().unwrap_or(&Value::Null) == last)
    }),
];

fn texts<'a>(one: &'a Value, other: &'a Value) -> Option<(&'a str, &'a str)> {
    Some((one.as_str()?, other.as_str()?))
}

fn starts_with(whole: &Value, start: &Value) -> bool {
    texts(whole, start).is_some_and(|(whole, start)| whole.starts_with(start))
}

/// Returns the key that a key with an ending refers to.
pub(super) fn asked_of(key: &str) -> Option<&str> {
    ENDINGS.iter().find_map(|(ending, _)| key.strip_suffix(ending))
}

/// Checks the value of the key in front of an ending. The error holds that value. `None` without an
/// ending or without such a key.
fn asks<'a>(
    key: &str,
    wanted: &Value,
    seen: &'a Map<String, Value>,
) -> Option<Result<(), &'a Value>> {
    ENDINGS.iter().find_map(|(ending, is)| {
        let found = seen.get(key.strip_suffix(ending)?)?;
        Some(if is(found, wanted) { Ok(()) } else { Err(found) })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kind: &str, expect: &Value, got: &Value) -> Vec<String> {
        differences(kind, expect, got).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn data_is_compared_exactly_and_what_happened_as_far_as_it_is_expected() {
        let got = json!({ "a": { "b": 1, "c": [2] }, "more": 3 });
        assert!(found("controller", &json!({ "a": { "b": 1.0 } }), &got).is_empty());
        assert_eq!(
            found("codec", &json!({ "a": { "b": 1 } }), &got),
            [".a.c: is there, and was not expected"]
        );
        for wrong in [
            json!({ "a": { "b": 2 } }),
            json!({ "a": { "c": [2, 3] } }),
            json!({ "x": null }),
            json!({ "a": "b" }),
        ] {
            assert_eq!(found("controller", &wrong, &got).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_prefix_is_what_a_text_begins_with() {
        let got = json!({ "content": "abc" });
        assert!(found("runtime", &json!({ "content_prefix": "ab" }), &got).is_empty());
        assert_eq!(found("runtime", &json!({ "content_prefix": "b" }), &got).len(), 1);
        assert!(found("runtime", &json!({ "content_contains": "bc" }), &got).is_empty());
        assert_eq!(found("runtime", &json!({ "content_contains": "x" }), &got).len(), 1);
        let got = json!({ "history": [["run", "run"], ["message", "null"]] });
        assert!(
            found("controller", &json!({ "history_tail": ["message", "null"] }), &got).is_empty()
        );
        assert_eq!(found("controller", &json!({ "history_tail": ["run", "run"] }), &got).len(), 1);
    }

    #[test]
    fn names_of_one_error_are_one_and_others_are_not() {
        let got = json!({ "error": "unknown-parent" });
        for same in ["unknown-parent", "UnknownParent", "missing-parent"] {
            assert!(found("event_tree", &json!({ "error": same }), &got).is_empty(), "{same}");
        }
        for other in ["unknown-id", "cycle", "duplicate-id"] {
            assert_eq!(found("event_tree", &json!({ "error": other }), &got).len(), 1, "{other}");
        }
        // In other places a text is compared as it is.
        assert_eq!(
            found("codec", &json!({ "dict": "ValueError" }), &json!({ "dict": "value-error" }))
                .len(),
            1
        );
    }

    #[test]
    fn an_event_may_be_expected_by_its_name_where_it_is_no_data() {
        let got = json!({ "observation": { "observation": "error", "content": "e" } });
        assert!(found("beat", &json!({ "observation": "error" }), &got).is_empty());
        assert_eq!(found("beat", &json!({ "observation": "null" }), &got).len(), 1);
        assert_eq!(found("codec", &json!({ "observation": "error" }), &got).len(), 1);
        let got = json!({ "events": [{ "agent_error": "x" }, "observation"] });
        assert!(
            found("parallel", &json!({ "events": ["agent_error", "observation"] }), &got)
                .is_empty()
        );
        assert_eq!(
            found("parallel", &json!({ "events": ["observation", "observation"] }), &got).len(),
            1
        );
    }
}
