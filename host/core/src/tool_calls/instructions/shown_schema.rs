//! Schemas as a model reads them: without parts that have no meaning for it.

use serde_json::{Map, Value, json};

/// The limit of cleaned levels; deeper ones stay unchanged.
const DEPTH_MAX: usize = 64;

/// The schema of a call with its name as a required argument (L-106).
pub(super) fn with_request(name: &str, schema: &Value) -> Value {
    let mut schema = match cleaned(schema) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    let mut put = |key: &str, empty: Value, add: &dyn Fn(&mut Value)| {
        let place = schema.entry(key).or_insert_with(|| empty.clone());
        if std::mem::discriminant(place) != std::mem::discriminant(&empty) {
            *place = empty;
        }
        add(place);
    };
    put("type", json!("object"), &|_| {});
    put("properties", json!({}), &|fields| fields["request"] = json!({ "const": name }));
    put("required", json!([]), &|required| {
        let others =
            required.as_array().into_iter().flatten().filter(|other| *other != "request").cloned();
        *required = std::iter::once(json!("request")).chain(others).collect();
    });
    Value::Object(schema)
}

/// The schema without titles, comments and fields that only describe the tool.
pub(super) fn cleaned(schema: &Value) -> Value {
    clean(schema, 0)
}

fn clean(schema: &Value, depth: usize) -> Value {
    match schema {
        Value::Object(_) | Value::Array(_) if depth >= DEPTH_MAX => json!(true),
        Value::Array(list) => list.iter().map(|part| clean(part, depth + 1)).collect(),
        Value::Object(keywords) => {
            let keep = |(key, value): &(&String, &Value)| {
                !(value.is_string()
                    && matches!(key.as_str(), "title" | "$schema" | "$id" | "$comment"))
            };
            let cleaned = |(key, value): (&String, &Value)| {
                let value = match (key.as_str(), value) {
                    ("properties", Value::Object(fields)) => {
                        clean_parts(fields, depth, |name, field| !is_noise(name, field, keywords))
                    }
                    (
                        "$defs" | "definitions" | "patternProperties" | "dependentSchemas",
                        Value::Object(parts),
                    ) => clean_parts(parts, depth, |_, _| true),
                    ("enum" | "const" | "default" | "examples" | "required", value) => {
                        value.clone()
                    }
                    (_, value) => clean(value, depth + 1),
                };
                (key.clone(), value)
            };
            Value::Object(keywords.iter().filter(keep).map(cleaned).collect())
        }
        plain => plain.clone(),
    }
}

/// Cleans parts by name: a name is never a keyword, even if it looks like one.
fn clean_parts(
    parts: &Map<String, Value>,
    depth: usize,
    keep: impl Fn(&str, &Value) -> bool,
) -> Value {
    let parts = parts.iter().filter(|(name, part)| keep(name, part));
    Value::Object(parts.map(|(name, part)| (name.clone(), clean(part, depth + 1))).collect())
}

/// Whether a field is one of two texts that the reference puts into every tool and that a model
/// need not write. A real `id` is required, or has no default.
fn is_noise(name: &str, field: &Value, schema: &Map<String, Value>) -> bool {
    let is_required = || {
        schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|required| required.iter().any(|other| other == name))
    };
    matches!(name, "purpose" | "id")
        && field.get("default").is_some_and(Value::is_string)
        && !is_required()
}
