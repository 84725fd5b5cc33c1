//! JSON objects in prose: where they stand, and what they mean if they are only nearly JSON.
//! Whether an object is a call of a tool is not known here.

use serde_json::Value;

mod braces;
mod repair;

/// What stands in braces at the top level of a text, in order (L-109, L-110).
///
/// Valid JSON comes out as it is. What is nearly JSON is repaired: single or missing quotes, line
/// feeds and quotes inside texts, commas too many or too few, unquoted values, Python's `True` and
/// `None`, comments. Braces around mere words give a text, and those around several things the
/// first of them, so that a caller sees that something was there. What cannot be repaired is left
/// out.
#[must_use]
pub fn objects(text: &str) -> Vec<Value> {
    braces::groups(text).into_iter().filter_map(value).collect()
}

/// The first of them, so many at most: what comes after costs nothing.
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

fn value(group: &str) -> Option<Value> {
    let value = serde_json::from_str(group).ok().or_else(|| repair::repair(group))?;
    match value {
        Value::Array(items) => items.into_iter().next(),
        value => Some(value),
    }
}

#[cfg(test)]
mod tests;
