//! Tools as the core knows them: what they are called, what they take, how a call can end. Not how
//! one is run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::denial::Denial;
use crate::types::fault::Fault;
use crate::types::message::{Blob, ToolCall};

/// A tool as its plugin described it when it was admitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Without the plugin's name.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema 2020-12 of an object.
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default)]
    pub idempotent: bool,
    /// A name for people; done sequences know it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Tokens of a result at most, as its author would have it (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// Tokens of a result that stay in a history once it was answered (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ToolExample>,
}

/// A call as its author would have it written.
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

/// What a tool returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// None: no result (L-117).
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// Calls to run next, for the calling agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<ToolCall>,
}

/// Why a tool gave no outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToolError {
    /// The arguments do not fit the schema, or make no sense to the tool.
    InvalidArguments { message: String },
    /// A capability stood in the way.
    Denied { denial: Denial },
    /// Something outside is down.
    Unavailable { retry_after_ms: Option<u64> },
    /// The tool says so itself.
    Other { message: String },
    /// The plugin broke a limit or a promise, and was stopped.
    Fault { fault: Fault },
}

impl ToolError {
    /// The text that goes back to the model.
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
