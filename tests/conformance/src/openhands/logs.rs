//! Log cases: the contents of a log, its replay, and the output of `conclave trajectory show` for a
//! log of the SDK. That output covers the causes of an event, problems of the tree, and unanswered
//! actions.

use conclave_core::trajectory::{
    self, Filter, Loaded, Replay, Source, TrajectoryEvent, tree_of, unmatched_events,
};
use conclave_core::types::triggers;
use serde_json::{Value, json};

use super::Case;

/// Returns a log of the SDK with these events, read as `conclave trajectory show` reads it.
fn loaded(events: &[Value]) -> Result<Loaded, String> {
    let loaded = trajectory::load(&Value::from(events).to_string());
    let problems: Vec<String> =
        loaded.problems.iter().map(|problem| format!("{}: {}", problem.at, problem.text)).collect();
    if problems.is_empty() { Ok(loaded) } else { Err(problems.join("; ")) }
}

pub(super) fn unmatched(case: &Case<'_>) -> Result<Value, String> {
    let event = |given: &Value| {
        let of = |key: &str| given.get(key).cloned().unwrap_or_else(|| json!("none"));
        let answer = |kind: &str| json!({ "kind": kind, "id": of("id"), "action_id": of("action"), "tool_name": "t", "tool_call_id": of("call") });
        Ok(match given.get("ev").and_then(Value::as_str).unwrap_or_default() {
            "action" => {
                // An action that failed validation is absent.
                let action = if given.get("executable") == Some(&json!(false)) {
                    Value::Null
                } else {
                    json!({})
                };
                json!({ "kind": "ActionEvent", "id": of("id"), "thought": [], "action": action, "tool_name": "t", "tool_call_id": of("call"),
                    "tool_call": {}, "llm_response_id": "r" })
            }
            "observation" => {
                let mut answer = answer("ObservationEvent");
                answer["observation"] = json!({});
                answer
            }
            "reject" => answer("UserRejectObservation"),
            "agent_error" => {
                json!({ "kind": "AgentErrorEvent", "id": of("id"), "error": "e", "tool_name": "t", "tool_call_id": of("call") })
            }
            other => return Err(format!("a log of this kind has no {other:?}")),
        })
    };
    let events = case.list("events")?.iter().map(event).collect::<Result<Vec<Value>, String>>()?;
    let loaded = loaded(&events)?;
    let pending: Vec<Option<&str>> =
        unmatched_events(&loaded.sdk).into_iter().map(|event| event.id.as_deref()).collect();
    Ok(json!({ "pending": pending }))
}

pub(super) fn event_tree(case: &Case<'_>) -> Result<Value, String> {
    let given = case
        .any(&["append", "inject_corrupt"])
        .and_then(Value::as_array)
        .ok_or("`in` has neither append nor inject_corrupt")?;
    let event = |event: &Value| {
        let parent = event.get("parent").or_else(|| event.get("parent_id"));
        json!({ "kind": "PauseEvent", "id": event["id"], "parent_id": parent })
    };
    let loaded = loaded(&given.iter().map(event).collect::<Vec<_>>())?;
    let (tree, wrong) = tree_of(&loaded.sdk);
    if let Some((_, error)) = wrong.first().filter(|_| case.get("append").is_some()) {
        return Ok(json!({ "error": error.name() }));
    }
    Ok(match tree.path_to_root(case.get("path_to_root").and_then(Value::as_str)) {
        Ok(path) => {
            json!({ "path": path.iter().map(|at| loaded.sdk[*at].id.as_deref()).collect::<Vec<_>>() })
        }
        Err(error) => json!({ "error": error.name() }),
    })
}

pub(super) fn search(case: &Case<'_>) -> Result<Value, String> {
    let mut events = Vec::new();
    for (id, op) in (0..).zip(case.list("ops")?) {
        let given = op.get(1).unwrap_or(&Value::Null);
        let read = TrajectoryEvent::from_json_of(given, trajectory::Era::V2025)
            .map_err(|error| format!("{given}: {error}"))?;
        let read =
            read.from_source(Source::from(op.get(2).and_then(Value::as_str).unwrap_or("agent")));
        events.push(TrajectoryEvent { id: Some(id), ..read });
    }
    let words = |keys: &[&str]| -> Vec<String> {
        case.any(keys)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let word = |keys: &[&str]| case.any(keys).and_then(Value::as_str).map(str::to_owned);
    let number = |keys: &[&str]| case.any(keys).and_then(Value::as_i64);
    let filter = Filter {
        include_types: words(&["types", "include_types", "types_in"]),
        exclude_types: words(&["exclude_types", "not_types", "types_out"]),
        source: word(&["source"]),
        start_date: word(&["start_date"]),
        end_date: word(&["end_date"]),
        exclude_hidden: case.flag("exclude_hidden"),
        query: word(&["query"]),
        start_id: number(&["start_id", "start"]),
        end_id: number(&["end_id", "end"]),
        reverse: case.flag("reverse"),
        // A limit of 0 returns no event and a negative one returns one event: the reference checks
        // the limit after each event.
        limit: number(&["limit"])
            .and_then(|limit| usize::try_from(limit.max(-1).unsigned_abs()).ok()),
    };
    let found = trajectory::search(&events, &filter);
    let content = |event: &&TrajectoryEvent| {
        event.observation().map(|observation| observation.content().to_owned())
    };
    let ids: Vec<Option<i64>> = found.iter().map(|event| event.id).collect();
    Ok(
        json!({ "ids": ids, "contents": found.iter().map(content).collect::<Vec<_>>(), "count": found.len() }),
    )
}

/// Plays the function with which the room looks for triggers (`room/knowledge.rs`).
pub(super) fn micro(case: &Case<'_>) -> Result<Value, String> {
    let words: Vec<&str> = match case.text("trigger") {
        Ok(word) => vec![word],
        Err(_) => case.list("triggers")?.iter().filter_map(Value::as_str).collect(),
    };
    let found = triggers::first(words, case.text("message")?);
    Ok(json!({ "trigger": found }))
}

pub(super) fn replay(case: &Case<'_>) -> Result<Value, String> {
    let mut events = Vec::new();
    let mut said = 0_usize;
    for given in case.list("trajectory")? {
        let mut form = given.clone();
        if let Some(fields) = form.as_object_mut()
            && let Some(waits) = fields.remove("wait_for_response")
        {
            form["args"]["wait_for_response"] = waits;
        }
        // A case may omit the texts. The user's texts are then `first message`, `second message`
        // and so on.
        if given.get("action").and_then(Value::as_str) == Some("message")
            && form["args"].get("content").is_none()
        {
            let is_users = given.get("source").is_some_and(|source| source == "user");
            let ordinal = ["first", "second", "third"].get(said).copied().unwrap_or("further");
            form["args"]["content"] = json!(if is_users {
                format!("{ordinal} message")
            } else {
                "agent's message".to_owned()
            });
            said += usize::from(is_users);
        }
        events.push(super::forms::event(&form)?);
    }
    let replay = Replay::of(&events);
    let waits = |action: &trajectory::Action| matches!(action, trajectory::Action::Message(message) if message.wait_for_response);
    let waiting: Vec<usize> = replay
        .actions
        .iter()
        .enumerate()
        .filter(|(_, action)| waits(action))
        .map(|(at, _)| at)
        .collect();
    let kinds: Vec<&str> = replay.actions.iter().map(trajectory::Action::kind).collect();
    Ok(json!({ "task": replay.task, "replayed": kinds, "waits": waiting }))
}
