//! Translation of SDK events to 2025-11 events, so that all logs are searched, viewed and replayed
//! alike.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::action::{self, Action};
use crate::event::{Body, Source, TrajectoryEvent};
use crate::field::Field;
use crate::observation::{self, Observation};
use crate::sdk::{SdkEvent, SdkSource};
use crate::vocabulary::{CommandMetadata, SecurityRisk};

/// The events of an SDK log as events of 2025-11, in order.
///
/// An event's id is its position in the log. Events about the run itself are omitted: state
/// updates, hooks, deltas, tokens, pauses.
pub fn translate(events: &[SdkEvent]) -> Vec<TrajectoryEvent> {
    let positions: BTreeMap<&str, i64> =
        events.iter().zip(0..).filter_map(|(event, at)| Some((event.id.as_deref()?, at))).collect();
    let calls: BTreeMap<&str, &SdkEvent> = events
        .iter()
        .filter(|event| event.kind == "ActionEvent")
        .filter_map(|event| Some((event.id.as_deref()?, event)))
        .collect();
    let by_call: BTreeMap<&str, i64> = events
        .iter()
        .zip(0..)
        .filter(|(event, _)| event.kind == "ActionEvent")
        .filter_map(|(event, at)| Some((event.text("tool_call_id")?, at)))
        .collect();
    let translated = events.iter().zip(0..).filter_map(|(event, at)| {
        let mut translated = TrajectoryEvent::new(body(event, &calls, &positions)?);
        translated.id = Some(at);
        translated.timestamp = event.timestamp.clone();
        translated.source = Some(match event.source {
            SdkSource::Agent => Source::Agent,
            SdkSource::User => Source::User,
            SdkSource::Environment | SdkSource::Hook => Source::Environment,
        });
        translated.cause = match event.kind {
            "AgentErrorEvent" => {
                event.text("tool_call_id").and_then(|call| by_call.get(call).copied())
            }
            _ => event.text("action_id").and_then(|id| positions.get(id).copied()),
        };
        Some(translated)
    });
    translated.collect()
}

fn body(
    event: &SdkEvent,
    calls: &BTreeMap<&str, &SdkEvent>,
    positions: &BTreeMap<&str, i64>,
) -> Option<Body> {
    let text = |key: &str| event.text(key).unwrap_or_default().to_owned();
    let as_observation = |observation: Observation| Some(Body::Observation(observation));
    let as_action = |action: Action| Some(Body::Action(action));
    match event.kind {
        "SystemPromptEvent" => {
            let content = event.payload.get("system_prompt").map(joined).unwrap_or_default();
            let tools = event.payload.get("tools").and_then(Value::as_array).cloned();
            as_action(action::System { content, tools, ..action::System::default() }.into())
        }
        "MessageEvent" => {
            let content = event
                .payload
                .get("llm_message")
                .and_then(|message| message.get("content"))
                .map(joined)
                .unwrap_or_default();
            as_action(action::Message { content, ..action::Message::default() }.into())
        }
        "ActionEvent" => as_action(called(event)),
        "ObservationEvent" => as_observation(answered(event, calls)),
        "UserRejectObservation" => {
            as_observation(observation::UserRejected { content: text("rejection_reason") }.into())
        }
        "AgentErrorEvent" => as_observation(
            observation::Error { content: text("error"), error_id: String::new() }.into(),
        ),
        "ConversationErrorEvent" => as_observation(
            observation::Error { content: text("detail"), error_id: text("code") }.into(),
        ),
        "Condensation" => {
            let forgotten = event.payload.get("forgotten_event_ids").and_then(Value::as_array);
            let ids: Vec<i64> = forgotten
                .into_iter()
                .flatten()
                .filter_map(|id| positions.get(id.as_str()?).copied())
                .collect();
            let offset = event.payload.get("summary_offset").and_then(Value::as_i64);
            let summary = event.text("summary").map(str::to_owned).zip(offset);
            let (summary, summary_offset) = summary.unzip();
            as_action(
                action::Condensation {
                    forgotten_event_ids: Some(ids),
                    summary,
                    summary_offset,
                    ..Default::default()
                }
                .into(),
            )
        }
        "CondensationRequest" => as_action(action::CondensationRequest {}.into()),
        "CondensationSummaryEvent" => {
            as_observation(observation::Condense { content: text("summary") }.into())
        }
        _ => None,
    }
}

