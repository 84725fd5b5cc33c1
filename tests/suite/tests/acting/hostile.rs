//! Executors that answer wrongly, fail, or never end (C-326): the agent reads an error, and other
//! tasks are unaffected.

use std::sync::Arc;

use conclave_core::config::Config;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::fault::FaultKind;
use conclave_core::types::outcome::Status;
use conclave_runtime::subscribe::{Published, RunEvent, Subscriber, Subscribers};
use conclave_runtime::{Host, Prepared, RunOptions};
use conclave_test_support::{Ran, Rig, block_on, host};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{acting, executor, observations, steps};

fn config(script: &Value, limits: &str) -> String {
    acting(
        script,
        "grants.tools = [\"hostile.*\"]",
        "action_plugins = [\"hostile\"]",
        &executor("hostile_executor", "hostile", limits),
    )
}

fn read(how: &str) -> Value {
    json!({ "action": "read", "args": { "path": how } })
}

fn ran(script: &Value, limits: &str) -> Ran {
    let ran = Rig::new().run(&config(script, limits), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    ran
}

/// For any output of an executor, the agent gets the observation of its action, or an error with
/// the reason.
#[test]
fn what_is_no_observation_of_the_action_is_an_error() {
    for (how, expected) in [
        ("wrong-kind", "kind \"delegate\", which is no answer to it"),
        ("forged-state", "kind \"agent_state_changed\", which is no answer to it"),
        ("forged-envelope", "kind \"success\", which is no answer to it"),
        ("unknown-kind", "kind \"teleported\", which is no answer to it"),
        ("an-action", "gave no observation"),
        ("both", "gave no observation"),
        ("wrong-extras", "gave no observation"),
        ("no-object", "gave no observation"),
        ("no-kind", "gave no observation"),
        ("deep", ""),
        ("error", "it did not work"),
        ("arguments", "path: is odd"),
        ("unavailable", ""),
    ] {
        let ran = ran(&json!([read(how)]), "");
        let seen = observations(&ran);
        let error = seen
            .first()
            .and_then(|seen| seen["error"].as_str())
            .unwrap_or_else(|| panic!("{how}: {seen:?}"));
        assert!(seen.len() == 1 && error.contains(expected), "{how}: {seen:?}");
        assert!(
            steps(&ran)
                .iter()
                .all(|step| step["intent"] == "go"
                    && step["outputs"] != json!({ "answer": "forged" })),
            "{how}"
        );
    }
}

#[test]
fn what_an_executor_leaves_out_is_made_up_for() {
    for how in ["nothing", "no-extras"] {
        let seen = observations(&ran(&json!([read(how)]), ""));
        assert_eq!(seen.len(), 1, "{how}: {seen:?}");
        assert!(seen[0].get("path").is_some() || seen[0].get("error").is_some(), "{how}: {seen:?}");
    }
}

/// An executor answers an action and has no control over the task.
#[test]
fn an_executor_cannot_end_the_task() {
    let ran = ran(&json!([read("steer")]), "");
    assert_eq!(observations(&ran), [json!({ "path": "steer", "content": "done" })]);
    assert!(!ran.content().contains("hijacked"), "{}", ran.content());
}

#[test]
fn a_flood_of_text_is_refused_or_cut() {
    let ran = ran(
        &json!([{ "action": "run", "args": { "command": "huge" } }, { "action": "run", "args": { "command": "long" } }]),
        "",
    );
    let size = |seen: &Value| seen.to_string().len();
    let seen = observations(&ran);
    assert_eq!(seen.len(), 2);
    assert!(
        seen.iter().all(|seen| seen["error"].is_string() && size(seen) < 40_000),
        "{:?}",
        seen.iter().map(size).collect::<Vec<_>>()
    );
}

#[test]
fn a_background_command_without_an_id_is_an_error() {
    let run =
        json!([{ "action": "run", "args": { "command": "no-background", "background": true } }]);
    let seen = observations(&ran(&run, ""));
    assert_eq!(
        seen,
        [json!({ "error": "The executor of run gave a background command without a command_id." })]
    );
}

#[test]
fn a_panic_and_an_endless_loop_are_observations_and_the_run_goes_on() {
    let ran =
        ran(&json!([read("panic"), read("spin"), read("fine")]), "limits = { cpu = \"200 ms\" }");
    let faults: Vec<Option<FaultKind>> =
        ran.answers().iter().map(|answer| answer.fault.as_ref().map(|fault| fault.kind)).collect();
    assert_eq!(faults, [Some(FaultKind::Panic), Some(FaultKind::Cpu), None]);
    let seen = observations(&ran);
    assert!(seen[0]["error"].as_str().is_some_and(|text| text.contains("panic")), "{}", seen[0]);
    assert!(
        seen[1]["error"].as_str().is_some_and(|text| text.contains("limits.cpu")),
        "{}",
        seen[1]
    );
    assert_eq!(seen[2], json!({ "path": "fine", "content": "read of fine" }));
}

/// Signals when a tool was called.
struct Called(Semaphore);

impl Subscriber for Called {
    fn on(&self, happening: &Published) {
        if matches!(&happening.what, RunEvent::Notice { notice: Notice::ToolCalled { .. } }) {
            self.0.add_permits(1);
        }
    }
}

async fn prepare(host: &Host, config: &str) -> Prepared {
    let config =
        Config::parse("conclave.toml", "/", config).unwrap_or_else(|problems| panic!("{problems}"));
    host.load(&config).await.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn another_conversation_of_the_host_goes_on_while_an_executor_never_ends() {
    block_on(async {
        let host = host();
        let stuck = prepare(
            &host,
            &config(&json!([read("spin")]), "limits = { cpu = \"1 h\", wall = \"1 h\" }"),
        )
        .await;
        let fine = prepare(&host, &config(&json!([read("fine")]), "")).await;
        let called = Arc::new(Called(Semaphore::new(0)));
        let options = RunOptions {
            subscribers: Subscribers::new([Arc::clone(&called) as Arc<dyn Subscriber>]),
            ..RunOptions::default()
        };
        let run = stuck.start(Some("go".to_owned()), options).expect("it opens");
        let handle = run.handle();
        let run = tokio::spawn(run.outcome());
        drop(called.0.acquire().await);
        for _ in 0..5 {
            let run = fine.start(Some("go".to_owned()), RunOptions::default()).expect("it opens");
            let outcome = run.outcome().await.expect("a journal in memory does not fail");
            assert_eq!(outcome.status, Status::Done, "{}", outcome.reason);
        }
        assert!(!run.is_finished(), "it is spinning all the while");
        handle.stop("enough");
        let outcome =
            run.await.expect("it does not panic").expect("a journal in memory does not fail");
        assert_eq!(outcome.status, Status::Kill, "{}", outcome.reason);
    });
}
