//! Conversion of actions, observations and turns to and from their fixed JSON (O-001 and after),
//! through `conclave_trajectory`. Kinds without a type in the core are `Custom`; kinds unknown to
//! both eras stay unchanged.

use serde_json::{Map, Value, json};

use super::{Action, Observation, Reply, Turn};
use crate::trajectory as wire;
use crate::trajectory::{Body, Era, Malformed, TrajectoryEvent};
use crate::types::delegation::Delegation;
use crate::types::message::{ToolCall, ToolResult, weight_of};

/// The newest form that has all actions of 2024-07; used for executors and logs.
const FORM: Era = Era::V2024;
const DELEGATE_TASK: &str = "delegate_task";

/// The fields of a delegation beyond its fixed form. In arguments they have the names of its JSON.
const OPTIONS: [&str; 12] = [
    "brief",
    "conversation",
    "wait",
    "structured_retries",
    "result_schema",
    "notify",
    "deliver",
    "result_delivery",
    "deadline_ms",
    "turns",
    "on_close",
    "key",
];

/// Removes the valid options from the arguments and returns them. Invalid ones stay, so that they
/// are refused later.
fn take_options(args: &mut Value) -> Map<String, Value> {
    let Some(args) = args.as_object_mut() else { return Map::new() };
    let take = |name: &&str| {
        // Each is read alone, so that one invalid option takes no other along.
        let single = json!({ "agent": "", "task": "", (*name): args.get(*name)? });
        serde_json::from_value::<Delegation>(single).ok()?;
        args.remove_entry(*name)
    };
    OPTIONS.iter().filter_map(take).collect()
}

/// The delegation with these options.
fn with_options(delegation: Action, options: Map<String, Value>) -> Action {
    let mut form = json!(delegation);
    if let Some(args) = form.get_mut("args").and_then(Value::as_object_mut) {
        args.extend(options);
    }
    serde_json::from_value(form).unwrap_or(delegation)
}

impl Action {
    /// Returns the action of this kind with these arguments; an unknown kind becomes a custom
    /// action.
    ///
    /// # Errors
    /// `Malformed` if the kind is known and the arguments do not fit it (O-006).
    pub fn from_args(kind: &str, args: &Value) -> Result<Self, Malformed> {
        let custom = || Self::Custom { name: kind.to_owned(), arguments: args.clone() };
        if !wire::Action::KINDS.contains(&kind) {
            return Ok(custom());
        }
        let mut args = if args.is_null() { json!({}) } else { args.clone() };
        let options = if kind == DELEGATE_TASK { take_options(&mut args) } else { Map::new() };
        let event = TrajectoryEvent::from_json(&json!({ "action": kind, "args": args }))?;
        Ok(match event.action().map(Self::from_wire) {
            Some(delegation) if !options.is_empty() => with_options(delegation, options),
            Some(action) => action,
            None => custom(),
        })
    }

    /// The arguments of the fixed form, for executors, rules and approvers. The reason belongs to
    /// the turn and is not among them. A delegation's options are: an approver must see them,
    /// though the fixed form lacks them.
    #[must_use]
    pub fn args(&self) -> Value {
        match self {
            Self::Custom { arguments: Value::Null, .. } => return json!({}),
            Self::Custom { arguments, .. } => return arguments.clone(),
            Self::Reply(Reply { content, .. }) => {
                let content = content.as_deref().unwrap_or_default();
                return json!({ "content": content, "wait_for_response": false });
            }
            Self::Think { thought } if thought.is_empty() => return json!({}),
            _ => {}
        }
        // The other variants have the fields of 2024-07 by their names, so the serialised form is
        // the fixed one, but for values that must be objects or lists there.
        let mut form = json!(self);
        let mut args = form.get_mut("args").map_or_else(|| json!({}), Value::take);
        match self {
            Self::AddTask { subtasks: Value::Null, .. } => args["subtasks"] = json!([]),
            Self::AddTask { subtasks, .. } if !subtasks.is_array() => {
                args["subtasks"] = json!([subtasks]);
            }
            Self::Delegate { .. } => make_object(&mut args["inputs"], "task"),
            Self::DelegateTask(delegation) => {
                make_object(&mut args["context"], "context");
                args["share_channels"] = json!(delegation.share_channels);
            }
            Self::Finish { .. } => make_object(&mut args["outputs"], "content"),
            Self::Reject { .. } => make_object(&mut args["outputs"], "reason"),
            _ => {}
        }
        args
    }

