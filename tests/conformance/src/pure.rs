//! Calls without an agent: functions that the host itself calls (docs/internals/conformance.md
//! names the callers), and batches of jobs that are not runs.

use std::time::Duration;

use conclave_core::tool_calls::sequence::{Expected, Sequence, SequencePattern};
use conclave_core::tool_calls::truncate::{HistoryEntry, Limits, PromptRole, RetainedEntry, fit};
use conclave_core::tool_calls::{json, routing, xml};
use conclave_runtime::batch::{Batch, ItemEnd, OnError, run_all};
use conclave_runtime::task_options::Overflow;
use serde_json::{Map, Value, json as value};

type Call = Map<String, Value>;

/// The ops that [`answer`] supports.
const OPS: [&str; 7] = [
    "parse_done_sequence",
    "parse_address",
    "extract_json",
    "json_field",
    "find_xml",
    "batch",
    "fit_history",
];

/// Returns whether an op is a single function of the host.
pub(crate) fn is_pure(op: &str) -> bool {
    OPS.contains(&op)
}

/// Returns the result of the call, or `None` if it needs an agent.
pub(crate) async fn answer(op: &str, call: &Call) -> Option<Result<Value, String>> {
    Some(match op {
        "parse_done_sequence" => {
            each(call, "patterns", |pattern| sequence(pattern.as_str().unwrap_or_default()))
        }
        "parse_address" => each(call, "cases", |case| {
            let (text, prefix) = pair(case);
            routing::addressed(text, prefix)
                .map_or_else(|| value!([null, text]), |(name, rest)| value!([name, rest]))
        }),
        "extract_json" => each(call, "texts", |text| {
            value!(json::first_objects(text.as_str().unwrap_or_default(), usize::MAX))
        }),
        "json_field" => each(call, "cases", |case| {
            let (text, name) = pair(case);
            json::field(text, name).unwrap_or_else(|| value!(""))
        }),
        "find_xml" => {
            each(call, "texts", |text| value!(xml::candidates(text.as_str().unwrap_or_default())))
        }
        "batch" => batch(call).await,
        "fit_history" => fit_history(call),
        _ => return None,
    })
}

fn each(call: &Call, key: &str, answer: impl Fn(&Value) -> Value) -> Result<Value, String> {
    let cases =
        call.get(key).and_then(Value::as_array).ok_or_else(|| format!("it has no {key}"))?;
    Ok(cases.iter().map(answer).collect())
}

fn pair(case: &Value) -> (&str, &str) {
    let word = |index: usize| case.get(index).and_then(Value::as_str).unwrap_or_default();
    (word(0), word(1))
}

fn sequence(text: &str) -> Value {
    let Ok(sequence) = Sequence::parse(text) else { return value!("error") };
    let event = |event: &Expected| match event {
        Expected::Tool => value!(["tool", null]),
        Expected::SpecificTool(name) => value!(["specific_tool", name]),
        Expected::AgentResponse => value!(["agent_response", null]),
        Expected::LlmResponse => value!(["llm_response", null]),
        Expected::UserResponse => value!(["user_response", null]),
        Expected::NoResponse => value!(["no_response", null]),
        Expected::ContentMatch(pattern) => {
            value!(["content_match", pattern.as_ref().map(SequencePattern::as_str)])
        }
    };
    sequence.events().iter().map(event).collect()
}

/// Plays the fitting of a history. Sizes are characters. The compared size of the last message is
/// not in the list of cut messages.
fn fit_history(call: &Call) -> Result<Value, String> {
    let size =
        |key: &str| call.get(key).and_then(Value::as_u64).ok_or_else(|| format!("it has no {key}"));
    let limits = Limits::new(size("context")?, size("max_output")?, size("min_output")?, 1);
    let strategy = match call.get("strategy").and_then(Value::as_str) {
        Some("drop_turns") => Overflow::DropTurns,
        _ => Overflow::Truncate,
    };
    let rows = call.get("history").and_then(Value::as_array).ok_or("it has no history")?;
    let message = call
        .get("message")
        .filter(|message| !message.is_null())
        .map(|message| value!(["user", message, 0]));
    let rows: Vec<&Value> = rows.iter().chain(&message).collect();
    let entry = |row: &&Value| {
        let padding = row.get(2).and_then(Value::as_u64).unwrap_or_default();
        let role = match pair(row).0 {
            "system" => PromptRole::System,
            "assistant" => PromptRole::Assistant,
            "tool" => PromptRole::Tool,
            _ => PromptRole::User,
        };
        HistoryEntry {
            role,
            text: padding.saturating_add(pair(row).1.chars().count() as u64),
            rest: 0,
        }
    };
    let entries: Vec<HistoryEntry> = rows.iter().map(entry).collect();
    let Ok(plan) = fit(&entries, &limits, strategy) else { return Ok(value!("error")) };
    let kept: Vec<(usize, bool)> = plan
        .keep
        .iter()
        .map(|kept| match *kept {
            RetainedEntry::Whole(index) => (index, false),
            RetainedEntry::Cut { index, .. } => (index, true),
        })
        .collect();
    let words = |(index, _): &(usize, bool)| rows.get(*index).map_or(("", ""), |row| pair(row));
    let cut: Vec<bool> =
        kept.iter().take(kept.len().saturating_sub(1)).map(|(_, cut)| *cut).collect();
    Ok(value!({
        "roles": kept.iter().map(|entry| words(entry).0).collect::<Vec<_>>(),
        "cut": cut,
        "count": kept.len(),
        "first": kept.first().map(|entry| words(entry).0),
        "last": kept.last().map(|entry| words(entry).1),
    }))
}

async fn batch(call: &Call) -> Result<Value, String> {
    let jobs = call.get("jobs").and_then(Value::as_array).cloned().ok_or("it has no jobs")?;
    let flag = |key: &str| call.get(key).and_then(Value::as_bool);
    let on_error = match call.get("policy").and_then(Value::as_str) {
        None | Some("raise") => OnError::Stop,
        Some("none") => OnError::Null,
        Some("return") => OnError::Report,
        Some(other) => return Err(format!("there is no policy {other}")),
    };
    let concurrency = if flag("sequential").unwrap_or(true) { 1 } else { jobs.len() };
    let batch = Batch {
        concurrency,
        on_error,
        stop_on_first: flag("stop_on_first").unwrap_or_default(),
        ..Batch::default()
    };
    let jobs = jobs.into_iter().map(|job| move || run(job)).collect();
    let ended = run_all(jobs, &batch, |_| ()).await;
    if on_error == OnError::Stop
        && ended.items.iter().any(|item| matches!(item, ItemEnd::Failed(())))
    {
        return Ok(value!("raised"));
    }
    let shown = |item: ItemEnd<Value, ()>| match item {
        ItemEnd::Value(value) => value,
        ItemEnd::Failed(()) => value!("error"),
        ItemEnd::Null | ItemEnd::Cancelled => Value::Null,
    };
    Ok(ended.items.into_iter().map(shown).collect())
}

async fn run(job: Value) -> Result<Option<Value>, ()> {
    if let Some(delay) = job.get("delay_ms").and_then(Value::as_u64) {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    if job.get("never").is_some() {
        std::future::pending::<()>().await;
    }
    if job.get("error").is_some() {
        return Err(());
    }
    Ok(job.get("value").filter(|value| !value.is_null()).cloned())
}
