//! A paused run begins nothing, loses nothing, and resumes at the same point (O-122). A running
//! agent reads new messages in its next step (O-053…O-055).

use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::setup::plugin_query::{GateVerdict, PluginReply};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, ControlId, TaskName, TimerId};
use conclave_core::types::message::{Label, Role, ToolCall};
use conclave_core::types::outcome::{EndCause, Status};
use conclave_core::types::tool::ToolOutcome;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

fn opened(setup: Value) -> Recorded {
    let case: Case = serde_json::from_value(json!({ "name": "by hand", "setup": setup, "opening": { "deadline": 60_000 }, "expect": {} }))
        .expect("a case of the right form");
    let mut recorded = Recorded::default();
    recorded.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    recorded
}

fn with_box(desk: Value) -> Value {
    json!({ "tasks": { "desk": desk }, "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } })
}

fn pause() -> Event {
    Event::Paused { reason: "lunch".to_owned() }
}

fn user_message(task: Option<&str>, text: &str) -> Event {
    Event::UserMessageSent {
        task: task.map(TaskName::from),
        text: text.to_owned(),
        attachments: Vec::new(),
    }
}

fn turn(action: Action) -> Turn {
    Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() }
}

fn stepped(call: CallId, action: Action) -> Event {
    Event::AgentStepped { call, answer: Ok(turn(action)), report: CallReport::default() }
}

fn calls_box() -> Action {
    Action::Reply(Reply { tool_calls: vec![ToolCall::new("box.a", json!({}))], ..Reply::default() })
}

fn think() -> Action {
    Action::Think { thought: "hm".to_owned() }
}

fn finish() -> Action {
    Action::Finish { outputs: json!("end") }
}

fn control(id: &str, message: Event) -> Event {
    Event::ControlReceived { id: ControlId::from(id), by: None, message: Box::new(message) }
}

/// The effects that have begun since the last call, by kind.
fn take_starts(recorded: &mut Recorded) -> Vec<(&'static str, CallId)> {
    let kind = |effect: &Effect| match effect {
        Effect::StepAgent { .. } => "step",
        Effect::CallTool { .. } => "tool",
        Effect::QueryPlugin { .. } => "query-plugin",
        Effect::AskApproval { .. } => "approval",
        Effect::AskUser { .. } => "user",
        Effect::StartBackground { .. } => "background",
        _ => "other",
    };
    recorded
        .take_effects()
        .iter()
        .filter_map(|effect| Some((kind(effect), effect.starts()?)))
        .collect()
}

fn only(recorded: &mut Recorded, kind: &str) -> CallId {
    let starts = take_starts(recorded);
    let [(of, call)] = starts[..] else { panic!("expected one {kind}: {starts:?}") };
    assert_eq!(of, kind);
    call
}

fn notices(recorded: &Recorded, is_it: impl Fn(&Notice) -> bool) -> usize {
    recorded.notices.iter().filter(|notice| is_it(notice)).count()
}

#[test]
fn what_is_under_way_ends_and_nothing_begins() {
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    recorded.handle(pause(), START);
    recorded.handle(pause(), START);
    assert_eq!(recorded.room.paused(), Some("lunch"));
    recorded.handle(stepped(step, calls_box()), START);
    assert_eq!(take_starts(&mut recorded), []);
    recorded.handle(Event::Unpaused, START);
    let tool = only(&mut recorded, "tool");
    recorded.handle(Event::Unpaused, START);
    recorded.handle(pause(), START);
    let answer = Ok(ToolOutcome { content: Some("A".to_owned()), ..ToolOutcome::default() });
    recorded
        .handle(Event::ToolAnswered { call: tool, answer, report: CallReport::default() }, START);
    assert_eq!(take_starts(&mut recorded), []);
    recorded.handle(Event::Unpaused, START);
    let step = only(&mut recorded, "step");
    let view = recorded.room.agent_view(step).expect("it is under way");
    assert_eq!(view.pending.map(|message| message.text().to_owned()).as_deref(), Some("A"));
    assert_eq!(recorded.room.paused(), None);
    // A second pause has no effect.
    assert_eq!(notices(&recorded, |notice| matches!(notice, Notice::RunPaused { .. })), 2);
    assert_eq!(notices(&recorded, |notice| *notice == Notice::RunUnpaused), 2);
}

#[test]
fn an_approval_is_taken_and_the_call_begins_later() {
    let mut recorded = opened(with_box(json!({ "confirm": { "policy": "always" } })));
    let step = only(&mut recorded, "step");
    recorded.handle(stepped(step, calls_box()), START);
    let approval_call = only(&mut recorded, "approval");
    recorded.handle(pause(), START);
    recorded.handle(
        Event::Decided {
            call: approval_call,
            approval: Approval::Approved,
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    assert_eq!(take_starts(&mut recorded), []);
    assert!(!recorded.room.is_in_flight(approval_call));
    recorded.handle(Event::Unpaused, START);
    only(&mut recorded, "tool");
}

#[test]
fn a_paused_run_can_be_stopped_and_one_that_is_over_cannot_be_paused() {
    for event in [
        Event::Cancelled { reason: "no".to_owned() },
        Event::TaskKilled { task: "desk".into(), reason: "no".to_owned() },
    ] {
        let mut recorded = opened(with_box(json!({})));
        let step = only(&mut recorded, "step");
        recorded.handle(pause(), START);
        recorded.handle(stepped(step, calls_box()), START);
        recorded.handle(event, START);
        let outcome = recorded.room.outcome().expect("it is over").clone();
        assert_eq!((outcome.status, take_starts(&mut recorded)), (Status::Kill, vec![]));
        let over = recorded.room.clone();
        recorded.handle(pause(), START);
        recorded.handle(Event::Unpaused, START);
        assert!(recorded.room == over && recorded.room.paused().is_none());
    }
}

fn timers(recorded: &mut Recorded) -> Vec<(TimerId, u64)> {
    let set = |effect: Effect| match effect {
        Effect::SetTimer { timer, at } => Some((timer, at.since(START))),
        _ => None,
    };
    recorded.take_effects().into_iter().filter_map(set).collect()
}

#[test]
fn time_in_a_pause_counts_against_no_limit() {
    let at = |after: u64| START.plus(after);
    let mut recorded = opened(with_box(json!({})));
    let [(wall, 60_000)] = timers(&mut recorded)[..] else { panic!("the run has a wall limit") };
    recorded.handle(pause(), at(10_000));
    recorded.handle(Event::TimerFired { timer: wall }, at(60_000));
    assert!(recorded.room.outcome().is_none());
    assert_eq!(timers(&mut recorded), []);
    recorded.handle(Event::Unpaused, at(100_000));
    // 50 seconds of the limit were left.
    let [(wall, 150_000)] = timers(&mut recorded)[..] else { panic!("it is set anew") };
    recorded.handle(pause(), at(110_000));
    recorded.handle(Event::Unpaused, at(120_000));
    assert_eq!(timers(&mut recorded), []);
    // The pause ended before the timer fired, so the remaining time still runs.
    recorded.handle(Event::TimerFired { timer: wall }, at(150_000));
    let [(wall, 160_000)] = timers(&mut recorded)[..] else { panic!("it is set anew") };
    assert!(recorded.room.outcome().is_none());
    recorded.handle(Event::TimerFired { timer: wall }, at(160_000));
    let outcome = recorded.room.outcome().expect("its time is over");
    assert_eq!((outcome.status, outcome.cause), (Status::Timeout, Some(EndCause::WallTime)));
}

#[test]
fn a_paused_room_that_is_cut_off_is_still_paused_and_owes_no_time() {
    let at = |after: u64| START.plus(after);
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    recorded.handle(pause(), at(10_000));
    recorded.handle(stepped(step, calls_box()), at(20_000));
    assert_eq!(take_starts(&mut recorded), []);
    let unfinished = Unfinished::fold(recorded.records.clone());
    assert_eq!(unfinished.room.paused(), Some("lunch"));
    let resumption = unfinished.resumption(at(1_000_000), unfinished.room.setup());
    let starts: Vec<_> =
        resumption.restarts.iter().filter_map(|restart| restart.effect.starts()).collect();
    assert_eq!(starts, [], "what had not begun does not begin");
    let mut resumed = Recorded { room: unfinished.room.clone(), ..Recorded::default() };
    resumption.events.iter().cloned().for_each(|event| resumed.handle(event, at(1_000_000)));
    assert_eq!(take_starts(&mut resumed), []);
    let wall = resumption.restarts.iter().find_map(|restart| {
        if let Effect::SetTimer { timer, at } = restart.effect { Some((timer, at)) } else { None }
    });
    let (timer, fires) = wall.expect("it is set anew");
    assert_eq!(fires, at(60_000 + 980_000), "without the time in which no host ran");
    resumed.handle(Event::TimerFired { timer }, fires);
    resumed.handle(Event::Unpaused, at(2_000_000));
    let effects = resumed.take_effects();
    // Ten of sixty seconds had passed before the pause.
    let set = effects
        .iter()
        .find_map(|effect| if let Effect::SetTimer { at, .. } = effect { Some(*at) } else { None });
    assert_eq!(set, Some(at(2_050_000)), "{effects:?}");
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. }))
            && resumed.room.outcome().is_none(),
        "{effects:?}"
    );
}

