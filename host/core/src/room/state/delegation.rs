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
    pub(in crate::room) frame: FrameId,
    pub(in crate::room) slot: usize,
    /// Number of the message that the round answers.
    pub(in crate::room) seq: u64,
}

/// The answer of a delegation to its slot.
#[must_use]
pub(in crate::room) struct DelegationAnswer {
    pub(in crate::room) answer: Value,
    pub(in crate::room) is_error: bool,
    /// True for a worker's text.
    pub(in crate::room) is_data: bool,
}

/// A delegation in progress, with its origin and its request for consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Delegating {
    pub(in crate::room) delegation: Delegation,
    pub(in crate::room) origin: TaskOrigin,
    /// The request for the task's rules of consent, which follow the gates; `None` for a request
    /// from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) wish: Option<Box<RequestedDelegation>>,
}

/// A delegation as its agent requested it, for the rules of consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct RequestedDelegation {
    pub(in crate::room) call: ToolCall,
    /// `None` for a call of a host tool.
    pub(in crate::room) action: Option<Delegation>,
    /// The consent that it has so far, for the arguments in `call`.
    #[serde(rename = "asked")]
    pub(in crate::room) consent: Consent,
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
    pub(in crate::room) id: BackgroundId,
    /// The pending call that it runs as.
    pub(in crate::room) call: CallId,
    pub(in crate::room) task: TaskName,
    pub(in crate::room) prompt: String,
    pub(in crate::room) context: Value,
    /// The plugin whose grant it counts against; `None` for the program's own request.
    pub(in crate::room) started_by: Option<PluginName>,
    /// The task that is notified of the result.
    pub(in crate::room) notify: TaskName,
    pub(in crate::room) strategy: Option<PluginName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::room) host_reports: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) result_delivery: Option<ResultForm>,
    #[serde(default)]
    pub(in crate::room) on_close: OnClose,
    pub(in crate::room) started: Millis,
    /// Amounts reserved for it.
    pub(in crate::room) reserved: Spent,
    /// Number of background tasks that it may itself run at once.
    #[serde(default)]
    pub(in crate::room) at_once: u32,
    /// Use of each plugin when it started.
    pub(in crate::room) inherited: UsedByPlugin,
    /// The slot that its result answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) waiter: Option<Waiter>,
    /// True if its result has the fixed form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::room) structured: bool,
    /// Number of automatic answers that led to it.
    #[serde(default)]
    pub(in crate::room) chain_depth: u32,
    /// Number of messages sent to it.
    #[serde(default, rename = "told")]
    pub(in crate::room) messages_sent: u64,
    /// True if it has ended, but has not reported its use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::room) is_stopped: bool,
}
