//! Delivery cases: the choice of a channel, the decisions of each stock strategy, and messages that
//! a room receives from outside.

use conclave_runtime::binding::{Activity, Binding, Channel, ChannelKind};
use conclave_runtime::delegation::{BackgroundRecord, Delegation, Deliver, ResultForm};
use conclave_runtime::delivery::{DeliveryState, DeliveryView};
use conclave_runtime::ids::{ChannelId, Millis, RoomId, TaskName};
use conclave_runtime::request::{Announcement, RefusalCode};
use serde_json::{Map, Value, json};

use super::agents::Script;
use super::delegate::{add_strategy, settled, waits};
use super::followed::Seen;
use super::stage::{GateMode, Open, Stage, Strategy};
use super::{Case, names};
use crate::Runner;

/// The sender of messages without an agent.
const HOST: &str = "system";

pub(super) async fn play(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    match case.kind {
        "resolve_strategy" => resolve(runner, case).await,
        "find_transport" => Ok(find_transport(case)),
        "deliver_to" => deliver_to(runner, case).await,
        "deliver_several" => several(runner, case).await,
        _ => deliver(runner, case).await,
    }
}

/// Compiles every component that cases use, so that no case waits for the compiler.
pub(super) async fn warm_up(runner: &Runner) -> Result<(), String> {
    let mut stage = Stage::of(&json!({}));
    for (theirs, component) in names::STRATEGIES {
        stage.strategies.push(Strategy {
            name: theirs.to_owned(),
            component,
            is_guest: false,
            config: json!({}),
        });
    }
    stage.strategies.push(Strategy {
        name: "raises".to_owned(),
        component: "strategy_spin",
        is_guest: true,
        config: json!({}),
    });
    stage.prepare(runner).await.map(drop)
}

/// Converts the reference's settings of a strategy into ours.
pub(super) fn settings(component: &str, named: &Value) -> Value {
    let mut config = Map::new();
    if let Some(prompt) = named.get("prompt").filter(|prompt| prompt.is_string()) {
        config.insert("prompt".to_owned(), prompt.clone());
    }
    if component == "wait-for-idle" {
        let milliseconds =
            |key: &str| named.get(key).and_then(Value::as_u64).map(|ms| json!(format!("{ms} ms")));
        // The reference's first era has no pause after the last word.
        config
            .insert("buffer".to_owned(), milliseconds("buffer_ms").unwrap_or_else(|| json!("0 s")));
        config.extend(
            milliseconds("playback_timeout_ms").map(|at_most| ("max_wait".to_owned(), at_most)),
        );
        config.extend(
            named
                .get("interrupt_playback")
                .map(|interrupt| ("interrupt".to_owned(), interrupt.clone())),
        );
    }
    Value::Object(config)
}

/// Plays a lookup: whether a delegation may name a strategy. The room checks that its config has
/// it.
async fn resolve(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let value = case.any(&["value", "name", "strategy"]).cloned().unwrap_or_default();
    let name =
        value.as_str().or_else(|| value.get("type")?.as_str()).unwrap_or_default().to_owned();
    let mut stage = Stage::of(case.given);
    stage.add_agent(worker(&Value::Null));
    for (theirs, _) in names::STRATEGIES {
        add_strategy(&mut stage, &json!(theirs));
    }
    let number = stage.strategies.iter().position(|strategy| strategy.name == name);
    let open = stage.open(runner).await?;
    let plugin = number.map_or_else(|| name.clone(), |number| format!("s{number}"));
    let wanted = Delegation {
        worker: "agent-bg".to_owned(),
        description: "do the work".to_owned(),
        deliver: Deliver::By(plugin.as_str().into()),
        ..Delegation::default()
    };
    Ok(match open.delegate(None, wanted).await {
        Ok(_) => json!({ "strategy": name }),
        Err(refusal) if refusal.error == RefusalCode::BadArguments => {
            json!({ "error": "unknown_strategy" })
        }
        Err(refusal) => json!({ "error": names::refusal(refusal.error) }),
    })
}

