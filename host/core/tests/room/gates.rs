//! Gates: messages that pass, are changed or are blocked. A gate that fails in any way blocks, and
//! only its own message waits for it.

use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::GatePoint;
use conclave_core::setup::plugin_query::{
    GATE_INPUT_MAX, GateInput, GateVerdict, PluginQuery, PluginReply,
};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, ChannelId, Millis, TimerId};
use conclave_core::types::request::{
    Inbound, Refusal, RefusalCode, RequestId, RequestReply, RoomRequest,
};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

/// Returns a persistent room with these gates, whose agent may delegate to the task `worker`.
fn opened(gates: Value) -> Recorded {
    let setup = json!({
        "tasks": { "desk": {}, "worker": {} },
        "plugins": { "desk": { "grants": { "delegate": ["worker"] } }, "guard": { "kinds": ["gate"] }, "second": { "kinds": ["gate"] } },
        "gates": gates,
    });
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
            .expect("a case of the right form");
    let mut recorded = Recorded::default();
    let opening = RunOpening { persistent: true, content: None, ..case.opening() };
    recorded
        .handle(Event::RoomOpened { setup: case.setup().into(), opening, secret: SECRET }, START);
    recorded.take_effects();
    recorded
}

fn guard(on: &str) -> Value {
    json!({ "on": on, "plugin": "guard", "deadline_ms": 200 })
}

fn ask(recorded: &mut Recorded, request: u64, what: RoomRequest) {
    recorded.handle(Event::Requested { request: RequestId(request), what }, START);
}

fn say(recorded: &mut Recorded, request: u64, channel: &str, text: &str) {
    ask(
        recorded,
        request,
        RoomRequest::Inbound {
            inbound: Inbound {
                sender: "ann".to_owned(),
                ..Inbound::new(ChannelId::from(channel), text)
            },
        },
    );
}

/// The pending gate request, if any: its call, its name, its input, and the timer of its
/// deadline.
fn take_query(recorded: &mut Recorded) -> Option<(CallId, String, GateInput, TimerId)> {
    let effects = recorded.take_effects();
    let query = effects.iter().find_map(|effect| match effect {
        Effect::QueryPlugin { call, plugin, question: PluginQuery::Gate { input }, .. } => {
            Some((*call, plugin.to_string(), GateInput::clone(input)))
        }
        _ => None,
    });
    let timer = effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { timer, .. } => Some(*timer),
        _ => None,
    });
    // Kept if no gate is pending, because the caller still has to handle them.
    recorded.effects = effects;
    let (call, plugin, input) = query?;
    recorded.effects.clear();
    Some((call, plugin, input, timer.expect("every gate has a deadline")))
}

fn answer(recorded: &mut Recorded, call: CallId, answer: Result<GateVerdict, Fault>) {
    let answer = answer.map(|verdict| PluginReply::Gate { verdict });
    recorded.handle(Event::PluginQueried { call, answer, report: CallReport::default() }, START);
}

fn modify(text: &str) -> Result<GateVerdict, Fault> {
    Ok(GateVerdict::Modify { text: text.to_owned() })
}

fn replies(recorded: &Recorded) -> Vec<(u64, Result<RequestReply, Refusal>)> {
    let of = |effect: &Effect| match effect {
        Effect::Reply { request, reply } => Some((request.0, reply.clone())),
        _ => None,
    };
    recorded.effects.iter().filter_map(of).collect()
}

/// Returns the reason why the only request was blocked.
fn blocked(recorded: &Recorded) -> String {
    match &replies(recorded)[..] {
        [(_, Err(refusal))] => {
            assert_eq!(refusal.error, RefusalCode::Blocked);
            let why = recorded.notices.iter().rev().find_map(|notice| match notice {
                Notice::GateBlocked { reason, .. } => Some(reason.clone()),
                _ => None,
            });
            let why = why.unwrap_or_else(|| refusal.message.clone());
            // A failing gate's own message is shown to the operator only.
            assert!(
                refusal.message == why || refusal.message == "gate guard failed",
                "{}",
                refusal.message
            );
            why
        }
        other => panic!("expected one that is blocked: {other:?}"),
    }
}

/// The inputs of an agent's steps.
fn step_inputs(recorded: &Recorded) -> Vec<String> {
    let step = |effect: &Effect| match effect {
        Effect::StepAgent { call, .. } => {
            recorded.room.agent_view(*call)?.pending.map(|message| message.text().to_owned())
        }
        _ => None,
    };
    recorded.effects.iter().filter_map(step).collect()
}

fn folds(recorded: &Recorded) {
    assert!(
        conclave_core::journal::record::fold(recorded.records.iter().cloned()) == recorded.room
    );
    let json = serde_json::to_string(&recorded.room).expect("a room is serialisable");
    let read: conclave_core::room::Room =
        serde_json::from_str(&json).expect("and can be read again");
    assert!(read == recorded.room);
}

