//! Short texts for rows.

use serde_json::Value;

use super::super::row::Effected;
use super::super::short;
use crate::setup::GatePoint;
use crate::setup::plugin_query::{
    ChannelDelivery, ChannelReception, GateVerdict, ObserverReply, PluginQuery, PluginReply,
};
use crate::types::action::{Action, Turn};
use crate::types::fault::Fault;
use crate::types::observed::{ObservedEvent, ObservedPosition};
use crate::types::side_effect::{SideEffect, SideEffectAnswer};

/// An agent's message or request as one text.
pub(super) fn says(turn: &Turn) -> String {
    let Action::Reply(reply) = &turn.action else {
        return match &turn.action {
            Action::Talk { content } => short(content),
            other => action_text(other),
        };
    };
    let calls: Vec<&str> = reply.tool_calls.iter().map(|call| call.name.as_str()).collect();
    let text = reply.content.as_deref().unwrap_or_default();
    match calls.as_slice() {
        [] => short(text),
        [one] if text.is_empty() => format!("calls {one}"),
        several => short(format!("{text} calls {}", several.join(", ")).trim_start()),
    }
}

pub(super) fn fault_text(fault: Fault) -> String {
    format!("{}: {}", fault.kind.as_str(), short(&fault.message))
}

pub(super) fn json(value: &Value) -> String {
    short(&value.to_string())
}

/// The tag of a serialised enum.
pub(super) fn kind_of(value: &impl serde::Serialize, tag: &str) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.get(tag).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn kinds<T: serde::Serialize>(values: &[T], tag: &str) -> String {
    let words: Vec<String> = values.iter().take(8).map(|value| kind_of(value, tag)).collect();
    words.join(", ")
}

pub(super) fn verb_of(side_effect: &SideEffect, overlay: bool) -> (String, Option<u64>) {
    let (verb, bytes) = match side_effect {
        SideEffect::Fetch { method, body, .. } => {
            return (short(method), body.as_ref().map(|body| body.length));
        }
        SideEffect::WriteFile { bytes, .. } if overlay => ("write to overlay", Some(bytes.length)),
        SideEffect::WriteFile { bytes, .. } => ("write", Some(bytes.length)),
        SideEffect::RemoveFile { .. } if overlay => ("remove in overlay", None),
        SideEffect::RemoveFile { .. } => ("remove", None),
        SideEffect::SetKey { value, .. } => ("set key", Some(value.length)),
        SideEffect::DeleteKey { .. } => ("delete key", None),
        SideEffect::RunProgram { input, .. } => ("run", input.as_ref().map(|input| input.length)),
    };
    (verb.to_owned(), bytes)
}

pub(super) fn effected(answer: SideEffectAnswer) -> Effected {
    match answer {
        SideEffectAnswer::Done { length } => Effected::Done { length },
        SideEffectAnswer::Fetched { status, body, address, .. } => {
            Effected::Answered { status, length: body.length, address }
        }
        SideEffectAnswer::Ran { ending, stdout, stderr, dropped } => Effected::Ran {
            ending: short(&ending.to_string()),
            length: stdout.length.saturating_add(stderr.length).saturating_add(dropped),
        },
        SideEffectAnswer::Denied { denial } => Effected::Denied { target: short(&denial.target) },
        SideEffectAnswer::Failed { message, .. } => Effected::Failed { message: short(&message) },
    }
}

/// A short text for a query to a plugin.
pub(super) fn question_text(question: &PluginQuery) -> String {
    match question {
        PluginQuery::Memories { query, .. } => short(query),
        PluginQuery::Risk { action, .. } => format!("how risky is {}", action_text(action)),
        PluginQuery::Condense { reason } => format!("condense ({})", kind_word(reason)),
        // The raw result is for the gate alone.
        PluginQuery::Gate { input } if input.point == GatePoint::ToolResult => {
            let tool = input.metadata.get("tool").and_then(Value::as_str).unwrap_or_default();
            short(&format!("may it pass ({})? {tool}", input.point.as_str()))
        }
        PluginQuery::Gate { input } => {
            short(&format!("may it pass ({})? {}", input.point.as_str(), input.text))
        }
        PluginQuery::Rule { answer } => {
            let ruled = host_ruling(answer.valid, answer.is_done);
            short(&format!("{ruled} of {}: {}", answer.responder, answer.message.text()))
        }
        PluginQuery::Conclude { ending } => {
            short(&format!("the result ({}): {}", ending.status.as_str(), ending.result.text))
        }
        PluginQuery::AnswerAsUser { prompt } => short(prompt),
        PluginQuery::Observe { events } => observed(events),
        PluginQuery::Deliver { message } => short(&message.text),
        PluginQuery::Receive { request } => format!("a request of {} bytes", request.body.len()),
    }
}

