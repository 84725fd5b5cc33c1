//! Delegations: single, parallel, nested and inline ones, and one whose room closes in the middle.

use std::sync::Arc;

use conclave_core::types::ids::BackgroundId;
use conclave_runtime::delegation::{
    BackgroundRecord, Delegation, Deliver, OnClose, ResultForm, STRUCTURED_RETRIES,
};
use conclave_runtime::delivery::{Decision, DeliveryState};
use conclave_runtime::ids::{PluginName, RoomId, TaskName};
use conclave_runtime::message::Role;
use conclave_runtime::request::{Refusal, RefusalCode};
use serde_json::{Map, Value, json};

use super::agents::{Agent, Script, Seen as Step};
use super::followed::Ended;
use super::stage::{Open, Stage, Strategy};
use super::{Case, names};
use crate::Runner;

pub(super) async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match case.kind {
        "delegate_all" => all(runner, case).await,
        "delegate_many" => many(runner, case).await,
        "delegate_nested" => nested(runner, case).await,
        "delegate_then_close_parent" => then_close(runner, case).await,
        "delegate_inline" => inline(runner, case).await,
        _ => one(runner, case).await,
    }
}

/// Returns whether the task has ended and its result no longer waits for delivery.
pub(super) fn is_settled(record: &BackgroundRecord) -> bool {
    record.state.is_end()
        && !matches!(record.delivery.state, DeliveryState::Waiting | DeliveryState::Delivering)
}

/// Adds the strategies that a case names. Its own kinds (`track…`, `raise…`) are played by
/// components with the same behavior.
pub(super) fn add_strategy(stage: &mut Stage, named: &Value) -> Option<String> {
    let table = named.get("type").or_else(|| named.get("name")).and_then(Value::as_str);
    let name = named.as_str().or(table)?.to_owned();
    if stage.strategies.iter().any(|strategy| strategy.name == name) {
        return Some(name);
    }
    let breaks = ["raise", "throw", "fail", "error", "boom", "broken"]
        .iter()
        .any(|word| name.contains(word));
    let stock = names::STRATEGIES.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| *ours);
    let (component, is_guest) =
        if breaks { ("strategy_spin", true) } else { (stock.unwrap_or("immediate"), false) };
    let config = if is_guest { json!({}) } else { super::deliver::settings(component, named) };
    stage.strategies.push(Strategy { name: name.clone(), component, is_guest, config });
    Some(name)
}

/// Creates the room of a case with the strategies that it names.
fn staged(case: &Case<'_>) -> Stage {
    let mut stage = Stage::of(case.given);
    if let Some(strategy) = case.given.pointer("/kit/delivery_strategy") {
        stage.deliver = add_strategy(&mut stage, strategy);
    }
    if let Some(strategy) = case.get("delivery_strategy") {
        add_strategy(&mut stage, strategy);
    }
    stage
}