#[test]
fn words_are_read_in_the_next_step_in_their_order() {
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    recorded.handle(user_message(None, "faster"), START);
    recorded.handle(user_message(Some("desk"), "and better"), START);
    recorded.handle(user_message(None, "  "), START);
    assert_eq!(take_starts(&mut recorded), []);
    recorded.handle(stepped(step, think()), START);
    let step = only(&mut recorded, "step");
    let view = recorded.room.agent_view(step).expect("it is under way");
    let texts: Vec<&str> = view.history.iter().map(|message| message.text()).collect();
    assert_eq!(texts[texts.len() - 2..], ["faster", "and better"]);
    let last = view.history.last().expect("it is there");
    assert_eq!((last.sender, &last.labels[..]), (Role::User, &[Label::Untrusted][..]));
    assert_eq!(
        view.latest_user_message
            .map(|latest_user_message| latest_user_message.text().to_owned())
            .as_deref(),
        Some("and better")
    );
    let unasked = view
        .since
        .iter()
        .filter(|past_action| {
            matches!(&past_action.action, Some(Action::Reply(_)))
                && past_action.observation.is_none()
        })
        .count();
    assert_eq!(unasked, 2, "{:?}", view.since);
    assert_eq!(notices(&recorded, |notice| matches!(notice, Notice::UserMessageRead { .. })), 2);
}

