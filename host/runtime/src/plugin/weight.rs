//! Estimates the cost of a JSON Schema. A plugin writes its schema, and the host evaluates it
//! outside all limits of the sandbox. A schema of unbounded cost is refused at load; cost that
//! grows with the arguments is computed for each check.

use serde_json::Value;

/// The cost of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Number of subschemas, with references expanded.
    pub(super) schemas: u64,
    /// Number of references back to an enclosing schema, which make it recursive.
    loops: u64,
    /// Maximum nesting of schemas, with references expanded: the recursion depth for one level of
    /// arguments.
    levels: u32,
    /// Number of patterns and their bytes, with references expanded.
    pub(super) patterns: u64,
    pub(super) pattern_bytes: usize,
    /// Number of other keywords that read every byte of their value.
    readers: u64,
    /// Number of values and names to compare with.
    pub(super) comparisons: u64,
}

/// Maximum subschemas of one schema, with references expanded. Ten levels of ten references each
/// are ten thousand million.
const SCHEMAS: u64 = 10_000;
/// Maximum nesting of schemas. Compiling and checking recurse, and the stack is limited.
const LEVELS: u32 = 128;
/// Maximum schema levels times argument levels, which a recursive schema can reach.
const DEPTH: u32 = 1_024;
/// Maximum patterns of one schema: each reads every string that it applies to.
const PATTERNS: u64 = 32;
/// Maximum values of `enum` and the like, and names of `required`, in all schemas of one plugin,
/// with references expanded.
pub(super) const COMPARISONS: u64 = 100_000;
/// Steps of a pattern for one byte, relative to comparing it.
const PATTERN_STEPS: u64 = 4;
/// Bytes that one step of another keyword covers, by counting or hashing.
const READER_BYTES: u64 = 8;
/// Maximum steps for checking arguments, roughly one second.
const STEPS: u64 = 20_000_000;

/// Computes the cost of a schema.
///
/// # Errors
/// The reason for a refusal.
pub(crate) fn weigh(schema: &Value) -> Result<Weight, String> {
    let mut scale = Scale { root: schema, weight: Weight::default(), level: 0, within: Vec::new() };
    scale.add(schema, 0)?;
    Ok(scale.weight)
}

impl Weight {
    /// The maximum number of steps for checking these arguments; `None` if it exceeds the limit.
    pub(crate) fn steps(self, arguments: &Value) -> Option<u64> {
        let JsonWeight { nodes, depth, bytes } = measure(arguments);
        if self.loops > 0 && self.levels.saturating_mul(depth) > DEPTH {
            return None;
        }
        let comparing = self.schemas.saturating_add(self.comparisons).saturating_mul(nodes);
        let reading =
            bytes.saturating_mul(self.patterns * PATTERN_STEPS + self.readers / READER_BYTES + 1);
        // With one loop a schema descends once per level; with two or more, every level can
        // multiply the work.
        let branches = if self.loops > 1 {
            (0..depth).fold(1_u64, |product, _| product.saturating_mul(self.loops))
        } else {
            1
        };
        let steps = comparing.saturating_add(reading).saturating_mul(branches);
        (steps <= STEPS).then_some(steps)
    }
}

struct Scale<'a> {
    root: &'a Value,
    weight: Weight,
    level: u32,
    /// The references that are being expanded, with their depth in the arguments.
    within: Vec<(*const Value, u32)>,
}

impl<'a> Scale<'a> {
    /// Adds a schema that applies `depth` levels deep in the arguments.
    fn add(&mut self, schema: &'a Value, depth: u32) -> Result<(), String> {
        self.level += 1;
        self.weight.levels = self.weight.levels.max(self.level);
        if self.level > LEVELS {
            return Err(format!(
                "more than {LEVELS} schemas are inside one another when its references are written out"
            ));
        }
        self.add_keywords(schema, depth)?;
        self.level -= 1;
        Ok(())
    }

