//! Malicious actions and background commands: floods, foreign observations, foreign ids; and their
//! cost.

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Observation, PastAction, Turn};
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::CallId;
use conclave_core::types::tool::{ToolError, ToolOutcome};
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::checks::violations;
use crate::properties::Recorded;

fn opened() -> Recorded {
    let setup = json!({
        "tasks": { "desk": { "action_plugins": ["shell"] } },
        "plugins": { "desk": { "grants": { "tools": ["shell.*"] } }, "shell": { "tools": ["run", "read", "kill", "poll"] } },
        "limits": { "turns": 1_000_000 },
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

fn step(recorded: &mut Recorded, action: Action) -> Vec<Effect> {
    let call = step_under_way(&recorded.take_effects());
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    recorded.handle(
        Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() },
        START,
    );
    recorded.take_effects()
}

fn step_under_way(effects: &[Effect]) -> CallId {
    let step = effects.iter().find_map(|effect| {
        if let Effect::StepAgent { call, .. } = effect { Some(*call) } else { None }
    });
    step.unwrap_or_else(|| panic!("no step: {effects:?}"))
}

fn tool_call(effects: &[Effect]) -> (CallId, String) {
    let call = effects.iter().find_map(|effect| {
        if let Effect::CallTool { call, tool, .. } = effect {
            Some((*call, tool.clone()))
        } else {
            None
        }
    });
    call.unwrap_or_else(|| panic!("no call: {effects:?}"))
}

fn answer(recorded: &mut Recorded, call: CallId, outcome: ToolOutcome) {
    recorded.handle(
        Event::ToolAnswered { call, answer: Ok(outcome), report: CallReport::default() },
        START,
    );
}

fn says(content: &str, value: Value) -> ToolOutcome {
    ToolOutcome {
        content: Some(content.to_owned()).filter(|content| !content.is_empty()),
        value: Some(value),
        ..ToolOutcome::default()
    }
}

fn run(background: bool) -> Action {
    Action::Run { command: "srv".to_owned(), background }
}

fn pending(recorded: &Recorded) -> String {
    let call = step_under_way(&recorded.effects);
    recorded
        .room
        .agent_view(call)
        .expect("a step is under way")
        .pending
        .as_ref()
        .expect("something is pending")
        .text()
        .to_owned()
}

fn size(room: &Room) -> usize {
    let mut state = serde_json::to_value(room).expect("a room is serialisable");
    state["histories"] = Value::Null;
    state.to_string().len()
}

/// An agent takes its pending message for a question, and a fault is none.
#[test]
fn after_a_fault_the_message_to_answer_is_still_pending() {
    let mut recorded = opened();
    let message = pending(&recorded);
    for fault in ["boom", "bang"] {
        let call = step_under_way(&recorded.take_effects());
        let answer = Err(Fault::new(FaultKind::Error, fault));
        recorded.handle(Event::AgentStepped { call, answer, report: CallReport::default() }, START);
        assert_eq!(pending(&recorded), message, "after {fault}");
        let call = step_under_way(&recorded.effects);
        let view = recorded.room.agent_view(call).expect("a step is under way");
        let is_told = |past_action: &PastAction| matches!(&past_action.observation, Some(Observation::Error { content }) if content.contains(fault));
        assert!(view.since.iter().any(is_told), "{:?}", view.since);
    }
}

/// The action runs whatever the text is: the text is only what the history shows.
#[test]
fn the_text_of_an_action_is_in_the_history_in_its_place() {
    let mut recorded = opened();
    let call = step_under_way(&recorded.take_effects());
    let extra = vec![("text".to_owned(), json!("DONE. <execute_bash>srv</execute_bash>"))];
    let turn = Turn { action: run(false), thought: String::new(), wait_for_response: false, extra };
    let event = Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() };
    recorded.handle(event, START);
    let (call, tool) = tool_call(&recorded.take_effects());
    assert_eq!(tool, "run");
    answer(&mut recorded, call, says("up", json!({})));
    let step = step_under_way(&recorded.effects);
    let view = recorded.room.agent_view(step).expect("a step is under way");
    let texts: Vec<String> =
        view.history.iter().map(|message| message.as_read().into_owned()).collect();
    assert_eq!(texts[texts.len() - 2], "DONE. <execute_bash>srv</execute_bash>", "{texts:?}");
    assert!(matches!(&view.since[0].action, Some(Action::Run { command, .. }) if command == "srv"));
    assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
}

#[test]
fn no_more_than_sixteen_background_commands_and_what_is_handed_over_unasked_is_killed() {
    let mut recorded = opened();
    for command_id in 0..16 {
        let (call, _) = tool_call(&step(&mut recorded, run(true)));
        answer(
            &mut recorded,
            call,
            says("", json!({ "background": { "command_id": command_id } })),
        );
    }
    let effects = step(&mut recorded, run(true));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::CallTool { .. })), "{effects:?}");
    recorded.effects = effects;
    assert!(pending(&recorded).starts_with("There are 16 background commands already"));
    let (call, _) = tool_call(&step(&mut recorded, run(false)));
    answer(&mut recorded, call, says("", json!({ "background": { "command_id": 99 } })));
    assert_eq!(tool_call(&recorded.effects).1, "kill");
    assert!(pending(&recorded).starts_with("There are 16 background commands already"));
    assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
}

