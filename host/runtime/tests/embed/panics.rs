//! Panics in code of the embedding program: the run gets an answer and does not hang.

use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::approval::{ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::completion::Prompt;
use conclave_runtime::ids::RoomId;
use conclave_runtime::journal::{Journals, MemoryJournals};
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use conclave_runtime::outcome::{Outcome, Status};
use conclave_runtime::{Host, HostOptions, RunOptions, config::Config};
use serde_json::json;

async fn run(options: HostOptions, config: &str, run: RunOptions) -> Arc<Outcome> {
    let host = Host::new(options).expect("the engine starts");
    let config = Config::parse("desk.toml", "", config).expect("the config is right");
    let run = host
        .load(&config)
        .await
        .expect("it fits")
        .start(Some("Go.".to_owned()), run)
        .expect("it starts");
    run.outcome().await.expect("there is no journal that fails")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_client_that_panics_is_answered() {
    let model = native::model(|_: Prompt| async move { panic!("the client's own fault") });
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(native::finish(step.complete().await?.content.unwrap_or_default()))
    });
    let options = HostOptions {
        native: vec![desk.asks(Capability::Model, "Answers.")],
        models: [("default".to_owned(), model)].into(),
        ..HostOptions::default()
    };
    let config = r#"
        entry = "desk"
        [models.default]
        kind = "native"
        [plugins.desk]
        source = "native:desk"
        grants.model = ["default"]
        limits = { wall = "1 h" }
        [tasks.desk]
        agent = "desk"
    "#;
    let outcome = run(options, config, RunOptions::default()).await;
    assert_eq!(outcome.status, Status::Error);
    assert!(outcome.reason.contains("the model of desk did not answer"), "{}", outcome.reason);
}

struct Panics;

impl Approver for Panics {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        panic!("the approver's own fault")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approver_that_panics_has_not_approved() {
    let ring =
        Tool::new("ring", "Rings.", json!({ "type": "object" }), |_: Call| async { Ok("Ding.") });
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("bell.ring", json!({})),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    });
    let native = vec![desk.asks(Capability::Tools, "Rings."), Plugin::tools("bell", [ring])];
    let config = r#"
        entry = "desk"
        [plugins.desk]
        source = "native:desk"
        grants.tools = ["bell.*"]
        [plugins.bell]
        source = "native:bell"
        [tasks.desk]
        agent = "desk"
        [[policy]]
        tool = "bell.ring"
        decide = "ask"
    "#;
    let options = RunOptions { approver: Arc::new(Panics), ..RunOptions::default() };
    let outcome = run(HostOptions { native, ..HostOptions::default() }, config, options).await;
    assert_eq!(outcome.content.as_deref(), Some("Not approved: the approver broke off"));
}

#[test]
fn an_earlier_journal_of_the_same_name_is_not_thrown_away() {
    let journals = MemoryJournals::default();
    let first = journals.open(&RoomId::from("a"));
    assert!(
        first.is_ok()
            && journals.open(&RoomId::from("a")).is_err()
            && journals.open(&RoomId::from("b")).is_ok()
    );
}
