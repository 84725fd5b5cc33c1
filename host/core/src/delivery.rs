//! Delivery of background results, as the core knows it. Mirrors `wit/delivery.wit`. The strategy decides, the host performs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{BackgroundId, ChannelId, Millis, RoomId, TaskName};
use crate::outcome::{Outcome, Status};

/// How a background task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackgroundStatus {
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Interrupted,
}

impl BackgroundStatus {
    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A background task that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedTask {
    pub id: BackgroundId,
    /// The task of the config that did the work.
    pub agent: TaskName,
    /// What it was asked to do.
    pub task: String,
    pub status: BackgroundStatus,
    pub output: Option<String>,
    pub error: Option<String>,
    pub duration_ms: u64,
    pub metadata: Value,
}

impl EndedTask {
    /// What a child room's end amounts to: completed only with an answer, and a failure always with its reason (R-041 done
    /// right). The parent puts in which task it was.
    #[must_use]
    pub fn from_outcome(outcome: &Outcome) -> Self {
        let answer = outcome.content.clone().filter(|content| !content.trim().is_empty());
        let status = match outcome.status {
            Status::Timeout => BackgroundStatus::TimedOut,
            Status::Kill => BackgroundStatus::Cancelled,
            status if status.is_success() && answer.is_some() => BackgroundStatus::Completed,
            _ => BackgroundStatus::Failed,
        };
        let completed = status == BackgroundStatus::Completed;
        Self {
            id: BackgroundId::from(""),
            agent: TaskName::from(""),
            task: String::new(),
            status,
            error: (!completed).then(|| outcome.reason.clone()),
            output: answer.filter(|_| completed),
            duration_ms: 0,
            metadata: Value::Null,
        }
    }

    /// A child room that could not be opened or broke off on the host's side.
    #[must_use]
    pub fn interrupted(reason: String) -> Self {
        Self {
            id: BackgroundId::from(""),
            agent: TaskName::from(""),
            task: String::new(),
            status: BackgroundStatus::Interrupted,
            error: Some(reason),
            output: None,
            duration_ms: 0,
            metadata: Value::Null,
        }
    }
}

/// What kind of channel it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelKind {
    Text,
    Voice,
    Agent,
    Other,
}

/// What keeps a channel busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    Idle,
    Speaking,
    UserSpeaking,
    Generating,
}

/// A channel of the room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    pub id: ChannelId,
    pub kind: ChannelKind,
    pub activity: Activity,
    pub muted: bool,
}

/// Why a strategy is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wake", rename_all = "kebab-case")]
pub enum Wake {
    Ended { task: BackgroundId },
    ChannelChanged { channel: ChannelId },
    Timer,
    SendFailed { reason: String },
}

/// What a strategy decided. Its fields are as the plugin wrote them: the room checks them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case")]
pub enum Decision {
    Speak { tasks: Vec<String>, channel: Option<String>, prompt: Option<String>, interrupt: bool },
    Attach { tasks: Vec<String> },
    Wait { channel: Option<String>, at_most_ms: u64 },
    GiveUp { reason: String },
}

/// What a strategy may see; a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryView {
    pub room: RoomId,
    pub now: Millis,
    pub waiting: Vec<EndedTask>,
    /// Those that the strategy may speak on.
    pub channels: Vec<Channel>,
    pub notify: Option<TaskName>,
}

impl DeliveryView {
    /// The best channel: voice first, then any other that is not an agent; muted ones never.
    #[must_use]
    pub fn transport(&self) -> Option<&Channel> {
        let open = || self.channels.iter().filter(|channel| !channel.muted && channel.kind != ChannelKind::Agent);
        open().find(|channel| channel.kind == ChannelKind::Voice).or_else(|| open().next())
    }
}
