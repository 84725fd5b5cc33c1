//! What a channel's plugin is asked, and what it answers: one attempt at a message, and the reading
//! of a request.

use serde::{Deserialize, Serialize};

use crate::types::ids::RoomId;

/// A message for a channel's plugin to deliver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelMessage {
    /// The id, which all attempts have.
    pub id: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The address of the conversation in the service; `None` for a message of another room.
    pub conversation: Option<String>,
    pub room: RoomId,
    pub text: String,
}

/// What is known of a message after an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "delivery", rename_all = "kebab-case")]
pub enum ChannelDelivery {
    /// The service has it, under an id of its own.
    Delivered { remote_id: Option<String> },
    /// The service does not have it, and may accept it later.
    Retry { after_ms: Option<u64>, reason: String },
    /// The service does not have it, and will not accept it.
    Refused { reason: String },
    /// The service may have it.
    Unknown { reason: String },
}

/// A request for a channel's plugin to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelRequest {
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub query: String,
    pub body: Vec<u8>,
    /// The time of its arrival, in milliseconds since 1970.
    pub time: u64,
}

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reception", rename_all = "kebab-case")]
pub enum ChannelReception {
    Messages {
        messages: Vec<ReceivedMessage>,
    },
    /// The service wants this answer.
    Answer {
        is_json: bool,
        body: String,
    },
    /// It does not come from the service.
    Refused {
        reason: String,
    },
}

impl ChannelReception {
    /// The messages of one request.
    pub const MESSAGES_MAX: usize = 32;
    /// The bytes of an answer.
    pub const ANSWER_MAX: usize = 4 << 10;
}

/// A message that someone wrote elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedMessage {
    /// The id in the service.
    pub id: String,
    /// The sender's id in the service.
    pub sender: String,
    /// The address of the conversation in the service.
    pub conversation: String,
    pub text: String,
}

impl ReceivedMessage {
    /// The bytes of an id, a sender and an address.
    pub const NAME_MAX: usize = 100;
    /// The bytes of a text.
    pub const TEXT_MAX: usize = 64 << 10;

    /// Whether a text can be an id, a sender or an address: it stands in keys and names of the host.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        !text.is_empty()
            && text.len() <= Self::NAME_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic())
    }
}
