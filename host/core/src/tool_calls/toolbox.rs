//! A task's toolbox: the names that its agent may use, with the tools of plugins and of the host
//! behind them. The tools of a task are chosen when the config is assembled.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::host_tool::HostTool;
use crate::types::ids::{PluginName, TaskName};
use crate::types::message::{Label, Message, Role, ToolCall};
use crate::types::tool::{ToolExample, ToolSpec, ToolSummary};

/// The target of a name in a toolbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolTarget {
    /// A tool of a plugin, without the plugin's name.
    Plugin {
        plugin: PluginName,
        tool: String,
    },
    Host(HostTool),
}

impl ToolTarget {
    /// The name under which a plugin's tool was admitted, which grants and rules are about:
    /// `plugin.tool`. `None` for a tool of the host.
    #[must_use]
    pub fn admitted_name(&self) -> Option<String> {
        match self {
            Self::Plugin { plugin, tool } => Some(format!("{plugin}.{tool}")),
            Self::Host(_) => None,
        }
    }

    /// Whether this is the tool that was admitted under `name`.
    #[must_use]
    pub fn is_admitted_as(&self, name: &str) -> bool {
        self.admitted_name().is_some_and(|own| own == name)
    }
}

/// A tool in a task's toolbox: its name for the agent, and its options (L-100, L-101).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskTool {
    /// The agent's view of the tool.
    #[serde(flatten)]
    pub summary: ToolSummary,
    pub target: ToolTarget,
    /// Whether the agent is offered the tool and may call it (L-101: use).
    pub offered: bool,
    /// Whether this task carries it out (L-101: handle); else its sub-tasks may.
    pub handled: bool,
    /// Whether a call of it is the result of the task and of all its callers (L-143).
    #[serde(default)]
    pub is_final: bool,
    /// The limit of a result in tokens (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// The tokens of a result that stay in the history once it was answered (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_tokens: Option<u64>,
    /// A second name, which done sequences also accept (L-092).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Example calls: texts that lead to a call, with its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ToolExample>,
    /// Preset arguments for its calls of `delegate_task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<DelegateTarget>,
}

/// The preset arguments of a tool that delegates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegateTarget {
    /// The only task that it delegates to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<TaskName>,
    /// Whether the call is answered with the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

impl TaskTool {
    /// Returns a plugin's tool, offered and carried out, under the name `plugin.tool`.
    #[must_use]
    pub fn of_plugin(plugin: &PluginName, spec: &ToolSpec) -> Self {
        Self {
            summary: ToolSummary {
                name: format!("{plugin}.{}", spec.name),
                description: spec.description.clone(),
                input_schema: spec.input_schema.clone(),
            },
            target: ToolTarget::Plugin { plugin: plugin.clone(), tool: spec.name.clone() },
            offered: true,
            handled: true,
            is_final: false,
            result_tokens: spec.result_tokens,
            retained_tokens: spec.retained_tokens,
            title: spec.title.clone(),
            examples: spec.examples.clone(),
            worker: None,
        }
    }

    /// Returns a tool of the host under its own name. It is carried out if the reference does so
    /// (L-105), and not offered.
    #[must_use]
    pub fn of_host(tool: HostTool) -> Self {
        let by_default = !matches!(
            tool,
            HostTool::FinalResult
                | HostTool::RecipientMessage
                | HostTool::AddRecipient
                | HostTool::Rewind
                | HostTool::TaskStatus
                | HostTool::CancelTask
                | HostTool::TellTask
                | HostTool::SubmitResult
                | HostTool::HandoffConversation
                | HostTool::ReadResult
        );
        Self {
            summary: ToolSummary {
                name: tool.as_str().to_owned(),
                description: tool.description().to_owned(),
                input_schema: tool.input_schema(),
            },
            target: ToolTarget::Host(tool),
            offered: false,
            handled: by_default,
            is_final: tool == HostTool::FinalResult,
            result_tokens: None,
            retained_tokens: None,
            title: None,
            examples: Vec::new(),
            worker: None,
        }
    }
}

/// The tools of a task, fixed when the room opens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<TaskTool>", into = "Vec<TaskTool>")]
pub struct Toolbox {
    tools: Vec<TaskTool>,
    offered: Arc<Vec<ToolSummary>>,
}

impl From<Vec<TaskTool>> for Toolbox {
    fn from(tools: Vec<TaskTool>) -> Self {
        let offered =
            tools.iter().filter(|tool| tool.offered).map(|tool| tool.summary.clone()).collect();
        Self { tools, offered: Arc::new(offered) }
    }
}

impl From<Toolbox> for Vec<TaskTool> {
    fn from(toolbox: Toolbox) -> Self {
        toolbox.tools
    }
}

impl Toolbox {
    /// The tools that the agent is offered, in the toolbox's order.
    #[must_use]
    pub fn offered(&self) -> &Arc<Vec<ToolSummary>> {
        &self.offered
    }

    /// All tools that the agent's messages may name (L-101: known).
    pub fn iter(&self) -> impl Iterator<Item = &TaskTool> {
        self.tools.iter()
    }

    /// The tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&TaskTool> {
        self.tools.iter().find(|tool| tool.summary.name == name)
    }

    /// The entry of a tool of the host, under any name.
    #[must_use]
    pub fn host_tool(&self, host_tool: HostTool) -> Option<&TaskTool> {
        self.tools.iter().find(|tool| tool.target == ToolTarget::Host(host_tool))
    }

    /// Whether the call in this message may be carried out: it comes from an agent, or the agent
    /// itself could have made it (L-171).
    #[must_use]
    pub fn trusts(&self, message: &Message, call: &ToolCall) -> bool {
        let from_outside = message.labels.contains(&Label::Untrusted)
            || (message.sender == Role::User && !message.from_agent);
        !(from_outside || call.untrusted) || self.get(&call.name).is_some_and(|tool| tool.offered)
    }

    /// Returns a toolbox with further tools, each of which replaces one of its name.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = TaskTool>) -> Self {
        let mut tools = self.tools.clone();
        for tool in more {
            match tools.iter_mut().find(|known| known.summary.name == tool.summary.name) {
                Some(known) => *known = tool,
                None => tools.push(tool),
            }
        }
        tools.into()
    }
}
