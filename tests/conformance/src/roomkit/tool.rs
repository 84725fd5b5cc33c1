//! The tool `delegate_task`: its schema, the result of a call, and the answer to a call that fails.

use std::collections::BTreeSet;

use conclave_runtime::delegation::{Delegation, delegate_tool};
use conclave_runtime::{Caller, RunOptions, ToolCalling};
use serde_json::{Value, json};

use super::Case;
use super::agents::{Agent, Script};
use super::delegate::settled;
use super::stage::{Open, Stage};
use crate::Runner;

/// The name of the tool.
const TOOL: &str = "delegate_task";
/// The default caller.
const CALLER: &str = "main-ai";

pub(super) async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match case.kind {
        "handle" => handle(runner, case).await,
        "handle_concurrent" => at_once(runner, case).await,
        "call_tool" => call(runner, case).await,
        "wire" | "wire_twice" => wire(runner, case).await,
        _ => Ok(schema(case)),
    }
}

/// Returns the core's schema of the tool for these agents.
fn schema(case: &Case<'_>) -> Value {
    let listed = match case.any(&["agents", "targets"]) {
        Some(Value::Object(by_id)) => by_id.iter().map(|(id, words)| json!([id, words])).collect(),
        Some(Value::Array(entries)) => entries.clone(),
        _ => Vec::new(),
    };
    let agent = |entry: &Value| {
        let at = |key: &str, place: usize| {
            entry.get(key).or_else(|| entry.get(place)).and_then(Value::as_str).map(str::to_owned)
        };
        let id = entry
            .as_str()
            .map(str::to_owned)
            .or_else(|| at("id", 0))
            .or_else(|| at("agent_id", 0))?;
        Some((id, at("description", 1)))
    };
    let agents: Vec<(String, Option<String>)> = listed.iter().filter_map(agent).collect();
    let borrowed: Vec<(&str, Option<&str>)> =
        agents.iter().map(|(id, words)| (id.as_str(), words.as_deref())).collect();
    let general = delegate_tool(&[]);
    let tool = delegate_tool(&borrowed);
    let schema = &tool.input_schema;
    // The order of an object's keys has no meaning, so it is sorted into the order of the cases.
    let known = ["agent", "task", "context", "share_channels"];
    let has = |name: &&str| schema.pointer(&format!("/properties/{name}")).is_some();
    let more = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .filter(|name| !known.contains(name));
    let properties: Vec<&str> = known.into_iter().filter(has).chain(more).collect();
    let lines: Vec<&str> = tool.description.lines().collect();
    let targets: Vec<&&str> = lines.iter().filter(|line| line.starts_with("  - ")).collect();
    json!({
        "name": tool.name, "properties": properties, "required": schema["required"], "enum": schema["properties"]["agent"]["enum"],
        "description_lines": targets, "is_generic": tool == general,
    })
}

/// Creates the room of a call. The caller has the conversation, on its own channel.
fn staged(case: &Case<'_>) -> Stage {
    let mut stage = Stage::of(case.given);
    let caller =
        case.any(&["calling_agent_id", "channel"]).and_then(Value::as_str).unwrap_or(CALLER);
    stage.front.retain(|id| id == caller);
    if stage.front.is_empty() {
        stage.add_front(Script { id: caller.to_owned(), ..Script::default() });
    }
    stage.room = case.text("room_id").unwrap_or(&stage.room).to_owned();
    let arguments = case.get("arguments").cloned().unwrap_or_default();
    let worker = arguments.get("agent").and_then(Value::as_str).filter(|agent| !agent.is_empty());
    let done = |id: &str| Script {
        id: id.to_owned(),
        replies: vec![Some("done".to_owned())],
        ..Script::default()
    };
    if case.given.get("registered").is_none() {
        stage.add_agent(done(worker.unwrap_or("agent-bg")));
    }
    let handler = case.given.get("handler").cloned().unwrap_or_default();
    let shares = handler.get("default_share_channels").filter(|shares| shares.is_array());
    if let Some(shares) = shares {
        stage.background.insert("channels".to_owned(), shares.clone());
    }
    if let Some(seconds) = handler.pointer("/cache/ttl_s").and_then(Value::as_u64) {
        stage.background.insert("cache".to_owned(), json!(format!("{seconds} s")));
    }
    if let Some(agent) = earlier(case).map(|(agent, _)| agent) {
        stage.add_agent(done(&agent));
    }
    let named = [arguments.get("share_channels"), shares]
        .into_iter()
        .flatten()
        .filter_map(Value::as_array)
        .flatten();
    let wanted: BTreeSet<&str> = named.filter_map(Value::as_str).chain(["terminal"]).collect();
    let is_given = case.given.pointer("/parent/channels").is_some();
    for channel in wanted {
        let is_there = stage.channels.iter().any(|(id, _)| id == channel);
        // If a case lists the channels, the room has no others.
        if !is_there && (!is_given || channel == "terminal") {
            stage.channels.push((channel.to_owned(), Default::default()));
        }
    }
    stage
}

