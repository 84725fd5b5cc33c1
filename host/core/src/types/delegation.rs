//! Delegations to background tasks, by a tool, an action or the embedding program, and the records
//! of the task and of its result's delivery. Types only; the decisions are in `room/background` and
//! `room/delivery`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::types::delivery::{BackgroundStatus, DeliveryRecord, DeliveryState};
use crate::types::host_tool::HostTool;
use crate::types::ids::{BackgroundId, Millis, PluginName, RoomId, TaskName};
use crate::types::message::weight_of;
use crate::types::tool::ToolSummary;

/// The choice of a delivery strategy for a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deliver {
    /// The delegating task's `background.delivery_strategy`, or else the worker's
    /// `delivery_strategy`.
    #[default]
    AsConfigured,
    /// No strategy: the result waits in the inbox.
    Never,
    By(PluginName),
}

/// The form in which a result is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultForm {
    /// The notified task's agent reads it in a turn of its own; if that task has ended, the text is
    /// sent unchanged.
    AgentTurn,
    /// The text is sent unchanged, without a turn.
    Text,
}

impl ResultForm {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentTurn => "agent-turn",
            Self::Text => "text",
        }
    }
}

/// The fate of a task whose parent is stopped or closed before it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnClose {
    /// The task is stopped with its parent.
    #[default]
    Cascade,
    /// The task continues in a room of its own, and its result is not awaited.
    Detach,
    /// The parent waits for the task's end and records it; nothing more is delivered.
    FinishSilently,
}

impl OnClose {
    /// The word of the config.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cascade => "cascade",
            Self::Detach => "detach",
            Self::FinishSilently => "finish-silently",
        }
    }
}

/// A request for a background task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delegation {
    /// The name of a task of the config. The fixed JSON form of actions calls it `agent`.
    #[serde(rename = "agent")]
    pub worker: String,
    /// The label in lists; also the worker's message if there is no brief.
    #[serde(rename = "task")]
    pub description: String,
    /// A JSON object of facts for the worker.
    #[serde(default)]
    pub context: Value,
    /// The channels of this room to share with the worker's room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_channels: Vec<String>,
    /// The message that the worker reads, if it differs from `description`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    /// The number of the conversation's newest messages that the worker gets, as fenced data.
    #[serde(default, skip_serializing_if = "is_default")]
    pub conversation: u32,
    /// Whether the caller waits for the result, which then answers the call.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: bool,
    /// The number of re-prompts for a result with `submit_result`; `None` if none is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_retries: Option<u32>,
    /// The JSON Schema of the `data` that a completed result must have; it implies a result with
    /// `submit_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    /// The task to notify; `None` for the one that the delegating task's rules name, or else for
    /// the delegating task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<TaskName>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub deliver: Deliver,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_delivery: Option<ResultForm>,
    /// The time limit in milliseconds; `None` for the worker's own `deadline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The limit of steps; `None` for the worker's own `turns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_close: Option<OnClose>,
    /// The idempotency key: a second delegation with the same key returns the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The default number of re-prompts for a structured result.
pub const STRUCTURED_RETRIES: u32 = 3;
/// The limit of re-prompts, as in the config.
pub const STRUCTURED_RETRIES_MAX: u32 = 100;
/// The limit of a result's schema in bytes: the worker's model reads it with each request.
pub const RESULT_SCHEMA_BYTES: usize = 64 << 10;
/// The limit of automatic answers in a chain: a delegation beyond it is refused.
pub const CHAIN_MAX: u32 = 5;
/// The limit of conversation messages for a worker.
pub const CONVERSATION_MAX: u32 = 100;

/// The tool `delegate_task` as a model reads it. It offers the given agents with
/// their descriptions; without any it is the general form.
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
        // A description must be one line; a further line would look like another agent.
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

/// The tool that delegates to one worker only: without a choice of agents.
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

/// The rules by which a task delegates, from `tasks.NAME.background`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackgroundRules {
    /// Channels to share if a call names none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<String>,
    /// Whether every `delegate_task` of the task waits for the result.
    #[serde(skip_serializing_if = "is_default")]
    pub wait: bool,
    /// Milliseconds for which a completed result answers an equal call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ms: Option<u64>,
    /// The number of conversation messages that every worker gets.
    #[serde(skip_serializing_if = "is_default")]
    pub conversation: u32,
    /// The task to notify of results; `None` for the delegating one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<TaskName>,
    /// The strategy that delivers results, instead of the worker's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_strategy: Option<PluginName>,
    /// Whether the host reports results that have no strategy, once the notified agent waits for
    /// its user or is done. Setups of before this rule lack it, and such results wait in the inbox.
    #[serde(skip_serializing_if = "is_default")]
    pub host_reports: bool,
}

/// The state of a background task. The last five are final: one of them is reached, once (R-040,
///
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundState {
    /// Requested, and not yet admitted.
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Interrupted,
}

impl BackgroundState {
    /// Whether the state is final.
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

/// A background task in lists: its own outcome, and that of its delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundRecord {
    pub id: BackgroundId,
    /// The task of the config that does the work.
    pub worker: TaskName,
    /// The label of the work.
    pub description: String,
    /// The child room.
    pub room: RoomId,
    /// The task whose agent started it; `None` for the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<TaskName>,
    /// The task to notify.
    pub notify: TaskName,
    pub state: BackgroundState,
    pub started: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A JSON object: the context of the delegation, and under `result` the value submitted with
    /// `submit_result`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// The number of automatic answers that led to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// Whether its room was detached; this room then does not learn how it ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub detached: bool,
    pub delivery: DeliveryRecord,
}

impl BackgroundRecord {
    /// The bytes of its texts and metadata.
    pub(crate) fn weight(&self) -> usize {
        let texts = [Some(&self.description), self.output.as_ref(), self.error.as_ref()];
        texts.into_iter().flatten().map(String::len).sum::<usize>() + weight_of(&self.metadata)
    }

    /// Whether nothing about the task changes any more. A result in the inbox may still be read, so
    /// its task is not settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let may_be_delivered = matches!(
            self.delivery.state,
            DeliveryState::Waiting | DeliveryState::Delivering | DeliveryState::Inbox
        );
        self.detached || self.state.is_end() && !may_be_delivered
    }
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
