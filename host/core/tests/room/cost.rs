//! The cost of a step does not grow with the past: snapshots share the history, and no other state
//! accumulates.

use std::sync::Arc;

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Turn};
use conclave_core::types::completion::PromptPiece;
use conclave_core::types::fault::CallReport;
use conclave_core::types::history::History;
use conclave_core::types::ids::CallId;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::plan::request;

fn opened() -> Room {
    let case = json!({
        "name": "long", "expect": {},
        "setup": { "limits": { "turns": 1_000_000 }, "models": { "default": {} }, "plugins": { "desk": { "grants": { "model": ["default"] } } } },
    });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let mut room = Room::new();
    room.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    room
}

fn step_under_way(room: &mut Room) -> CallId {
    let effects: Vec<Effect> = std::iter::from_fn(|| room.poll_effect()).collect();
    while room.poll_notice().is_some() {}
    let [Effect::StepAgent { call, .. }] = effects[..] else {
        panic!("expected a step alone: {effects:?}")
    };
    call
}

/// Makes the agent think, which adds two messages: the thought, and the host's confirmation.
fn think(room: &mut Room) {
    let call = step_under_way(room);
    let action = Action::Think { thought: "a thought of some length".to_owned() };
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    room.handle(
        Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() },
        START,
    );
}

fn is_shared(one: &History, other: &History) -> bool {
    one.iter().zip(other.iter()).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// Returns the size of the room's JSON without its histories.
fn size_without_history(room: &Room) -> usize {
    let mut state = serde_json::to_value(room).expect("a room is serialisable");
    state["histories"] = Value::Null;
    state.to_string().len()
}

#[test]
fn a_step_shares_the_history_with_every_snapshot() {
    let mut room = opened();
    for _ in 0..500 {
        think(&mut room);
    }
    let call = step_under_way(&mut room);
    let early = room.agent_view(call).expect("a step is under way").history;
    assert_eq!(early.len(), 1_001);
    room.handle(Event::ModelAsked { call, ordinal: 0, request: request(&Value::Null) }, START);
    let Some(Effect::CallModel { prompt, .. }) = room.poll_effect() else {
        panic!("the model is asked")
    };
    let Some(PromptPiece::History { messages, start: 0, end: 1_001 }) = prompt.pieces.last() else {
        panic!("{:?}", prompt.pieces.last())
    };
    assert!(is_shared(&early, messages), "a prompt copies no message");
    let action = Action::Think { thought: "one more".to_owned() };
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    room.handle(
        Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() },
        START,
    );
    let later = room.history(&"desk".into());
    assert!(later.len() > early.len() && is_shared(&early, &later), "a step copies no message");
    assert_eq!(early.len(), 1_001, "a snapshot does not change");
}

#[test]
fn nothing_but_the_history_grows_with_the_steps() {
    let mut room = opened();
    for _ in 0..10 {
        think(&mut room);
    }
    let after_few = size_without_history(&room);
    for _ in 0..990 {
        think(&mut room);
    }
    let after_many = size_without_history(&room);
    assert!(
        after_many < after_few + 64,
        "{after_few} bytes after 10 steps, {after_many} after 1000: more than longer numbers"
    );
}

#[test]
fn what_came_since_the_last_step_is_only_that() {
    let mut room = opened();
    for _ in 0..300 {
        think(&mut room);
    }
    let call = step_under_way(&mut room);
    assert_eq!(room.agent_view(call).expect("a step is under way").since.len(), 1);
}
