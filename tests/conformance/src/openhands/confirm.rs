//! Consent cases, played by a task with `confirm`. The analyzer and the approver give the answers
//! of the case.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conclave_runtime::action::{Action, Observation, Reply, Turn};
use conclave_runtime::approval::Approval;
use conclave_runtime::message::ToolCall;
use conclave_runtime::native::{Assess, Failure, IntoTurn, Plugin};
use conclave_runtime::plugin_query::Verdict;
use conclave_runtime::risk::Risk;
use serde_json::{Value, json};

use super::Case;
use super::stage::{Move, Stage, Told, turn};

/// An analyzer's answers in order. `None` makes it fail.
type Risks = Vec<Option<Risk>>;

/// Parses the reference's word for a risk. `None` for UNKNOWN.
fn risk(word: &str) -> Result<Option<Risk>, String> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "unknown" => None,
        "low" => Some(Risk::Low),
        "medium" => Some(Risk::Medium),
        "high" => Some(Risk::High),
        _ => return Err(format!("there is no risk {word:?}")),
    })
}

fn analyzer(risks: Risks) -> Plugin {
    let risks = Arc::new(Mutex::new(VecDeque::from(risks)));
    Plugin::analyzer("analyzer", move |_: Assess| {
        let next = risks.lock().unwrap_or_else(PoisonError::into_inner).pop_front().flatten();
        let said = next.map(|risk| Verdict { risk, reason: "the case says so".to_owned() });
        std::future::ready(said.ok_or_else(|| Failure::new("nobody knows how risky it is")))
    })
}

/// Sets the task's `confirm` to the policy of a case. Adds no analyzer if all risks are unknown,
/// because this host then treats them as unknown.
fn confirming(stage: &mut Stage, policy: &Value, risks: Risks) -> Result<(), String> {
    let word = |key: &str| policy.get(key).and_then(Value::as_str);
    let kind = word("kind").or_else(|| policy.as_str()).ok_or("the policy has no kind")?;
    let kind = match kind {
        "NeverConfirm" => "never",
        "AlwaysConfirm" => "always",
        "ConfirmRisky" => "risky",
        other => other,
    };
    let mut keys = format!("policy = \"{kind}\"");
    if let Some(threshold) = word("threshold") {
        keys += &format!(", threshold = \"{}\"", threshold.to_ascii_lowercase());
    }
    if let Some(unknown) = policy.get("confirm_unknown").and_then(Value::as_bool) {
        keys += &format!(", unknown = {unknown}");
    }
    let is_rated = risks.iter().any(Option::is_some);
    let asks_nothing = kind == "risky"
        && !is_rated
        && policy.get("confirm_unknown").and_then(Value::as_bool) == Some(false)
        && word("threshold").is_none_or(|threshold| threshold != "UNKNOWN");
    if asks_nothing {
        // The config reader refuses it, and names the policy that does the same.
        stage.task += "confirm = \"never\"\n";
        return Ok(());
    }
    if is_rated {
        keys += ", analyzer = \"analyzer\"";
        stage.more += "[plugins.analyzer]\nsource = \"native:analyzer\"\n";
        stage.plugins.push(analyzer(risks));
    }
    stage.task += &format!("confirm = {{ {keys} }}\n");
    Ok(())
}

fn run() -> Move {
    Move::Turn(Action::Run { command: "ls".to_owned(), background: false }.into_turn())
}

fn tools(names: &[&str]) -> Vec<(String, Vec<Told>)> {
    names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect()
}

pub(super) async fn policy(case: &Case<'_>) -> Result<Value, String> {
    let risk = risk(case.get("risk").and_then(Value::as_str).unwrap_or("UNKNOWN"))?;
    let mut stage = Stage {
        tools: tools(&["run"]),
        approval: Some(Approval::Approved),
        ..Stage::of(vec![run()])
    };
    confirming(&mut stage, case.get("policy").ok_or("`in` has no policy")?, vec![risk])?;
    if let Some(problems) = stage.refused() {
        // The config reader names the key, then the allowed values.
        return if problems.contains("threshold") {
            Ok(json!({ "error": "threshold-cannot-be-unknown" }))
        } else {
            Err(problems)
        };
    }
    let seen = stage.play().await?;
    if seen.executed != ["run"] {
        return Err(format!("the action did not run: {:?}", seen.executed));
    }
    Ok(json!({ "confirm": !seen.asked.is_empty() }))
}

