//! The approver of an embedding program: edited arguments run, refused calls do not.

use std::sync::Arc;

use conclave_runtime::Capability;
use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::control::{ControlCommand, SentCommand};
use conclave_runtime::ids::{ControlId, Millis, RoomId};
use conclave_runtime::journal::{
    JournalFailure, Journals, MemoryJournals, Opening, Reopened, Reopening,
};
use conclave_runtime::native::{self, Call, Plugin, Step, Tool};
use conclave_runtime::notice::Notice;
use conclave_runtime::{Prepared, RunOptions};
use serde_json::json;

use crate::support::{Told, config, prepared, run};

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
    let options = RunOptions { approver: Arc::new(Decided(approval)), ..RunOptions::default() };
    run(&paying().await, "Pay!", options).await.content.clone().unwrap_or_default()
}

/// An agent whose only call needs an approval.
async fn paying() -> Prepared {
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
    prepared([desk, Plugin::tools("app", [pay])], &text).await
}

#[tokio::test]
async fn what_is_approved_runs_as_it_is() {
    assert_eq!(after(Approval::Approved).await, "paid 100");
}

#[tokio::test]
async fn what_is_edited_runs_as_edited_and_is_checked_like_any() {
    assert_eq!(after(Approval::Edited { arguments: json!({ "euros": 10 }) }).await, "paid 10");
    let text = after(Approval::Edited { arguments: json!({ "euros": 1_000 }) }).await;
    assert!(
        text.contains("at /euros"),
        "an approver that does not learn is not asked for ever: {text}"
    );
    let text = after(Approval::Edited { arguments: json!({ "euros": 13 }) }).await;
    assert!(text.contains("denies it"), "what a rule denies no approver can write: {text}");
}

#[tokio::test]
async fn what_is_refused_does_not_run_and_the_agent_reads_why() {
    assert_eq!(
        after(Approval::Refused { reason: "too much".to_owned() }).await,
        "Not approved: too much"
    );
}

/// An approver that never answers.
struct Away;

impl Approver for Away {
    fn decide(&self, _: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        Box::pin(std::future::pending())
    }
}

/// Journals of a store with messages for each room that is reopened.
struct Mailed(MemoryJournals, Vec<SentCommand>);

impl Journals for Mailed {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        self.0.open(room)
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        let (reopening, messages) = (self.0.reopen(room, now), self.1.clone());
        Box::pin(async move { Ok(reopening.await?.map(|it| Reopened { messages, ..it })) })
    }
}

#[tokio::test]
async fn a_decision_that_arrived_meanwhile_comes_before_any_question() {
    let (recorder, journals, prepared) =
        (Told::default(), MemoryJournals::default(), paying().await);
    let options = || RunOptions { journals: Arc::new(journals.clone()), ..recorder.options() };
    let away = RunOptions { approver: Arc::new(Away), ..options() };
    let run = prepared.start(Some("Pay!".to_owned()), away).unwrap();
    let (room, ended) = (run.room().clone(), run.outcome());
    let mut ended = std::pin::pin!(ended);
    let question = || {
        recorder.notices().into_iter().find_map(|notice| match notice {
            Notice::ApprovalAsked { call, .. } => Some(call),
            _ => None,
        })
    };
    let call = loop {
        tokio::select! {
            biased;
            _ = &mut ended => panic!("it waits"),
            () = tokio::task::yield_now() => {}
        }
        if let Some(call) = question() {
            break call;
        }
    };
    let stored = MemoryJournals::of(room.clone(), journals.records(&room));
    let decided =
        ControlCommand::Decide { call, approval: Approval::Approved, arguments_sha256: None };
    let journals = Arc::new(Mailed(
        stored,
        vec![SentCommand { id: ControlId::from("mail"), by: None, word: decided }],
    ));
    let mut reopened = prepared.reopen(&room, RunOptions { journals, ..options() }).await.unwrap();
    let outcome = reopened.resume().await.unwrap();
    assert_eq!(outcome.content.as_deref(), Some("paid 100"), "{outcome:?}");
}
