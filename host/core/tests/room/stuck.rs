//! Stuck detection: its cost, and its state in a restored room.

use conclave_core::journal::record::fold;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::room::Room;
use conclave_core::types::action::{Action, Turn};
use conclave_core::types::fault::CallReport;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::world::{Order, World};

fn watched() -> Value {
    json!({
        "tasks": { "desk": { "stuck_detection": { "on": true } } },
        "limits": { "turns": 1_000_000 },
        "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } },
    })
}

fn case(scripts: &Value) -> Case {
    serde_json::from_value(
        json!({ "name": "stuck", "setup": watched(), "scripts": scripts, "expect": {} }),
    )
    .expect("a case of the right form")
}

/// Takes one step that thinks or plans something new.
fn step(room: &mut Room, number: u32) {
    while room.poll_notice().is_some() {}
    let effects: Vec<Effect> = std::iter::from_fn(|| room.poll_effect()).collect();
    let [Effect::StepAgent { call, .. }] = effects[..] else {
        panic!("expected a step alone: {effects:?}")
    };
    let thought = format!("thought {number:09}");
    let action = if number.is_multiple_of(2) {
        Action::Think { thought }
    } else {
        Action::Delegate { agent: thought, inputs: json!({}) }
    };
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    room.handle(
        Event::AgentStepped { call, answer: Ok(turn), report: CallReport::default() },
        START,
    );
}

#[test]
fn what_is_kept_of_what_was_done_does_not_grow_with_it() {
    let case = case(&json!({}));
    let mut room = Room::new();
    room.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    let size = |room: &Room| {
        serde_json::to_value(room).expect("a room is serialisable")["frames"]["frames"]
            .to_string()
            .len()
    };
    (0..20).for_each(|number| step(&mut room, number));
    let after_few = size(&room);
    (20..1_000).for_each(|number| step(&mut room, number));
    let after_many = size(&room);
    assert!(
        after_many < after_few + 64,
        "{after_few} bytes after 20 steps, {after_many} after 1000: more than longer numbers"
    );
}

#[test]
fn a_room_read_back_after_any_event_finds_the_same_loop() {
    let call = json!({ "call": ["box.a"] });
    let failed = json!({ "error": { "kind": "other", "message": "no" } });
    let case = case(
        &json!({ "agents": { "desk": vec![call; 9] }, "tools": { "box.a": vec![failed; 9] } }),
    );
    let mut world = World::new(&case, Order::parse(&json!("first")));
    world.run();
    let outcome = world.room.outcome().expect("it is over").clone();
    assert!(outcome.reason.contains("failed 4 times in a row"), "{}", outcome.reason);
    for cut in 0..world.records.len() {
        let before = serde_json::to_string(&fold(world.records[..cut].iter().cloned()))
            .expect("a room is serialisable");
        let mut room: Room = serde_json::from_str(&before).expect("a room reads what it wrote");
        for record in &world.records[cut..] {
            while room.poll_effect().is_some() {}
            room.handle(record.event.clone(), record.at);
        }
        assert_eq!(room.outcome(), Some(&outcome), "cut off after {cut} events");
    }
}
