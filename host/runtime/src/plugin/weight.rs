//! How much work a JSON Schema can make. A plugin writes its schema and the host runs it, outside every limit of the sandbox: so what can
//! grow without bound is refused when the plugin is loaded, and what can grow with the arguments is measured against them.

use serde_json::Value;

/// What a schema can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Schemas in it, references written out.
    schemas: u64,
    /// References back to a schema that contains them: what makes it recursive.
    loops: u64,
    /// Schemas inside one another at most, references written out: how deep checking recurses for one level of arguments.
    levels: u32,
}

/// Schemas that one may consist of, references written out. Ten levels of ten references each are ten thousand million.
const SCHEMAS: u64 = 10_000;
/// Schemas inside one another. Both compiling and checking recurse, and a thread's stack ends.
const LEVELS: u32 = 128;
/// Levels of schema times levels of arguments, which a recursive schema can reach.
const DEPTH: u32 = 1_024;
/// Steps that checking arguments may take, roughly a second.
const STEPS: u64 = 20_000_000;

/// Weighs a schema.
///
/// # Errors
/// Why it is refused.
pub(crate) fn weigh(schema: &Value) -> Result<Weight, String> {
    let mut scale = Scale { root: schema, weight: Weight { schemas: 0, loops: 0, levels: 0 }, level: 0, within: Vec::new() };
    scale.add(schema, 0)?;
    Ok(scale.weight)
}

impl Weight {
    /// The arguments can be checked in bounded time.
    pub(crate) fn bears(self, arguments: &Value) -> bool {
        let (nodes, depth) = measure(arguments);
        if self.loops > 0 && self.levels.saturating_mul(depth) > DEPTH {
            return false;
        }
        // With one loop a schema walks down; with two or more every level can multiply the work.
        let branches = if self.loops > 1 { (0..depth).fold(1_u64, |product, _| product.saturating_mul(self.loops)) } else { 1 };
        self.schemas.saturating_mul(nodes).saturating_mul(branches) <= STEPS
    }
}

struct Scale<'a> {
    root: &'a Value,
    weight: Weight,
    level: u32,
    /// Targets of references that are being written out, and how deep in the arguments each applies.
    within: Vec<(*const Value, u32)>,
}

impl<'a> Scale<'a> {
    /// Adds a schema that applies `depth` levels deep in the arguments.
    fn add(&mut self, schema: &'a Value, depth: u32) -> Result<(), String> {
        self.level += 1;
        self.weight.levels = self.weight.levels.max(self.level);
        if self.level > LEVELS {
            return Err(format!("more than {LEVELS} schemas are inside one another when its references are written out"));
        }
        self.add_keywords(schema, depth)?;
        self.level -= 1;
        Ok(())
    }

    fn add_keywords(&mut self, schema: &'a Value, depth: u32) -> Result<(), String> {
        self.weight.schemas += 1;
        if self.weight.schemas > SCHEMAS {
            return Err(format!("it consists of more than {SCHEMAS} schemas when its references are written out"));
        }
        let Value::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "$ref" => self.follow(value, depth)?,
                "$dynamicRef" | "$recursiveRef" => return Err(format!("`{keyword}` is not taken; use `$ref`")),
                // It would change what `#/…` means below it.
                "$id" if !std::ptr::eq(schema, self.root) => return Err("`$id` is taken at the top only".to_owned()),
                "properties" | "patternProperties" => self.add_values(value, depth + 1)?,
                "dependentSchemas" | "dependencies" => self.add_values(value, depth)?,
                "items"
                | "prefixItems"
                | "additionalItems"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.add_each(value, depth + 1)?,
                "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => self.add_each(value, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_values(&mut self, value: &'a Value, depth: u32) -> Result<(), String> {
        value.as_object().into_iter().flat_map(|map| map.values()).try_for_each(|schema| self.add(schema, depth))
    }

    fn add_each(&mut self, value: &'a Value, depth: u32) -> Result<(), String> {
        match value {
            Value::Array(schemas) => schemas.iter().try_for_each(|schema| self.add(schema, depth)),
            schema => self.add(schema, depth),
        }
    }

