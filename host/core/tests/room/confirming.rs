//! Consent for every kind of action (O-109, O-110, C-316), however it is called. A waiting action
//! has started nothing, also after a crash.

use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::setup::plugin_query::{GateVerdict, PluginQuery, PluginReply};
use conclave_core::types::action::{Action, Observation, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor, ApprovalRequest};
use conclave_core::types::delegation::Delegation;
use conclave_core::types::fault::{CallReport, Fault, FaultKind};
use conclave_core::types::ids::CallId;
use conclave_core::types::message::ToolCall;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

const KINDS: [&str; 8] = [
    "run",
    "run_ipython",
    "browse",
    "browse_interactive",
    "read",
    "write",
    "edit",
    "call_tool_mcp",
];

fn opened(confirm: &Value, policy: &Value) -> Recorded {
    let setup = json!({
        "tasks": {
            "desk": { "confirm": confirm, "action_plugins": ["hands"], "memory": "judge" },
            "other": {},
        },
        "plugins": {
            "desk": { "grants": { "tools": ["*"], "delegate": ["other"] } }, "hands": { "tools": KINDS },
            "judge": { "kinds": ["security-analyzer", "memory"] },
        },
        "policy": policy,
    });
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
            .expect("a case of the right form");
    let mut recorded = Recorded::default();
    recorded.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    recorded
}

fn act(recorded: &mut Recorded, action: &Action) -> Vec<Effect> {
    let effects = recorded.take_effects();
    let [Effect::StepAgent { call, .. }] = effects[..] else {
        panic!("expected a step alone: {effects:?}")
    };
    let answer = Ok(Turn {
        action: action.clone(),
        thought: String::new(),
        wait_for_response: false,
        extra: Vec::new(),
    });
    recorded.handle(Event::AgentStepped { call, answer, report: CallReport::default() }, START);
    recorded.take_effects()
}

fn request(effects: &[Effect]) -> (CallId, ApprovalRequest) {
    let [Effect::AskApproval { call, request }] = effects else {
        panic!("expected a question alone: {effects:?}")
    };
    (*call, request.clone())
}

fn custom(name: &str, arguments: Value) -> Action {
    Action::Custom { name: name.to_owned(), arguments }
}

fn run() -> Action {
    Action::Run { command: "ls".to_owned(), background: false }
}

/// Returns all actions with an effect, including those that the reference of 2025-11 never asked
/// about.
fn actions() -> Vec<Action> {
    let text = |text: &str| text.to_owned();
    vec![
        run(),
        Action::Run { command: text("sleep 9"), background: true },
        Action::RunIpython { code: text("1"), kernel_init_code: String::new() },
        Action::Browse { url: text("http://127.0.0.1/") },
        Action::Read { path: text("a"), start: 0, end: -1 },
        Action::Write { path: text("a"), content: text("b"), start: 0, end: -1 },
        Action::Kill { command_id: 1 },
        Action::Recall { query: text("q") },
        Action::Delegate { agent: text("other"), inputs: json!({ "task": "t" }) },
        Action::DelegateTask(Box::new(Delegation {
            worker: text("other"),
            description: text("t"),
            context: json!({}),
            ..Delegation::default()
        })),
        custom("edit", json!({ "path": "a" })),
        custom("browse_interactive", json!({ "browser_actions": "noop()" })),
        custom("anything_new", json!({})),
    ]
}

#[test]
fn nothing_is_done_before_somebody_consents() {
    for action in actions() {
        let mut recorded = opened(&json!({ "policy": "always" }), &json!([]));
        let effects = act(&mut recorded, &action);
        assert!(
            matches!(effects[..], [Effect::AskApproval { .. }]),
            "{action:?}: {effects:?}\n{:?}",
            recorded.notices
        );
        let (call, approval_request) = request(&effects);
        assert_eq!(
            (approval_request.tool.as_str(), approval_request.caller.as_str()),
            (action.name(), "desk")
        );
        recorded.handle(
            Event::Decided {
                call,
                approval: Approval::Refused { reason: "too dear".to_owned() },
                author: ApprovalAuthor::Program,
                arguments_sha256: None,
            },
            START,
        );
        let effects = recorded.take_effects();
        let [Effect::StepAgent { call, .. }] = effects[..] else {
            panic!("{action:?} was done: {effects:?}")
        };
        let view = recorded.room.agent_view(call).expect("it is under way");
        let observed = view
            .since
            .iter()
            .filter_map(|past_action| past_action.observation.as_ref())
            .next_back();
        let Some(Observation::Custom { name, content, .. }) = observed else {
            panic!("{action:?}: {:?}", view.since)
        };
        assert_eq!(name, "user_rejected");
        assert!(content.contains("too dear") && content.contains(action.name()), "{content}");
    }
}

