use serde_json::json;

use super::super::budgets::Budgets;
use super::super::fixture::{Parts, context};
use super::super::{Purpose, RoomContext};
use super::ending::EndRecipient;
use super::*;
use crate::protocol::effect::Effect;
use crate::room::state::closing::FrameEnd;
use crate::room::state::delegation::{BackgroundTask, Delegating, TaskOrigin, Waiter};
use crate::types::delegation::BackgroundState;
use crate::types::delegation::{Delegation, OnClose};
use crate::types::delivery::DeliveryState;
use crate::types::ids::{CallId, FrameId, Millis};
use crate::types::message::ToolCall;
use crate::types::outcome::Status;
use crate::types::request::RequestId;
use crate::types::request::{KEY_MAX, RefusalCode, RequestReply};
use crate::types::usage::{Spent, UsedByPlugin};
use serde_json::Value;

const GRANT: &str = r#"
[plugins.chat.grants]
delegate = { tasks = ["digest"], at_once = 2, total = 3 }
"#;

/// Returns a task `digest` that `desk` started at 1 000 ms, with 10 tokens reserved.
pub(super) fn task(number: u32) -> BackgroundTask {
    BackgroundTask {
        id: format!("task-{number}").into(),
        call: CallId(number.into()),
        task: "digest".into(),
        prompt: format!("Digest {number}"),
        context: json!({}),
        started_by: Some("chat".into()),
        notify: "desk".into(),
        strategy: None,
        host_reports: false,
        result_delivery: None,
        on_close: OnClose::Cascade,
        started: Millis(1_000),
        reserved: Spent { tokens: 10, ..Spent::default() },
        at_once: 0,
        inherited: UsedByPlugin::default(),
        waiter: None,
        structured: false,
        chain_depth: 0,
        messages_sent: 0,
        is_stopped: false,
    }
}

/// Starts a task. Its room runs if `has_begun`; else its start has not left yet.
fn start(
    parts: &mut Parts,
    number: u32,
    has_begun: bool,
    change: impl FnOnce(&mut BackgroundTask),
) {
    let mut task = task(number);
    task.call = parts.cx.next_call(Purpose::Background { id: task.id.clone() });
    change(&mut task);
    let (id, call) = (task.id.clone(), task.call);
    if !has_begun {
        let opening = Box::default();
        parts.cx.effects.push_back(Effect::StartBackground { call, id: id.clone(), opening });
    }
    parts.budgets.reserved = parts.budgets.reserved.plus(task.reserved);
    let by = Some("desk".into());
    parts.background.records.begin(number, &task, format!("room/{number}").into(), by, None);
    parts.background.tasks.insert(id, task);
}

fn tokens(budgets: &Budgets) -> (u64, u64) {
    (budgets.reserved.tokens, budgets.spent.tokens)
}

fn states(parts: &Parts) -> Vec<(BackgroundState, DeliveryState)> {
    parts.background.tasks().map(|record| (record.state, record.delivery.state)).collect()
}

fn delegation(agent: &str) -> Delegating {
    let delegation = Delegation {
        worker: agent.to_owned(),
        description: "Digest it".to_owned(),
        ..Delegation::default()
    };
    let origin = TaskOrigin::Request { request: RequestId(1), by: Some("desk".into()) };
    Delegating { delegation, origin, wish: None }
}

/// Returns the code of the refusal of a delegation; `None` if it may start.
fn refusal(parts: &mut Parts, delegating: &Delegating) -> Option<RefusalCode> {
    let mut view = parts.view();
    let checked = view.check_delegation(delegating);
    checked.and_then(|checked| view.check_limits(&checked)).err().map(|refusal| refusal.error)
}