    fn add_keywords(&mut self, schema: &'a Value, depth: u32) -> Result<(), String> {
        self.weight.schemas += 1;
        if self.weight.schemas > SCHEMAS {
            return Err(format!(
                "it consists of more than {SCHEMAS} schemas when its references are written out"
            ));
        }
        let Value::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "$ref" => self.follow(value, depth)?,
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(format!("`{keyword}` is not taken; use `$ref`"));
                }
                // A nested `$id` would change the meaning of `#/…` below it.
                "$id" if !std::ptr::eq(schema, self.root) => {
                    return Err("`$id` is taken at the top only".to_owned());
                }
                "pattern" => value.as_str().map_or(Ok(()), |pattern| self.add_pattern(pattern))?,
                "patternProperties" => {
                    value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .try_for_each(|(pattern, _)| self.add_pattern(pattern))?;
                    self.add_values(value, depth + 1)?;
                }
                "properties" => self.add_values(value, depth + 1)?,
                "dependentSchemas" => self.add_values(value, depth)?,
                "dependencies" => {
                    self.add_comparisons(value)?;
                    self.add_values(value, depth)?;
                }
                "enum" | "const" | "required" | "dependentRequired" => {
                    self.add_comparisons(value)?
                }
                "minLength" | "maxLength" | "format" | "uniqueItems" => self.weight.readers += 1,
                "items"
                | "prefixItems"
                | "additionalItems"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => self.add_each(value, depth + 1)?,
                "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => {
                    self.add_each(value, depth)?
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_pattern(&mut self, pattern: &str) -> Result<(), String> {
        self.weight.patterns += 1;
        self.weight.pattern_bytes += pattern.len();
        if self.weight.patterns > PATTERNS {
            return Err(format!(
                "it has more than {PATTERNS} patterns when its references are written out"
            ));
        }
        Ok(())
    }

    fn add_comparisons(&mut self, values: &Value) -> Result<(), String> {
        self.weight.comparisons += measure(values).nodes;
        if self.weight.comparisons > COMPARISONS {
            return Err(format!(
                "it compares with more than {COMPARISONS} values and names when its references are written out"
            ));
        }
        Ok(())
    }

    fn add_values(&mut self, value: &'a Value, depth: u32) -> Result<(), String> {
        value
            .as_object()
            .into_iter()
            .flat_map(|map| map.values())
            .try_for_each(|schema| self.add(schema, depth))
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
        // The root contains every schema, even if no reference led to it.
        let opening = if std::ptr::eq(target, self.root) { Some(0) } else { None };
        let opening = opening.or_else(|| {
            self.within
                .iter()
                .find(|(within, _)| *within == target_pointer)
                .map(|(_, depth)| *depth)
        });
        match opening {
            Some(opening) if opening == depth => {
                Err(format!("`$ref` {text:?} leads back to itself without going deeper"))
            }
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

/// The size of a JSON value.
#[derive(Clone, Copy)]
struct JsonWeight {
    /// Number of values, including itself.
    nodes: u64,
    /// Maximum nesting depth.
    depth: u32,
    /// Bytes of its strings and names.
    bytes: u64,
}

impl JsonWeight {
    fn leaf(bytes: usize) -> Self {
        Self { nodes: 1, depth: 0, bytes: bytes as u64 }
    }

    fn with(self, inner: Self) -> Self {
        Self {
            nodes: self.nodes + inner.nodes,
            depth: self.depth.max(inner.depth + 1),
            bytes: self.bytes + inner.bytes,
        }
    }
}

fn measure(value: &Value) -> JsonWeight {
    match value {
        Value::Array(items) => {
            items.iter().map(measure).fold(JsonWeight::leaf(0), JsonWeight::with)
        }
        Value::Object(fields) => {
            let names = fields.keys().map(String::len).sum();
            fields.values().map(measure).fold(JsonWeight::leaf(names), JsonWeight::with)
        }
        Value::String(text) => JsonWeight::leaf(text.len()),
        _ => JsonWeight::leaf(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_schemas_are_light() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "$ref": "#/$defs/b" } }, "$defs": { "b": {} } });
        assert_eq!(weigh(&schema).unwrap(), Weight { schemas: 4, levels: 3, ..Weight::default() });
        assert!(weigh(&schema).unwrap().steps(&json!({ "a": "x".repeat(1_000_000) })).is_some());
    }

