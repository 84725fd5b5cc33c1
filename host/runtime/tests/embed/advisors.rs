//! Native memories, analyzers, condensers, judges and simulated users: their queries, their replies, and the handling of
//! faulty ones.

use std::sync::Arc;

use conclave_core::setup::plugin_query::{
    Condensation, CondenseReason, EntrySpan, JudgedAnswer, PluginQuery, PluginReply, RESULT_MAX,
    Ruling, TaskEnding, TaskResult, Verdict,
};
use conclave_core::types::action::{Action, Reply};
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::history::History;
use conclave_core::types::ids::{CallId, Millis, PluginName};
use conclave_core::types::message::{Message, Role, ToolCall};
use conclave_core::types::outcome::Status;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::risk::Risk;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::view::{AgentView, Remaining};
use conclave_runtime::Prepared;
use conclave_runtime::calls::{
    CallStart, ModelPort, NoEffects, NoSignatures, NoTools, Observer, PluginAnswer, PluginCall,
    PluginOutput,
};
use conclave_runtime::clock::BoxFuture;
use conclave_runtime::ids::{RoomId, TaskName};
use conclave_runtime::native::{
    AnswerAsUser, Assess, Conclude, Condense, Failure, Plugin, Recall, Rule, Step,
};
use conclave_runtime::subscribe::Level;
use serde_json::json;

use crate::support::{config, prepared};

struct Nobody;

impl ModelPort for Nobody {
    fn ask(
        &self,
        _: CallId,
        _: u32,
        _: ModelRequest,
    ) -> BoxFuture<'static, Result<Completion, ModelError>> {
        Box::pin(std::future::pending())
    }
}

impl Observer for Nobody {
    fn log(&self, _: CallId, _: Level, _: &str) {}
    fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
    fn denied(&self, _: CallId, _: &DenialRecord) {}
}

fn start() -> CallStart {
    CallStart {
        room: RoomId::from("test"),
        secret: RoomSecret::new([7; RoomSecret::LENGTH]),
        call: CallId(1),
        plugin: PluginName::from("app"),
        setup: None,
        now: Millis(0),
        scratch: Arc::default(),
        trace: Arc::default(),
        task: None,
        models: Arc::new(Nobody),
        tools: Arc::new(NoTools),
        effects: Arc::new(NoEffects),
        signatures: Arc::new(NoSignatures),
        observer: Arc::new(Nobody),
    }
}

fn view() -> AgentView {
    AgentView {
        task: TaskName::from("desk"),
        inputs: Arc::default(),
        pending: None,
        history: History::default(),
        since: Arc::default(),
        latest_user_message: None,
        plan: Arc::default(),
        outputs: Arc::default(),
        spent: conclave_core::types::usage::Spent::default(),
        level: 3,
        last_error: None,
        tools: Arc::default(),
        peers: Arc::default(),
        remaining: Remaining::default(),
        iteration: 7,
    }
}

async fn with(app: Plugin, limits: &str) -> Prepared {
    let desk = Plugin::agent("desk", |_: Step| async { Ok("") });
    prepared([desk, app], &config(limits, "")).await
}

async fn consult(
    prepared: &Prepared,
    query: PluginQuery,
    view: Option<AgentView>,
) -> (Result<PluginReply, Fault>, CallReport) {
    match prepared.calls().call(start(), PluginCall::Query { query, view }).await {
        PluginAnswer { output: PluginOutput::Query(reply), report } => (reply, report),
        other => panic!("the answer to something else: {other:?}"),
    }
}

async fn advice(app: Plugin, question: PluginQuery) -> Result<PluginReply, Fault> {
    consult(&with(app, "").await, question, Some(view())).await.0
}

fn memories(limit: u32) -> PluginQuery {
    PluginQuery::Memories { query: "lamp".to_owned(), limit }
}

fn risk() -> PluginQuery {
    let call =
        ToolCall { id: "1".to_owned(), ..ToolCall::new("files.remove", json!({ "path": "/" })) };
    let action = Action::Reply(Reply { tool_calls: vec![call], ..Reply::default() });
    PluginQuery::Risk { action: Box::new(action), thought: "make room".to_owned() }
}

fn condense() -> PluginQuery {
    PluginQuery::Condense { reason: CondenseReason::Overflow }
}

fn rule(text: &str) -> PluginQuery {
    let message = Message { content: Some(text.into()), ..Message::new(3, Role::Llm, "llm") };
    let answer = JudgedAnswer {
        message: Arc::new(message),
        responder: "llm".to_owned(),
        valid: true,
        is_done: false,
    };
    PluginQuery::Rule { answer: Box::new(answer) }
}