#[test]
fn a_delegation_needs_a_grant_a_text_a_known_agent_and_an_open_room() {
    let mut parts = Parts::new(GRANT);
    assert_eq!(refusal(&mut parts, &delegation("digest")), None);
    assert_eq!(refusal(&mut parts, &delegation("stranger")), Some(RefusalCode::UnknownAgent));
    assert_eq!(refusal(&mut parts, &delegation("desk")), Some(RefusalCode::NotGranted));
    let context = json!([1]);
    let share_channels = vec!["phone".to_owned()];
    let wished = delegation("digest");
    let sound = wished.delegation.clone();
    for (delegation, code) in [
        (Delegation { description: " ".to_owned(), ..sound.clone() }, RefusalCode::EmptyTask),
        (Delegation { context, ..sound.clone() }, RefusalCode::BadArguments),
        (
            Delegation { notify: Some("stranger".into()), ..sound.clone() },
            RefusalCode::BadArguments,
        ),
        (
            Delegation { key: Some("k".repeat(KEY_MAX + 1)), ..sound.clone() },
            RefusalCode::BadArguments,
        ),
        (Delegation { share_channels, ..sound }, RefusalCode::UnknownChannel),
    ] {
        let delegating = Delegating { delegation, ..wished.clone() };
        assert_eq!(refusal(&mut parts, &delegating), Some(code));
    }
    assert!(parts.background.begin_stop("enough") && !parts.background.begin_stop("again"));
    assert_eq!(refusal(&mut parts, &delegation("digest")), Some(RefusalCode::RoomClosed));
}

#[test]
fn a_delegation_past_a_limit_is_refused_and_one_at_it_is_not() {
    let limit = Some(RefusalCode::LimitReached);
    let mut parts = Parts::new(GRANT);
    start(&mut parts, 1, true, |_| ());
    // A task that was stopped still counts, until its room has reported.
    assert_eq!(refusal(&mut parts, &delegation("digest")), None);
    start(&mut parts, 2, true, |task| task.is_stopped = true);
    assert_eq!(refusal(&mut parts, &delegation("digest")), limit, "at once");

    let mut parts = Parts::new(GRANT);
    for (started, code) in [(2, None), (3, limit)] {
        parts.budgets.used_by(&"chat".into()).background = started;
        assert_eq!(refusal(&mut parts, &delegation("digest")), code, "in total");
    }

    let mut parts = Parts::new(GRANT);
    parts.cx.opening.limits.depth = 2;
    for (depth, code) in [(1, None), (2, limit)] {
        parts.cx.opening.depth = depth;
        assert_eq!(refusal(&mut parts, &delegation("digest")), code, "depth");
    }

    let mut parts = Parts::new(GRANT);
    for (tokens, code) in [(2, None), (1, limit)] {
        parts.cx.opening.limits.tokens = Some(tokens);
        assert_eq!(refusal(&mut parts, &delegation("digest")), code, "half of it is nothing");
    }
}

#[test]
fn tasks_count_with_those_that_they_may_start() {
    let mut parts = Parts::new("");
    let limits = &mut parts.cx.opening.limits;
    (limits.tasks, limits.tasks_at_once) = (Some(4), Some(4));
    let is_over =
        |parts: &Parts| parts.background.tasks_are_used_up(&parts.cx, &parts.budgets).is_some();
    start(&mut parts, 1, true, |task| task.at_once = 2);
    assert!(!is_over(&parts), "three of four");
    start(&mut parts, 2, true, |_| ());
    assert!(is_over(&parts));
    parts.background.tasks.clear();
    for (spent, reserved, expected) in [(2, 1, false), (3, 1, true)] {
        (parts.budgets.spent.tasks, parts.budgets.reserved.tasks) = (spent, reserved);
        assert_eq!(is_over(&parts), expected);
    }
}

