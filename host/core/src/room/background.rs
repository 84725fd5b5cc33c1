//! Background tasks: may one be started, with how much of the run's budget, in which child room,
//! and how it ends, once (R-020… …R-089). What becomes of its result is decided in
//! `delivery`; how the child room is run is the shell's.
//!
//! `delegating` leads what is wanted to a child room, `checks` says why not, `opening` makes what
//! the child begins with. `ending` takes the ends, `records` keeps what is known of each task,
//! `slots` answers whoever waits. `asking` and `closing` are for who stops or asks.

mod asking;
mod checks;
mod closing;
mod delegating;
mod ending;
mod opening;
mod records;
mod slots;
mod structured;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Room;
use super::approvals::Consent;
use crate::types::delegation::{Delegation, HandBack, OnClose};
use crate::types::ids::{BackgroundId, CallId, FrameId, Millis, PluginName, TaskName};
use crate::types::message::ToolCall;
use crate::types::request::RequestId;
use crate::types::usage::{Spent, UsedByPlugin};

pub(super) use records::TaskRecords;

/// A background task that runs, or that was stopped and has not yet said what it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BackgroundTask {
    id: BackgroundId,
    /// What it runs as.
    call: CallId,
    task: TaskName,
    prompt: String,
    context: Value,
    /// The plugin whose grant it counts against; none: the program's own.
    started_by: Option<PluginName>,
    /// The task that is told of the result.
    notify: TaskName,
    strategy: Option<PluginName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hand_back: Option<HandBack>,
    #[serde(default)]
    on_close: OnClose,
    started: Millis,
    /// Set aside for it.
    reserved: Spent,
    /// Tasks that it may have under way at once.
    #[serde(default)]
    at_once: u32,
    /// What plugins had used when it was started.
    inherited: UsedByPlugin,
    /// The slot that its result answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiter: Option<Waiter>,
    /// Its result has the fixed form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    structured: bool,
    /// Automatic answers that led to it.
    #[serde(default)]
    chain_depth: u32,
    /// Messages that it was told.
    #[serde(default)]
    told: u64,
    /// It has its end, and what it used is still to come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_stopped: bool,
}

impl BackgroundTask {
    /// Tasks under way at once that it stands for.
    pub(super) fn at_once(&self) -> u64 {
        u64::from(self.at_once) + 1
    }
}

/// A slot of a round that waits: its number means nothing in another round of the same frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    frame: FrameId,
    slot: usize,
    /// Of the message that the round answers.
    seq: u64,
}

/// A delegation on its way: what is wanted, on whose behalf, and who waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Delegating {
    pub(super) delegation: Delegation,
    pub(super) origin: TaskOrigin,
    /// What the task's rules of consent are asked about once gates have let it pass; none: a
    /// request from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wish: Option<Box<Wish>>,
}

/// A delegation as its agent wants it, for the rules of consent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wish {
    pub(super) call: ToolCall,
    /// None: it is a call of a tool of the host.
    pub(super) action: Option<Delegation>,
    pub(super) asked_by: Option<PluginName>,
    /// What an approver has said of it, as it stands in `call`.
    pub(super) asked: Consent,
}

/// Who asked for a background task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum TaskOrigin {
    /// A call or an action in a round of this frame.
    Slot { frame: FrameId, slot: usize, seq: u64 },
    /// Somebody outside, on behalf of a task or for themselves.
    Request { request: RequestId, by: Option<TaskName> },
}

impl Room {
    /// The background task runs, and is the work of this task.
    pub(super) fn background_is(&self, id: &BackgroundId, task: &TaskName) -> bool {
        self.background.get(id).is_some_and(|running| running.task == *task && !running.is_stopped)
    }
}
