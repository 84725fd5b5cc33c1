//! Several runs in one room: what persists and what begins anew, the end of an abandoned run, and
//! its journal.

use std::sync::Arc;

use conclave_core::journal::record::{fold, from_lines, to_line};
use conclave_core::protocol::event::{Event, HistoryChange};
use conclave_runtime::ids::{RoomId, TaskName};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, MemoryJournals, Opening,
};
use conclave_runtime::limits::RunLimits;
use conclave_runtime::native::{self, Failure, Plugin, Step};
use conclave_runtime::outcome::Status;
use conclave_runtime::{Prepared, RunInput, RunOptions, Session, SessionError};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::support::{Told, prepared};

const TEXT: &str = "entry = \"desk\"\n[plugins.desk]\nsource = \"native:desk\"\n[tasks.desk]\nagent = \"desk\"\nrestart = false\n[tasks.other]\nagent = \"desk\"\nrestart = false\n";

/// An agent that repeats its input with the number of messages in its history; `wait` never ends.
fn desk(word: &'static str) -> Plugin {
    Plugin::agent("desk", move |step: Step| async move {
        if step.text() == "wait" {
            std::future::pending::<()>().await;
        }
        Ok(native::finish(format!("{word} {} {}", step.text(), step.view.history.len())))
    })
}

async fn prepare(word: &'static str) -> Prepared {
    prepared([desk(word)], TEXT).await
}

fn desk_name() -> TaskName {
    TaskName::from("desk")
}

async fn reply_to(session: &mut Session, ask: impl Into<RunInput>) -> String {
    session.run(ask).await.unwrap().content.clone().unwrap_or_default()
}

#[tokio::test]
async fn agents_remember_from_run_to_run_and_the_journal_holds_all_of_it() {
    let (journals, recorder) = (MemoryJournals::default(), Told::default());
    let options = RunOptions { journals: Arc::new(journals.clone()), ..recorder.options() };
    let mut session = prepare("heard").await.session(options).unwrap();
    let first = reply_to(&mut session, "one").await;
    let remembered = session.history(&desk_name()).len();
    let second = reply_to(
        &mut session,
        RunInput { entry: Some(TaskName::from("other")), ..RunInput::from("two") },
    )
    .await;
    let third = reply_to(&mut session, "three").await;
    assert_eq!(
        (first.as_str(), second.as_str()),
        ("heard one 1", "heard two 1"),
        "each task has a history of its own"
    );
    assert_eq!(third, format!("heard three {}", remembered + 1));
    let records = journals.records(session.room());
    let starts = records
        .iter()
        .filter(|record| matches!(record.event, Event::RunStarted { setup: None, .. }))
        .count();
    assert!(matches!(records[0].event, Event::RoomOpened { .. }) && starts == 2, "{records:?}");
    let lines: String = records.iter().map(|record| to_line(record).unwrap() + "\n").collect();
    let folded = fold(from_lines(&lines).unwrap());
    assert_eq!(folded.outcome().and_then(|outcome| outcome.content.clone()), Some(third));
    assert_eq!(folded.history(&desk_name()), session.history(&desk_name()));
}

#[tokio::test]
async fn an_unknown_task_starts_nothing() {
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let mut session = prepare("heard").await.session(options).unwrap();
    let error = session
        .run(RunInput { entry: Some(TaskName::from("none")), ..RunInput::default() })
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "there is no task `none`; these are there: desk, other");
    assert!(
        session
            .change_history(&TaskName::from("none"), HistoryChange::Clear { start: 0 })
            .await
            .is_err()
    );
    assert!(journals.records(session.room()).is_empty());
    assert_eq!(reply_to(&mut session, "one").await, "heard one 1");
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_is_stopped_and_the_next_one_begins() {
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let mut session = prepare("heard").await.session(options).unwrap();
    {
        let mut waiting = std::pin::pin!(session.run("wait"));
        tokio::select! {
            biased;
            outcome = &mut waiting => panic!("it waits for ever: {outcome:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(session.run("never polled"));
    assert!(reply_to(&mut session, "two").await.starts_with("heard two"));
    let events: Vec<Event> =
        journals.records(session.room()).iter().map(|record| record.event.clone()).collect();
    let given_up =
        events.iter().position(|event| matches!(event, Event::Cancelled { .. })).unwrap();
    let started: Vec<usize> = (0..events.len())
        .filter(|index| matches!(events[*index], Event::RunStarted { .. }))
        .collect();
    assert!(started.len() == 1 && given_up < started[0], "{events:?}");
}

#[tokio::test]
async fn a_handle_stops_the_active_run_and_no_later_one() {
    let mut session = prepare("heard").await.session(RunOptions::default()).unwrap();
    let handle = session.handle();
    handle.stop("before the first run");
    assert_eq!(reply_to(&mut session, "one").await, "heard one 1");
    handle.stop("between two runs");
    assert!(reply_to(&mut session, "two").await.starts_with("heard two"));
    let waiting = session.run("wait");
    handle.stop("that is enough");
    let outcome = waiting.await.unwrap();
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Kill, "that is enough"));
}

#[tokio::test]
async fn limits_of_an_ask_are_those_of_its_run_alone() {
    let mut session = prepare("heard").await.session(RunOptions::default()).unwrap();
    let limits = RunLimits { wall_ms: Some(1), ..RunLimits::default() };
    let late =
        session.run(RunInput { limits: Some(limits), ..RunInput::from("wait") }).await.unwrap();
    assert_eq!(late.status, Status::Timeout);
    assert!(reply_to(&mut session, "two").await.starts_with("heard two"));
}

#[tokio::test]
async fn later_runs_go_on_with_another_config() {
    let journals = MemoryJournals::default();
    let options = RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() };
    let mut session = prepare("heard").await.session(options).unwrap();
    reply_to(&mut session, "one").await;
    session.reconfigure(&prepare("noted").await);
    assert!(reply_to(&mut session, "two").await.starts_with("noted two"));
    assert!(reply_to(&mut session, "three").await.starts_with("noted three"));
    let setups: Vec<bool> = journals
        .records(session.room())
        .iter()
        .filter_map(|record| started_with_setup(&record.event))
        .collect();
    assert_eq!(setups, [true, false], "the journal says once what the runs go on with");
}

