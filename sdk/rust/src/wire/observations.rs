//! Conversions between observations of the contract and observations of a log, and from messages of
//! a history to events.

use serde_json::{Map, Value, json};

use crate::bindings::agent::conclave::plugin::actions::{CommandOutput, CustomObservation, Page};
use crate::trajectory::observation as log;
use crate::trajectory::{
    Body, CommandMetadata, Era, Observation as Logged, Source, TrajectoryEvent, action,
};
use crate::{Message, Observation, Role, ToolOutput};

/// The text between an agent's name and its outputs (O-090).
const FINISHES: &str = " finishes task";

/// The observation in the form of that era.
pub(super) fn form(observation: &Observation, era: Era) -> Value {
    match event(observation) {
        Some(event) => event.to_json(era),
        None => raw_custom(observation).unwrap_or_default(),
    }
}

/// The observation as an event, or `None` for a custom one that no log knows.
pub(super) fn event(observation: &Observation) -> Option<TrajectoryEvent> {
    let logged: Logged = match observation.clone() {
        Observation::Null => log::Null::default().into(),
        Observation::Command(CommandOutput { command_id, command, exit_code, content }) => {
            let metadata = CommandMetadata {
                exit_code: exit_code.into(),
                pid: command_id,
                ..Default::default()
            };
            log::Run { content, command, metadata, hidden: false }.into()
        }
        Observation::Cell((code, content)) => {
            log::RunIpython { content, code, image_urls: None }.into()
        }
        Observation::Browsed(Page { url, status, content, is_error: error }) => {
            let trigger_by_action = "browse".to_owned();
            log::Browse {
                content,
                url,
                status_code: status.into(),
                error,
                trigger_by_action,
                ..Default::default()
            }
            .into()
        }
        Observation::File((path, content)) => {
            log::Read { content, path, ..Default::default() }.into()
        }
        Observation::Written(path) => log::Write { path, ..Default::default() }.into(),
        Observation::Recalled(memories) => log::Recall { memories, ..Default::default() }.into(),
        Observation::Delegated((agent, outputs)) => delegated(&agent, &outputs).into(),
        Observation::Tool(ToolOutput { content, is_error: true, .. }) => {
            log::Error { content, ..Default::default() }.into()
        }
        Observation::Tool(ToolOutput { name, content, .. }) => {
            log::Mcp { content, name, ..Default::default() }.into()
        }
        Observation::Success(content) => log::Success { content }.into(),
        Observation::Error(content) => log::Error { content, ..Default::default() }.into(),
        Observation::Custom(_) => {
            return TrajectoryEvent::from_json(&raw_custom(observation)?).ok();
        }
    };
    Some(TrajectoryEvent::from(logged))
}

/// The contract's observation of a log's.
pub(super) fn observation(logged: Logged) -> Observation {
    match logged {
        Logged::Null(_) => Observation::Null,
        Logged::Run(run) => Observation::Command(CommandOutput {
            command_id: run.metadata.pid,
            command: run.command,
            exit_code: i32::try_from(run.metadata.exit_code).unwrap_or(-1),
            content: run.content,
        }),
        Logged::RunIpython(cell) => Observation::Cell((cell.code, cell.content)),
        Logged::Browse(page) => Observation::Browsed(Page {
            status: u16::try_from(page.status_code).unwrap_or_default(),
            url: page.url,
            content: page.content,
            is_error: page.error,
        }),
        Logged::Read(read) => Observation::File((read.path, read.content)),
        Logged::Write(write) => Observation::Written(write.path),
        Logged::Recall(recall) if recall.recall_type.is_none() => {
            Observation::Recalled(recall.memories)
        }
        Logged::Delegate(delegate) => {
            let agent = delegate
                .content
                .split_once(FINISHES)
                .map(|(agent, _)| agent.to_owned())
                .unwrap_or_default();
            Observation::Delegated((agent, Value::Object(delegate.outputs).to_string()))
        }
        Logged::Mcp(mcp) => {
            let (name, content) = (mcp.name, mcp.content);
            Observation::Tool(ToolOutput {
                call_id: String::new(),
                name,
                content,
                value: None,
                is_error: false,
            })
        }
        Logged::Success(success) => Observation::Success(success.content),
        Logged::Error(error) => Observation::Error(error.content),
        other => custom(&other),
    }
}

/// The events of a message: its speech, its calls and its results.
pub(super) fn events_of_message(message: Message) -> Vec<TrajectoryEvent> {
    let source = match message.sender {
        Role::Llm => Source::Agent,
        Role::User => Source::User,
        Role::Agent | Role::System => Source::Environment,
    };
    let mut bodies = Vec::new();
    // The host's own text is an observation only as the result of a call. Elsewhere it is a message
    // of the environment.
    if message.tool_results.is_empty()
        && (!message.content.is_empty() || message.tool_calls.is_empty())
    {
        bodies.push(Body::Action(
            action::Message { content: message.content, ..Default::default() }.into(),
        ));
    }
    bodies.extend(message.tool_calls.into_iter().map(|call| {
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
        Body::Action(
            action::CallToolMcp { name: call.name, arguments, ..Default::default() }.into(),
        )
    }));
    bodies.extend(message.tool_results.into_iter().map(|result| {
        Body::Observation(match result.is_error {
            true => log::Error { content: result.content, ..Default::default() }.into(),
            false => {
                log::Mcp { content: result.content, name: result.name, ..Default::default() }.into()
            }
        })
    }));
    bodies.into_iter().map(|body| TrajectoryEvent::new(body).from_source(source.clone())).collect()
}

/// O-090: `{Name} finishes task with k: v, k2: v2`.
fn delegated(agent: &str, outputs: &str) -> log::Delegate {
    let outputs: Map<String, Value> = match serde_json::from_str(outputs) {
        Ok(Value::Object(outputs)) => outputs,
        Ok(Value::Null) | Err(_) => Map::new(),
        Ok(value) => Map::from_iter([("content".to_owned(), value)]),
    };
    let lines = outputs.iter().map(|(key, value)| {
        format!("{key}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    let texts: Vec<_> = lines.collect();
    let content = format!("{agent}{FINISHES} with {}", texts.join(", "));
    log::Delegate { content, outputs }
}

fn raw_custom(observation: &Observation) -> Option<Value> {
    let Observation::Custom(CustomObservation { name, content, extras }) = observation else {
        return None;
    };
    let extras: Map<String, Value> = serde_json::from_str(extras).unwrap_or_default();
    Some(json!({ "observation": name, "content": content, "extras": extras }))
}

fn custom(logged: &Logged) -> Observation {
    let form = TrajectoryEvent::from(logged.clone()).to_json(Era::V2025);
    let extras = form.get("extras").map_or_else(|| "{}".to_owned(), Value::to_string);
    Observation::Custom(CustomObservation {
        name: logged.kind().to_owned(),
        content: logged.content().to_owned(),
        extras,
    })
}
