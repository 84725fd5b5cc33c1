//! The plan as text for people and models, and quotes of a model's text in error messages.

use crate::types::action::PlanState;

use super::PlanTask;
use super::place::{PlanPath, each};

/// One line for each task, the root's first; each level is indented by four spaces (O-065).
pub(super) fn show(root: &PlanTask) -> String {
    let mut text = line(&PlanPath::default(), root);
    each(root, &mut |place, task| {
        text.push_str(&line(place, task));
        true
    });
    text
}

fn line(place: &PlanPath, task: &PlanTask) -> String {
    format!("{}{} {place} {}\n", "    ".repeat(place.depth()), mark(task.state), task.goal)
}

fn mark(state: PlanState) -> &'static str {
    match state {
        PlanState::Open => "🔵",
        PlanState::InProgress => "💪",
        PlanState::Completed => "🟢",
        PlanState::Verified => "✅",
        PlanState::Abandoned => "❌",
    }
}

/// The beginning of a text, in quotes and on one line.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let start: String = text.chars().take(SHOWN).collect();
    if start.len() < text.len() { format!("{start:?}…") } else { format!("{start:?}") }
}