/// Returns the core's choice among the channels in the order of the case.
fn find_transport(case: &Case<'_>) -> Value {
    let listed = case
        .given
        .pointer("/parent/channels")
        .or_else(|| case.given.get("channels"))
        .and_then(Value::as_array);
    let channel = |channel: &Value| {
        let word = |key: &str| channel.get(key).and_then(Value::as_str);
        let can_receive = word("access").map(names::access).unwrap_or_default().may_read();
        Some(Channel {
            id: ChannelId::from(word("id")?),
            kind: names::kind(word("category").unwrap_or("transport"), word("type")),
            activity: Activity::Idle,
            muted: channel.get("muted").and_then(Value::as_bool).unwrap_or_default()
                || !can_receive,
        })
    };
    let channels = listed.into_iter().flatten().filter_map(channel).collect();
    let view = DeliveryView {
        room: RoomId::from("room-1"),
        now: Millis(0),
        pending_results: Vec::new(),
        channels,
        notified_task: None,
    };
    json!({ "channel_id": view.preferred_channel().map(|channel| &channel.id) })
}

/// Produces a result of the case with an agent, and delivers it with the strategy that the case
/// names.
async fn deliver(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let named = case.get("strategy").cloned().unwrap_or_else(|| json!("immediate"));
    let mut stage = Stage::of(case.given);
    let strategy = add_strategy(&mut stage, &named).ok_or("the case names no strategy")?;
    stage.deliver = Some(strategy);
    stage.deaf =
        case.number("failures").and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
    let result = case.get("result").cloned().unwrap_or(Value::Null);
    stage.add_agent(worker(&result));
    // The host cannot see the playback state of a realtime voice channel.
    let listed =
        case.given.pointer("/parent/channels").and_then(Value::as_array).into_iter().flatten();
    let plays =
        |channel: &&Value| channel["type"] == json!("voice") && channel["muted"] != json!(true);
    let voice = listed.filter(plays).find_map(|channel| channel["id"].as_str()).map(str::to_owned);
    let open = stage.open(runner).await?;
    if let Some(voice) = &voice {
        let busy = match case.text("activity") {
            Some("user_speaking") => Activity::UserSpeaking,
            Some("generating") => Activity::Generating,
            Some("idle") => Activity::Idle,
            _ => Activity::Speaking,
        };
        open.handle.activity(voice.as_str(), busy).await.map_err(|refusal| refusal.message)?;
    }
    let record =
        delegated(&open, case, &result, named.get("prompt").is_some_and(Value::is_string)).await?;
    if let Some(voice) = voice.filter(|_| !plays_for_ever(case)) {
        // The playback ends only once the strategy has decided to wait for it.
        let decided = |seen: &Seen| (!seen.decided.is_empty()).then_some(());
        open.follower.until(decided).await;
        open.handle
            .activity(voice.as_str(), Activity::Idle)
            .await
            .map_err(|refusal| refusal.message)?;
    }
    let record = settled(&open, record).await;
    heard(&open, &record).await;
    Ok(delivered(&open, &record))
}

/// Returns whether the playback does not end in time.
fn plays_for_ever(case: &Case<'_>) -> bool {
    let words = ["never", "timeout", "raises", "hangs", "forever"];
    let says = |value: &Value| {
        value == &json!(true)
            || value.as_str().is_some_and(|text| words.iter().any(|word| text.contains(word)))
    };
    case.any(&[
        "playback",
        "playback_never_ends",
        "playback_never_done",
        "voice_hangs",
        "wait_playback_raises",
    ])
    .is_some_and(says)
}

/// Returns the script of the worker that produced the result of a case.
fn worker(result: &Value) -> Script {
    let word = |key: &str| result.get(key).and_then(Value::as_str);
    let status = word("status").unwrap_or("completed");
    let output = word("output").unwrap_or("result text");
    Script {
        id: word("agent_id").unwrap_or("agent-bg").to_owned(),
        replies: vec![(status == "completed").then(|| output.to_owned())],
        raises: (status == "failed").then(|| word("error").unwrap_or("it broke").to_owned()),
        delay_ms: if status == "cancelled" { 60_000 } else { 0 },
        ..Script::default()
    }
}

