//! A room that closes or is stopped: its tasks, and the records that it keeps.

use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::Event;
use conclave_core::types::delegation::{BackgroundState, Delegation, OnClose};
use conclave_core::types::delivery::DeliveryState;
use conclave_core::types::ids::CallId;
use conclave_core::types::request::{RequestReply as Answer, RoomRequest};
use serde_json::json;

use super::{Desk, abandoned, completed_task, plain, plain_with, to};

fn detached(effect: &Effect) -> Option<CallId> {
    match effect {
        Effect::DetachTask { call } => Some(*call),
        _ => None,
    }
}

/// Returns a persistent room with a task of each policy.
fn with_three_policies(hold: bool) -> (Desk, Vec<CallId>) {
    let mut desk = Desk::open_with(plain(), |_| {}, |opening| opening.persistent = hold);
    let policies = [OnClose::Cascade, OnClose::Detach, OnClose::FinishSilently];
    let calls = policies.map(|on_close| {
        desk.delegates(Delegation { on_close: Some(on_close), ..to("slow") }).expect("started");
        desk.take_background().0
    });
    (desk, calls.to_vec())
}

fn is_sound_after_close(mut desk: Desk, calls: &[CallId]) {
    assert_eq!(desk.state("task-1"), BackgroundState::Cancelled);
    let is_stopped = |effect: &Effect| abandoned(effect).filter(|call| *call == calls[0]);
    assert!(desk.take(is_stopped).is_some(), "it is really stopped");
    assert_eq!(desk.take(detached), Some(calls[1]));
    let record = desk.room.task(&"task-2".into()).expect("a record");
    assert!(record.detached && record.state == BackgroundState::Running, "{record:?}");
    assert!(!desk.room.is_in_flight(calls[1]) && desk.room.is_in_flight(calls[2]));
    assert!(desk.room.outcome().is_none(), "the third is waited for");
    desk.ended(calls[0], completed_task("late"));
    desk.ended(calls[1], completed_task("late"));
    desk.ended(calls[2], completed_task("fine"));
    let record = desk.room.task(&"task-3".into()).expect("a record");
    assert_eq!(
        (record.state, record.delivery.state),
        (BackgroundState::Completed, DeliveryState::Blocked)
    );
    assert_eq!(
        record.delivery.reason.as_deref(),
        Some("room_closed"),
        "it is recorded, and nothing is said"
    );
    assert_eq!(desk.ends_told().len(), 2);
    desk.folds();
}

#[test]
fn a_room_that_closes_does_with_each_task_what_its_policy_says() {
    //
    let (mut desk, calls) = with_three_policies(true);
    assert!(matches!(
        desk.asks(RoomRequest::Close { reason: "late".to_owned() }),
        Ok(Answer::Done)
    ));
    is_sound_after_close(desk, &calls);
}

#[test]
fn a_run_that_is_stopped_does_so_too_and_a_second_stop_waits_for_nothing() {
    let (mut desk, calls) = with_three_policies(false);
    desk.happened(Event::Cancelled { reason: "enough".to_owned() });
    is_sound_after_close(desk, &calls);
    let (mut desk, _) = with_three_policies(false);
    desk.happened(Event::Cancelled { reason: "enough".to_owned() });
    desk.happened(Event::Cancelled { reason: "enough".to_owned() });
    assert!(desk.room.outcome().is_some());
    assert_eq!(desk.state("task-3"), BackgroundState::Cancelled);
    desk.folds();
}

#[test]
fn a_thousand_records_are_kept_of_tasks_that_were_told_and_all_of_the_others() {
    let mut setup = plain_with("desk", json!({ "background": { "wait": true } }));
    setup["plugins"]["desk"]["grants"]["total"] = json!(5_000);
    let mut desk = Desk::open_with(setup, |_| {}, |opening| opening.limits.turns = None);
    desk.delegates(Delegation { key: Some("k".to_owned()), ..to("other") })
        .expect("started by the program, and goes on");
    desk.take_background();
    for _ in 0..1_012 {
        desk.calls("delegate_task", json!({ "agent": "slow", "task": "x" }));
        let (call, _, _) = desk.take_background();
        desk.ended(call, completed_task("fine"));
    }
    let ids: Vec<u32> = desk
        .room
        .tasks()
        .map(|record| record.id.as_str()[5..].parse().expect("a number"))
        .collect();
    assert!(ids.is_sorted(), "oldest first");
    assert_eq!((ids.len(), ids[0], ids[1]), (1_001, 1, 14), "what runs is never forgotten");
    assert!(desk.room.task(&"task-2".into()).is_none());
    let answer = desk.delegates(Delegation { key: Some("k".to_owned()), ..to("other") });
    assert!(matches!(answer, Ok(Answer::Delegated { task, .. }) if task.as_str() == "task-1"));
}