#[test]
fn without_gates_of_its_point_nothing_is_asked() {
    let mut recorded = opened(json!([guard("deliver")]));
    say(&mut recorded, 1, "terminal", "hello");
    assert_eq!(step_inputs(&recorded), ["hello"]);
    assert!(matches!(replies(&recorded)[..], [(1, Ok(RequestReply::Accepted { .. }))]));
}

#[test]
fn a_message_counts_once_its_gate_has_let_it_pass() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "hello");
    assert!(step_inputs(&recorded).is_empty() && replies(&recorded).is_empty(), "it waits");
    folds(&recorded);
    let (call, plugin, input, _) = take_query(&mut recorded).expect("the gate is asked");
    assert_eq!(
        (plugin.as_str(), input.point, input.text.as_str()),
        ("guard", GatePoint::Inbound, "hello")
    );
    assert_eq!((input.channel, input.room.as_str()), (Some(ChannelId::from("terminal")), "room"));
    assert_eq!(input.metadata["sender"], "ann");
    assert!(recorded.room.agent_view(call).is_none(), "a gate sees what passes and no task");
    answer(&mut recorded, call, Ok(GateVerdict::Allow));
    assert_eq!(step_inputs(&recorded), ["hello"]);
    assert!(matches!(replies(&recorded)[..], [(1, Ok(RequestReply::Accepted { .. }))]));
    folds(&recorded);
}

#[test]
fn gates_are_asked_one_after_the_other_and_each_sees_what_the_one_before_made_of_it() {
    let second = json!({ "on": "inbound", "plugin": "second", "deadline_ms": 1 });
    let mut recorded = opened(json!([guard("inbound"), guard("delegate"), second]));
    say(&mut recorded, 1, "terminal", "my number is 1234");
    let (call, ..) = take_query(&mut recorded).expect("the first");
    answer(&mut recorded, call, modify("my number is …"));
    let (call, plugin, input, _) = take_query(&mut recorded).expect("the second");
    assert_eq!((plugin.as_str(), input.text.as_str()), ("second", "my number is …"));
    answer(&mut recorded, call, Ok(GateVerdict::Allow));
    assert_eq!(step_inputs(&recorded), ["my number is …"]);
    let changed: Vec<_> = recorded
        .notices
        .iter()
        .filter(|notice| matches!(notice, Notice::GateModified { .. }))
        .collect();
    assert!(
        matches!(changed[..], [Notice::GateModified { point: GatePoint::Inbound, plugin, tool: None }] if plugin.as_str() == "guard")
    );
}

#[test]
fn the_first_that_blocks_stops_it_and_its_reason_is_told() {
    let second = json!({ "on": "inbound", "plugin": "second", "deadline_ms": 1 });
    let mut recorded = opened(json!([guard("inbound"), second]));
    say(&mut recorded, 1, "terminal", "hello");
    let (call, ..) = take_query(&mut recorded).expect("the first");
    answer(&mut recorded, call, Ok(GateVerdict::Block { reason: "not today".to_owned() }));
    assert_eq!(blocked(&recorded), "gate guard blocked it: not today");
    assert!(
        step_inputs(&recorded).is_empty() && take_query(&mut recorded).is_none(),
        "nobody else is asked"
    );
    let is_block = |notice: &&Notice| matches!(notice, Notice::GateBlocked { plugin, reason, .. } if plugin.as_str() == "guard" && reason.contains("not today"));
    assert_eq!(recorded.notices.iter().filter(is_block).count(), 1);
    assert!(
        !recorded.notices.iter().any(|notice| matches!(notice, Notice::PluginFaulted { .. })),
        "it did what a gate does"
    );
}

#[test]
fn a_gate_that_fails_in_whatever_way_blocks() {
    let fault = |kind, text: &str| Err(Fault::new(kind, text));
    let cases: [(Result<PluginReply, Fault>, &str); 6] = [
        (fault(FaultKind::Trap, "it broke"), "gate guard failed: it broke"),
        (fault(FaultKind::Error, "it does not know"), "gate guard failed: it does not know"),
        (
            fault(FaultKind::Error, "it was refused files: /etc"),
            "gate guard failed: it was refused files: /etc",
        ),
        (
            Ok(PluginReply::Memories { memories: Vec::new() }),
            "gate guard failed: it answered another question",
        ),
        (
            Ok(PluginReply::Gate {
                verdict: GateVerdict::Modify { text: "x".repeat(GATE_INPUT_MAX + 1) },
            }),
            "gate guard failed: its text has 1048577 bytes",
        ),
        (
            Ok(PluginReply::Gate { verdict: GateVerdict::Modify { text: " ".to_owned() } }),
            "gate guard failed: it changed the text to nothing",
        ),
    ];
    for (answer, expected) in cases {
        let mut recorded = opened(json!([guard("inbound")]));
        say(&mut recorded, 1, "terminal", "hello");
        let (call, ..) = take_query(&mut recorded).expect("the gate is asked");
        recorded
            .handle(Event::PluginQueried { call, answer, report: CallReport::default() }, START);
        let reason = blocked(&recorded);
        assert!(reason.starts_with(expected), "{reason}");
        assert!(step_inputs(&recorded).is_empty(), "{expected}");
        let faulted =
            recorded.notices.iter().any(|notice| matches!(notice, Notice::PluginFaulted { plugin, .. } if plugin.as_str() == "guard"));
        assert!(faulted, "{expected}");
        folds(&recorded);
    }
}

