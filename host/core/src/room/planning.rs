//! Changes of an agent's plan (O-057…O-067). The plan belongs to one activation: a delegated child
//! begins with an empty one (O-088), and so does a task that is called again. The agent reads an
//! invalid change as an error that names the existing tasks; the reference loses it (C-320).

use std::sync::Arc;

use serde_json::Value;

use super::{Frames, RoomContext};
use crate::protocol::notice::Notice;
use crate::tool_calls::truncate;
use crate::types::action::{Action, PlanState};
use crate::types::ids::FrameId;
use crate::types::plan::Plan;

/// The newer form of a plan: a flat list that replaces the whole plan (O-067).
const TASK_TRACKING: &str = "task_tracking";
/// Entries of a flat list. Each may change the state of all, so the cost is quadratic.
const MAX_LISTED: usize = 1_000;
/// A change of a plan that returns the text for its agent.
type Change<'a> = Box<dyn FnOnce(&mut Plan) -> Result<String, String> + 'a>;
/// Bytes of a plan as text, and of a repeated goal, in an observation; the agent reads the whole
/// plan in its view.
const MAX_SHOWN: u64 = 32 << 10;
const MAX_REPEATED: u64 = 200;

/// Changes or shows the plan of a frame's agent; `None` if the action does not concern plans.
pub(super) fn change_plan(
    frames: &mut Frames,
    cx: &mut RoomContext,
    id: FrameId,
    action: &Action,
) -> Option<Result<String, String>> {
    let change: Change<'_> = match action {
        Action::AddTask { parent, goal, subtasks } => {
            Box::new(move |plan: &mut Plan| added(plan, parent, goal, subtasks))
        }
        Action::ModifyTask { task_id, state } => {
            Box::new(move |plan: &mut Plan| modified(plan, task_id, state_word(*state)))
        }
        // Actions that did not fit their type are untyped: an unknown state, or a missing text.
        Action::Custom { name, arguments } if name == "modify_task" => {
            Box::new(move |plan: &mut Plan| {
                modified(plan, text_at(arguments, "task_id")?, text_at(arguments, "state")?)
            })
        }
        Action::Custom { name, arguments } if name == "add_task" => {
            Box::new(move |plan: &mut Plan| {
                let parent = text_at(arguments, "parent").unwrap_or_default();
                added(
                    plan,
                    parent,
                    text_at(arguments, "goal")?,
                    arguments.get("subtasks").unwrap_or(&Value::Null),
                )
            })
        }
        Action::Custom { name, arguments } if name == TASK_TRACKING => match tracked(arguments) {
            Ok(PlanRequest::View) => {
                return frames.get(&id).map(|frame| Ok(plan_text(&frame.acting.plan)));
            }
            Ok(PlanRequest::Replace(list)) => Box::new(move |plan: &mut Plan| {
                *plan = list;
                Ok(format!("The plan has {} tasks now.\n\n{}", plan.len(), plan_text(plan)))
            }),
            Err(wrong) => return Some(Err(wrong)),
        },
        _ => return None,
    };
    let frame = frames.get_mut(&id)?;
    // A refused change leaves the plan unchanged.
    let answer = change(Arc::make_mut(&mut frame.acting.plan));
    if answer.is_err() {
        return Some(answer);
    }
    let (task, plan) = (frame.task.clone(), frame.acting.plan.to_json());
    cx.notify(Notice::PlanChanged { task, plan });
    Some(answer)
}

fn added(plan: &mut Plan, parent: &str, goal: &str, subtasks: &Value) -> Result<String, String> {
    let task = plan.add(parent, goal, subtasks).map_err(|error| error.to_string())?;
    Ok(format!("Added task {task}: {}", truncate::cut(goal, MAX_REPEATED, 1)))
}

fn modified(plan: &mut Plan, id: &str, state: &str) -> Result<String, String> {
    plan.set_named(id, state).map_err(|error| error.to_string())?;
    Ok(format!("Task {id} is {state} now.\n\n{}", plan_text(plan)))
}

fn text_at<'a>(arguments: &'a Value, key: &str) -> Result<&'a str, String> {
    arguments
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("a change of the plan needs `{key}`, which is a text"))
}

fn plan_text(plan: &Plan) -> String {
    if plan.is_empty() {
        return "There is no plan yet.".to_owned();
    }
    truncate::cut(plan.to_text().trim_end(), MAX_SHOWN, 1)
}

fn state_word(state: PlanState) -> &'static str {
    match state {
        PlanState::Open => "open",
        PlanState::InProgress => "in_progress",
        PlanState::Completed => "completed",
        PlanState::Verified => "verified",
        PlanState::Abandoned => "abandoned",
    }
}

/// The request of a `task_tracking`.
enum PlanRequest {
    View,
    Replace(Plan),
}

/// Parses `{command: "plan", task_list: [{title, notes, status}]}` or `{command: "view"}` (O-067).
fn tracked(arguments: &Value) -> Result<PlanRequest, String> {
    match arguments.get("command").and_then(Value::as_str) {
        Some("view") => Ok(PlanRequest::View),
        Some("plan") => {
            // An empty list is most likely a mistake, and would erase the plan.
            let list = arguments
                .get("task_list")
                .and_then(Value::as_array)
                .filter(|list| !list.is_empty());
            let list = list.ok_or(
                "task_tracking: `plan` needs a task_list, a list of {title, notes, status}",
            )?;
            listed(list).map(PlanRequest::Replace)
        }
        _ => Err("task_tracking: the command is `plan`, with a task_list, or `view`".to_owned()),
    }
}

/// Converts a flat list to a plan.
fn listed(list: &[Value]) -> Result<Plan, String> {
    if list.len() > MAX_LISTED {
        return Err(format!(
            "task_tracking: {} tasks, and a list may have {MAX_LISTED}: make them larger",
            list.len()
        ));
    }
    let mut plan = Plan::default();
    let mut states = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let text = |key: &str| {
            entry.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
        };
        let title = text("title").ok_or_else(|| {
            format!("task_tracking: task {at} of the list needs a title, which is a text")
        })?;
        // Notes follow the title, because a task of a plan has one text.
        let goal =
            text("notes").map_or_else(|| title.to_owned(), |notes| format!("{title}: {notes}"));
        let state = match text("status") {
            None | Some("todo") => None,
            Some("in_progress") => Some(PlanState::InProgress),
            Some("done") => Some(PlanState::Completed),
            Some(_) => {
                return Err(format!(
                    "task_tracking: the status of task {at} is not one of todo, in_progress, done"
                ));
            }
        };
        let id =
            plan.add("", &goal, &Value::Null).map_err(|error| format!("task_tracking: {error}"))?;
        states.extend(state.map(|state| (id, state)));
    }
    // Set once all tasks exist, because one state may change others.
    for (id, state) in states {
        plan.set(&id, state).map_err(|error| format!("task_tracking: {error}"))?;
    }
    Ok(plan)
}
