//! The end of tasks and runs: the checks after each step, the result for the caller, and the hard
//! stops (L-080…L-090).

mod done;
mod ending;
mod result;
mod stopping;

use serde::{Deserialize, Serialize};

use crate::policy::budget::Budget;
use crate::types::ids::TaskName;
use crate::types::outcome::{EndCause, Status};

pub(super) use done::calls_in;
pub(super) use result::{failed_instead, has_answer};

/// The status, reason and cause with which a frame ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FrameEnd {
    pub(super) status: Status,
    pub(super) reason: String,
    pub(super) cause: Option<EndCause>,
    /// Whether the reason quotes a plugin. Where gates check what leaves the task, such a reason
    /// stays in the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) quotes_plugin: bool,
}

impl FrameEnd {
    pub(super) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), cause: None, quotes_plugin: false }
    }

    /// The end of a task that a plugin's fault has caused, with the plugin's words.
    pub(super) fn of_fault(reason: impl Into<String>) -> Self {
        Self { quotes_plugin: true, ..Self::new(Status::Error, reason) }
    }

    /// The end of a task that asked its user while no user is present.
    pub(super) fn unattended(task: &TaskName) -> Self {
        let reason = format!("{task} asked its user, and nobody is there to answer");
        Self { cause: Some(EndCause::NobodyToAsk), ..Self::new(Status::Stalled, reason) }
    }

    /// The end of a room whose wall time is over. A background task has only one deadline, its own
    /// or the rest of the run, so the reason names both.
    pub(super) fn out_of_time(is_background: bool) -> Self {
        let reason = if is_background {
            "it took longer than its deadline, or the time of its run, allows"
        } else {
            Budget::Wall.reason()
        };
        Self { cause: Some(EndCause::WallTime), ..Self::new(Budget::Wall.status(), reason) }
    }
}
