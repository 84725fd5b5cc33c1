//! A condensed history as its agent and its model see it, and its limits (O-123, O-125, O-159).

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::setup::plugin_query::{CondenseReason, LEFT_OUT, PluginQuery};
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::completion::{ModelError, ModelRequest};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::{CallId, TaskName};
use conclave_core::types::message::{Label, Role, ToolCall};
use conclave_core::types::tool::ToolOutcome;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

fn opened(over: u64) -> Recorded {
    let setup = json!({
        "tasks": { "desk": { "condense": { "plugin": "short", "over": over } } },
        "models": { "default": {} },
        "plugins": { "desk": { "grants": { "tools": ["*"], "model": ["default"] } }, "box": { "tools": ["a"] }, "short": { "kinds": ["condenser"] } },
    });
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
            .expect("a case of the right form");
    let mut recorded = Recorded::default();
    recorded.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    recorded
}

/// Makes the agent call its tool, which returns `text`. Returns the next effect.
fn look(recorded: &mut Recorded, text: &str) -> Effect {
    let step = next(recorded);
    let Effect::StepAgent { call, .. } = step else { panic!("expected a step: {step:?}") };
    let calls = Action::Reply(Reply {
        tool_calls: vec![ToolCall::new("box.a", json!({}))],
        ..Reply::default()
    });
    let turn =
        Turn { action: calls, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    recorded.handle(
        Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() },
        START,
    );
    let Effect::CallTool { call, .. } = next(recorded) else { panic!("expected a call") };
    let answer = Ok(ToolOutcome { content: Some(text.to_owned()), ..ToolOutcome::default() });
    recorded.handle(Event::ToolAnswered { call, answer, report: CallReport::default() }, START);
    recorded.effects.last().cloned().expect("something begins")
}

fn next(recorded: &mut Recorded) -> Effect {
    let effects = recorded.take_effects();
    let [effect] = &effects[..] else { panic!("expected one effect: {effects:?}") };
    effect.clone()
}

fn advise(recorded: &mut Recorded, call: CallId, condensation: Value) {
    let advice =
        serde_json::from_value(json!({ "advice": "condense", "condensation": condensation }))
            .expect("advice");
    recorded.handle(
        Event::PluginQueried { call, answer: Ok(advice), report: CallReport::default() },
        START,
    );
}

fn history(recorded: &Recorded) -> conclave_core::types::history::History {
    recorded.room.history(&TaskName::from("desk"))
}

#[test]
fn a_call_is_forgotten_with_its_result_and_a_summary_stands_in_their_place() {
    let mut recorded = opened(4);
    look(&mut recorded, "one");
    let effect = look(&mut recorded, "two");
    let Effect::QueryPlugin { call, .. } = effect else {
        panic!("the history is long enough: {effect:?}")
    };
    assert!(
        recorded.room.agent_view(call).is_some_and(|view| view.history.len() == 5),
        "the condenser sees all of it"
    );
    recorded.take_effects();
    // Only the result is named, and its call is removed with it. A pending call stays, with its
    // result.
    advise(
        &mut recorded,
        call,
        json!({ "forget": [{ "start": 2, "end": 5 }], "summary": "it looked once" }),
    );
    let Effect::StepAgent { call, .. } = next(&mut recorded) else { panic!("the step goes on") };
    let history = history(&recorded);
    let texts: Vec<&str> = history.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["hello", "it looked once", "", "two"]);
    let summary = history.get(1).expect("it is there");
    assert_eq!(
        (summary.sender, summary.sender_name.as_str(), &summary.labels[..]),
        (Role::Agent, "condenser:short", &[Label::Tool][..])
    );
    let prompt = summary.in_prompt();
    assert!(
        prompt.starts_with("--- SUMMARY OF EARLIER MESSAGES ---\n")
            && prompt.contains("the condenser short wrote"),
        "{prompt}"
    );
    let view = recorded.room.agent_view(call).expect("it is under way");
    assert_eq!(view.pending.map(|message| message.text().to_owned()).as_deref(), Some("two"));
    // The log keeps all entries.
    assert!(
        conclave_core::journal::record::fold(recorded.records.iter().cloned()) == recorded.room
    );
}

