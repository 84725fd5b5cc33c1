//! Delegates beyond the reach of scripts: floods, and hosts that stop in the middle.

use conclave_core::journal::record::fold;
use conclave_core::room::Room;
use conclave_core::types::action::Action;
use serde_json::{Value, json};

use crate::case::Case;
use crate::world::{Order, World};

fn case(setup: &Value, scripts: &Value) -> Case {
    serde_json::from_value(
        json!({ "name": "delegates", "setup": setup, "scripts": scripts, "expect": {} }),
    )
    .expect("a case of the right form")
}

fn delegate_all(delegates: &Value) -> Value {
    let action = Action::Custom {
        name: "delegate_all".to_owned(),
        arguments: json!({ "delegates": delegates }),
    };
    json!({ "action": action })
}

fn three_workers() -> Value {
    json!({
        "tasks": { "desk": {}, "one": {}, "two": {}, "three": {} },
        "plugins": { "desk": { "grants": { "delegate": ["one", "two", "three"], "at_once": 2 } } },
    })
}

fn since_and_steps(case: &Case) -> (Value, Value) {
    let mut world = World::new(case, Order::parse(&json!("first")));
    world.run();
    let outcome = serde_json::to_value(world.room.outcome()).expect("an outcome is serialisable");
    let seen = world.seen.report(&outcome, &world.state(), world.hours());
    (seen["views"]["desk"][1]["since"].clone(), seen["effects"]["step-agent"].clone())
}

#[test]
fn ten_thousand_delegates_in_one_action_are_refused_with_a_text() {
    let flood: Vec<Value> =
        (0..10_000).map(|_| json!({ "agent": "one", "inputs": { "task": "x" } })).collect();
    let case = case(
        &three_workers(),
        &json!({ "agents": { "desk": [delegate_all(&json!(flood)), { "finish": "end" }] } }),
    );
    let (since, steps) = since_and_steps(&case);
    let text = since[0][1].as_str().expect("an observation");
    assert!(
        text.starts_with("error: delegate_all: 10000 delegates, and 128 may be asked for at once"),
        "{text}"
    );
    assert_eq!(steps, json!(2), "nobody was started");
}

#[test]
fn as_many_delegates_as_are_allowed_all_answer_in_order() {
    let most: Vec<Value> =
        (0..128).map(|at| json!({ "agent": if at % 2 == 0 { "one" } else { "two" }, "inputs": { "task": at } })).collect();
    let finish = |from: usize| -> Vec<Value> {
        (0..64).map(|at| json!({ "finish": { "n": at * 2 + from } })).collect()
    };
    let mut setup = three_workers();
    setup["limits"] = json!({ "turns": 1_000 });
    let agents = json!({ "desk": [delegate_all(&json!(most)), { "finish": "end" }], "one": finish(0), "two": finish(1) });
    let (since, _) = since_and_steps(&case(&setup, &json!({ "agents": agents })));
    let since = since.as_array().expect("a list").clone();
    assert_eq!(since.len(), 128);
    for (at, past_action) in since.iter().enumerate() {
        let text = past_action[1].as_str().expect("an observation");
        assert!(text.ends_with(&format!("{{\"n\":{at}}}")), "{at}: {text}");
    }
}

#[test]
fn a_room_read_back_after_any_event_goes_on_with_its_delegates_as_before() {
    let delegations = json!([{ "agent": "one" }, { "agent": "two" }, { "agent": "one" }, { "agent": "ghost" }, { "agent": "three" }]);
    let agents = json!({
        "desk": [delegate_all(&delegations), { "finish": "end" }],
        "one": [{ "think": "a" }, { "finish": "1" }, { "reject": "2" }], "two": [{ "finish": "3" }], "three": [{ "finish": { "n": 4 } }],
    });
    let case = case(&three_workers(), &json!({ "agents": agents }));
    let mut world = World::new(&case, Order::parse(&json!(5)));
    world.run();
    assert!(world.room.outcome().is_some());
    for cut in 0..world.records.len() {
        let before = serde_json::to_string(&fold(world.records[..cut].iter().cloned()))
            .expect("a room is serialisable");
        let mut room: Room = serde_json::from_str(&before).expect("a room reads what it wrote");
        for record in &world.records[cut..] {
            while room.poll_effect().is_some() {}
            room.handle(record.event.clone(), record.at);
        }
        assert_eq!(room.outcome(), world.room.outcome(), "cut off after {cut} events");
    }
}
