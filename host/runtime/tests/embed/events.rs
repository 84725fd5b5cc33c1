//! docs/embed/events.md shows one line of each kind of event as `conclave run --json` prints it.
//! This test creates and prints every kind, so the page cannot become outdated; it prints the
//! missing and differing lines.

use std::sync::Arc;

use conclave_core::setup::GatePoint;
use conclave_core::setup::plugin_query::Ruling;
use conclave_core::types::action::PlanState;
use conclave_core::types::agent_state::AgentState;
use conclave_core::types::channel::{Binding, ChannelKind};
use conclave_core::types::completion::{ModelDiagnostic, ModelDiagnosticKind};
use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use conclave_core::types::ids::BackgroundId;
use conclave_core::types::outcome::Outcome;
use conclave_core::types::plan::Plan;
use conclave_core::types::request::{Refusal, RefusalCode};
use conclave_core::types::risk::Risk;
use conclave_core::types::stuck_rules::Recovery;
use conclave_runtime::approval::{
    Approval, ApprovalAuthor, ApprovalCause, ApprovalRequest, DecisionFault,
};
use conclave_runtime::budget::{Budget, LimitIncrease};
use conclave_runtime::completion::{StopReason, TokenUsage};
use conclave_runtime::event::{Event, Principal, RULES, Record};
use conclave_runtime::fault::{CallReport, Fault, FaultKind};
use conclave_runtime::ids::{CallId, ChannelId, Millis, ModelName, PluginName, RoomId, TaskName};
use conclave_runtime::message::{Message, Role};
use conclave_runtime::notice::{Notice, SkipReason, SkippedResponder};
use conclave_runtime::outcome::Status;
use conclave_runtime::side_effect::{SideEffect, SideEffectAnswer};
use conclave_runtime::subscribe::{Level, Published, RunEvent};
use conclave_runtime::usage::Spent;
use serde_json::json;

const PAGE: &str = include_str!("../../../../docs/embed/events.md");

/// Returns the line of each kind on the page.
fn lines() -> Vec<String> {
    let at = Millis(1_760_000_000_000);
    let line = |what: RunEvent| {
        let seq = match &what {
            RunEvent::Recorded { record } => Some(record.seq),
            RunEvent::Notice { .. } => Some(17),
            _ => None,
        };
        serde_json::to_string(&Published { room: RoomId::from("3f2a91c0"), at, seq, what }).unwrap()
    };
    whats()
        .into_iter()
        .chain(notices().into_iter().map(|notice| RunEvent::Notice { notice }))
        .map(line)
        .collect()
}

#[test]
fn the_page_shows_every_kind_as_it_is_written() {
    let written: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("{\"room\"")).collect();
    let lines = lines();
    let missing: Vec<&String> =
        lines.iter().filter(|line| !written.contains(&line.as_str())).collect();
    assert!(
        missing.is_empty(),
        "not in docs/embed/events.md:\n{}",
        missing.iter().map(|line| format!("{line}\n")).collect::<String>()
    );
    let stale: Vec<&&str> =
        written.iter().filter(|line| !lines.iter().any(|known| known == **line)).collect();
    assert!(stale.is_empty(), "in docs/embed/events.md, and never written: {stale:#?}");
}

/// The match is exhaustive: a new kind does not compile until it has a sample, and then needs a
/// line on the page.
fn is_sampled(what: &RunEvent) -> bool {
    match what {
        RunEvent::Recorded { .. }
        | RunEvent::Logged { .. }
        | RunEvent::Progressed { .. }
        | RunEvent::ObserverQueueFull { .. }
        | RunEvent::ObserverQueueFree { .. }
        | RunEvent::ObserverStopped { .. }
        | RunEvent::Streamed { .. }
        | RunEvent::ModelWaiting { .. } => true,
        RunEvent::Notice { notice } => is_notice_sampled(notice),
    }
}

