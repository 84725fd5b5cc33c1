//! Input schemas of tools, compiled once, and their checks of arguments. Patterns run in linear
//! time, and references stay within the schema. Callers decide when and on which thread a check
//! runs.
//!
//! The arguments of a model's call were converted and checked once before, by the core's
//! `tool_calls/arguments`, whose head says why that is another checker. This one stands before the
//! sandbox for every caller and every keyword: it changes nothing, and refuses what it cannot
//! check.

use std::time::Instant;

use conclave_core::tool_calls::arguments::PATTERN_BYTES;
use conclave_core::types::tool::ToolSpec;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::LoadError;
use super::weight::{COMPARISONS, Weight, weigh};
use crate::support::escape::excerpt;

/// Maximum bytes of a schema.
const BYTES: usize = 64 << 10;
/// Maximum bytes of all schemas of one plugin.
const ALL_BYTES: usize = 256 << 10;
/// Maximum subschemas of one plugin, with references expanded. Each is compiled and kept while the
/// plugin is loaded.
const ALL_SCHEMAS: u64 = 20_000;
/// Maximum patterns of one plugin, and their bytes: five bytes can request a class of a hundred
/// thousand characters.
const ALL_PATTERNS: u64 = 128;
const ALL_PATTERN_BYTES: usize = 4 << 10;
/// Bytes of the matcher's cache for one pattern. With less than a few times the compiled size,
/// matching falls back to an engine that is a hundred times slower.
const MATCHER_BYTES: usize = 256 << 10;
/// Maximum characters of a problem, which may quote the arguments.
const PROBLEM: usize = 300;
/// Maximum characters of all problems that are reported at once: room for three of the longest.
const PROBLEMS: usize = 3 * PROBLEM;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    validator: Validator,
    weight: Weight,
}

/// Compiles the schema of each of a plugin's tools, in order. CPU-bound; `deadline` is checked
/// between two tools. A schema is `Tool` if it is refused or exceeds the plugin's totals together
/// with those before it, and `Schemas` after the deadline.
pub(crate) fn compile_each(
    tools: &[ToolSpec],
    deadline: Instant,
) -> Vec<Result<Schema, LoadError>> {
    let refused = |tool: &ToolSpec, problem: String| LoadError::Tool {
        name: tool.name.clone(),
        problem: format!("its input schema is refused: {}", excerpt(&problem, 2 * PROBLEM)),
    };
    // All are measured before any is compiled, so that an expensive one costs next to nothing.
    let mut total = Total::default();
    let weighed: Vec<Result<Weight, LoadError>> = tools
        .iter()
        .map(|tool| total.add(&tool.input_schema).map_err(|problem| refused(tool, problem)))
        .collect();
    let compiled = tools.iter().zip(weighed).map(|(tool, weight)| {
        let weight = weight?;
        if Instant::now() >= deadline {
            return Err(LoadError::too_slow());
        }
        Schema::compile(&tool.input_schema, weight).map_err(|problem| refused(tool, problem))
    });
    compiled.collect()
}

/// The totals of a plugin's schemas so far.
#[derive(Clone, Default)]
struct Total {
    bytes: usize,
    schemas: u64,
    comparisons: u64,
    patterns: u64,
    pattern_bytes: usize,
}

impl Total {
    /// Adds a schema, unless it is refused.
    fn add(&mut self, schema: &Value) -> Result<Weight, String> {
        let mut with_it = self.clone();
        let weight = with_it.add_whole(schema)?;
        *self = with_it;
        Ok(weight)
    }