/// Converts the request of a case into a delegation.
pub(super) fn delegation(stage: &Stage, case: &Case<'_>, call: &Value) -> Delegation {
    let get = |key: &str| call.get(key).or_else(|| case.when.get(key));
    let word = |key: &str| get(key).and_then(Value::as_str);
    let shared = get("share_channels").and_then(Value::as_array).into_iter().flatten();
    let structured = get("require_structured_result").and_then(Value::as_bool).unwrap_or_default();
    let retries = get("max_result_retries")
        .and_then(Value::as_u64)
        .and_then(|retries| u32::try_from(retries).ok());
    let agent = word("agent_id")
        .or_else(|| stage.agents.first().map(|agent| agent.script().id.as_str()))
        .unwrap_or_default();
    // Without a notified agent the case notifies the worker itself, which has no part in this room
    // and so receives no notification.
    let notify = word("notify").filter(|notify| stage.agent(notify).is_some());
    let by_name = |named: &str| stage.strategies.iter().position(|strategy| strategy.name == named);
    let waits = get("wait").and_then(Value::as_bool).unwrap_or_default();
    let deliver = match get("delivery_strategy") {
        // A waiting caller receives the result directly, so it is not delivered again.
        None if waits => Deliver::Never,
        // The reference leaves a result without a strategy to the agent's next turn, which here is a
        // choice: by default the host reports it.
        None if stage.deliver.is_none() => Deliver::Never,
        None => Deliver::AsConfigured,
        Some(Value::Null) => Deliver::Never,
        Some(named) => {
            let named = named
                .as_str()
                .or_else(|| named.get("type").and_then(Value::as_str))
                .unwrap_or_default();
            by_name(named).map_or(Deliver::Never, |number| {
                Deliver::By(PluginName::from(format!("s{number}")))
            })
        }
    };
    Delegation {
        worker: agent.to_owned(),
        description: word("task").unwrap_or("do the work").to_owned(),
        context: get("context").cloned().filter(Value::is_object).unwrap_or_else(|| json!({})),
        share_channels: shared.filter_map(Value::as_str).map(str::to_owned).collect(),
        brief: word("brief").map(str::to_owned),
        conversation: get("conversation")
            .and_then(Value::as_u64)
            .and_then(|count| u32::try_from(count).ok())
            .unwrap_or_default(),
        wait: waits,
        structured_retries: structured.then(|| retries.unwrap_or(STRUCTURED_RETRIES)),
        notify: notify.map(TaskName::from),
        deliver,
        result_delivery: match word("hand_back") {
            Some("post") => Some(ResultForm::Text),
            Some("relay") => Some(ResultForm::AgentTurn),
            _ => None,
        },
        ..Delegation::default()
    }
}

/// Converts a refusal into the reference's word for it.
pub(super) fn refused(refusal: &Refusal) -> Value {
    json!({ "error": names::refusal(refusal.error) })
}

/// Returns whether the call addresses another room, for which no handle exists.
fn is_elsewhere(open: &Open, case: &Case<'_>) -> bool {
    case.text("room_id")
        .is_some_and(|room| room != open.stage.room && case.given.get("parent").is_none())
}

async fn one(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let mut stage = staged(case);
    let reads_on = case.asks_for("notify_prompt");
    if (reads_on || !conversation(case).is_empty()) && stage.channels.is_empty() {
        stage.channels.push(("terminal".to_owned(), Default::default()));
    }
    let open = stage.open(runner).await?;
    for text in conversation(case) {
        open.handle
            .say(open.stage.channels.first().map_or("terminal", |(id, _)| id.as_str()), text)
            .await
            .map_err(|r| r.message)?;
    }
    let is_closed = case
        .given
        .pointer("/parent/status")
        .is_some_and(|status| status == "closed" || status == "archived");
    if is_closed || case.op.contains("after") || case.flag("closed") || case.flag("closing") {
        open.handle.close("the case closes it").await.map_err(|refusal| refusal.message)?;
    }
    let before = open.follower.seen();
    let asked = if is_elsewhere(&open, case) {
        let room = case.text("room_id").unwrap_or_default();
        match open.host.handle(&RoomId::from(room)) {
            Some(_) => {
                return Err(format!(
                    "the case says that there is no room {room}, and it is open in this host"
                ));
            }
            None => Err(Refusal::new(
                RefusalCode::RoomNotFound,
                format!("no room {room} is open in this host"),
            )),
        }
    } else {
        open.delegate(None, delegation(&open.stage, case, case.when)).await
    };
    let task = match asked {
        Err(refusal) => {
            let after = open.follower.seen();
            let is_untouched = after.started.is_empty()
                && after.said.is_empty()
                && after.openings.len() <= before.openings.len().max(1);
            let mut got = refused(&refusal);
            got["side_effects"] = json!(if is_untouched { "none" } else { "some" });
            return Ok(got);
        }
        Ok(task) => task,
    };
    let mut at_start = open.handle.task(&task.id).map(|record| names::state(record.state));
    let waited = open.wait(&task.id).await;
    let returned = open.follower.note("wait_returned");
    let record = waited.map_err(|error| format!("the task does not end: {error}"))?;
    let record = settled(&open, record).await;
    if reads_on {
        next_turn(&open, record.notify.as_str()).await?;
    }
    if case.flag("wait") {
        // A waiting caller receives the result only after the task has ended.
        at_start = Some(names::state(record.state));
    }
    let mut got = shown(&open, &record, returned);
    got["handle"] = json!({
        "task_id": task.id, "child_room_id": task.room, "parent_room_id": open.room(), "agent_id": task.worker, "task": record.description,
        "status": at_start,
    });
    Ok(got)
}

