//! Model requests and completions in the core's types. Mirrors the `model` interface of
//! `wit/capabilities.wit`. Names the APIs of providers, and implements none.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::denial::Denial;
use crate::types::history::History;
use crate::types::message::{Role, ToolCall, ToolResult};
use crate::types::tool::ToolSummary;

/// The API of a model server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelApi {
    /// Chat Completions, the API of OpenAI and of most other servers.
    #[default]
    ChatCompletions,
    /// The Responses API of OpenAI, which other servers have too.
    Responses,
    /// The Messages API of Anthropic.
    Messages,
}

impl ModelApi {
    pub const ALL: [Self; 3] = [Self::ChatCompletions, Self::Responses, Self::Messages];

    /// The `kind` of such a model in a config.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::ChatCompletions => "openai",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic",
        }
    }

    /// The provider in spans, in the words of OpenTelemetry.
    #[must_use]
    pub fn provider(self) -> &'static str {
        match self {
            Self::ChatCompletions | Self::Responses => "openai",
            Self::Messages => "anthropic",
        }
    }

    /// The path of a request, below the base URL of the API.
    #[must_use]
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions => &["chat", "completions"],
            Self::Responses => &["responses"],
            Self::Messages => &["messages"],
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the name of the API in a sentence.
impl fmt::Display for ModelApi {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::ChatCompletions => "Chat Completions",
            Self::Responses => "the Responses API",
            Self::Messages => "the Messages API",
        })
    }
}

/// Counts of tokens, with their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// The cost in micro-US-dollars; `None` if the model's price is unknown.
    pub cost_micro_usd: Option<u64>,
}

/// A message that a plugin writes into a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DraftMessage {
    pub role: Role,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<ToolResult>,
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum PromptPart {
    System,
    /// A range of the step's history, `end` excluded.
    History {
        start: u64,
        end: u64,
    },
    Draft {
        draft: DraftMessage,
    },
}

/// The format in which tools are offered and called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolFormat {
    Native,
    Json,
    Xml,
    Off,
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "kebab-case")]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    Named { name: String },
}

/// A plugin's request for a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The model; `None` for the default.
    pub model: Option<String>,
    /// The parts of the prompt; empty for the system message and the whole history.
    pub prompt: Vec<PromptPart>,
    /// The tools offered; `None` for all that the agent may call.
    pub tools: Option<Vec<String>>,
    pub tool_format: Option<ToolFormat>,
    pub tool_choice: ToolChoice,
    pub output_schema: Option<Value>,
    /// Whether the room gets the text while it is generated.
    pub stream: bool,
    pub options: Vec<(String, Value)>,
}

/// A request with the whole history, every tool and the default model.
impl Default for ModelRequest {
    fn default() -> Self {
        Self {
            model: None,
            prompt: Vec::new(),
            tools: None,
            tool_format: None,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream: false,
            options: Vec::new(),
        }
    }
}

/// A piece of a prompt for a model client; the history is shared, not copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "piece", rename_all = "kebab-case")]
pub enum PromptPiece {
    System {
        text: Arc<str>,
    },
    /// Messages `start` to `end`, `end` excluded, of a snapshot. A client renders each with
    /// [`Message::in_prompt`], which fences the text of plugins and other tasks.
    ///
    /// [`Message::in_prompt`]: crate::types::message::Message::in_prompt
    History {
        messages: History,
        start: usize,
        end: usize,
    },
    Draft {
        draft: DraftMessage,
    },
}

/// A request with all its references resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub pieces: Vec<PromptPiece>,
    pub tools: Vec<ToolSummary>,
    pub tool_format: ToolFormat,
    pub tool_choice: ToolChoice,
    pub output_schema: Option<Value>,
    pub stream: bool,
    pub options: Vec<(String, Value)>,
}

/// The names of the option for the length of an answer.
const LENGTHS: [&str; 3] = ["max_output_tokens", "max_tokens", "max_completion_tokens"];

impl Prompt {
    /// The limit of the answer in tokens; `None` if the options set none.
    pub(crate) fn max_output(&self) -> Option<u64> {
        self.options
            .iter()
            .rev()
            .find(|(name, _)| is_length(name))
            .and_then(|(_, tokens)| tokens.as_u64())
    }

    /// Limits the answer to this many tokens; `None` leaves the options unchanged.
    pub(crate) fn limit_output(&mut self, tokens: Option<u64>) {
        let Some(tokens) = tokens else { return };
        match self.options.iter_mut().rev().find(|(name, _)| is_length(name)) {
            // Keep the name that the plugin chose: some models accept only one of them.
            Some((_, limit)) => *limit = Value::from(tokens),
            None => self.options.push(("max-output-tokens".to_owned(), Value::from(tokens))),
        }
    }

    /// The text of the newest piece; empty if there is none.
    #[must_use]
    pub fn last_text(&self) -> &str {
        match self.pieces.last() {
            Some(PromptPiece::System { text }) => text,
            Some(PromptPiece::History { messages, end, .. }) => end
                .checked_sub(1)
                .and_then(|last| messages.get(last))
                .map_or("", |message| message.text()),
            Some(PromptPiece::Draft { draft }) => &draft.content,
            None => "",
        }
    }
}

fn is_length(option: &str) -> bool {
    LENGTHS.contains(&option.replace('-', "_").as_str())
}

/// The reason why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    End,
    Length,
    ToolCalls,
    ContentFilter,
    Other,
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    pub id: String,
    pub content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    pub stop: StopReason,
    pub usage: TokenUsage,
    /// The model that answered, in the provider's words.
    pub model: String,
}

/// The reason for a missing completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelError {
    Denied { denial: Denial },
    BudgetExhausted { what: String },
    UnknownModel { name: String },
    ContextTooLong { tokens: u64 },
    Unavailable { retry_after_ms: Option<u64> },
    Other { message: String },
}

/// Details of a model error for the operator; a plugin gets only the [`ModelError`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDiagnostic {
    pub kind: ModelDiagnosticKind,
    /// The server concerned and a remedy; never contains a key.
    pub text: String,
}

/// The kind of a model error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelDiagnosticKind {
    /// The key is missing, or the server rejects it.
    Key,
    /// No server answered, or not in time.
    Unreachable,
    /// The server has no answer now: it is busy, loads its model, or the account is used up.
    Unavailable,
    /// The server has no such model, or no API under this address.
    NotFound,
    /// The server refused the request.
    Refused,
    /// The answer exceeds a limit.
    Limit,
    /// The answer violates the protocol.
    Malformed,
}