#[test]
fn words_in_a_pause_are_read_after_it() {
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    recorded.handle(pause(), START);
    recorded.handle(stepped(step, think()), START);
    recorded.handle(user_message(None, "faster"), START);
    assert_eq!(notices(&recorded, |notice| matches!(notice, Notice::UserMessageRead { .. })), 0);
    recorded.handle(Event::Unpaused, START);
    let step = only(&mut recorded, "step");
    let view = recorded.room.agent_view(step).expect("it is under way");
    assert_eq!(
        view.history.last().map(|message| message.text().to_owned()).as_deref(),
        Some("faster")
    );
}

#[test]
fn words_to_a_task_that_waits_for_its_user_are_the_answer() {
    for paused in [false, true] {
        let mut recorded = opened(with_box(json!({ "interactive": true })));
        let step = only(&mut recorded, "step");
        if paused {
            recorded.handle(pause(), START);
        }
        let spoken =
            Action::Reply(Reply { content: Some("what now?".to_owned()), ..Reply::default() });
        recorded.handle(stepped(step, spoken), START);
        if paused {
            recorded.handle(user_message(None, "go on"), START);
            assert_eq!(take_starts(&mut recorded), []);
            recorded.handle(Event::Unpaused, START);
        } else {
            let user_call = only(&mut recorded, "user");
            recorded.handle(user_message(None, "go on"), START);
            assert!(
                recorded.effects.contains(&Effect::AbandonCall { call: user_call }),
                "nobody is asked any longer"
            );
        }
        let step = only(&mut recorded, "step");
        let view = recorded.room.agent_view(step).expect("it is under way");
        assert_eq!(
            view.pending.map(|message| message.text().to_owned()).as_deref(),
            Some("go on"),
            "paused: {paused}"
        );
    }
}

