//! The plan as the host returns it, and the selection of the next task. Pure: without models or the
//! host.

use conclave_sdk::PlanState;
use serde::Deserialize;

/// A task of the plan; the root contains those at the top.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Task {
    /// Empty for the root.
    pub(crate) id: String,
    pub(crate) goal: String,
    state: String,
    #[serde(default)]
    pub(crate) subtasks: Vec<Task>,
}

/// A planner's next action.
#[derive(Debug, PartialEq)]
pub(crate) enum Next<'a> {
    /// Make a plan, since there is none.
    Plan,
    /// Change a task's state, because it begins or all tasks below it are done.
    Set(&'a str, PlanState),
    /// Work on this task, which is in progress and has no open tasks below it.
    Work(&'a Task),
    /// O-066: the plan is complete, so the planner finishes.
    Finish,
}

impl Task {
    /// Depth first: the parts of a task come before the task that follows it.
    pub(crate) fn next(&self) -> Next<'_> {
        if self.subtasks.is_empty() {
            return Next::Plan;
        }
        // The root completes itself when no task at the top is left, so its own state is not
        // checked.
        self.subtasks.iter().find_map(Self::next_below).unwrap_or(Next::Finish)
    }

    fn next_below(&self) -> Option<Next<'_>> {
        if self.is_over() {
            return None;
        }
        let own = || match (self.subtasks.is_empty(), self.state.as_str()) {
            (false, _) => Next::Set(&self.id, PlanState::Completed),
            (true, "in_progress") => Next::Work(self),
            (true, _) => Next::Set(&self.id, PlanState::InProgress),
        };
        Some(self.subtasks.iter().find_map(Self::next_below).unwrap_or_else(own))
    }

    fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "verified" | "abandoned")
    }

    /// The tasks below, depth first.
    pub(crate) fn below(&self) -> Vec<&Self> {
        self.subtasks.iter().flat_map(|task| std::iter::once(task).chain(task.below())).collect()
    }

    /// The text for a model: one line for each task, indented by its depth.
    pub(crate) fn to_text(&self) -> String {
        let line = |task: &Self| {
            format!(
                "{}{} [{}] {}",
                "  ".repeat(task.id.matches('.').count()),
                task.id,
                task.state,
                task.goal
            )
        };
        self.below().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use conclave_sdk::PlanState;
    use serde_json::{Value, json};

    use super::{Next, Task};

    fn task(id: &str, state: &str, subtasks: &[Value]) -> Value {
        json!({ "id": id, "goal": format!("goal {id}"), "state": state, "subtasks": subtasks })
    }

    fn plan(tasks: &[Value]) -> Task {
        serde_json::from_value(task("", "open", tasks)).unwrap()
    }

    #[test]
    fn parts_come_before_what_follows() {
        let cases = [
            (vec![], "plan"),
            (vec![task("0", "open", &[]), task("1", "open", &[])], "0 in-progress"),
            (vec![task("0", "in_progress", &[])], "work 0"),
            (vec![task("0", "open", &[task("0.0", "open", &[])])], "0.0 in-progress"),
            (
                vec![task(
                    "0",
                    "in_progress",
                    &[task("0.0", "completed", &[]), task("0.1", "open", &[])],
                )],
                "0.1 in-progress",
            ),
            (
                vec![task(
                    "0",
                    "in_progress",
                    &[task("0.0", "completed", &[]), task("0.1", "abandoned", &[])],
                )],
                "0 completed",
            ),
            (
                vec![
                    task("0", "verified", &[]),
                    task("1", "in_progress", &[task("1.0", "in_progress", &[])]),
                ],
                "work 1.0",
            ),
            // Tasks below a closed one are ignored.
            (vec![task("0", "abandoned", &[task("0.0", "open", &[])])], "finish"),
        ];
        for (tasks, expected) in cases {
            let plan = plan(&tasks);
            let next = match plan.next() {
                Next::Plan => "plan".to_owned(),
                Next::Set(id, PlanState::InProgress) => format!("{id} in-progress"),
                Next::Set(id, PlanState::Completed) => format!("{id} completed"),
                Next::Set(id, state) => format!("{id} {state:?}"),
                Next::Work(task) => format!("work {}", task.id),
                Next::Finish => "finish".to_owned(),
            };
            assert_eq!(next, expected, "{tasks:?}");
        }
    }

    #[test]
    fn three_levels_are_worked_through_to_the_end() {
        let mut plan = plan(&[task(
            "0",
            "open",
            &[task("0.0", "open", &[task("0.0.0", "open", &[])]), task("0.1", "open", &[])],
        )]);
        let mut done = Vec::new();
        for _ in 0..20 {
            let (id, state) = match plan.next() {
                Next::Set(id, PlanState::InProgress) => (id.to_owned(), "in_progress"),
                Next::Set(id, _) => (id.to_owned(), "completed"),
                Next::Work(task) => (task.id.clone(), "completed"),
                Next::Plan | Next::Finish => break,
            };
            if state == "completed" {
                done.push(id.clone());
            }
            set(&mut plan, &id, state);
        }
        assert_eq!(done, ["0.0.0", "0.0", "0.1", "0"]);
        assert_eq!(plan.next(), Next::Finish);
    }

    fn set(task: &mut Task, id: &str, state: &str) {
        if task.id == id {
            task.state = state.to_owned();
        }
        task.subtasks.iter_mut().for_each(|task| set(task, id, state));
    }

    #[test]
    fn a_model_sees_what_belongs_to_what() {
        let plan = plan(&[
            task("0", "in_progress", &[task("0.0", "completed", &[])]),
            task("1", "open", &[]),
        ]);
        assert_eq!(
            plan.to_text(),
            "0 [in_progress] goal 0\n  0.0 [completed] goal 0.0\n1 [open] goal 1"
        );
    }
}
