//! The questions of a run to people: their record, and that what was approved is what runs.

use conclave_core::inspect::questions::{DecisionWord, Question, QuestionFold, QuestionKind};
use conclave_core::inspect::questions::{QuestionState, Settlement};
use conclave_core::policy::roles::Role;
use conclave_core::protocol::control::{ControlCommand, SentCommand};
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::protocol::notice::Notice;
use conclave_core::types::action::{Action, Reply, Turn};
use conclave_core::types::approval::{Approval, ApprovalAuthor, DecisionFault, arguments_sha256};
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, ControlId, Millis};
use conclave_core::types::message::ToolCall;
use conclave_core::types::tool::ToolOutcome;
use serde_json::{Value, json};

use crate::case::{Case, SECRET, START};
use crate::properties::Recorded;

fn opened(limits: &Value, expires_ms: Option<u64>) -> Recorded {
    let setup = json!({
        "tasks": { "desk": {}, "other": { "interactive": true } },
        "plugins": {
            "desk": { "grants": { "tools": ["*"], "delegate": ["other"] } },
            "other": { "grants": { "tools": ["*"] } },
            "box": { "tools": ["save"] },
        },
        "policy": [{ "tool": "box.save", "decide": "ask", "source": "c:1", "expires_ms": expires_ms }],
        "limits": limits,
    });
    let case: Case =
        serde_json::from_value(json!({ "name": "by hand", "setup": setup, "expect": {} }))
            .expect("a case of the right form");
    let mut opening = case.opening();
    opening.limits = case.setup().limits;
    let mut recorded = Recorded::default();
    let opened = Event::RoomOpened { setup: case.setup().into(), opening, secret: SECRET };
    recorded.handle(opened, START);
    recorded
}

fn step(recorded: &mut Recorded, action: Action) {
    let effects = recorded.take_effects();
    let [Effect::StepAgent { call, .. }] = effects[..] else {
        panic!("expected a step alone: {effects:?}")
    };
    let turn = Turn { action, thought: String::new(), wait_for_response: false, extra: Vec::new() };
    let report = CallReport::default();
    recorded.handle(Event::AgentStepped { call, answer: Ok(turn), report }, START);
}

fn save(recorded: &mut Recorded, arguments: Value) {
    let tool_calls = vec![ToolCall::new("box.save", arguments)];
    step(recorded, Action::Reply(Reply { tool_calls, ..Reply::default() }));
}

fn delegate(recorded: &mut Recorded) {
    let inputs = json!({ "task": "tidy up" });
    step(recorded, Action::Delegate { agent: "other".to_owned(), inputs });
}

fn fold(recorded: &Recorded) -> QuestionFold {
    let mut fold = QuestionFold::default();
    fold.extend(recorded.records.clone());
    fold
}

/// The only question of the room.
fn question(recorded: &Recorded) -> Question {
    let fold = fold(recorded);
    let mut all = fold.all();
    let question = all.next().expect("a question").clone();
    assert_eq!(all.next(), None);
    question
}

fn decide(message: &str, call: CallId, approval: Approval, about: Option<&Value>) -> Event {
    let arguments_sha256 = about.map(arguments_sha256);
    let command = ControlCommand::Decide { call, approval, arguments_sha256 };
    SentCommand { id: ControlId::from(message), by: None, word: command }.into_event()
}

fn tool_arguments(effects: &[Effect]) -> Option<Value> {
    effects.iter().find_map(|effect| match effect {
        Effect::CallTool { arguments, .. } => Some(Value::clone(arguments)),
        _ => None,
    })
}

fn chain(question: &Question) -> Vec<(&str, &str)> {
    question.chain.iter().map(|asker| (asker.task.as_str(), asker.agent.as_str())).collect()
}

