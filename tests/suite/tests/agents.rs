//! Agents as components: their views, their turns, and their failures.

use conclave_core::types::denial::Layer;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_test_support::{Rig, calling, guest, stepping};
use serde_json::json;

#[test]
fn an_agent_finishes_with_what_it_was_asked() {
    let ran = Rig::new().run(&stepping("agent_echo", "", ""), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "hello"));
}

#[test]
fn an_agent_that_panics_gets_its_task_an_end_with_the_place() {
    let ran = Rig::new().run(&stepping("agent_panic", "", ""), "hello");
    assert_eq!(ran.status(), Status::Error);
    assert_eq!(ran.plugin_faults(), [FaultKind::Panic; 3]);
    assert!(ran.outcome.reason.contains("agent_panic.rs:"), "{}", ran.outcome.reason);
}

#[test]
fn an_agent_whose_steps_are_errors_ends_with_the_error() {
    let ran = Rig::new().run(&stepping("agent_error", "", ""), "hello");
    assert_eq!((ran.status(), ran.plugin_faults()), (Status::Error, vec![FaultKind::Error; 3]));
}

#[test]
fn a_plain_answer_ends_a_task_without_subtasks() {
    let ran = Rig::new().run(&stepping("agent_loop", "", ""), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "thought number 0"));
}

#[test]
fn an_agent_that_never_finishes_ends_at_its_turns() {
    let ran = Rig::new().run(
        &stepping("agent_loop", "", "turns = 5\non_no_tool_call = { nudge = \"go on\" }"),
        "hello",
    );
    assert_eq!(ran.status(), Status::FixedTurns, "{}", ran.outcome.reason);
}

#[test]
fn nobody_to_talk_to_is_said_and_the_task_ends_as_stalled() {
    let ran = Rig::new().run(
        &stepping("agent_loop", "", "on_no_tool_call = \"nothing\"\nmax_stalled_steps = 2"),
        "hello",
    );
    assert_eq!((ran.status(), ran.outcome.content.clone()), (Status::Stalled, None));
    assert!(ran.outcome.reason.contains("valid answer"), "{}", ran.outcome.reason);
}

#[test]
fn an_unknown_recipient_comes_back_to_the_agent() {
    let ran = Rig::new().run(&stepping("agent_wrong_recipient", "", ""), "hello");
    assert_eq!((ran.status(), ran.content()), (Status::Done, "Invalid recipient: nobody"));
}

#[test]
fn a_background_task_that_was_not_granted_is_refused() {
    let config = stepping("agent_ungranted_delegate", "", "")
        + &format!(
            "[plugins.vault]\nsource = \"{}\"\n[tasks.vault]\nagent = \"vault\"\n",
            guest("agent_echo").display()
        );
    let ran = Rig::new().run(&config, "hello");
    assert!(ran.content().contains("Refused: delegate vault"), "{}", ran.content());
    let record = ran.denials().into_iter().next().expect("a refusal");
    assert_eq!(record.layer, Layer::Config);
    assert_eq!(
        record.suggestion.as_deref(),
        Some("[plugins.subject] grants.delegate = [\"vault\"]")
    );
    assert_eq!(ran.rooms().len(), 1, "no room was opened");
}

#[test]
fn a_history_is_read_lazily_from_both_ends() {
    let ran = Rig::new().run(&stepping("agent_history", "", ""), "hello");
    assert_eq!(ran.content(), "1 of 1 messages, backwards the same");
}

#[test]
fn an_unknown_tool_is_answered_with_those_that_there_are() {
    let ran = Rig::new().run(&calling("echo", "no_such_tool", &json!({}), ""), "go");
    assert!(
        ran.content().contains("There is no tool") && ran.content().contains("subject.run"),
        "{}",
        ran.content()
    );
}

#[test]
fn arguments_that_do_not_fit_the_schema_come_back_with_the_reason() {
    let ran = Rig::new().run(&calling("echo", "run", &json!({ "text": 5 }), ""), "go");
    assert!(ran.answer().is_error && ran.content().contains("text"), "{}", ran.content());
}

#[test]
fn one_component_serves_as_an_agent_and_as_tools() {
    let path = guest("two_kinds");
    let ran = Rig::new().run(&stepping("two_kinds", "", ""), "hello");
    assert_eq!(ran.content(), "stepped in main");
    let peeks = Rig::new().run(&calling("two_kinds", "peek", &json!({}), ""), "a secret");
    assert!(
        peeks.content().contains("`state` was read in a call that belongs to no agent's task"),
        "{}",
        peeks.content()
    );
    for fact in [
        "call-id",
        "attempt",
        "task-name",
        "room-id",
        "caller",
        "deadline-ms",
        "traceparent",
        "calling-message",
        "inputs",
        "length",
        "messages",
    ] {
        let ran = Rig::new().run(&stepping("two_kinds", "", ""), fact);
        // The step that reads it fails, and the message to answer stays the same.
        assert_eq!(ran.plugin_faults(), [FaultKind::Trap; 3], "{fact}");
    }
    let ran = Rig::new().run(&calling("two_kinds", "run", &json!({ "text": "hello" }), ""), "go");
    assert_eq!(ran.content(), "hello", "{}", path.display());
}

#[test]
fn a_person_is_asked_in_an_interactive_task_and_ends_it() {
    let ran = Rig::new()
        .with_answers(&["go on", "quit"])
        .run(&stepping("agent_loop", "", "interactive = true"), "hello");
    assert_eq!(ran.status(), Status::UserQuit, "{}", ran.outcome.reason);
}

#[test]
fn an_agent_answers_in_code_first_and_asks_its_model_second() {
    let config = r#"
entry = "desk"
[models.default]
kind = "scripted"
replies = "replies.json"
[plugins.faq]
source = "stock:faq"
grants.model = ["default"]
[[plugins.faq.config.answers]]
words = ["open"]
text = "From nine to five."
[tasks.desk]
agent = "faq"
"#;
    let rig = || Rig::new().with_file("replies.json", r#"{"replies": ["In 1844."]}"#);
    let known = rig().run(config, "When do you OPEN?");
    assert_eq!((known.status(), known.content()), (Status::Done, "From nine to five."));
    assert_eq!(known.outcome.spent.model_calls, 0);
    let unknown = rig().run(config, "When was it lit?");
    assert_eq!((unknown.status(), unknown.content()), (Status::Done, "In 1844."));
    assert_eq!(unknown.outcome.spent.model_calls, 1);
}