    /// Returns a custom action as the core's type for its kind. It stays custom if there is no such
    /// type or the arguments do not fit.
    #[must_use]
    pub fn typed(self) -> Self {
        match &self {
            Self::Custom { name, arguments } => Self::from_args(name, arguments).unwrap_or(self),
            _ => self,
        }
    }

    /// The action as a log holds it, with its reason. `None` for a kind unknown to both eras, and
    /// for arguments that do not fit. The calls of a reply are separate events: see
    /// [`Turn::to_events`].
    #[must_use]
    pub fn to_wire(&self, thought: &str) -> Option<wire::Action> {
        let Value::Object(mut args) = self.args() else { return None };
        let takes_thought = match self {
            // The thought of a `Think` is the action itself.
            Self::Null | Self::Reply(_) | Self::Think { .. } | Self::Talk { .. } => false,
            Self::Custom { name, .. } => wire::Action::fields_of(name, FORM)
                .or_else(|| wire::Action::fields_of(name, Era::V2025))
                .is_some_and(|(known, _)| known.contains(&"thought")),
            _ => true,
        };
        if takes_thought && !thought.is_empty() {
            args.insert("thought".to_owned(), thought.into());
        }
        if matches!(self, Self::DelegateTask(_)) {
            args.retain(|name, _| !OPTIONS.contains(&name.as_str()));
        }
        serde_json::from_value(json!({ "action": self.name(), "args": args })).ok()
    }

    /// The action of a log entry. It stays custom if the core's type would lose part of it, such as
    /// the input to a running command.
    #[must_use]
    pub fn from_wire(action: &wire::Action) -> Self {
        let typed = Self::nearest(action);
        let custom = || Self::Custom {
            name: action.kind().to_owned(),
            arguments: Value::Object(without_marks(args_of(action.clone(), newest(action)))),
        };
        match typed {
            // A reply ends up as messages, so its other fields may be dropped.
            Some(Self::Reply(reply)) => Self::Reply(reply),
            Some(typed) => {
                let same = |form| {
                    let round_trip = typed
                        .to_wire(action.thought())
                        .map(|wire_action| without_marks(args_of(wire_action, form)));
                    round_trip == Some(without_marks(args_of(action.clone(), form)))
                };
                // Ids are numbers or texts, and a finish has two forms; these differences carry no
                // meaning.
                let is_loose = matches!(
                    typed,
                    Self::Kill { .. } | Self::ModifyTask { .. } | Self::Finish { .. }
                );
                if is_loose || (same(Era::V2024) && same(Era::V2025)) { typed } else { custom() }
            }
            None => custom(),
        }
    }