#[test]
fn words_that_nobody_can_read_are_told_of_and_change_nothing() {
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    let before = recorded.room.clone();
    recorded.handle(user_message(Some("ghost"), "who?"), START);
    assert!(recorded.room == before);
    recorded.handle(user_message(None, "too late"), START);
    recorded.handle(stepped(step, finish()), START);
    let unheard: Vec<&str> = recorded
        .notices
        .iter()
        .filter_map(|notice| {
            if let Notice::UserMessageDropped { text, .. } = notice {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(unheard, ["who?", "too late"]);
    let over = recorded.room.clone();
    recorded.handle(user_message(None, "later still"), START);
    assert!(recorded.room == over);
}

#[test]
fn a_journal_from_before_pauses_reads() {
    let mut recorded = opened(with_box(json!({})));
    only(&mut recorded, "step");
    let record = Record {
        seq: 0,
        at: START,
        principal: Principal("tester".into()),
        rules: RULES,
        epoch: 0,
        event: pause(),
    };
    let line = conclave_core::journal::record::to_line(&record).expect("it is not deep");
    assert_eq!(
        conclave_core::journal::record::from_lines(&(line + "\n")).expect("it reads"),
        [record]
    );
}

#[test]
fn a_control_message_takes_effect_once() {
    let words = |recorded: &Recorded, call| {
        let view = recorded.room.agent_view(call).expect("it is under way");
        view.history.iter().filter(|message| message.text() == "hurry").count()
    };
    let mut recorded = opened(with_box(json!({})));
    let step = only(&mut recorded, "step");
    let said_once = control("c1", user_message(None, "hurry"));
    recorded.handle(said_once.clone(), START);
    assert!(recorded.room.has_received(&ControlId::from("c1")));
    let before = recorded.room.clone();
    recorded.handle(said_once.clone(), START);
    assert!(recorded.room == before, "a second delivery changes nothing");
    recorded.handle(stepped(step, think()), START);
    let step = only(&mut recorded, "step");
    assert_eq!(words(&recorded, step), 1);
    // A resumed room knows it too.
    let mut resumed = Unfinished::fold(recorded.records.clone()).room;
    let folded = resumed.clone();
    resumed.handle(said_once, START);
    assert!(resumed == folded, "nor does one after a crash");
    // The same words in another message are another message.
    recorded.handle(control("c2", user_message(None, "hurry")), START);
    recorded.handle(stepped(step, think()), START);
    let step = only(&mut recorded, "step");
    assert_eq!(words(&recorded, step), 2);
}

#[test]
fn an_approval_in_a_control_message_begins_the_call_once() {
    let mut recorded = opened(with_box(json!({ "confirm": { "policy": "always" } })));
    let step = only(&mut recorded, "step");
    recorded.handle(stepped(step, calls_box()), START);
    let approval_call = only(&mut recorded, "approval");
    let approve = control(
        "c1",
        Event::Decided {
            call: approval_call,
            approval: Approval::Approved,
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
    );
    recorded.handle(approve.clone(), START);
    only(&mut recorded, "tool");
    recorded.handle(approve, START);
    assert_eq!(take_starts(&mut recorded), []);
    // A message in a message is ignored, and does not use up an approval.
    recorded
        .handle(control("c2", control("c3", Event::Cancelled { reason: "no".to_owned() })), START);
    assert!(recorded.room.outcome().is_none());
}

#[test]
fn a_task_whose_result_is_held_reads_no_more_and_the_sender_learns_why() {
    let mut recorded = opened(json!({
        "tasks": { "desk": {} },
        "plugins": { "guard": { "kinds": ["gate"] } },
        "gates": [{ "on": "outbound", "plugin": "guard", "deadline_ms": 200 }],
    }));
    let step = only(&mut recorded, "step");
    recorded.handle(stepped(step, finish()), START);
    let gate = only(&mut recorded, "query-plugin");
    recorded.handle(control("c1", user_message(None, "wait")), START);
    let dropped = |notice: &Notice| matches!(notice, Notice::UserMessageDropped { reason, .. } if reason.contains("decide on its result"));
    assert_eq!(notices(&recorded, dropped), 1, "at once, while the gate still checks the result");
    let reply = PluginReply::Gate { verdict: GateVerdict::Allow };
    let report = CallReport::default();
    recorded.handle(Event::PluginQueried { call: gate, answer: Ok(reply), report }, START);
    assert_eq!(recorded.room.outcome().map(|outcome| outcome.status), Some(Status::Done));
    let of_message = |notice: &Notice| {
        matches!(notice, Notice::UserMessageDropped { .. } | Notice::UserMessageRead { .. })
    };
    assert_eq!(notices(&recorded, of_message), 1);
}
