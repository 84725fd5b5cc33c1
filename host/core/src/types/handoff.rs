//! The holder of a room's conversation, and its history of handoffs. A handoff moves the
//! conversation to another task, while a delegation copies work out of it. Types only;
//! `room/handoff.rs` decides about handoffs.

use serde::{Deserialize, Serialize};

use crate::types::ids::{Millis, TaskName};

/// The number of handoffs kept; older ones are in the journal.
pub const HISTORY_MAX: usize = 50;
/// The phase of a conversation whose handoff names none.
pub const PHASE: &str = "handling";

/// The state of a room's handoffs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandoffState {
    /// The phase; empty before the first handoff.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The task that got the conversation; `None` if there was no handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<TaskName>,
    /// The task that held it before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<TaskName>,
    /// The number of handoffs so far.
    pub count: u64,
    /// The newest handoffs, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Handoff>,
}

/// One handoff, as the task wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    pub at: Millis,
    pub from: TaskName,
    /// The target; `None` for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<TaskName>,
    pub phase: String,
    pub reason: String,
    pub summary: String,
    /// The channel suggested to the user; the host does not move the conversation there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_escalation: Option<String>,
}