/// Sends a message of the user, after which the notified agent reads its pending results.
async fn next_turn(open: &Open, task: &str) -> Result<(), String> {
    let before = steps(open, task).len();
    let channel = open.stage.channels.first().map_or("terminal", |(id, _)| id.as_str());
    open.handle.say(channel, "hello").await.map_err(|refusal| refusal.message)?;
    let stepped = |_: &super::followed::Seen| (steps(open, task).len() > before).then_some(());
    open.follower.until(stepped).await.ok_or_else(|| format!("{task} takes no turn"))
}

/// Returns the messages in the room before the first delegation.
fn conversation(case: &Case<'_>) -> Vec<String> {
    let said = case
        .given
        .pointer("/parent/messages")
        .or_else(|| case.given.get("messages"))
        .and_then(Value::as_array);
    let text = |message: &Value| {
        message
            .as_str()
            .or_else(|| message.get("text").or_else(|| message.get("body"))?.as_str())
            .map(str::to_owned)
    };
    said.into_iter().flatten().filter_map(text).collect()
}

/// Returns the record after its result is final and delivered.
pub(super) async fn settled(open: &Open, record: Arc<BackgroundRecord>) -> Arc<BackgroundRecord> {
    open.settle(&record.id).await
}

fn steps(open: &Open, agent: &str) -> Vec<Step> {
    open.stage.agent(agent).map(Agent::seen).unwrap_or_default()
}

/// Returns the facts that cases about one background task report (`TASKS` of the schema).
pub(super) fn shown(open: &Open, record: &BackgroundRecord, returned: usize) -> Value {
    let seen = open.follower.seen();
    let ended: Vec<&Ended> = seen
        .ended
        .iter()
        .filter(|ended| ended.parent == *open.room() && ended.task.id == record.id)
        .collect();
    let bindings = open.child_bindings(&record.room);
    let mut ids: Vec<String> = bindings.keys().map(ToString::to_string).collect();
    ids.push(record.worker.to_string());
    let binding = |(id, binding): (&_, &conclave_runtime::binding::Binding)| {
        let shown = json!({
            "access": names::access_word(binding.access), "muted": binding.muted, "visibility": binding.visibility,
            "metadata": binding.metadata, "category": "transport",
        });
        (format!("{id}"), shown)
    };
    let bound: Map<String, Value> = bindings.iter().map(binding).collect();
    let delegated = seen.started.iter().filter(|started| started.parent == *open.room()).count();
    let strategy_name = |plugin: &PluginName| {
        let number: Option<usize> =
            plugin.as_str().strip_prefix('s').and_then(|number| number.parse().ok());
        number
            .and_then(|number| open.stage.strategies.get(number))
            .map(|strategy| strategy.name.clone())
    };
    let used = record.delivery.strategy.as_ref().and_then(strategy_name);
    let calls = |name: &str| if used.as_deref() == Some(name) { seen.decided.len() } else { 0 };
    let by_name: Map<String, Value> = open
        .stage
        .strategies
        .iter()
        .map(|strategy| (strategy.name.clone(), json!(calls(&strategy.name))))
        .collect();
    let strategy_calls: usize = used.as_deref().map_or(0, calls);
    let hook_order: Vec<&String> =
        seen.order.iter().filter(|name| name.starts_with("on_")).collect();
    json!({
        "result": result(open, record), "child_bindings": ids, "child_binding": bound, "child_room_metadata": child_metadata(open, record),
        "worker_input": seen.openings.get(&record.room).and_then(|opening| opening.content.clone()),
        "hooks": { "on_task_delegated": delegated, "on_task_completed": ended.len() },
        "hook_order": hook_order, "hook_events": hook_events(open, record),
        "callback_calls": ended.len(), "callback_status": ended.first().map(|ended| names::status(ended.task.status)),
        "callback_before_wait_returns": ended.first().is_some_and(|ended| ended.order < returned),
        "prompts_changed": prompts_changed(open), "notify_prompt": prompt(open, record.notify.as_str()),
        "strategy_calls": strategy_calls, "calls": by_name,
        "ctx": { "notify_channel_id": record.notify, "room_id": open.room(), "task_id": record.id },
        "outcome": outcome(record),
    })
}

