//! A plugin that misbehaves harms nobody but itself.

use std::sync::Arc;

use conclave_core::outcome::Status;
use conclave_test_support::{Rig, calling};
use serde_json::json;

#[test]
fn quiet_tasks_beside_hostile_ones_all_get_their_answers() {
    let hostile = [
        ("spin", r#"limits = { cpu = "200 ms" }"#),
        ("allocate", r#"limits = { memory = "16 MiB" }"#),
        ("recurse", ""),
        ("panic", ""),
        ("huge_output", r#"limits = { memory = "256 MiB", output = "64 KiB" }"#),
    ];
    let rig = Arc::new(Rig::new());
    std::thread::scope(|scope| {
        for (guest, limits) in hostile {
            let (noisy, quiet) = (Arc::clone(&rig), Arc::clone(&rig));
            scope.spawn(move || assert!(noisy.run(&calling(guest, "run", &json!({}), limits), "go").answer().is_error));
            scope.spawn(move || {
                let ran = quiet.run(&calling("echo", "run", &json!({ "text": format!("beside {guest}") }), ""), "go");
                assert_eq!((ran.status(), ran.content()), (Status::Done, format!("beside {guest}").as_str()));
            });
        }
    });
}

#[test]
fn a_tool_that_fails_says_why_and_the_task_goes_on() {
    let ran = Rig::new().run(&calling("echo", "fail", &json!({ "text": "no paper" }), ""), "go");
    assert_eq!(ran.status(), Status::Done);
    assert!(ran.answer().is_error && ran.content().contains("no paper"), "{}", ran.content());
}