/// Plays a batch: one message with several calls. `finish` beside other calls is a tool whose
/// result ends the task. A single `finish` or `think` is the action of that name.
pub(super) async fn batch(case: &Case<'_>) -> Result<Value, String> {
    let mut calls = Vec::new();
    for (index, call) in case.list("batch")?.iter().enumerate() {
        let given = call
            .get("risk")
            .or_else(|| call.get(1))
            .or_else(|| case.get("risks")?.get(index))
            .or_else(|| case.get("risk"));
        let name = ["tool", "name", "action"]
            .iter()
            .find_map(|key| call.get(key))
            .or_else(|| call.get(0))
            .unwrap_or(call);
        let name =
            name.as_str().ok_or_else(|| format!("a call of a batch is a name, not {call}"))?;
        calls.push((name, risk(given.and_then(Value::as_str).unwrap_or("UNKNOWN"))?));
    }
    let names: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
    let made = match names.as_slice() {
        ["think"] => Action::Think { thought: "so".to_owned() }.into_turn(),
        ["finish"] => Action::Finish { outputs: json!({}) }.into_turn(),
        names => called(names),
    };
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let mut stage = Stage {
        tools: tools(&distinct),
        approval: Some(Approval::Approved),
        ..Stage::of(vec![Move::Turn(made)])
    };
    confirming(
        &mut stage,
        case.get("policy").ok_or("`in` has no policy")?,
        calls.iter().map(|(_, risk)| *risk).collect(),
    )?;
    let seen = stage.play().await?;
    Ok(json!({ "wait": !seen.asked.is_empty() }))
}

/// The argument with a call's index in its message, from 0.
pub(super) const PLACE: &str = "place";

/// Returns a message that calls these tools at once.
pub(super) fn called(names: &[&str]) -> Turn {
    let call = |(at, name): (usize, &&str)| {
        let id = format!("call-{at}");
        ToolCall { id, ..ToolCall::new(format!("world.{name}"), json!({ PLACE: at })) }
    };
    Action::Reply(Reply {
        tool_calls: names.iter().enumerate().map(call).collect(),
        ..Reply::default()
    })
    .into_turn()
}

/// Plays an agent of 2025-11 with one action. Only risky actions wait if an analyzer reports risks;
/// otherwise every action waits.
pub(super) async fn v0(case: &Case<'_>) -> Result<Value, String> {
    let awaiting = case.get("awaiting").and_then(Value::as_str);
    let kind = awaiting
        .or_else(|| case.get("action").and_then(Value::as_str))
        .ok_or("`in` has no action")?;
    let has_analyzer = case
        .get("analyzer")
        .is_some_and(|analyzer| !matches!(analyzer, Value::Bool(false) | Value::Null));
    let is_on =
        case.get("confirmation_mode").and_then(Value::as_bool).unwrap_or(awaiting.is_some());
    let given = case.get("risk").and_then(Value::as_str).map(risk).transpose()?.flatten();
    let approval = match case.get("user").and_then(Value::as_str) {
        None => None,
        Some("confirm" | "confirmed" | "user_confirmed") => Some(Approval::Approved),
        Some("reject" | "rejected" | "user_rejected") => {
            Some(Approval::Refused { reason: "the user rejected it".to_owned() })
        }
        Some(other) => return Err(format!("a user does not {other:?}")),
    };
    let moves = vec![Move::Turn(turn(&json!({ "action": kind, "args": example_args(kind) }))?)];
    let mut stage = Stage { tools: tools(&[kind]), approval, ..Stage::of(moves) };
    if is_on {
        let policy = json!({ "kind": "risky", "threshold": "HIGH", "confirm_unknown": true });
        confirming(&mut stage, &policy, if has_analyzer { vec![given] } else { Vec::new() })?;
    }
    let seen = stage.play().await?;
    let state = seen.state.as_str();
    let told = seen
        .since
        .last()
        .and_then(|since| since.iter().rev().find_map(|past| past.observation.as_ref()));
    let observation = told.map(|told| match told {
        Observation::Custom { name, .. } => name.as_str(),
        other => other.name(),
    });
    let observation = observation.map(|name| json!({ "observation": name }));
    let log = seen.log(case.wire());
    // The log contains the same action a second time.
    let republished = log
        .iter()
        .filter(|event| event["action"] == kind)
        .nth(1)
        .map(|event| event["args"].clone());
    Ok(
        json!({ "state": state, "states": seen.states(), "observation": observation, "republished": republished }),
    )
}

/// Returns arguments that an action of this kind accepts.
pub(super) fn example_args(kind: &str) -> Value {
    match kind {
        "run" => json!({ "command": "ls", "thought": "t" }),
        "run_ipython" => json!({ "code": "1", "thought": "t" }),
        "browse_interactive" => json!({ "browser_actions": "noop()" }),
        "browse" => json!({ "url": "u" }),
        "read" | "edit" => json!({ "path": "p" }),
        "write" => json!({ "path": "p", "content": "c" }),
        "call_tool_mcp" => json!({ "name": "n" }),
        "message" => json!({ "content": "c" }),
        _ => json!({}),
    }
}