/// Returns the notifications of the task's start and end, as the hooks of the reference receive
/// them.
fn hook_events(open: &Open, record: &BackgroundRecord) -> Value {
    let known = json!({ "task_id": record.id, "child_room_id": record.room, "agent_id": record.worker, "parent_room_id": open.room() });
    let (mut delegated, mut completed) = (known.clone(), known);
    delegated["task_input"] = json!(record.description);
    completed["task_status"] = json!(names::state(record.state));
    completed["error"] = json!(error(open, record));
    let event = |kind: &str, text: &str, metadata: Value| {
        let source = &record.worker;
        json!({ "type": kind, "visibility": "internal", "status": "delivered", "text": text, "source": source, "metadata": metadata })
    };
    let came_of_it = record.output.as_deref().or(record.error.as_deref()).unwrap_or_default();
    json!({
        "on_task_delegated": event("task_delegated", &format!("[{}] {}", record.worker, record.description), delegated),
        "on_task_completed": event("task_completed", came_of_it, completed),
    })
}

/// Returns the metadata of a child room: its opening and the state of its task, which the reference
/// stores there too.
pub(super) fn child_metadata(open: &Open, record: &BackgroundRecord) -> Value {
    let mut metadata = open.child_metadata(&record.room);
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["task_status"] = json!(names::state(record.state));
    metadata["task_result"] = json!(record.output);
    metadata
}

pub(super) fn result(open: &Open, record: &BackgroundRecord) -> Value {
    let seen = open.follower.seen();
    let ended = seen.ended(open.room(), record.id.as_str());
    let metadata = if record.metadata.is_null() { json!({}) } else { record.metadata.clone() };
    json!({
        "task_id": record.id, "child_room_id": record.room, "parent_room_id": open.room(), "agent_id": record.worker,
        "status": names::state(record.state), "output": record.output, "error": error(open, record),
        "duration_ms": ended.map(|ended| ended.task.duration_ms), "metadata": metadata,
    })
}

/// Returns the reason of a failure. If the host quotes a plugin's message in a sentence, returns
/// the message alone.
pub(super) fn error(open: &Open, record: &BackgroundRecord) -> Option<String> {
    let error = record.error.clone()?;
    let seen = open.follower.seen();
    let words = seen
        .faults
        .iter()
        .rev()
        .find(|(room, _, words)| *room == record.room && error.ends_with(words.as_str()));
    Some(words.map_or(error, |(_, _, words)| words.clone()))
}

pub(super) fn outcome(record: &BackgroundRecord) -> String {
    let state = names::outcome(record.delivery.state);
    match &record.delivery.reason {
        Some(reason) if record.delivery.state == DeliveryState::Blocked => {
            format!("{state}:{reason}")
        }
        _ => state.to_owned(),
    }
}

/// Returns the agents of the parent room whose system text has changed.
fn prompts_changed(open: &Open) -> Vec<String> {
    let changed = |agent: &&Agent| {
        let texts: Vec<String> = agent.seen().iter().map(system).collect();
        texts.windows(2).any(|two| two[0] != two[1])
    };
    open.stage.agents.iter().filter(changed).map(|agent| agent.script().id.clone()).collect()
}

fn system(step: &Step) -> String {
    let first = step.history.iter().find(|message| message.sender == Role::System);
    first.map(|message| message.text().to_owned()).unwrap_or_default()
}