#[test]
fn one_that_takes_too_long_is_cut_off_and_what_it_says_later_changes_nothing() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "hello");
    let at = recorded.effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { at, .. } => Some(*at),
        _ => None,
    });
    assert_eq!(at, Some(START.plus(200)));
    let (call, .., timer) = take_query(&mut recorded).expect("the gate is asked");
    recorded.handle(Event::TimerFired { timer }, START.plus(200));
    assert!(recorded.effects.contains(&Effect::AbandonCall { call }), "{:?}", recorded.effects);
    assert!(blocked(&recorded).starts_with("gate guard failed: it gave no answer within 200 ms"));
    recorded.take_effects();
    answer(&mut recorded, call, Ok(GateVerdict::Allow));
    assert!(recorded.take_effects().is_empty(), "nobody waits for it");
    folds(&recorded);
}

#[test]
fn a_deadline_that_was_met_does_nothing() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "hello");
    let (call, .., timer) = take_query(&mut recorded).expect("the gate is asked");
    answer(&mut recorded, call, Ok(GateVerdict::Allow));
    recorded.take_effects();
    recorded.handle(Event::TimerFired { timer }, START.plus(200));
    assert!(recorded.take_effects().is_empty());
}

#[test]
fn messages_of_one_channel_keep_their_order_and_others_do_not_wait_for_them() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "first");
    let (first, ..) = take_query(&mut recorded).expect("the gate is asked");
    say(&mut recorded, 2, "terminal", "second");
    assert!(take_query(&mut recorded).is_none(), "the second waits behind the first");
    say(&mut recorded, 3, "pager", "elsewhere");
    let (other, _, input, _) = take_query(&mut recorded).expect("another channel does not wait");
    assert_eq!(input.text, "elsewhere");
    folds(&recorded);
    answer(&mut recorded, other, Ok(GateVerdict::Block { reason: String::new() }));
    assert_eq!(blocked(&recorded), "gate guard blocked it, and gave no reason");
    recorded.take_effects();
    answer(&mut recorded, first, Ok(GateVerdict::Allow));
    assert!(
        matches!(replies(&recorded)[..], [(1, Ok(RequestReply::Accepted { .. }))]),
        "{:?}",
        replies(&recorded)
    );
    let (second, _, input, _) = take_query(&mut recorded).expect("now it is the second's turn");
    assert_eq!(input.text, "second");
    answer(&mut recorded, second, Ok(GateVerdict::Allow));
    assert!(
        matches!(replies(&recorded)[..], [(2, Ok(RequestReply::Accepted { .. }))]),
        "{:?}",
        replies(&recorded)
    );
}

#[test]
fn what_waits_in_front_of_the_gates_of_a_channel_is_bounded() {
    let mut recorded = opened(json!([guard("inbound")]));
    for request in 0..1_000 {
        say(&mut recorded, request, "terminal", "hello");
    }
    recorded.take_effects();
    say(&mut recorded, 1_000, "terminal", "one too many");
    assert!(
        blocked(&recorded).contains("1000 messages of the channel wait"),
        "{}",
        blocked(&recorded)
    );
}

#[test]
fn a_gate_reads_and_changes_what_a_worker_is_told_not_only_its_label() {
    let mut recorded = opened(json!([guard("delegate")]));
    let delegation = Delegation {
        worker: "worker".to_owned(),
        description: "a label".to_owned(),
        brief: Some("all that is secret".to_owned()),
        context: json!({ "n": 1 }),
        ..Delegation::default()
    };
    ask(
        &mut recorded,
        1,
        RoomRequest::Delegate { delegation: Box::new(delegation), by: Some("desk".into()) },
    );
    let (call, _, input, _) = take_query(&mut recorded).expect("the gate is asked");
    assert_eq!(
        (input.point, input.text.as_str(), input.to_task.as_deref()),
        (GatePoint::Delegate, "all that is secret", Some("worker"))
    );
    assert_eq!(input.from_task, Some("desk".into()));
    assert_eq!(
        (&input.metadata["label"], &input.metadata["context"]),
        (&json!("a label"), &json!({ "n": 1 }))
    );
    answer(&mut recorded, call, modify("what may be known"));
    let opening = recorded.effects.iter().find_map(|effect| match effect {
        Effect::StartBackground { opening, .. } => Some(opening),
        _ => None,
    });
    let opening_json = serde_json::to_string(opening.expect("it begins")).expect("JSON");
    assert!(
        opening_json.contains("what may be known")
            && !opening_json.contains("all that is secret")
            && !opening_json.contains("a label"),
        "{opening_json}"
    );
}