    #[test]
    fn what_reads_every_byte_is_counted_with_the_bytes() {
        let steps = |schema: Value, length: usize| {
            weigh(&schema).unwrap().steps(&json!({ "a": "x".repeat(length) }))
        };
        let patterns = |count: usize| json!({ "properties": { "a": { "allOf": vec![json!({ "pattern": "x" }); count] } } });
        assert!(steps(patterns(2), 1_000_000).is_some());
        assert!(steps(patterns(32), 1_000_000).is_none());
        let schema = json!({ "patternProperties": { "a": {} } });
        assert!(steps(schema.clone(), 1_000).unwrap() > 4 * 1_000, "its names are patterns");
        let lengths =
            json!({ "properties": { "a": { "allOf": vec![json!({ "maxLength": 9 }); 1_000] } } });
        assert!(steps(lengths, 1_000_000).is_none());
    }

    #[test]
    fn what_is_compared_is_counted() {
        let many: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        let items = json!({ "a": vec!["x"; 10_000] });
        assert!(
            weigh(&json!({ "properties": { "a": { "items": {} } } }))
                .unwrap()
                .steps(&items)
                .is_some()
        );
        assert!(
            weigh(&json!({ "properties": { "a": { "items": { "enum": many } } } }))
                .unwrap()
                .steps(&items)
                .is_none()
        );
        assert!(
            weigh(&json!({ "properties": { "a": { "items": { "required": many } } } }))
                .unwrap()
                .steps(&items)
                .is_none()
        );
    }

    #[test]
    fn more_comparisons_than_schemas_may_make_are_refused() {
        let repeated = |count: usize| json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); count], "$defs": { "a": { "enum": vec![0; 999] } } });
        assert!(weigh(&repeated(100)).is_ok());
        assert!(weigh(&repeated(101)).unwrap_err().contains("more than 100000 values"));
    }

    #[test]
    fn more_patterns_than_a_schema_may_have_are_refused() {
        let patterns = |count: usize| json!({ "allOf": vec![json!({ "pattern": "x" }); count] });
        assert!(weigh(&patterns(32)).is_ok());
        assert!(weigh(&patterns(33)).unwrap_err().contains("more than 32 patterns"));
        let names: serde_json::Map<String, Value> =
            (0..33).map(|number| (number.to_string(), json!({}))).collect();
        assert!(weigh(&json!({ "patternProperties": names })).is_err());
        let repeated = json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); 33], "$defs": { "a": { "pattern": "x" } } });
        assert!(weigh(&repeated).is_err(), "a reference is one more pattern to run");
    }

    #[test]
    fn a_tree_is_taken() {
        let schema = json!({ "properties": { "children": { "items": { "$ref": "#" } }, "next": { "$ref": "#" } } });
        let weight = weigh(&schema).unwrap();
        assert_eq!(weight.loops, 2);
        assert!(weight.steps(&json!({ "children": [{ "children": [{ "next": {} }] }] })).is_some());
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "next": inner }));
        assert!(weight.steps(&deep).is_none());
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

    /// Otherwise checking would overflow the host's stack.
    #[test]
    fn long_chains_of_references_are_refused() {
        let chain = |length: usize| {
            let link = |level: usize| {
                (format!("l{level}"), json!({ "$ref": format!("#/$defs/l{}", level + 1) }))
            };
            let mut defs: serde_json::Map<String, Value> = (0..length).map(link).collect();
            defs.insert(format!("l{length}"), json!({ "properties": { "a": { "$ref": "#" } } }));
            json!({ "$ref": "#/$defs/l0", "$defs": defs })
        };
        assert!(weigh(&chain(2_000)).unwrap_err().contains("inside one another"));
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(weigh(&chain(5)).unwrap().steps(&deep).is_some());
        assert!(weigh(&chain(100)).unwrap().steps(&deep).is_none());
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
        for reference in ["https://example.org/s.json", "file:///etc/passwd", "#name", "other.json"]
        {
            assert!(
                weigh(&json!({ "properties": { "a": { "$ref": reference } } })).is_err(),
                "{reference}"
            );
        }
        assert!(weigh(&json!({ "$id": "https://example.org/s", "properties": {} })).is_ok());
        assert!(weigh(&json!({ "properties": { "a": { "$id": "other", "$ref": "#" } } })).is_err());
        assert!(weigh(&json!({ "properties": { "$id": { "type": "string" }, "$ref": { "type": "string" } } })).is_ok());
    }
}
