//! The approver of an embedding program: edited arguments run, refused calls do not.

use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::RunOptions;
use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use serde_json::json;

use crate::support::{config, prepared, run};

struct Decided(Approval);

impl Approver for Decided {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        assert_eq!(request.tool, "app.pay");
        match request.problem {
            None => assert_eq!(request.arguments, json!({ "euros": 100 })),
            // Asked again about its own arguments.
            Some(_) => assert_eq!(Approval::Edited { arguments: request.arguments }, self.0),
        }
        Box::pin(std::future::ready(self.0.clone().into()))
    }
}

/// Returns the text that the agent reads after the decision about its call.
async fn after(approval: Approval) -> String {
    let desk = Plugin::agent("desk", |step: Step| async move {
        Ok(match step.results() {
            [] => native::call("app.pay", json!({ "euros": 100 })),
            [answer, ..] => native::finish(answer.content.clone()),
        })
    })
    .asks(Capability::Tools, "Pays.");
    let schema = json!({ "type": "object", "properties": { "euros": { "type": "integer", "maximum": 100 } } });
    let pay = Tool::new("pay", "Pays.", schema, |call: Call| async move {
        Ok(format!("paid {}", call.arguments["euros"]))
    });
    let rule = "grants.tools = [\"app.pay\"]\n[[policy]]\ntool = \"app.pay\"\ndecide = \"ask\"";
    let deny = "[[policy]]\ntool = \"app.pay\"\narguments = { euros = 13 }\ndecide = \"deny\"\n";
    let text = config("", "").replace(
        "source = \"native:desk\"\n",
        "source = \"native:desk\"\ngrants.tools = [\"app.pay\"]\n",
    ) + deny
        + &rule.replace("grants.tools = [\"app.pay\"]\n", "");
    let prepared = prepared([desk, Plugin::tools("app", [pay])], &text).await;
    let options = RunOptions { approver: Arc::new(Decided(approval)), ..RunOptions::default() };
    run(&prepared, "Pay!", options).await.content.clone().unwrap_or_default()
}

#[tokio::test]
async fn what_is_approved_runs_as_it_is() {
    assert_eq!(after(Approval::Approved).await, "paid 100");
}

#[tokio::test]
async fn what_is_edited_runs_as_edited_and_is_checked_like_any() {
    assert_eq!(after(Approval::Edited { arguments: json!({ "euros": 10 }) }).await, "paid 10");
    let said = after(Approval::Edited { arguments: json!({ "euros": 1_000 }) }).await;
    assert!(
        said.contains("at /euros"),
        "an approver that does not learn is not asked for ever: {said}"
    );
    let said = after(Approval::Edited { arguments: json!({ "euros": 13 }) }).await;
    assert!(said.contains("denies it"), "what a rule denies no approver can write: {said}");
}

#[tokio::test]
async fn what_is_refused_does_not_run_and_the_agent_reads_why() {
    assert_eq!(
        after(Approval::Refused { reason: "too much".to_owned() }).await,
        "Not approved: too much"
    );
}
