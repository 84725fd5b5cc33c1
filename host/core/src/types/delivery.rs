//! Delivery of background results, as the core knows it. Mirrors `wit/delivery.wit`. The strategy
//! decides, the host performs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::channel::Binding;
use crate::types::ids::{BackgroundId, ChannelId, Millis, PluginName, RoomId, TaskName};
use crate::types::outcome::{EndCause, Outcome, Status};

pub use crate::types::channel::{Activity, Channel, ChannelKind};

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
    /// Why it was not completed, for people.
    pub error: Option<String>,
    /// The same for programs, where a host ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndCause>,
    pub duration_ms: u64,
    pub metadata: Value,
    /// Speeches about it that were tried and not accepted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl EndedTask {
    /// What a child room's end amounts to: completed only with an answer, and a failure
    /// always with its reason (R-041 done right). The parent puts in which task it was.
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
        // Whoever says that it cannot be done says why.
        let said_no = answer.clone().filter(|_| outcome.status == Status::Rejected);
        Self {
            id: BackgroundId::from(""),
            agent: TaskName::from(""),
            task: String::new(),
            status,
            error: (!completed).then(|| said_no.unwrap_or_else(|| outcome.reason.clone())),
            cause: outcome.cause.filter(|_| !completed),
            output: answer.filter(|_| completed),
            duration_ms: 0,
            // What it handed in with `submit_result`; the parent knows whether that was asked for.
            metadata: outcome.value.clone().unwrap_or_default(),
            attempts: 0,
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
            cause: None,
            output: None,
            duration_ms: 0,
            metadata: Value::Null,
            attempts: 0,
        }
    }
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
    /// Oldest first; where very many wait, the oldest of them. It is woken for the rest once it has
    /// decided about these.
    pub waiting: Vec<Arc<EndedTask>>,
    /// Those that the strategy may speak on.
    pub channels: Vec<Channel>,
    pub notify: Option<TaskName>,
}

/// The channel on which people are told something when nobody says where: voice first, then any
/// other that leads to people. Those that are muted, or may be told nothing, never.
#[must_use]
pub fn transport(bindings: &BTreeMap<ChannelId, Binding>) -> Option<&ChannelId> {
    let open = || bindings.iter().filter(|(_, binding)| binding.can_be_told());
    let voice = open().find(|(_, binding)| binding.kind == ChannelKind::Voice);
    voice.or_else(|| open().next()).map(|(id, _)| id)
}

impl DeliveryView {
    /// The best channel: voice first, then any other that is not an agent; muted ones never
    ///
    #[must_use]
    pub fn transport(&self) -> Option<&Channel> {
        let open = || {
            self.channels
                .iter()
                .filter(|channel| !channel.muted && channel.kind != ChannelKind::Agent)
        };
        open().find(|channel| channel.kind == ChannelKind::Voice).or_else(|| open().next())
    }
}

/// Where a result is on its way to whoever is to be told. A record of its own: a task has ended,
/// whatever becomes of its delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryState {
    /// Its task has not ended, or nobody is to be told.
    #[default]
    None,
    /// For its strategy.
    Waiting,
    Speaking,
    /// A channel, or the notified agent's turn, took it.
    Delivered,
    /// In the inbox, for the agent's next turn.
    Attached,
    /// The agent has read it in a turn of its own.
    Told,
    /// A gate, or a closed room, held it back.
    Blocked,
    /// Tried as often as it may be; it waits in the inbox.
    DeadLetter,
}

/// How a delivery stands (R-109, R-115 done right).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    pub state: DeliveryState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PluginName>,
    /// Where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// Speeches that were tried.
    #[serde(default)]
    pub attempts: u32,
    /// Why it stands there, where that is not what was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is said on a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speech {
    pub channel: ChannelId,
    pub text: String,
    /// Stop what the channel is saying.
    #[serde(default)]
    pub interrupt: bool,
    /// The same for every attempt at the same speech: a channel that took it before takes it again
    /// without saying it.
    #[serde(default)]
    pub key: String,
    /// The results that it is about; none for what somebody in the room said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<BackgroundId>,
}