fn conclude(text: &str) -> PluginQuery {
    let result = TaskResult { text: text.to_owned(), value: None };
    let ending = TaskEnding { status: Status::Done, reason: "it is done".to_owned(), result };
    PluginQuery::Conclude { ending: Box::new(ending) }
}

fn question(prompt: &str) -> PluginQuery {
    PluginQuery::AnswerAsUser { prompt: prompt.to_owned() }
}

#[tokio::test]
async fn a_memory_is_asked_and_gives_no_more_than_was_wanted() {
    let memory = || {
        Plugin::memory("app", |ask: Recall| async move {
            Ok((0..9).map(|n| format!("{} {n} of {}", ask.query, ask.limit)).collect())
        })
    };
    let recalled = advice(memory(), memories(2)).await.unwrap();
    assert_eq!(
        recalled,
        PluginReply::Memories {
            memories: vec!["lamp 0 of 2".to_owned(), "lamp 1 of 2".to_owned()]
        }
    );
    let without_view = consult(&with(memory(), "").await, memories(1), None).await.0;
    assert!(without_view.is_ok(), "a memory reads no view: {without_view:?}");
}

#[tokio::test]
async fn an_analyzer_sees_the_action_and_what_the_agent_sees() {
    let analyzer = Plugin::analyzer("app", |ask: Assess| async move {
        let Action::Reply(reply) = &ask.action else { return Err(Failure::new("no call")) };
        let reason = format!(
            "{} because {} at step {}\u{1b}",
            reply.tool_calls[0].name, ask.thought, ask.view.iteration
        );
        Ok(Verdict { risk: Risk::High, reason })
    });
    let verdict = Verdict {
        risk: Risk::High,
        reason: "files.remove because make room at step 7\\u{1b}".to_owned(),
    };
    assert_eq!(advice(analyzer, risk()).await, Ok(PluginReply::Risk { verdict }));
}

#[tokio::test]
async fn a_condenser_says_what_may_be_forgotten_or_nothing() {
    let condensation = Condensation {
        forget: vec![EntrySpan { start: 1, end: 4 }],
        summary: Some("three lamps".to_owned()),
        ..Condensation::default()
    };
    let expected = condensation.clone();
    let condenser = Plugin::condenser("app", move |ask: Condense| {
        let reply = (ask.reason == CondenseReason::Overflow).then(|| expected.clone());
        async { Ok(reply) }
    });
    let prepared = with(condenser, "").await;
    assert_eq!(
        consult(&prepared, condense(), Some(view())).await.0,
        Ok(PluginReply::Condense { condensation: Some(condensation) })
    );
    let size = PluginQuery::Condense { reason: CondenseReason::Size };
    assert_eq!(
        consult(&prepared, size, Some(view())).await.0,
        Ok(PluginReply::Condense { condensation: None })
    );
}

#[tokio::test]
async fn a_judge_rules_on_answers_and_on_the_result_with_a_closure_each() {
    let ruled = |ask: Rule| async move {
        assert_eq!((ask.view.iteration, ask.answer.responder.as_str()), (7, "llm"));
        Ok(Ruling { valid: Some(ask.answer.message.text() == "42"), ..Ruling::default() })
    };
    let concluded = |ask: Conclude| async move {
        let value =
            Some(json!({ "status": ask.ending.status.as_str(), "step": ask.view.iteration }));
        Ok(Some(TaskResult { text: ask.ending.result.text.to_uppercase(), value }))
    };
    let ruling = |valid| Ok(PluginReply::Rule { ruling: Ruling { valid, ..Ruling::default() } });
    let result =
        TaskResult { text: "DONE".to_owned(), value: Some(json!({ "status": "DONE", "step": 7 })) };
    // In either order, both closures answer.
    for judge in [
        Plugin::judge("app", ruled).with_conclusion(concluded),
        Plugin::tools("app", []).with_conclusion(concluded).with_judge(ruled),
    ] {
        let prepared = with(judge, "").await;
        let ask = async |query| consult(&prepared, query, Some(view())).await.0;
        assert_eq!(ask(rule("42")).await, ruling(Some(true)));
        assert_eq!(ask(rule("41")).await, ruling(Some(false)));
        let replaced = PluginReply::Conclude { result: Some(result.clone()) };
        assert_eq!(ask(conclude("done")).await, Ok(replaced));
    }
    // One of them alone leaves the other decision to the host.
    let unchanged = advice(Plugin::judge("app", ruled), conclude("done")).await;
    assert_eq!(unchanged, Ok(PluginReply::Conclude { result: None }));
    let only_result = Plugin::tools("app", []).with_conclusion(concluded);
    assert_eq!(advice(only_result, rule("41")).await, ruling(None));
}

