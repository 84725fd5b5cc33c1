//! The limits of a value in a few words, for a schema that is shown on one line.

use serde_json::{Map, Value};

/// The characters of a pattern that is short enough to be shown.
const PATTERN_SHORT: usize = 32;

/// The limits of a schema of this type: `1…10`, `1…64 characters`, `≤ 3 items`, and a short
/// pattern. `None` if it has none.
#[must_use]
pub fn limits(schema: &Map<String, Value>, kind: &str) -> Option<String> {
    let number = |key: &str| schema.get(key).filter(|value| value.is_number());
    let range = |low: &str, high: &str| match (number(low), number(high)) {
        (Some(low), Some(high)) if low == high => Some(low.to_string()),
        (Some(low), Some(high)) => Some(format!("{low}…{high}")),
        (Some(low), None) => Some(format!("≥ {low}")),
        (None, Some(high)) => Some(format!("≤ {high}")),
        (None, None) => None,
    };
    let counted = |low, high, noun| range(low, high).map(|range| format!("{range} {noun}"));
    let parts = match kind {
        "integer" | "number" => vec![
            range("minimum", "maximum"),
            number("exclusiveMinimum").map(|bound| format!("> {bound}")),
            number("exclusiveMaximum").map(|bound| format!("< {bound}")),
            number("multipleOf").map(|step| format!("multiple of {step}")),
        ],
        "string" => {
            let pattern = schema.get("pattern").and_then(Value::as_str);
            let is_short = |pattern: &&str| pattern.chars().count() <= PATTERN_SHORT;
            vec![
                counted("minLength", "maxLength", "characters"),
                pattern.filter(is_short).map(|pattern| format!("matching {pattern}")),
            ]
        }
        "array" => vec![counted("minItems", "maxItems", "items")],
        _ => Vec::new(),
    };
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_limits_of_a_schema_are_a_few_words() {
        let of = |kind: &str, schema: Value| limits(schema.as_object().expect("an object"), kind);
        for (kind, schema, expected) in [
            ("integer", json!({ "minimum": 1, "maximum": 10 }), Some("1…10")),
            ("number", json!({ "minimum": 0.5 }), Some("≥ 0.5")),
            ("number", json!({ "exclusiveMinimum": 0, "maximum": 1 }), Some("≤ 1, > 0")),
            ("string", json!({ "minLength": 2, "maxLength": 2 }), Some("2 characters")),
            (
                "string",
                json!({ "maxLength": 9, "pattern": "^a" }),
                Some("≤ 9 characters, matching ^a"),
            ),
            ("string", json!({ "pattern": "a".repeat(33) }), None),
            ("array", json!({ "minItems": 1, "maxItems": 3 }), Some("1…3 items")),
            ("integer", json!({ "minLength": 1 }), None),
            ("object", json!({ "minimum": 1 }), None),
        ] {
            assert_eq!(of(kind, schema.clone()).as_deref(), expected, "{kind} {schema}");
        }
    }
}