#[test]
fn what_somebody_consents_to_is_done_once() {
    for action in actions().into_iter().filter(|action| KINDS.contains(&action.name())) {
        let mut recorded = opened(
            &json!({ "policy": "always" }),
            &json!([{ "tool": "hands.*", "decide": "ask" }]),
        );
        let (call, _) = request(&act(&mut recorded, &action));
        recorded.handle(
            Event::Decided {
                call,
                approval: Approval::Approved,
                author: ApprovalAuthor::Program,
                arguments_sha256: None,
            },
            START,
        );
        let effects = recorded.take_effects();
        let is_done = matches!(&effects[..], [Effect::CallTool { tool, .. }, ..] if *tool == action.name())
            || effects.iter().any(|effect| matches!(effect, Effect::StepAgent { .. }));
        assert!(
            is_done && !effects.iter().any(|effect| matches!(effect, Effect::AskApproval { .. })),
            "{action:?}: {effects:?}"
        );
    }
}

#[test]
fn a_call_of_a_server_is_a_call_like_any() {
    let mut recorded = opened(&json!({ "policy": "always" }), &json!([]));
    let call = custom("call_tool_mcp", json!({ "name": "hands.read", "arguments": {} }));
    let (_, approval_request) = request(&act(&mut recorded, &call));
    assert_eq!(approval_request.tool, "hands.read");
}

#[test]
fn thoughts_and_plans_wait_for_nobody() {
    for action in
        [Action::Think { thought: "hm".to_owned() }, custom("condensation_request", json!({}))]
    {
        let mut recorded = opened(&json!({ "policy": "always", "analyzer": "judge" }), &json!([]));
        let effects = act(&mut recorded, &action);
        assert!(matches!(effects[..], [Effect::StepAgent { .. }]), "{effects:?}");
    }
}

fn assessed(
    recorded: &mut Recorded,
    effects: &[Effect],
    answer: Result<&str, &str>,
) -> Vec<Effect> {
    let [Effect::QueryPlugin { call, .. }] = effects else {
        panic!("expected a consultation alone: {effects:?}")
    };
    let verdict = |risk: &str| {
        serde_json::from_value(
            json!({ "advice": "risk", "verdict": { "risk": risk, "reason": "" } }),
        )
        .expect("advice")
    };
    let answer = answer.map(verdict).map_err(|message| Fault::new(FaultKind::Wall, message));
    recorded
        .handle(Event::PluginQueried { call: *call, answer, report: CallReport::default() }, START);
    recorded.take_effects()
}

#[test]
fn the_strictest_of_rule_and_risk_counts_for_actions_too() {
    let risky = json!({ "policy": { "risky": { "threshold": "high", "unknown": false } }, "analyzer": "judge" });
    // A low risk runs.
    let mut recorded = opened(&risky, &json!([]));
    let effects = act(&mut recorded, &run());
    let effects = assessed(&mut recorded, &effects, Ok("low"));
    assert!(matches!(effects[..], [Effect::CallTool { .. }]), "{effects:?}");
    // A rule that asks about the executing tool takes precedence over a low risk.
    let mut recorded = opened(
        &risky,
        &json!([{ "tool": "hands.run", "decide": "ask", "source": "conclave.toml:3" }]),
    );
    let effects = act(&mut recorded, &run());
    let (_, approval_request) = request(&assessed(&mut recorded, &effects, Ok("low")));
    assert_eq!(
        (approval_request.tool.as_str(), approval_request.source.as_str()),
        ("hands.run", "conclave.toml:3")
    );
    // Consent does not override a rule that denies.
    let mut recorded = opened(
        &json!({ "policy": "always" }),
        &json!([{ "tool": "hands.run", "decide": "deny", "source": "conclave.toml:3" }]),
    );
    let mut effects = act(&mut recorded, &run());
    if let [Effect::AskApproval { call, .. }] = effects[..] {
        recorded.handle(
            Event::Decided {
                call,
                approval: Approval::Approved,
                author: ApprovalAuthor::Program,
                arguments_sha256: None,
            },
            START,
        );
        effects = recorded.take_effects();
    }
    assert!(matches!(effects[..], [Effect::StepAgent { .. }]), "{effects:?}");
}

