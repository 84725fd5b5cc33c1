//! Native observers: which events they get, in which order, and when a run waits for them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conclave_runtime::completion::{DraftMessage, ModelRequest, PromptPart};
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::{
    JournalFailure, Journals, MemoryJournals, Opening, RecordsReading, Reopening,
};
use conclave_runtime::message::Role;
use conclave_runtime::native::{self, Failure, Observe, Plugin, Step, Tool};
use conclave_runtime::notice::Notice;
use conclave_runtime::observed::{ObservedEvent, observer_room};
use conclave_runtime::outcome::Status;
use conclave_runtime::plugin_query::ObserverReply;
use conclave_runtime::subscribe::{RunEvent, Subscribers};
use conclave_runtime::{Host, HostOptions, Prepared, RunOptions};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{Told, config, host, parse};

/// A time that no observer of these tests needs.
const LONG: Duration = Duration::from_secs(60);

/// The events that an observer took.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Vec<ObservedEvent>>>);

impl Taken {
    fn add(&self, events: &[ObservedEvent]) {
        self.0.lock().unwrap().extend_from_slice(events);
    }

    fn kinds(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|event| event.kind.clone()).collect()
    }

    fn positions(&self) -> Vec<(u64, u32)> {
        let events = self.0.lock().unwrap();
        events.iter().map(|event| (event.position.seq, event.position.index)).collect()
    }

    /// Returns an observer that takes everything.
    fn observer(&self) -> Plugin {
        let observed = self.clone();
        Plugin::observer("app", move |ask: Observe| {
            let observed = observed.clone();
            async move {
                observed.add(&ask.events);
                Ok(ObserverReply::Taken)
            }
        })
    }
}

fn desk() -> Plugin {
    Plugin::agent("desk", |step: Step| async move { Ok(native::finish(step.text())) })
}

/// Returns an agent that calls a tool of its own as often as the message says, and finishes.
fn busy() -> Plugin {
    let tool =
        Tool::new("count", "Counts.", json!({ "type": "object" }), |_| async { Ok(json!(1)) });
    let calls = Arc::new(AtomicU32::new(0));
    Plugin::tools("desk", [tool])
        .with_agent(move |step: Step| {
            let count = calls.fetch_add(1, Ordering::SeqCst);
            async move {
                Ok(match count {
                    0..10 => native::call("desk.count", json!({ "number": count })),
                    _ => native::finish(step.text()),
                })
            }
        })
        .asks(conclave_runtime::Capability::Tools, "Counts.")
}

const OBSERVED: &str = "[[observers]]\nplugin = \"app\"\n";

async fn loaded(host: &Host, more: &str) -> Prepared {
    host.load(&parse(&config("", more))).await.unwrap_or_else(|error| panic!("{error}"))
}

fn options(recorder: &Told, journals: &MemoryJournals) -> RunOptions {
    RunOptions {
        ids: Arc::new(RoomId::from("run")),
        journals: Arc::new(journals.clone()),
        subscribers: Subscribers::new([Arc::new(recorder.clone()) as Arc<_>]),
        ..RunOptions::default()
    }
}

fn stops(recorder: &Told) -> Vec<(u64, String)> {
    let stop = |event: conclave_runtime::subscribe::Published| match event.what {
        RunEvent::ObserverStopped { undelivered, reason, .. } => Some((undelivered, reason)),
        _ => None,
    };
    recorder.happenings().into_iter().filter_map(stop).collect()
}