fn started_with_setup(event: &Event) -> Option<bool> {
    match event {
        Event::RunStarted { setup, .. } => Some(setup.is_some()),
        _ => None,
    }
}

#[tokio::test]
async fn what_an_agent_remembers_moves_to_another_session() {
    let mut one = prepare("heard").await.session(RunOptions::default()).unwrap();
    reply_to(&mut one, "one").await;
    let history = one.export_history(&desk_name());
    let journals = MemoryJournals::default();
    let mut two = prepare("heard")
        .await
        .session(RunOptions { journals: Arc::new(journals.clone()), ..RunOptions::default() })
        .unwrap();
    two.import_history(&desk_name(), &history).await.unwrap();
    let texts = |session: &Session| {
        session
            .history(&desk_name())
            .iter()
            .map(|message| message.content.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(&two), texts(&one));
    let remembered = two.history(&desk_name()).len();
    assert_eq!(reply_to(&mut two, "two").await, format!("heard two {}", remembered + 1));
    let before = two.history(&desk_name());
    assert!(matches!(two.import_history(&desk_name(), "{}").await, Err(SessionError::History(_))));
    assert_eq!(two.history(&desk_name()), before, "nothing was changed");
    two.change_history(&desk_name(), HistoryChange::Clear { start: 0 }).await.unwrap();
    assert!(two.history(&desk_name()).is_empty());
    let folded = fold(journals.records(two.room()).iter().map(|record| (**record).clone()));
    assert_eq!(folded.history(&desk_name()), two.history(&desk_name()));
}

/// Journals that accept this number of records and then fail.
struct Full(usize);

impl Journals for Full {
    fn open(&self, _: &RoomId) -> Result<Opening, JournalFailure> {
        let journal: Box<dyn Journal> = Box::new(Full(self.0));
        Ok(Box::pin(std::future::ready(Ok(journal))))
    }
}

impl Journal for Full {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let (room, place) = (RoomId::from("test"), "memory".to_owned());
        let cause = std::io::ErrorKind::StorageFull.into();
        self.0 = self
            .0
            .checked_sub(entry.records.len())
            .ok_or(JournalFailure::new(room, place, cause))?;
        Ok(Keeping::Kept)
    }
}

#[tokio::test]
async fn a_journal_that_failed_ends_the_session() {
    let options = RunOptions { journals: Arc::new(Full(1)), ..Told::default().options() };
    let mut session = prepare("heard").await.session(options).unwrap();
    assert!(matches!(session.run("one").await, Err(SessionError::Journal(_))));
    let broken = session.run("two").await.unwrap_err();
    assert_eq!(
        broken.to_string(),
        "the journal of room test has failed before; what is to go on needs another session"
    );
}

/// Journals that make each append durable before any effect, once the test permits it. The record
/// with the number `fails` cannot be stored.
#[derive(Clone)]
struct Gated {
    fails: u64,
    /// One permit for each append.
    open: Arc<Semaphore>,
    /// Notified when an append has found no permit.
    gate: Arc<Notify>,
}

impl Gated {
    fn new(fails: u64, permits: usize) -> Self {
        Self { fails, open: Arc::new(Semaphore::new(permits)), gate: Arc::default() }
    }

