//! Tools in the core's types: names, arguments, results and errors. Does not run tools.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::denial::Denial;
use crate::types::fault::Fault;
use crate::types::message::{Blob, ToolCall};

/// A tool as its plugin described it when it was admitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name, without the plugin's.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// A JSON Schema 2020-12 of an object.
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default)]
    pub idempotent: bool,
    /// A name for people; done sequences can use it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The author's limit of a result in tokens (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// The tokens of a result that stay in a history after it was answered (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ToolExample>,
}

/// An example call by the tool's author.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolExample {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<String>,
    pub arguments: Value,
}

/// A tool as an agent sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSummary {
    /// `plugin.tool`.
    pub name: String,
    pub description: String,
    pub input_schema: Value,
}

/// A tool that a running tool may call, as it sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallableTool {
    #[serde(flatten)]
    pub summary: ToolSummary,
    /// A JSON Schema 2020-12 of [`NestedResult::value`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// A call that a running tool makes with its agent's tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NestedCall {
    /// The name in the agent's task.
    pub name: String,
    pub arguments: Arc<Value>,
}

/// The answer to a nested call.
pub type NestedAnswer = Result<NestedResult, NestedError>;

/// The result of a nested call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NestedResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// The reason why a nested call has no result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NestedError {
    /// The plugin that makes the call lacks the grant.
    Denied { denial: Denial },
    /// The tool failed, was refused to the agent, or was not approved.
    Failed { message: String },
}

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// The text; `None` for no result (L-117).
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// Calls to run next, for the calling agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow_up_calls: Vec<ToolCall>,
}

/// The reason for a missing result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToolError {
    /// The arguments do not fit the schema, or the tool rejects them.
    InvalidArguments { message: String },
    /// A capability was refused.
    Denied { denial: Denial },
    /// A service that the tool needs is unavailable.
    Unavailable { retry_after_ms: Option<u64> },
    /// An error that the tool reports itself.
    Other { message: String },
    /// The plugin broke a limit or a contract, and was stopped.
    Fault { fault: Fault },
}

impl ToolError {
    /// The text for the model.
    #[must_use]
    pub fn to_text(&self, tool: &str) -> String {
        match self {
            Self::InvalidArguments { message } => {
                format!(
                    "The arguments of {tool} are not right: {message}\nCorrect them and call {tool} again."
                )
            }
            Self::Denied { denial } => {
                format!("{tool} was refused {}: {}", denial.capability, denial.target)
            }
            Self::Unavailable { retry_after_ms: Some(ms) } => {
                format!("{tool} is not available now; it may be tried again in {ms} ms.")
            }
            Self::Unavailable { retry_after_ms: None } => format!("{tool} is not available now."),
            Self::Other { message } => format!("{tool} failed: {message}"),
            Self::Fault { fault } => format!("{tool} was stopped: {}", fault.message),
        }
    }
}