#[test]
fn the_record_of_an_approval_says_who_asks_through_whom_and_about_what() {
    let mut recorded = opened(&json!({}), Some(60_000));
    delegate(&mut recorded);
    save(&mut recorded, json!({ "b": 1, "a": { "z": [1], "y": null } }));
    let question = question(&recorded);
    assert_eq!(question.id, format!("{}:{}", question.room, question.call));
    assert_eq!((&question.run, question.since), (&question.room.run(), START));
    assert_eq!(chain(&question), [("desk", "desk"), ("other", "other")]);
    assert_eq!(question.may_answer, [Role::Approver, Role::Admin]);
    assert_eq!((question.expires_ms, question.is_open()), (Some(60_000), true));
    let QuestionKind::Approval(subject) = &question.kind else { panic!("{question:?}") };
    assert_eq!(subject.request.tool, "box.save");
    // The keys are in order, whatever order the agent wrote.
    let canonical = json!({ "a": { "y": null, "z": [1] }, "b": 1 });
    assert_eq!(subject.arguments_sha256, arguments_sha256(&canonical));
    let value = serde_json::to_value(&question).expect("it is written");
    assert_eq!((&value["kind"], &value["state"]), (&json!("approval"), &json!("open")));
    assert_eq!(value["chain"][1], json!({ "task": "other", "agent": "other" }));
}

#[test]
fn a_question_of_a_task_to_its_user_is_one_for_the_person_who_started_the_run() {
    let mut recorded = opened(&json!({}), None);
    delegate(&mut recorded);
    let content = Some("Which drawer?".to_owned());
    step(&mut recorded, Action::Reply(Reply { content, ..Reply::default() }));
    let ask = question(&recorded);
    let QuestionKind::Ask { question: text, .. } = &ask.kind else { panic!("{ask:?}") };
    assert_eq!((text.as_str(), ask.subject()), ("Which drawer?", None));
    assert_eq!(chain(&ask), [("desk", "desk"), ("other", "other")]);
    assert_eq!(ask.may_answer, [Role::User, Role::Operator, Role::Admin]);

    let command = ControlCommand::Answer { call: ask.call, text: "the top one".to_owned() };
    let mut sent = ask.clone();
    let id = ControlId::from("m1");
    sent.mark_on_its_way(SentCommand { id, by: None, word: command.clone() });
    let QuestionState::OnItsWay { settlement } = &sent.state else { panic!("{sent:?}") };
    assert_eq!((settlement.decision, &settlement.by), (DecisionWord::Answered, &None));

    recorded.handle(command.into_event(ApprovalAuthor::Program), Millis(START.0 + 5));
    let answered = question(&recorded);
    let QuestionState::Settled { settlement } = answered.state else { panic!("{answered:?}") };
    assert_eq!(
        settlement,
        Settlement {
            decision: DecisionWord::Answered,
            by: Some("its user".to_owned()),
            at: Some(Millis(START.0 + 5)),
            message: None,
        }
    );
}

#[test]
fn a_limit_increase_is_a_question_of_the_run_itself() {
    let mut recorded = opened(&json!({ "turns": 1, "ask": true }), None);
    save(&mut recorded, json!({}));
    let call = question(&recorded).call;
    recorded.handle(decide("m1", call, Approval::Approved, None), START);
    let effects = recorded.take_effects();
    let call = effects.iter().find_map(|effect| match effect {
        Effect::CallTool { call, .. } => Some(*call),
        _ => None,
    });
    let answer = Ok(ToolOutcome::default());
    let call = call.expect("the tool is called");
    recorded.handle(Event::ToolAnswered { call, answer, report: CallReport::default() }, START);
    let fold = fold(&recorded);
    let top_up = fold.all().last().expect("a question");
    let QuestionKind::TopUp(subject) = &top_up.kind else { panic!("{top_up:?}") };
    assert_eq!(subject.request.tool, "limits.run.turns");
    assert_eq!(chain(top_up), [("desk", "desk")]);
    // A decision about another amount than the shown one raises nothing.
    let rejected = decide("m2", top_up.call, Approval::Approved, Some(&json!({ "add": 999 })));
    recorded.handle(rejected, START);
    assert!(recorded.room.is_in_flight(top_up.call) && recorded.room.limits().turns == Some(1));
    let arguments = &subject.request.arguments;
    recorded.handle(decide("m3", top_up.call, Approval::Approved, Some(arguments)), START);
    assert!(recorded.room.limits().turns > Some(1));
}