    /// The core's type for the kind, without the fields that it lacks; `None` if there is no such
    /// type, or a value does not fit it. Reverses [`Self::args`].
    fn nearest(action: &wire::Action) -> Option<Self> {
        let mut args = args_of(action.clone(), FORM);
        let loose = match action.clone() {
            wire::Action::Null(_) => return Some(Self::Null),
            wire::Action::Message(it) => {
                return Some(Self::Reply(Reply { content: Some(it.content), ..Reply::default() }));
            }
            wire::Action::CallToolMcp(it) => {
                let call = ToolCall::new(it.name, Value::Object(it.arguments));
                return Some(Self::Reply(Reply {
                    content: Some(it.thought).filter(|thought| !thought.is_empty()),
                    tool_calls: vec![call],
                    ..Reply::default()
                }));
            }
            wire::Action::Kill(it) => Some(("command_id", it.command_id.number()?.into())),
            wire::Action::ModifyTask(it) => Some(("task_id", it.task_id.to_string().into())),
            wire::Action::Finish(it) => {
                // The user reads the reason for the end, so it must not be lost.
                let thought = Some(it.final_thought)
                    .filter(|thought| !thought.is_empty() && it.outputs.is_empty());
                let outputs =
                    thought.map_or_else(|| from_object(it.outputs, "content"), Value::String);
                Some(("outputs", outputs))
            }
            wire::Action::Reject(it) => Some(("outputs", from_object(it.outputs, "reason"))),
            _ => None,
        };
        args.extend(loose.map(|(name, value)| (name.to_owned(), value)));
        serde_json::from_value(json!({ "action": action.kind(), "args": args })).ok()
    }
}

impl Turn {
    /// The turn as a log holds it: one event, or one for each call of a reply; the first carries
    /// the reason (O-049).
    #[must_use]
    pub fn to_events(&self, era: Era) -> Vec<Value> {
        let event = |action: wire::Action| {
            // An action that the newer form cannot express needs the older one, or it would become
            // another action.
            let era = if newest(&action) == Era::V2024 { Era::V2024 } else { era };
            TrajectoryEvent::from(action).to_json(era)
        };
        match &self.action {
            Action::Reply(reply) if !reply.tool_calls.is_empty() => {
                let thought = reply
                    .content
                    .clone()
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| self.thought.clone());
                let call = |(index, call): (usize, &ToolCall)| wire::action::CallToolMcp {
                    name: call.name.clone(),
                    arguments: as_object(Value::clone(&call.arguments), "value"),
                    thought: if index == 0 { thought.clone() } else { String::new() },
                    ..Default::default()
                };
                reply
                    .tool_calls
                    .iter()
                    .enumerate()
                    .map(|numbered| event(call(numbered).into()))
                    .collect()
            }
            Action::Reply(reply) => {
                let message = wire::action::Message {
                    content: reply.content.clone().unwrap_or_default(),
                    wait_for_response: self.wait_for_response,
                    ..Default::default()
                };
                vec![event(message.into())]
            }
            action => match action.to_wire(&self.thought) {
                Some(action) => vec![event(action)],
                None => vec![json!({ "action": action.name(), "args": action.args() })],
            },
        }
    }

    /// The turn that an event of a log stands for; `None` for an observation.
    #[must_use]
    pub fn from_event(event: &TrajectoryEvent) -> Option<Self> {
        let action = event.action()?;
        let risk = action.security_risk().filter(|risk| *risk != wire::SecurityRisk::Unknown);
        Some(Self {
            wait_for_response: matches!(action, wire::Action::Message(message) if message.wait_for_response),
            thought: match action {
                // For these kinds the thought repeats the action, or the text of the reply.
                wire::Action::Think(_) | wire::Action::CallToolMcp(_) => String::new(),
                other => other.thought().to_owned(),
            },
            action: Action::from_wire(action),
            extra: risk
                .map(|risk| ("security_risk".to_owned(), json!(risk.number())))
                .into_iter()
                .collect(),
        })
    }
}

