//! Positions of tasks in the plan. An id is the numbers on the path from the root to a task, joined
//! by dots (O-057).

use std::fmt;

use crate::types::action::PlanState;

use super::text::quoted;
use super::{PlanError, PlanTask};

/// The number of ids in an error text.
const SHOWN_IDS: usize = 20;

/// The path from the root to a task; empty for the root. It is made by a look-up, so its task
/// exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanPath(Vec<usize>);

impl PlanPath {
    /// Returns the path of the task with this id (O-059).
    pub(super) fn find(root: &PlanTask, id: &str) -> Result<Self, PlanError> {
        let mut place = Self::default();
        if id.is_empty() {
            return Ok(place);
        }
        let mut task = root;
        for part in id.split('.') {
            let Some((index, child)) =
                exact(part).and_then(|index| Some((index, task.subtasks.get(index)?)))
            else {
                return Err(unknown(root, id));
            };
            place.push(index);
            task = child;
        }
        Ok(place)
    }

    pub(super) fn depth(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, index: usize) {
        self.0.push(index);
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    pub(super) fn in_ref<'a>(&self, root: &'a PlanTask) -> &'a PlanTask {
        self.0.iter().fold(root, |task, index| task.subtasks.get(*index).unwrap_or(task))
    }

    pub(super) fn in_mut<'a>(&self, root: &'a mut PlanTask) -> &'a mut PlanTask {
        let mut task = root;
        for index in &self.0 {
            task = task.subtasks.get_mut(*index).expect("a place is made by looking its task up");
        }
        task
    }

    /// Sets the task and everything above it to `in_progress` (O-061).
    pub(super) fn climb(&self, root: &mut PlanTask) {
        let mut task = root;
        task.state = PlanState::InProgress;
        for index in &self.0 {
            task = task.subtasks.get_mut(*index).expect("a place is made by looking its task up");
            task.state = PlanState::InProgress;
        }
    }
}

impl fmt::Display for PlanPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, index) in self.0.iter().enumerate() {
            if at > 0 {
                out.write_str(".")?;
            }
            write!(out, "{index}")?;
        }
        Ok(())
    }
}

/// Parses digits and nothing else, as ids are written: one task has one id.
fn exact(part: &str) -> Option<usize> {
    let is_written_so =
        part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    if is_written_so { part.parse().ok() } else { None }
}

/// Calls `on` with the path of each task below, parents before children, until it returns false.
pub(super) fn each(root: &PlanTask, on: &mut impl FnMut(&PlanPath, &PlanTask) -> bool) {
    fn below(
        task: &PlanTask,
        place: &mut PlanPath,
        on: &mut impl FnMut(&PlanPath, &PlanTask) -> bool,
    ) -> bool {
        task.subtasks.iter().enumerate().all(|(index, child)| {
            place.push(index);
            let goes_on = on(place, child) && below(child, place, on);
            place.pop();
            goes_on
        })
    }
    below(root, &mut PlanPath::default(), on);
}

/// The error for an unknown id, which lists the existing ones.
pub(super) fn unknown(root: &PlanTask, id: &str) -> PlanError {
    if root.subtasks.is_empty() {
        return PlanError::Malformed(format!(
            "there is no task {} in the plan: it has no tasks yet. Add one first, with the empty parent \"\"",
            quoted(id)
        ));
    }
    let (mut ids, mut is_all) = (Vec::new(), true);
    each(root, &mut |place, _| {
        is_all = ids.len() < SHOWN_IDS;
        if is_all {
            ids.push(place.to_string());
        }
        is_all
    });
    let more = if is_all { "" } else { ", …" };
    PlanError::Malformed(format!(
        "there is no task {} in the plan. Its tasks are: {}{more}",
        quoted(id),
        ids.join(", ")
    ))
}
