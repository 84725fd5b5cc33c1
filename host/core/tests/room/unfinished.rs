//! Recovery of a room that was interrupted at any point: it resumes and ends, no pending call is
//! lost, and a side effect that may have happened is not repeated.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use conclave_core::journal::recovery::{Downtime, INTERRUPTED, Resumption, Unfinished};
use conclave_core::protocol::call_log::{Before, LoggedRead};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::protocol::notice::Notice;
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::action::{Action, Observation, Reply, Turn};
use conclave_core::types::completion::{Completion, ModelRequest, StopReason, TokenUsage};
use conclave_core::types::fault::{CallReport, FaultKind};
use conclave_core::types::ids::{CallId, Millis, TaskName};
use conclave_core::types::message::ToolCall;
use conclave_core::types::side_effect::{FailureCause, SideEffect, SideEffectAnswer};
use conclave_core::types::tool::{ToolError, ToolOutcome};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use serde_json::json;

use crate::arbitrary::{Choices, answers};
use crate::case::{Case, SECRET, START};
use crate::checks::violations;
use crate::properties::{Recorded, answered};

const LATER: Millis = Millis(START.0 + 1_000_000);

fn record(seq: usize, event: Event) -> Record {
    Record {
        seq: seq as u64,
        at: START.plus(seq as u64),
        principal: Principal("tester".into()),
        rules: RULES,
        epoch: 0,
        event,
    }
}

fn records(events: Vec<Event>) -> Vec<Record> {
    events.into_iter().enumerate().map(|(seq, event)| record(seq, event)).collect()
}