impl Observation {
    /// The discriminator of the fixed JSON form.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Null => "null",
            Self::Command { .. } => "run",
            Self::Cell { .. } => "run_ipython",
            Self::Browsed { .. } => "browse",
            Self::File { .. } => "read",
            Self::Written { .. } => "write",
            Self::Recalled { .. } => "recall",
            Self::Tool(_) => "mcp",
            Self::Delegated { .. } => "delegate",
            Self::Success { .. } => "success",
            Self::Error { .. } => "error",
            Self::Custom { name, .. } => name,
        }
    }

    /// The text that the agent reads; empty if the kind has none.
    #[must_use]
    pub fn content(&self) -> &str {
        match self {
            Self::Command { content, .. }
            | Self::Cell { content, .. }
            | Self::Browsed { content, .. }
            | Self::File { content, .. } => content,
            Self::Success { content } | Self::Error { content } | Self::Custom { content, .. } => {
                content
            }
            Self::Tool(result) => &result.content,
            Self::Null | Self::Written { .. } | Self::Recalled { .. } | Self::Delegated { .. } => {
                ""
            }
        }
    }

    /// The approximate size of its texts and values in bytes, for limits on memory.
    pub(crate) fn weight(&self) -> usize {
        let more = match self {
            Self::Null | Self::Success { .. } | Self::Error { .. } => 0,
            Self::Command { command: text, .. }
            | Self::Cell { code: text, .. }
            | Self::Browsed { url: text, .. }
            | Self::File { path: text, .. }
            | Self::Written { path: text } => text.len(),
            Self::Recalled { memories } => memories.iter().map(String::len).sum(),
            Self::Tool(result) => result.value.as_ref().map_or(0, weight_of),
            Self::Delegated { outputs: value, .. } | Self::Custom { extras: value, .. } => {
                weight_of(value)
            }
        };
        self.content().len().saturating_add(more)
    }

    /// Returns the text for changes; `None` if the kind has none.
    pub fn content_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Command { content, .. }
            | Self::Cell { content, .. }
            | Self::Browsed { content, .. }
            | Self::File { content, .. } => Some(content),
            Self::Success { content } | Self::Error { content } | Self::Custom { content, .. } => {
                Some(content)
            }
            Self::Tool(result) => Some(&mut result.content),
            Self::Null | Self::Written { .. } | Self::Recalled { .. } | Self::Delegated { .. } => {
                None
            }
        }
    }

    /// The extras of the fixed form of 2024-07.
    fn extras(&self) -> Value {
        match self {
            Self::Null | Self::Success { .. } | Self::Error { .. } => json!({}),
            Self::Command { command_id, command, exit_code, .. } => {
                json!({ "command_id": command_id, "command": command, "exit_code": exit_code })
            }
            Self::Cell { code, .. } => json!({ "code": code }),
            Self::Browsed { url, status, error, .. } => {
                json!({ "url": url, "status_code": status, "error": error })
            }
            Self::File { path, .. } | Self::Written { path } => json!({ "path": path }),
            Self::Recalled { memories } => json!({ "memories": memories }),
            Self::Tool(result) if result.is_error => json!({}),
            Self::Tool(result) => json!({ "name": result.name }),
            Self::Delegated { outputs, .. } => {
                json!({ "outputs": as_object(outputs.clone(), "content") })
            }
            Self::Custom { extras, .. } => extras.clone(),
        }
    }

    /// The observation as a log holds it; `None` for a kind unknown to both eras.
    #[must_use]
    pub fn to_wire(&self) -> Option<wire::Observation> {
        let name = match self {
            Self::Tool(result) if result.is_error => "error",
            other => other.name(),
        };
        let extras = Some(self.extras()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        let form = json!({ "observation": name, "content": self.content(), "extras": extras });
        serde_json::from_value(form).ok()
    }

    /// The observation of a log entry. Kinds without a type in the core become custom ones.
    #[must_use]
    pub fn from_wire(observation: &wire::Observation) -> Self {
        match observation.clone() {
            wire::Observation::Null(_) => Self::Null,
            wire::Observation::Run(it) => Self::Command {
                command_id: it.metadata.pid,
                command: it.command,
                exit_code: exit_code(it.metadata.exit_code),
                content: it.content,
            },
            wire::Observation::RunIpython(it) => Self::Cell { code: it.code, content: it.content },
            wire::Observation::Browse(it) => Self::Browsed {
                url: it.url,
                status: u16::try_from(it.status_code).unwrap_or_default(),
                content: it.content,
                error: it.error,
            },
            wire::Observation::Read(it) => Self::File { path: it.path, content: it.content },
            wire::Observation::Write(it) => Self::Written { path: it.path },
            wire::Observation::Recall(it) if it.recall_type.is_none() => {
                Self::Recalled { memories: it.memories }
            }
            wire::Observation::Delegate(it) => {
                Self::Delegated { agent: String::new(), outputs: Value::Object(it.outputs) }
            }
            wire::Observation::Success(it) => Self::Success { content: it.content },
            wire::Observation::Error(it) => Self::Error { content: it.content },
            wire::Observation::Mcp(it) => Self::Tool(ToolResult {
                call_id: String::new(),
                name: it.name,
                content: it.content,
                value: None,
                is_error: false,
            }),
            other => {
                let extras = serde_json::to_value(&other)
                    .ok()
                    .and_then(|value| value.get("extras").cloned())
                    .unwrap_or_default();
                Self::Custom {
                    name: other.kind().to_owned(),
                    content: other.content().to_owned(),
                    extras,
                }
            }
        }
    }

    /// The fixed JSON form, without an envelope.
    #[must_use]
    pub fn to_json(&self, era: Era) -> Value {
        match self.to_wire() {
            Some(observation) => TrajectoryEvent::from(observation).to_json(era),
            None => {
                let (name, content) = (self.name(), self.content());
                json!({ "observation": name, "content": content, "extras": self.extras() })
            }
        }
    }

    /// Reads the fixed JSON form; an unknown kind stays unchanged.
    ///
    /// # Errors
    /// `Malformed` if the value is not an observation, or does not fit its kind.
    pub fn from_json(value: &Value) -> Result<Self, Malformed> {
        let name = value.get("observation").and_then(Value::as_str);
        if let Some(name) = name.filter(|name| {
            value.get("action").is_none() && !wire::Observation::KINDS.contains(name)
        }) {
            let text = value.get("content").and_then(Value::as_str).unwrap_or_default().to_owned();
            let extras = value.get("extras").cloned().unwrap_or_else(|| json!({}));
            return Ok(Self::Custom { name: name.to_owned(), content: text, extras });
        }
        match TrajectoryEvent::from_json(value)?.body {
            Body::Observation(observation) => Ok(Self::from_wire(&observation)),
            Body::Action(_) => Err(Malformed {
                kind: wire::MalformedKind::UnknownObservation,
                text: "This is an action, and an observation is wanted.".to_owned(),
            }),
        }
    }
}

