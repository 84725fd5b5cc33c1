//! The plan of an agent: a tree of tasks with states (O-057…O-067). Pure; the room holds one for
//! each activation. Does not decide who may change it, nor how a model learns of a refusal.

mod place;
mod size;
#[cfg(test)]
mod tests;
mod text;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::types::action::PlanState;

use place::PlanPath;
use size::PlanSize;

pub use size::{MAX_BYTES, MAX_DEPTH, MAX_GOAL_BYTES, MAX_TASKS};

/// The reason why a change of the plan was refused, for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An unknown task, a malformed id, or more than a plan may hold.
    #[error("{0}")]
    Malformed(String),
    /// An unknown state.
    #[error("{0}")]
    InvalidState(String),
}

/// A task of the plan, with the tasks below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTask {
    pub goal: String,
    pub state: PlanState,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subtasks: Vec<PlanTask>,
}

impl PlanTask {
    fn open(goal: String, subtasks: Vec<Self>) -> Self {
        Self { goal, state: PlanState::Open, subtasks }
    }

    /// Whether no work is left on it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        is_closed(self.state)
    }

    /// Sets a state; one that closes applies to every task below that is not abandoned (O-061).
    fn close(&mut self, state: PlanState) {
        self.state = state;
        self.subtasks
            .iter_mut()
            .filter(|task| task.state != PlanState::Abandoned)
            .for_each(|task| task.close(state));
    }

    fn child_in_progress(&self) -> Option<(usize, &Self)> {
        self.subtasks.iter().enumerate().find(|(_, task)| task.state == PlanState::InProgress)
    }
}

/// The tree; its root is not a task of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    root: PlanTask,
    #[serde(default)]
    size: PlanSize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { root: PlanTask::open(String::new(), Vec::new()), size: PlanSize::default() }
    }
}

impl Plan {
    /// Adds a task below `parent` (empty: the root) and returns its id (O-057, O-059). `subtasks`
    /// is a list of `{goal, subtasks}`, or null. Every new task is open, even if a nested one names
    /// another state (O-058).
    ///
    /// # Errors
    /// `Malformed` if the parent is unknown, if `subtasks` is no such list, or if the plan would
    /// exceed its limits.
    pub fn add(&mut self, parent: &str, goal: &str, subtasks: &Value) -> Result<String, PlanError> {
        let mut place = PlanPath::find(&self.root, parent)?;
        let mut size = self.size;
        let task = size.read(goal, subtasks, place.depth() + 1)?;
        self.size = size;
        let siblings = &mut place.in_mut(&mut self.root).subtasks;
        siblings.push(task);
        let index = siblings.len() - 1;
        if self.root.is_closed() {
            // C-060: the new task is open work, so the root must not stay closed.
            self.root.state = PlanState::Open;
        }
        place.push(index);
        Ok(place.to_string())
    }

    /// Sets the state of a task (empty id: of the root), with its consequences (O-060…O-062).
    ///
    /// # Errors
    /// `Malformed` if the task is unknown.
    pub fn set(&mut self, id: &str, state: PlanState) -> Result<(), PlanError> {
        if self.is_empty() {
            return Err(place::unknown(&self.root, id));
        }
        let place = PlanPath::find(&self.root, id)?;
        match state {
            PlanState::Completed | PlanState::Abandoned | PlanState::Verified => {
                place.in_mut(&mut self.root).close(state)
            }
            PlanState::InProgress => place.climb(&mut self.root),
            PlanState::Open => place.in_mut(&mut self.root).state = state,
        }
        self.settle();
        Ok(())
    }

    /// Sets the state with this word, as [`Plan::set`].
    ///
    /// # Errors
    /// Those of `set`, and `InvalidState` for an unknown state (O-060); an unknown task takes
    /// precedence.
    pub fn set_named(&mut self, id: &str, state: &str) -> Result<(), PlanError> {
        match parse_state(state) {
            Some(state) => self.set(id, state),
            None => {
                PlanPath::find(&self.root, id)?;
                let state = text::quoted(state);
                Err(PlanError::InvalidState(format!(
                    "{state} is no state of a task: open, in_progress, completed, verified or abandoned"
                )))
            }
        }
    }

    /// The current task, the deepest one in progress (O-064). The root's id is empty.
    #[must_use]
    pub fn current(&self) -> Option<(String, &PlanTask)> {
        let (mut place, mut task) = (PlanPath::default(), &self.root);
        while let Some((index, child)) = task.child_in_progress() {
            place.push(index);
            task = child;
        }
        (task.state == PlanState::InProgress).then(|| (place.to_string(), task))
    }

    /// Whether the root is closed: a planner is then done (O-066).
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.root.is_closed()
    }

    /// The root's state.
    #[must_use]
    pub fn state(&self) -> PlanState {
        self.root.state
    }

    /// The task with this id; the empty one is the root's.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&PlanTask> {
        PlanPath::find(&self.root, id).ok().map(|place| place.in_ref(&self.root))
    }

    /// The number of tasks without the root.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size.tasks()
    }

    /// Whether there is no task yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.subtasks.is_empty()
    }

    /// The ids of all tasks, parents before children.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        place::each(&self.root, &mut |place, _| {
            ids.push(place.to_string());
            true
        });
        ids
    }

    /// The plan in the form of rule O-065.
    #[must_use]
    pub fn to_json(&self) -> Value {
        form(&self.root, &mut PlanPath::default())
    }

    /// The plan for people and models: a line for each task, the root's first, with a mark for its
    /// state (O-065).
    #[must_use]
    pub fn to_text(&self) -> String {
        text::show(&self.root)
    }

    /// Closes or opens the root. O-062: it is closed exactly while every top-level task is, and no
    /// task changes with it.
    fn settle(&mut self) {
        let is_through = self.root.subtasks.iter().all(PlanTask::is_closed);
        if is_through && !self.root.is_closed() {
            self.root.state = PlanState::Completed;
        } else if !is_through && self.root.is_closed() {
            let is_under_way = self.root.child_in_progress().is_some();
            self.root.state = if is_under_way { PlanState::InProgress } else { PlanState::Open };
        }
    }
}

fn is_closed(state: PlanState) -> bool {
    matches!(state, PlanState::Completed | PlanState::Verified | PlanState::Abandoned)
}

fn parse_state(state: &str) -> Option<PlanState> {
    Some(match state {
        "open" => PlanState::Open,
        "in_progress" => PlanState::InProgress,
        "completed" => PlanState::Completed,
        "verified" => PlanState::Verified,
        "abandoned" => PlanState::Abandoned,
        _ => return None,
    })
}

fn form(task: &PlanTask, place: &mut PlanPath) -> Value {
    let mut subtasks = Vec::with_capacity(task.subtasks.len());
    for (index, child) in task.subtasks.iter().enumerate() {
        place.push(index);
        subtasks.push(form(child, place));
        place.pop();
    }
    json!({ "id": place.to_string(), "goal": task.goal, "state": task.state, "subtasks": subtasks })
}
