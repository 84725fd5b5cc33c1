//! Several calls of one message, carried out by the room's round, and guards, played by a gate.

use conclave_runtime::consult::GateVerdict;
use conclave_runtime::native::{Check, Failure, IntoTurn, Plugin};
use conclave_runtime::notice::Notice;
use serde_json::{Value, json};

use super::Case;
use super::confirm::called;
use super::stage::{Move, Seen, Stage, Told};

pub(super) async fn parallel(case: &Case<'_>) -> Result<Value, String> {
    if let Some(declared) = case.get("declared").and_then(Value::as_object) {
        let names: Vec<&str> = declared.keys().map(String::as_str).collect();
        return serialised(&names, case.flag("same_tool")).await;
    }
    let calls = case.list("calls")?;
    let name =
        |call: &Value| call.as_str().or_else(|| call.get("tool")?.as_str()).or_else(|| call.get("name")?.as_str()).map(str::to_owned);
    let names = calls.iter().map(|call| name(call).ok_or_else(|| format!("{call} is no call"))).collect::<Result<Vec<String>, String>>()?;
    let seen = round(&names, calls).await?;
    let results: Vec<_> =
        seen.since.last().into_iter().flat_map(|since| since.iter()).filter_map(|past| past.observation.as_ref()).collect();
    let in_short = case.expect.get("events").and_then(Value::as_array).is_some_and(|events| events.iter().all(Value::is_string));
    let event = |told: &&conclave_runtime::action::Observation| match told {
        conclave_runtime::action::Observation::Tool(result) if !result.is_error => json!("observation"),
        _ if in_short => json!("agent_error"),
        told => json!({ "agent_error": told.content() }),
    };
    // The order in which tools began is the scheduler's; the case names them in the order of their calls.
    let executed: Vec<&String> = names.iter().filter(|name| seen.executed.contains(name)).collect();
    let discarded: Vec<&String> = names.iter().filter(|name| !seen.executed.contains(name)).collect();
    Ok(json!({ "events": results.iter().map(event).collect::<Vec<_>>(), "executed": executed, "discarded": discarded }))
}

/// `finish` is a tool whose result ends the task.
async fn round(names: &[String], calls: &[Value]) -> Result<Seen, String> {
    let mut tools: Vec<(String, Vec<Told>)> = Vec::new();
    for (name, call) in names.iter().zip(calls) {
        let told = match call.get("raises").and_then(Value::as_str) {
            Some(raised) => Told::Fails(raised.to_owned()),
            None => Told::Value(json!("done")),
        };
        match tools.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(told),
            None => tools.push((name.clone(), vec![told])),
        }
    }
    let listed: Vec<String> = tools
        .iter()
        .map(|(name, _)| match name.as_str() {
            "finish" => "{ tool = \"world.finish\", final = true }".to_owned(),
            name => format!("\"world.{name}\""),
        })
        .collect();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let task = format!("tools = [{}]\n", listed.join(", "));
    Stage { tools, task, ..Stage::of(vec![Move::Turn(called(&words))]) }.play().await
}

/// Which calls had to wait for another one of their message: those that began only after one had ended.
async fn serialised(names: &[&str], same_tool: bool) -> Result<Value, String> {
    let called: Vec<String> = names.iter().map(|name| if same_tool { "t".to_owned() } else { (*name).to_owned() }).collect();
    let seen = round(&called, &vec![Value::Null; called.len()]).await?;
    let steps = seen.notices().filter_map(|notice| match notice {
        Notice::ToolCalled { .. } => Some(true),
        Notice::ToolAnswered { .. } => Some(false),
        _ => None,
    });
    let at_once = steps.take_while(|begins| *begins).count();
    let waited: Vec<&&str> = names.iter().skip(at_once).collect();
    let groups = if waited.is_empty() { json!([]) } else { json!([names]) };
    Ok(json!({ "serialised": groups, "parallel": at_once > 1 }))
}

/// A hook's command is a gate: it ends well and lets pass, ends with 2 and blocks, or fails.
pub(super) async fn hook(case: &Case<'_>) -> Result<Value, String> {
    let word = case.get("stdout_json").or_else(|| case.get("stdout")).cloned().unwrap_or_default();
    let word = word.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(word);
    let blocks = word.get("decision").is_some_and(|decision| decision == "deny" || decision == "block")
        || word.get("continue").is_some_and(|goes_on| goes_on == &json!(false));
    let exit = case.get("exit").and_then(Value::as_i64);
    let gate = Plugin::gate("guard", move |_: Check| {
        std::future::ready(match exit {
            Some(2) => Ok(GateVerdict::Block { reason: "the hook says no".to_owned() }),
            Some(0) if blocks => Ok(GateVerdict::Block { reason: "the hook says no".to_owned() }),
            Some(0) => Ok(GateVerdict::Allow),
            _ => Err(Failure::new("the hook failed")),
        })
    });
    let delegation = conclave_runtime::action::Action::from_args("delegate_task", &json!({ "agent": "child", "task": "work" }));
    let delegation = delegation.map_err(|error| error.to_string())?.into_turn();
    let more = "[plugins.guard]\nsource = \"native:guard\"\n[[gates]]\non = \"delegate\"\nplugin = \"guard\"\n".to_owned();
    let child = Some(("child".to_owned(), Vec::new()));
    let seen = Stage { child, more, plugins: vec![gate], ..Stage::of(vec![Move::Turn(delegation)]) }.play().await?;
    let has = |is: &dyn Fn(&Notice) -> bool| seen.notices().any(is);
    let (began, blocked) =
        (has(&|notice| matches!(notice, Notice::BackgroundStarted { .. })), has(&|notice| matches!(notice, Notice::GateBlocked { .. })));
    match (began, blocked) {
        (true, false) => Ok(json!({ "verdict": "allow" })),
        (false, true) => Ok(json!({ "verdict": "deny" })),
        other => Err(format!("the delegation neither began nor was blocked: {other:?}")),
    }
}