    fn add_whole(&mut self, schema: &Value) -> Result<Weight, String> {
        let bytes = schema.to_string().len();
        if bytes > BYTES {
            return Err(format!("it has {bytes} bytes, more than the {BYTES} that are taken"));
        }
        if schema.get("type").is_some_and(|kind| kind != "object") {
            return Err("it must describe an object: `\"type\": \"object\"`".to_owned());
        }
        self.bytes += bytes;
        if self.bytes > ALL_BYTES {
            return Err(format!(
                "with it, the input schemas of the plugin's tools have more than {ALL_BYTES} bytes"
            ));
        }
        // Measured after the byte limits, which bound the cost of measuring.
        let weight = weigh(schema)?;
        self.schemas += weight.schemas;
        if self.schemas > ALL_SCHEMAS {
            return Err(format!(
                "with it, those of the plugin's tools consist of more than {ALL_SCHEMAS} schemas, references written out"
            ));
        }
        self.comparisons += weight.comparisons;
        if self.comparisons > COMPARISONS {
            return Err(format!(
                "with it, those of the plugin's tools compare with more than {COMPARISONS} values and names"
            ));
        }
        self.patterns += weight.patterns;
        self.pattern_bytes += weight.pattern_bytes;
        if self.patterns > ALL_PATTERNS || self.pattern_bytes > ALL_PATTERN_BYTES {
            return Err(format!(
                "with it, the plugin's tools have more than {ALL_PATTERNS} patterns, or patterns of more than {ALL_PATTERN_BYTES} bytes, references written out"
            ));
        }
        Ok(weight)
    }
}