/// Returns everything that a task's agent reads in its newest turn, or its system text if it took
/// no turn.
fn prompt(open: &Open, task: &str) -> String {
    let mut texts = vec![
        open.prepared
            .setup()
            .tasks
            .get(task)
            .map_or_else(String::new, |task| task.system.to_string()),
    ];
    texts.extend(
        steps(open, task)
            .last()
            .into_iter()
            .flat_map(|step| step.history.iter().map(|message| message.text().to_owned())),
    );
    texts.join("\n")
}

/// Describes the shape of an id. Here it is `<parent>/<number>`; in the reference it is
/// `<parent>::task-<12 hex>`.
fn id_shape(parent: &RoomId, child: &RoomId) -> String {
    let below = child.as_str().strip_prefix(parent.as_str()).unwrap_or_default();
    let numbers: Vec<&str> = below.split('/').skip(1).collect();
    let is_counted =
        !numbers.is_empty() && numbers.iter().all(|number| number.parse::<u32>().is_ok());
    let repeated = if numbers.len() > 1 { " repeated" } else { "" };
    if is_counted { format!("<parent>/<number>{repeated}") } else { child.to_string() }
}

async fn all(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open(runner).await?;
    let calls = case.get("calls").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut tasks = Vec::new();
    for call in &calls {
        tasks.push(
            open.delegate(None, delegation(&open.stage, case, call))
                .await
                .map_err(|refusal| refusal.message)?,
        );
    }
    let mut records = Vec::new();
    for task in &tasks {
        records.push(open.wait(&task.id).await.map_err(|error| error.to_string())?);
    }
    let mut rooms: Vec<&RoomId> = records.iter().map(|record| &record.room).collect();
    rooms.sort();
    rooms.dedup();
    let of = |value: &dyn Fn(&BackgroundRecord) -> Value| -> Map<String, Value> {
        records.iter().map(|record| (record.worker.to_string(), value(record))).collect()
    };
    Ok(json!({
        "outputs": of(&|record| json!(record.output)), "statuses": of(&|record| json!(names::state(record.state))),
        "child_rooms_distinct": rooms.len(),
    }))
}

async fn many(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open(runner).await?;
    let mut tasks = Vec::new();
    for _ in 0..case.number("n").unwrap_or(1) {
        tasks.push(
            open.delegate(None, delegation(&open.stage, case, case.when))
                .await
                .map_err(|refusal| refusal.message)?,
        );
    }
    let worker = tasks.first().and_then(|task| open.stage.agent(task.worker.as_str()));
    let takes = worker.map_or(0, |worker| worker.script().delay_ms);
    if let Some(worker) = worker.filter(|_| takes > 0) {
        // All tasks must be running before the first may end: this shows that they run in parallel.
        worker.has_begun(tasks.len()).await;
    }
    let mut completed = 0;
    for task in &tasks {
        let record = open.wait(&task.id).await;
        completed +=
            usize::from(record.is_ok_and(|record| names::state(record.state) == "completed"));
    }
    Ok(json!({
        "all_completed": completed == tasks.len(), "completed": completed,
        "elapsed_ms": takes,
    }))
}

/// Plays a chain in which each task's agent delegates to the next.
async fn nested(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let levels = case.number("levels").unwrap_or(2);
    let mut stage = staged(case);
    let worker = stage
        .agents
        .iter()
        .find(|agent| !stage.front.contains(&agent.script().id))
        .or(stage.agents.first());
    let script = worker.map(|agent| agent.script().clone()).ok_or("the case has no agent")?;
    let name = script.id.clone();
    stage.agents.retain(|agent| agent.script().id != name);
    stage.agents.push(Agent::new(Script { nests_to: levels, ..script }));
    let open = stage.open(runner).await?;
    let asked =
        Delegation { worker: name, description: "level 0".to_owned(), ..Delegation::default() };
    let task = open.delegate(None, asked).await.map_err(|refusal| refusal.message)?;
    let record = open.wait(&task.id).await.map_err(|error| error.to_string())?;
    let seen = open.follower.seen();
    let completed =
        seen.ended.iter().filter(|ended| names::status(ended.task.status) == "completed").count();
    let deepest = seen
        .started
        .iter()
        .map(|started| &started.room)
        .max_by_key(|room| room.as_str().len())
        .unwrap_or(&record.room);
    Ok(json!({
        "all_completed": completed as u64 == levels, "child_id_shape": id_shape(open.room(), deepest),
    }))
}

