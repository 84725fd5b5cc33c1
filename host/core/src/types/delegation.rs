//! Work for a background task, whoever asks for it (a tool, an action, the program around the
//! host), and what becomes of it: one record of the task, one of the delivery of its result. Types
//! only; the decisions are `room/background`'s and `room/delivery`'s.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::types::delivery::{BackgroundStatus, DeliveryRecord};
use crate::types::host_tool::HostTool;
use crate::types::ids::{BackgroundId, Millis, PluginName, RoomId, TaskName};
use crate::types::tool::ToolSummary;

/// Which strategy delivers a result: three answers, each meaning something else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deliver {
    /// The one of the task's own `deliver`.
    #[default]
    AsConfigured,
    /// None: the result waits in the inbox.
    Never,
    By(PluginName),
}

/// What speaking of a result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandBack {
    /// The notified task's agent takes a turn about it; where it is at work no more, the text is
    /// said as it is.
    Relay,
    /// The text is said as it is, without a turn.
    Post,
}

/// What becomes of a task whose parent is stopped or closed before it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnClose {
    /// It is stopped with its parent.
    #[default]
    Cascade,
    /// It goes on alone, in a room that nobody waits for.
    Detach,
    /// The parent waits for its end and records it; nothing is said any more.
    FinishSilently,
}

/// Work for a background task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delegation {
    /// A task of the config.
    pub agent: String,
    /// What it is called where it is listed, and the message that it gets when there is no brief.
    pub task: String,
    /// A JSON object of facts, handed to the worker.
    #[serde(default)]
    pub context: Value,
    /// Channels of this room that the worker's room gets too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_channels: Vec<String>,
    /// What the worker reads, where that is more than the label `task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    /// The newest messages of the conversation that the worker gets too, as fenced data.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conversation: u32,
    /// The caller waits for the result, which is the answer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: bool,
    /// The worker must hand its result in with `submit_result`; it is asked again so often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<u32>,
    /// The task that is told; none: the one that delegates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<TaskName>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deliver: Deliver,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_back: Option<HandBack>,
    /// Milliseconds that it may take; none: the worker's own `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_close: Option<OnClose>,
    /// A second delegation with the same key is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Re-prompts for a structured result, when nothing is said.
pub const STRUCTURED_RETRIES: u32 = 3;
/// Automatic answers that may lead to one another: a delegation that would be one more is refused
///
pub const CHAIN_MAX: u32 = 5;
/// Messages of a conversation that a worker may be given.
pub const CONVERSATION_MAX: u32 = 100;

/// The tool `delegate_task` as a model reads it: with agents to choose from, each
/// with what it is for, or, with none, the general one.
#[must_use]
pub fn delegate_tool(agents: &[(&str, Option<&str>)]) -> ToolSummary {
    let tool = HostTool::DelegateTask;
    let mut summary = ToolSummary {
        name: tool.as_str().to_owned(),
        description: tool.description().to_owned(),
        input_schema: tool.input_schema(),
    };
    if agents.is_empty() {
        return summary;
    }
    summary.description.push_str("\nAvailable agents:");
    for (name, description) in agents {
        summary.description.push_str("\n  - ");
        summary.description.push_str(name);
        // A description is one line, or the next one would look like another agent.
        let description =
            description.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        if !description.is_empty() {
            summary.description.push_str(": ");
            summary.description.push_str(&description);
        }
    }
    if let Some(agent) =
        summary.input_schema.pointer_mut("/properties/agent").and_then(Value::as_object_mut)
    {
        agent.insert("enum".to_owned(), agents.iter().map(|(name, _)| *name).collect());
    }
    summary
}