fn is_notice_sampled(notice: &Notice) -> bool {
    match notice {
        Notice::TaskStarted { .. }
        | Notice::MessagePosted { .. }
        | Notice::StepEnded { .. }
        | Notice::StepStalled { .. }
        | Notice::QuestionUnanswered { .. }
        | Notice::ToolCalled { .. }
        | Notice::ToolAnswered { .. }
        | Notice::PluginFaulted { .. }
        | Notice::Denied { .. }
        | Notice::SideEffectStarted { .. }
        | Notice::SideEffectEnded { .. }
        | Notice::ApprovalAsked { .. }
        | Notice::ApprovalGiven { .. }
        | Notice::DecisionRejected { .. }
        | Notice::TopUpAsked { .. }
        | Notice::ToppedUp { .. }
        | Notice::PriceUnknown { .. }
        | Notice::AttemptLost { .. }
        | Notice::StepStarted { .. }
        | Notice::ModelCalled { .. }
        | Notice::ModelAnswered { .. }
        | Notice::HistoryCut { .. }
        | Notice::Resumed { .. }
        | Notice::PluginReplaced { .. }
        | Notice::InvariantViolated { .. }
        | Notice::TurnStopped { .. }
        | Notice::PlanChanged { .. }
        | Notice::AgentStateChanged { .. }
        | Notice::AgentStuck { .. }
        | Notice::RunPaused { .. }
        | Notice::RunUnpaused
        | Notice::UserMessageRead { .. }
        | Notice::UserMessageDropped { .. }
        | Notice::HistoryCondensed { .. }
        | Notice::KnowledgeAdded { .. }
        | Notice::GateBlocked { .. }
        | Notice::GateModified { .. }
        | Notice::HandedOff { .. }
        | Notice::HandoffRejected { .. }
        | Notice::Inbound { .. }
        | Notice::InboundRefused { .. }
        | Notice::ChannelRefused { .. }
        | Notice::ChannelBound { .. }
        | Notice::ChannelUnbound { .. }
        | Notice::RoomClosed { .. }
        | Notice::BackgroundStarted { .. }
        | Notice::BackgroundEnded { .. }
        | Notice::Delivered { .. }
        | Notice::NotDelivered { .. }
        | Notice::DeadLetter { .. }
        | Notice::ResultsRelayed { .. }
        | Notice::ResultsRead { .. }
        | Notice::TaskEnded { .. }
        | Notice::ResultReady { .. }
        | Notice::ObserverRetried { .. }
        | Notice::AnswerOverruled { .. }
        | Notice::ResultReplaced { .. }
        | Notice::ObserverStopped { .. } => true,
    }
}

#[test]
fn every_kind_has_a_sample() {
    assert!(whats().iter().all(is_sampled) && notices().iter().all(is_notice_sampled));
    assert_eq!((whats().len(), notices().len()), (8, 58), "as many as there are arms above");
}

fn plugin(name: &str) -> PluginName {
    PluginName::from(name)
}

fn task(name: &str) -> TaskName {
    TaskName::from(name)
}

fn denial() -> DenialRecord {
    DenialRecord {
        denial: Denial {
            capability: "files".to_owned(),
            target: "/folder/../secret".to_owned(),
            detail: "files was refused for \"/folder/../secret\"".to_owned(),
        },
        layer: Layer::Runtime,
        reason: "this path is outside every granted folder".to_owned(),
        suggestion: None,
        writes: false,
    }
}

fn whats() -> Vec<RunEvent> {
    let (call, search) = (CallId(3), plugin("search"));
    let event = Event::UserAnswered {
        call,
        text: Some("Yes.".to_owned()),
        attachments: Vec::new(),
        passed: false,
    };
    let record = Record {
        seq: 12,
        at: Millis(1_760_000_000_000),
        principal: Principal("operator".into()),
        rules: RULES,
        epoch: 0,
        event,
    };
    vec![
        RunEvent::Recorded { record: Arc::new(record) },
        RunEvent::Logged {
            call,
            plugin: search.clone(),
            level: Level::Info,
            message: "41 files".to_owned(),
        },
        RunEvent::Progressed {
            call,
            plugin: search,
            completed: 20,
            total: Some(41),
            message: "reading".to_owned(),
        },
        RunEvent::Streamed { call: CallId(4), ordinal: 0, text: "Skerryvore ".to_owned() },
        RunEvent::ModelWaiting {
            call: CallId(4),
            ordinal: 0,
            model: ModelName::from("default"),
            reason: "http://127.0.0.1:8080/v1 answered 503 (Service Unavailable): Loading model. \
                The next attempt is in 1.2s"
                .to_owned(),
        },
        RunEvent::ObserverQueueFull { observer: plugin("hook"), queued: 1_000 },
        RunEvent::ObserverQueueFree { observer: plugin("hook") },
        RunEvent::ObserverStopped {
            observer: plugin("hook"),
            undelivered: 12,
            reason: "observer hook is stopped after call 8 of 8: it cannot take events now"
                .to_owned(),
        },
    ]
}