fn host_ruling(valid: bool, ends_task: bool) -> &'static str {
    match (valid, ends_task) {
        (false, false) => "an answer that counts for nothing,",
        (true, false) => "a valid answer,",
        (_, true) => "an answer that ends the task,",
    }
}

/// The addresses of a batch of events.
fn observed(events: &[ObservedEvent]) -> String {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return String::new() };
    let ObservedPosition { seq: from, .. } = first.position;
    short(&format!("{} events of {}:{from} to {}", events.len(), first.room, last.position.seq))
}

fn delivered(delivery: &ChannelDelivery) -> String {
    match delivery {
        ChannelDelivery::Delivered { .. } => "delivered".to_owned(),
        ChannelDelivery::Retry { reason, .. } => short(&format!("later: {reason}")),
        ChannelDelivery::Refused { reason } => short(&format!("refused: {reason}")),
        ChannelDelivery::Unknown { reason } => short(&format!("unknown: {reason}")),
    }
}

fn received(reception: &ChannelReception) -> String {
    match reception {
        ChannelReception::Messages { messages } => format!("{} messages", messages.len()),
        ChannelReception::Answer { .. } => "an answer to the service".to_owned(),
        ChannelReception::Refused { reason } => short(&format!("refused: {reason}")),
    }
}

pub(super) fn advised(advice: &PluginReply) -> String {
    match advice {
        PluginReply::Memories { memories } => format!("{} memories", memories.len()),
        PluginReply::Risk { verdict } if verdict.reason.trim().is_empty() => {
            verdict.risk.as_str().to_owned()
        }
        PluginReply::Risk { verdict } => {
            short(&format!("{}: {}", verdict.risk.as_str(), verdict.reason))
        }
        PluginReply::Gate { verdict: GateVerdict::Allow } => "it passes".to_owned(),
        PluginReply::Gate { verdict: GateVerdict::Modify { text } } => {
            short(&format!("it passes as: {text}"))
        }
        PluginReply::Gate { verdict: GateVerdict::Block { reason } } => {
            short(&format!("blocked: {reason}"))
        }
        PluginReply::Rule { ruling } => ruling.to_text(),
        PluginReply::Conclude { result: None } => "the result stays".to_owned(),
        PluginReply::Conclude { result: Some(result) } => {
            short(&format!("the result is: {}", result.text))
        }
        PluginReply::Deliver { delivery } => delivered(delivery),
        PluginReply::Receive { reception } => received(reception),
        PluginReply::AnswerAsUser { text: None } => "no answer".to_owned(),
        PluginReply::AnswerAsUser { text: Some(text) } => short(text),
        PluginReply::Observe { reply: ObserverReply::Taken } => "taken".to_owned(),
        PluginReply::Observe { reply: ObserverReply::Unavailable { .. } } => {
            "not taken: it is unavailable".to_owned()
        }
        PluginReply::Observe { reply: ObserverReply::Denied } => {
            "not taken: it was refused".to_owned()
        }
        PluginReply::Condense { condensation: None } => "nothing is to be done".to_owned(),
        PluginReply::Condense { condensation: Some(wanted) } => {
            let summary = if wanted.summary.is_some() { ", with a summary" } else { "" };
            format!(
                "forget {} spans and mask {} entries{summary}",
                wanted.forget.len(),
                wanted.mask.len()
            )
        }
    }
}

/// An action in one line: its kind and its subject.
fn action_text(action: &Action) -> String {
    let about = match action {
        Action::Run { command, .. } => command.as_str(),
        Action::RunIpython { code, .. } => code.as_str(),
        Action::Browse { url } => url.as_str(),
        Action::Read { path, .. } | Action::Write { path, .. } => path.as_str(),
        Action::Recall { query } => query.as_str(),
        Action::Reply(reply) => {
            return reply
                .tool_calls
                .first()
                .map_or_else(|| "a reply".to_owned(), |call| short(&call.name));
        }
        _ => "",
    };
    if about.is_empty() {
        short(action.name())
    } else {
        short(&format!("{} {about}", action.name()))
    }
}

fn kind_word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