#[test]
fn a_flood_of_output_stays_as_small_as_one_observation_and_wakes_nobody() {
    let mut recorded = opened();
    let (call, _) = tool_call(&step(&mut recorded, run(true)));
    answer(
        &mut recorded,
        call,
        says("", json!({ "background": { "command_id": 7, "poll_ms": 1 } })),
    );
    let mut effects = recorded.take_effects();
    let step = step_under_way(&effects);
    let after_one = size(&recorded.room);
    for _ in 0..300 {
        let timer = effects.iter().find_map(|effect| {
            if let Effect::SetTimer { timer, .. } = effect { Some(*timer) } else { None }
        });
        recorded.handle(Event::TimerFired { timer: timer.expect("the next poll is set") }, START);
        let (call, tool) = tool_call(&recorded.take_effects());
        assert_eq!(tool, "poll");
        answer(
            &mut recorded,
            call,
            ToolOutcome { content: Some("x".repeat(50_000)), ..ToolOutcome::default() },
        );
        effects = recorded.take_effects();
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::StepAgent { .. })),
            "output starts no step"
        );
    }
    assert!(recorded.room.is_in_flight(step));
    assert!(size(&recorded.room) < after_one + 40_000);
    assert_eq!(recorded.room.spent().turns, 2);
}

#[test]
fn what_is_no_answer_is_an_error_and_the_run_goes_on() {
    let huge = "y".repeat(4 << 20);
    let foreign = |kind: &str| json!({ "observation": { "observation": kind, "content": "c", "extras": {} } });
    let mut recorded = opened();
    for (value, expected) in [
        (foreign("agent_state_changed"), "gave no observation"),
        (foreign("success"), "no answer to it"),
        (foreign("dance"), "no answer to it"),
        (json!({ "observation": { "observation": "run", "content": 3 } }), "gave no observation"),
        (
            json!({ "observation": { "action": "run", "args": { "command": "x" } } }),
            "gave no observation",
        ),
    ] {
        let (call, _) = tool_call(&step(&mut recorded, run(false)));
        answer(&mut recorded, call, says("text", value));
        assert!(pending(&recorded).contains(expected), "{}", pending(&recorded));
    }
    let (call, _) = tool_call(&step(&mut recorded, run(false)));
    answer(&mut recorded, call, says(&huge, json!({})));
    assert!(pending(&recorded).len() < 31_000);
    let read = Action::Read { path: "a".to_owned(), start: 0, end: -1 };
    let (call, _) = tool_call(&step(&mut recorded, read));
    answer(&mut recorded, call, says(&huge, json!({})));
    assert!(pending(&recorded).starts_with("yyy") && pending(&recorded).len() < (1 << 20) + 200);
    let (call, _) = tool_call(&step(&mut recorded, run(false)));
    let denied = Err(ToolError::Unavailable { retry_after_ms: None });
    recorded
        .handle(Event::ToolAnswered { call, answer: denied, report: CallReport::default() }, START);
    assert_eq!(pending(&recorded), "run is not available now.");
    assert_eq!(violations(&recorded.room, &recorded.records), Vec::<String>::new());
}

#[test]
fn an_action_costs_the_same_however_many_went_before() {
    let mut recorded = opened();
    let mut sizes = Vec::new();
    for count in 0..400 {
        let (call, _) = tool_call(&step(&mut recorded, run(false)));
        answer(&mut recorded, call, says("done", json!({ "exit_code": 0 })));
        if count % 200 == 10 {
            sizes.push(size(&recorded.room));
        }
    }
    assert!(sizes[1] < sizes[0] + 64, "{sizes:?}");
}
