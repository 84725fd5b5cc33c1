//! JSON values as TOML on one line. A null value, also a nested one, has no form in TOML.

use serde_json::{Map, Value};

/// Returns a quoted text or key.
#[must_use]
pub(crate) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns a value, or `None` if it contains null.
#[must_use]
pub(crate) fn value(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => string(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(self::value).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::Object(fields) => table(fields)?,
    })
}

fn table(fields: &Map<String, Value>) -> Option<String> {
    let field =
        |(name, field): (&String, &Value)| Some(format!("{} = {}", string(name), value(field)?));
    Some(format!("{{ {} }}", fields.iter().map(field).collect::<Option<Vec<_>>>()?.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_toml() {
        assert_eq!(
            value(&json!({ "a": ["x\"\n\u{7f}", 1, true] })).as_deref(),
            Some("{ \"a\" = [\"x\\\"\\n\\U0000007F\", 1, true] }")
        );
        assert_eq!(value(&json!([1, null])), None);
    }
}
