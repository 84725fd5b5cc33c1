//! A tool's input schema, compiled once, and arguments checked against it. Its patterns run in linear time, and it can refer to nothing
//! outside itself.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::weight::{Weight, weigh};
use crate::sandbox::log::excerpt;

/// Bytes of a schema.
const BYTES: usize = 64 << 10;
/// Bytes of a compiled pattern: a few characters of pattern can ask for gigabytes.
const PATTERN_BYTES: usize = 256 << 10;
/// Problems that are told at once.
const PROBLEMS: usize = 3;
/// Characters of one problem, which may quote the arguments.
const PROBLEM: usize = 300;

/// A schema, ready to check with.
#[derive(Debug)]
pub(crate) struct Schema {
    validator: Validator,
    weight: Weight,
}

impl Schema {
    /// Compiles a schema of an object.
    ///
    /// # Errors
    /// Why it is refused, for the plugin's author.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        let bytes = schema.to_string().len();
        if bytes > BYTES {
            return Err(format!("it has {bytes} bytes, more than the {BYTES} that are taken"));
        }
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("it must describe an object: `\"type\": \"object\"`".to_owned());
        }
        let weight = weigh(schema)?;
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let options = jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns);
        let validator = options
            .build(schema)
            .map_err(|error| format!("at {}: {}", place(error.instance_path().as_str()), excerpt(&error.to_string(), PROBLEM)))?;
        Ok(Self { validator, weight })
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// What is wrong and where, for the model.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), String> {
        if !arguments.is_object() {
            return Err("they must be a JSON object".to_owned());
        }
        if !self.weight.bears(arguments) {
            return Err("they are too large or nested too deep to be checked".to_owned());
        }
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        let problems: Vec<String> = self
            .validator
            .iter_errors(arguments)
            .take(PROBLEMS)
            .map(|error| format!("at {}: {}", place(error.instance_path().as_str()), excerpt(&error.to_string(), PROBLEM)))
            .collect();
        Err(problems.join("; "))
    }
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() { "the top".to_owned() } else { excerpt(pointer, PROBLEM) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_do_not_fit_are_told_with_place_and_reason() {
        let schema = json!({ "type": "object", "required": ["path"], "properties": { "limit": { "type": "integer" }, "path": { "type": "string" } } });
        let schema = Schema::compile(&schema).unwrap();
        assert!(schema.check(&json!({ "path": "a", "limit": 3 })).is_ok());
        let problem = schema.check(&json!({ "path": "a", "limit": "many" })).unwrap_err();
        assert_eq!(problem, r#"at /limit: "many" is not of type "integer""#);
        let problem = schema.check(&json!({})).unwrap_err();
        assert_eq!(problem, r#"at the top: "path" is a required property"#);
        assert!(schema.check(&json!(["path"])).is_err());
    }

    #[test]
    fn schemas_that_are_none_are_refused_with_a_reason() {
        for schema in [
            json!({ "type": 7 }),
            json!({ "type": "string" }),
            json!({ "properties": { "a": { "pattern": "(" } } }),
            json!({ "properties": { "a": { "$ref": "https://example.org/remote.json" } } }),
            json!({ "description": "x".repeat(BYTES) }),
        ] {
            assert!(Schema::compile(&schema).is_err(), "{}", excerpt(&schema.to_string(), 80));
        }
    }

    /// A backtracking engine would need longer than anybody waits.
    #[test]
    fn a_pattern_cannot_take_for_ever() {
        let schema = Schema::compile(&json!({ "properties": { "a": { "pattern": "^(a+)+$" } } })).unwrap();
        assert!(schema.check(&json!({ "a": format!("{}!", "a".repeat(20_000)) })).is_err());
    }

    #[test]
    fn a_pattern_cannot_take_all_memory() {
        assert!(Schema::compile(&json!({ "properties": { "a": { "pattern": "((((a{99}){99}){99}){99})" } } })).is_err());
    }
}
