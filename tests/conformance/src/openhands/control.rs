//! An agent, its loop, and the limits of a run. The agent follows the case's script. The report is
//! that of the host and of `conclave trajectory export`.

use conclave_core::trajectory::Era;
use serde_json::{Value, json};

use super::Case;
use super::forms::made;
use super::stage::{Move, Seen, Stage, Told};
use super::wording::plain;

/// Returns the wire form of a case's log.
pub(super) fn era(case: &Case<'_>) -> Era {
    case.wire()
}

/// Returns executors with more answers than any case needs.
pub(super) fn executors() -> Vec<(String, Vec<Told>)> {
    ["run", "run_ipython", "read", "write", "browse"]
        .into_iter()
        .map(|name| (name.to_owned(), Vec::new()))
        .collect()
}

pub(super) async fn controller(case: &Case<'_>) -> Result<Value, String> {
    let script: Vec<Value> = match case.any(&["script", "agent"]) {
        Some(Value::Array(entries)) => entries.clone(),
        Some(entry) => vec![entry.clone()],
        None => Vec::new(),
    };
    let (mut moves, mut user) = (Vec::new(), Vec::new());
    if case.get("state").is_some_and(|state| state == "awaiting_user_input") {
        moves.push(made(&json!({ "message": "What now?", "wait_for_response": true }))?);
        user.extend(
            case.get("event")
                .and_then(|event| event.get("user_message")?.as_str())
                .map(str::to_owned),
        );
    }
    for entry in &script {
        moves.push(made(entry)?);
    }
    let turns = case
        .any(&["max_iterations", "max_iteration", "iterations_max", "max"])
        .and_then(Value::as_u64);
    let more = turns.map(|turns| format!("[limits.run]\nturns = {turns}\n")).unwrap_or_default();
    let seen = Stage { tools: executors(), user, more, ..Stage::of(moves) }.play().await?;
    shown(case, &seen)
}

fn shown(case: &Case<'_>, seen: &Seen) -> Result<Value, String> {
    let part = seen.part()?;
    let log = seen.log(era(case));
    let history = pairs(&log);
    let is_told =
        |event: &&Value| event["observation"] == "error" || event["observation"] == "delegate";
    let observation = log.iter().rev().find(is_told).map(worded).unwrap_or_default();
    let published: Vec<&Value> = log
        .iter()
        .filter(|event| event["source"] == "agent")
        .map(|event| &event["action"])
        .collect();
    let published: Vec<&Value> = published.into_iter().filter(|action| !action.is_null()).collect();
    let outcome = part.outcome.as_ref();
    let is_success = outcome.is_some_and(|outcome| outcome.status.is_success());
    Ok(json!({
        "agent_steps": part.played, "state": seen.state.as_str(), "states": seen.states(), "published": published,
        "error": outcome.filter(|_| !is_success).map(|outcome| plain(&outcome.reason)).unwrap_or_default(),
        "outputs": outcome.and_then(|outcome| outcome.value.clone()), "history": history, "observation": observation,
        "iteration": seen.recorded_steps(),
    }))
}

/// Returns an event of a log with its sentences as tokens.
pub(super) fn worded(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(content) = event.get("content").and_then(Value::as_str).map(plain) {
        event["content"] = json!(content);
    }
    event
}

/// Returns the actions of a log except the first message, each with its observation.
pub(super) fn pairs(log: &[Value]) -> Vec<Value> {
    let actions = log.iter().skip(1).filter(|event| event.get("action").is_some());
    let answer = |action: &Value| {
        log.iter().find(|event| {
            event.get("observation").is_some() && event.get("cause") == action.get("id")
        })
    };
    actions
        .map(|action| {
            json!([
                action["action"],
                answer(action)
                    .map_or("null", |event| event["observation"].as_str().unwrap_or("null"))
            ])
        })
        .collect()
}

/// Plays steps until a limit of the run applies. A refused step is the reference's error.
pub(super) async fn limit(case: &Case<'_>) -> Result<Value, String> {
    let init = case.get("init").cloned().unwrap_or_default();
    let max = init
        .get("max_value")
        .and_then(Value::as_u64)
        .ok_or("init has no max_value, a whole number")?;
    let steps = case.list("ops")?.len();
    let say = |at: usize| made(&json!(format!("step {at}")));
    let moves = (0..steps).map(say).collect::<Result<Vec<Move>, String>>()?;
    let more = format!("[limits.run]\nturns = {max}\n");
    let seen = Stage { more, ..Stage::of(moves) }.play().await?;
    let part = seen.part()?;
    let reason = part.outcome.as_ref().map(|outcome| plain(&outcome.reason)).unwrap_or_default();
    let result =
        |at: usize| if at < part.played { json!("ok") } else { json!({ "error": reason }) };
    Ok(json!({
        "results": (0..steps).map(result).collect::<Vec<_>>(), "current": seen.recorded_steps(), "max": seen.most_turns(),
    }))
}
