//! Workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_runtime::event::Event;
use conclave_runtime::ids::RoomId;
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{ControlCommand, RunState};
use conclave_test_servers::Direction;
use tokio::sync::Notify;

use crate::support::{Shared, TestHost, TestWorker, agent_waiting_at_first, echo, waiting_agent};

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
    assert_eq!(shared.reader().verify(&[]).unwrap().problems, Vec::<String>::new());
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
    assert_eq!(worker.stop().await, ["taken", "ended DONE", "stopping"]);
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
    assert_eq!(first.stop().await, ["taken", "lost", "stopping"]);
    assert_eq!(second.stop().await, ["taken", "ended DONE", "stopping"]);
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
    let events = stop_in_a_step(&shared, worker, &run, &gate).await;
    assert_eq!(events, ["taken", "stopping", "given back"]);
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
    shared.until("it is pausing", |shared| is_pausing(shared, run)).await;
    gate.notify_waiters();
    stopped.await.unwrap()
}

fn is_pausing(shared: &Shared, run: &RoomId) -> bool {
    let records = shared.reader().records(run).unwrap();
    records.iter().any(|record| matches!(record.event.effective(), Event::Paused { .. }))
}

fn pause() -> ControlCommand {
    ControlCommand::Pause { reason: "let me look first".to_owned() }
}

/// Lets a worker find that a paused run stays paused, and then end the run.
async fn ends_once_it_is_unpaused(shared: &Shared, host: &TestHost, run: &RoomId) {
    shared.until("it is asleep", |shared| shared.run(run).state == RunState::Asleep).await;
    assert_eq!(host.store.claim(&host.prepared.pool()).unwrap(), None, "no worker takes it");
    shared.send(run, ControlCommand::Unpause);
    shared.all_end().await;
    assert_eq!(shared.run(run).state, DONE);
}

/// A person who pauses a run before, while or after its worker stops finds it paused, whichever
/// worker has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_persons_pause_outlasts_the_worker_of_its_run() {
    let Some(shared) = Shared::new() else { return };
    for paused in ["before", "while", "after"] {
        let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
        let one = shared.host(agent_waiting_at_first(&gate, &began)).await;
        let run = one.enqueue(paused).await;
        let worker = one.work(1);
        shared.until("the worker began", |_| *began.lock().unwrap() == 1).await;
        let events = Arc::clone(&worker.events);
        let has_reported = |word: &str| events.lock().unwrap().iter().any(|event| event == word);
        if paused == "before" {
            shared.send(&run, pause());
            shared.until("it is paused", |shared| is_pausing(shared, &run)).await;
        }
        let stopped = tokio::spawn(worker.stop());
        shared.until("it stops", |_| has_reported("stopping")).await;
        shared.until("it is pausing", |shared| is_pausing(shared, &run)).await;
        if paused == "while" {
            shared.send(&run, pause());
            shared.until("the pause has arrived", |_| has_reported("received")).await;
        }
        gate.notify_waiters();
        assert_eq!(stopped.await.unwrap().last().unwrap(), "given back", "{paused}");
        if paused == "after" {
            shared.send(&run, pause());
            // As if it had been sent right before the worker gave the run back, which makes it due.
            shared.query("UPDATE conclave.rooms SET wake_at = 0 WHERE ended IS NULL");
        }
        let two = shared.host(agent_waiting_at_first(&gate, &began)).await;
        let next = two.work(1);
        shared.until("it is asleep", |shared| shared.run(&run).state == RunState::Asleep).await;
        assert_eq!(*began.lock().unwrap(), 1, "{paused}: its second step waits");
        ends_once_it_is_unpaused(&shared, &two, &run).await;
        assert_eq!(*began.lock().unwrap(), 2, "{paused}");
        next.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_while_its_worker_stops() {
    let Some(shared) = Shared::new() else { return };
    let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let one = shared.host(waiting_agent(&gate, &began)).await;
    let run = one.enqueue("hello").await;
    let worker = one.work(1);
    shared.until("the worker began", |_| *began.lock().unwrap() == 1).await;
    let stopped = tokio::spawn(worker.stop());
    shared.until("it is pausing", |shared| is_pausing(shared, &run)).await;
    // Nothing is left that the worker would wait for.
    shared.send(&run, ControlCommand::Stop { reason: "enough".to_owned() });
    let events = stopped.await.unwrap();
    assert_eq!(events, ["taken", "stopping", "received", "ended KILL"]);
    assert_eq!(shared.run(&run).state, RunState::Ended(Status::Kill));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_the_next_run_when_one_has_ended() {
    let Some(shared) = Shared::new() else { return };
    let host = shared.host(echo()).await;
    for number in 0..3 {
        host.enqueue(&format!("say {number}")).await;
    }
    // It looks by itself once, at its start.
    let worker = host.work_as(1, |worker| worker.looks_every(Duration::from_secs(3_600)));
    shared.all_end().await;
    let events = worker.stop().await;
    assert_eq!(events.iter().filter(|event| *event == "taken").count(), 3, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_in_an_outage_leaves_its_runs_to_the_end_of_its_lease() {
    let Some(shared) = Shared::new() else { return };
    let (gate, began) = (Arc::new(Notify::new()), Arc::new(Mutex::new(0)));
    let client = shared.host(waiting_agent(&gate, &began)).await;
    let mut runs = Vec::new();
    for number in 0..3 {
        runs.push(client.enqueue(&format!("say {number}")).await);
    }
    let (proxy, address) = shared.proxy();
    let one = Shared::host_at(address, waiting_agent(&gate, &began)).await;
    let worker = one.work_as(3, |worker| worker.drains_for(Duration::ZERO).closes_store());
    shared.until("the worker began", |_| *began.lock().unwrap() == 3).await;
    // Not a word from the server, and no end of a connection.
    proxy.hold(Direction::ToServer);
    proxy.hold(Direction::ToClient);
    let events = worker.stop().await;
    assert_eq!(events.iter().filter(|event| *event == "left").count(), 3, "{events:?}");
    // The end of the store is part of the same time.
    drop(one);
    drop(proxy);
    shared.end_leases();
    let next = client.work(3);
    shared.until("the next one began", |_| *began.lock().unwrap() == 6).await;
    gate.notify_waiters();
    shared.all_end().await;
    next.stop().await;
}
