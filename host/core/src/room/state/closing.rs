//! The end of an activation, before and while a judge and gates decide on its result.

use serde::{Deserialize, Serialize};

use super::gated::PassageKind;
use crate::policy::budget::Budget;
use crate::types::ids::TaskName;
use crate::types::message::Message;
use crate::types::outcome::{EndCause, Status};

/// The status, reason and cause with which a frame ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct FrameEnd {
    pub status: Status,
    pub reason: String,
    pub cause: Option<EndCause>,
    /// Whether the reason quotes a plugin. Where gates check what leaves the task, such a reason
    /// stays in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quotes_plugin: bool,
}

impl FrameEnd {
    pub(in crate::room) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), cause: None, quotes_plugin: false }
    }

    /// The end of a task that a plugin's fault has caused, with the plugin's words.
    pub(in crate::room) fn of_fault(reason: impl Into<String>) -> Self {
        Self { quotes_plugin: true, ..Self::new(Status::Error, reason) }
    }

    /// The end of a task that asked its user while no user is present.
    pub(in crate::room) fn unattended(task: &TaskName) -> Self {
        let reason = format!("{task} asked its user, and nobody is there to answer");
        Self { cause: Some(EndCause::NobodyToAsk), ..Self::new(Status::Stalled, reason) }
    }

    /// The end of a room whose wall time is over. A background task has only one deadline, its own
    /// or the rest of the run, so the reason names both.
    pub(in crate::room) fn out_of_time(is_background: bool) -> Self {
        let reason = if is_background {
            "it took longer than its deadline, or the time of its run, allows"
        } else {
            Budget::Wall.reason()
        };
        Self { cause: Some(EndCause::WallTime), ..Self::new(Budget::Wall.status(), reason) }
    }
}

/// The end of an activation, with the result that a judge or gates decide on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Closing {
    pub ending: FrameEnd,
    /// As the caller reads it.
    pub result: Message,
    /// The ways out whose gates let it pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<PassageKind>,
}