async fn delegated(
    open: &Open,
    case: &Case<'_>,
    result: &Value,
    has_prompt: bool,
) -> Result<std::sync::Arc<BackgroundRecord>, String> {
    let word = |key: &str| result.get(key).and_then(Value::as_str);
    let wanted = Delegation {
        worker: word("agent_id").unwrap_or("agent-bg").to_owned(),
        description: word("task").unwrap_or("do the work").to_owned(),
        notify: case.text("notify").map(TaskName::from),
        deliver: Deliver::AsConfigured,
        // A strategy's own text goes to users; the host's text goes to the notified agent.
        result_delivery: match case.text("hand_back") {
            Some("relay") => Some(ResultForm::AgentTurn),
            Some("post") => Some(ResultForm::Text),
            _ => has_prompt.then_some(ResultForm::Text),
        },
        ..Delegation::default()
    };
    let task = open.delegate(None, wanted).await.map_err(|refusal| refusal.message)?;
    if word("status") == Some("cancelled") {
        task.cancel("cancelled").await.map_err(|refusal| refusal.message)?;
        return open.wait_for_stopped(&task.id).await.map_err(|error| error.to_string());
    }
    open.wait(&task.id).await.map_err(|error| error.to_string())
}

/// Waits until the notified agent has answered the result message and its answer was spoken.
async fn heard(open: &Open, record: &BackgroundRecord) {
    let has_ears = open.stage.channels.iter().any(|(_, binding)| binding.can_receive());
    if record.delivery.state == DeliveryState::Delivered && has_ears {
        open.follower.until(|seen| (!seen.said.is_empty()).then_some(())).await;
    }
}

fn delivered(open: &Open, record: &BackgroundRecord) -> Value {
    let seen = open.follower.seen();
    let calls = waits(open);
    let body = seen
        .relayed
        .first()
        .cloned()
        .or_else(|| seen.said.first().map(|message| message.text.clone()));
    let message = json!({
        "channel_id": seen.said.first().map(|message| &message.channel), "sender_id": HOST, "content_type": "text", "body": body,
    });
    let unsaid = seen
        .not_delivered
        .first()
        .map(|(_, reason)| reason.clone())
        .or_else(|| record.delivery.reason.clone());
    let is_skipped = seen.inbound() == 0 && unsaid.is_some();
    json!({
        "inbound_calls": seen.inbound(), "message": message, "room_id": open.room(), "voice_calls": calls, "order": order(&seen),
        // A delivery without a channel is reported in the host's words; cases recognize it by two
        // of the reference's words.
        "log": is_skipped.then(|| json!({ "level": "error", "text": format!("delivery skipped: {}", unsaid.unwrap_or_default()) })),
        "raises": false,
    })
}

/// Returns the actions of the strategy and the host, in order.
fn order(seen: &Seen) -> Vec<String> {
    let known = ["wait_playback_done", "interrupt_all", "process_inbound"];
    seen.order.iter().filter(|name| known.contains(&name.as_str())).cloned().collect()
}

/// Plays several results that are pending together.
async fn several(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let named = case.get("strategy").cloned().unwrap_or_else(|| json!("queued"));
    let mut stage = Stage::of(case.given);
    let strategy = add_strategy(&mut stage, &named).ok_or("the case names no strategy")?;
    stage.deliver = Some(strategy);
    let items = case
        .any(&["contents", "items", "results"])
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let output = |item: &Value| {
        item.as_str()
            .or_else(|| item.get("output").or_else(|| item.get("content"))?.as_str())
            .map(str::to_owned)
    };
    for (number, item) in items.iter().enumerate() {
        stage.add_agent(Script {
            id: format!("worker-{number}"),
            replies: vec![output(item)],
            ..Script::default()
        });
    }
    let open = stage.open(runner).await?;
    let mut records = Vec::new();
    for number in 0..items.len() {
        let wanted = Delegation {
            worker: format!("worker-{number}"),
            description: format!("part {number}"),
            result_delivery: Some(ResultForm::Text),
            ..Delegation::default()
        };
        records.push(open.delegate(None, wanted).await.map_err(|refusal| refusal.message)?);
    }
    for task in records {
        let record = open.wait(&task.id).await.map_err(|error| error.to_string())?;
        settled(&open, record).await;
    }
    let seen = open.follower.seen();
    Ok(json!({ "bodies": seen.said.iter().map(|message| &message.text).collect::<Vec<_>>() }))
}