#[test]
fn an_analyzer_that_fails_makes_somebody_be_asked() {
    let risky = json!({ "policy": { "risky": { "threshold": "high", "unknown": false } }, "analyzer": "judge" });
    let mut recorded = opened(&risky, &json!([]));
    let effects = act(&mut recorded, &run());
    let (_, approval_request) =
        request(&assessed(&mut recorded, &effects, Err("it took too long")));
    assert_eq!(json!(approval_request.risk), json!("high"));
    assert!(approval_request.risk_reason.is_some_and(|reason| reason.contains("it took too long")));
}

#[test]
fn an_approver_writes_other_arguments_for_an_action() {
    let mut recorded = opened(&json!({ "policy": "always" }), &json!([]));
    let (call, approval_request) = request(&act(&mut recorded, &run()));
    assert_eq!(approval_request.arguments["command"], "ls");
    let mut arguments = approval_request.arguments;
    arguments["command"] = json!("ls -l");
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Edited { arguments },
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    let effects = recorded.take_effects();
    let [Effect::CallTool { arguments, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(arguments["command"], "ls -l");
    // An unknown action is not carried out.
    let mut recorded = opened(&json!({ "policy": "always" }), &json!([]));
    let (call, _) = request(&act(&mut recorded, &run()));
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Edited { arguments: json!([1]) },
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    assert!(matches!(recorded.take_effects()[..], [Effect::StepAgent { .. }]));
}

#[test]
fn consent_that_was_asked_for_before_a_crash_is_asked_for_again() {
    let risky = json!({ "policy": "always", "analyzer": "judge" });
    let mut recorded = opened(&risky, &json!([]));
    let effects = act(&mut recorded, &run());
    let restarts = |recorded: &Recorded| {
        let unfinished = Unfinished::fold(recorded.records.clone());
        unfinished.resumption(START, unfinished.room.setup()).restarts
    };
    let assessing = restarts(&recorded);
    assert!(
        assessing.iter().any(|restart| matches!(restart.effect, Effect::QueryPlugin { .. })),
        "{assessing:?}"
    );
    assessed(&mut recorded, &effects, Ok("low"));
    let asking = restarts(&recorded);
    let approval_request = asking.iter().find_map(|restart| {
        if let Effect::AskApproval { request, .. } = &restart.effect { Some(request) } else { None }
    });
    assert_eq!(json!(approval_request.and_then(|request| request.risk)), json!("low"));
    assert!(!asking.iter().any(|restart| matches!(
        restart.effect,
        Effect::CallTool { .. } | Effect::QueryPlugin { .. }
    )));
}

/// Checks a host tool call that starts work against the same rules as the action, whatever other
/// calls stand beside it.
#[test]
fn a_call_of_the_hosts_own_tool_starts_nothing_before_somebody_consents() {
    let delegating = || {
        let arguments =
            json!({ "agent": "other", "task": "t", "context": {}, "share_channels": [] });
        let call = ToolCall { id: "1".to_owned(), ..ToolCall::new("delegate_task", arguments) };
        Action::Reply(Reply {
            content: Some("begin".to_owned()),
            tool_calls: vec![call],
            ..Reply::default()
        })
    };
    let starts = |effects: &[Effect]| {
        let started = effects.iter().find_map(|effect| {
            if let Effect::StartBackground { opening, .. } = effect { Some(opening) } else { None }
        });
        started.map(|opening| opening.content.clone().unwrap_or_default())
    };
    let always = json!({ "policy": "always" });
    // No rule asks, so nothing waits.
    let mut recorded = opened(&json!({ "policy": "never" }), &json!([]));
    assert_eq!(starts(&act(&mut recorded, &delegating())).as_deref(), Some("t"));
    // Approved.
    let mut recorded = opened(&always, &json!([]));
    let (call, approval_request) = request(&act(&mut recorded, &delegating()));
    assert_eq!(
        (approval_request.tool.as_str(), &approval_request.arguments["agent"]),
        ("delegate_task", &json!("other"))
    );
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Approved,
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    assert_eq!(starts(&recorded.take_effects()).as_deref(), Some("t"));
    // Approved with other arguments.
    let mut recorded = opened(&always, &json!([]));
    let (call, approval_request) = request(&act(&mut recorded, &delegating()));
    let mut arguments = approval_request.arguments;
    arguments["task"] = json!("u");
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Edited { arguments },
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    assert_eq!(starts(&recorded.take_effects()).as_deref(), Some("u"));
    // Approved with arguments that the agent is not granted.
    let mut recorded = opened(&always, &json!([]));
    let (call, mut approval_request) = request(&act(&mut recorded, &delegating()));
    approval_request.arguments["agent"] = json!("desk");
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Edited { arguments: approval_request.arguments },
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    assert_eq!(starts(&recorded.take_effects()), None);
    // Denied.
    let mut recorded = opened(&always, &json!([]));
    let (call, _) = request(&act(&mut recorded, &delegating()));
    recorded.handle(
        Event::Decided {
            call,
            approval: Approval::Refused { reason: "too dear".to_owned() },
            author: ApprovalAuthor::Program,
            arguments_sha256: None,
        },
        START,
    );
    let effects = recorded.take_effects();
    assert_eq!(starts(&effects), None);
    let [Effect::StepAgent { call, .. }] = effects[..] else { panic!("{effects:?}") };
    let view = recorded.room.agent_view(call).expect("it is under way");
    assert!(view.pending.is_some_and(|pending| pending.text().contains("too dear")));
    // The analyzer is asked first, and a low risk begins at once.
    let risky = json!({ "policy": { "risky": { "threshold": "high", "unknown": false } }, "analyzer": "judge" });
    for (risk, begins) in [("low", true), ("high", false)] {
        let mut recorded = opened(&risky, &json!([]));
        let effects = act(&mut recorded, &delegating());
        let effects = assessed(&mut recorded, &effects, Ok(risk));
        assert_eq!(starts(&effects).is_some(), begins, "{risk}: {effects:?}");
        assert_eq!(
            effects.iter().any(|effect| matches!(effect, Effect::AskApproval { .. })),
            !begins,
            "{risk}"
        );
    }
}

/// Returns a task whose delegations pass a gate before an approver is asked about them.
fn gated(confirm: &Value) -> Recorded {
    let setup = json!({
        "tasks": { "desk": { "confirm": confirm, "host_tools": ["delegate_task"] }, "other": {} },
        "plugins": {
            "desk": { "grants": { "tools": ["*"], "delegate": ["other"] } }, "guard": { "kinds": ["gate"] },
            "judge": { "kinds": ["security-analyzer"] },
        },
        "gates": [{ "on": "delegate", "plugin": "guard", "deadline_ms": 200 }],
    });
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
            .expect("a case of the right form");
    let mut recorded = Recorded::default();
    recorded.handle(
        Event::RoomOpened { setup: case.setup().into(), opening: case.opening(), secret: SECRET },
        START,
    );
    recorded
}

/// Returns the same delegation as an action and as a call of the host tool.
fn delegations() -> [Action; 2] {
    let action = Delegation {
        worker: "other".to_owned(),
        description: "Sum up the news".to_owned(),
        context: json!({}),
        ..Delegation::default()
    };
    let call =
        ToolCall::new("delegate_task", json!({ "agent": "other", "task": "Sum up the news" }));
    [
        Action::DelegateTask(Box::new(action)),
        Action::Reply(Reply { tool_calls: vec![call], ..Reply::default() }),
    ]
}

/// Answers the gate's request for text `from` with the replacement `to`.
fn changed(recorded: &mut Recorded, effects: &[Effect], from: &str, to: &str) -> Vec<Effect> {
    let gate_query = effects.iter().find_map(|effect| match effect {
        Effect::QueryPlugin { call, question: PluginQuery::Gate { input }, .. } => {
            Some((*call, input.text.clone()))
        }
        _ => None,
    });
    let (call, text) = gate_query.unwrap_or_else(|| panic!("the gate is asked: {effects:?}"));
    assert_eq!(text, from);
    let advice = PluginReply::Gate { verdict: GateVerdict::Modify { text: to.to_owned() } };
    recorded.handle(
        Event::PluginQueried { call, answer: Ok(advice), report: CallReport::default() },
        START,
    );
    recorded.take_effects()
}

fn decide(recorded: &mut Recorded, call: CallId, approval: Approval) -> Vec<Effect> {
    recorded.handle(
        Event::Decided { call, approval, author: ApprovalAuthor::Program, arguments_sha256: None },
        START,
    );
    assert!(
        conclave_core::journal::record::fold(recorded.records.iter().cloned()) == recorded.room
    );
    recorded.take_effects()
}

/// The input of the worker, if one begins.
fn worker_input(effects: &[Effect]) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        Effect::StartBackground { opening, .. } => opening.content.clone(),
        _ => None,
    })
}

