//! Taking secrets out of events before they are stored: ours, which leaves none, and the reference's, which has holes (O-117, O-186).

use serde_json::{Map, Value};

use crate::action::Action;
use crate::era::Era;
use crate::event::Event;
use crate::malformed::Malformed;
use crate::observation::Observation;
use crate::vocabulary::{Confirmation, EditSource, ReadSource, RecallType};

/// What stands where a secret was.
pub const HIDDEN: &str = "<secret_hidden>";

/// How thorough to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// All text at any depth, in lists and as keys, and the derived line; empty secrets are ignored, longer ones go first.
    #[default]
    Everywhere,
    /// As 2025-11 did: lists and the derived line keep theirs, and an empty secret spoils every text.
    Reference,
}

/// Top-level fields that the reference leaves as they are.
const PROTECTED: [&str; 7] = ["timestamp", "id", "source", "cause", "action", "observation", "message"];

/// Takes the secrets out of an encoded event.
pub fn redact<S: AsRef<str>>(event: &mut Value, secrets: &[S], redaction: Redaction) {
    match redaction {
        Redaction::Reference => {
            if let Value::Object(map) = event {
                reference(map, secrets, true);
            }
        }
        Redaction::Everywhere => everywhere(event, &longest_first(secrets)),
    }
}

/// Takes the secrets out of an event; fails only when what remains is no event any more.
pub fn redact_event<S: AsRef<str>>(event: &mut Event, secrets: &[S], redaction: Redaction) -> Result<(), Malformed> {
    let mut value = serde_json::to_value(&*event).map_err(|error| Malformed::value(error.to_string()))?;
    redact(&mut value, secrets, redaction);
    *event = Event::from_json(&value)?;
    Ok(())
}

/// Takes the secrets out of any text, as [`Redaction::Everywhere`] does.
pub fn redact_text<S: AsRef<str>>(text: &str, secrets: &[S]) -> String {
    scrub(text, &longest_first(secrets))
}

fn longest_first<S: AsRef<str>>(secrets: &[S]) -> Vec<&str> {
    let mut secrets: Vec<&str> = secrets.iter().map(AsRef::as_ref).filter(|secret| !secret.is_empty()).collect();
    secrets.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
    secrets.dedup();
    secrets
}

/// One pass from left to right, so that what was put in is never looked at again.
fn scrub(text: &str, secrets: &[&str]) -> String {
    if !secrets.iter().any(|secret| text.contains(secret)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = secrets.iter().find(|secret| rest.starts_with(**secret));
        match found {
            Some(secret) => {
                out.push_str(HIDDEN);
                rest = &rest[secret.len()..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

fn everywhere(event: &mut Value, secrets: &[&str]) {
    let line_era = derived_in(event);
    if let Value::Object(map) = event {
        let old = std::mem::take(map);
        for (key, mut value) in old {
            if !is_structure(&key, &value) {
                scrub_value(&mut value, secrets, matches!(key.as_str(), "args" | "extras"));
            }
            insert(map, scrub_key(key, secrets, true), value);
        }
    } else {
        scrub_value(event, secrets, false);
    }
    // A derived line may hold a secret that is cut short, so it is derived anew.
    let line = line_era.and_then(|era| Some(Event::from_json(event).ok()?.message(era)));
    if let (Some(line), Some(slot)) = (line, event.get_mut("message")) {
        *slot = Value::String(scrub(&line, secrets));
    }
}

/// In the words of which era the event's `message` was derived, if it was.
fn derived_in(event: &Value) -> Option<Era> {
    let line = event.get("message")?.as_str()?;
    let read = Event::from_json(event).ok()?;
    [Era::V2025, Era::V2024].into_iter().find(|era| read.message(*era) == line)
}

/// Whether a top-level field is one that the host or the protocol writes, so that it holds no secret whatever it looks like.
fn is_structure(key: &str, value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    match key {
        "action" => Action::KINDS.contains(&text),
        "observation" => Observation::KINDS.contains(&text),
        "source" => matches!(text, "agent" | "user" | "environment" | "hook"),
        "timestamp" => crate::timestamp::normalised(text).is_some(),
        _ => false,
    }
}

fn scrub_value(value: &mut Value, secrets: &[&str], fields: bool) {
    match value {
        Value::String(text) => *text = scrub(text, secrets),
        Value::Array(items) => items.iter_mut().for_each(|item| scrub_value(item, secrets, false)),
        Value::Object(map) => {
            let old = std::mem::take(map);
            for (key, mut value) in old {
                if !(fields && is_closed_word(&key, &value)) {
                    scrub_value(&mut value, secrets, fields && key == "metadata");
                }
                insert(map, scrub_key(key, secrets, fields), value);
            }
        }
        _ => {}
    }
}

/// Whether a field takes one of a few fixed words and has one of them.
fn is_closed_word(key: &str, value: &Value) -> bool {
    let Some(word) = value.as_str() else { return false };
    match key {
        "confirmation_state" => Confirmation::parse(word).is_some(),
        "impl_source" => ReadSource::parse(word).is_some() || EditSource::parse(word).is_some(),
        "recall_type" => RecallType::parse(word).is_some(),
        _ => false,
    }
}

/// A key without secrets; where fields stand, the protocol's own names stay.
fn scrub_key(key: String, secrets: &[&str], fields: bool) -> String {
    if fields && is_field(&key) { key } else { scrub(&key, secrets) }
}

fn is_field(key: &str) -> bool {
    const ENVELOPE: [&str; 8] = ["args", "extras", "content", "metadata", "success", "timeout", "tool_call_metadata", "llm_metrics"];
    const METADATA: [&str; 8] = ["exit_code", "pid", "username", "hostname", "working_dir", "py_interpreter_path", "prefix", "suffix"];
    PROTECTED.contains(&key) || ENVELOPE.contains(&key) || METADATA.contains(&key) || key == "command_id" || {
        let action = Action::KINDS.iter().any(|kind| Action::has_field(kind, key));
        action || Observation::KINDS.iter().any(|kind| Observation::has_field(kind, key))
    }
}

/// Inserts under a key that is still free, so that two scrubbed keys do not swallow each other.
fn insert(map: &mut Map<String, Value>, key: String, value: Value) {
    let free = (1usize..).map(|count| if count == 1 { key.clone() } else { format!("{key}_{count}") }).find(|key| !map.contains_key(key));
    map.insert(free.unwrap_or(key), value);
}

fn reference<S: AsRef<str>>(map: &mut Map<String, Value>, secrets: &[S], top: bool) {
    for (key, value) in map.iter_mut() {
        if top && PROTECTED.contains(&key.as_str()) {
            continue;
        }
        match value {
            Value::Object(inner) => reference(inner, secrets, false),
            Value::String(text) => {
                for secret in secrets {
                    *text = text.replace(secret.as_ref(), HIDDEN);
                }
            }
            _ => {}
        }
    }
}