#[test]
fn a_delegation_that_is_blocked_starts_nothing() {
    let mut recorded = opened(json!([guard("delegate")]));
    let delegation = Delegation {
        worker: "worker".to_owned(),
        description: "dig".to_owned(),
        ..Delegation::default()
    };
    ask(
        &mut recorded,
        1,
        RoomRequest::Delegate { delegation: Box::new(delegation), by: Some("desk".into()) },
    );
    let (call, ..) = take_query(&mut recorded).expect("the gate is asked");
    answer(&mut recorded, call, Ok(GateVerdict::Block { reason: "no digging".to_owned() }));
    assert!(
        blocked(&recorded).contains("gate guard blocked it: no digging"),
        "{}",
        blocked(&recorded)
    );
    assert!(
        !recorded.effects.iter().any(|effect| matches!(effect, Effect::StartBackground { .. }))
    );
}

#[test]
fn a_room_is_not_over_while_something_is_on_its_way_and_what_is_when_it_stops_is_answered() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "hello");
    say(&mut recorded, 2, "terminal", "are you there?");
    let (call, ..) = take_query(&mut recorded).expect("the gate is asked");
    ask(&mut recorded, 3, RoomRequest::Close { reason: "enough".to_owned() });
    assert!(recorded.room.outcome().is_none(), "two messages are on their way");
    recorded.take_effects();
    recorded.handle(Event::Cancelled { reason: "stop".to_owned() }, START);
    assert!(recorded.room.outcome().is_some());
    assert!(recorded.effects.contains(&Effect::AbandonCall { call }));
    let mut answered: Vec<u64> = replies(&recorded)
        .iter()
        .filter(|(_, reply)| reply.is_err())
        .map(|(request, _)| *request)
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
    folds(&recorded);
}

#[test]
fn a_gate_that_was_cut_off_is_asked_again() {
    let mut recorded = opened(json!([guard("inbound")]));
    say(&mut recorded, 1, "terminal", "hello");
    let (call, .., timer) = take_query(&mut recorded).expect("the gate is asked");
    let unfinished = Unfinished::fold(recorded.records.iter().cloned());
    let resumption = unfinished.resumption(Millis(START.0 + 50_000), unfinished.room.setup());
    let consult = resumption.restarts.iter().find(
        |restart| matches!(&restart.effect, Effect::QueryPlugin { call: of, .. } if *of == call),
    );
    assert!(consult.is_some_and(|restart| restart.start.is_some()), "{:?}", resumption.restarts);
    // Downtime of the host does not count against the gate's deadline.
    let at = resumption.restarts.iter().find_map(|restart| match &restart.effect {
        Effect::SetTimer { timer: of, at } if *of == timer => Some(*at),
        _ => None,
    });
    assert_eq!(at, Some(START.plus(50_200)));
}

#[test]
fn a_gate_of_which_the_operator_says_so_lets_pass_when_it_fails() {
    let open =
        json!({ "on": "delegate", "plugin": "guard", "deadline_ms": 200, "fails_open": true });
    // The next gate is still asked.
    let mut recorded =
        opened(json!([open, { "on": "delegate", "plugin": "second", "deadline_ms": 200 }]));
    let delegation = Delegation {
        worker: "worker".to_owned(),
        description: "dig".to_owned(),
        ..Delegation::default()
    };
    ask(
        &mut recorded,
        1,
        RoomRequest::Delegate { delegation: Box::new(delegation), by: Some("desk".into()) },
    );
    let (call, ..) = take_query(&mut recorded).expect("the gate is asked");
    answer(&mut recorded, call, Err(Fault::new(FaultKind::Trap, "it broke")));
    let (call, plugin, input, _) = take_query(&mut recorded).expect("the second gate is asked");
    assert_eq!((plugin.as_str(), input.text.as_str()), ("second", "dig"));
    answer(&mut recorded, call, Ok(GateVerdict::Allow));
    assert!(recorded.effects.iter().any(|effect| matches!(effect, Effect::StartBackground { .. })));
}