#[test]
fn what_was_approved_is_what_runs() {
    // The store was restored from a backup, and the run went on in another way: under the id that
    // an approver saw in an older list, there is another call.
    let seen = json!({ "path": "draft" });
    let mut before = opened(&json!({}), None);
    save(&mut before, seen.clone());
    let mut recorded = opened(&json!({}), None);
    save(&mut recorded, json!({ "path": "/etc/passwd" }));
    let call = question(&recorded).call;
    assert_eq!(question(&before).id, question(&recorded).id, "the id alone does not tell");
    recorded.take_effects();

    let edited = Approval::Edited { arguments: json!({ "path": "other" }) };
    for (message, approval) in [("m1", Approval::Approved), ("m2", edited)] {
        recorded.handle(decide(message, call, approval, Some(&seen)), START);
        assert_eq!(tool_arguments(&recorded.take_effects()), None);
        let fold = fold(&recorded);
        let fault = fold.fault_of(&ControlId::from(message)).expect("the decider learns of it");
        assert_eq!(fault.code(), "other_arguments");
        let DecisionFault::OtherArguments { decided, current } = fault else { panic!("{fault}") };
        assert_eq!(*decided, arguments_sha256(&seen));
        assert_eq!(*current, arguments_sha256(&json!({ "path": "/etc/passwd" })));
        assert!(fold.of_call(call).expect("a question").is_open(), "it waits for another");
        let is_rejected = |notice: &Notice| matches!(notice, Notice::DecisionRejected { .. });
        assert!(recorded.notices.iter().any(is_rejected));
    }

    let about = json!({ "path": "/etc/passwd" });
    recorded.handle(decide("m3", call, Approval::Approved, Some(&about)), Millis(START.0 + 9));
    assert_eq!(tool_arguments(&recorded.take_effects()), Some(about));
    let QuestionState::Settled { settlement } = question(&recorded).state else { panic!() };
    assert_eq!(settlement.message, Some(ControlId::from("m3")));
    assert_eq!(settlement.at, Some(Millis(START.0 + 9)));
    assert_eq!(settlement.by.as_deref(), Some("a person at another terminal"));
}

#[test]
fn the_first_decision_counts_and_the_question_says_whose_it_was() {
    let mut recorded = opened(&json!({}), None);
    save(&mut recorded, json!({}));
    let call = question(&recorded).call;
    let refused = Approval::Refused { reason: "no".to_owned() };
    recorded.handle(decide("m1", call, refused, Some(&json!({}))), START);
    recorded.handle(decide("m2", call, Approval::Approved, Some(&json!({}))), START);
    let QuestionState::Settled { settlement } = question(&recorded).state else { panic!() };
    assert_eq!(settlement.decision, DecisionWord::Refused);
    assert_eq!(settlement.message, Some(ControlId::from("m1")));
}

#[test]
fn a_question_that_nobody_answers_is_expired_and_one_of_an_ended_run_withdrawn() {
    let mut recorded = opened(&json!({}), Some(1_000));
    save(&mut recorded, json!({}));
    let timer = recorded.take_effects().into_iter().find_map(|effect| match effect {
        Effect::SetTimer { timer, at } => Some((timer, at)),
        _ => None,
    });
    let (timer, at) = timer.expect("it expires");
    recorded.handle(Event::TimerFired { timer }, at);
    assert_eq!(question(&recorded).state, QuestionState::Expired { at });

    let mut recorded = opened(&json!({}), Some(1_000));
    save(&mut recorded, json!({}));
    recorded.handle(Event::Cancelled { reason: "enough".to_owned() }, START);
    assert_eq!(question(&recorded).state, QuestionState::Withdrawn { at: START });
}

#[test]
fn a_question_does_not_expire_by_time_in_which_no_process_had_the_run() {
    let mut recorded = opened(&json!({}), Some(1_000));
    save(&mut recorded, json!({}));
    let at = Millis(START.0 + 60_000);
    recorded.handle(Event::Resumed { down_ms: 59_900, is_exact: true, setup: None }, at);
    assert!(question(&recorded).is_open());
    recorded.handle(Event::Cancelled { reason: "enough".to_owned() }, at);
    assert_eq!(question(&recorded).state, QuestionState::Withdrawn { at });
}