#[test]
fn an_approver_is_asked_about_what_gates_have_left_and_that_is_what_runs() {
    for delegation in delegations() {
        let mut recorded = gated(&json!({ "policy": "always" }));
        let effects = act(&mut recorded, &delegation);
        let (call, approval_request) =
            request(&changed(&mut recorded, &effects, "Sum up the news", "Delete everything"));
        assert_eq!(
            (approval_request.tool.as_str(), approval_request.arguments["task"].as_str()),
            ("delegate_task", Some("Delete everything")),
            "{delegation:?}"
        );
        let effects = decide(&mut recorded, call, Approval::Approved);
        assert_eq!(
            worker_input(&effects).as_deref(),
            Some("Delete everything"),
            "no gate is asked again: {effects:?}"
        );
        assert!(recorded.records.iter().any(|record| record.event
            == Event::Decided {
                call,
                approval: Approval::Approved,
                author: ApprovalAuthor::Program,
                arguments_sha256: None,
            }));
    }
}

#[test]
fn what_is_refused_as_gates_have_left_it_does_not_begin() {
    for delegation in delegations() {
        let mut recorded = gated(&json!({ "policy": "always" }));
        let effects = act(&mut recorded, &delegation);
        let (call, _) =
            request(&changed(&mut recorded, &effects, "Sum up the news", "Delete everything"));
        let effects = decide(&mut recorded, call, Approval::Refused { reason: "no".to_owned() });
        assert!(
            worker_input(&effects).is_none() && matches!(effects[..], [Effect::StepAgent { .. }]),
            "{delegation:?}: {effects:?}"
        );
    }
}

