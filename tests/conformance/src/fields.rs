//! The fields of a tool as JSON Schema: `int str float bool any`, `{type, default}`, `{object:
//! fields}`.

use serde_json::{Map, Value, json};

/// Returns the schema of a tool's arguments.
///
/// # Errors
/// If a type is unknown.
pub(crate) fn schema(fields: &Map<String, Value>) -> Result<Value, String> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, field) in fields {
        let (property, is_required) = property(field)
            .ok_or_else(|| format!("the field {name} has no type that is known: {field}"))?;
        properties.insert(name.clone(), property);
        if is_required {
            required.push(name.clone());
        }
    }
    Ok(json!({ "type": "object", "properties": properties, "required": required }))
}

fn property(field: &Value) -> Option<(Value, bool)> {
    if let Some(name) = field.as_str() {
        return Some((of_type(name)?, true));
    }
    if let Some(fields) = field.get("object").and_then(Value::as_object) {
        return Some((schema(fields).ok()?, true));
    }
    let mut property = of_type(field.get("type")?.as_str()?)?;
    let default = field.get("default");
    if let (Some(default), Some(property)) = (default, property.as_object_mut()) {
        property.insert("default".to_owned(), default.clone());
    }
    Some((property, default.is_none()))
}

fn of_type(name: &str) -> Option<Value> {
    Some(match name {
        "int" => json!({ "type": "integer" }),
        "str" => json!({ "type": "string" }),
        "float" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        "any" => json!({}),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_properties() {
        let fields = json!({ "x": "int", "s": { "type": "str", "default": "a" }, "o": { "object": { "y": "float" } } });
        let expected = json!({
            "type": "object",
            "properties": {
                "x": { "type": "integer" },
                "s": { "type": "string", "default": "a" },
                "o": { "type": "object", "properties": { "y": { "type": "number" } }, "required": ["y"] },
            },
            "required": ["o", "x"],
        });
        let mut got =
            schema(fields.as_object().expect("it is an object")).expect("all types are known");
        if let Some(required) = got["required"].as_array_mut() {
            required.sort_by_key(ToString::to_string);
        }
        assert_eq!(got, expected);
        assert!(schema(json!({ "x": "complex" }).as_object().expect("it is an object")).is_err());
    }
}
