//! Results in a fixed form: requested again, submitted, or missing.

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::setup::plugin_query::{GateInput, GateVerdict, PluginQuery, PluginReply};
use conclave_core::setup::{GatePoint, GateRule, Setup};
use conclave_core::types::action::Action;
use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use conclave_core::types::fault::CallReport;
use conclave_core::types::host_tool::HostTool;
use conclave_core::types::outcome::{EndCause, Outcome, Status};
use conclave_core::types::plugin_kind::PluginKind;
use serde_json::json;

use super::{Desk, completed_task, finish, offers, plain, plain_with, step};

fn structured(retries: u32) -> Desk {
    Desk::open_with(plain(), |_| {}, |opening| opening.structured_retries = Some(retries))
}

#[test]
fn a_result_in_a_fixed_form_is_asked_for_until_it_is_handed_in() {
    // D17
    let mut desk = structured(3);
    let call = desk.to_do.iter().find_map(step).expect("an agent steps");
    let tools = desk.room.agent_view(call).expect("a view").tools;
    assert!(tools.iter().any(|tool| tool.name == "submit_result"));
    desk.step(finish());
    desk.step(finish());
    desk.calls(
        "submit_result",
        json!({ "status": "completed", "summary": "Three.", "data": { "n": 3 } }),
    );
    let outcome = desk.room.outcome().expect("it is over").clone();
    assert_eq!((outcome.status, outcome.content.as_deref()), (Status::Done, Some("Three.")));
    assert_eq!(
        outcome.value,
        Some(json!({ "status": "completed", "summary": "Three.", "data": { "n": 3 } }))
    );
    assert_eq!(EndedTask::from_outcome(&outcome).status, BackgroundStatus::Completed);
    desk.folds();
}

#[test]
fn a_result_that_is_never_handed_in_is_a_failure_that_says_so() {
    // D18
    let mut desk = structured(2);
    for _ in 0..3 {
        desk.step(Action::Finish { outputs: json!({ "content": "raw text" }) });
    }
    let outcome = desk.room.outcome().expect("it is over").clone();
    assert_eq!(
        (outcome.status, outcome.reason.as_str()),
        (Status::Error, "no_structured_result_after_3_attempts")
    );
    let value = outcome.value.clone().expect("a value");
    assert_eq!(
        (&value["status"], &value["by"], &value["reason"]),
        (&json!("failed"), &json!("orchestration"), &json!(outcome.reason))
    );
    assert_eq!(value["role"], json!("the task desk"));
    assert!(value["last_output"].as_str().is_some_and(|text| text.contains("raw text")), "{value}");
    let ended = EndedTask::from_outcome(&outcome);
    assert_eq!(
        (ended.status, ended.error.as_deref()),
        (BackgroundStatus::Failed, Some("no_structured_result_after_3_attempts"))
    );
    assert_eq!(ended.cause, Some(EndCause::NoStructuredResult { attempts: 3 }));
    desk.folds();
}

#[test]
fn a_task_that_hands_in_that_it_is_blocked_has_failed_and_says_why() {
    let mut desk = structured(0);
    desk.calls("submit_result", json!({ "status": "blocked", "summary": "The shelf is locked." }));
    let ended = EndedTask::from_outcome(desk.room.outcome().expect("it is over"));
    assert_eq!(
        (ended.status, ended.error.as_deref()),
        (BackgroundStatus::Failed, Some("The shelf is locked."))
    );
    let mut desk =
        Desk::open_with(plain(), |setup| offers(setup, "desk", &[HostTool::SubmitResult]), |_| {});
    desk.calls("submit_result", json!({ "status": "completed", "summary": "x" }));
    assert!(desk.room.outcome().is_none(), "none was asked for");
}

#[test]
fn the_parent_keeps_a_result_in_a_fixed_form_beside_the_context() {
    let mut desk = Desk::open(plain_with("slow", json!({ "structured_retries": 1 })));
    desk.calls("delegate_task", json!({ "agent": "slow", "task": "x", "context": { "shelf": 3 } }));
    let (call, _, opening) = desk.take_background();
    assert_eq!(opening.structured_retries, Some(1));
    desk.ended(
        call,
        EndedTask {
            metadata: json!({ "status": "completed", "data": 3 }),
            ..completed_task("fine")
        },
    );
    let record = desk.room.task(&"task-1".into()).expect("a record");
    assert_eq!(
        record.metadata,
        json!({ "shelf": 3, "result": { "status": "completed", "data": 3 } })
    );
    let mut desk = Desk::open(plain());
    desk.calls("delegate_task", json!({ "agent": "slow", "task": "x" }));
    let (call, _, _) = desk.take_background();
    desk.ended(call, EndedTask { metadata: json!({ "shelf": "evil" }), ..completed_task("fine") });
    assert_eq!(
        desk.room.task(&"task-1".into()).expect("a record").metadata,
        json!({}),
        "nothing else that a child says is taken"
    );
}

