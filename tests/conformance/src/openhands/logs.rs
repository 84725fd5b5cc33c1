//! Logs: what is hidden in them, what is left of them for a model, what is found in them, and how they are stored and played again.

use std::collections::BTreeMap;

use conclave_core::control::triggers;
use conclave_core::trajectory::{self, Event, EventStream, Filter, Redaction, Replay, Source, View};
use serde_json::{Value, json};

use super::Case;

pub(super) fn redact(case: &Case<'_>) -> Result<Value, String> {
    let secrets = case.get("secrets").and_then(Value::as_object).ok_or("`in` has no secrets")?;
    let secrets: Vec<&str> = secrets.values().filter_map(Value::as_str).collect();
    let mut event = case.get("event").cloned().ok_or("`in` has no event")?;
    trajectory::redact(&mut event, &secrets, Redaction::Reference);
    Ok(json!({ "event": event }))
}

pub(super) fn view(case: &Case<'_>) -> Result<Value, String> {
    let mut events = Vec::new();
    for (index, event) in (0..).zip(case.list("events")?) {
        let mut event = Event::from_json_of(event, case.wire()).map_err(|error| format!("{event}: {error}"))?;
        event.id.get_or_insert(index);
        events.push(event);
    }
    let view = View::of(&events);
    let mut got = json!({ "kept": view.kept, "unhandled_request": view.unhandled_request });
    got["summary"] = match (&view.summary, case.expect.get("summary")) {
        (None, _) => Value::Null,
        (Some(summary), Some(Value::Object(expected))) => {
            let all = json!({ "text": summary.text, "content": summary.text, "offset": summary.offset, "at": summary.offset,
                "index": summary.offset, "position": summary.offset });
            let asked = all.as_object().into_iter().flatten().filter(|(key, _)| expected.contains_key(*key));
            Value::Object(asked.map(|(key, value)| (key.clone(), value.clone())).collect())
        }
        (Some(summary), _) => json!(summary.text),
    };
    let offset = view.summary.as_ref().map(|summary| summary.offset);
    for key in ["summary_at", "summary_offset", "summary_index", "summary_position"] {
        got[key] = json!(offset);
    }
    if let (Some(summary), Some(expected)) = (&view.summary, case.expect.get("kept").and_then(Value::as_array)) {
        stand_in(&mut got, expected, summary.offset, &summary.text);
    }
    Ok(got)
}

/// A case that counts the summary among what is kept has something in its place that is no id and may name its text; ours stands there too.
fn stand_in(got: &mut Value, expected: &[Value], offset: usize, text: &str) {
    let is_id = |value: &Value| value.as_i64().is_some_and(|id| id >= 0);
    let Some(kept) = got["kept"].as_array_mut().filter(|kept| offset <= kept.len()) else { return };
    let Some(one) = expected.iter().find(|value| !is_id(value)).filter(|_| expected.len() == kept.len() + 1) else { return };
    let names_another = one.as_str().is_some_and(|word| word != "summary" && !word.ends_with(text))
        || ["summary", "content", "text"].iter().any(|key| one.get(key).is_some_and(|said| said != text));
    kept.insert(offset, if names_another { json!(text) } else { one.clone() });
}

/// Everything that a case adds, in a stream.
struct Streams {
    open: EventStream,
    sid: String,
    /// Those that are closed, as they are stored.
    closed: BTreeMap<String, Vec<(i64, String)>>,
}

impl Streams {
    fn add(&mut self, event: &Value, source: &str) -> Result<i64, String> {
        let read = Event::from_json_of(event, trajectory::Era::V2025).map_err(|error| format!("{event}: {error}"))?;
        self.open.add(read, Source::from(source)).map_err(|_| "already-has-id".to_owned())
    }

    fn stored(&self) -> Vec<(i64, String)> {
        let ids = (0..self.open.next_id()).filter_map(|id| Some((id, self.open.stored(id)?.to_string())));
        ids.collect()
    }

    /// Closes the stream and opens one, as it is stored.
    fn reopen(&mut self, sid: &str) {
        let stored = self.stored();
        self.closed.insert(std::mem::replace(&mut self.sid, sid.to_owned()), stored);
        let stored = self.closed.get(sid).cloned().unwrap_or_default();
        self.open = EventStream::load(stored.iter().map(|(id, text)| (*id, text.as_str()))).0;
    }
}

