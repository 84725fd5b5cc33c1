use super::super::tests::task;
use super::*;
use crate::types::delivery::BackgroundStatus;

/// Begins tasks with these numbers.
fn begin_tasks(numbers: impl IntoIterator<Item = u32>) -> TaskRecords {
    let mut records = TaskRecords::default();
    for number in numbers {
        let key = Some(format!("key-{number}"));
        records.begin(number, &task(number), format!("room/{number}").into(), None, key);
    }
    records
}

fn end_of(number: u32, status: BackgroundStatus) -> EndedTask {
    let output = (status == BackgroundStatus::Completed).then(|| format!("Digested {number}"));
    EndedTask {
        id: format!("task-{number}").into(),
        status,
        output,
        ..EndedTask::interrupted("it was interrupted".to_owned())
    }
}

fn complete(records: &mut TaskRecords, number: u32) -> bool {
    records.end(&end_of(number, BackgroundStatus::Completed), Millis(2_000))
}

fn deliver(records: &mut TaskRecords, number: u32, state: DeliveryState) {
    records.change(&format!("task-{number}").into(), |record| record.delivery.state = state);
}

fn cached(records: &TaskRecords, task: &str, now: u64) -> Option<BackgroundId> {
    let delegation = Delegation { description: task.to_owned(), ..Delegation::default() };
    let record = records.cached(&"digest".into(), &delegation, Millis(now), 500)?;
    Some(record.id.clone())
}

#[test]
fn the_first_end_counts() {
    let mut records = begin_tasks([1]);
    assert!(complete(&mut records, 1));
    assert!(!records.end(&end_of(1, BackgroundStatus::Failed), Millis(3_000)));
    assert!(!complete(&mut records, 2), "it never began");
    let record = records.get(&"task-1".into()).unwrap();
    assert_eq!((record.state, record.ended), (BackgroundState::Completed, Some(Millis(2_000))));
}

#[test]
fn the_oldest_settled_record_goes_with_its_key_and_its_cached_result() {
    let last = u32::try_from(KEPT).unwrap() + 2;
    let mut records = begin_tasks(1..=last);
    deliver(&mut records, 1, DeliveryState::None);
    for number in 2..last {
        assert!(complete(&mut records, number));
    }
    // The first one still runs, so the second is the oldest that may go; the limit is not passed.
    assert_eq!(records.newest().count(), last as usize);
    assert!(records.of_key(None, "key-2").is_some());
    complete(&mut records, last);
    assert!(records.get(&"task-2".into()).is_none() && records.of_key(None, "key-2").is_none());
    assert!(records.get(&"task-1".into()).is_some() && records.of_key(None, "key-1").is_some());
    assert_eq!(records.newest().count(), KEPT + 1);
}

#[test]
fn settled_records_have_a_limit_in_bytes_and_the_newest_end_stays() {
    let big = |number: u32, bytes: usize| EndedTask {
        output: Some("x".repeat(bytes)),
        ..end_of(number, BackgroundStatus::Completed)
    };
    let numbers = |records: &TaskRecords| -> Vec<u32> { records.records.keys().copied().collect() };
    let mut records = begin_tasks(1..=6);
    for number in 2..=5 {
        records.end(&big(number, KEPT_BYTES / 4), Millis(2_000));
    }
    // Four outputs fit, but not their labels; the first task still runs.
    assert_eq!(numbers(&records), [1, 3, 4, 5, 6]);
    assert!(
        records.of_key(None, "key-2").is_none() && cached(&records, "Digest 2", 2_000).is_none()
    );
    deliver(&mut records, 3, DeliveryState::Waiting);
    assert!(records.settled_bytes < KEPT_BYTES / 2 + 100, "a waiting result does not count");
    records.end(&big(1, KEPT_BYTES + 1), Millis(2_000));
    assert_eq!(numbers(&records), [1, 3, 6], "the newest end stays, as does what is not settled");
    complete(&mut records, 6);
    assert_eq!(numbers(&records), [3, 6]);
    let of_settled: usize = records.settled.values().sum();
    assert_eq!((records.settled_bytes, of_settled), (records.records[&6].weight(), of_settled));
}

