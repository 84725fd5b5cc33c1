//! Polls of background work: while it is under way they are no loop, of whatever length; once it is
//! over they are one.

use conclave_core::protocol::notice::Notice;
use conclave_core::types::host_tool::HostTool;
use conclave_core::types::ids::BackgroundId;
use conclave_core::types::outcome::Status;
use serde_json::{Value, json};

use super::{Desk, call, completed_task, offers};
use crate::case::Case;
use conclave_core::types::action::Action;

/// More than any limit of stuck detection and of loop detection.
const MANY: usize = 70;

/// Returns a room whose task `desk` has detectors of both kinds.
fn watched() -> Desk {
    let desk = json!({
        "stuck_detection": { "on": true },
        "loop_detection": { "cycle_len": 10, "wait": 5, "dominance": 1.5, "alternation": true },
    });
    let mut setup = super::plain_with("desk", desk);
    setup["limits"] = json!({ "turns": 1_000 });
    Desk::open_with(
        setup,
        |setup| offers(setup, "desk", &[HostTool::DelegateTask, HostTool::TaskStatus]),
        |_| {},
    )
}

fn status_of(task: &str) -> Action {
    call("task_status", json!({ "task_id": task }))
}

fn is_over(desk: &Desk) -> Option<Status> {
    desk.room.outcome().map(|outcome| outcome.status)
}

#[test]
fn polls_of_tasks_under_way_are_no_loop_and_those_of_a_finished_one_are() {
    let mut desk = watched();
    for task in ["x", "y"] {
        desk.calls("delegate_task", json!({ "agent": "slow", "task": task }));
    }
    let (first, id, _) = desk.take_background();
    let (second, _, _) = desk.take_background();
    assert_eq!(id, BackgroundId::from("task-1"));
    for number in 0..MANY {
        // One of them, the two in turn, and all of them.
        let task = ["task-1", "task-2", "", "task-1"][number % 4];
        desk.step(status_of(if number < MANY / 2 { "task-1" } else { task }));
        assert_eq!(is_over(&desk), None, "after {number} polls");
    }
    // One of two is enough.
    desk.ended(second, completed_task("fine"));
    for number in 0..MANY {
        desk.calls("task_status", json!({}));
        assert_eq!(is_over(&desk), None, "after {number} polls");
    }
    desk.ended(first, completed_task("fine"));
    let polls = (0..MANY).take_while(|_| {
        if is_over(&desk).is_none() {
            desk.step(status_of("task-1"));
        }
        is_over(&desk).is_none()
    });
    assert_eq!(polls.count(), 3, "the fourth equal answer is a loop");
    assert_eq!(is_over(&desk), Some(Status::InfLoop));
    desk.folds();
}

#[test]
fn what_is_said_between_polls_is_no_loop_and_other_acts_are() {
    let mut desk = watched();
    desk.calls("delegate_task", json!({ "agent": "slow", "task": "x" }));
    desk.take_background();
    for _ in 0..10 {
        desk.step(Action::Talk { content: "Still at work.".to_owned() });
        desk.step(status_of("task-1"));
        assert_eq!(is_over(&desk), None);
    }
    // An act that is repeated between polls is still repeated.
    let acts = (0..20).take_while(|_| {
        desk.calls("task_status", json!({ "task_id": "task-9" }));
        if !is_stuck(&desk) {
            desk.step(status_of("task-1"));
        }
        !is_stuck(&desk)
    });
    assert_eq!(acts.count(), 3, "an unknown task is not under way");
}

/// Returns whether a loop was found. Its task ends, and the run with its background task.
fn is_stuck(desk: &Desk) -> bool {
    desk.notices.iter().any(|notice| matches!(notice, Notice::AgentStuck { .. }))
}

fn commands(tools: &Value) -> Case {
    let poll = json!({ "call": [{ "name": "box.look", "arguments": { "command_id": 42 } }] });
    let steps = [json!({ "call": ["box.begin"] })].into_iter();
    let steps: Vec<Value> =
        steps.chain(std::iter::repeat_n(poll, 40)).chain([json!({ "finish": "end" })]).collect();
    serde_json::from_value(json!({
        "name": "commands",
        "setup": {
            "tasks": { "desk": { "stuck_detection": { "on": true } } },
            "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["begin", "look"] } },
        },
        "scripts": { "agents": { "desk": steps }, "tools": { "box.begin": [tools[0]], "box.look": tools[1] } },
        "expect": {},
    }))
    .expect("a case")
}

#[test]
fn polls_of_a_command_are_no_loop_until_its_tool_says_that_it_is_over() {
    let background_start =
        json!({ "content": "begun", "value": { "background": { "command_id": 42 } } });
    let goes_on = json!({ "content": "", "value": { "exit_code": null, "output": "" } });
    let over = json!({ "content": "", "value": { "exit_code": 0, "output": "" } });
    let plays = |first: &Value, polls: &[&Value]| {
        let case = commands(&json!([first, polls]));
        let mut world = crate::world::World::new(&case, crate::world::Order::First);
        world.run();
        world.room.outcome().map(|outcome| outcome.status)
    };
    assert_eq!(plays(&background_start, &[&goes_on; 40]), Some(Status::Done));
    let ends: Vec<&Value> =
        std::iter::repeat_n(&goes_on, 20).chain(std::iter::repeat_n(&over, 20)).collect();
    assert_eq!(plays(&background_start, &ends), Some(Status::InfLoop), "it is over");
    let unknown = json!({ "content": "begun" });
    assert_eq!(plays(&unknown, &[&goes_on; 40]), Some(Status::InfLoop), "no command was begun");
}
