//! Calls of a plugin that asks for scratch take turns, so that none undoes what another stored.

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::CallId;
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::{NestedCall, ToolOutcome};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::checks::violations;
use crate::properties::Recorded;

/// Returns a room whose agent may call the plugins `one` and `two`, which ask for these
/// capabilities and may call each other.
fn opened(asks: &[&str]) -> Recorded {
    let plugin = |other: &str| {
        json!({
            "tools": ["run", "poll", "kill"], "asks": asks, "grants": { "tools": [other] },
        })
    };
    let setup = json!({
        "tasks": { "desk": { "action_plugins": ["one"], "allow_multiple_tools": true } },
        "plugins": {
            "desk": { "grants": { "tools": ["one.*", "two.*"] } },
            "one": plugin("two.*"), "two": plugin("one.*"),
        },
    });
    let case = json!({ "name": "by hand", "setup": setup, "expect": {} });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let mut recorded = Recorded::default();
    let (setup, opening) = (case.setup().into(), case.opening());
    recorded.handle(Event::RoomOpened { setup, opening, secret: SECRET }, START);
    recorded
}

/// Returns the tool calls that an event starts, by id and tool.
fn started(recorded: &mut Recorded, event: Event) -> Vec<(CallId, String)> {
    recorded.handle(event, START);
    assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
    let effects = recorded.take_effects();
    let call = |effect: Effect| match effect {
        Effect::CallTool { call, plugin, tool, .. } => Some((call, format!("{plugin}.{tool}"))),
        _ => None,
    };
    effects.into_iter().filter_map(call).collect()
}

fn step(recorded: &mut Recorded, action: Action) -> Vec<(CallId, String)> {
    let effects = recorded.take_effects();
    let call = effects.iter().find_map(|effect| match effect {
        Effect::StepAgent { call, .. } => Some(*call),
        _ => None,
    });
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    let (call, report) = (call.expect("a step"), CallReport::default());
    started(recorded, Event::AgentStepped { call, answer: Ok(turn), report })
}

fn calls(names: &[&str]) -> Action {
    let call = |(id, name): (usize, &&str)| ToolCall {
        id: id.to_string(),
        ..ToolCall::new(*name, json!({}))
    };
    let tool_calls = names.iter().enumerate().map(call).collect();
    Action::Reply(Reply { tool_calls, ..Reply::default() })
}

/// Answers a call, which stores its text, and returns the calls that start then.
fn answer(
    recorded: &mut Recorded,
    call: CallId,
    text: &str,
    value: Option<Value>,
) -> Vec<(CallId, String)> {
    let outcome = ToolOutcome { content: Some(text.to_owned()), value, ..ToolOutcome::default() };
    let scratch = Some(text.as_bytes().to_vec());
    let report = CallReport { scratch, ..CallReport::default() };
    started(recorded, Event::ToolAnswered { call, answer: Ok(outcome), report })
}

fn read(recorded: &Recorded, call: CallId) -> String {
    String::from_utf8(recorded.room.scratch(call).to_vec()).expect("it is a text")
}

#[test]
fn each_call_of_a_round_reads_what_the_one_before_it_stored() {
    let mut recorded = opened(&["scratch"]);
    let first = step(&mut recorded, calls(&["one.run", "two.run", "one.poll", "one.kill"]));
    assert_eq!(first.iter().map(|it| it.1.as_str()).collect::<Vec<_>>(), ["one.run", "two.run"]);
    let second = answer(&mut recorded, first[0].0, "a", None);
    assert_eq!(second[0].1, "one.poll", "in the order of the calls");
    assert_eq!(read(&recorded, second[0].0), "a");
    assert_eq!(answer(&mut recorded, first[1].0, "other", None), [], "another plugin's state");
    let third = answer(&mut recorded, second[0].0, "b", None);
    assert_eq!((third.len(), read(&recorded, third[0].0).as_str()), (1, "b"));

    let mut recorded = opened(&[]);
    let all = step(&mut recorded, calls(&["one.run", "one.poll", "one.kill"]));
    assert_eq!(all.len(), 3, "a plugin without state works on all at once");
}

#[test]
fn a_poll_waits_for_a_call_that_is_at_work_and_continues_from_its_state() {
    let mut recorded = opened(&["scratch"]);
    let run = |background| Action::Run { command: "x".to_owned(), background };
    let calls = step(&mut recorded, run(true));
    let job = json!({ "background": { "command_id": 7, "poll_ms": 1 } });
    recorded.handle(
        Event::ToolAnswered {
            call: calls[0].0,
            answer: Ok(ToolOutcome { value: Some(job), ..ToolOutcome::default() }),
            report: CallReport::default(),
        },
        START,
    );
    let timer = recorded.effects.iter().find_map(|effect| match effect {
        Effect::SetTimer { timer, .. } => Some(*timer),
        _ => None,
    });
    let foreground = step(&mut recorded, run(false));
    let timer = timer.expect("the poll is due at a time");
    assert_eq!(started(&mut recorded, Event::TimerFired { timer }), []);
    let poll = answer(&mut recorded, foreground[0].0, "after the run", None);
    assert_eq!((poll.len(), poll[0].1.as_str()), (1, "one.poll"));
    assert_eq!(read(&recorded, poll[0].0), "after the run");
}

#[test]
fn nested_calls_take_turns_too_and_none_waits_for_a_call_that_waits_for_it() {
    let mut recorded = opened(&["scratch", "tools"]);
    let both = step(&mut recorded, calls(&["one.run", "two.run"]));
    let (one, two) = (both[0].0, both[1].0);
    let asks = |call, name: &str| {
        let calls = vec![NestedCall { name: name.to_owned(), arguments: json!({}).into() }];
        Event::ToolsAsked { call, ordinal: 0, calls }
    };
    assert_eq!(started(&mut recorded, asks(one, "two.poll")), [], "it waits for two.run");
    recorded.handle(asks(two, "one.poll"), START);
    let effects = recorded.take_effects();
    let [Effect::AnswerTools { call, answers, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*call, two);
    let refusal = serde_json::to_string(answers).expect("answers are serialisable");
    assert!(refusal.contains("one works on a call that waits for this one"), "{refusal}");
    let nested = answer(&mut recorded, two, "stored", None);
    assert_eq!((nested.len(), nested[0].1.as_str()), (1, "two.poll"));
    assert_eq!(read(&recorded, nested[0].0), "stored");
}

#[test]
fn a_call_that_never_had_its_turn_ends_with_the_run() {
    let mut recorded = opened(&["scratch"]);
    let first = step(&mut recorded, calls(&["one.run", "one.poll"]));
    recorded.handle(Event::Cancelled { reason: "enough".to_owned() }, START);
    let is_abandoned = |effect: &Effect| match effect {
        Effect::AbandonCall { call } => Some(*call),
        Effect::CallTool { .. } => panic!("nothing starts"),
        _ => None,
    };
    let abandoned: Vec<CallId> = recorded.effects.iter().filter_map(is_abandoned).collect();
    assert_eq!(abandoned, [first[0].0]);
}
