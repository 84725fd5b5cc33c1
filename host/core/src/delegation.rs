//! Work for a background task, whoever asks for it (a tool, an action, the program around the host), and what becomes of it: one record
//! of the task, one of the delivery of its result. Types only; the decisions are `room/background`'s and `room/delivery`'s.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delivery::{BackgroundStatus, DeliveryRecord};
use crate::ids::{BackgroundId, Millis, PluginName, RoomId, TaskName};

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
    /// The notified task's agent takes a turn about it; where it is at work no more, the text is said as it is.
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

/// Where a background task is in its life. The last five are ends: one of them is reached, once.
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

/// A background task as whoever lists or inspects tasks sees it: its own outcome, and beside it that of its delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundRecord {
    pub id: BackgroundId,
    /// The task of the config that works.
    pub agent: TaskName,
    /// What it was asked to do.
    pub task: String,
    /// The child room.
    pub room: RoomId,
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
    /// A JSON object; the context that it was given.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    pub delivery: DeliveryRecord,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
