//! Scenarios as written in a file: one JSON object a line. Only the fields that determine the shape
//! are typed; the rest stays JSON.

use serde::Deserialize;
use serde_json::{Map, Value};

/// One line of a file.
#[derive(Clone, Debug, Deserialize)]
pub struct Scenario {
    pub id: String,
    /// Only `langroid` is supported here.
    #[serde(default)]
    pub pack: String,
    #[serde(default)]
    pub agents: Vec<Agent>,
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// Each with its `op`, which defaults to `run`.
    #[serde(default)]
    pub calls: Vec<Map<String, Value>>,
    /// One entry per call.
    #[serde(default)]
    pub expect: Vec<Value>,
}

/// An agent: the scripts of its model and its user, and its tools.
#[derive(Clone, Debug, Deserialize)]
pub struct Agent {
    pub name: String,
    #[serde(default)]
    pub system_message: Option<String>,
    /// Null for an agent without a model.
    #[serde(default)]
    pub llm: Value,
    #[serde(default)]
    pub tools: Vec<Tool>,
    /// Null for an agent without a user.
    #[serde(default)]
    pub user: Value,
    /// An effect that replaces the agent responder, or null.
    #[serde(default)]
    pub native: Value,
    #[serde(default)]
    pub config: AgentConfig,
}

/// Settings of an agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Null, `user`, `done` or an effect.
    #[serde(default)]
    pub handle_llm_no_tool: Value,
    #[serde(default)]
    pub respond_tools_only: Option<bool>,
    #[serde(default)]
    pub allow_multiple_tools: Option<bool>,
    #[serde(default)]
    pub recognize_recipient_in_content: Option<bool>,
    #[serde(default)]
    pub user_message: Option<String>,
}

/// A tool of an agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    pub name: String,
    #[serde(default)]
    pub fields: Map<String, Value>,
    /// Null for a handler without an effect, or no handler.
    #[serde(default)]
    pub effect: Value,
    #[serde(default = "yes", rename = "use")]
    pub offered: bool,
    #[serde(default = "yes", rename = "handle")]
    pub handled: bool,
    /// Whether it is a host tool.
    #[serde(default)]
    pub builtin: bool,
    #[serde(default)]
    pub class_name: Option<String>,
    /// Defaults to true unless the tool is final.
    #[serde(default)]
    pub allow_llm_use: Option<bool>,
    #[serde(default, rename = "final")]
    pub is_final: bool,
    #[serde(default)]
    pub max_result_tokens: Option<u64>,
    #[serde(default)]
    pub max_retained_tokens: Option<u64>,
    /// Whether it differs from another tool of its name.
    #[serde(default)]
    pub redefine: bool,
    /// Whether calls may be XML. Ignored, because the host parses both forms.
    #[serde(default, rename = "xml")]
    _xml: bool,
    /// Whether the handler belongs to the tool or to the agent. Ignored, because both behave alike
    /// here.
    #[serde(default, rename = "inline")]
    _inline: bool,
}

impl Tool {
    /// Returns a host tool.
    #[must_use]
    pub fn host(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fields: Map::new(),
            effect: Value::Null,
            offered: true,
            handled: true,
            builtin: true,
            class_name: None,
            allow_llm_use: None,
            is_final: false,
            max_result_tokens: None,
            max_retained_tokens: None,
            redefine: false,
            _xml: false,
            _inline: false,
        }
    }

    /// Returns whether both are the same tool. Ignores how each agent uses it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.fields, &self.class_name, self.builtin, self.redefine)
            == (&other.name, &other.fields, &other.class_name, other.builtin, other.redefine)
    }

    /// Returns whether the agent's model may call it.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.offered && self.allow_llm_use.unwrap_or(!self.is_final)
    }
}

/// A task of an agent.
#[derive(Clone, Debug, Deserialize)]
pub struct Task {
    pub name: String,
    pub agent: String,
    #[serde(default)]
    pub options: Map<String, Value>,
    #[serde(default)]
    pub subtasks: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Scenario {
    /// Returns the agent of that name.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}