#[test]
fn a_result_that_an_agent_may_still_read_is_not_settled() {
    for (state, is_settled) in [
        (DeliveryState::Waiting, false),
        (DeliveryState::Delivering, false),
        (DeliveryState::Inbox, false),
        (DeliveryState::Delivered, true),
        (DeliveryState::Read, true),
        (DeliveryState::Blocked, true),
        (DeliveryState::DeadLetter, true),
    ] {
        let mut records = begin_tasks([1]);
        deliver(&mut records, 1, state);
        assert_eq!(records.settled.len(), 0, "{state:?}: it still runs");
        complete(&mut records, 1);
        assert_eq!(records.settled.len(), usize::from(is_settled), "{state:?}");
    }
    let mut records = begin_tasks([1]);
    records.detach(&"task-1".into(), "closed");
    assert_eq!(records.settled.len(), 1, "its end is never reported");
}

#[test]
fn a_completed_result_answers_the_same_text_until_it_is_too_old() {
    let mut records = begin_tasks([1, 2]);
    complete(&mut records, 1);
    assert_eq!(cached(&records, " DIGEST 1\n", 2_500), Some("task-1".into()));
    assert_eq!(cached(&records, "Digest 1", 2_501), None, "too old");
    assert_eq!(cached(&records, "Digest 2", 2_000), None, "it still runs");
    records.end(&end_of(2, BackgroundStatus::Failed), Millis(2_000));
    assert_eq!(cached(&records, "Digest 2", 2_000), None, "it failed");
    let of = |agent: &str, brief: Option<&str>| {
        let delegation = Delegation {
            description: "Digest 1".to_owned(),
            brief: brief.map(str::to_owned),
            ..Delegation::default()
        };
        records.cached(&agent.into(), &delegation, Millis(2_000), 500).is_some()
    };
    assert!(of("digest", None) && !of("desk", None));
    assert!(!of("digest", Some("at length")), "equal labels are not equal briefs");
}

#[test]
fn the_oldest_of_too_many_results_is_no_longer_cached() {
    let most = u32::try_from(CACHED).unwrap();
    let mut records = begin_tasks(1..=most + 1);
    assert!((1..=most).all(|number| complete(&mut records, number)));
    assert!(cached(&records, "Digest 1", 2_000).is_some());
    complete(&mut records, most + 1);
    assert_eq!(cached(&records, "Digest 1", 2_000), None);
    assert!(cached(&records, "Digest 2", 2_000).is_some());
}

#[test]
fn a_changed_record_is_polled_once_and_a_dropped_one_not_at_all() {
    let mut background = Background { records: begin_tasks([1, 2]), ..Background::default() };
    let poll = |background: &mut Background| -> Vec<String> {
        std::iter::from_fn(|| background.poll_task()).map(|it| it.id.to_string()).collect()
    };
    assert_eq!(poll(&mut background), ["task-1", "task-2"]);
    assert_eq!(poll(&mut background), [""; 0]);
    complete(&mut background.records, 2);
    complete(&mut background.records, 1);
    background.set_delivery(&"task-9".into(), DeliveryRecord::default());
    background.records.forget(1);
    assert_eq!(poll(&mut background), ["task-2"]);
}

#[test]
fn the_newest_texts_are_remembered_and_a_new_run_keeps_the_records() {
    let mut records = begin_tasks(1..=4);
    let texts = ["Digest 4", "Digest 3", "Digest 2"];
    assert_eq!(records.recent(), &texts);
    records.stopped = Some("enough".to_owned());
    records.begin_run();
    assert_eq!((records.stopped.as_ref(), records.newest().count()), (None, 4));
}