/// Sends an unsolicited message to a room.
async fn deliver_to(runner: &Runner, case: &Case<'_>) -> Result<Value, String> {
    let hooks = case.texts("hooks");
    let modes = hooks.iter().find_map(|hook| hook.strip_prefix("before_deliver:"));
    let Some(modes) = modes else { return said_to(runner, case, None).await };
    let mut got = Map::new();
    for word in modes.split('|') {
        let mode = match word {
            "block" | "veto" => GateMode::Block,
            "modify" | "rewrite" => GateMode::Modify,
            "throw" | "raise" | "error" => GateMode::Throw,
            other => return Err(format!("a gate has no mode {other:?}")),
        };
        got.insert(word.to_owned(), said_to(runner, case, Some(mode)).await?);
    }
    // A case with a single mode reports its result without the name of the mode.
    Ok(match got.values().next() {
        Some(only) if got.len() == 1 => only.clone(),
        _ => Value::Object(got),
    })
}

async fn said_to(
    runner: &Runner,
    case: &Case<'_>,
    mode: Option<GateMode>,
) -> Result<Value, String> {
    let mut stage = Stage::of(case.given);
    stage.gate = mode.map(|mode| ("deliver", mode));
    let is_realtime = |id: &ChannelId| {
        let listed =
            case.given.pointer("/parent/channels").and_then(Value::as_array).into_iter().flatten();
        let mut of_type = listed.filter(|channel| channel["type"] == json!("realtime_voice"));
        of_type.any(|channel| channel["id"] == json!(id))
    };
    let is_closed = case.flag("closed")
        || case.flag("parent_closed")
        || case.given.pointer("/parent/status") == Some(&json!("closed"));
    let open = stage.open(runner).await?;
    // An agent's channel reaches no user: it is bound as an agent channel, and the host selects the
    // recipient.
    for front in open.stage.front.clone() {
        if case.given.pointer("/parent/channels").is_some()
            && case.text("channel_id") == Some(front.as_str())
        {
            open.handle
                .bind(front.as_str(), Binding::of(ChannelKind::Agent))
                .await
                .map_err(|refusal| refusal.message)?;
        }
    }
    if is_closed {
        open.handle.close("the case closes it").await.map_err(|refusal| refusal.message)?;
    }
    let announcement = Announcement {
        content: case.text("content").unwrap_or_default().to_owned(),
        channel: case.text("channel_id").or_else(|| case.text("channel")).map(ChannelId::from),
        addressed_to: case.text("addressed_to").map(TaskName::from),
        key: case.text("idempotency_key").or_else(|| case.text("key")).map(str::to_owned),
        chain_depth: case
            .number("chain_depth")
            .and_then(|depth| u32::try_from(depth).ok())
            .unwrap_or_default(),
        interrupt: case.flag("interrupt"),
    };
    let (mut outcome, mut reason, mut duplicate) = ("unknown", None, false);
    for _ in 0..case.number("times").unwrap_or(1).max(1) {
        match open.handle.announce(announcement.clone()).await {
            Ok(announced) => {
                outcome = names::outcome(announced.delivery.state);
                reason = announced.delivery.reason.clone();
                duplicate = announced.duplicate;
            }
            Err(refusal) => {
                (outcome, reason) = match refusal.error {
                    RefusalCode::UnknownChannel => ("unavailable", Some(refusal.message)),
                    RefusalCode::RoomClosed => ("blocked", Some("room_closed".to_owned())),
                    RefusalCode::NoAccess | RefusalCode::Blocked => {
                        ("blocked", Some(refusal.message))
                    }
                    other => ("failed", Some(names::refusal(other).to_owned())),
                };
            }
        }
    }
    let seen = open.follower.seen();
    let injected = seen.said.iter().filter(|message| is_realtime(&message.channel)).count();
    let body = seen.said.first().map(|message| &message.text);
    Ok(json!({
        "inbound_calls": seen.said.len() - injected, "inject_calls": injected, "outcome": outcome, "reason": reason,
        "duplicate": duplicate, "body": body, "channel_id": seen.said.first().map(|message| &message.channel),
    }))
}
