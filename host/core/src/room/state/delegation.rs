//! A delegation, from its request to the background task that carries it out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::consent::Consent;
use crate::types::delegation::{Delegation, OnClose, ResultForm};
use crate::types::ids::{BackgroundId, CallId, FrameId, Millis, PluginName, TaskName};
use crate::types::message::ToolCall;
use crate::types::request::RequestId;
use crate::types::usage::{Spent, UsedByPlugin};

/// A waiting slot of a round. The message number distinguishes the round from others of the same
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) struct Waiter {
    pub frame: FrameId,
    pub slot: usize,
    /// Number of the message that the round answers.
    pub seq: u64,
}

/// The answer of a delegation to its slot.
#[must_use]
pub(in crate::room) struct DelegationAnswer {
    pub answer: Value,
    pub is_error: bool,
    /// True for a worker's text.
    pub is_data: bool,
}

/// A delegation in progress, with its origin and its request for consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Delegating {
    pub delegation: Delegation,
    pub origin: TaskOrigin,
    /// The request for the task's rules of consent, which follow the gates; `None` for a request
    /// from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<Box<RequestedDelegation>>,
}

/// A delegation as its agent requested it, for the rules of consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct RequestedDelegation {
    pub call: ToolCall,
    /// `None` for a call of a host tool.
    pub action: Option<Delegation>,
    /// The consent that it has so far, for the arguments in `call`.
    #[serde(rename = "asked")]
    pub consent: Consent,
}

/// The origin of a background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum TaskOrigin {
    /// A call or an action in a round of this frame.
    Slot { frame: FrameId, slot: usize, seq: u64 },
    /// A client outside the room, on behalf of a task or its own.
    Request { request: RequestId, by: Option<TaskName> },
}

/// A background task that runs, or that was stopped and has not reported its use yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct BackgroundTask {
    pub id: BackgroundId,
    /// The pending call that it runs as.
    pub call: CallId,
    pub task: TaskName,
    pub prompt: String,
    pub context: Value,
    /// The plugin whose grant it counts against; `None` for the program's own request.
    pub started_by: Option<PluginName>,
    /// The task that is notified of the result.
    pub notify: TaskName,
    pub strategy: Option<PluginName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_reports: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_delivery: Option<ResultForm>,
    #[serde(default)]
    pub on_close: OnClose,
    pub started: Millis,
    /// Amounts reserved for it.
    pub reserved: Spent,
    /// Number of background tasks that it may itself run at once.
    #[serde(default)]
    pub at_once: u32,
    /// Use of each plugin when it started.
    pub inherited: UsedByPlugin,
    /// The slot that its result answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter: Option<Waiter>,
    /// True if its result has the fixed form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub structured: bool,
    /// Number of automatic answers that led to it.
    #[serde(default)]
    pub chain_depth: u32,
    /// Number of messages sent to it.
    #[serde(default, rename = "told")]
    pub messages_sent: u64,
    /// True if it has ended, but has not reported its use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}
