//! Who holds a room's conversation, and how it came to that: a handoff moves the conversation to
//! another task, while a delegation copies work out of it. Types only; what may be is
//! decided in `room/handoff.rs`.

use serde::{Deserialize, Serialize};

use crate::types::ids::{Millis, TaskName};

/// Handoffs that are kept; older ones are in the journal.
pub const HISTORY_MAX: usize = 50;
/// The phase of a conversation that was handed over without a word for it.
pub const PHASE: &str = "handling";

/// Where the conversation of a room is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffState {
    /// Empty before the first handoff.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The task that it was handed to; none: nobody handed it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<TaskName>,
    /// The task that held it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<TaskName>,
    /// Handoffs so far.
    pub count: u64,
    /// The newest ones, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Handoff>,
}

/// One handoff, as whoever handed over wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    pub at: Millis,
    pub from: TaskName,
    /// None: to the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TaskName>,
    pub phase: String,
    pub reason: String,
    pub summary: String,
    /// The channel that it says the user should go on with; the host moves nobody there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_escalation: Option<String>,
}