pub(super) fn stream(case: &Case<'_>) -> Result<Value, String> {
    let sid = case.get("sid").and_then(Value::as_str).unwrap_or("default").to_owned();
    let mut streams = Streams { open: EventStream::default(), sid, closed: BTreeMap::new() };
    let (mut got, mut results) = (json!({}), Vec::new());
    for op in case.list("ops")? {
        let word = |at: usize| op.get(at).and_then(Value::as_str);
        match word(0).unwrap_or_default() {
            "add" => drop(streams.add(op.get(1).unwrap_or(&Value::Null), word(2).unwrap_or("agent"))?),
            "read_file" => {
                let id = word(1).and_then(|path| path.rsplit('/').next()?.strip_suffix(".json")?.parse::<i64>().ok());
                let is_here = word(1).is_some_and(|path| path == format!("sessions/{}/events/{}.json", streams.sid, id.unwrap_or(-1)));
                let mut stored = id.filter(|_| is_here).and_then(|id| streams.open.stored(id)).unwrap_or_default();
                if let Some(fields) = stored.as_object_mut() {
                    fields.remove("timestamp");
                }
                got["json_without_timestamp"] = stored;
            }
            "reopen" => {
                let sid = word(1).map_or_else(|| streams.sid.clone(), str::to_owned);
                streams.reopen(&sid);
            }
            "count" => results.push(json!(streams.open.len())),
            "contents" => results.push(json!(streams.open.contents())),
            "ids" => results.push(json!((0..streams.open.next_id()).collect::<Vec<_>>())),
            "get" | "get_event" => {
                let id = op.get(1).and_then(Value::as_i64);
                let mut stored = id.and_then(|id| streams.open.stored(id)).unwrap_or_default();
                if let Some(fields) = stored.as_object_mut() {
                    fields.remove("timestamp");
                }
                results.push(stored);
            }
            "get_latest_event_id" | "get_latest_id" => results.push(json!(streams.open.next_id() - 1)),
            "next_id" | "latest_id" => results.push(json!(streams.open.next_id() - i64::from(word(0) == Some("latest_id")))),
            op if op.starts_with("re-add") => {
                let added = streams.add(&json!({ "observation": "null", "content": "" }), "agent")?;
                let again = streams.open.get(added).cloned().ok_or("what was added is not there")?;
                if streams.open.add(again, Source::Agent).is_err() {
                    got["error"] = json!("already-has-id");
                }
            }
            other => return Err(format!("a stream has no op {other:?}")),
        }
    }
    if let Some(size) = case.get("page").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok()) {
        got["pages"] = json!(streams.open.page_names(size));
    }
    got["results"] = json!(results);
    got["contents"] = json!(streams.open.contents());
    got["ids"] = json!((0..streams.open.next_id()).collect::<Vec<_>>());
    got["next_id"] = json!(streams.open.next_id());
    got["count"] = json!(streams.open.len());
    Ok(got)
}

pub(super) fn search(case: &Case<'_>) -> Result<Value, String> {
    let mut streams = Streams { open: EventStream::default(), sid: String::new(), closed: BTreeMap::new() };
    for op in case.list("ops")? {
        streams.add(op.get(1).unwrap_or(&Value::Null), op.get(2).and_then(Value::as_str).unwrap_or("agent"))?;
    }
    let words = |keys: &[&str]| -> Vec<String> {
        case.any(keys).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
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
        // None at all for nought, and one for less (the reference looks whether it has found as many after each).
        limit: number(&["limit"]).and_then(|limit| usize::try_from(limit.max(-1).unsigned_abs()).ok()),
    };
    let events = streams.open.to_vec();
    let found = trajectory::search(&events, &filter);
    let content = |event: &&Event| event.observation().map(|observation| observation.content().to_owned());
    let ids: Vec<Option<i64>> = found.iter().map(|event| event.id).collect();
    Ok(json!({ "ids": ids, "contents": found.iter().map(content).collect::<Vec<_>>(), "count": found.len() }))
}

/// The function with which the room looks for triggers (`room/knowledge.rs`).
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
    for (index, given) in case.list("trajectory")?.iter().enumerate() {
        let mut form = given.clone();
        if let Some(fields) = form.as_object_mut()
            && let Some(waits) = fields.remove("wait_for_response")
        {
            form["args"]["wait_for_response"] = waits;
        }
        if given.get("action").and_then(Value::as_str) == Some("message") && form["args"].get("content").is_none() {
            form["args"]["content"] = json!(format!("message {index}"));
        }
        events.push(super::forms::event(&form, conclave_core::control::controller::Profile::V2025_11)?);
    }
    let replay = Replay::of(&events);
    let is_first = replay.task.as_deref() == events.iter().find_map(said_by_user);
    let task =
        if case.expect.get("task") == Some(&json!("first message")) && is_first { json!("first message") } else { json!(replay.task) };
    let waits = |action: &trajectory::Action| matches!(action, trajectory::Action::Message(message) if message.wait_for_response);
    let waiting: Vec<usize> = replay.actions.iter().enumerate().filter(|(_, action)| waits(action)).map(|(at, _)| at).collect();
    let kinds: Vec<&str> = replay.actions.iter().map(trajectory::Action::kind).collect();
    Ok(json!({ "task": task, "replayed": kinds, "waits": waiting }))
}

fn said_by_user(event: &Event) -> Option<&str> {
    match event.action() {
        Some(trajectory::Action::Message(message)) if event.source == Some(Source::User) => Some(&message.content),
        _ => None,
    }
}
