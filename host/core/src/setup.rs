//! What a room runs with, fixed when it opens: the operator's config and the admitted plugins, come together. Serialisable, so that
//! a journal says what its run was allowed to do. Not where plugins come from or how they are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delivery::ChannelKind;
use crate::grant::{Grants, Rights};
use crate::ids::{ChannelId, ModelName, PluginName, TaskName};
use crate::limits::{PluginLimits, RunLimits};
use crate::manifest::Manifest;
use crate::message::Entity;
use crate::model::ToolFormat;
use crate::policy::Rule;
use crate::tool::{ToolSpec, ToolSummary};

/// What a component can serve as, found by looking at its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PluginKind {
    Agent,
    Responder,
    Memory,
    Tools,
    DeliveryStrategy,
}

impl PluginKind {
    /// The name of the interface that it exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Responder => "responder",
            Self::Memory => "memory",
            Self::Tools => "tools",
            Self::DeliveryStrategy => "delivery-strategy",
        }
    }
}

/// What the host found in a component before it ran any of it, and the tools that it listed with nothing granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginFacts {
    pub manifest: Manifest,
    pub kinds: BTreeSet<PluginKind>,
    pub tools: Vec<ToolSpec>,
    /// Lower-case hexadecimal, of the component; empty when there is none.
    pub sha256: String,
}

impl PluginFacts {
    /// It is code of the program that embeds the host, and runs in no sandbox.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.sha256.is_empty()
    }
}

/// A plugin in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginSetup {
    pub facts: PluginFacts,
    pub grants: Grants,
    pub limits: PluginLimits,
    /// Its own settings, a JSON object.
    pub config: Value,
}

/// How the agent seat answers (L-021, L-125).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSeat {
    /// Tools and actions only.
    Host,
    /// The component's `respond`, where the host has nothing to do.
    #[default]
    HostThenComponent,
    /// The component's `respond`, always.
    Component,
}

/// What happens with an agent's message that carries no tool call (L-125).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoTool {
    /// The next seat is tried.
    #[default]
    Nothing,
    /// It is the task's result.
    Done,
    /// It goes to the user.
    User,
    /// This text goes back to the agent.
    Nudge(String),
}

/// A task in a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSetup {
    pub agent: PluginName,
    /// For people and for agents that may hand work to it.
    pub description: String,
    /// The task's system message; empty when it has none.
    pub system: Arc<str>,
    /// In the order in which they are tried.
    pub subtasks: Vec<TaskName>,
    /// What the agent may call: its grant, narrowed by the task, among what was admitted. In order of name.
    pub tools: Arc<Vec<ToolSummary>>,
    /// The delivery strategy of its results when it runs in the background.
    pub deliver: Option<PluginName>,
    /// The user is asked after each step of somebody else.
    pub interactive: bool,
    /// Steps of one activation (L-050f); none: no limit of its own.
    pub turns: Option<u32>,
    /// Steps without a valid answer before it ends as stalled (L-084).
    pub max_stalled_steps: u32,
    /// A non-empty answer of one of these ends it (L-081).
    pub done_if_response: BTreeSet<Entity>,
    /// No answer of one of these ends it (L-081).
    pub done_if_no_response: BTreeSet<Entity>,
    pub no_tool: NoTool,
    pub agent_seat: AgentSeat,
    /// Without a valid answer the other side says that it does not know (L-058).
    pub allow_null_result: bool,
    pub tool_format: ToolFormat,
}

/// A model in a room. What it costs, not how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSetup {
    /// Micro-US-dollars for a million tokens of input; none when it is not known.
    pub input_price: Option<u64>,
    pub output_price: Option<u64>,
    /// Host and port of its server; none when prompts stay in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_at: Option<String>,
}

/// Everything that a room runs with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The task that gets the first message.
    pub entry: TaskName,
    pub tasks: BTreeMap<TaskName, Arc<TaskSetup>>,
    pub plugins: BTreeMap<PluginName, Arc<PluginSetup>>,
    pub models: BTreeMap<ModelName, ModelSetup>,
    pub channels: BTreeMap<ChannelId, ChannelKind>,
    /// In the order in which they are tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<Rule>,
    pub limits: RunLimits,
}

impl Setup {
    /// The rights of a plugin; none when the config has no plugin of that name.
    #[must_use]
    pub fn rights<'a>(&'a self, plugin: &'a PluginName) -> Option<Rights<'a>> {
        let setup = self.plugins.get(plugin)?;
        Some(Rights { plugin: plugin.as_str(), manifest: &setup.facts.manifest, grants: &setup.grants })
    }

    /// The plugin and the tool behind a `plugin.tool`; none when nothing of that name was admitted.
    #[must_use]
    pub fn tool<'a>(&'a self, name: &str) -> Option<(&'a PluginName, &'a ToolSpec)> {
        let (plugin, tool) = name.split_once('.')?;
        let (plugin, setup) = self.plugins.get_key_value(plugin)?;
        let spec = setup.facts.tools.iter().find(|spec| spec.name == tool)?;
        Some((plugin, spec))
    }
}
