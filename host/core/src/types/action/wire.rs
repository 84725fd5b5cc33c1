//! Conversion of actions, observations and turns to and from their fixed JSON (O-001 and after),
//! through `conclave_trajectory`. Kinds without a type in the core are `Custom`; kinds unknown to
//! both eras stay unchanged.

use serde_json::{Map, Value, json};

use super::{Action, Observation, PastAction, PlanState, Reply, Turn};
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

/// Removes the options from the arguments, and returns a delegation that has only those. Invalid
/// ones stay in the arguments, so that they are refused later.
fn take_options(args: &mut Value) -> Delegation {
    let Some(args) = args.as_object_mut() else { return Delegation::default() };
    let blank = || Map::from_iter(["agent", "task"].map(|name| (name.to_owned(), json!(""))));
    let mut valid = blank();
    for name in OPTIONS {
        let Some(value) = args.get(name) else { continue };
        let mut single = blank();
        single.insert(name.to_owned(), value.clone());
        // Each is read alone, so that one invalid option takes no other along.
        if serde_json::from_value::<Delegation>(Value::Object(single)).is_ok() {
            valid.extend(args.remove_entry(name));
        }
    }
    serde_json::from_value(Value::Object(valid)).unwrap_or_default()
}

/// The action with these options, if it is a delegation.
fn with_options(action: Action, options: Delegation) -> Action {
    let Action::DelegateTask(fixed) = action else { return action };
    let Delegation { worker, description, context, share_channels, .. } = *fixed;
    Action::DelegateTask(Box::new(Delegation {
        worker,
        description,
        context,
        share_channels,
        ..options
    }))
}