impl Schema {
    fn compile(schema: &Value, weight: Weight) -> Result<Self, String> {
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(MATCHER_BYTES);
        // Tools check formats themselves; some formats cost more than a pattern.
        let options = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|error| {
            format!(
                "at {}: {}",
                place(error.instance_path().as_str()),
                excerpt(&error.to_string(), PROBLEM)
            )
        })?;
        Ok(Self { validator, weight })
    }

    /// Returns the maximum number of steps for checking these arguments.
    ///
    /// # Errors
    /// If the arguments cannot be checked, in words for the model.
    pub(crate) fn steps(&self, arguments: &Value) -> Result<u64, String> {
        if !arguments.is_object() {
            return Err("they must be a JSON object".to_owned());
        }
        self.weight
            .steps(arguments)
            .ok_or_else(|| "they are too large or nested too deep to be checked".to_owned())
    }

    /// Checks arguments without a time limit; callers check `steps` first.
    ///
    /// # Errors
    /// The problems and their places, in words for the model.
    pub(crate) fn check(&self, arguments: &Value) -> Result<(), String> {
        if self.validator.is_valid(arguments) {
            return Ok(());
        }
        let mut text = String::new();
        // A long list of wrong elements has as many problems, so those that are not said are not
        // counted either.
        for error in self.validator.iter_errors(arguments) {
            let problem = format!(
                "at {}: {}",
                place(error.instance_path().as_str()),
                excerpt(&error.to_string(), PROBLEM)
            );
            if text.is_empty() {
                text = problem;
            } else if text.chars().count() + problem.chars().count() <= PROBLEMS {
                text.push_str("; ");
                text.push_str(&problem);
            } else {
                text.push_str("; and more");
                break;
            }
        }
        Err(text)
    }
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() { "the top".to_owned() } else { excerpt(pointer, PROBLEM) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(input_schema: Value) -> ToolSpec {
        ToolSpec { name: "a".to_owned(), input_schema, ..ToolSpec::default() }
    }

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(600)
    }

    fn compile_all(tools: &[ToolSpec], deadline: Instant) -> Result<Vec<Schema>, LoadError> {
        compile_each(tools, deadline).into_iter().collect()
    }

    fn compile(schema: &Value) -> Result<Schema, LoadError> {
        compile_all(&[tool(schema.clone())], soon()).map(|mut schemas| schemas.remove(0))
    }

    fn refused(tools: &[ToolSpec]) -> String {
        compile_all(tools, soon()).unwrap_err().to_string()
    }

    #[test]
    fn what_a_plugin_may_have_is_counted_over_all_its_tools() {
        let each = |count: usize, schema: Value| vec![tool(schema); count];
        let long = json!({ "description": "x".repeat(60_000) });
        assert!(compile_all(&each(4, long.clone()), soon()).is_ok());
        assert!(refused(&each(5, long)).contains("more than 262144 bytes"));
        let patterns = json!({ "properties": { "a": { "pattern": "x".repeat(1_000) } } });
        assert!(compile_all(&each(4, patterns.clone()), soon()).is_ok());
        assert!(refused(&each(5, patterns)).contains("more than 4096 bytes"));
        let short =
            json!({ "properties": { "a": { "allOf": vec![json!({ "pattern": "x" }); 32] } } });
        assert!(compile_all(&each(4, short.clone()), soon()).is_ok());
        assert!(refused(&each(5, short)).contains("more than 128 patterns"));
        let compared = json!({ "enum": (0..10_000).collect::<Vec<u32>>() });
        assert!(compile_all(&each(4, compared.clone()), soon()).is_ok());
        assert!(
            refused(&each(5, json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); 3], "$defs": { "a": compared } })))
                .contains("compare with more than 100000")
        );
        let wide = json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); 90], "$defs": { "a": { "allOf": vec![json!({}); 90] } } });
        assert!(refused(&each(3, wide)).contains("more than 20000 schemas"));
    }

    #[test]
    fn a_schema_of_many_patterns_is_refused_before_it_is_compiled() {
        let schema = json!({ "properties": { "a": { "allOf": vec![json!({ "pattern": "\\p{L}" }); 1_500] } } });
        let problem = refused(&vec![tool(schema); 14]);
        assert!(problem.contains("`a`") && problem.contains("more than 32 patterns"), "{problem}");
    }

    #[test]
    fn compiling_ends_at_the_deadline() {
        assert!(matches!(
            compile_all(&[tool(json!({}))], Instant::now()),
            Err(LoadError::Schemas(_))
        ));
    }

    #[test]
    fn patterns_as_people_write_them_are_taken() {
        for pattern in [
            "^[\\w.+-]+@[\\w-]+(\\.[\\w-]+)+$",
            "^\\p{L}[\\p{L}\\p{N} ]*$",
            "^\\d{4}-\\d{2}-\\d{2}$",
            "^[0-9a-f]{64}$",
        ] {
            let compiled = compile(&json!({ "properties": { "a": { "pattern": pattern } } }));
            assert!(compiled.is_ok(), "{pattern}: {compiled:?}");
        }
    }

    #[test]
    fn a_refusal_is_one_harmless_line() {
        let problem = refused(&[tool(
            json!({ "$ref": format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(10_000)) }),
        )]);
        assert!(
            problem.len() < 1_000 && !problem.contains(['\u{1b}', '\n', '\u{202e}']),
            "{problem:?}"
        );
    }

    #[test]
    fn arguments_that_do_not_fit_are_told_with_place_and_reason() {
        let schema = json!({ "type": "object", "required": ["path"], "properties": { "limit": { "type": "integer" }, "path": { "type": "string" } } });
        let schema = compile(&schema).unwrap();
        assert!(schema.check(&json!({ "path": "a", "limit": 3 })).is_ok());
        let problem = schema.check(&json!({ "path": "a", "limit": "many" })).unwrap_err();
        assert_eq!(problem, r#"at /limit: "many" is not of type "integer""#);
        let problem = schema.check(&json!({})).unwrap_err();
        assert_eq!(problem, r#"at the top: "path" is a required property"#);
        // All that fit into the text are told at once.
        let names = ["a", "b", "c", "d", "e"];
        let at_least = names.map(|name| (name.to_owned(), json!({ "minimum": 1 })));
        let at_least = Value::Object(at_least.into_iter().collect());
        let five = compile(&json!({ "properties": at_least })).unwrap();
        let zeros = names.map(|name| (name.to_owned(), json!(0)));
        let problem = five.check(&Value::Object(zeros.into_iter().collect())).unwrap_err();
        assert!(names.iter().all(|name| problem.contains(&format!("at /{name}: 0"))), "{problem}");
        assert!(!problem.contains("and more"), "{problem}");
        let many = compile(&json!({ "properties": { "a": { "items": { "type": "string" } } } }));
        let problem = many.unwrap().check(&json!({ "a": vec![7; 100_000] })).unwrap_err();
        assert!(problem.ends_with("; and more") && problem.len() <= PROBLEMS + 100, "{problem}");
        assert!(schema.steps(&json!(["path"])).is_err());
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
            assert!(compile(&schema).is_err(), "{}", excerpt(&schema.to_string(), 80));
        }
    }

    /// A backtracking engine would take practically forever.
    #[test]
    fn a_pattern_cannot_take_for_ever() {
        let schema = compile(&json!({ "properties": { "a": { "pattern": "^(a+)+$" } } })).unwrap();
        assert!(schema.check(&json!({ "a": format!("{}!", "a".repeat(20_000)) })).is_err());
    }

    #[test]
    fn a_pattern_cannot_take_all_memory() {
        assert!(
            compile(&json!({ "properties": { "a": { "pattern": "((((a{99}){99}){99}){99})" } } }))
                .is_err()
        );
    }
}
