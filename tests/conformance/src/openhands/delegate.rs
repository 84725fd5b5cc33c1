//! A parent and its child, played by the host's own delegation: the end of the child, and its
//! result in the parent.

use conclave_core::trajectory::Era;
use conclave_runtime::action::{Action, Observation};
use conclave_runtime::native::IntoTurn;
use conclave_runtime::notice::Notice;
use serde_json::{Map, Value, json};

use super::Case;
use super::control::worded;
use super::forms::made;
use super::stage::{Move, Stage};

/// The name of the child's task.
const CHILD: &str = "ChildAgent";
/// The number of consecutive faults that end a task.
const FAULTS: usize = 3;

pub(super) async fn play(case: &Case<'_>) -> Result<Value, String> {
    let name = case.any(&["child_name", "agent", "name"]).and_then(Value::as_str).unwrap_or(CHILD);
    let inputs = case.get("inputs").and_then(Value::as_object).cloned();
    let inputs = inputs.unwrap_or_else(|| Map::from_iter([("task".to_owned(), json!("t"))]));
    let steps = case
        .get("child_steps")
        .and_then(Value::as_u64)
        .and_then(|steps| usize::try_from(steps).ok())
        .unwrap_or(1)
        .max(1);
    let how = case.get("child").cloned().unwrap_or_else(|| json!("finish"));
    let mut child = Vec::new();
    for at in 1..steps {
        child.push(made(&json!({ "message": format!("step {at}") }))?);
    }
    match how.as_str() {
        Some("error") => {
            child.extend(vec![Move::Fails("RuntimeError: it broke".to_owned()); FAULTS])
        }
        _ => child.push(made(&how)?),
    }
    let delegation =
        Action::Delegate { agent: name.to_owned(), inputs: Value::Object(inputs) }.into_turn();
    let seen =
        Stage { child: Some((name.to_owned(), child)), ..Stage::of(vec![Move::Turn(delegation)]) }
            .play()
            .await?;
    let child_steps = seen
        .notices()
        .filter(
            |notice| matches!(notice, Notice::StepStarted { task, .. } if task.as_str() == name),
        )
        .count();
    let child_state = seen.notices().filter_map(|notice| match notice {
        Notice::AgentStateChanged { task, state, .. } if task.as_str() == name => {
            Some(state.as_str())
        }
        _ => None,
    });
    let told = seen
        .since
        .last()
        .and_then(|since| since.iter().rev().find_map(|past| past.observation.as_ref()));
    let content = told
        .map(|told| worded(&json!({ "content": heard(&seen.parts, told) }))["content"].clone())
        .unwrap_or_default();
    let mut observation = told.map(|told| told.to_json(Era::V2025)).unwrap_or_default();
    if told.is_some() {
        observation["content"] = content;
    }
    let before = case.get("parent_iteration").and_then(Value::as_u64).unwrap_or_default();
    // The parent takes one step to delegate and one after it. The child's steps count for the
    // child.
    let iteration = before + seen.iterations.len() as u64;
    Ok(json!({
        "parent_state": seen.state.as_str(), "observation": observation,
        "parent_iteration_after": iteration, "child_local_step_at_finish": child_steps, "child_state": child_state.last(),
    }))
}

/// Returns the parent's view of the end: the text of the observation, or the host's sentence on the
/// outputs.
fn heard(parts: &[super::stage::Part], told: &Observation) -> String {
    if !told.content().is_empty() {
        return told.content().to_owned();
    }
    let mut posted =
        parts.iter().flat_map(|part| &part.notices).filter_map(|notice| match notice {
            Notice::MessagePosted { task, message, .. } if task.as_str() == "main" => {
                Some(message.text().to_owned())
            }
            _ => None,
        });
    posted
        .rfind(|text| text.contains("finishes its task") || text.contains("rejects its task"))
        .unwrap_or_default()
}
