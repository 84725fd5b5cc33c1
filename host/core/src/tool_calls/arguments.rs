//! The check of a call's arguments against its tool's schema, as lenient as the reference (L-114),
//! and the error text for the model. Unknown parts of a schema are ignored: the runtime validates
//! in full before the tool runs.
//!
//! Why a checker of our own beside that validator, the crate `jsonschema` in the runtime's
//! `plugin/schema.rs`: the result here is the converted arguments, and a validator converts
//! nothing, so the walk over schema and value is needed in any case. The room must also give the
//! same answer at once in each replay, while that crate compiles each schema, hashes with random
//! seeds and counts no steps. Nor can this checker be the validator: it lacks a dozen keywords
//! (`not`, `if`, `contains`, `patternProperties`, …), and accepts what its steps do not reach.
//!
//! Arguments that are refused here, the validator refuses too; a property in the tests holds that.
//! The exceptions are numbers: a whole one beyond 2^53 that is written as a float, and `1.0` for
//! the `1` of a list or an object in `enum` or `const`.

use serde_json::{Map, Value};

use crate::tool_calls::toolbox::TaskTool;

mod checker;
mod explanation;
mod lax;
mod limits;

use checker::Checker;

pub use checker::PATTERN_BYTES;
pub use explanation::{explain, explanation_fields};
pub use limits::limits;

/// A field that does not fit the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Names and indices from the outside in, separated by dots; empty for the arguments as a
    /// whole.
    pub path: String,
    /// The text after the path, such as `is missing`.
    pub reason: String,
}

/// Returns the arguments as the schema requires them: texts become numbers, defaults are filled in,
/// unknown fields stay (L-100, L-114).
///
/// # Errors
/// All that does not fit, in the schema's order, 64 at most. Once something does not, this includes
/// the parts of the schema that only the tool itself checks, such as `pattern`.
pub fn check(schema: &Value, arguments: &Value) -> Result<Value, Vec<Wrong>> {
    if !arguments.is_object() {
        return Err(vec![Wrong {
            path: String::new(),
            reason: lax::mismatch("object", arguments),
        }]);
    }
    Checker::new(schema, arguments).run(arguments)
}

/// The one tool that a call without a name can mean; `None` if no tool or several tools fit
/// (L-112).
pub fn infer<'a>(
    tools: impl Iterator<Item = &'a TaskTool>,
    arguments: &Map<String, Value>,
) -> Option<&'a TaskTool> {
    let mut object = None;
    let mut fitting =
        tools.filter(|tool| knows_all(&tool.summary.input_schema, arguments)).filter(|tool| {
            let object = object.get_or_insert_with(|| Value::Object(arguments.clone()));
            check(&tool.summary.input_schema, object).is_ok()
        });
    let found = fitting.next()?;
    fitting.next().is_none().then_some(found)
}

/// Whether the tool has all keys, and at least one of them is not common to every tool.
fn knows_all(schema: &Value, arguments: &Map<String, Value>) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object);
    let is_field = |key: &str| fields.is_some_and(|fields| fields.contains_key(key));
    let is_inherited = |key: &str| matches!(key, "request" | "purpose" | "id");
    let is_own = |key: &String| is_field(key) && !is_inherited(key);
    // `request` is a key here only if it is not a tool's name.
    let is_known = |(key, value): (&String, &Value)| {
        is_field(key) || (matches!(key.as_str(), "purpose" | "id") && value.is_string())
    };
    arguments.keys().any(is_own) && arguments.iter().all(is_known)
}

#[cfg(test)]
mod tests;
