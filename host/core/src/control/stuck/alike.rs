//! When two events of the reference's logs are the same to its detectors (O-105). Events come in the form of rule O-003.

use serde_json::Value;

use crate::control::fingerprint::{Fingerprint, fingerprint};

/// How a detector found an agent to be stuck, in the reference's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    ActionObservation,
    ActionError,
    Monologue,
    Pattern,
    ContextWindow,
}

impl LoopKind {
    /// The reference's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ActionObservation => "repeating_action_observation",
            Self::ActionError => "repeating_action_error",
            Self::Monologue => "monologue",
            Self::Pattern => "repeating_action_observation_pattern",
            Self::ContextWindow => "context_window_error",
        }
    }
}

pub(super) fn action_name(event: &Value) -> Option<&str> {
    event.get("action").and_then(Value::as_str)
}

pub(super) fn observation_name(event: &Value) -> Option<&str> {
    event.get("observation").and_then(Value::as_str)
}

pub(super) fn is_from_user(event: &Value) -> bool {
    event.get("source").and_then(Value::as_str) == Some("user")
}

pub(super) fn arg<'a>(event: &'a Value, name: &str) -> &'a Value {
    part(event, "args", name)
}

fn part<'a>(event: &'a Value, group: &str, name: &str) -> &'a Value {
    event.get(group).and_then(|group| group.get(name)).unwrap_or(&Value::Null)
}

/// Everything but what the log added: id, time, source, cause and the derived line.
pub(super) fn whole(event: &Value) -> Fingerprint {
    let field = |name: &str| event.get(name).unwrap_or(&Value::Null);
    match action_name(event) {
        Some(name) => fingerprint(&("action", name, field("args"))),
        None => fingerprint(&("observation", observation_name(event), field("content"), field("extras"))),
    }
}

/// An observation as detectors compare it: of a command only which one it was and how it ended.
pub(super) fn result(event: &Value) -> Fingerprint {
    if observation_name(event) != Some("run") {
        return whole(event);
    }
    let of_metadata = part(event, "extras", "metadata").get("exit_code");
    let exit_code = of_metadata.unwrap_or_else(|| part(event, "extras", "exit_code"));
    fingerprint(&("run", part(event, "extras", "command"), exit_code))
}