#[expect(clippy::too_many_lines, reason = "one example of each notice")]
fn notices() -> Vec<Notice> {
    let (step, tool) = (CallId(0), CallId(3));
    let find = || "search.find".to_owned();
    let arguments = || json!({ "query": "Skerryvore lit" });
    let message = Message {
        content: Some("When was it lit?".to_owned()),
        ..Message::new(1, Role::User, "terminal")
    };
    let answer = Message {
        content: Some("In 1844.".to_owned()),
        parent: Some(1),
        ..Message::new(2, Role::Llm, "answer")
    };
    let handed = Message {
        content: Some("--- BACKGROUND TASK COMPLETED ---".to_owned()),
        ..Message::new(4, Role::Agent, "host")
    };
    let side_message = Message {
        content: Some("And its keeper?".to_owned()),
        ..Message::new(3, Role::User, "user")
    };
    let mut plan = Plan::default();
    plan.add("", "Find out when it was lit", &json!(null)).unwrap();
    plan.set("0", PlanState::InProgress).unwrap();
    let id = || BackgroundId::from("task-1");
    let ended = EndedTask {
        id: id(),
        worker: task("digest"),
        description: "What is in the folder?".to_owned(),
        status: BackgroundStatus::Completed,
        output: Some("41 files, mostly about lighthouses".to_owned()),
        error: None,
        cause: None,
        duration_ms: 950,
        attempts: 0,
        metadata: json!({}),
    };
    let report =
        || CallReport { wall_us: 2_140, cpu_ticks: 0, memory: 1_114_112, ..CallReport::default() };
    let outcome = Outcome {
        content: Some("Skerryvore was first lit in 1844.".to_owned()),
        spent: Spent { turns: 3, tokens: 1_204, model_calls: 2, tool_calls: 1, ..Spent::default() },
        ..Outcome::new(Status::Done, "ended by librarian")
    };
    vec![
        Notice::TaskStarted {
            task: task("answer"),
            agent: plugin("librarian"),
            caller: Some(task("desk")),
        },
        Notice::StepStarted { call: step, task: task("answer"), agent: plugin("librarian") },
        Notice::MessagePosted {
            task: task("answer"),
            agent: plugin("librarian"),
            message: Arc::new(message),
        },
        Notice::StepEnded {
            task: task("answer"),
            by: "llm".into(),
            message: Some(Arc::new(answer)),
            skipped: vec![SkippedResponder {
                responder: "user".into(),
                reason: SkipReason::UserNotAsked,
            }],
        },
        Notice::StepStalled {
            task: task("answer"),
            stalled: 1,
            of: 5,
            skipped: vec![SkippedResponder {
                responder: "llm".into(),
                reason: SkipReason::SentMessage,
            }],
        },
        Notice::QuestionUnanswered { task: task("answer"), question: "Which lighthouse?".into() },
        Notice::ToolCalled {
            call: tool,
            task: task("answer"),
            caller: plugin("librarian"),
            name: find(),
            arguments: arguments().into(),
            within: None,
            led_by: Vec::new(),
        },
        Notice::ToolAnswered {
            call: Some(tool),
            task: task("answer"),
            name: find(),
            arguments: None,
            content: "lights.txt:1".to_owned(),
            is_error: false,
            fault: None,
            report: report(),
        },
        Notice::PluginFaulted {
            call: step,
            plugin: plugin("librarian"),
            fault: Fault::new(
                FaultKind::Cpu,
                "it computed for more than 1 s (plugins.librarian.limits.cpu)",
            ),
        },
        Notice::SideEffectStarted {
            call: CallId(3),
            ordinal: 0,
            plugin: plugin("weather"),
            side_effect: SideEffect::Fetch {
                method: "GET".to_owned(),
                url: "https://api.example.org/v1/now".to_owned(),
                headers: Vec::new(),
                body: None,
                secrets: vec!["met_token".to_owned()],
            },
            overlay: false,
        },
        Notice::SideEffectEnded {
            call: CallId(3),
            ordinal: 0,
            plugin: plugin("weather"),
            answer: SideEffectAnswer::Done { length: 12 },
        },
        Notice::Denied { call: None, plugin: plugin("librarian"), record: denial() },
        Notice::ApprovalAsked {
            call: CallId(5),
            request: ApprovalRequest {
                task: task("answer"),
                caller: plugin("librarian"),
                led_by: Vec::new(),
                delegators: Vec::new(),
                executor: None,
                tool: find(),
                arguments: arguments(),
                source: "conclave.toml:49".to_owned(),
                causes: vec![ApprovalCause::Rule(0)],
                expires_ms: None,
                risk: Some(Risk::High),
                risk_reason: Some("it reads what nobody asked for".to_owned()),
                problem: None,
            },
        },
        Notice::ApprovalGiven {
            call: CallId(5),
            approval: Approval::Approved,
            author: ApprovalAuthor::Program,
        },
        Notice::DecisionRejected {
            call: CallId(5),
            author: ApprovalAuthor::Program,
            fault: DecisionFault::OtherArguments {
                decided: "44136fa3".to_owned(),
                current: "9f86d081".to_owned(),
            },
        },
        Notice::TopUpAsked {
            call: CallId(6),
            top_up: LimitIncrease {
                budget: Budget::Tokens,
                limit: 10_000,
                used: 9_400,
                set_aside: 0,
                needed: Some(899),
                proposed: 5_000,
                task: task("desk"),
                problem: None,
            },
        },
        Notice::ToppedUp {
            call: CallId(6),
            budget: Budget::Tokens,
            more: Some(5_000),
            reason: None,
            author: ApprovalAuthor::Program,
        },
        Notice::PriceUnknown {
            model: ModelName::from("default"),
            limit: "limits.run.cost_usd".to_owned(),
        },
        Notice::AttemptLost {
            call: step,
            ordinal: 0,
            model: ModelName::from("default"),
            input_tokens: 812,
            cost_micro_usd: 0,
            reason: None,
        },
        Notice::ModelCalled {
            call: step,
            ordinal: 0,
            task: Some(task("answer")),
            plugin: plugin("librarian"),
            model: ModelName::from("default"),
            stream: true,
        },
        Notice::ModelAnswered {
            call: step,
            ordinal: 0,
            usage: TokenUsage { input_tokens: 1_180, output_tokens: 24, ..TokenUsage::default() },
            model: Some("qwen3:8b".to_owned()),
            stop: Some(StopReason::ToolCalls),
            is_empty: false,
            error: None,
            trouble: None,
            fallback: None,
        },
        Notice::HistoryCut { task: task("answer"), cut: 2, dropped: 0 },
        Notice::Resumed { down_ms: 3_000, is_exact: false },
        Notice::PluginReplaced { plugin: plugin("search"), sha256: "9f86d081884c7d65".repeat(4) },
        Notice::InvariantViolated {
            code: "round_waits".to_owned(),
            reason: "internal error (round_waits): the room was ended".to_owned(),
        },
        Notice::TurnStopped { task: task("desk"), reason: "Ctrl-C".to_owned() },
        Notice::PlanChanged { task: task("desk"), plan: plan.to_json() },
        Notice::AgentStateChanged {
            task: task("desk"),
            state: AgentState::AwaitingUserInput,
            reason: None,
        },
        Notice::AgentStuck {
            task: task("desk"),
            reason: "the same action failed 4 times in a row".to_owned(),
            recovery: Recovery::Restart,
        },
        Notice::RunPaused { reason: "paused with `conclave pause`".to_owned() },
        Notice::RunUnpaused,
        Notice::UserMessageRead { task: task("answer"), message: Arc::new(side_message) },
        Notice::UserMessageDropped {
            task: task("answer"),
            text: "And its keeper?".to_owned(),
            reason: "the run is over".to_owned(),
        },
        Notice::HistoryCondensed {
            task: task("answer"),
            forgotten: 38,
            masked: 2,
            summarised: true,
        },
        Notice::KnowledgeAdded {
            task: task("answer"),
            file: "agents/git.md".to_owned(),
            trigger: "rebase".to_owned(),
        },
        Notice::Inbound {
            index: 4,
            channel: "web".into(),
            sender: "Ada".to_owned(),
            text: "Is it still lit?".to_owned(),
        },
        Notice::InboundRefused {
            channel: "web".into(),
            sender: "Ada".to_owned(),
            error: RefusalCode::RateLimited,
            reason: "the channel web may say 5 a second (channels.web.rate)".to_owned(),
        },
        Notice::ChannelRefused {
            channel: "web".into(),
            key: "answer-2-web".to_owned(),
            reason: "nobody listens".to_owned(),
        },
        Notice::ChannelBound {
            channel: "phone".into(),
            binding: Binding { muted: true, ..Binding::of(ChannelKind::Voice) },
        },
        Notice::ChannelUnbound { channel: "phone".into() },
        Notice::RoomClosed { reason: "good night".to_owned() },
        Notice::GateBlocked {
            point: GatePoint::Delegate,
            plugin: plugin("guard"),
            reason: "gate guard blocked it: no names of customers".to_owned(),
            tool: None,
        },
        Notice::GateModified { point: GatePoint::Inbound, plugin: plugin("guard"), tool: None },
        Notice::AnswerOverruled {
            task: task("desk"),
            plugin: plugin("grader"),
            responder: "llm".to_owned(),
            ruling: Ruling { valid: Some(false), ..Ruling::default() },
        },
        Notice::ResultReplaced { task: task("desk"), plugin: plugin("grader") },
        Notice::HandedOff {
            from: task("triage"),
            to: Some(task("billing")),
            phase: "refund".to_owned(),
            reason: "a question about an invoice".to_owned(),
        },
        Notice::HandoffRejected {
            from: task("triage"),
            to: "legal".to_owned(),
            refusal: Refusal {
                allowed: vec!["billing".to_owned(), "user".to_owned()],
                ..Refusal::new(
                    RefusalCode::UnknownAgent,
                    "there is no task \"legal\" to hand the conversation to",
                )
            },
        },
        Notice::BackgroundStarted {
            id: id(),
            task: task("digest"),
            room: RoomId::from("3f2a91c0/1"),
            by: Some(task("answer")),
            brief: "What is in the folder?".to_owned(),
        },
        Notice::BackgroundEnded { ended },
        Notice::Delivered {
            id: id(),
            worker: task("digest"),
            strategy: Some(plugin("immediate")),
            channel: ChannelId::from("terminal"),
            text: "41 files, mostly about lighthouses".to_owned(),
        },
        Notice::NotDelivered {
            id: id(),
            worker: task("digest"),
            reason: "the channel did not take it".to_owned(),
        },
        Notice::DeadLetter {
            id: id(),
            worker: task("digest"),
            attempts: 4,
            reason: "it was tried 4 times; the last time: busy".to_owned(),
        },
        Notice::ResultsRelayed { task: task("answer"), ids: vec![id()], message: Arc::new(handed) },
        Notice::ResultsRead { task: task("answer"), ids: vec![id()] },
        Notice::TaskEnded {
            task: task("answer"),
            status: Status::Done,
            reason: "ended by librarian".to_owned(),
        },
        Notice::ResultReady { outcome: Arc::new(outcome) },
        Notice::ObserverRetried {
            observer: plugin("hook"),
            attempts: 1,
            of: 8,
            pause_ms: 500,
            reason: "it cannot take events now".to_owned(),
        },
        Notice::ObserverStopped {
            observer: plugin("hook"),
            attempts: 8,
            reason: "it cannot take events now".to_owned(),
        },
    ]
}

/// The failure of a server, for the operator only.
#[test]
fn the_page_shows_trouble_too() {
    let trouble = ModelDiagnostic {
        kind: ModelDiagnosticKind::Unreachable,
        text: "nobody answers at 127.0.0.1:11434; is the server running?".to_owned(),
    };
    assert!(
        PAGE.contains(&serde_json::to_string(&trouble).unwrap()),
        "{}",
        serde_json::to_string(&trouble).unwrap()
    );
}
