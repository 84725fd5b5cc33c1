//! Workers.

use std::sync::{Arc, Mutex};

use conclave_runtime::event::Event;
use conclave_runtime::ids::RoomId;
use conclave_runtime::outcome::Status;
use conclave_runtime::store::RunState;
use tokio::sync::Notify;

use crate::support::{Shared, TestWorker, agent_waiting_at_first, echo, waiting_agent};

const DONE: RunState = RunState::Ended(Status::Done);

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_what_another_host_enqueued_each_run_once() {
    let Some(shared) = Shared::new() else { return };
    let client = shared.host(echo()).await;
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(client.enqueue(&format!("say {number}")).await);
    }
    assert_eq!(shared.run(&runs[0]).state, RunState::Queued);
    let (one, two) = (shared.host(echo()).await, shared.host(echo()).await);
    let workers = [one.work(3), two.work(3)];
    shared.all_end().await;
    let mut events = Vec::new();
    for worker in workers {
        events.extend(worker.stop().await);
    }
    let count = |word: &str| events.iter().filter(|event| *event == word).count();
    assert_eq!((count("taken"), count("ended DONE")), (20, 20), "{events:?}");
    for run in &runs {
        assert_eq!(shared.run(run).state, DONE);
        let records = shared.reader().records(run).unwrap();
        let owned = |event: &Event| matches!(event, Event::Owned { epoch: 2, .. });
        assert_eq!(records.iter().filter(|record| owned(&record.event)).count(), 1);
        assert_eq!((records[0].epoch, records[records.len() - 1].epoch), (1, 2));
    }
    assert_eq!(shared.reader().verify(None).unwrap().problems, Vec::<String>::new());
    assert_eq!(shared.reader().check().unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_pool_is_not_taken() {
    let Some(shared) = Shared::new() else { return };
    let client = shared.host(echo()).await;
    let run = client.enqueue("hello").await;
    assert_eq!(client.store.claim("another").unwrap(), None);
    shared.query("UPDATE conclave.rooms SET pool = 'another'");
    let worker = shared.host(echo()).await;
    assert_eq!(worker.store.claim(&worker.prepared.pool()).unwrap(), None);
    assert_eq!(worker.store.claim("another").unwrap(), Some(run));
    assert_eq!(client.store.claim("another").unwrap(), None, "it is claimed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_claim_got_no_answer_does_not_wait_for_the_end_of_its_host() {
    let Some(shared) = Shared::new() else { return };
    let host = shared.host(echo()).await;
    let run = host.enqueue("hello").await;
    shared
        .until("it is claimed", |_| {
            host.store.claim(&host.prepared.pool()).unwrap().as_ref() == Some(&run)
        })
        .await;
    let worker = host.work(1);
    shared.all_end().await;
    assert_eq!(worker.stop().await, ["taken", "ended DONE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_taken_rests() {
    let Some(shared) = Shared::new() else { return };
    let host = shared.host(echo()).await;
    host.enqueue("hello").await;
    shared.query(
        "CREATE FUNCTION conclave.refuse() RETURNS TRIGGER LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
    );
    shared.query(
        "CREATE TRIGGER refuse BEFORE INSERT ON conclave.events
         FOR EACH ROW EXECUTE FUNCTION conclave.refuse()",
    );
    let worker = host.work(1);
    let rests = "SELECT wake_at > 0 FROM conclave.rooms";
    shared.until("it rests", |shared| shared.query(rests) == "t").await;
    let events = worker.stop().await;
    assert_eq!(events.iter().filter(|event| *event == "taken").count(), 1, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lost_its_run_stops_without_a_word_and_the_next_one_ends_it() {
    let Some(shared) = Shared::new() else { return };
    let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let one = shared.host(waiting_agent(&gate, &began)).await;
    let run = one.enqueue("hello").await;
    let first = one.work(1);
    shared.until("the first worker began", |_| *began.lock().unwrap() == 1).await;
    // The first one is silent for longer than its lease: its clock stands still.
    shared.end_leases();
    let two = shared.host(waiting_agent(&gate, &began)).await;
    let second = two.work(1);
    shared.until("the second worker began", |_| *began.lock().unwrap() == 2).await;
    // It waits for its step, and learns of the loss all the same.
    shared
        .until("the first worker noticed", |_| {
            first.events.lock().unwrap().contains(&"lost".to_owned())
        })
        .await;
    gate.notify_waiters();
    shared.all_end().await;
    assert_eq!(shared.run(&run).state, DONE);
    assert_eq!(first.stop().await, ["taken", "lost"]);
    assert_eq!(second.stop().await, ["taken", "ended DONE"]);
    let records = shared.reader().records(&run).unwrap();
    let epochs: Vec<u64> = records.iter().map(|record| record.epoch).collect();
    assert!(epochs.is_sorted() && epochs.last() == Some(&3), "{epochs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_lets_its_calls_end_and_gives_its_runs_back() {
    let Some(shared) = Shared::new() else { return };
    let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let one = shared.host(waiting_agent(&gate, &began)).await;
    let run = one.enqueue("hello").await;
    let worker = one.work(1);
    shared.until("the worker began", |_| *began.lock().unwrap() == 1).await;
    let events = stop_in_a_step(&shared, worker, &run, &gate).await;
    assert_eq!(events[0], "taken", "{events:?}");
    // The step ended here, and was not repeated.
    let other = shared.host(waiting_agent(&gate, &began)).await;
    let next = other.work(1);
    shared.all_end().await;
    next.stop().await;
    assert_eq!(*began.lock().unwrap(), 1);
    assert_eq!(shared.run(&run).state, DONE);
}

/// Its pause is no sleep: the next worker does not wait for the run's timers.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_between_two_steps_is_due_at_once_when_its_worker_stops() {
    let Some(shared) = Shared::new() else { return };
    let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let one = shared.host(agent_waiting_at_first(&gate, &began)).await;
    let run = one.enqueue("hello").await;
    let worker = one.work(1);
    shared.until("the worker began", |_| *began.lock().unwrap() == 1).await;
    assert_eq!(stop_in_a_step(&shared, worker, &run, &gate).await, ["taken", "given back"]);
    let other = shared.host(agent_waiting_at_first(&gate, &began)).await;
    let next = other.work(1);
    shared.all_end().await;
    next.stop().await;
    assert_eq!(*began.lock().unwrap(), 2);
    assert_eq!(shared.run(&run).state, DONE);
}

/// Stops a worker whose run is in a step, which ends meanwhile.
async fn stop_in_a_step(
    shared: &Shared,
    worker: TestWorker,
    run: &RoomId,
    gate: &Notify,
) -> Vec<String> {
    let stopped = tokio::spawn(worker.stop());
    shared
        .until("it is pausing", |shared| {
            let records = shared.reader().records(run).unwrap();
            records.iter().any(|record| matches!(record.event.effective(), Event::Paused { .. }))
        })
        .await;
    gate.notify_waiters();
    stopped.await.unwrap()
}