/// Returns the agent and task of an earlier delegation.
fn earlier(case: &Case<'_>) -> Option<(String, String)> {
    let entry = case.get("cache_has")?.as_array()?;
    Some((entry.get(1)?.as_str()?.to_owned(), entry.get(2)?.as_str()?.to_owned()))
}

/// Lets the agent call its tool as a model would.
async fn handle(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open(runner).await?;
    let caller = open.stage.entry().to_owned();
    if let Some((agent, task)) = earlier(case) {
        finish(&open, &caller, &agent, &task).await?;
    }
    let before = open.follower.seen().started.len();
    let arguments = case.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let answer = called(&open, &caller, TOOL, arguments).await?;
    let seen = open.follower.seen();
    let returns = receipt(&answer);
    let started = seen.started.get(before);
    let mut got = json!({
        "returns": returns, "delegate_calls": seen.started.len() - before,
        "returns_from_cache": returns.get("from_cache") == Some(&json!(true)),
    });
    let Some(started) = started.cloned() else { return Ok(got) };
    let record = open.wait(&started.id.as_str().into()).await.map_err(|error| error.to_string())?;
    let record = settled(&open, record).await;
    let opening = open.follower.seen().openings.get(&started.room).cloned().unwrap_or_default();
    let shared: Vec<String> =
        opening.bindings.iter().flatten().map(|(id, _)| id.to_string()).collect();
    let context = if opening.inputs.is_object() { opening.inputs.clone() } else { json!({}) };
    got["delegate_called_with"] = json!({
        "room_id": open.room(), "agent_id": record.worker, "task": record.description, "context": context, "share_channels": shared,
        "notify": record.notify,
    });
    if case.get("cache_has").is_some() {
        got["max_entries"] = json!(most_entries(&open, &caller).await?);
    }
    Ok(got)
}

/// Plays several parallel calls, which the room handles one after the other.
async fn at_once(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open(runner).await?;
    let caller = open.stage.entry().to_owned();
    let agent = open
        .stage
        .agents
        .iter()
        .map(|agent| agent.script().id.clone())
        .find(|id| *id != caller)
        .ok_or("nobody works")?;
    let calls = case.any(&["calls", "n", "times"]);
    let count = calls
        .and_then(Value::as_u64)
        .or_else(|| calls.and_then(Value::as_array).map(|calls| calls.len() as u64))
        .unwrap_or(3);
    let call = |number: u64| {
        let wanted = Delegation {
            worker: agent.clone(),
            description: format!("task {number}"),
            ..Delegation::default()
        };
        let handle = open.handle.clone();
        let caller = caller.clone();
        tokio::spawn(async move { handle.delegate_for(caller, wanted).await.map(|task| task.id) })
    };
    let asked: Vec<_> = (0..count).map(call).collect();
    let mut started = 0;
    for asked in asked {
        started += u64::from(asked.await.is_ok_and(|answer| answer.is_ok()));
    }
    let seen = open.follower.seen();
    let (mut under_way, mut most) = (0_usize, 0);
    for happened in &seen.order {
        match happened.as_str() {
            "delegate_asked" => under_way += 1,
            "on_task_delegated" => under_way = under_way.saturating_sub(1),
            _ => {}
        }
        most = most.max(under_way);
    }
    Ok(json!({ "max_concurrent_delegate_calls": most, "delegate_calls": started }))
}

/// Delegates on the agent's behalf and waits for the end.
async fn finish(open: &Open, caller: &str, agent: &str, task: &str) -> Result<String, String> {
    let wanted = Delegation {
        worker: agent.to_owned(),
        description: task.to_owned(),
        ..Delegation::default()
    };
    let task = open.delegate(Some(caller), wanted).await.map_err(|refusal| refusal.message)?;
    open.wait(&task.id).await.map_err(|error| error.to_string())?;
    Ok(task.room.to_string())
}

/// Returns the number of earlier tasks in a worker's input, after more of them than the host passes
/// on.
async fn most_entries(open: &Open, caller: &str) -> Result<usize, String> {
    let agent = open
        .stage
        .agents
        .iter()
        .map(|agent| agent.script().id.clone())
        .find(|id| id != caller)
        .ok_or("nobody works")?;
    let mut last = String::new();
    for number in 0..5 {
        last = finish(open, caller, &agent, &format!("another task {number}")).await?;
    }
    let seen = open.follower.seen();
    let opening = seen.openings.get(last.as_str()).ok_or("the last room is not there")?;
    Ok(opening.inputs.get("previous_tasks").and_then(Value::as_array).map_or(0, Vec::len))
}

