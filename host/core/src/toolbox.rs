//! A task's toolbox: the names that its agent may write, and what each stands for. Plugins' tools and those of the host alike; which of
//! them a task has is decided when the config is assembled.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::{PluginName, TaskName};
use crate::message::{Entity, Label, Message, ToolCall};
use crate::tool::{ToolExample, ToolSpec, ToolSummary};

/// A tool that the host carries out: it steers a task, or starts another one (L-140 and after).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostTool {
    Done,
    AgentDone,
    Result,
    FinalResult,
    Pass,
    DonePass,
    Forward,
    Send,
    AgentSend,
    RecipientMessage,
    AddRecipient,
    Rewind,
    DelegateTask,
    /// What became of tasks that this one started.
    TaskStatus,
    CancelTask,
    /// Says something to a task that runs.
    TellTask,
    /// Hands in the result that was asked for in a fixed form.
    SubmitResult,
    /// Moves the conversation to another task.
    HandoffConversation,
}

impl HostTool {
    /// All of them, in the order in which a manual would explain them.
    pub const ALL: [Self; 18] = [
        Self::Done,
        Self::AgentDone,
        Self::Result,
        Self::FinalResult,
        Self::Pass,
        Self::DonePass,
        Self::Forward,
        Self::Send,
        Self::AgentSend,
        Self::RecipientMessage,
        Self::AddRecipient,
        Self::Rewind,
        Self::DelegateTask,
        Self::TaskStatus,
        Self::CancelTask,
        Self::TellTask,
        Self::SubmitResult,
        Self::HandoffConversation,
    ];

    /// The tool of that name; none for a plugin's.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// Its name in the contract, the config and the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::AgentDone => "agent_done",
            Self::Result => "result",
            Self::FinalResult => "final_result",
            Self::Pass => "pass",
            Self::DonePass => "done_pass",
            Self::Forward => "forward",
            Self::Send => "send",
            Self::AgentSend => "agent_send",
            Self::RecipientMessage => "recipient_message",
            Self::AddRecipient => "add_recipient",
            Self::Rewind => "rewind",
            Self::DelegateTask => "delegate_task",
            Self::TaskStatus => "task_status",
            Self::CancelTask => "cancel_task",
            Self::TellTask => "tell_task",
            Self::SubmitResult => "submit_result",
            Self::HandoffConversation => "handoff_conversation",
        }
    }

    /// Its name in Langroid, for tasks with `compat = "langroid"`.
    #[must_use]
    pub fn langroid_name(self) -> &'static str {
        match self {
            Self::Done => "done_tool",
            Self::AgentDone => "agent_done_tool",
            Self::Result => "result_tool",
            Self::FinalResult => "final_result_tool",
            Self::Pass => "pass_tool",
            Self::DonePass => "done_pass_tool",
            Self::Forward => "forward_tool",
            Self::Send => "send_tool",
            Self::AgentSend => "agent_send_tool",
            Self::Rewind => "rewind_tool",
            Self::RecipientMessage | Self::AddRecipient | Self::DelegateTask => self.as_str(),
            Self::TaskStatus | Self::CancelTask | Self::TellTask | Self::SubmitResult | Self::HandoffConversation => self.as_str(),
        }
    }

    /// What it does, for a model.
    #[must_use]
    pub fn description(self) -> &'static str {
        match self {
            Self::Done => "Ends your task; `content` is its result.",
            Self::AgentDone => "Ends the task, with content and calls for whoever called it.",
            Self::Result => "Ends the task; the call itself is its result.",
            Self::FinalResult => "Ends the task and all that called it; the call itself is the result.",
            Self::Pass => "Passes the message that you were given on, unchanged, to whoever else can answer it.",
            Self::DonePass => "Ends your task with the message that you were given as its result.",
            Self::Forward => "Passes the message that you were given on, unchanged, to `agent`.",
            Self::Send => "Sends `content` to `to`.",
            Self::AgentSend => "Sends content and calls to `to`.",
            Self::RecipientMessage => {
                "Sends `content` to `intended_recipient`. Use it for each message, so that it is clear whom it is for."
            }
            Self::AddRecipient => "Says whom your last message is for, when you forgot to.",
            Self::Rewind => {
                "Goes back to your `n`-th message, counted from 1, and says `content` instead; what came after it is forgotten."
            }
            Self::DelegateTask => {
                "Hands a task to an agent that works in the background, in a room of its own, while this conversation goes on; its result comes later."
            }
            Self::TaskStatus => "Says how the background tasks stand that you started: one of them, or the newest ten.",
            Self::CancelTask => "Stops a background task that you started.",
            Self::TellTask => "Says something to a background task that you started; its agent reads it in its next step.",
            Self::SubmitResult => {
                "Hands in the result of your task and ends it. `status`: `completed`, `failed` or `blocked`; `summary`: the result in words; `data`: facts that a program reads."
            }
            Self::HandoffConversation => {
                "Hands this conversation over to another agent, or to `user`, and ends your part in it; to have work done beside the conversation use `delegate_task`."
            }
        }
    }

    /// JSON Schema of its arguments. Numbers and other plain values are taken for text where text is asked for.
    #[must_use]
    pub fn input_schema(self) -> Value {
        let text = json!({ "type": "string" });
        let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required });
        match self {
            Self::Done => object(json!({ "content": {} }), &[]),
            Self::AgentDone => object(json!({ "content": {}, "tools": { "type": "array" } }), &[]),
            Self::Result | Self::FinalResult | Self::Pass | Self::DonePass => object(json!({}), &[]),
            Self::Forward => object(json!({ "agent": text }), &["agent"]),
            Self::Send => object(json!({ "to": text, "content": text }), &["to"]),
            Self::AgentSend => object(json!({ "to": text, "content": text, "tools": { "type": "array" } }), &["to"]),
            Self::RecipientMessage => object(json!({ "intended_recipient": text, "content": text }), &["intended_recipient", "content"]),
            Self::AddRecipient => object(json!({ "intended_recipient": text }), &["intended_recipient"]),
            Self::Rewind => object(json!({ "n": { "type": "integer" }, "content": text }), &["n", "content"]),
            Self::DelegateTask => object(
                json!({
                    "agent": { "type": "string", "description": "Who is to do it." },
                    "task": { "type": "string", "description": "What is to be done, clearly; the agent knows nothing else of this conversation." },
                    "context": { "type": "object", "description": "Facts for the agent, such as a name or an address; it reads them." },
                    "share_channels": {
                        "type": "array", "items": text, "description": "Channels of this room on which its answer is told, too.",
                    },
                }),
                &["agent", "task"],
            ),
            Self::TaskStatus => object(json!({ "task_id": text }), &[]),
            Self::CancelTask => object(json!({ "task_id": text }), &["task_id"]),
            Self::TellTask => object(json!({ "task_id": text, "text": text }), &["task_id", "text"]),
            Self::SubmitResult => object(
                json!({ "status": { "type": "string", "enum": ["completed", "failed", "blocked"] }, "summary": text, "data": {} }),
                &["status", "summary"],
            ),
            Self::HandoffConversation => object(
                json!({
                    "target": { "type": "string", "description": "Who is to hold the conversation from here on." },
                    "reason": { "type": "string", "description": "Why." },
                    "summary": { "type": "string", "description": "What the other must know of the conversation; it reads nothing else of it." },
                    "next_phase": { "type": "string", "description": "A word for where the conversation then is." },
                    "channel_escalation": { "type": "string", "description": "The channel on which the user should go on." },
                }),
                &["target", "reason", "summary"],
            ),
        }
    }

    /// Only what carries out a call may ask for it, never a model (L-141, L-143, L-147).
    #[must_use]
    pub fn is_for_handlers(self) -> bool {
        matches!(self, Self::AgentDone | Self::Result | Self::FinalResult | Self::AgentSend)
    }

    /// Must be the only call in its message (L-119).
    #[must_use]
    pub fn stands_alone(self) -> bool {
        !matches!(
            self,
            Self::Result
                | Self::FinalResult
                | Self::AddRecipient
                | Self::Rewind
                | Self::DelegateTask
                | Self::TaskStatus
                | Self::CancelTask
                | Self::TellTask
                | Self::HandoffConversation
        )
    }
}