/// Plays a delegation that waits for its result.
async fn inline(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let open = staged(case).open(runner).await?;
    let wanted = Delegation { wait: true, ..delegation(&open.stage, case, case.when) };
    let task = open.delegate(None, wanted.clone()).await.map_err(|refusal| refusal.message)?;
    let record = open.wait(&task.id).await.map_err(|error| error.to_string())?;
    let turns = steps(&open, task.worker.as_str())
        .into_iter()
        .filter(|step| step.room == task.room)
        .count();
    // Without a requested result form the same worker must not have the tool.
    let plain = Delegation { structured_retries: None, wait: false, ..wanted };
    let again = open.delegate(None, plain).await.map_err(|refusal| refusal.message)?;
    let offered = |room: &RoomId| {
        let steps = steps(&open, task.worker.as_str());
        steps
            .iter()
            .find(|step| step.room == *room)
            .map(|step| step.tools.iter().any(|tool| tool == "submit_result"))
    };
    let find = |_: &super::followed::Seen| offered(&again.room);
    let is_offered_again = open.follower.until(find).await.unwrap_or(true);
    let mut got = shown(&open, &record, usize::MAX);
    got["turns"] = json!(turns);
    got["payload"] = record.metadata.get("result").cloned().unwrap_or(Value::Null);
    got["tool_removed_after"] = json!(offered(&task.room) == Some(true) && !is_offered_again);
    Ok(got)
}

/// Closes the room while the task is running. The delegation says whether the task ends silently.
async fn then_close(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let mut stage = staged(case);
    if stage.agents.iter().all(|agent| stage.front.contains(&agent.script().id)) {
        stage.add_agent(Script {
            id: "agent-bg".to_owned(),
            replies: vec![Some("result".to_owned())],
            delay_ms: 50,
            ..Script::default()
        });
    }
    if stage.channels.is_empty() {
        stage.channels.push(("sms-1".to_owned(), Default::default()));
    }
    if stage.deliver.is_none() {
        stage.deliver = add_strategy(&mut stage, &json!("immediate"));
    }
    let worker = stage
        .agents
        .iter()
        .map(|agent| agent.script().id.clone())
        .find(|id| !stage.front.contains(id))
        .unwrap_or_default();
    let open = stage.open(runner).await?;
    let wanted = Delegation {
        worker,
        on_close: Some(OnClose::FinishSilently),
        ..delegation(&open.stage, case, case.when)
    };
    let task = open.delegate(None, wanted).await.map_err(|refusal| refusal.message)?;
    open.handle.close("the case closes it").await.map_err(|refusal| refusal.message)?;
    let before = open.follower.seen();
    // The worker's step may end only now, after the room was closed.
    let record = open.wait(&task.id).await.map_err(|error| error.to_string())?;
    let record = settled(&open, record).await;
    let after = open.follower.seen();
    let mut got = shown(&open, &record, usize::MAX);
    got["parent_events_added"] =
        json!(after.said.len() - before.said.len() + after.posted - before.posted);
    Ok(got)
}

/// Returns the decisions that made a strategy wait, as calls of the reference's voice channel.
pub(super) fn waits(open: &Open) -> Vec<Value> {
    let seen = open.follower.seen();
    let call = |decision: &Decision| match decision {
        Decision::Wait { channel: Some(_), timeout_ms } => {
            Some(json!(["wait_playback_done", open.room(), timeout_ms]))
        }
        Decision::Deliver { interrupt: true, .. } => {
            Some(json!(["interrupt_all", open.room(), "task_delivery"]))
        }
        _ => None,
    };
    seen.decided.iter().flatten().filter_map(call).collect()
}

/// Returns the id of a task as cases write it.
pub(super) fn background(id: &str) -> BackgroundId {
    BackgroundId::from(id)
}