/// The options of a delegation as arguments; those with their default are left out.
fn options_of(delegation: &Delegation) -> Map<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(delegation) else { return Map::new() };
    fields.retain(|name, _| OPTIONS.contains(&name.as_str()));
    fields
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
        let options =
            if kind == DELEGATE_TASK { take_options(&mut args) } else { Delegation::default() };
        match TrajectoryEvent::from_json(&json!({ "action": kind, "args": args }))?.body {
            Body::Action(action) => Ok(with_options(Self::from_wire(&action), options)),
            Body::Observation(_) => Ok(custom()),
        }
    }

    /// The arguments of the fixed form, for executors, rules and approvers. The reason belongs to
    /// the turn and is not among them.
    #[must_use]
    pub fn args(&self) -> Value {
        if let Self::Custom { arguments, .. } = self {
            return if arguments.is_null() { json!({}) } else { arguments.clone() };
        }
        let mut args = self.to_wire("").map(|action| args_of(action, FORM)).unwrap_or_default();
        if args.get("thought").is_some_and(|thought| *thought == json!("")) {
            args.remove("thought");
        }
        if let Self::DelegateTask(delegation) = self {
            // The fixed form lacks these fields, but an approver must see them.
            args.extend(options_of(delegation));
        }
        Value::Object(args)
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
        let thought = thought.to_owned();
        Some(match self.clone() {
            Self::Null => wire::action::Null {}.into(),
            Self::Reply(reply) => wire::action::Message {
                content: reply.content.unwrap_or_default(),
                ..Default::default()
            }
            .into(),
            Self::Run { command, background } => {
                wire::action::Run { command, background, thought, ..Default::default() }.into()
            }
            Self::Kill { command_id } => {
                wire::action::Kill { command_id: wire::LooseId::Number(command_id), thought }.into()
            }
            Self::RunIpython { code, kernel_init_code } => {
                wire::action::RunIpython { code, kernel_init_code, thought, ..Default::default() }
                    .into()
            }
            Self::Browse { url } => {
                wire::action::Browse { url, thought, ..Default::default() }.into()
            }
            Self::Read { path, start, end } => {
                wire::action::Read { path, start, end, thought, ..Default::default() }.into()
            }
            Self::Write { path, content, start, end } => {
                wire::action::Write { path, content, start, end, thought, ..Default::default() }
                    .into()
            }
            Self::Recall { query } => {
                wire::action::Recall { query, thought, ..Default::default() }.into()
            }
            Self::AddTask { parent, goal, subtasks } => {
                let subtasks = match subtasks {
                    Value::Null => Vec::new(),
                    Value::Array(list) => list,
                    other => vec![other],
                };
                wire::action::AddTask { parent, goal, subtasks, thought }.into()
            }
            Self::ModifyTask { task_id, state } => {
                let state = serde_json::to_value(state)
                    .ok()
                    .and_then(|state| state.as_str().map(str::to_owned))
                    .unwrap_or_default();
                wire::action::ModifyTask { task_id: wire::LooseId::Text(task_id), state, thought }
                    .into()
            }
            Self::Delegate { agent, inputs } => {
                wire::action::Delegate { agent, inputs: as_object(inputs, "task"), thought }.into()
            }
            Self::DelegateTask(delegation) => {
                let Delegation {
                    worker: agent, description: task, context, share_channels, ..
                } = *delegation;
                let context =
                    if context.is_null() { Map::new() } else { as_object(context, "context") };
                wire::action::DelegateTask { agent, task, context, share_channels, thought }.into()
            }
            Self::Think { thought } => wire::action::Think { thought }.into(),
            Self::Talk { content } => wire::action::Talk { content }.into(),
            Self::Finish { outputs } => wire::action::Finish {
                outputs: as_object(outputs, "content"),
                thought,
                ..Default::default()
            }
            .into(),
            Self::Reject { outputs } => {
                wire::action::Reject { outputs: as_object(outputs, "reason"), thought }.into()
            }
            Self::Custom { name, arguments } => return custom_to_wire(&name, arguments, thought),
        })
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

    fn nearest(action: &wire::Action) -> Option<Self> {
        Some(match action.clone() {
            wire::Action::Null(_) => Self::Null,
            wire::Action::Message(it) => {
                Self::Reply(Reply { content: Some(it.content), ..Reply::default() })
            }
            wire::Action::CallToolMcp(it) => {
                let call = ToolCall::new(it.name, Value::Object(it.arguments));
                Self::Reply(Reply {
                    content: Some(it.thought).filter(|thought| !thought.is_empty()),
                    tool_calls: vec![call],
                    ..Reply::default()
                })
            }
            wire::Action::Run(it) => Self::Run { command: it.command, background: it.background },
            wire::Action::Kill(it) => Self::Kill { command_id: it.command_id.number()? },
            wire::Action::RunIpython(it) => {
                Self::RunIpython { code: it.code, kernel_init_code: it.kernel_init_code }
            }
            wire::Action::Browse(it) => Self::Browse { url: it.url },
            wire::Action::Read(it) => Self::Read { path: it.path, start: it.start, end: it.end },
            wire::Action::Write(it) => {
                Self::Write { path: it.path, content: it.content, start: it.start, end: it.end }
            }
            wire::Action::Recall(it) => Self::Recall { query: it.query },
            wire::Action::AddTask(it) => Self::AddTask {
                parent: it.parent,
                goal: it.goal,
                subtasks: Value::Array(it.subtasks),
            },
            wire::Action::ModifyTask(it) => {
                let state: PlanState = serde_json::from_value(Value::String(it.state)).ok()?;
                Self::ModifyTask { task_id: it.task_id.to_string(), state }
            }
            wire::Action::Delegate(it) => {
                Self::Delegate { agent: it.agent, inputs: Value::Object(it.inputs) }
            }
            wire::Action::DelegateTask(it) => {
                let (context, share_channels) = (Value::Object(it.context), it.share_channels);
                let (agent, task) = (it.agent, it.task);
                Self::DelegateTask(Box::new(Delegation {
                    worker: agent,
                    description: task,
                    context,
                    share_channels,
                    ..Delegation::default()
                }))
            }
            wire::Action::Think(it) => Self::Think { thought: it.thought },
            wire::Action::Talk(it) => Self::Talk { content: it.content },
            wire::Action::Finish(it) => {
                let thought = Some(it.final_thought)
                    .filter(|thought| !thought.is_empty() && it.outputs.is_empty());
                let outputs =
                    thought.map_or_else(|| from_object(it.outputs, "content"), Value::String);
                // The user reads the reason for the end, so it must not be lost.
                return Some(Self::Finish { outputs });
            }
            wire::Action::Reject(it) => Self::Reject { outputs: from_object(it.outputs, "reason") },
            _ => return None,
        })
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

    /// The observation as a log holds it; `None` for a kind unknown to both eras.
    #[must_use]
    pub fn to_wire(&self) -> Option<wire::Observation> {
        Some(match self.clone() {
            Self::Null => wire::observation::Null::default().into(),
            Self::Command { command_id, command, exit_code, content } => {
                let metadata = wire::CommandMetadata {
                    exit_code: exit_code.into(),
                    pid: command_id,
                    ..Default::default()
                };
                wire::observation::Run { content, command, metadata, ..Default::default() }.into()
            }
            Self::Cell { code, content } => {
                wire::observation::RunIpython { content, code, ..Default::default() }.into()
            }
            Self::Browsed { url, status, content, error } => wire::observation::Browse {
                content,
                url,
                status_code: status.into(),
                error,
                ..Default::default()
            }
            .into(),
            Self::File { path, content } => {
                wire::observation::Read { content, path, ..Default::default() }.into()
            }
            Self::Written { path } => {
                wire::observation::Write { path, ..Default::default() }.into()
            }
            Self::Recalled { memories } => {
                wire::observation::Recall { memories, ..Default::default() }.into()
            }
            Self::Tool(result) if result.is_error => {
                wire::observation::Error { content: result.content, ..Default::default() }.into()
            }
            Self::Tool(result) => wire::observation::Mcp {
                content: result.content,
                name: result.name,
                ..Default::default()
            }
            .into(),
            Self::Delegated { outputs, .. } => wire::observation::Delegate {
                outputs: as_object(outputs, "content"),
                ..Default::default()
            }
            .into(),
            Self::Success { content } => wire::observation::Success { content }.into(),
            Self::Error { content } => {
                wire::observation::Error { content, ..Default::default() }.into()
            }
            Self::Custom { name, content, extras } => {
                let extras = if extras.is_object() { extras } else { json!({}) };
                match TrajectoryEvent::from_json(
                    &json!({ "observation": name, "content": content, "extras": extras }),
                )
                .ok()?
                .body
                {
                    Body::Observation(observation) => observation,
                    Body::Action(_) => return None,
                }
            }
        })
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
        match (self.to_wire(), self) {
            (Some(observation), _) => TrajectoryEvent::from(observation).to_json(era),
            (None, Self::Custom { name, content, extras }) => {
                json!({ "observation": name, "content": content, "extras": extras })
            }
            (None, other) => {
                json!({ "observation": other.name(), "content": other.content(), "extras": {} })
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

impl PastAction {
    /// The pair as a log of 2024-07 holds it; a missing half has the kind `null` (O-054).
    #[must_use]
    pub fn to_pair(&self, era: Era) -> (Value, Value) {
        let action = self.action.clone().unwrap_or(Action::Null);
        let turn =
            Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
        let action = turn.to_events(era).into_iter().next().unwrap_or_default();
        (action, self.observation.as_ref().unwrap_or(&Observation::Null).to_json(era))
    }

    /// Reads the pair of a log.
    ///
    /// # Errors
    /// `Malformed` if one half does not fit its kind.
    pub fn from_pair(action: &Value, observation: &Value, seq: u64) -> Result<Self, Malformed> {
        let kind = action.get("action").and_then(Value::as_str).unwrap_or_default();
        let action = Action::from_args(kind, action.get("args").unwrap_or(&Value::Null))?;
        let observation = Observation::from_json(observation)?;
        Ok(Self {
            action: Some(action).filter(|action| *action != Action::Null),
            observation: Some(observation).filter(|observation| *observation != Observation::Null),
            seq,
        })
    }
}

/// The exit code as the core's type; one out of range still counts as a failure.
pub(crate) fn exit_code(code: i64) -> i32 {
    i32::try_from(code).unwrap_or(-1)
}

fn custom_to_wire(name: &str, arguments: Value, thought: String) -> Option<wire::Action> {
    let mut args = match arguments {
        Value::Object(args) => args,
        Value::Null => Map::new(),
        _ => return None,
    };
    let has_thought =
        wire::Action::fields_of(name, FORM).or_else(|| wire::Action::fields_of(name, Era::V2025));
    if !thought.is_empty() && has_thought.is_some_and(|(known, _)| known.contains(&"thought")) {
        args.insert("thought".to_owned(), Value::String(thought));
    }
    match TrajectoryEvent::from_json(&json!({ "action": name, "args": args })).ok()?.body {
        Body::Action(action) => Some(action),
        Body::Observation(_) => None,
    }
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