#[test]
fn what_an_approver_wrote_passes_the_gates_and_is_asked_about_again_where_they_change_it() {
    for (to, is_asked_again) in [("Sum up the weather", false), ("Delete everything", true)] {
        for delegation in delegations() {
            let mut recorded = gated(&json!({ "policy": "always" }));
            let effects = act(&mut recorded, &delegation);
            let (call, _) =
                request(&changed(&mut recorded, &effects, "Sum up the news", "Sum up nothing"));
            let arguments = json!({ "agent": "other", "task": "Sum up the weather" });
            let effects = decide(&mut recorded, call, Approval::Edited { arguments });
            let mut effects = changed(&mut recorded, &effects, "Sum up the weather", to);
            if is_asked_again {
                let (call, approval_request) = request(&effects);
                assert_eq!(approval_request.arguments["task"], to);
                effects = decide(&mut recorded, call, Approval::Approved);
            }
            assert_eq!(worker_input(&effects).as_deref(), Some(to), "{delegation:?}: {effects:?}");
        }
    }
}

#[test]
fn the_risk_of_a_delegation_is_that_of_the_text_that_gates_have_left() {
    for delegation in delegations() {
        let mut recorded = gated(
            &json!({ "policy": { "risky": { "threshold": "high", "unknown": true } }, "analyzer": "judge" }),
        );
        let effects = act(&mut recorded, &delegation);
        let effects = changed(&mut recorded, &effects, "Sum up the news", "Delete everything");
        let [Effect::QueryPlugin { question: PluginQuery::Risk { action, .. }, .. }] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert!(
            format!("{action:?}").contains("Delete everything")
                && !format!("{action:?}").contains("the news"),
            "{action:?}"
        );
        let (call, _) = request(&assessed(&mut recorded, &effects, Ok("high")));
        assert_eq!(
            worker_input(&decide(&mut recorded, call, Approval::Approved)).as_deref(),
            Some("Delete everything"),
            "{delegation:?}"
        );
    }
}
