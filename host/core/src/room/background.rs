//! Background tasks: whether one may start, with how much of the run's budget, in which child room,
//! and how it ends, once (R-020… …R-089). `delivery` decides about its result. The host
//! runs the child room.
//!
//! `checks` refuses delegations, `delegating` turns one into a child room, `opening` builds the
//! child's opening. `ending` handles ends, `records` holds the record of each task, `slots` answers
//! waiting calls. `asking` and `closing` serve queries and stops.

mod asking;
pub(super) mod checks;
pub(super) mod closing;
mod delegating;
mod ending;
mod opening;
mod records;
mod running;
pub(super) mod slots;
mod structured;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::approvals::Consent;
use crate::types::delegation::{Delegation, OnClose, ResultForm};
use crate::types::ids::{BackgroundId, CallId, FrameId, Millis, PluginName, TaskName};
use crate::types::message::ToolCall;
use crate::types::request::RequestId;
use crate::types::usage::{Spent, UsedByPlugin};
use running::RunningTasks;

pub(super) use records::TaskRecords;

/// The background tasks of a room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Background {
    pub(super) tasks: RunningTasks,
    /// Records of background tasks, ended ones included, and the earlier delegations.
    #[serde(default, skip_serializing_if = "TaskRecords::is_new")]
    pub(super) records: TaskRecords,
}

/// A background task that runs, or that was stopped and has not reported its use yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BackgroundTask {
    id: BackgroundId,
    /// The pending call that it runs as.
    call: CallId,
    task: TaskName,
    prompt: String,
    context: Value,
    /// The plugin whose grant it counts against; `None` for the program's own request.
    started_by: Option<PluginName>,
    /// The task that is notified of the result.
    notify: TaskName,
    strategy: Option<PluginName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    host_reports: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result_delivery: Option<ResultForm>,
    #[serde(default)]
    on_close: OnClose,
    started: Millis,
    /// Amounts reserved for it.
    reserved: Spent,
    /// Number of background tasks that it may itself run at once.
    #[serde(default)]
    at_once: u32,
    /// Use of each plugin when it started.
    inherited: UsedByPlugin,
    /// The slot that its result answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiter: Option<Waiter>,
    /// True if its result has the fixed form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    structured: bool,
    /// Number of automatic answers that led to it.
    #[serde(default)]
    chain_depth: u32,
    /// Number of messages sent to it.
    #[serde(default, rename = "told")]
    messages_sent: u64,
    /// True if it has ended, but has not reported its use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stopped: bool,
}

/// A waiting slot of a round. The message number distinguishes the round from others of the same
/// frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) frame: FrameId,
    pub(super) slot: usize,
    /// Number of the message that the round answers.
    pub(super) seq: u64,
}

/// The answer of a delegation to its slot.
#[must_use]
pub(super) struct DelegationAnswer {
    answer: Value,
    is_error: bool,
    /// True for a worker's text.
    is_data: bool,
}

/// A delegation in progress, with its origin and its request for consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Delegating {
    pub(super) delegation: Delegation,
    pub(super) origin: TaskOrigin,
    /// The request for the task's rules of consent, which follow the gates; `None` for a request
    /// from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wish: Option<Box<RequestedDelegation>>,
}

/// A delegation as its agent requested it, for the rules of consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestedDelegation {
    pub(super) call: ToolCall,
    /// `None` for a call of a host tool.
    pub(super) action: Option<Delegation>,
    /// The consent that it has so far, for the arguments in `call`.
    #[serde(rename = "asked")]
    pub(super) consent: Consent,
}

/// The origin of a background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum TaskOrigin {
    /// A call or an action in a round of this frame.
    Slot { frame: FrameId, slot: usize, seq: u64 },
    /// A client outside the room, on behalf of a task or its own.
    Request { request: RequestId, by: Option<TaskName> },
}

impl Background {
    /// Whether the background task is running and belongs to this task.
    pub(super) fn is_task_of(&self, id: &BackgroundId, task: &TaskName) -> bool {
        self.tasks.get(id).is_some_and(|running| running.task == *task && !running.is_stopped)
    }
}
