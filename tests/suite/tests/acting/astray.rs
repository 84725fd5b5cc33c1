//! Agents that repeat themselves and hide it behind varying thoughts (C-325).

use conclave_core::protocol::notice::Notice;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig};
use serde_json::{Value, json};

use super::{acting, executor};

fn again(line: &str, times: usize) -> Value {
    let act = |time: usize| json!({ "action": "run", "args": { "command": line }, "thought": format!("This is attempt {time}, and another one.") });
    json!((0..times).map(act).collect::<Vec<_>>())
}

fn run(script: &Value, task: &str) -> Ran {
    let terminal = executor("stub_terminal", "terminal", "");
    let task = format!("action_plugins = [\"terminal\"]\n{task}");
    Rig::new().run(&acting(script, "grants.tools = [\"terminal.*\"]", &task, &terminal), "go")
}

fn times(ran: &Ran) -> usize {
    ran.answers().len()
}

#[test]
fn thoughts_that_vary_do_not_hide_a_loop() {
    let ran = run(&again("echo a", 12), "");
    assert_eq!((ran.status(), times(&ran)), (Status::InfLoop, 4), "{}", ran.outcome.reason);
    let reason = "main is stuck: the same action gave the same result 4 times in a row (run); tasks.main.stuck_detection = false lets it go on";
    assert_eq!(ran.outcome.reason, reason);
    assert!(
        ran.notices().any(
            |notice| matches!(notice, Notice::AgentStuck { reason: told, .. } if told == reason)
        )
    );
}

#[test]
fn an_action_that_fails_again_and_again_is_a_loop() {
    let act = |time: usize| json!({ "action": "browse", "args": { "url": "https://a.example/" }, "thought": format!("Attempt {time}.") });
    let ran = run(&json!((0..12).map(act).collect::<Vec<_>>()), "");
    assert_eq!(ran.status(), Status::InfLoop, "{}", ran.outcome.reason);
    assert!(
        ran.outcome.reason.contains("the same action failed 4 times in a row (browse)"),
        "{}",
        ran.outcome.reason
    );
}

#[test]
fn two_that_take_turns_are_a_loop() {
    let act = |time: usize| json!({ "action": "run", "args": { "command": format!("echo {}", time % 2) }, "thought": format!("Attempt {time}.") });
    let ran = run(&json!((0..12).map(act).collect::<Vec<_>>()), "");
    assert_eq!((ran.status(), times(&ran)), (Status::InfLoop, 6), "{}", ran.outcome.reason);
}

#[test]
fn the_operator_lets_it_go_on() {
    let ran = run(&again("echo a", 12), "stuck_detection = false");
    assert_eq!((ran.status(), times(&ran)), (Status::Done, 12), "{}", ran.outcome.reason);
    let ran = run(&again("echo a", 7), "stuck_detection = { repeats = 8 }");
    assert_eq!((ran.status(), times(&ran)), (Status::Done, 7), "{}", ran.outcome.reason);
}

/// An agent that waits for a change is in no loop.
#[test]
fn the_same_with_another_result_is_no_loop() {
    let ran = run(&again("tick", 12), "");
    assert_eq!((ran.status(), times(&ran)), (Status::Done, 12), "{}", ran.outcome.reason);
}
