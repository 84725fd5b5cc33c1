//! A single tool call without a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use conclave_runtime::approval::{Approval, ApprovalAnswer, ApprovalRequest};
use conclave_runtime::approve::Approver;
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::fault::FaultKind;
use conclave_runtime::journal::MemoryJournals;
use conclave_runtime::message::ToolCall;
use conclave_runtime::native::{Call, Check, Failure, Plugin, Step, Tool};
use conclave_runtime::plugin_query::GateVerdict;
use conclave_runtime::tool::{ToolError, ToolOutcome};
use conclave_runtime::{CallToolError, RunOptions};
use serde_json::{Value, json};

use crate::support::{Told, config, prepared};

fn desk() -> Plugin {
    Plugin::agent("desk", |_: Step| async { Ok("") })
}

fn app() -> Plugin {
    let schema = || json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    Plugin::tools(
        "app",
        [
            Tool::new("echo", "Says it again.", schema(), |call: Call| async move {
                Ok(call.arguments)
            }),
            Tool::new("fail", "Fails.", schema(), |_| async {
                Err::<String, _>(Failure::new("it is raining"))
            }),
            Tool::new("hang", "Hangs.", schema(), |_| async {
                std::future::pending::<Result<String, Failure>>().await
            }),
            Tool::new("lead_on", "Asks for more.", schema(), |_| async {
                let then = vec![ToolCall {
                    id: "x".to_owned(),
                    ..ToolCall::new("app.lead_on", json!({}))
                }];
                Ok(ToolOutcome {
                    content: Some("more".to_owned()),
                    follow_up_calls: then,
                    ..ToolOutcome::default()
                })
            }),
        ],
    )
}

async fn call(
    text: &str,
    tool: &str,
    arguments: Value,
    options: RunOptions,
) -> Result<ToolOutcome, ToolError> {
    let run = prepared([desk(), app()], text).await.call_tool(tool, arguments, options).await;
    run.unwrap_or_else(|error| panic!("{error}")).answer
}

#[tokio::test]
async fn the_answer_is_the_tools_own() {
    let recorder = Told::default();
    let (journals, text) = (MemoryJournals::default(), json!({ "text": "hello" }));
    let options = RunOptions { journals: Arc::new(journals.clone()), ..recorder.options() };
    let outcome = call(&config("", ""), "app.echo", text.clone(), options).await.unwrap();
    assert_eq!(outcome.value, Some(text));
    let called = recorder
        .notices()
        .iter()
        .filter(|notice| format!("{notice:?}").contains("app.echo"))
        .count();
    assert!(called >= 2, "called and answered, as in any run");
    assert_eq!(journals.records(&journals.rooms()[0]).len(), 3, "opened, stepped, answered");
}