    fn follow(&mut self, reference: &Value, depth: u32) -> Result<(), String> {
        let text = reference.as_str().ok_or_else(|| "`$ref` must be a string".to_owned())?;
        let target = text.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let target =
            target.ok_or_else(|| format!("`$ref` {text:?} is not a JSON pointer into the schema itself, such as \"#/$defs/name\""))?;
        let target_pointer = std::ptr::from_ref(target);
        // The root contains everything, whether or not a reference led to it.
        let begun = if std::ptr::eq(target, self.root) { Some(0) } else { None };
        let begun = begun.or_else(|| self.within.iter().find(|(within, _)| *within == target_pointer).map(|(_, depth)| *depth));
        match begun {
            Some(begun) if begun == depth => Err(format!("`$ref` {text:?} leads back to itself without going deeper")),
            Some(_) => {
                self.weight.loops += 1;
                Ok(())
            }
            None => {
                self.within.push((target_pointer, depth));
                let added = self.add(target, depth);
                self.within.pop();
                added
            }
        }
    }
}

/// Values in the arguments, and how deep they are nested.
fn measure(value: &Value) -> (u64, u32) {
    let join = |(nodes, depth): (u64, u32), (more, deep): (u64, u32)| (nodes + more, depth.max(deep + 1));
    match value {
        Value::Array(items) => items.iter().map(measure).fold((1, 0), join),
        Value::Object(fields) => fields.values().map(measure).fold((1, 0), join),
        _ => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_schemas_are_light() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "$ref": "#/$defs/b" } }, "$defs": { "b": {} } });
        assert_eq!(weigh(&schema).unwrap(), Weight { schemas: 4, loops: 0, levels: 3 });
        assert!(weigh(&schema).unwrap().bears(&json!({ "a": "x".repeat(1_000_000) })));
    }

    #[test]
    fn a_tree_is_taken() {
        let schema = json!({ "properties": { "children": { "items": { "$ref": "#" } }, "next": { "$ref": "#" } } });
        let weight = weigh(&schema).unwrap();
        assert_eq!(weight.loops, 2);
        assert!(weight.bears(&json!({ "children": [{ "children": [{ "next": {} }] }] })));
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "next": inner }));
        assert!(!weight.bears(&deep));
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
            defs.insert(format!("l{level}"), json!({ "anyOf": [next, next] }));
        }
        defs.insert("l30".to_owned(), json!(true));
        let error = weigh(&json!({ "$ref": "#/$defs/l0", "$defs": defs })).unwrap_err();
        assert!(error.contains("more than 10000 schemas"), "{error}");
    }

    /// Checking would recurse until the host's stack ends.
    #[test]
    fn long_chains_of_references_are_refused() {
        let chain = |length: usize| {
            let link = |level: usize| (format!("l{level}"), json!({ "$ref": format!("#/$defs/l{}", level + 1) }));
            let mut defs: serde_json::Map<String, Value> = (0..length).map(link).collect();
            defs.insert(format!("l{length}"), json!({ "properties": { "a": { "$ref": "#" } } }));
            json!({ "$ref": "#/$defs/l0", "$defs": defs })
        };
        assert!(weigh(&chain(2_000)).unwrap_err().contains("inside one another"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(weigh(&chain(5)).unwrap().bears(&deep));
        assert!(!weigh(&chain(100)).unwrap().bears(&deep));
    }

    #[test]
    fn references_in_a_circle_are_refused() {
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "anyOf": [{ "$ref": "#" }] }),
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "not": { "$ref": "#/$defs/b" } }, "b": { "$ref": "#/$defs/a" } } }),
            json!({ "properties": { "x": { "$ref": "#/$defs/a" } }, "$defs": { "a": { "allOf": [{ "$ref": "#/$defs/a" }] } } }),
        ] {
            assert!(weigh(&schema).unwrap_err().contains("without going deeper"), "{schema}");
        }
    }

    #[test]
    fn references_elsewhere_are_refused() {
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "#name", "other.json"] {
            assert!(weigh(&json!({ "properties": { "a": { "$ref": reference } } })).is_err(), "{reference}");
        }
        assert!(weigh(&json!({ "$id": "https://example.org/s", "properties": {} })).is_ok());
        assert!(weigh(&json!({ "properties": { "a": { "$id": "other", "$ref": "#" } } })).is_err());
        assert!(weigh(&json!({ "properties": { "$id": { "type": "string" }, "$ref": { "type": "string" } } })).is_ok());
    }
}
