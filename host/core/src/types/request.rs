//! What somebody outside asks of a room while it is open: a person's message on a channel, a task,
//! a close. Each request gets one reply, once the journal holds what came of it. Types only;
//! `room/requests.rs` leads each to its place.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::channel::{Activity, Binding};
use crate::types::delegation::Delegation;
use crate::types::delivery::DeliveryRecord;
use crate::types::ids::{BackgroundId, ChannelId, RoomId, TaskName};
use crate::types::message::Blob;

/// Tells requests of one host apart; the reply carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl RequestId {
    /// The id of a request whose sender waits for no reply.
    pub const NO_REPLY: Self = Self(u64::MAX);
}

/// Something that came in on a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inbound {
    pub channel: ChannelId,
    /// Who said it, in the channel's own words; empty when the channel does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sender: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Blob>,
    /// A second message with the same key is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many automatic answers led here.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// The task that is to answer; none: the one whose turn it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TaskName>,
}

impl Inbound {
    /// A message of nobody in particular.
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
        }
    }
}

/// Something to be told in a room that nobody there asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    pub content: String,
    /// None: the best transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// The task whose agent takes a turn about it; none: it is said as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressed_to: Option<TaskName>,
    /// A second one with the same key is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub chain_depth: u32,
    /// Stop what the channel is saying.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interrupt: bool,
}

/// What is asked of a room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum RoomRequest {
    /// Reply: `Accepted`.
    Inbound { inbound: Inbound },
    /// A channel's client says what it is doing. Reply: `Done`.
    Activity { channel: ChannelId, activity: Activity },
    /// Attaches a channel, changes its binding, or, with none, detaches it. Reply: `Done`.
    Bind { channel: ChannelId, binding: Option<Binding> },
    /// `by`: on whose behalf, whose agent's grants then count; none: the program's own. Reply:
    /// `Delegated`.
    Delegate {
        delegation: Box<Delegation>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<TaskName>,
    },
    /// Reply: `Cancelled`.
    CancelTask { task: BackgroundId, reason: String },
    /// Says something to a task that runs; its agent reads it in its next step. Reply: `Done`.
    TellTask { task: BackgroundId, text: String },
    /// Reply: `Delivery`.
    Deliver { announcement: Announcement },
    /// The room takes nothing new; what becomes of its tasks is each one's `on_close`. Reply:
    /// `Done`.
    Close { reason: String },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum RequestReply {
    Accepted {
        /// Its number in the room's timeline, without gaps.
        index: u64,
        /// It came before; this is the number of the first.
        duplicate: bool,
    },
    Delegated {
        task: BackgroundId,
        room: RoomId,
        agent: TaskName,
        /// It was delegated before, and has its result: the receipt of then.
        from_cache: bool,
    },
    /// False: it was unknown, or had ended.
    Cancelled {
        cancelled: bool,
    },
    Delivery {
        record: DeliveryRecord,
        duplicate: bool,
    },
    Done,
}

/// Why a request, or a delegation of an agent, came to nothing: a word for programs, a sentence for
/// people and models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub error: RefusalCode,
    pub message: String,
    /// What would have been right, where that can be listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
}

/// The word of a refusal.
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
    ChainDepth,
    Blocked,
    Busy,
}

impl Refusal {
    /// A refusal without a list of what is right.
    #[must_use]
    pub fn new(error: RefusalCode, message: impl Into<String>) -> Self {
        Self { error, message: message.into(), allowed: Vec::new() }
    }

    /// As the structured answer of a tool.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
