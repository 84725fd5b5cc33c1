//! The forms in which cases write events, actions and an agent's answers.

use conclave_core::trajectory::{Action, Era, TrajectoryEvent};
use conclave_runtime::action::Action as Acted;
use conclave_runtime::native::IntoTurn;
use serde_json::{Map, Value, json};

use super::stage::{Move, nothing, turn};

/// Returns the agent's move for an entry of a script.
pub(super) fn made(entry: &Value) -> Result<Move, String> {
    let word = entry.as_str().unwrap_or_default().to_ascii_lowercase();
    if let Some(raised) =
        ["raises", "raise", "exception", "malformed", "error"].iter().find_map(|key| entry.get(key))
    {
        return Ok(Move::Fails(raised.as_str().unwrap_or("malformed").to_owned()));
    }
    if word.contains("malformed") || word.starts_with("raise") || word == "crashes" {
        return Ok(Move::Fails(word));
    }
    Ok(Move::Turn(match entry {
        Value::Null => nothing(),
        _ if word.contains("nothing") || word == "none" => nothing(),
        entry if entry.get("null").is_some() || word == "null" => Acted::Null.into_turn(),
        entry => turn(&action(entry)?)?,
    }))
}

/// Returns an action in its fixed form. A case writes the whole form, `{"run": "ls"}`, `{"finish":
/// {…}}`, or a text, which is a message.
fn action(entry: &Value) -> Result<Value, String> {
    Ok(match entry {
        Value::String(text) if matches!(text.as_str(), "finish" | "reject") => {
            json!({ "action": text, "args": {} })
        }
        Value::String(text) => match text.strip_prefix("run ") {
            Some(command) => json!({ "action": "run", "args": { "command": command } }),
            None => json!({ "action": "message", "args": { "content": text } }),
        },
        Value::Object(fields) if fields.contains_key("action") => completed(entry),
        Value::Object(fields) => {
            let is_kind = |name: &&String| {
                Action::kind_in(name, Era::V2024) || Action::kind_in(name, Era::V2025)
            };
            let kind =
                fields.keys().find(is_kind).ok_or_else(|| format!("{entry} is no action"))?;
            let key = match kind.as_str() {
                "run" => "command",
                "run_ipython" => "code",
                "read" | "write" | "edit" => "path",
                "browse" => "url",
                "kill" => "command_id",
                "recall" => "query",
                "message" => "content",
                _ => "thought",
            };
            let mut args = match &fields[kind] {
                Value::Object(args) => args.clone(),
                Value::Bool(_) | Value::Null => Map::new(),
                one => Map::from_iter([(key.to_owned(), one.clone())]),
            };
            args.extend(
                fields
                    .iter()
                    .filter(|(name, _)| *name != kind)
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
            json!({ "action": kind, "args": args })
        }
        other => return Err(format!("{other} is no action")),
    })
}

/// Returns an event, which a case may write without the required fields of its kind.
pub(super) fn event(given: &Value) -> Result<TrajectoryEvent, String> {
    let form = completed(given);
    TrajectoryEvent::from_json_of(&form, Era::V2025).map_err(|error| format!("{form}: {error}"))
}

/// Adds the required arguments of the kind if there are no arguments.
fn completed(given: &Value) -> Value {
    let mut form = given.clone();
    let word = |key: &str| given.get(key).and_then(Value::as_str);
    let (group, needed) = match (word("action"), word("observation")) {
        (Some(kind), _) => (
            "args",
            match kind {
                "message" | "system" => json!({ "content": "" }),
                "run" => json!({ "command": "ls" }),
                "run_ipython" => json!({ "code": "1" }),
                "read" | "edit" | "write" => json!({ "path": "p" }),
                "browse" => json!({ "url": "u" }),
                "browse_interactive" => json!({ "browser_actions": "noop()" }),
                "delegate" => json!({ "agent": "Agent", "inputs": {} }),
                "change_agent_state" => json!({ "agent_state": "running" }),
                "recall" => json!({ "query": "q", "recall_type": "knowledge" }),
                "condensation" => json!({ "forgotten_event_ids": [] }),
                "call_tool_mcp" => json!({ "name": "n" }),
                "loop_recovery" => json!({ "option": 1 }),
                _ => json!({}),
            },
        ),
        (None, Some(kind)) => (
            "extras",
            match kind {
                "run" => json!({ "command": "ls", "command_id": -1 }),
                "run_ipython" => json!({ "code": "1" }),
                "read" | "write" => json!({ "path": "p" }),
                "edit" => {
                    json!({ "path": "p", "prev_exist": true, "old_content": "", "new_content": "" })
                }
                "browse" => json!({ "url": "u", "screenshot": "", "trigger_by_action": "browse" }),
                "delegate" => json!({ "outputs": {} }),
                "agent_state_changed" => json!({ "agent_state": "running" }),
                "recall" => json!({ "recall_type": "knowledge" }),
                "mcp" => json!({ "name": "n", "arguments": {} }),
                _ => json!({}),
            },
        ),
        (None, None) => return form,
    };
    if form.get("observation").is_some() && form.get("content").is_none() {
        form["content"] = json!("");
    }
    for (key, value) in needed.as_object().into_iter().flatten() {
        let has_all = form.get(group).is_some_and(|fields| fields.get(key).is_some());
        if !has_all {
            form[group][key] = value.clone();
        }
    }
    form
}
