//! Model calls as the core knows them. Mirrors the `model` interface of `wit/capabilities.wit`; not
//! how a provider is spoken to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::denial::Denial;
use crate::types::history::History;
use crate::types::message::{Entity, ToolCall, ToolResult};
use crate::types::tool::ToolSummary;

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// None when the model's price is not known.
    pub cost_micro_usd: Option<u64>,
}

/// A message of the plugin's own making, for a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DraftMessage {
    pub role: Entity,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<ToolResult>,
}

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum PromptPart {
    System,
    /// Indices of the step's history, `end` not included.
    History {
        start: u64,
        end: u64,
    },
    Draft {
        draft: DraftMessage,
    },
}

/// How tools are offered and called.
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

/// What a plugin asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// None for the default.
    pub model: Option<String>,
    /// Empty: system and the whole history.
    pub prompt: Vec<PromptPart>,
    /// None: all that the agent may call.
    pub tools: Option<Vec<String>>,
    pub tool_format: Option<ToolFormat>,
    pub tool_choice: ToolChoice,
    pub output_schema: Option<Value>,
    /// The room sees the text while it is generated.
    pub stream: bool,
    pub options: Vec<(String, Value)>,
}

/// Goes on with the whole history, with every tool, from the default model.
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

/// A piece of a prompt as a model client gets it: history by reference, nothing copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "piece", rename_all = "kebab-case")]
pub enum PromptPiece {
    System {
        text: Arc<str>,
    },
    /// Messages `start` to `end`, `end` not included, of a snapshot. A client shows each as
    /// [`Message::in_prompt`] has it, with the fence around what plugins and other tasks said.
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

/// A request with everything put in.
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

/// The option for the length of an answer, by all its names.
const LENGTHS: [&str; 3] = ["max_output_tokens", "max_tokens", "max_completion_tokens"];

impl Prompt {
    /// Tokens that the answer may have, when the options say so.
    pub(crate) fn max_output(&self) -> Option<u64> {
        self.options
            .iter()
            .rev()
            .find(|(name, _)| is_length(name))
            .and_then(|(_, tokens)| tokens.as_u64())
    }

    /// Lets the answer have so many tokens; with none the options stay as they are.
    pub(crate) fn limit_output(&mut self, tokens: Option<u64>) {
        let Some(tokens) = tokens else { return };
        match self.options.iter_mut().rev().find(|(name, _)| is_length(name)) {
            // Under the name that the plugin chose: some models take one of them only.
            Some((_, asked)) => *asked = Value::from(tokens),
            None => self.options.push(("max-output-tokens".to_owned(), Value::from(tokens))),
        }
    }

    /// Text of the newest piece; empty when there is none.
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

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    End,
    Length,
    ToolCalls,
    ContentFilter,
    Other,
}

/// What the model answered.
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

/// Why there is no completion.
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

/// Why a model could not be asked, for the operator: a plugin reads only the [`ModelError`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelDiagnostic {
    pub kind: ModelDiagnosticKind,
    /// Names the server and what to do about it; never holds a key.
    pub text: String,
}

/// What kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelDiagnosticKind {
    /// There is no key, or the server does not take it.
    Key,
    /// No server answered, or not in time.
    Unreachable,
    /// The server answered, and says no.
    Refused,
    /// The answer is larger than allowed.
    Limit,
    /// The answer is not what the protocol says.
    Malformed,
}
