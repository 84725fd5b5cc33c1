//! The report of calls, in the form of the expectations. Contents are trimmed; the unnamed final
//! result tool is `final_result`.

use conclave_runtime::history::History;
use conclave_runtime::message::{Label, Message, Role, ToolCall};
use conclave_runtime::outcome::{Outcome, Status};
use serde_json::{Map, Value, json};

use crate::watch::Step;

/// The name of the unnamed final result tool in the config.
const FINAL_RESULT: &str = "final_result_tool";

/// Returns the report of `run`: result, end, error, typed, steps, trace. The caller, who knows the
/// agents, adds histories and model calls.
#[must_use]
pub(crate) fn run(outcome: &Outcome, steps: &[Step], is_typed: bool) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    put("result", result(outcome));
    put("end", json!(outcome.status.as_str()));
    if outcome.status == Status::InfLoop {
        put("error", json!("inf_loop"));
    }
    if is_typed {
        put("typed", typed(outcome.typed.as_ref()));
    }
    put_steps(&mut entry, steps);
    entry
}

/// Returns the report of `steps`: the pending message, and the steps that led to it.
#[must_use]
pub(crate) fn pending(outcome: &Outcome, steps: &[Step]) -> Map<String, Value> {
    let mut entry = Map::new();
    let message = steps.last().and_then(|step| step.message.as_ref()).or(outcome.message.as_ref());
    entry.insert(
        "result".to_owned(),
        message.map_or(Value::Null, |message| Value::Object(spoken(message))),
    );
    put_steps(&mut entry, steps);
    entry
}

fn put_steps(entry: &mut Map<String, Value>, steps: &[Step]) {
    entry.insert("steps".to_owned(), json!(steps.len()));
    entry.insert("trace".to_owned(), steps.iter().map(row).collect());
}

/// Returns the answer of one responder, or null if there was none.
#[must_use]
pub(crate) fn answer(message: Option<&Message>) -> Value {
    let Some(message) = message else { return Value::Null };
    let mut entry = spoken(message);
    entry.insert("tainted".to_owned(), json!(message.labels.contains(&Label::Untrusted)));
    if message.tool_results.len() > 1 {
        let results: Map<_, _> = message
            .tool_results
            .iter()
            .map(|result| (result.call_id.clone(), json!(result.content.trim())))
            .collect();
        entry.insert("results".to_owned(), Value::Object(results));
    }
    Value::Object(entry)
}

/// Returns the entries of a history: role, content and attached fields.
#[must_use]
pub(crate) fn history(history: &History) -> Vec<Value> {
    history.iter().flat_map(|message| entries(message)).collect()
}

/// Returns the number of messages that make the first `entries` entries of a history.
#[must_use]
pub(crate) fn messages_of(history: &History, count: usize) -> usize {
    let mut shown = 0;
    let before = |message: &&std::sync::Arc<Message>| {
        shown += entries(message).len();
        shown <= count
    };
    history.iter().take_while(before).count()
}

fn entries(message: &Message) -> Vec<Value> {
    if !message.tool_results.is_empty() {
        let result = |result: &conclave_runtime::message::ToolResult| json!(["tool", result.content.trim(), { "call_id": result.call_id }]);
        return message.tool_results.iter().map(result).collect();
    }
    let role = match message.sender {
        Role::Llm => "assistant",
        Role::System => "system",
        Role::Agent | Role::User => "user",
    };
    let content = message.text().trim();
    if message.tool_calls.is_empty() || message.sender != Role::Llm {
        return vec![json!([role, content])];
    }
    let call =
        |call: &ToolCall| json!({ "id": call.id, "name": call.name, "args": call.arguments });
    vec![
        json!([role, content, { "calls": message.tool_calls.iter().map(call).collect::<Vec<_>>() }]),
    ]
}

fn result(outcome: &Outcome) -> Value {
    let is_nothing =
        outcome.content.is_none() && outcome.tools.is_empty() && outcome.value.is_none();
    if is_nothing && outcome.message.is_none() {
        return Value::Null;
    }
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    put("content", json!(outcome.content.as_deref().unwrap_or_default().trim()));
    put("status", json!(outcome.status.as_str()));
    put("recipient", json!(outcome.recipient.as_deref().unwrap_or_default()));
    put("tools", tools(&outcome.tools));
    // L-088: the caller treats the result as its user's message.
    put("sender", json!("User"));
    if let Some(value) = outcome
        .value
        .as_ref()
        .filter(|value| value.is_number() || value.is_array() || value.is_object())
    {
        put("value", value.clone());
    }
    Value::Object(entry)
}

/// Returns the content, sender, recipient and tools of a message.
fn spoken(message: &Message) -> Map<String, Value> {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| drop(entry.insert(key.to_owned(), value));
    put("content", json!(message.text().trim()));
    put("sender", json!(role_word(message.sender)));
    put("recipient", json!(message.recipient.as_deref().unwrap_or_default()));
    put("tools", tools(&message.tools));
    entry
}

fn row(step: &Step) -> Value {
    let names = |message: &Message| {
        message.tools.iter().map(|call| json!(tool_name(&call.name))).collect::<Vec<_>>()
    };
    let message = step.message.as_deref();
    json!({
        "task": step.task,
        "by": by(&step.by),
        "sender": message.map_or("User", |message| role_word(message.sender)),
        "recipient": message.and_then(|message| message.recipient.as_deref()).unwrap_or_default(),
        "content": message.map_or("", Message::text).trim(),
        "tools": message.map(names).unwrap_or_default(),
    })
}

fn by(name: &str) -> &str {
    [Role::Llm, Role::Agent, Role::User, Role::System]
        .into_iter()
        .find(|role| role.as_str() == name)
        .map_or(name, |role| role_word(role))
}

fn role_word(role: Role) -> &'static str {
    match role {
        Role::Llm => "LLM",
        Role::Agent => "Agent",
        Role::User => "User",
        Role::System => "System",
    }
}

/// Returns the name of a tool in scenarios.
#[must_use]
pub(crate) fn tool_name(name: &str) -> &str {
    if name == FINAL_RESULT { "final_result" } else { name }
}

fn tools(calls: &[ToolCall]) -> Value {
    calls
        .iter()
        .map(|call| json!({ "name": tool_name(&call.name), "args": call.arguments }))
        .collect()
}

/// Returns a value in which calls have the tool names of scenarios.
fn typed(value: Option<&Value>) -> Value {
    let Some(value) = value else { return Value::Null };
    match (value.get("name").and_then(Value::as_str), value.get("arguments")) {
        (Some(name), Some(arguments)) => json!({ "name": tool_name(name), "args": arguments }),
        _ => value.clone(),
    }
}