/// The action of a call. Tools with a kind of their own in 2025-11 get it; others become tool calls
/// by name.
fn called(event: &SdkEvent) -> Action {
    let empty = Map::new();
    let args = event.payload.get("action").and_then(Value::as_object).unwrap_or(&empty);
    let thought = event.payload.get("thought").map(joined).unwrap_or_default();
    let security_risk = match event.text("security_risk") {
        Some("LOW") => SecurityRisk::Low,
        Some("MEDIUM") => SecurityRisk::Medium,
        Some("HIGH") => SecurityRisk::High,
        _ => SecurityRisk::Unknown,
    };
    let text = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    let some = |key: &str| text(key).unwrap_or_default();
    let tool = event.text("tool_name").unwrap_or_default();
    match tool {
        _ if args.is_empty() => {}
        "terminal" | "execute_bash" => {
            let is_input = args.get("is_input") == Some(&Value::Bool(true));
            return action::Run {
                command: some("command"),
                is_input,
                thought,
                security_risk,
                ..Default::default()
            }
            .into();
        }
        "file_editor" | "str_replace_editor" if text("command").as_deref() == Some("view") => {
            let view_range = args.get("view_range").and_then(Vec::<i64>::read);
            let impl_source = crate::vocabulary::ReadSource::OhAci;
            return action::Read {
                path: some("path"),
                thought,
                security_risk,
                impl_source,
                view_range,
                ..Default::default()
            }
            .into();
        }
        "file_editor" | "str_replace_editor" => {
            return action::Edit {
                path: some("path"),
                command: text("command"),
                file_text: text("file_text"),
                old_str: text("old_str"),
                new_str: text("new_str"),
                insert_line: args.get("insert_line").and_then(i64::read),
                thought,
                security_risk,
                ..Default::default()
            }
            .into();
        }
        "finish" => {
            return action::Finish {
                final_thought: some("message"),
                thought,
                ..Default::default()
            }
            .into();
        }
        "think" => return action::Think { thought: some("thought") }.into(),
        "task_tracker" => {
            let task_list =
                args.get("task_list").and_then(Value::as_array).cloned().unwrap_or_default();
            return action::TaskTracking { command: some("command"), task_list, thought }.into();
        }
        _ => {}
    }
    // The model's text still has the arguments that could not be parsed.
    let raw =
        || serde_json::from_str(event.payload.get("tool_call")?.get("arguments")?.as_str()?).ok();
    let mut arguments = if args.is_empty() { raw().unwrap_or_default() } else { args.clone() };
    arguments.remove("kind");
    action::CallToolMcp { name: tool.to_owned(), arguments, thought, security_risk }.into()
}

fn answered(event: &SdkEvent, calls: &BTreeMap<&str, &SdkEvent>) -> Observation {
    let empty = Map::new();
    let result = event.payload.get("observation").and_then(Value::as_object).unwrap_or(&empty);
    let content = result.get("content").map(joined).unwrap_or_default();
    if result.get("is_error") == Some(&Value::Bool(true)) {
        return observation::Error { content, error_id: String::new() }.into();
    }
    if let Some(exit_code) = result.get("exit_code").and_then(i64::read) {
        let command = result.get("command").and_then(Value::as_str).unwrap_or_default().to_owned();
        let recorded = result.get("metadata").and_then(CommandMetadata::read).unwrap_or_default();
        let metadata = CommandMetadata { exit_code, ..recorded };
        return observation::Run { content, command, metadata, hidden: false }.into();
    }
    let name = event.text("tool_name").unwrap_or_default().to_owned();
    let call = event.text("action_id").and_then(|id| calls.get(id)).map(|call| called(call));
    let arguments = match call {
        Some(Action::CallToolMcp(call)) => call.arguments,
        _ => Map::new(),
    };
    observation::Mcp { content, name, arguments }.into()
}

/// The text of a string, of an object with `text`, or of a list of these.
fn joined(content: &Value) -> String {
    let part =
        |part: &Value| part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned);
    match content {
        Value::Array(parts) => parts.iter().filter_map(part).collect::<Vec<_>>().join("\n"),
        one => part(one).unwrap_or_default(),
    }
}
