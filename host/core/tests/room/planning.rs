//! Limits of a plan in a room, and the plan facts that a room reports to its host.

use conclave_core::types::action::Action;
use conclave_core::types::agent_state::AgentState;
use serde_json::{Value, json};

use crate::case::Case;
use crate::world::{Order, World};

fn case(agents: &Value) -> Case {
    serde_json::from_value(
        json!({ "name": "plans", "scripts": { "agents": agents }, "expect": {} }),
    )
    .expect("a case of the right form")
}

fn add(parent: &str, goal: &str, subtasks: Value) -> Value {
    json!({ "action": Action::AddTask { parent: parent.to_owned(), goal: goal.to_owned(), subtasks } })
}

fn track(list: &Value) -> Value {
    json!({ "action": Action::Custom { name: "task_tracking".to_owned(), arguments: json!({ "command": "plan", "task_list": list }) } })
}

#[test]
fn a_plan_that_would_be_too_large_is_refused_and_the_old_one_stays() {
    let entry = json!({ "title": "t" });
    let deep = (0..100).fold(json!([]), |below, _| json!([{ "goal": "g", "subtasks": below }]));
    let wide: Vec<Value> = (0..20_000).map(|_| json!({ "goal": "g" })).collect();
    let turns = json!({ "desk": [
        track(&json!([entry.clone()])),
        track(&json!(vec![entry; 1_001])),
        add("", &"x".repeat(100_000), Value::Null),
        add("", "deep", deep),
        add("", "wide", json!(wide)),
        { "finish": "end" },
    ] });
    let case = case(&turns);
    let mut world = World::new(&case, Order::parse(&json!("first")));
    world.run();
    let seen = world.seen.report(&Value::Null, &world.state(), world.hours());
    for view in 2..6 {
        let view = &seen["views"]["desk"][view];
        let text = view["since"][0][1].as_str().expect("an observation");
        assert!(text.starts_with("error: "), "{text}");
        assert_eq!(view["plan"], json!(["0 open t"]));
    }
    assert_eq!(seen["plans"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_room_says_what_the_agents_of_its_tasks_are_doing() {
    let case = case(&json!({ "desk": [{ "think": "a" }, { "finish": "end" }] }));
    let mut world = World::new(&case, Order::parse(&json!("first")));
    assert_eq!(world.room.agent_state(&"desk".into()), None);
    world.run();
    assert_eq!(world.room.agent_state(&"desk".into()), Some(AgentState::Finished));
    assert_eq!(world.room.agent_state(&"nobody".into()), None);
}
