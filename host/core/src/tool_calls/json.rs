//! JSON objects in prose: their positions, and the repair of malformed ones. Does not decide
//! whether an object is a tool call.

use serde_json::Value;

mod braces;
mod repair;

/// The top-level groups in braces of a text, in order (L-109, L-110).
///
/// Valid JSON stays unchanged. Malformed JSON is repaired: single or missing quotes, line feeds and
/// quotes inside texts, missing or superfluous commas, unquoted values, Python's `True` and `None`,
/// comments. Braces around plain words give a text, and those around several values the first of
/// them, so that a caller notices the group. Groups beyond repair are left out.
#[must_use]
pub fn objects(text: &str) -> Vec<Value> {
    braces::groups(text).into_iter().filter_map(value).collect()
}

/// The first groups, at most `most`; the rest of the text costs nothing.
#[must_use]
pub fn first_objects(text: &str, most: usize) -> Vec<Value> {
    braces::groups(text).into_iter().filter_map(value).take(most).collect()
}

/// The value of a key in the first object that has it.
#[must_use]
pub fn field(text: &str, name: &str) -> Option<Value> {
    let has = |object: Value| match object {
        Value::Object(mut fields) => fields.remove(name),
        Value::Array(items) => items.iter().find_map(|item| item.get(name).cloned()),
        _ => None,
    };
    braces::groups(text).into_iter().filter_map(value).find_map(has)
}

/// The position of the first group in braces that the text does not close.
#[must_use]
pub fn unfinished(text: &str) -> Option<usize> {
    braces::first_open(text)
}

/// What is readable of a group whose end is missing.
#[must_use]
pub fn beginning(group: &str) -> Option<Value> {
    repair::repair(group)
}

fn value(group: &str) -> Option<Value> {
    let value = serde_json::from_str(group).ok().or_else(|| repair::repair(group))?;
    match value {
        Value::Array(items) => items.into_iter().next(),
        value => Some(value),
    }
}

#[cfg(test)]
mod tests;