/// The tool that delegates to one worker only: the same without a choice of agents.
#[must_use]
pub fn worker_tool(name: &str, agent: &str, description: Option<&str>, waits: bool) -> ToolSummary {
    let mut input_schema = HostTool::DelegateTask.input_schema();
    if let Some(properties) = input_schema.pointer_mut("/properties").and_then(Value::as_object_mut)
    {
        properties.remove("agent");
    }
    if let Some(required) = input_schema.get_mut("required") {
        *required = json!(["task"]);
    }
    let how = if waits { "Has the agent" } else { "Has, in the background, the agent" };
    let about = description
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| format!(" ({text})"))
        .unwrap_or_default();
    let result = if waits { "its result is the answer" } else { "its result comes later" };
    ToolSummary {
        name: name.to_owned(),
        description: format!("{how} {agent}{about} do a task; {result}."),
        input_schema,
    }
}

/// How a task delegates, from `tasks.NAME.background`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundRules {
    /// Channels that are shared where a call names none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<String>,
    /// Every `delegate_task` of it waits for the result.
    #[serde(skip_serializing_if = "is_default")]
    pub wait: bool,
    /// Milliseconds that a completed result answers the same call again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ms: Option<u64>,
    /// Messages of the conversation that every worker gets.
    #[serde(skip_serializing_if = "is_default")]
    pub conversation: u32,
}

/// Where a background task is in its life. The last five are ends: one of them is reached, once
///
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundState {
    /// Asked for, and not yet let go on.
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Interrupted,
}

impl BackgroundState {
    /// It has ended.
    #[must_use]
    pub fn is_end(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }

    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<BackgroundStatus> for BackgroundState {
    fn from(status: BackgroundStatus) -> Self {
        match status {
            BackgroundStatus::Completed => Self::Completed,
            BackgroundStatus::Failed => Self::Failed,
            BackgroundStatus::Cancelled => Self::Cancelled,
            BackgroundStatus::TimedOut => Self::TimedOut,
            BackgroundStatus::Interrupted => Self::Interrupted,
        }
    }
}

/// A background task as whoever lists or inspects tasks sees it: its own outcome, and beside it
/// that of its delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundRecord {
    pub id: BackgroundId,
    /// The task of the config that works.
    pub agent: TaskName,
    /// What it was asked to do.
    pub task: String,
    /// The child room.
    pub room: RoomId,
    /// The task whose agent started it; none: the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TaskName>,
    /// Who is told.
    pub notify: TaskName,
    pub state: BackgroundState,
    pub started: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A JSON object; the context that it was given, and under `result` what it handed in with
    /// `submit_result`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// How many automatic answers led to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// Its room was let go alone: nobody here learns how it ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detached: bool,
    pub delivery: DeliveryRecord,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_general_tool_has_the_fixed_form() {
        //
        let tool = delegate_tool(&[]);
        assert_eq!(tool.name, "delegate_task");
        let properties = tool.input_schema["properties"].as_object().expect("an object");
        let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["agent", "context", "share_channels", "task"]);
        assert_eq!(tool.input_schema["required"], json!(["agent", "task"]));
        assert_eq!(tool.input_schema["properties"]["context"]["type"], json!("object"));
    }

    #[test]
    fn agents_are_listed_in_their_order_and_the_general_tool_stays_as_it_is() {
        //
        let general = delegate_tool(&[]);
        let tool = delegate_tool(&[("b", Some("Reads\nbooks.")), ("a", None)]);
        assert_eq!(tool.input_schema["properties"]["agent"]["enum"], json!(["b", "a"]));
        assert!(
            tool.description.ends_with("\nAvailable agents:\n  - b: Reads books.\n  - a"),
            "{}",
            tool.description
        );
        assert_eq!(tool.input_schema["required"], general.input_schema["required"]);
        assert_eq!(delegate_tool(&[]), general);
    }

    #[test]
    fn a_workers_tool_asks_for_no_agent() {
        let tool = worker_tool("ask_reader", "reader", Some("reads books"), true);
        assert!(tool.input_schema["properties"].get("agent").is_none());
        assert_eq!(tool.input_schema["required"], json!(["task"]));
        assert!(tool.description.contains("reader (reads books)"), "{}", tool.description);
    }
}
