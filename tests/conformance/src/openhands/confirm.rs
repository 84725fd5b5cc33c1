//! Which actions wait for consent.

use conclave_core::control::confirm::{ConfirmPolicy, NoPolicy, risk_named};
use conclave_core::control::controller::{Answer, Controller, Options, Profile, Step};
use conclave_core::trajectory::{Event, Observation, Source, observation};
use serde_json::{Value, json};

use super::Case;
use super::control::states;
use super::forms::{action, user_message};

pub(super) fn policy(case: &Case<'_>) -> Result<Value, String> {
    let policy = match read(case)? {
        Ok(policy) => policy,
        Err(error) => return Ok(json!({ "error": error })),
    };
    let risk = risk_named(case.get("risk").and_then(Value::as_str).unwrap_or("UNKNOWN")).map_err(|error| error.to_string())?;
    Ok(json!({ "confirm": policy.asks(risk) }))
}

pub(super) fn batch(case: &Case<'_>) -> Result<Value, String> {
    let policy = match read(case)? {
        Ok(policy) => policy,
        Err(error) => return Ok(json!({ "error": error })),
    };
    let risk_of = |value: Option<&Value>| risk_named(value.and_then(Value::as_str).unwrap_or("UNKNOWN")).map_err(|error| error.to_string());
    let mut batch = Vec::new();
    for (index, call) in case.list("batch")?.iter().enumerate() {
        let given = call.get("risk").or_else(|| call.get(1)).or_else(|| case.get("risks")?.get(index)).or_else(|| case.get("risk"));
        let name = ["tool", "name", "action"].iter().find_map(|key| call.get(key)).or_else(|| call.get(0)).unwrap_or(call);
        batch.push((name.as_str().ok_or_else(|| format!("a call of a batch is a name, not {call}"))?, risk_of(given)?));
    }
    let wait = policy.asks_for_batch(batch);
    Ok(json!({ "wait": wait, "confirm": wait }))
}

fn read(case: &Case<'_>) -> Result<Result<ConfirmPolicy, &'static str>, String> {
    let policy = case.get("policy").ok_or("`in` has no policy")?;
    let word = |key: &str| policy.get(key).and_then(Value::as_str);
    let kind = word("kind").or_else(|| policy.as_str()).ok_or("the policy has no kind")?;
    let kind = match kind {
        "NeverConfirm" => "never",
        "AlwaysConfirm" => "always",
        "ConfirmRisky" => "risky",
        other => other,
    };
    match ConfirmPolicy::named(kind, word("threshold"), policy.get("confirm_unknown").and_then(Value::as_bool)) {
        Ok(policy) => Ok(Ok(policy)),
        Err(NoPolicy::UnknownThreshold) => Ok(Err("threshold-cannot-be-unknown")),
        Err(other) => Err(other.to_string()),
    }
}

/// An agent of 2025-11 that wants one action, and what its controller makes of that.
pub(super) fn v0(case: &Case<'_>) -> Result<Value, String> {
    let awaiting = case.get("awaiting").and_then(Value::as_str);
    let kind = awaiting.or_else(|| case.get("action").and_then(Value::as_str)).ok_or("`in` has no action")?;
    let has_analyzer = case.get("analyzer").is_some_and(|analyzer| !matches!(analyzer, Value::Bool(false) | Value::Null));
    let is_on = case.get("confirmation_mode").and_then(Value::as_bool).unwrap_or(awaiting.is_some());
    let mut controller = Controller::new(Options { confirmation: is_on, has_analyzer, ..Options::of(Profile::V2025_11) });
    begin(&mut controller);
    let mut wanted = action(&example(kind), Profile::V2025_11)?;
    // What fails to say how risky it is leaves it unknown.
    if let Some(risk) = case.get("risk").and_then(Value::as_str) {
        wanted = with_risk(wanted, risk)?;
    }
    controller.said(Answer::Action(Box::new(wanted)));
    controller.take_published();
    let state = controller.root().state.as_str();
    let mut got = json!({ "state": state, "waits": state == "awaiting_user_confirmation" });
    if let Some(user) = case.get("user").and_then(Value::as_str) {
        let user = match user {
            "confirm" | "confirmed" => "user_confirmed",
            "reject" | "rejected" => "user_rejected",
            other => other,
        };
        // The runtime has nothing to say to what still waits.
        answer(&mut controller, Observation::Null(observation::Null::default()));
        controller.take_published();
        let change = json!({ "action": "change_agent_state", "source": "user", "args": { "agent_state": user } });
        controller.receive(Event::from_json_of(&change, Profile::V2025_11.era()).map_err(|error| error.to_string())?);
        let published = controller.take_published();
        got["states"] = json!(states(&published));
        let again = published.iter().find(|event| event.kind() == kind && event.action().is_some());
        got["republished"] = again.map_or(Value::Null, |event| event.to_json(Profile::V2025_11.era())["args"].clone());
        let observation = if user == "user_rejected" {
            Observation::UserRejected(observation::UserRejected::default())
        } else {
            Observation::Null(observation::Null::default())
        };
        got["observation"] = json!({ "observation": if user == "user_rejected" { "user_rejected" } else { kind } });
        answer(&mut controller, observation);
        got["state_after_observation"] = json!(controller.root().state.as_str());
        got["state"] = got["state_after_observation"].clone();
    }
    Ok(got)
}

/// The user says something, and what was remembered of it comes in: the agent is asked.
fn begin(controller: &mut Controller) {
    controller.receive(user_message("go"));
    let step = answer(controller, Observation::Null(observation::Null::default()));
    debug_assert_eq!(step, Step::Ask { level: 0 });
    controller.take_published();
}

fn answer(controller: &mut Controller, observation: Observation) -> Step {
    let cause = controller.root().pending.as_ref().and_then(|pending| pending.id).unwrap_or_default();
    controller.receive(Event::from(observation).from_source(Source::Environment).caused_by(cause)).1
}

fn example(kind: &str) -> Value {
    json!({ "action": kind, "args": example_args(kind) })
}

/// What an action of this kind needs.
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

fn with_risk(action: conclave_core::trajectory::Action, risk: &str) -> Result<conclave_core::trajectory::Action, String> {
    let era = Profile::V2025_11.era();
    let mut form = Event::from(action).to_json(era);
    let number = match risk_named(risk).map_err(|error| error.to_string())? {
        None => -1,
        Some(risk) => risk as i64,
    };
    form["args"]["security_risk"] = json!(number);
    super::forms::action(&form, Profile::V2025_11)
}
