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
pub(super) mod slots;
mod structured;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::state::running_tasks::RunningTasks;
use crate::types::ids::{BackgroundId, TaskName};

pub(super) use records::TaskRecords;

/// The background tasks of a room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Background {
    pub(super) tasks: RunningTasks,
    /// Records of background tasks, ended ones included, and the earlier delegations.
    #[serde(default, skip_serializing_if = "TaskRecords::is_new")]
    pub(super) records: TaskRecords,
}

impl Background {
    /// Whether the background task is running and belongs to this task.
    pub(super) fn is_task_of(&self, id: &BackgroundId, task: &TaskName) -> bool {
        self.tasks.get(id).is_some_and(|running| running.task == *task && !running.is_stopped)
    }
}