#[test]
fn a_task_that_has_not_begun_costs_nothing_and_one_that_has_keeps_its_reserve() {
    let mut parts = Parts::new("");
    start(&mut parts, 1, false, |_| ());
    start(&mut parts, 2, true, |_| ());
    let why = FrameEnd::new(Status::Kill, "enough");
    for (id, expected) in [("task-1", true), ("task-2", true), ("task-2", false), ("x", false)] {
        let stopped = parts.view().stop_task(&id.into(), &why, &EndRecipient::Nobody("test"));
        assert_eq!(stopped, expected, "{id}");
    }
    // Only the second task has a room, so only its call is abandoned.
    let abandoned = Effect::AbandonCall { call: CallId(1) };
    assert_eq!(parts.cx.take_effects(), [abandoned]);
    assert_eq!(tokens(&parts.budgets), (10, 0));
    assert!(!parts.background.is_task_of(&"task-2".into(), &"digest".into()));
    assert_eq!(states(&parts), [(BackgroundState::Cancelled, DeliveryState::Blocked); 2]);
    // When the host stops before the room has reported, the whole reserve counts.
    parts.background.settle_stopped_tasks(&mut parts.cx, &mut parts.budgets);
    assert_eq!(tokens(&parts.budgets), (0, 10));
    assert!(parts.background.tasks.values().next().is_none() && parts.cx.calls.is_empty());
}

#[test]
fn an_end_is_not_told_to_the_agent_that_caused_it() {
    let mut parts = Parts::new("");
    let why = FrameEnd::new(Status::Kill, "enough");
    let (desk, other) = (TaskName::from("desk"), TaskName::from("other"));
    for (number, by, state) in [
        (1, &desk, DeliveryState::Read),
        // It has no delivery strategy, so it waits for the next turn of `desk`.
        (2, &other, DeliveryState::Inbox),
    ] {
        start(&mut parts, number, true, |_| ());
        let id = format!("task-{number}").into();
        parts.view().stop_task(&id, &why, &EndRecipient::ExceptTo(by));
        assert_eq!(parts.background.task(&id).unwrap().delivery.state, state);
    }
}

#[test]
fn each_task_of_a_closed_room_ends_as_it_was_asked_to() {
    let mut parts = Parts::new("");
    for (number, has_begun, on_close) in [
        (1, true, OnClose::Cascade),
        (2, true, OnClose::Detach),
        (3, false, OnClose::Detach),
        (4, true, OnClose::FinishSilently),
    ] {
        start(&mut parts, number, has_begun, |task| task.on_close = on_close);
    }
    parts.view().close_tasks("closed");
    let record = |id: &str| parts.background.task(&id.into()).unwrap();
    let state = |id| (record(id).state, record(id).detached);
    assert_eq!(state("task-1"), (BackgroundState::Cancelled, false));
    assert_eq!(state("task-2"), (BackgroundState::Running, true));
    assert_eq!(state("task-3"), (BackgroundState::Cancelled, false), "it cannot run on alone");
    assert_eq!(state("task-4"), (BackgroundState::Running, false));
    // The use of a detached task is never reported, so its reserve is spent.
    assert_eq!(tokens(&parts.budgets), (20, 10));
    let detached = Effect::DetachTask { call: CallId(1) };
    assert!(parts.cx.take_effects().contains(&detached));
}

#[test]
fn after_a_stop_a_task_runs_on_only_if_it_has_begun_and_no_call_waits_for_it() {
    let waiter = Some(Waiter { frame: FrameId(0), slot: 0, seq: 0 });
    for (on_close, has_begun, waiter, resumes) in [
        (OnClose::Cascade, true, None, false),
        (OnClose::FinishSilently, true, None, true),
        (OnClose::FinishSilently, false, None, false),
        (OnClose::FinishSilently, true, waiter, false),
        (OnClose::Detach, true, None, true),
        (OnClose::Detach, false, None, false),
    ] {
        let mut parts = Parts::new("");
        start(&mut parts, 1, has_begun, |task| (task.on_close, task.waiter) = (on_close, waiter));
        let Parts { cx, budgets, background, .. } = &mut parts;
        let id = BackgroundId::from("task-1");
        assert_eq!(
            background.resumes_after_stop(cx, budgets, &id, "enough"),
            resumes,
            "{on_close:?} {has_begun} {waiter:?}"
        );
    }
}