/// What a name that an agent may write stands for.
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

/// A tool in a task's toolbox: what its agent may write, and what comes of it (L-100, L-101).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskTool {
    /// What the agent sees and writes.
    #[serde(flatten)]
    pub summary: ToolSummary,
    pub target: ToolTarget,
    /// Shown to the agent, which may call it (L-101: use).
    pub offered: bool,
    /// This task carries it out (L-101: handle); else its sub-tasks may.
    pub handled: bool,
    /// A call of it is the result of the task and of all its callers (L-143).
    #[serde(default)]
    pub is_final: bool,
    /// Tokens of a result at most (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// Tokens of a result that stay in the history once it was answered (L-120).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_tokens: Option<u64>,
    /// A second name, which done sequences know too (L-092).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Examples of a call: words that lead to it, and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ToolExample>,
    /// What its calls of `delegate_task` say without saying it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
}

/// What calls of a tool that delegates need not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// It delegates to nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<TaskName>,
    /// The call is answered with the result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

impl TaskTool {
    /// A plugin's tool, offered and carried out, under the name `plugin.tool`.
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

    /// A tool of the host under its own name, carried out where the reference does so (L-105), and not offered.
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
        let offered = tools.iter().filter(|tool| tool.offered).map(|tool| tool.summary.clone()).collect();
        Self { tools, offered: Arc::new(offered) }
    }
}

impl From<Toolbox> for Vec<TaskTool> {
    fn from(toolbox: Toolbox) -> Self {
        toolbox.tools
    }
}

impl Toolbox {
    /// What the agent is shown, in the toolbox's order.
    #[must_use]
    pub fn offered(&self) -> &Arc<Vec<ToolSummary>> {
        &self.offered
    }

    /// All that the agent's messages may name (L-101: known).
    pub fn iter(&self) -> impl Iterator<Item = &TaskTool> {
        self.tools.iter()
    }

    /// The tool that goes by this name here.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&TaskTool> {
        self.tools.iter().find(|tool| tool.summary.name == name)
    }

    /// The entry of a tool of the host, under whatever name.
    #[must_use]
    pub fn host_tool(&self, wanted: HostTool) -> Option<&TaskTool> {
        self.tools.iter().find(|tool| tool.target == ToolTarget::Host(wanted))
    }

    /// The call, which stands in this message, may be carried out: it comes from an agent, or the agent itself could have made it (L-171).
    #[must_use]
    pub fn trusts(&self, message: &Message, call: &ToolCall) -> bool {
        let from_outside = message.labels.contains(&Label::Untrusted) || (message.sender == Entity::User && !message.from_agent);
        !(from_outside || call.untrusted) || self.get(&call.name).is_some_and(|tool| tool.offered)
    }

    /// The same tools and these, each in the place of one of its name.
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