    fn open(&self) {
        self.open.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

impl Journals for Gated {
    fn open(&self, _: &RoomId) -> Result<Opening, JournalFailure> {
        let journal: Box<dyn Journal> = Box::new(self.clone());
        Ok(Box::pin(std::future::ready(Ok(journal))))
    }
}

impl Journal for Gated {
    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        let fails = entry.records.iter().any(|record| record.seq == self.fails);
        let Self { open, gate, .. } = self.clone();
        Ok(Keeping::First(Box::pin(async move {
            if open.available_permits() == 0 {
                gate.notify_one();
            }
            open.acquire().await.expect("it is never closed").forget();
            let (room, place, cause) =
                (RoomId::from("test"), "memory".to_owned(), std::io::ErrorKind::StorageFull.into());
            if fails { Err(JournalFailure::new(room, place, cause)) } else { Ok(()) }
        })))
    }
}

#[tokio::test]
async fn a_run_can_be_dropped_wherever_its_journal_is() {
    let mut entries = 0;
    loop {
        let journal = Gated::new(u64::MAX, entries);
        let options =
            RunOptions { journals: Arc::new(journal.clone()), ..Told::default().options() };
        let mut session = prepare("heard").await.session(options).unwrap();
        let is_over = {
            let mut run = std::pin::pin!(session.run("one"));
            let is_over = tokio::select! {
                ran = &mut run => ran.map(|_| true).unwrap(),
                () = journal.gate.notified() => false,
            };
            // Before the drop, which blocks until the journal holds the end of the abandoned run.
            journal.open();
            is_over
        };
        assert!(session.run("two").await.is_ok(), "dropped after {entries} entries");
        if is_over {
            break;
        }
        entries += 1;
    }
    assert!(entries >= 2, "it was dropped at {entries} entries only");
}

#[tokio::test]
async fn nothing_is_told_of_what_could_not_be_kept() {
    for seq in 0..2 {
        let recorder = Told::default();
        let options = RunOptions {
            journals: Arc::new(Gated::new(seq, Semaphore::MAX_PERMITS)),
            ..recorder.options()
        };
        let mut session = prepare("heard").await.session(options).unwrap();
        assert!(matches!(session.run("one").await, Err(SessionError::Journal(_))));
        assert!(matches!(session.resume().await, Err(SessionError::Broken { .. })));
        let happenings = recorder.happenings();
        let late: Vec<_> = happenings
            .iter()
            .filter(|happening| happening.seq.is_some_and(|of| of >= seq))
            .collect();
        assert!(late.is_empty(), "{late:?}");
        assert_eq!(
            happenings.iter().any(|happening| happening.seq.is_some()),
            seq > 0,
            "what was kept was told"
        );
    }
}

#[tokio::test]
async fn what_a_failed_agent_remembers_is_left() {
    let broken = Plugin::agent("desk", |step: Step| async move {
        if step.text() == "two" || step.text().contains("failed") {
            Err(Failure::new("no"))
        } else {
            Ok(native::finish(json!(step.view.history.len()).to_string()))
        }
    });
    let mut session = prepared([broken], TEXT).await.session(RunOptions::default()).unwrap();
    reply_to(&mut session, "one").await;
    let before = session.history(&desk_name()).len();
    assert!(!session.run("two").await.unwrap().status.is_success());
    assert!(session.history(&desk_name()).len() >= before);
    assert!(session.run("three").await.unwrap().status.is_success());
}

#[tokio::test]
async fn one_word_stops_all_runs_of_a_host_and_a_name_stops_one_task() {
    let host = conclave_runtime::Host::new(conclave_runtime::HostOptions {
        native: vec![desk("heard")],
        ..Default::default()
    })
    .unwrap();
    let config = conclave_runtime::config::Config::parse("c.toml", "", TEXT).unwrap();
    let prepared = host.load(&config).await.unwrap();
    let runs: Vec<_> = (0..3)
        .map(|_| prepared.start(Some("wait".to_owned()), RunOptions::default()).unwrap())
        .collect();
    let by_name = prepared.start(Some("wait".to_owned()), RunOptions::default()).unwrap();
    let handle = by_name.handle();
    let by_name = tokio::spawn(by_name.outcome());
    handle.kill_task("other", "not this one");
    handle.kill_task(desk_name(), "this one");
    let outcome = by_name.await.unwrap().unwrap();
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Kill, "this one"));
    let running: Vec<_> = runs.into_iter().map(|run| tokio::spawn(run.outcome())).collect();
    assert_eq!(host.stop_all("enough"), 3, "those that are over are not told");
    for run in running {
        let outcome = run.await.unwrap().unwrap();
        assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Kill, "enough"));
    }
}
