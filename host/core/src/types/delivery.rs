//! Delivery of background results. Mirrors `wit/delivery.wit`. The strategy decides, the host
//! performs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::channel::Binding;
use crate::types::ids::{BackgroundId, ChannelId, Millis, PluginName, RoomId, TaskName};
use crate::types::message::weight_of;
use crate::types::outcome::{EndCause, Outcome, Status};

pub use crate::types::channel::{Activity, Channel, ChannelKind};

/// The end of a background task.
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
    pub worker: TaskName,
    /// The label of the work.
    pub description: String,
    pub status: BackgroundStatus,
    pub output: Option<String>,
    /// The reason why it was not completed, for people.
    pub error: Option<String>,
    /// The reason as a code, if the host ended the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndCause>,
    pub duration_ms: u64,
    pub metadata: Value,
    /// The number of failed deliveries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl EndedTask {
    /// The task for a child room's outcome. It is completed only with an answer, and a
    /// failure always has a reason (R-041 done right). The parent adds which task it was.
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
        // A rejection states its reason in the answer.
        let said_no = answer.clone().filter(|_| outcome.status == Status::Rejected);
        Self {
            id: BackgroundId::from(""),
            worker: TaskName::from(""),
            description: String::new(),
            status,
            error: (!completed).then(|| said_no.unwrap_or_else(|| outcome.reason.clone())),
            cause: outcome.cause.filter(|_| !completed),
            output: answer.filter(|_| completed),
            duration_ms: 0,
            // The value of `submit_result`; the parent knows whether one was required.
            metadata: outcome.value.clone().unwrap_or_default(),
            attempts: 0,
        }
    }

    /// The bytes of its texts and metadata.
    pub(crate) fn weight(&self) -> usize {
        let texts = [Some(&self.description), self.output.as_ref(), self.error.as_ref()];
        texts.into_iter().flatten().map(String::len).sum::<usize>() + weight_of(&self.metadata)
    }

    /// The end of a task whose room could not be opened, or failed in the host. The parent's room
    /// fills in what it knows of the task.
    #[must_use]
    pub fn interrupted(reason: String) -> Self {
        Self {
            id: BackgroundId::from(""),
            worker: TaskName::from(""),
            description: String::new(),
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

/// The reason for waking a strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wake", rename_all = "kebab-case")]
pub enum Wake {
    Ended { task: BackgroundId },
    ChannelIdle { channel: ChannelId },
    Timer,
    SendFailed { reason: String },
}

/// A strategy's decision. Its fields are as the plugin wrote them: the room checks them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case")]
pub enum Decision {
    Deliver { tasks: Vec<String>, channel: Option<String>, prompt: Option<String>, interrupt: bool },
    MoveToInbox { tasks: Vec<String> },
    Wait { channel: Option<String>, timeout_ms: u64 },
    GiveUp { reason: String },
}

/// A strategy's view of the room; a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryView {
    pub room: RoomId,
    pub now: Millis,
    /// Pending results, oldest first. If there are too many for one call, only the oldest are
    /// listed; the strategy is woken for the rest after its decision about these.
    pub pending_results: Vec<Arc<EndedTask>>,
    /// The channels that the strategy may use.
    pub channels: Vec<Channel>,
    pub notified_task: Option<TaskName>,
}

/// The default channel for messages to people: voice first, then any other that leads to people.
/// Channels that are muted or may not read are never chosen.
#[must_use]
pub fn preferred_channel(bindings: &BTreeMap<ChannelId, Binding>) -> Option<&ChannelId> {
    let open = || bindings.iter().filter(|(_, binding)| binding.can_receive());
    let voice = open().find(|(_, binding)| binding.kind == ChannelKind::Voice);
    voice.or_else(|| open().next()).map(|(id, _)| id)
}

impl DeliveryView {
    /// The best channel: voice first, then any other that is not an agent; never a muted one
    ///
    #[must_use]
    pub fn preferred_channel(&self) -> Option<&Channel> {
        let open = || {
            self.channels
                .iter()
                .filter(|channel| !channel.muted && channel.kind != ChannelKind::Agent)
        };
        open().find(|channel| channel.kind == ChannelKind::Voice).or_else(|| open().next())
    }
}

/// The state of a result's delivery. It is separate from the task's state: the task has ended,
/// whether or not its delivery succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryState {
    /// The task has not ended, or there is no task to notify.
    #[default]
    None,
    /// Waiting for its strategy.
    Waiting,
    /// Sent to gates, a channel or an agent's turn, whose answer is open.
    Delivering,
    /// A channel, or the notified agent's turn, accepted it.
    Delivered,
    /// In the inbox, for the agent's next turn.
    Inbox,
    /// The agent has read it in a turn of its own.
    Read,
    /// Blocked by a gate or a closed room.
    Blocked,
    /// Not retried any more; it waits in the inbox.
    DeadLetter,
}

/// The record of a delivery (R-109, R-115 done right).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRecord {
    pub state: DeliveryState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PluginName>,
    /// The channel that accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// The number of attempts.
    #[serde(default)]
    pub attempts: u32,
    /// The reason for a state other than success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A text for a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutgoingMessage {
    pub channel: ChannelId,
    pub text: String,
    /// Whether to interrupt the channel's current output.
    #[serde(default)]
    pub interrupt: bool,
    /// The idempotency key, the same for every attempt. A channel that accepted it before accepts
    /// it again without output.
    #[serde(default)]
    pub key: String,
    /// The results that it is about; empty for a message of a responder in the room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<BackgroundId>,
}