/// Returns the config of the property; PROPTEST_CASES raises the number of cases. Each attempt to
/// shrink a room that does not end takes 40 000 events, so there are few.
fn config() -> ProptestConfig {
    ProptestConfig { max_shrink_iters: 50, ..crate::properties::config() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_room_that_is_cut_off_anywhere_goes_on_and_ends(row in vec(any::<u16>(), 0..1_500), cut in any::<Index>()) {
        let uncut = answered(&row, 40_000);
        let cut = 1 + cut.index(uncut.records.len());
        let before: Vec<Record> = uncut.records[..cut].to_vec();
        let unfinished = Unfinished::fold(before.clone());
        prop_assert_eq!(unfinished.next, cut as u64);
        let mut live = Recorded::default();
        before.iter().for_each(|record| live.handle(record.event.clone(), record.at));
        prop_assert!(live.room == unfinished.room, "it is the same room");
        if unfinished.room.outcome().is_some() {
            return Ok(());
        }
        let Resumption { events, restarts, .. } = unfinished.resumption(LATER, unfinished.room.setup());
        let mut recorded = Recorded { room: unfinished.room, records: before, ..Recorded::default() };
        for event in events {
            recorded.handle(event, LATER);
        }
        // Unpausing resumes the room, and the calls that the pause held back have not begun.
        recorded.handle(Event::Unpaused, LATER);
        let effects: Vec<Effect> = restarts.into_iter().map(|restart| restart.effect).collect();
        let known: BTreeSet<CallId> = effects.iter().filter_map(Effect::starts).chain(recorded.effects.iter().filter_map(Effect::starts)).collect();
        // Only a limit increase answers a call that waits for one.
        let state = serde_json::to_value(&recorded.room).expect("a room is serialisable");
        let is_held = |call: &CallId| state["cx"]["calls"][call.0.to_string()].get("HeldTool").is_some();
        let waiting: BTreeSet<CallId> = recorded.room.calls_in_flight().filter(|call| !is_held(call)).collect();
        prop_assert!(waiting.is_subset(&known), "nobody answers {:?}", waiting.difference(&known).collect::<Vec<_>>());
        let mut choices = Choices::new(&row);
        let mut to_do: VecDeque<Effect> = effects.into();
        to_do.extend(recorded.take_effects());
        while let Some(effect) = to_do.pop_front() {
            for event in answers(&mut choices, &effect) {
                let at = LATER.plus(recorded.records.len() as u64);
                recorded.handle(event, at);
                to_do.extend(recorded.take_effects());
            }
        }
        prop_assert!(recorded.room.outcome().is_some(), "it waits for {:?}", recorded.room.calls_in_flight().collect::<Vec<_>>());
        prop_assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    }
}

/// Returns the resumption under the config that the room began with.
fn resumed(unfinished: &Unfinished, at: Millis) -> Resumption {
    unfinished.resumption(at, unfinished.room.setup())
}

fn case(setup: serde_json::Value) -> (Arc<Setup>, Case) {
    let case: Case = serde_json::from_value(json!({ "name": "by hand", "setup": setup, "opening": { "deadline": 60_000 }, "expect": {} }))
        .expect("a case of the right form");
    (case.setup().into(), case)
}

/// Returns a room whose agent is in its first step, call 0, after these events.
fn stepping(events: Vec<Event>) -> Unfinished {
    let setup = json!({ "models": { "default": {} }, "plugins": { "desk": { "grants": { "model": ["default"] } } } });
    let (setup, case) = case(setup);
    let opened = Event::RoomOpened { setup, opening: case.opening(), secret: SECRET };
    Unfinished::fold(records([opened].into_iter().chain(events).collect()))
}

fn fetch() -> SideEffect {
    SideEffect::SetKey {
        key: "k".to_owned(),
        value: conclave_core::types::side_effect::Digest { sha256: "00".repeat(32), length: 1 },
    }
}

fn effect_asked(ordinal: u32) -> Event {
    Event::SideEffectAsked { call: CallId(0), ordinal, side_effect: fetch() }
}

#[test]
fn a_step_goes_on_with_what_it_was_told() {
    let read =
        LoggedRead { import: "kv.get".to_owned(), target: "k".to_owned(), answer: json!(null) };
    let answer = SideEffectAnswer::Done { length: 1 };
    let unfinished = stepping(vec![
        Event::ReadsRecorded { call: CallId(0), reads: vec![read.clone()] },
        effect_asked(0),
        Event::SideEffectEnded { call: CallId(0), ordinal: 0, answer: answer.clone() },
    ]);
    let Resumption { events, restarts, .. } =
        unfinished.resumption(START.plus(3 + 500), unfinished.room.setup());
    assert_eq!(events, [Event::Resumed { down_ms: 500, is_exact: false, setup: None }]);
    let step = restarts
        .iter()
        .find(|restart| matches!(restart.effect, Effect::StepAgent { .. }))
        .expect("the step is made again");
    assert_eq!(step.trace.reads, [read]);
    assert_eq!(step.trace.side_effect(0, &fetch()), Before::Answered(&answer));
    assert_eq!(step.trace.side_effect(1, &fetch()), Before::New);
    assert_eq!(
        step.trace.side_effect(0, &SideEffect::DeleteKey { key: "k".to_owned() }),
        Before::Otherwise
    );
    let start = step.start.as_ref().expect("what it began with");
    assert_eq!(start.at, START, "the time that it saw");
    assert!(start.agent.is_some());
}

#[test]
fn a_step_whose_effect_was_cut_off_is_told_so_and_does_not_do_it_again() {
    let Resumption { events, restarts, .. } = resumed(&stepping(vec![effect_asked(0)]), LATER);
    let interruption = SideEffectAnswer::Failed {
        cause: FailureCause::Interrupted,
        message: INTERRUPTED.to_owned(),
    };
    assert_eq!(
        events[1],
        Event::SideEffectEnded { call: CallId(0), ordinal: 0, answer: interruption.clone() }
    );
    let steps: Vec<_> = restarts
        .iter()
        .filter(|restart| matches!(restart.effect, Effect::StepAgent { .. }))
        .collect();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].trace.side_effect(0, &fetch()), Before::Answered(&interruption));
}

