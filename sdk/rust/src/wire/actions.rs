//! Conversions between actions of the contract and actions of a log. They lose nothing that both
//! can hold; actions without a type in the contract travel in its `custom` case.

use serde_json::{Map, Value, json};

use super::refused;
use crate::bindings::agent::conclave::plugin::actions::{
    Action, BackgroundTask, PlanState, ReadFile, Reply, RunCell, RunCommand, WriteFile,
};
use crate::trajectory::action as log;
use crate::trajectory::{Action as Logged, Era, LooseId, Source, TrajectoryEvent};
use crate::{Error, Result, Turn, act, call};

/// The turn's actions in the form of that era.
pub(super) fn forms(turn: &Turn, era: Era) -> Vec<Value> {
    match raw_custom(turn) {
        Some(form) if TrajectoryEvent::from_json(&form).is_err() => vec![form],
        _ => events(turn).iter().map(|event| event.to_json(era)).collect(),
    }
}

/// The turn's actions as events. A custom action that no log knows gives none.
pub(super) fn events(turn: &Turn) -> Vec<TrajectoryEvent> {
    if let Some(form) = raw_custom(turn) {
        return TrajectoryEvent::from_json(&form)
            .into_iter()
            .map(|event| event.from_source(Source::Agent))
            .collect();
    }
    let thought = turn.thought().to_owned();
    let action: Logged = match turn.action().clone() {
        Action::Reply(reply) => return reply_events(reply, turn),
        Action::Null => log::Null::default().into(),
        Action::Run(run) => log::Run {
            command: run.command,
            background: run.background,
            thought,
            ..Default::default()
        }
        .into(),
        Action::Kill(id) => log::Kill { command_id: LooseId::Number(id), thought }.into(),
        Action::RunCell(cell) => {
            let RunCell { code, kernel_init_code } = cell;
            log::RunIpython { code, kernel_init_code, thought, ..Default::default() }.into()
        }
        Action::Browse(url) => log::Browse { url, thought, ..Default::default() }.into(),
        Action::Read(ReadFile { path, start, end }) => {
            log::Read { path, start, end, thought, ..Default::default() }.into()
        }
        Action::Write(WriteFile { path, content, start, end }) => {
            log::Write { path, content, start, end, thought, ..Default::default() }.into()
        }
        Action::Recall(query) => log::Recall { query, thought, ..Default::default() }.into(),
        Action::AddTask(task) => log::AddTask {
            parent: task.parent,
            goal: task.goal,
            subtasks: list(&task.subtasks),
            thought,
        }
        .into(),
        Action::ModifyTask(task) => log::ModifyTask {
            task_id: LooseId::Text(task.task_id),
            state: state_name(task.state).into(),
            thought,
        }
        .into(),
        Action::Delegate(delegate) => {
            log::Delegate { agent: delegate.task, inputs: object(&delegate.inputs), thought }.into()
        }
        Action::DelegateTask(background) => delegate_task(background, thought).into(),
        Action::Think(thought) => log::Think { thought }.into(),
        Action::Talk(content) if turn.waits() => {
            log::Message { content, wait_for_response: true, ..Default::default() }.into()
        }
        Action::Talk(content) => log::Talk { content }.into(),
        Action::Finish(outputs) => finish(&outputs, thought).into(),
        Action::Reject(outputs) => {
            log::Reject { outputs: outcome(&outputs, "reason"), thought }.into()
        }
        Action::Custom(_) => return Vec::new(),
    };
    vec![TrajectoryEvent::from(action).from_source(Source::Agent)]
}