#[tokio::test]
async fn every_notice_of_a_run_arrives_once_in_order_and_nothing_of_the_observer_itself() {
    let (observed, recorder, journals) =
        (Taken::default(), Told::default(), MemoryJournals::default());
    let host = host([desk(), observed.observer()]);
    let prepared = loaded(&host, OBSERVED).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
    assert!(host.drain_observers(LONG).await.is_empty());
    let positions = observed.positions();
    assert!(positions.is_sorted() && positions.windows(2).all(|pair| pair[0] != pair[1]));
    let of_run: Vec<String> = recorder
        .happenings()
        .iter()
        .filter(|event| event.room.as_str() == "run")
        .filter_map(|event| match &event.what {
            RunEvent::Notice { notice } => Some(notice.kind().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(observed.kinds(), of_run);
    assert!(of_run.contains(&"task-ended".to_owned()));
    // The calls of the observer are in a journal of the run.
    let room = observer_room(&RoomId::from("run"), &"app".into());
    assert!(journals.rooms().contains(&room));
}

#[tokio::test]
async fn the_config_selects_the_kinds() {
    let observed = Taken::default();
    let host = host([desk(), observed.observer()]);
    let filter = "[[observers]]\nplugin = \"app\"\nevents = [\"task-ended\", \"task-started\"]\n";
    let prepared = loaded(&host, filter).await;
    let run = prepared.start(Some("hi".to_owned()), RunOptions::default()).unwrap();
    run.outcome().await.unwrap();
    assert!(host.drain_observers(LONG).await.is_empty());
    assert_eq!(observed.kinds(), ["task-started", "task-ended"]);
}

/// Returns an observer that takes events only with permits of the semaphore.
fn held_observer(permits: &Arc<Semaphore>, observed: &Taken) -> Plugin {
    let (permits, observed) = (Arc::clone(permits), observed.clone());
    Plugin::observer("app", move |ask: Observe| {
        let (permits, observed) = (Arc::clone(&permits), observed.clone());
        async move {
            permits.acquire().await.map_err(|error| Failure::new(error.to_string()))?.forget();
            observed.add(&ask.events);
            Ok(ObserverReply::Taken)
        }
    })
}

#[tokio::test]
async fn a_run_ends_while_its_observer_is_still_in_its_first_call() {
    let (permits, observed) = (Arc::new(Semaphore::new(0)), Taken::default());
    let host = host([desk(), held_observer(&permits, &observed)]);
    let prepared = loaded(&host, &format!("{OBSERVED}deadline = \"10 min\"\n")).await;
    let run = prepared.start(Some("hi".to_owned()), RunOptions::default()).unwrap();
    // It ends although nothing was taken, and a drain without time says what is left.
    assert_eq!(run.outcome().await.unwrap().content.as_deref(), Some("hi"));
    let [remaining] = &host.drain_observers(Duration::ZERO).await[..] else {
        panic!("nothing is left")
    };
    assert!(
        remaining.undelivered > 0 && remaining.stopped.is_none() && observed.kinds().is_empty()
    );
    permits.add_permits(100);
    assert!(host.drain_observers(LONG).await.is_empty());
    assert_eq!(observed.kinds().last().map(String::as_str), Some("result-ready"));
}

#[tokio::test]
async fn a_full_queue_makes_the_run_wait_says_so_once_and_loses_nothing() {
    let (permits, observed) = (Arc::new(Semaphore::new(0)), Taken::default());
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let host = host([busy(), held_observer(&permits, &observed)]);
    let lines = "queue = 4\ndeadline = \"10 min\"\n[plugins.desk.grants]\ntools = [\"desk.*\"]\n";
    let prepared = loaded(&host, &format!("{OBSERVED}{lines}")).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    let running = tokio::spawn(run.outcome());
    let full = || {
        let is_full = |event: &conclave_runtime::subscribe::Published| {
            matches!(event.what, RunEvent::ObserverQueueFull { .. })
        };
        recorder.happenings().iter().filter(|event| is_full(event)).count()
    };
    while full() == 0 {
        tokio::task::yield_now().await;
    }
    let ends = |recorder: &Told| {
        recorder
            .notices()
            .iter()
            .filter(|notice| matches!(notice, Notice::TaskEnded { .. }))
            .count()
    };
    // As long as nothing is taken, the run does not end, however often its loop is polled.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!((ends(&recorder), full(), running.is_finished()), (0, 1, false));
    permits.add_permits(1_000);
    assert_eq!(running.await.unwrap().unwrap().status, Status::Done);
    assert!(host.drain_observers(LONG).await.is_empty());
    let free = recorder.happenings();
    let free = free.iter().filter(|e| matches!(e.what, RunEvent::ObserverQueueFree { .. })).count();
    assert_eq!(free, full(), "each wait has an end");
    assert_eq!(observed.kinds().iter().filter(|kind| *kind == "tool-called").count(), 10);
    assert!(observed.positions().is_sorted());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_an_observer() {
    let (permits, observed) = (Arc::new(Semaphore::new(0)), Taken::default());
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let host = host([busy(), held_observer(&permits, &observed)]);
    let lines = "queue = 1\ndeadline = \"10 min\"\n[plugins.desk.grants]\ntools = [\"desk.*\"]\n";
    let prepared = loaded(&host, &format!("{OBSERVED}{lines}")).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    let handle = run.handle();
    let running = tokio::spawn(run.outcome());
    let is_waiting = || {
        recorder.happenings().iter().any(|e| matches!(e.what, RunEvent::ObserverQueueFull { .. }))
    };
    while !is_waiting() {
        tokio::task::yield_now().await;
    }
    handle.stop("enough");
    assert_eq!(running.await.unwrap().unwrap().status, Status::Kill);
    permits.add_permits(1_000);
    assert!(host.drain_observers(LONG).await.is_empty());
    assert_eq!(observed.kinds().last().map(String::as_str), Some("result-ready"));
}

/// Nothing is taken before the end: whatever waited for the observer would wait for ever.
#[tokio::test]
async fn a_full_queue_holds_work_and_neither_messages_nor_stops() {
    let (permits, observed) = (Arc::new(Semaphore::new(0)), Taken::default());
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let steps = Arc::new(AtomicU32::new(0));
    let desk = {
        let steps = Arc::clone(&steps);
        Plugin::agent("desk", move |step: Step| {
            steps.fetch_add(1, Ordering::SeqCst);
            async move { Ok(native::finish(step.text())) }
        })
    };
    let host = host([desk, held_observer(&permits, &observed)]);
    let prepared = loaded(&host, &format!("{OBSERVED}queue = 1\ndeadline = \"10 min\"\n")).await;
    let (room, hosted) = prepared.open_room(options(&recorder, &journals)).unwrap();
    for text in ["one", "two", "three"] {
        room.say("terminal", text).await.unwrap();
    }
    let has = |kind: &str| recorder.notices().iter().any(|notice| notice.kind() == kind);
    let is_full = || {
        recorder.happenings().iter().any(|e| matches!(e.what, RunEvent::ObserverQueueFull { .. }))
    };
    while !is_full() {
        tokio::task::yield_now().await;
    }
    assert_eq!(steps.load(Ordering::SeqCst), 0, "no step begins while the queue is full");
    room.stop_turn("enough");
    while !has("task-ended") {
        tokio::task::yield_now().await;
    }
    // Closing would first carry out the messages that were accepted, and their steps are held.
    room.stop("enough");
    assert_eq!(hosted.closed().await.unwrap().status, Status::Kill);
    assert_eq!(steps.load(Ordering::SeqCst), 0, "what was held is never done");
    permits.add_permits(1_000);
    assert!(host.drain_observers(LONG).await.is_empty());
    assert!(
        observed.positions().is_sorted() && observed.kinds().contains(&"task-ended".to_owned())
    );
}

#[tokio::test]
async fn an_observer_that_fails_too_often_is_stopped_and_gets_the_rest_later() {
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let broken = Plugin::observer("app", |_| async { Err(Failure::new("no disk")) });
    let host_1 = host([desk(), broken]);
    let prepared = loaded(&host_1, &format!("{OBSERVED}attempts = 2\n")).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
    let remaining = host_1.drain_observers(LONG).await;
    assert!(
        remaining[0].stopped.as_ref().is_some_and(|reason| reason.contains("no disk")),
        "{remaining:?}"
    );
    assert!(remaining[0].undelivered > 0);
    assert_eq!(stops(&recorder).len(), 1);
    let retried =
        recorder.notices().iter().filter(|n| matches!(n, Notice::ObserverRetried { .. })).count();
    assert_eq!(retried, 1);

    // Another host, with the same config and journals: everything is delivered now.
    let observed = Taken::default();
    let host_2 = host([desk(), observed.observer()]);
    let prepared = loaded(&host_2, OBSERVED).await;
    let options_again =
        RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let reports = prepared.deliver_missed(&RoomId::from("run"), options_again.clone()).await;
    assert_eq!(reports[0].stopped, None);
    assert_eq!(reports[0].delivered as usize, observed.kinds().len());
    assert_eq!(observed.kinds().last().map(String::as_str), Some("result-ready"));
    // And only once.
    let reports = prepared.deliver_missed(&RoomId::from("run"), options_again).await;
    assert_eq!(reports[0].delivered, 0);
}

/// Journals whose first reading fails.
struct Unreadable(MemoryJournals, AtomicU32);

impl Journals for Unreadable {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        self.0.open(room)
    }

    fn records(&self, room: &RoomId) -> RecordsReading {
        if self.1.fetch_add(1, Ordering::SeqCst) > 0 {
            return Journals::records(&self.0, room);
        }
        let cause = std::io::Error::other("the database is away");
        let failure = JournalFailure::new(room.clone(), "memory".to_owned(), cause);
        Box::pin(std::future::ready(Err(failure)))
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        self.0.reopen(room, now)
    }
}

#[tokio::test]
async fn an_observer_gets_nothing_while_the_rights_of_the_run_are_unknown() {
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let collected = Taken::default();
    let host = host([desk(), collected.observer()]);
    let prepared = loaded(&host, OBSERVED).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
    assert!(host.drain_observers(LONG).await.is_empty());
    let count = collected.kinds().len();
    let journals = Arc::new(Unreadable(journals, AtomicU32::new(0)));
    let options = RunOptions { journals, ..RunOptions::default() };
    let reports = prepared.deliver_missed(&RoomId::from("run"), options.clone()).await;
    let stopped = reports[0].stopped.as_deref().unwrap_or_default();
    assert!(stopped.contains("the database is away"), "{reports:?}");
    assert_eq!(collected.kinds().len(), count);
    let reports = prepared.deliver_missed(&RoomId::from("run"), options).await;
    assert_eq!((reports[0].delivered, &reports[0].stopped), (0, &None));
}

#[tokio::test]
async fn a_run_without_the_observer_in_its_config_is_not_observed_later() {
    let journals = MemoryJournals::default();
    let collected = Taken::default();
    let host = host([desk(), collected.observer()]);
    let recorder = Told::default();
    let plain = loaded(&host, "").await;
    plain
        .start(Some("hi".to_owned()), options(&recorder, &journals))
        .unwrap()
        .outcome()
        .await
        .unwrap();
    let observed = loaded(&host, OBSERVED).await;
    let options_again = RunOptions { journals: Arc::new(journals), ..RunOptions::default() };
    observed.deliver_missed(&RoomId::from("run"), options_again).await;
    assert!(collected.kinds().is_empty());
}

#[tokio::test]
async fn an_observer_that_panics_holds_nobody_up() {
    let panics = Plugin::observer("app", |_| async { panic!("on purpose") });
    let host = host([desk(), panics]);
    let prepared = loaded(&host, &format!("{OBSERVED}queue = 1\nattempts = 1\n")).await;
    let run = prepared.start(Some("hi".to_owned()), RunOptions::default()).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
    assert!(host.drain_observers(LONG).await[0].stopped.is_some());
}

#[tokio::test]
async fn the_events_of_a_single_tool_call_are_observed_too() {
    let observed = Taken::default();
    let double =
        Tool::new("double", "Doubles.", json!({ "type": "object" }), |_| async { Ok(json!(2)) });
    let tools = Plugin::tools("desk", [double]).with_agent(|_| async { Ok(native::finish("")) });
    let host = host([tools, observed.observer()]);
    let prepared = loaded(&host, OBSERVED).await;
    prepared.call_tool("desk.double", json!({}), RunOptions::default()).await.unwrap();
    assert!(host.drain_observers(LONG).await.is_empty());
    assert!(observed.kinds().contains(&"tool-answered".to_owned()), "{:?}", observed.kinds());
}

/// A server behind an observer could otherwise hold a run for as long as it likes.
#[tokio::test]
async fn the_wall_time_of_a_run_waits_for_no_observer() {
    let (permits, observed) = (Arc::new(Semaphore::new(0)), Taken::default());
    let (recorder, journals) = (Told::default(), MemoryJournals::default());
    let host = host([busy(), held_observer(&permits, &observed)]);
    let lines = "queue = 1\ndeadline = \"10 min\"\n[plugins.desk.grants]\ntools = [\"desk.*\"]\n\
        [limits.run]\nwall = \"300 ms\"\n";
    let prepared = loaded(&host, &format!("{OBSERVED}{lines}")).await;
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Timeout);
    permits.add_permits(1_000);
    assert!(host.drain_observers(LONG).await.is_empty());
    assert_eq!(observed.kinds().last().map(String::as_str), Some("result-ready"));
}

/// Returns an observer that asks a model about each batch and fails, and notes whether it was
/// answered.
fn asking(answers: &Arc<Mutex<Vec<bool>>>) -> Plugin {
    let answers = Arc::clone(answers);
    Plugin::observer("app", move |ask: Observe| {
        let answers = Arc::clone(&answers);
        async move {
            let draft = DraftMessage {
                role: Role::User,
                content: "Sum it up.".to_owned(),
                tool_calls: Vec::new(),
                tool_results: Vec::new(),
            };
            let prompt = vec![PromptPart::Draft { draft }];
            let request = ModelRequest { prompt, ..ModelRequest::default() };
            let answer = ask.host.ask(request).await;
            answers.lock().unwrap().push(answer.is_ok());
            Err(Failure::new("no disk"))
        }
    })
    .asks(conclave_runtime::Capability::Model, "Sums up the events.")
}

/// Returns a host with that observer and a model.
fn host_of_asking(answers: &Arc<Mutex<Vec<bool>>>) -> Host {
    let model = || native::model(|_| std::future::ready(Ok(native::answer("summed up"))));
    Host::new(HostOptions {
        native: vec![desk(), asking(answers)],
        models: ["default", "other"].map(|name| (name.to_owned(), model())).into(),
        ..HostOptions::default()
    })
    .unwrap()
}

#[tokio::test]
async fn limits_of_an_observers_grants_count_on_after_an_interruption_and_anew_in_another_run() {
    let (recorder, journals, answers) =
        (Told::default(), MemoryJournals::default(), Arc::<Mutex<Vec<bool>>>::default());
    let host = host_of_asking(&answers);
    let grant = "grants.model = { names = [\"default\"], calls = 1 }";
    let more = format!("{OBSERVED}attempts = 1\n[models.default]\nkind = \"native\"\n");
    let prepared = host.load(&parse(&config(grant, &more))).await.unwrap();
    let room = RoomId::from("run");
    let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
    assert_eq!(run.outcome().await.unwrap().status, Status::Done);
    host.drain_observers(LONG).await;
    assert_eq!(*answers.lock().unwrap(), [true]);
    let reports = prepared.deliver_missed(&room, options(&recorder, &journals)).await;
    assert!(reports[0].stopped.is_some());
    assert_eq!(*answers.lock().unwrap(), [true, false]);
    let reopened = prepared.reopen(&room, options(&recorder, &journals)).await.unwrap();
    reopened.start(Some("hi".to_owned())).unwrap().outcome().await.unwrap();
    host.drain_observers(LONG).await;
    assert_eq!(*answers.lock().unwrap(), [true, false, true]);
}

#[tokio::test]
async fn an_observer_has_what_both_the_start_of_the_run_and_today_grant() {
    let models = "[models.default]\nkind = \"native\"\n[models.other]\nkind = \"native\"\n";
    let more = format!("{OBSERVED}attempts = 1\n{models}");
    let granted = |names: &str| config(&format!("grants.model = [{names}]"), &more);
    for (start, today, expected) in [
        ("\"default\"", "\"default\"", true),
        ("\"default\", \"other\"", "\"default\"", true),
        ("\"default\"", "\"other\"", false),
        ("\"other\"", "\"default\"", false),
    ] {
        let (recorder, journals, answers) =
            (Told::default(), MemoryJournals::default(), Arc::<Mutex<Vec<bool>>>::default());
        let host = host_of_asking(&answers);
        let prepared = host.load(&parse(&granted(start))).await.unwrap();
        let run = prepared.start(Some("hi".to_owned()), options(&recorder, &journals)).unwrap();
        assert_eq!(run.outcome().await.unwrap().status, Status::Done);
        host.drain_observers(LONG).await;
        let prepared = host.load(&parse(&granted(today))).await.unwrap();
        let room = RoomId::from("run");
        prepared.deliver_missed(&room, options(&recorder, &journals)).await;
        assert_eq!(*answers.lock().unwrap(), [true, expected], "{start}, then {today}");
        // The same if the host ended before the observer's room was open.
        let journals = MemoryJournals::of(room.clone(), journals.records(&room));
        prepared.deliver_missed(&room, options(&recorder, &journals)).await;
        assert_eq!(answers.lock().unwrap()[2..], [expected], "{start}, then {today}");
    }
}
