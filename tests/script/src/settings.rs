//! What the runner writes into the settings of the two guests, as JSON text under `script`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The settings of `script_agent`. Scripts and effects are kept as they stand in the scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentSettings {
    /// A [`Script`](crate::Script); null when the agent has no model.
    #[serde(default)]
    pub llm: Value,
    /// An [`Effect`](crate::Effect) in the place of everything that the agent seat does.
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
    /// As the plugin calls it; agents may see another.
    pub name: String,
    pub description: String,
    pub input_schema: Value,
    /// By the plugin of the agent that calls.
    pub effects: BTreeMap<String, Value>,
}