/// Calls a tool and returns its answer, which the agent reads in its next step.
async fn called(open: &Open, caller: &str, tool: &str, arguments: Value) -> Result<String, String> {
    let agent = open.stage.agent(caller).ok_or("nobody calls")?.clone();
    agent.will_call(tool, arguments);
    open.handle.say("terminal", "go").await.map_err(|refusal| refusal.message)?;
    let answer = |_: &super::followed::Seen| last_result(&agent);
    open.follower.until(answer).await.ok_or_else(|| "the tool does not answer".to_owned())
}

fn last_result(agent: &Agent) -> Option<String> {
    agent.seen().iter().rev().find_map(|step| step.results.last().cloned())
}

/// Converts the host's receipt into the reference's names.
fn receipt(answer: &str) -> Value {
    let mut read: Value =
        serde_json::from_str(answer).unwrap_or_else(|_| json!({ "error": answer }));
    for (ours, theirs) in [("room_id", "child_room_id"), ("agent", "agent_id")] {
        if let Some(value) = read.as_object_mut().and_then(|read| read.remove(ours)) {
            read[theirs] = value;
        }
    }
    read
}

/// Calls a tool by its name: in a room through its agent, without a room through the config.
async fn call(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let name = case.text("name").unwrap_or(TOOL);
    let arguments = case.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let mut stage = staged(case);
    let previous = case.any(&["previous_handler", "existing_handler", "other_tools"]);
    stage.tool = previous.map(|previous| {
        let given = previous.get(name).or_else(|| previous.get("returns")).unwrap_or(previous);
        let is_yes = given.is_boolean() || given.is_array();
        let answer = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        (name.to_owned(), if is_yes { "previous result".to_owned() } else { answer })
    });
    let has_no_room = case.given.get("room_context").is_some_and(Value::is_null);
    let payload = if has_no_room {
        let (_, prepared) = stage.prepare(runner).await?;
        match prepared
            .start_tool(Caller::You, name, arguments, RunOptions::default())
            .map(ToolCalling::outcome)
        {
            Err(error) => json!({ "error": error.to_string() }),
            Ok(outcome) => match outcome.await.map_err(|error| error.to_string())?.answer {
                Ok(answer) => json!(answer.content),
                Err(error) => json!({ "error": error.to_text(name) }),
            },
        }
    } else {
        let open = stage.open(runner).await?;
        let caller = open.stage.entry().to_owned();
        let answer = called(&open, &caller, name, arguments).await?;
        if name == TOOL { receipt(&answer) } else { told(&open, name, answer) }
    };
    Ok(json!({ "payload": payload }))
}

/// Returns another tool's answer, or an error for an unknown tool.
fn told(open: &Open, name: &str, answer: String) -> Value {
    let is_known = open.stage.tool.as_ref().is_some_and(|(known, _)| known == name);
    let read = || {
        serde_json::from_str(&answer).ok().filter(Value::is_object).unwrap_or_else(|| json!(answer))
    };
    if is_known { read() } else { json!({ "error": answer }) }
}

/// Checks that an agent has the tool because its task lists it, and only once.
async fn wire(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let times = case.number("times").unwrap_or(if case.op.contains("twice") { 2 } else { 1 });
    let is_wired = case
        .any(&["already_wired", "wired", "already"])
        .is_some_and(|value| *value != json!(false));
    let times = times + u64::from(is_wired);
    let mut stage = staged(case);
    stage.listed = usize::try_from(times).unwrap_or(1);
    let caller = stage.entry().to_owned();
    match stage.prepare(runner).await {
        Err(problems) => Ok(json!({ "error": problems })),
        Ok((_, prepared)) => {
            let setup = prepared.setup();
            let offered = setup
                .tasks
                .get(caller.as_str())
                .map(|task| task.toolbox.offered().clone())
                .unwrap_or_default();
            Ok(json!({ "tool_names": offered.iter().map(|tool| &tool.name).collect::<Vec<_>>() }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_has_their_names_and_a_text_is_an_error() {
        let read =
            receipt(r#"{"status":"delegated","task_id":"task-1","room_id":"r/1","agent":"a"}"#);
        assert_eq!(
            (&read["child_room_id"], &read["agent_id"], &read["status"]),
            (&json!("r/1"), &json!("a"), &json!("delegated"))
        );
        assert_eq!(receipt("no")["error"], json!("no"));
    }
}
