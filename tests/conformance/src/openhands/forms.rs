//! The ways in which cases write events, actions and what an agent answers.

use conclave_core::control::controller::{Answer, Profile};
use conclave_core::trajectory::{Action, Event, Source};
use serde_json::{Map, Value, json};

/// An event with its fields beside its name.
pub(super) fn flat(event: &Event, profile: Profile) -> Value {
    let mut form = event.to_json(profile.era());
    let fields: Map<String, Value> = form.get("extras").and_then(Value::as_object).cloned().unwrap_or_default();
    for (key, value) in fields {
        if form.get(&key).is_none() {
            form[key] = value;
        }
    }
    form
}

pub(super) fn user_message(said: &str) -> Event {
    let message = Action::Message(conclave_core::trajectory::action::Message { content: said.to_owned(), ..Default::default() });
    Event::from(message).from_source(Source::User)
}

/// What an agent answers, of an entry of a script.
pub(super) fn answer(entry: &Value, profile: Profile) -> Result<Answer, String> {
    let word = entry.as_str().unwrap_or_default().to_ascii_lowercase();
    let raised = ["raises", "raise", "exception", "malformed", "error"]
        .iter()
        .find_map(|key| entry.get(key))
        .map(|text| text.as_str().unwrap_or("malformed"));
    Ok(match raised {
        Some(text) => error(text),
        None if entry.is_null() || word.contains("nothing") || word == "none" => Answer::Nothing,
        None if word.contains("malformed") || word.starts_with("raise") || word == "crashes" => {
            let text = entry.as_str().unwrap_or_default();
            error(text.split_once(' ').filter(|(first, _)| first.to_ascii_lowercase().starts_with("raise")).map_or(text, |(_, rest)| rest))
        }
        None if word.contains("context") || word.contains("too long") => Answer::TooLong,
        None => Answer::Action(Box::new(action(entry, profile)?)),
    })
}

/// What an agent raises: `NAME: text`, `NAME('text')` or a text alone. What the reference's loop does not catch ends it (O-071, O-072).
fn error(raised: &str) -> Answer {
    let (name, text) = raised.split_once(": ").or_else(|| raised.trim_end_matches(')').split_once('(')).unwrap_or((raised, raised));
    let is_soft = ["malformed", "noaction", "response", "validation", "notexists"].iter().any(|word| {
        let name = name.to_ascii_lowercase();
        name.contains(word)
    });
    let is_named = name.ends_with("Error") || name.ends_with("Exception") || matches!(name, "raises" | "crashes");
    if is_named && !is_soft { Answer::Broke(raised.to_owned()) } else { Answer::Malformed(text.trim_matches(['\'', '"']).to_owned()) }
}

/// An action, in one of the ways that cases write one: its whole form, `{"run": "ls"}`, `{"finish": {…}}`, or a text, which is said.
pub(super) fn action(entry: &Value, profile: Profile) -> Result<Action, String> {
    let form = match entry {
        Value::String(text) if matches!(text.as_str(), "finish" | "reject" | "null") => json!({ "action": text, "args": {} }),
        Value::String(text) => match text.strip_prefix("run ") {
            Some(command) => json!({ "action": "run", "args": { "command": command } }),
            None => json!({ "action": "message", "args": { "content": text } }),
        },
        Value::Object(fields) if fields.contains_key("action") => completed(entry),
        Value::Object(fields) => {
            let (kind, given) = fields.iter().next().ok_or("an action has a name")?;
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
            let mut args = match given {
                Value::Object(args) => args.clone(),
                Value::Bool(_) | Value::Null => Map::new(),
                one => Map::from_iter([(key.to_owned(), one.clone())]),
            };
            args.extend(fields.iter().filter(|(name, _)| *name != kind).map(|(name, value)| (name.clone(), value.clone())));
            let form = json!({ "action": kind, "args": args });
            // The first key by name need not be the action's.
            let named = |name: &str| Action::kind_in(name, profile.era());
            match fields.keys().find(|name| named(name)) {
                Some(name) if name != kind => return action(&reordered(fields, name), profile),
                _ => form,
            }
        }
        other => return Err(format!("{other} is no action")),
    };
    let event = Event::from_json_of(&form, profile.era()).map_err(|error| format!("{form}: {error}"))?;
    event.action().cloned().ok_or_else(|| format!("{entry} is no action"))
}

fn reordered(fields: &Map<String, Value>, name: &str) -> Value {
    let key = match name {
        "message" => "content",
        "run" => "command",
        _ => "thought",
    };
    let mut args = fields.clone();
    let args = match args.remove(name) {
        Some(Value::Object(mut inner)) => {
            inner.extend(args);
            inner
        }
        Some(Value::Bool(_) | Value::Null) | None => args,
        Some(one) => {
            args.insert(key.to_owned(), one);
            args
        }
    };
    json!({ "action": name, "args": args })
}

/// An event, whole or short: `{"user_message": "hi"}`, or without what its kind needs.
pub(super) fn event(given: &Value, profile: Profile) -> Result<Event, String> {
    if let Some(said) = given.get("user_message").and_then(Value::as_str) {
        return Ok(user_message(said));
    }
    let form = completed(given);
    Event::from_json_of(&form, profile.era()).map_err(|error| format!("{form}: {error}"))
}

/// With the arguments that its kind needs, where it has none.
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
                "edit" => json!({ "path": "p", "prev_exist": true, "old_content": "", "new_content": "" }),
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