#[test]
fn the_data_of_a_completed_result_fits_the_delegations_schema() {
    let schema = json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
    });
    let mut desk = Desk::open_with(
        plain(),
        |_| {},
        |opening| {
            opening.structured_retries = Some(3);
            opening.result_schema = Some(schema.clone());
        },
    );
    let call = desk.to_do.iter().find_map(step).expect("an agent steps");
    let tools = desk.room.agent_view(call).expect("a view").tools;
    let submit = tools.iter().find(|tool| tool.name == "submit_result").expect("it is offered");
    assert_eq!(submit.input_schema["properties"]["data"], schema);
    let summary = json!({ "status": "completed", "summary": "Three." });
    for (data, says) in
        [(json!({ "n": "x" }), "data.n"), (json!({}), "data.n"), (json!(null), "data")]
    {
        let mut arguments = summary.clone();
        arguments["data"] = data;
        desk.calls("submit_result", arguments);
        assert!(desk.room.outcome().is_none(), "it is not over");
        let call = desk.to_do.iter().find_map(step).expect("it is asked again");
        let view = desk.room.agent_view(call).expect("a view");
        let text = view.pending.as_ref().expect("the refusal").text().to_owned();
        assert!(
            text.contains(says) && text.contains("submit_result") | text.contains("missing"),
            "{text}"
        );
    }
    let mut arguments = summary;
    arguments["data"] = json!({ "n": 3 });
    desk.calls("submit_result", arguments);
    let outcome = desk.room.outcome().expect("it is over");
    assert_eq!(outcome.value.as_ref().expect("a value")["data"], json!({ "n": 3 }));
    desk.folds();
}

/// Ends a task with a submitted result in a room with gates between tasks. Returns its outcome.
fn submitted_through_gates(verdict: GateVerdict) -> Outcome {
    let gated = |setup: &mut Setup| {
        let mut guard = setup.plugins["slow"].as_ref().clone();
        guard.facts.kinds = [PluginKind::Gate].into();
        setup.plugins.insert("guard".into(), guard.into());
        let (on, deadline_ms) = (GatePoint::Subtask, 1_000);
        setup.gates.push(GateRule {
            on,
            plugin: "guard".into(),
            deadline_ms,
            fails_open: false,
            tools: Vec::new(),
        });
    };
    let mut desk = Desk::open_with(plain(), gated, |opening| {
        (opening.structured_retries, opening.depth) = (Some(0), 1);
    });
    let secret = json!({ "status": "completed", "summary": "Twelve.", "data": { "n": 12 } });
    desk.calls("submit_result", secret.clone());
    let gate_query = |effect: &Effect| match effect {
        Effect::QueryPlugin { call, question: PluginQuery::Gate { input }, .. } => {
            Some((*call, GateInput::clone(input)))
        }
        _ => None,
    };
    let (call, input) = desk.take(gate_query).expect("the gate is asked");
    assert_eq!((input.text.as_str(), &input.metadata["value"]), ("Twelve.", &secret));
    let answer = Ok(PluginReply::Gate { verdict });
    desk.happened(Event::PluginQueried { call, answer, report: CallReport::default() });
    desk.folds();
    desk.room.outcome().expect("it is over").as_ref().clone()
}

#[test]
fn a_result_in_a_fixed_form_passes_the_gates_whole_or_not_at_all() {
    let passed = submitted_through_gates(GateVerdict::Allow);
    assert_eq!((passed.status, &passed.value.unwrap()["data"]["n"]), (Status::Done, &json!(12)));
    let blocked = submitted_through_gates(GateVerdict::Block { reason: "no numbers".to_owned() });
    assert_eq!((blocked.status, blocked.content, blocked.value), (Status::Error, None, None));
    // Another text would not say what the value says.
    let changed = submitted_through_gates(GateVerdict::Modify { text: "…".to_owned() });
    assert_eq!((changed.status, changed.content, changed.value), (Status::Error, None, None));
    assert!(changed.reason.contains("structured result"), "{}", changed.reason);
}

#[test]
fn what_a_task_said_before_it_failed_does_not_go_around_the_gates() {
    let gated = |setup: &mut Setup| {
        let (on, deadline_ms) = (GatePoint::Subtask, 1_000);
        setup.gates.push(GateRule {
            on,
            plugin: "guard".into(),
            deadline_ms,
            fails_open: false,
            tools: Vec::new(),
        });
    };
    let mut desk = Desk::open_with(plain(), gated, |opening| {
        (opening.structured_retries, opening.depth) = (Some(0), 1);
    });
    desk.step(Action::Finish { outputs: json!({ "content": "raw text" }) });
    let outcome = desk.room.outcome().expect("it is over");
    assert_eq!((outcome.status, &outcome.content, &outcome.value), (Status::Error, &None, &None));
}
