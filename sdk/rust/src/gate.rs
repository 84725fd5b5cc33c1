//! A gate: it passes, changes or blocks a text before it takes effect. The operator configures its
//! places: messages from channels, messages between tasks and to background tasks, texts about
//! results, questions and answers for people, and calls of tools with their results.
//! A gate that traps, fails, is refused or times out blocks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bindings::gate::exports::conclave::plugin::gate as contract;
use crate::{Error, Result};

pub use contract::{GateInput, Point, Verdict};

/// The trait of a gate; `export!(gate: X)` exports it.
///
/// ```
/// use conclave_sdk::Result;
/// use conclave_sdk::gate::{Gate, GateInput, Verdict, allow, block, modify};
///
/// /// Keeps a word in the house.
/// struct Discreet;
///
/// impl Gate for Discreet {
///     fn check(input: &GateInput) -> Result<Verdict> {
///         Ok(match input.text.as_str() {
///             text if text.contains("top secret") => block("it is top secret"),
///             text if text.contains("secret") => modify(text.replace("secret", "…")),
///             _ => allow(),
///         })
///     }
/// }
/// # conclave_sdk::export!(gate: Discreet, asks: []);
/// # assert!(true);
/// ```
pub trait Gate {
    /// Decides whether a text may pass. `input.metadata` is a JSON object with further facts about
    /// it. An error blocks.
    fn check(input: &GateInput) -> Result<Verdict>;
}

/// The facts of a call of a tool, or of its result: `input.metadata` at [`Point::ToolCall`] and
/// [`Point::ToolResult`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolFacts {
    /// `plugin.tool`.
    pub tool: String,
    /// The id of the call.
    pub call: String,
    /// The plugin whose agent makes the call.
    pub caller: Option<String>,
    /// The plugins that led to the call.
    pub led_by: Vec<String>,
    /// `untrusted` if the call derives from outside.
    pub labels: Vec<String>,
    /// With a result: the arguments that the tool was called with.
    pub arguments: Value,
    /// With a result: whether the tool failed.
    pub is_error: bool,
    /// The media types of the result's attachments, which a gate cannot change.
    pub attachments: Vec<String>,
}

impl Default for ToolFacts {
    fn default() -> Self {
        Self {
            tool: String::new(),
            call: String::new(),
            caller: None,
            led_by: Vec::new(),
            labels: Vec::new(),
            arguments: Value::Null,
            is_error: false,
            attachments: Vec::new(),
        }
    }
}

/// The readable parts of a tool's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The structured value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The tool's own words about its failure, in place of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Returns the tool of a call or a result, with its caller.
pub fn tool_facts(input: &GateInput) -> Result<ToolFacts> {
    parsed(&input.metadata)
}

/// Returns the arguments of the call at [`Point::ToolCall`], a JSON object.
pub fn arguments(input: &GateInput) -> Result<Value> {
    parsed(&input.text)
}

/// Returns the result at [`Point::ToolResult`].
pub fn result(input: &GateInput) -> Result<ToolResult> {
    parsed(&input.text)
}

fn parsed<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::other(format!("it is not from a tool: {error}")))
}

/// Lets the call run with these arguments, which must fit the tool's schema. Rules and approvers
/// see them, and not the model's.
pub fn modify_arguments(arguments: &Value) -> Verdict {
    Verdict::Modify(arguments.to_string())
}

/// Lets this result be read in place of the tool's own.
pub fn modify_result(result: &ToolResult) -> Result<Verdict> {
    let text = serde_json::to_string(result).map_err(|error| Error::other(error.to_string()))?;
    Ok(Verdict::Modify(text))
}

/// Passes the text unchanged.
pub fn allow() -> Verdict {
    Verdict::Allow
}

/// Passes this text instead, which the next gate sees.
pub fn modify(text: impl Into<String>) -> Verdict {
    Verdict::Modify(text.into())
}

/// Blocks the text, with a reason for its sender.
pub fn block(reason: impl Into<String>) -> Verdict {
    Verdict::Block(reason.into())
}