#[test]
fn messages_to_a_task_have_ids_of_their_own_and_reach_only_a_running_one() {
    let mut parts = Parts::new("");
    start(&mut parts, 1, true, |_| ());
    start(&mut parts, 2, true, |task| task.is_stopped = true);
    let Parts { cx, background, .. } = &mut parts;
    let tell = |background: &mut Background, cx: &mut RoomContext, id: &str, text: &str| {
        background.report_on_request(cx, RequestId(0), &id.into(), text.to_owned());
        let effects = cx.take_effects();
        match effects.as_slice() {
            [Effect::TellTask { id, .. }, Effect::Reply { reply: Ok(RequestReply::Done), .. }] => {
                Ok(id.to_string())
            }
            [Effect::Reply { reply: Err(refusal), .. }] => Err(refusal.error),
            effects => panic!("{effects:?}"),
        }
    };
    let first = tell(background, cx, "task-1", "hurry");
    assert!(first.is_ok());
    assert_ne!(first, tell(background, cx, "task-1", "hurry"));
    assert_eq!(tell(background, cx, "task-1", " "), Err(RefusalCode::BadArguments));
    assert_eq!(tell(background, cx, "task-2", "hurry"), Err(RefusalCode::TaskEnded));
    assert_eq!(tell(background, cx, "task-3", "hurry"), Err(RefusalCode::UnknownTask));
}

#[test]
fn a_result_in_a_fixed_form_is_taken_from_the_entry_task_only() {
    let mut parts = Parts::new("");
    let root = parts.begin("desk", None);
    let child = parts.begin("digest", Some(root));
    let valid = json!({ "status": "completed", "summary": "done", "data": { "n": 1 } });
    let mut submit = |structured, frame, arguments: &Value| {
        parts.cx.opening.structured_retries = structured;
        let call = ToolCall::new("submit_result", arguments.clone());
        let Parts { cx, frames, background, .. } = &mut parts;
        let is_error = background.submitted(cx, frames, frame, &call).is_error;
        (is_error, background.structured_result())
    };
    assert_eq!(submit(None, root, &valid), (true, None));
    assert_eq!(submit(Some(0), child, &valid), (true, None));
    for wrong in [
        json!({ "status": "fine", "summary": "done" }),
        json!({ "status": "completed", "summary": " " }),
    ] {
        assert_eq!(submit(Some(0), root, &wrong), (true, None));
    }
    assert_eq!(submit(Some(0), root, &valid), (false, Some(valid.clone())));
}

#[test]
fn a_task_without_a_result_is_asked_again_as_often_as_it_may_and_then_fails() {
    let mut parts = Parts::new("");
    let root = parts.begin("desk", None);
    parts.cx.opening.structured_retries = Some(1);
    let ending = || FrameEnd::new(Status::Done, "done");
    assert!(parts.view().asks_again(root, ending()).is_none());
    assert_eq!(parts.frames.runnable, [root]);
    let end = parts.view().asks_again(root, ending()).expect("it has no attempt left");
    assert_eq!(end.status, Status::Error);
    assert_eq!(parts.background.structured_result().unwrap()["status"], "failed");
    // With a result, even this one, the task ends as it says.
    let end = parts.view().asks_again(root, ending()).expect("it ends");
    assert_eq!(end.status, Status::Done);
}

#[test]
fn a_stopped_run_stays_stopped_until_the_next_one() {
    let (mut background, mut cx) = (Background::default(), context(""));
    assert!(background.begin_stop("first") && !background.begin_stop("second"));
    background.records.begin_run();
    assert!(background.begin_stop("third"));
    let mut budgets = Budgets::default();
    assert!(!background.resumes_after_stop(&mut cx, &mut budgets, &"task-1".into(), "unknown"));
}