/// Returns the turn of a log's action.
pub(super) fn turn(action: Logged) -> Result<Turn> {
    let thought = action.thought().to_owned();
    let turn: Turn = match action {
        Logged::Null(_) => act::nothing(),
        // The contract's own cases have no place for the fields that 2025-11 adds to commands and
        // cells.
        Logged::Run(run)
            if run
                == (log::Run {
                    command: run.command.clone(),
                    background: run.background,
                    thought: run.thought.clone(),
                    ..Default::default()
                }) =>
        {
            Action::Run(RunCommand { command: run.command, background: run.background }).into()
        }
        Logged::Kill(kill) => match kill.command_id.number() {
            Some(id) => act::kill(id),
            None => {
                return Err(Error::InvalidArguments(format!(
                    "kill: `command_id` must be a number, and is {}",
                    kill.command_id
                )));
            }
        },
        Logged::RunIpython(cell) => {
            Action::RunCell(RunCell { code: cell.code, kernel_init_code: cell.kernel_init_code })
                .into()
        }
        Logged::Browse(page) => act::browse(page.url),
        Logged::Read(read) if read.view_range.is_none() => {
            act::read_lines(read.path, read.start, read.end)
        }
        Logged::Write(write) => act::write_lines(write.path, write.content, write.start, write.end),
        Logged::Recall(recall) => act::recall(recall.query),
        Logged::AddTask(task) => {
            act::add_tasks(task.parent, task.goal, Value::Array(task.subtasks))
        }
        Logged::ModifyTask(task) => {
            act::modify_task(task.task_id.to_string(), state_of(&task.state)?)
        }
        Logged::Delegate(delegate) => act::delegate(delegate.agent, Value::Object(delegate.inputs)),
        Logged::DelegateTask(task) => background(task),
        Logged::Think(think) => return Ok(act::think(think.thought)),
        Logged::Talk(talk) => act::talk(talk.content),
        Logged::Finish(finish) => finished(finish),
        Logged::Reject(reject) => match reject.outputs.get("reason").and_then(Value::as_str) {
            Some(reason) if reject.outputs.len() == 1 => crate::reject(reason),
            _ => crate::reject(Value::Object(reject.outputs)),
        },
        Logged::Message(message) => return Ok(message_turn(message)),
        Logged::CallToolMcp(tool) => call(tool.name, Value::Object(tool.arguments)),
        other => custom(&other)?,
    };
    Ok(turn.because(thought))
}

/// Returns the reply for several actions: speech and tool calls.
pub(super) fn reply_of(forms: &[Value]) -> Result<Turn> {
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for form in forms {
        let one = Turn::from_value(form)?;
        let Action::Reply(reply) = one.action().clone() else {
            return Err(Error::invalid_arguments(
                "only `message` and `call_tool_mcp` can stand in a list: write one action at a time",
            ));
        };
        content.extend(reply.content);
        calls.extend(reply.tool_calls);
    }
    let content = (!content.is_empty()).then(|| content.join("\n"));
    Ok(Reply {
        completion: None,
        content,
        tool_calls: calls,
        recipient: None,
        attachments: Vec::new(),
    }
    .into())
}

/// A custom action unchanged, with its thought, if any, among its arguments.
fn raw_custom(turn: &Turn) -> Option<Value> {
    let Action::Custom(custom) = turn.action() else { return None };
    let mut arguments = object(&custom.arguments);
    let takes_thought = Logged::fields_of(&custom.name, Era::V2025)
        .is_none_or(|(known, _)| known.contains(&"thought"));
    if !turn.thought().is_empty() && takes_thought {
        arguments.insert("thought".into(), turn.thought().into());
    }
    Some(json!({ "action": custom.name, "args": arguments }))
}

/// The events for a reply: a message with its text, then a call for each tool call. The log's
/// action for a call by a tool's name is that of MCP. A reply with neither is an empty message.
fn reply_events(reply: Reply, turn: &Turn) -> Vec<TrajectoryEvent> {
    let mut actions: Vec<Logged> = Vec::new();
    if reply.content.is_some() || reply.tool_calls.is_empty() {
        let content = reply.content.unwrap_or_default();
        actions.push(
            log::Message { content, wait_for_response: turn.waits(), ..Default::default() }.into(),
        );
    }
    let calls = reply.tool_calls.into_iter().map(|call| {
        let thought = turn.thought().to_owned();
        log::CallToolMcp {
            name: call.name,
            arguments: object(&call.arguments),
            thought,
            ..Default::default()
        }
        .into()
    });
    actions.extend(calls);
    actions
        .into_iter()
        .map(|action| TrajectoryEvent::from(action).from_source(Source::Agent))
        .collect()
}