#[tokio::test]
async fn a_simulated_user_gets_the_question_and_the_view() {
    let customer = || {
        Plugin::simulated_user("app", |ask: AnswerAsUser| async move {
            Ok((!ask.question.is_empty()).then(|| format!("{} {}", ask.question, ask.view.task)))
        })
    };
    let text = Some("which desk? desk".to_owned());
    let answer = advice(customer(), question("which desk?")).await;
    assert_eq!(answer, Ok(PluginReply::AnswerAsUser { text }));
    let silent = advice(customer(), question("")).await;
    assert_eq!(silent, Ok(PluginReply::AnswerAsUser { text: None }));
    let fault = consult(&with(customer(), "").await, question("?"), None).await.0.unwrap_err();
    assert_eq!(fault.kind, FaultKind::NotStarted);
}

#[tokio::test]
async fn a_plugin_says_what_it_can_be_asked_and_is_asked_nothing_else() {
    let memory = Plugin::memory("app", |_: Recall| async { Ok(Vec::new()) }).with_analyzer(
        |_: Assess| async { Ok(Verdict { risk: Risk::Low, reason: String::new() }) },
    );
    let prepared = with(memory, "").await;
    let kinds = &prepared.setup().plugins[&PluginName::from("app")].facts.kinds;
    assert_eq!(
        kinds.iter().copied().collect::<Vec<_>>(),
        [PluginKind::Memory, PluginKind::SecurityAnalyzer]
    );
    let fault = consult(&prepared, condense(), Some(view())).await.0.unwrap_err();
    assert_eq!(
        (fault.kind, fault.message.as_str()),
        (FaultKind::NotStarted, "app is no `condenser`")
    );
    let fault = consult(&prepared, risk(), None).await.0.unwrap_err();
    assert_eq!(
        (fault.kind, fault.message.as_str()),
        (FaultKind::NotStarted, "there is nothing that app could be shown of its task")
    );
}

#[tokio::test]
async fn whatever_goes_wrong_is_a_fault() {
    type Wrong = (Plugin, PluginQuery, FaultKind, &'static str);
    let analyzer = |reason: String| {
        Plugin::analyzer("app", move |_: Assess| {
            let reason = reason.clone();
            async { Ok(Verdict { risk: Risk::Low, reason }) }
        })
    };
    let cases: Vec<Wrong> = vec![
        (
            analyzer("x".repeat(5_000)),
            risk(),
            FaultKind::BadAnswer,
            "the `reason` of its verdict has 5000 bytes",
        ),
        (analyzer("x".repeat(2 << 20)), risk(), FaultKind::Output, "limits.output"),
        (
            Plugin::analyzer("app", |_: Assess| async { panic!("no lamp") }),
            risk(),
            FaultKind::Panic,
            "it panicked: no lamp",
        ),
        (
            Plugin::analyzer("app", |_: Assess| async { Err(Failure::new("no idea")) }),
            risk(),
            FaultKind::Error,
            "no idea",
        ),
        (
            Plugin::memory("app", |_: Recall| async { Err(Failure::unavailable(None)) }),
            memories(1),
            FaultKind::Error,
            "app",
        ),
        (
            Plugin::condenser("app", |_: Condense| async {
                Ok(Some(Condensation {
                    forget: vec![EntrySpan { start: 0, end: 1 }; 10_001],
                    ..Condensation::default()
                }))
            }),
            condense(),
            FaultKind::BadAnswer,
            "`forget` has 10001 spans",
        ),
        (
            Plugin::judge("app", |_: Rule| async { panic!("no law") }),
            rule("42"),
            FaultKind::Panic,
            "it panicked: no law",
        ),
        (
            Plugin::tools("app", []).with_conclusion(|_: Conclude| async {
                let text = "x".repeat(RESULT_MAX + 1);
                Ok(Some(TaskResult { text, value: None }))
            }),
            conclude("done"),
            FaultKind::Output,
            "limits.output",
        ),
        (
            Plugin::simulated_user("app", |_: AnswerAsUser| async {
                Ok(Some("x".repeat(RESULT_MAX + 1)))
            }),
            question("?"),
            FaultKind::Output,
            "limits.output",
        ),
        (
            Plugin::simulated_user("app", |_: AnswerAsUser| async { Err(Failure::new("shy")) }),
            question("?"),
            FaultKind::Error,
            "shy",
        ),
    ];
    for (app, question, kind, message) in cases {
        let fault = advice(app, question.clone()).await.unwrap_err();
        assert!(fault.kind == kind && fault.message.contains(message), "{question:?}: {fault:?}");
    }
}

#[tokio::test]
async fn one_that_never_answers_is_stopped_at_its_wall() {
    let hanging =
        Plugin::analyzer("app", |_: Assess| std::future::pending::<Result<Verdict, Failure>>());
    let prepared = with(hanging, "limits.wall = \"50 ms\"").await;
    let fault = consult(&prepared, risk(), Some(view())).await.0.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Wall);
}
