//! Requests to an open room from outside: a channel message, a delegation, a close. Each request
//! gets one reply, after its consequences are durable. Types only; `room/requests.rs` dispatches
//! them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::channel::{Activity, Binding};
use crate::types::delegation::Delegation;
use crate::types::delivery::DeliveryRecord;
use crate::types::ids::{BackgroundId, ChannelId, PluginName, RoomId, TaskName};
use crate::types::message::Blob;
use crate::types::observed::ObservedEvent;

/// The id of a request within one host; the reply carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The id of a request whose sender needs no reply.
    pub const NO_REPLY: Self = Self(u64::MAX);
}

/// Bytes of an idempotency key; a room remembers thousands of them.
pub(crate) const KEY_MAX: usize = 256;

/// Checks the length of an idempotency key.
///
/// # Errors
/// `BadArguments`, with the limit.
pub(crate) fn check_key(key: Option<&String>, owner: &str) -> Result<(), Refusal> {
    match key {
        Some(key) if key.is_empty() || key.len() > KEY_MAX => Err(Refusal::new(
            RefusalCode::BadArguments,
            format!("{owner}'s key has 1 to {KEY_MAX} bytes"),
        )),
        _ => Ok(()),
    }
}

/// A message from a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    pub channel: ChannelId,
    /// The sender in the channel's own words; empty if the channel names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sender: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// The idempotency key: a second message with the same key returns the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of automatic answers that led here.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// The task that should answer; `None` for the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TaskName>,
    /// The reason why the room's principal may spend no more. The room then refuses the message, and
    /// its journal says so; one that repeats an accepted message is none that spends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<String>,
}

impl Inbound {
    /// Returns a message without a sender.
    #[must_use]
    pub fn new(channel: impl Into<ChannelId>, text: impl Into<String>) -> Self {
        Self {
            channel: channel.into(),
            sender: String::new(),
            text: text.into(),
            attachments: Vec::new(),
            key: None,
            chain_depth: 0,
            to: None,
            over_budget: None,
        }
    }
}

impl Inbound {
    /// The bytes of its texts and of the names of its attachments.
    pub(crate) fn weight(&self) -> usize {
        let attachments = self.attachments.iter().map(Blob::weight).sum::<usize>();
        self.sender.len() + self.text.len() + attachments
    }
}

/// A text from outside to be delivered in a room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    pub content: String,
    /// The channel; `None` for the preferred channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// The task whose agent reads it in a turn of its own; `None` to send the text unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressed_to: Option<TaskName>,
    /// The idempotency key: a second announcement with the same key returns the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// Whether to interrupt the channel's current output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interrupt: bool,
}

/// A request to a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum RoomRequest {
    /// Adds a message from a channel. Reply: `Accepted`.
    Inbound { inbound: Inbound },
    /// Reports a channel's current activity, on behalf of its client. Reply: `Done`.
    Activity { channel: ChannelId, activity: Activity },
    /// Attaches a channel, changes its binding, or, with `None`, detaches it. Reply: `Done`.
    Bind { channel: ChannelId, binding: Option<Binding> },
    /// Starts a background task, with the grants of the agent of the task `by`; `None` for the
    /// program itself. Reply: `Delegated`.
    Delegate {
        delegation: Box<Delegation>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<TaskName>,
    },
    /// Cancels a background task. Reply: `Cancelled`.
    CancelTask { task: BackgroundId, reason: String },
    /// Sends a text to a running task; its agent reads it in its next step. Reply: `Done`.
    TellTask { task: BackgroundId, text: String },
    /// Delivers the result of a background task again that is a dead letter or waits in the inbox,
    /// under the same key. Reply: `Done`.
    Redeliver { task: BackgroundId },
    /// Delivers an announcement. Reply: `Delivery`.
    Deliver { announcement: Announcement },
    /// Hands events to an observer of the room's config: all of one room, in order. Those that it
    /// took before are left out. Reply: `Done` after it took them.
    Observe { observer: PluginName, events: Arc<Vec<ObservedEvent>> },
    /// Closes the room for new requests; `on_close` decides about each of its tasks. Reply: `Done`.
    Close { reason: String },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum RequestReply {
    Accepted {
        /// The message's number in the room's timeline, without gaps.
        index: u64,
        /// Whether it is a duplicate; `index` is then that of the first.
        duplicate: bool,
    },
    Delegated {
        task: BackgroundId,
        room: RoomId,
        worker: TaskName,
        /// Whether the result is that of an earlier equal delegation; the other fields are then
        /// those of that delegation.
        from_cache: bool,
    },
    /// `false` if the task was unknown, or had ended.
    Cancelled {
        cancelled: bool,
    },
    Delivery {
        record: DeliveryRecord,
        duplicate: bool,
    },
    Done,
}

/// A refused request or delegation: a code for programs, a sentence for people and models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: RefusalCode,
    pub message: String,
    /// The valid values, if they can be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// The code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    RoomNotFound,
    RoomClosed,
    UnknownAgent,
    NotGranted,
    EmptyTask,
    BadArguments,
    LimitReached,
    UnknownChannel,
    ChannelNotShared,
    UnknownTask,
    TaskEnded,
    NoAccess,
    RateLimited,
    /// The principal may spend no more today.
    BudgetUsedUp,
    ChainDepth,
    Blocked,
    /// The key belongs to another message.
    KeyReused,
    Busy,
    ObserverStopped,
}

impl Refusal {
    /// Returns a refusal without a list of valid values.
    #[must_use]
    pub fn new(error: RefusalCode, message: impl Into<String>) -> Self {
        Self { error, message: message.into(), allowed: Vec::new() }
    }

    /// The refusal as the structured answer of a tool.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