#[test]
fn a_summary_of_words_from_outside_is_from_outside() {
    let mut recorded = opened(2);
    let effect = look(&mut recorded, "one");
    let Effect::QueryPlugin { call, .. } = effect else {
        panic!("the history is long enough: {effect:?}")
    };
    recorded.take_effects();
    recorded.handle(
        Event::UserMessageSent { task: None, text: "and?".to_owned(), attachments: Vec::new() },
        START,
    );
    // The user's newest message is `hello`: it is never removed.
    advise(
        &mut recorded,
        call,
        json!({ "forget": [{ "start": 0, "end": 3 }], "summary": "greetings" }),
    );
    assert_eq!(
        history(&recorded).get(0).map(|message| message.text().to_owned()).as_deref(),
        Some("hello")
    );
    let mut condense_call = None;
    for _ in 0..8 {
        if let Effect::QueryPlugin { call, .. } = look(&mut recorded, "more") {
            condense_call = Some(call);
            break;
        }
    }
    recorded.take_effects();
    let call = condense_call.expect("it has grown by eight entries");
    let place = history(&recorded)
        .iter()
        .position(|message| message.text() == "hello")
        .expect("it is there") as u64;
    advise(
        &mut recorded,
        call,
        json!({ "forget": [{ "start": place, "end": place + 1 }], "summary": "greetings" }),
    );
    let history = history(&recorded);
    let summary =
        history.iter().find(|message| message.text() == "greetings").expect("it is there");
    assert!(summary.labels.contains(&Label::Untrusted) && summary.sender == Role::Agent);
    assert!(history.iter().any(|message| message.text() == "and?"), "the user's newest word");
}

#[test]
fn a_masked_result_keeps_its_id_for_the_provider() {
    let mut recorded = opened(4);
    look(&mut recorded, "a long result");
    let effect = look(&mut recorded, "two");
    let Effect::QueryPlugin { call, .. } = effect else {
        panic!("the history is long enough: {effect:?}")
    };
    recorded.take_effects();
    let before = history(&recorded).get(2).expect("it is there").clone();
    advise(&mut recorded, call, json!({ "mask": [{ "index": 2, "text": LEFT_OUT }] }));
    let after = history(&recorded).get(2).expect("it is there").clone();
    assert_eq!(
        (after.tool_results[0].content.as_str(), &after.tool_results[0].call_id),
        (LEFT_OUT, &before.tool_results[0].call_id)
    );
    assert_eq!(after.seq, before.seq);
}

#[test]
fn a_task_that_is_killed_while_its_condenser_thinks_is_over() {
    let mut recorded = opened(2);
    let effect = look(&mut recorded, "one");
    let Effect::QueryPlugin { call, .. } = effect else {
        panic!("the history is long enough: {effect:?}")
    };
    recorded.handle(Event::TaskKilled { task: "desk".into(), reason: "no".to_owned() }, START);
    assert!(recorded.room.outcome().is_some());
    let over = recorded.room.clone();
    advise(&mut recorded, call, json!({ "forget": [{ "start": 0, "end": 1 }] }));
    assert!(recorded.room == over);
}

/// Ends the agent's step without an answer, because its model refused the prompt as too long.
fn refuse(recorded: &mut Recorded) -> Vec<Effect> {
    let Effect::StepAgent { call, .. } = next(recorded) else { panic!("expected a step") };
    let request = ModelRequest::default();
    recorded.handle(Event::ModelAsked { call, ordinal: 0, request }, START);
    let effects = recorded.take_effects();
    assert!(matches!(effects[..], [Effect::CallModel { .. }]), "{effects:?}");
    let answer = Err(ModelError::ContextTooLong { tokens: 100 });
    recorded.handle(
        Event::ModelAnswered { call, ordinal: 0, answer, trouble: None, was_shown: false },
        START,
    );
    recorded.take_effects();
    let fault = Fault::new(FaultKind::Error, "the prompt is too long");
    let report = CallReport::default();
    recorded.handle(Event::AgentStepped { call, answer: Err(fault), report }, START);
    recorded.take_effects()
}

#[test]
fn a_prompt_that_the_model_refuses_as_too_long_is_condensed_and_sent_again() {
    let mut recorded = opened(100);
    for text in ["one", "two", "three"] {
        look(&mut recorded, text);
    }
    for (forget, length) in [(json!([{ "start": 2, "end": 3 }]), 5), (json!([]), 5)] {
        let effects = refuse(&mut recorded);
        let [Effect::QueryPlugin { call, question, .. }] = &effects[..] else {
            panic!("the condenser is asked: {effects:?}")
        };
        let PluginQuery::Condense { reason } = question else { panic!("{question:?}") };
        assert_eq!(*reason, CondenseReason::Overflow);
        advise(&mut recorded, *call, json!({ "forget": forget }));
        assert_eq!(history(&recorded).len(), length);
    }
    // The condenser did not shorten it, so the step fails as usual.
    let effects = refuse(&mut recorded);
    let asks = |effect: &Effect| matches!(effect, Effect::QueryPlugin { .. });
    assert!(!effects.iter().any(asks), "{effects:?}");
    assert!(
        conclave_core::journal::record::fold(recorded.records.iter().cloned()) == recorded.room
    );
}
