//! The settings of the two guests, which the runner writes as JSON text under `script`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The settings of `script_agent`. Scripts and effects have their form in the scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentSettings {
    /// A [`Script`](crate::Script); null for an agent without a model.
    #[serde(default)]
    pub llm: Value,
    /// An [`Effect`](crate::Effect) that replaces the whole agent responder.
    #[serde(default)]
    pub native: Value,
    /// An effect for the agent's messages without a call.
    #[serde(default)]
    pub no_tool: Value,
}

/// The settings of `script_tools`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ToolsSettings {
    pub tools: Vec<ToolSettings>,
}

/// One tool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ToolSettings {
    /// The plugin's name for it; agents may see another one.
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// By the plugin of the calling agent.
    pub effects: BTreeMap<String, Value>,
}
