//! The JSON Schema of conclave.toml, for editors, generated from the reader's list of keys, so that
//! both always agree. Checks beyond JSON Schema, such as references, belong to `conclave check`.

use serde_json::{Map, Value, json};

use super::amounts::FACTORS;
use super::keys::{ConfigKey, KEYS, TASK, ValueShape, of_table};
use super::names::NAME_MAX;
use crate::types::units;

/// The file that `#:schema` names in the configs that this program writes.
pub const FILE: &str = "conclave.schema.json";

/// The schema, draft 2020-12. Keys of later versions are left out, and so refused.
#[must_use]
pub fn json_schema() -> Value {
    let mut root = table("");
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("conclave.toml"));
    root.insert("$defs".to_owned(), Value::Object(definitions()));
    Value::Object(root)
}

/// Every table below the top level, under its name.
fn definitions() -> Map<String, Value> {
    let mut definitions = Map::new();
    for kind in KEYS.iter().filter(|key| !key.table.is_empty()).map(|key| key.table) {
        definitions.entry(definition(kind)).or_insert_with(|| Value::Object(table(kind)));
    }
    definitions
}

/// The name of a table in `$defs`; brackets would need escapes in a reference.
fn definition(kind: &str) -> String {
    kind.replace("[]", "")
}

fn table(kind: &str) -> Map<String, Value> {
    let keys = of_table(kind);
    let properties: Map<String, Value> =
        keys.map(|key| (key.name.to_owned(), property(key))).collect();
    let mut table = Map::new();
    table.insert("type".to_owned(), json!("object"));
    table.insert("properties".to_owned(), Value::Object(properties));
    table.insert("additionalProperties".to_owned(), json!(false));
    table
}

fn property(key: &ConfigKey) -> Value {
    let mut property = shape(&key.shape);
    property.insert("description".to_owned(), json!(key.doc));
    if let Some(default) = key.default.written() {
        property
            .insert("default".to_owned(), value_of(&format!("{} = {default}", key.name), key.name));
    }
    if let Some(example) = example(key) {
        property.insert("examples".to_owned(), json!([example]));
    }
    Value::Object(property)
}

fn shape(form: &ValueShape) -> Map<String, Value> {
    let value = match form {
        ValueShape::Text => json!({ "type": "string" }),
        ValueShape::Choice(words) => json!({ "enum": words }),
        ValueShape::Size { .. } => measure(units::names().0),
        ValueShape::Duration { .. } => measure(units::names().1),
        ValueShape::Whole { least, most } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        ValueShape::Dollars => json!({ "type": "number", "minimum": 0 }),
        ValueShape::Spending => json!({ "type": "number", "exclusiveMinimum": 0 }),
        ValueShape::Factor => {
            json!({ "type": "number", "minimum": FACTORS.start(), "maximum": FACTORS.end() })
        }
        ValueShape::Flag => json!({ "type": "boolean" }),
        ValueShape::List(entry) => json!({ "type": "array", "items": shape(entry) }),
        ValueShape::Either(forms) => {
            json!({ "anyOf": forms.iter().map(shape).collect::<Vec<_>>() })
        }
        ValueShape::Table(kind) => reference(kind),
        ValueShape::Named(kind) => json!({
            "type": "object",
            "propertyNames": { "pattern": format!("{}{{0,{}}}$", name_pattern(kind), NAME_MAX - 1) },
            "additionalProperties": reference(kind),
        }),
        ValueShape::Texts => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        ValueShape::Free => json!({ "type": "object" }),
    };
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The pattern of a name. Those of tasks are for people and less strict (L-007).
fn name_pattern(kind: &str) -> &'static str {
    if kind == TASK { "^[A-Za-z0-9][A-Za-z0-9_-]" } else { "^[a-z][a-z0-9_-]" }
}

fn reference(kind: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{}", definition(kind)) })
}

/// The schema of a number with one of these units.
fn measure<'a>(units: impl Iterator<Item = &'a str>) -> Value {
    let units: Vec<&str> = units.collect();
    json!({ "type": "string", "pattern": format!("^\\s*[0-9][0-9_]*\\s*({})\\s*$", units.join("|")) })
}

/// The value of a line of TOML.
fn value_of(line: &str, name: &str) -> Value {
    let line: Result<Value, _> = toml::from_str(line);
    line.ok().and_then(|line| line.get(name).cloned()).unwrap_or_default()
}

/// The value in a key's line; `None` without a line.
fn example(key: &ConfigKey) -> Option<Value> {
    let line: Value = toml::from_str(key.example).ok()?;
    // The line of a grant begins at its plugin: `grants.tools = …`.
    line.get(key.name).or_else(|| line.as_object()?.values().next()?.get(key.name)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_that_is_referred_to_is_defined_and_closed() {
        let schema = json_schema();
        let text = schema.to_string();
        let defined = schema["$defs"].as_object().expect("there are definitions");
        let mut references = 0;
        for part in text.split("\"#/$defs/").skip(1) {
            let name = part.split('"').next().expect("a split has a first part");
            assert!(defined.contains_key(name), "{name}");
            references += 1;
        }
        assert!(references >= defined.len(), "{references} of {}", defined.len());
        assert!(defined.values().all(|table| table["additionalProperties"] == json!(false)));
    }

    #[test]
    fn every_key_is_a_property_with_its_example() {
        let schema = json_schema();
        for key in KEYS.iter() {
            let table = if key.table.is_empty() {
                &schema
            } else {
                &schema["$defs"][definition(key.table)]
            };
            let property = &table["properties"][key.name];
            assert!(property.is_object(), "{key:?}");
            assert_eq!(property["examples"].is_array(), !key.example.is_empty(), "{key:?}");
        }
    }
}