/// Returns a room in which the agent has called `box.a`, which runs as call 1.
fn calling(idempotent: bool, sha256: &str, events: Vec<Event>) -> Unfinished {
    let setup = json!({ "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } });
    let (mut setup, case) = case(setup);
    let tools =
        Arc::make_mut(Arc::make_mut(&mut setup).plugins.get_mut("box").expect("it is there"));
    tools.facts.tools.iter_mut().for_each(|tool| tool.idempotent = idempotent);
    tools.facts.sha256 = sha256.to_owned();
    let call = ToolCall {
        id: "1".to_owned(),
        name: "box.a".to_owned(),
        arguments: Arc::new(json!({})),
        untrusted: false,
        led_by: Vec::new(),
    };
    let action = Action::Reply(Reply { content: None, tool_calls: vec![call], ..Reply::default() });
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    let opened = Event::RoomOpened { setup, opening: case.opening(), secret: SECRET };
    let stepped =
        Event::AgentStepped { call: CallId(0), answer: Ok(turn), report: CallReport::default() };
    Unfinished::fold(records([opened, stepped].into_iter().chain(events).collect()))
}

fn called_again(resumption: &Resumption) -> usize {
    resumption
        .restarts
        .iter()
        .filter(|restart| matches!(restart.effect, Effect::CallTool { .. }))
        .count()
}

fn is_interrupted(event: &Event) -> bool {
    matches!(event, Event::ToolAnswered { call: CallId(1), answer: Err(ToolError::Fault { fault }), .. } if fault.kind == FaultKind::Interrupted)
}

/// C-318: covers every interrupted tool call. None is repeated unless repeating it is harmless.
#[test]
fn a_tool_is_called_again_only_where_that_does_nothing_twice() {
    let effect =
        || vec![Event::SideEffectAsked { call: CallId(1), ordinal: 0, side_effect: fetch() }];
    let sandboxed = "ab";
    // The journal records every side effect of a sandboxed tool, and here none is without its end.
    let resumption = resumed(&calling(false, sandboxed, Vec::new()), LATER);
    assert_eq!((called_again(&resumption), resumption.events.len()), (1, 1));
    // The journal has no end for the side effect, so the key may or may not be set.
    let resumption = resumed(&calling(false, sandboxed, effect()), LATER);
    assert_eq!(called_again(&resumption), 0);
    assert!(
        matches!(resumption.events[1], Event::SideEffectEnded { call: CallId(1), ordinal: 0, .. }),
        "{:?}",
        resumption.events
    );
    assert!(is_interrupted(&resumption.events[2]));
    // The author declared the tool idempotent, so a repeated set is harmless.
    let resumption = resumed(&calling(true, sandboxed, effect()), LATER);
    assert_eq!((called_again(&resumption), resumption.events.len()), (1, 1));
    assert!(resumption.restarts.iter().any(|restart| restart.trace.may_repeat));
    // Side effects outside a sandbox are not in the journal, so the outcome is unknown.
    let resumption = resumed(&calling(false, "", Vec::new()), LATER);
    assert_eq!(called_again(&resumption), 0);
    assert!(is_interrupted(&resumption.events[1]));
    let resumption = resumed(&calling(true, "", Vec::new()), LATER);
    assert_eq!(called_again(&resumption), 1);
}

#[test]
fn a_snapshot_names_the_records_with_the_reads_of_a_call_and_does_not_hold_them() {
    let read = |answer: &str| LoggedRead {
        import: "files.read".to_owned(),
        target: "/a".to_owned(),
        answer: json!(answer),
    };
    let reads_event =
        |answer: &str| Event::ReadsRecorded { call: CallId(0), reads: vec![read(answer)] };
    let events = vec![reads_event("first"), reads_event("second")];
    let unfinished = stepping(events.clone());
    assert_eq!(unfinished.in_flight.read_records(), [1, 2]);
    let text = unfinished.to_snapshot().expect("it is written");
    assert!(!text.contains("first") && !text.contains("files.read"));
    // A running host holds none of them in memory.
    let mut live = unfinished.in_flight.clone().without_reads();
    live.begin_event(3, &reads_event("third"));
    live.end_event(&unfinished.room);
    assert!(!format!("{live:?}").contains("first") && !format!("{live:?}").contains("third"));
    assert_eq!(live.read_records(), [1, 2, 3]);
    let mut resumed = Unfinished::from_snapshot(&text).expect("it is read");
    resumed.restore_reads(
        records(events).into_iter().map(|record| Record { seq: record.seq + 1, ..record }),
    );
    let step = |unfinished: &Unfinished| {
        let restarts = unfinished.resumption(LATER, unfinished.room.setup()).restarts;
        let step =
            restarts.into_iter().find(|restart| matches!(restart.effect, Effect::StepAgent { .. }));
        step.expect("the step is made again").trace.reads.clone()
    };
    assert_eq!(step(&resumed), [read("first"), read("second")]);
    assert_eq!(step(&unfinished), step(&resumed));
}

#[test]
fn an_agent_reads_that_its_call_was_interrupted() {
    let unfinished = calling(false, "", Vec::new());
    let mut room: Room = unfinished.room.clone();
    unfinished
        .resumption(LATER, unfinished.room.setup())
        .events
        .into_iter()
        .for_each(|event| room.handle(event, LATER));
    let task = TaskName::from("desk");
    let results = room
        .history(&task)
        .iter()
        .flat_map(|message| message.tool_results.clone())
        .map(|result| result.content)
        .collect::<String>();
    let pending = std::iter::from_fn(|| room.poll_effect())
        .find(|effect| matches!(effect, Effect::StepAgent { .. }));
    let view = pending
        .and_then(|effect| effect.starts())
        .and_then(|call| room.agent_view(call))
        .expect("the agent goes on");
    let read = view.pending.map(|message| {
        message.tool_results.iter().map(|result| result.content.clone()).collect::<String>()
    });
    assert!(
        results.contains("interrupted") || read.is_some_and(|read| read.contains("interrupted")),
        "{results}"
    );
}

#[test]
fn a_model_reply_is_not_bought_twice() {
    let usage = TokenUsage { input_tokens: 10, output_tokens: 5, ..TokenUsage::default() };
    let completion = Completion {
        id: "1".to_owned(),
        content: Some("hm".to_owned()),
        reasoning: None,
        tool_calls: Vec::new(),
        stop: StopReason::End,
        usage,
        model: "m".to_owned(),
    };
    let ask =
        |ordinal| Event::ModelAsked { call: CallId(0), ordinal, request: ModelRequest::default() };
    let unfinished = stepping(vec![
        ask(0),
        Event::ModelAnswered {
            call: CallId(0),
            ordinal: 0,
            answer: Ok(completion),
            trouble: None,
            was_shown: false,
        },
        ask(1),
    ]);
    let Resumption { restarts, .. } = unfinished.resumption(LATER, unfinished.room.setup());
    let models: Vec<u32> = restarts
        .iter()
        .filter_map(|restart| {
            if let Effect::CallModel { ordinal, .. } = restart.effect {
                Some(ordinal)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(models, [1], "only what was not answered is asked again");
    let step = restarts
        .iter()
        .find(|restart| matches!(restart.effect, Effect::StepAgent { .. }))
        .expect("the step is made again");
    let before = |ordinal: u32| step.trace.models[&ordinal].before(&ModelRequest::default());
    let Before::Answered(Ok(answer)) = before(0) else { panic!("{:?}", step.trace) };
    assert_eq!(answer.content.as_deref(), Some("hm"));
    assert_eq!(before(1), Before::Open);
}

#[test]
fn time_in_which_no_host_ran_does_not_count() {
    let unfinished = stepping(Vec::new());
    let (before, mut room) = (
        unfinished.resumption(START.plus(5_000), unfinished.room.setup()),
        unfinished.room.clone(),
    );
    let timers = |resumption: &Resumption| -> Vec<Millis> {
        resumption
            .restarts
            .iter()
            .filter_map(|restart| {
                if let Effect::SetTimer { at, .. } = restart.effect { Some(at) } else { None }
            })
            .collect()
    };
    let soon = timers(&unfinished.resumption(START, unfinished.room.setup()));
    assert_eq!(timers(&before), soon.iter().map(|at| at.plus(5_000)).collect::<Vec<_>>());
    assert!(!soon.is_empty(), "the run has a wall limit");
    before.events.into_iter().for_each(|event| room.handle(event, START.plus(5_000)));
    assert!(
        std::iter::from_fn(|| room.poll_notice())
            .any(|notice| notice == Notice::Resumed { down_ms: 5_000, is_exact: false })
    );
    // The process noted that it stopped, after the room had waited: the timers count from there.
    let noted_stop = Unfinished { stopped: Some(START.plus(4_000)), ..unfinished.clone() };
    let after = noted_stop.resumption(START.plus(5_000), noted_stop.room.setup());
    assert_eq!(after.events[0], Event::Resumed { down_ms: 1_000, is_exact: true, setup: None });
    assert_eq!(timers(&after), soon.iter().map(|at| at.plus(1_000)).collect::<Vec<_>>());
    // A record behind the note: the time of the stop is unknown.
    let earlier = Millis(unfinished.room.now().0 - 1);
    let early_stop = Unfinished { stopped: Some(earlier), ..unfinished.clone() };
    assert_eq!(early_stop.downtime(START.plus(5_000)), Downtime { ms: 5_000, is_exact: false });
    // The clock was set back while the host was down, so the downtime is 0 and not negative.
    assert_eq!(
        unfinished.resumption(Millis(0), unfinished.room.setup()).events,
        [Event::Resumed { down_ms: 0, is_exact: false, setup: None }]
    );
}

/// Returns a room whose agent has just performed this action. The first call after the step is call
/// 1.
fn acting(action: Action, sha256: &str, events: Vec<Event>) -> Unfinished {
    let setup = json!({
        "tasks": { "desk": { "action_plugins": ["hands"], "memory": "judge" } },
        "plugins": {
            "desk": { "grants": { "tools": ["*"] } }, "hands": { "tools": ["run", "poll", "kill"] }, "judge": { "kinds": ["memory"] },
        },
    });
    let (mut setup, case) = case(setup);
    Arc::make_mut(Arc::make_mut(&mut setup).plugins.get_mut("hands").expect("it is there"))
        .facts
        .sha256 = sha256.to_owned();
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    let opened = Event::RoomOpened { setup, opening: case.opening(), secret: SECRET };
    let stepped =
        Event::AgentStepped { call: CallId(0), answer: Ok(turn), report: CallReport::default() };
    Unfinished::fold(records([opened, stepped].into_iter().chain(events).collect()))
}

/// Returns the room after a crash, its resumption and the effects that it performs.
fn gone_on(unfinished: Unfinished) -> (Room, Resumption, Vec<Effect>) {
    let resumption = unfinished.resumption(LATER, unfinished.room.setup());
    let mut room = unfinished.room;
    resumption.events.iter().for_each(|event| room.handle(event.clone(), LATER));
    let effects = std::iter::from_fn(|| room.poll_effect()).collect();
    (room, resumption, effects)
}

#[test]
fn an_action_that_was_cut_off_is_an_error_that_the_agent_reads() {
    let run = || Action::Run { command: "make".to_owned(), background: false };
    // The journal contains every side effect of a sandbox, so an unrecorded one did not happen.
    let (_, resumption, _) = gone_on(acting(run(), "ab", Vec::new()));
    assert_eq!(called_again(&resumption), 1);
    let (room, resumption, effects) = gone_on(acting(run(), "", Vec::new()));
    assert_eq!(called_again(&resumption), 0);
    assert!(is_interrupted(&resumption.events[1]));
    let step = effects
        .iter()
        .find(|effect| matches!(effect, Effect::StepAgent { .. }))
        .and_then(Effect::starts);
    let view = step.and_then(|call| room.agent_view(call)).expect("the agent goes on");
    let read = view
        .since
        .iter()
        .filter_map(|past_action| past_action.observation.as_ref())
        .next_back()
        .expect("it reads what came of it");
    assert!(
        matches!(read, Observation::Error { content } if content.contains("interrupted")),
        "{read:?}"
    );
}

/// Returns a room whose agent runs a command in the background as 7. The first poll, call 3, has
/// begun.
fn polling(sha256: &str) -> Unfinished {
    let outcome = ToolOutcome {
        value: Some(json!({ "background": { "command_id": 7, "poll_ms": 100 } })),
        ..ToolOutcome::default()
    };
    let began =
        Event::ToolAnswered { call: CallId(1), answer: Ok(outcome), report: CallReport::default() };
    let run = Action::Run { command: "srv".to_owned(), background: true };
    let mut unfinished = acting(run.clone(), sha256, vec![began.clone()]);
    let timers = |unfinished: &Unfinished| -> Vec<_> {
        let restarts = unfinished.resumption(START, unfinished.room.setup()).restarts;
        restarts
            .iter()
            .filter_map(|restart| {
                if let Effect::SetTimer { timer, .. } = restart.effect { Some(timer) } else { None }
            })
            .collect()
    };
    let poll = *timers(&unfinished).last().expect("the poll is to come");
    unfinished = acting(run, sha256, vec![began, Event::TimerFired { timer: poll }]);
    unfinished
}

#[test]
fn a_poll_that_was_cut_off_is_made_again() {
    let polls = |resumption: &Resumption| {
        resumption
            .restarts
            .iter()
            .filter(
                |restart| matches!(&restart.effect, Effect::CallTool { tool, .. } if tool == "poll"),
            )
            .count()
    };
    let (_, resumption, _) = gone_on(polling("ab"));
    assert_eq!((polls(&resumption), resumption.events.len()), (1, 1));
    // Outside a sandbox the poll counts as failed and is repeated after its delay.
    let (_, resumption, effects) = gone_on(polling(""));
    assert_eq!(polls(&resumption), 0);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::SetTimer { .. })), "{effects:?}");
}

#[test]
fn a_plugin_that_was_consulted_is_asked_again_with_what_it_was_told() {
    let recall = || Action::Recall { query: "pearls".to_owned() };
    let read =
        LoggedRead { import: "kv.get".to_owned(), target: "k".to_owned(), answer: json!(null) };
    let (room, resumption, _) = gone_on(acting(
        recall(),
        "ab",
        vec![Event::ReadsRecorded { call: CallId(1), reads: vec![read.clone()] }],
    ));
    let consulted: Vec<_> = resumption
        .restarts
        .iter()
        .filter(|restart| matches!(restart.effect, Effect::QueryPlugin { .. }))
        .collect();
    let [consult] = consulted[..] else { panic!("{:?}", resumption.restarts) };
    assert_eq!(consult.trace.reads, [read]);
    assert!(
        consult.start.as_ref().is_some_and(|start| start.agent.is_some())
            && room.is_in_flight(CallId(1))
    );
    // A side effect with an unknown end is reported to the agent and not repeated.
    let effect = Event::SideEffectAsked { call: CallId(1), ordinal: 0, side_effect: fetch() };
    let (_, resumption, _) = gone_on(acting(recall(), "ab", vec![effect]));
    let interruption = SideEffectAnswer::Failed {
        cause: FailureCause::Interrupted,
        message: INTERRUPTED.to_owned(),
    };
    let consult = resumption
        .restarts
        .iter()
        .find(|restart| matches!(restart.effect, Effect::QueryPlugin { .. }))
        .expect("it is asked again");
    assert_eq!(consult.trace.side_effect(0, &fetch()), Before::Answered(&interruption));
}