#[tokio::test]
async fn an_unknown_tool_is_told_with_those_that_are_there() {
    let prepared = prepared([desk(), app()], &config("", "")).await;
    for tool in ["app.ech", "echo", "desk.echo", "done"] {
        let error = prepared.call_tool(tool, json!({}), RunOptions::default()).await.unwrap_err();
        assert!(matches!(error, CallToolError::Unknown { .. }));
        assert!(
            error
                .to_string()
                .ends_with("these are there: app.echo, app.fail, app.hang, app.lead_on"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_goes_wrong_is_an_answer() {
    let text = config("limits.wall = \"20 ms\"", "");
    let called =
        |tool: &'static str, arguments: Value| call(&text, tool, arguments, RunOptions::default());
    assert_eq!(
        called("app.fail", json!({})).await,
        Err(ToolError::Other { message: "it is raining".to_owned() })
    );
    assert!(matches!(
        called("app.echo", json!({ "text": 7 })).await,
        Err(ToolError::InvalidArguments { .. })
    ));
    assert!(matches!(
        called("app.echo", json!("no object")).await,
        Err(ToolError::InvalidArguments { .. })
    ));
    assert!(
        matches!(called("app.hang", json!({})).await, Err(ToolError::Fault { fault }) if fault.kind == FaultKind::Wall)
    );
}

#[tokio::test]
async fn a_run_that_is_over_first_is_told_as_that() {
    let text = config("", "[limits.run]\nwall = \"20 ms\"");
    let Err(ToolError::Fault { fault }) =
        call(&text, "app.hang", json!({}), RunOptions::default()).await
    else {
        panic!("no fault")
    };
    assert_eq!(fault.kind, FaultKind::Abandoned);
    assert!(fault.message.contains("limits.run.wall"), "{fault:?}");
}

#[tokio::test]
async fn calls_that_would_follow_are_listed_and_not_made() {
    let recorder = Told::default();
    let outcome =
        call(&config("", ""), "app.lead_on", json!({}), recorder.options()).await.unwrap();
    assert_eq!(outcome.follow_up_calls.len(), 1);
    let calls = recorder
        .notices()
        .into_iter()
        .filter(|notice| matches!(notice, conclave_runtime::notice::Notice::ToolCalled { .. }));
    assert_eq!(calls.count(), 1);
}

/// An approver that counts its requests and edits the arguments.
struct Editor(AtomicUsize);

impl Approver for Editor {
    fn decide(&self, request: ApprovalRequest) -> BoxFuture<'static, ApprovalAnswer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!((request.tool.as_str(), request.caller.as_str()), ("app.echo", "(you)"));
        Box::pin(std::future::ready(
            Approval::Edited { arguments: json!({ "text": "edited" }) }.into(),
        ))
    }
}

#[tokio::test]
async fn the_policy_holds() {
    let text =
        |decide: &str| config("", &format!("[[policy]]\ntool = \"app.*\"\ndecide = \"{decide}\""));
    let called = |decide: &str, options: RunOptions| {
        let text = text(decide);
        async move { call(&text, "app.echo", json!({}), options).await }
    };
    assert!(matches!(called("deny", RunOptions::default()).await, Err(ToolError::Denied { .. })));
    let refused = called("ask", RunOptions::default()).await;
    assert_eq!(
        refused,
        Err(ToolError::Other { message: "Not approved: nobody is there to approve it".to_owned() })
    );
    let editor = Arc::new(Editor(AtomicUsize::new(0)));
    let options =
        RunOptions { approver: Arc::clone(&editor) as Arc<dyn Approver>, ..RunOptions::default() };
    assert_eq!(called("ask", options).await.unwrap().value, Some(json!({ "text": "edited" })));
    assert_eq!(editor.0.load(Ordering::Relaxed), 1);
}

/// A rule for one caller applies to no other.
#[tokio::test]
async fn a_rule_for_another_caller_does_not_hold() {
    let text = config("", "[[policy]]\ntool = \"app.*\"\ncaller = \"desk\"\ndecide = \"deny\"");
    assert!(call(&text, "app.echo", json!({}), RunOptions::default()).await.is_ok());
}

/// A gate that takes the number 1234 out of texts, and blocks what is secret.
fn guard() -> Plugin {
    Plugin::gate("guard", |check: Check| async move {
        Ok(match check.input.text {
            text if text.contains("secret") => GateVerdict::Block { reason: "no secrets".into() },
            text => GateVerdict::Modify { text: text.replace("1234", "…") },
        })
    })
}

/// The caller of a single tool reads what the gates left, as an agent does.
#[tokio::test]
async fn a_gate_stands_between_a_tool_and_whoever_calls_it_alone() {
    let called = async |on: &str, tool: &str, text: &str| {
        let gate = format!("[[gates]]\non = \"{on}\"\ntools = [\"app.*\"]\nplugin = \"guard\"\n");
        let guard_lines = "[plugins.guard]\nsource = \"native:guard\"";
        let config = format!("{}{guard_lines}\n{gate}", config("", ""));
        let recorder = Told::default();
        let prepared = prepared([desk(), app(), guard()], &config).await;
        let arguments = json!({ "text": text });
        let run = prepared.call_tool(tool, arguments, recorder.options()).await;
        let notices = serde_json::to_string(&recorder.notices()).unwrap();
        (run.unwrap_or_else(|error| panic!("{error}")).answer, notices)
    };
    for on in ["tool-call", "tool-result"] {
        let (answer, _) = called(on, "app.echo", "it is 1234").await;
        assert_eq!(answer.unwrap().value, Some(json!({ "text": "it is …" })), "{on}");
    }
    let (answer, notices) = called("tool-result", "app.echo", "a secret").await;
    let Err(ToolError::Other { message }) = answer else { panic!("{answer:?}") };
    let expected =
        "app.echo was run, and its result is withheld: gate guard blocked it: no secrets";
    assert_eq!(message, expected);
    let in_calls = notices.matches(r#""arguments":{"text":"a secret"}"#).count();
    assert_eq!(notices.matches("a secret").count(), in_calls, "in calls alone: {notices}");
    let (answer, notices) = called("tool-call", "app.hang", "a secret").await;
    let Err(ToolError::Other { message }) = answer else { panic!("{answer:?}") };
    assert_eq!(message, "app.hang was not run: gate guard blocked it: no secrets");
    assert!(!notices.contains("tool-called"), "{notices}");
    let (answer, _) = called("tool-result", "app.fail", "it is 1234").await;
    assert!(answer.is_err(), "it failed, and no gate mends it: {answer:?}");
    let (answer, _) = called("tool-result", "app.lead_on", "").await;
    assert_eq!(answer.unwrap().follow_up_calls, [], "only an agent could make them");
}

/// `cargo test -p conclave-runtime --test embed -- --ignored --nocapture a_call_takes`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures"]
async fn a_call_takes_microseconds() {
    let prepared = prepared([desk(), app()], &config("", "")).await;
    let began = Instant::now();
    for _ in 0..10_000 {
        prepared
            .call_tool("app.echo", json!({}), RunOptions::default())
            .await
            .unwrap()
            .answer
            .unwrap();
    }
    println!("{:?} a call", began.elapsed() / 10_000);
}