fn message_turn(message: log::Message) -> Turn {
    let mut turn = crate::say(message.content);
    if message.wait_for_response {
        turn = turn.and_wait_for_user();
    }
    for (key, urls) in [("file-urls", message.file_urls), ("image-urls", message.image_urls)] {
        if let Some(urls) = urls {
            turn = turn.with_extra(key, urls);
        }
    }
    turn
}

/// The finish of a log. A text is the answer itself: 2025-11 has a field for it, and 2024-07 finds
/// it among the outputs.
fn finish(outputs: &str, thought: String) -> log::Finish {
    let final_thought = match serde_json::from_str(outputs) {
        Ok(Value::String(answer)) => answer,
        _ => String::new(),
    };
    log::Finish { final_thought, outputs: outcome(outputs, "content"), thought }
}

fn finished(finish: log::Finish) -> Turn {
    let log::Finish { final_thought, outputs, .. } = finish;
    let is_answer = outputs.is_empty()
        || (outputs.len() == 1
            && outputs.get("content").and_then(Value::as_str) == Some(&final_thought));
    if !final_thought.is_empty() && is_answer {
        return crate::finish(final_thought);
    }
    let turn = crate::finish(Value::Object(outputs));
    if final_thought.is_empty() { turn } else { turn.with_extra("final-thought", final_thought) }
}

fn delegate_task(background: BackgroundTask, thought: String) -> log::DelegateTask {
    let BackgroundTask { worker, description, context, share_channels, .. } = background;
    log::DelegateTask {
        agent: worker,
        task: description,
        context: object(&context),
        share_channels,
        thought,
    }
}

fn background(task: log::DelegateTask) -> Turn {
    let log::DelegateTask { agent, task, context, share_channels, .. } = task;
    crate::delegate(agent).task(task).context(Value::Object(context)).share(share_channels).start()
}

/// Returns the turn of a kind that the contract does not type.
fn custom(action: &Logged) -> Result<Turn> {
    let form = TrajectoryEvent::from(action.clone()).to_json(Era::V2025);
    let mut arguments = form.get("args").cloned().unwrap_or_default();
    if let Some(arguments) = arguments.as_object_mut() {
        arguments.remove("thought");
    }
    // A decoded action always encodes; checked nevertheless, so that no action is lost silently.
    TrajectoryEvent::from_json(&json!({ "action": action.kind(), "args": arguments }))
        .map_err(|malformed| refused(&malformed))?;
    Ok(act::custom(action.kind(), arguments))
}

fn state_name(state: PlanState) -> &'static str {
    match state {
        PlanState::Open => "open",
        PlanState::InProgress => "in_progress",
        PlanState::Completed => "completed",
        PlanState::Verified => "verified",
        PlanState::Abandoned => "abandoned",
    }
}

fn state_of(name: &str) -> Result<PlanState> {
    let states = [
        PlanState::Open,
        PlanState::InProgress,
        PlanState::Completed,
        PlanState::Verified,
        PlanState::Abandoned,
    ];
    states.into_iter().find(|state| state_name(*state) == name).ok_or_else(|| {
        let known = states.map(state_name).join(", ");
        Error::InvalidArguments(format!(
            "modify_task: there is no state `{name}`. Known are: {known}."
        ))
    })
}

/// The outputs as an object; a text becomes the value of that key.
fn outcome(outputs: &str, key: &str) -> Map<String, Value> {
    match serde_json::from_str(outputs) {
        Ok(Value::Object(outputs)) => outputs,
        Ok(Value::Null) | Err(_) => Map::new(),
        Ok(value) => Map::from_iter([(key.to_owned(), value)]),
    }
}

fn object(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}

fn list(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap_or_default()
}
