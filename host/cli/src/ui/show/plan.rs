//! Agents' plans: the whole tree with the marks of its states (O-065), and a one-line summary of
//! the progress.

use serde_json::Value;

use super::one_line;

/// Characters of a goal in a summary.
const GOAL: usize = 60;
/// Characters of a goal in the tree.
const GOAL_CHARS: usize = 200;
/// The mark of each state (O-065).
const MARKS: [(&str, &str); 5] = [
    ("open", "🔵"),
    ("in_progress", "💪"),
    ("completed", "🟢"),
    ("verified", "✅"),
    ("abandoned", "❌"),
];

/// A line for each task, in the form of rule O-065. The root has none, since it is not a task.
pub(crate) fn tree(plan: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    each(plan, &mut |task, depth| {
        let mark = MARKS
            .iter()
            .find(|(state, _)| *state == text(task, "state"))
            .map_or("?", |(_, mark)| mark);
        lines.push(format!(
            "{}{mark} {} {}",
            "    ".repeat(depth),
            one_line(text(task, "id"), GOAL),
            one_line(text(task, "goal"), GOAL_CHARS)
        ));
    });
    lines
}

/// A summary: `plan: 2 of 5 done; now 0.1 Find out when it was lit`.
pub(crate) fn summary(plan: &Value) -> String {
    let (mut all, mut done_count, mut current) = (0, 0, None);
    each(plan, &mut |task, _| {
        all += 1;
        done_count +=
            usize::from(matches!(text(task, "state"), "completed" | "verified" | "abandoned"));
        if text(task, "state") == "in_progress" {
            // The tasks above it are in progress too, so the last one found is the current one.
            current = Some(format!(
                "{} {}",
                one_line(text(task, "id"), GOAL),
                one_line(text(task, "goal"), GOAL)
            ));
        }
    });
    let now = current.map(|current| format!("; now {current}")).unwrap_or_default();
    format!("plan: {done_count} of {all} done{now}")
}

fn text<'a>(task: &'a Value, key: &str) -> &'a str {
    task.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Visits every task below the root, in order. A plan's depth was limited when it was made.
fn each<'a>(plan: &'a Value, visit: &mut impl FnMut(&'a Value, usize)) {
    let below = |task: &'a Value| {
        task.get("subtasks")
            .and_then(Value::as_array)
            .map(|tasks| tasks.iter().rev())
            .into_iter()
            .flatten()
    };
    let mut open: Vec<(&Value, usize)> = below(plan).map(|task| (task, 0)).collect();
    while let Some((task, depth)) = open.pop() {
        visit(task, depth);
        open.extend(below(task).map(|task| (task, depth + 1)));
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::action::PlanState;
    use conclave_core::types::plan::Plan;
    use serde_json::json;

    use super::*;

    fn plan() -> Value {
        let mut plan = Plan::default();
        plan.add("", "Find it", &json!([{ "goal": "look\u{1b}[2J", "subtasks": [] }, { "goal": "read", "subtasks": [] }])).unwrap();
        plan.add("", "Say it", &json!(null)).unwrap();
        plan.set("0.0", PlanState::Completed).unwrap();
        plan.set("0.1", PlanState::InProgress).unwrap();
        plan.to_json()
    }

    #[test]
    fn the_tree_has_a_mark_for_each_state() {
        assert_eq!(
            tree(&plan()),
            ["💪 0 Find it", "    🟢 0.0 look\\u{1b}[2J", "    💪 0.1 read", "🔵 1 Say it"]
        );
        assert!(tree(&Plan::default().to_json()).is_empty());
    }

    #[test]
    fn a_line_says_how_far_it_has_come() {
        assert_eq!(summary(&plan()), "plan: 1 of 4 done; now 0.1 read");
        assert_eq!(summary(&Plan::default().to_json()), "plan: 0 of 0 done");
    }
}