/// The exit code as the core's type; one out of range still counts as a failure.
pub(crate) fn exit_code(code: i64) -> i32 {
    i32::try_from(code).unwrap_or(-1)
}

/// The arguments in the form of an era, or of the other one for a kind that the era lacks.
fn args_of(action: wire::Action, form: Era) -> Map<String, Value> {
    match TrajectoryEvent::from(action).to_json(form).get_mut("args").map(Value::take) {
        Some(Value::Object(args)) => args,
        _ => Map::new(),
    }
}

/// The form that loses least of an action.
fn newest(action: &wire::Action) -> Era {
    if matches!(action, wire::Action::Run(run) if run.background) { Era::V2024 } else { Era::V2025 }
}

/// Removes the marks that others put on an action: its risk, and whether it may run.
fn without_marks(mut args: Map<String, Value>) -> Map<String, Value> {
    for mark in ["thought", "security_risk", "confirmation_state", "final_thought"] {
        args.remove(mark);
    }
    args
}

/// An object unchanged, another value under this key, and null as an empty object.
fn as_object(value: Value, key: &str) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => Map::from_iter([(key.to_owned(), other)]),
    }
}

/// Makes a value in place what [`as_object`] returns.
fn make_object(value: &mut Value, key: &str) {
    *value = Value::Object(as_object(value.take(), key));
}

/// Reverses [`as_object`].
fn from_object(mut map: Map<String, Value>, key: &str) -> Value {
    match map.get(key) {
        _ if map.is_empty() => Value::Null,
        Some(value) if map.len() == 1 && !value.is_object() && !value.is_null() => {
            map.remove(key).unwrap_or_default()
        }
        _ => Value::Object(map),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
