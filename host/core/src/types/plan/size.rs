//! The size of a plan, and the parser for new tasks. Bounded, because a model writes them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PlanError, PlanTask};

/// The limit of levels below the root.
pub const MAX_DEPTH: usize = 32;
/// The limit of tasks in one plan.
pub const MAX_TASKS: usize = 10_000;
/// The limit of one goal in bytes.
pub const MAX_GOAL_BYTES: usize = 64 * 1024;
/// The limit of all goals together in bytes: every step of an agent may read all of them.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The size of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanSize {
    tasks: usize,
    bytes: usize,
}

impl PlanSize {
    pub(super) fn tasks(&self) -> usize {
        self.tasks
    }

    /// Reads a new task with those below it, `depth` levels below the root, and adds it to the
    /// size.
    pub(super) fn read(
        &mut self,
        goal: &str,
        subtasks: &Value,
        depth: usize,
    ) -> Result<PlanTask, PlanError> {
        self.count(goal, depth)?;
        let specs = match subtasks {
            Value::Null => &[][..],
            Value::Array(specs) => specs.as_slice(),
            other => {
                return Err(malformed(format!(
                    "subtasks is a list of {{goal, subtasks}}, not {}",
                    kind(other)
                )));
            }
        };
        let mut below = Vec::with_capacity(specs.len());
        for spec in specs {
            let Value::Object(spec) = spec else {
                return Err(malformed(format!(
                    "a subtask is an object {{goal, subtasks}}, not {}",
                    kind(spec)
                )));
            };
            let Some(goal) = spec.get("goal").and_then(Value::as_str) else {
                return Err(malformed("a subtask needs a goal, which is a text".to_owned()));
            };
            below.push(self.read(goal, spec.get("subtasks").unwrap_or(&Value::Null), depth + 1)?);
        }
        Ok(PlanTask::open(goal.to_owned(), below))
    }

    fn count(&mut self, goal: &str, depth: usize) -> Result<(), PlanError> {
        self.tasks += 1;
        self.bytes += goal.len();
        let too_large = if depth > MAX_DEPTH {
            format!(
                "tasks may be at most {MAX_DEPTH} levels deep: put the rest on a level above, or into the goal"
            )
        } else if goal.len() > MAX_GOAL_BYTES {
            format!(
                "a goal has at most {MAX_GOAL_BYTES} bytes, and this one has {}: say it shorter",
                goal.len()
            )
        } else if self.tasks > MAX_TASKS {
            format!("a plan has at most {MAX_TASKS} tasks: make them larger")
        } else if self.bytes > MAX_BYTES {
            format!("all goals of a plan together have at most {MAX_BYTES} bytes: say them shorter")
        } else {
            return Ok(());
        };
        Err(malformed(too_large))
    }
}

fn malformed(why: String) -> PlanError {
    PlanError::Malformed(why)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
