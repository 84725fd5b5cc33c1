//! A journal that fails in one room of a run: the whole run stops, and goes on later from what is
//! stored.

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_runtime::clock::BoxFuture;
use conclave_runtime::config::Config;
use conclave_runtime::delegation::Delegation;
use conclave_runtime::event::{Event, Record};
use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Opening, Reopening, Unfinished,
};
use conclave_runtime::native::{self, Plugin, Step};
use conclave_runtime::request::Inbound;
use conclave_runtime::store::{Durability, Store};
use conclave_runtime::{
    Host, HostOptions, Prepared, RoomGuard, RoomHandle, RunOptions, SessionError,
};
use tokio::sync::{Notify, watch};

use crate::support::{StorePlace, about, records};

const CONFIG: &str = "entry = 'desk'\n[plugins.desk]\nsource = 'native:desk'\n[plugins.worker]\n\
    source = 'native:worker'\n[tasks.desk]\nagent = 'desk'\n[tasks.worker]\nagent = 'worker'\n";

/// The kind of room whose journal fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Parent,
    Child,
}

impl Failing {
    fn is_meant(self, room: &RoomId) -> bool {
        (self == Self::Child) == room.as_str().contains('/')
    }
}

/// The journals of a store; those of one kind of room fail once they are told to.
struct FailingJournals {
    journals: Arc<dyn Journals>,
    rooms: Failing,
    fail: Arc<AtomicBool>,
}

struct FailingJournal {
    room: RoomId,
    journal: Box<dyn Journal>,
    fail: Arc<AtomicBool>,
}

impl Journals for FailingJournals {
    fn open(&self, room: &RoomId) -> Result<Opening, JournalFailure> {
        let (opening, room, fail) = (self.journals.open(room)?, room.clone(), self.fail.clone());
        let is_meant = self.rooms.is_meant(&room);
        Ok(Box::pin(async move {
            let journal = opening.await?;
            let journal: Box<dyn Journal> = match is_meant {
                true => Box::new(FailingJournal { room, journal, fail }),
                false => journal,
            };
            Ok(journal)
        }))
    }

    fn reopen(&self, room: &RoomId, now: Millis) -> Reopening {
        self.journals.reopen(room, now)
    }
}

impl Journal for FailingJournal {
    fn ready(&mut self) -> BoxFuture<'_, Result<(), JournalFailure>> {
        self.journal.ready()
    }

    fn append(&mut self, entry: &JournalBatch<'_>) -> Result<Keeping, JournalFailure> {
        if self.fail.load(Ordering::SeqCst) {
            let cause = Error::from(ErrorKind::StorageFull);
            return Err(JournalFailure::new(self.room.clone(), "its place".to_owned(), cause));
        }
        self.journal.append(entry)
    }

    fn epoch(&self) -> u64 {
        self.journal.epoch()
    }

    fn watch_loss(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.journal.watch_loss()
    }

    fn hurry(&mut self) {
        self.journal.hurry();
    }

    fn settle(&mut self) -> BoxFuture<'static, Result<(), JournalFailure>> {
        self.journal.settle()
    }

    fn snapshot_due(&self) -> Option<u64> {
        self.journal.snapshot_due()
    }

    fn keep_snapshot(&mut self, snapshot: Unfinished) {
        self.journal.keep_snapshot(snapshot);
    }
}

/// A host whose background task waits for the test.
struct Office {
    prepared: Prepared,
    store: Store,
    began: Arc<Notify>,
    may_end: watch::Sender<bool>,
}

impl Office {
    async fn new(place: &StorePlace) -> Self {
        let (began, may_end) = (Arc::new(Notify::new()), watch::Sender::new(false));
        let desk =
            Plugin::agent("desk", |step: Step| async move { Ok(native::finish(step.text())) });
        let (begins, gate) = (Arc::clone(&began), may_end.clone());
        let worker = Plugin::agent("worker", move |step: Step| {
            let (begins, mut gate) = (Arc::clone(&begins), gate.subscribe());
            async move {
                begins.notify_one();
                let _ = gate.wait_for(|may_end| *may_end).await;
                Ok(native::finish(format!("done: {}", step.text())))
            }
        });
        let options = HostOptions { native: vec![desk, worker], ..HostOptions::default() };
        let host = Host::new(options).unwrap();
        let prepared = host.load(&Config::parse("c.toml", "", CONFIG).unwrap()).await.unwrap();
        Self { prepared, store: Store::open(place.address()).unwrap(), began, may_end }
    }

    fn options(&self, failing: Option<(Failing, &Arc<AtomicBool>)>) -> RunOptions {
        let journals = self.store.journals(Durability::Group, about());
        let journals: Arc<dyn Journals> = match failing {
            Some((rooms, fail)) => {
                Arc::new(FailingJournals { journals, rooms, fail: Arc::clone(fail) })
            }
            None => journals,
        };
        RunOptions { ids: Arc::new(RoomId::from("r")), journals, ..RunOptions::default() }
    }

    /// A room whose background task has begun.
    async fn with_task(&self, options: RunOptions) -> (RoomHandle, RoomGuard) {
        let (room, guard) = self.prepared.open_room(options).unwrap();
        let delegation = Delegation {
            worker: "worker".to_owned(),
            description: "work".to_owned(),
            ..Delegation::default()
        };
        room.delegate(delegation).await.unwrap();
        self.began.notified().await;
        (room, guard)
    }

    /// Resumes the run and its task, which comes to its own end.
    async fn goes_on(&self) {
        let reopened = self.prepared.reopen(&RoomId::from("r"), self.options(None)).await.unwrap();
        let (room, guard) = reopened.resume_room();
        self.may_end.send_replace(true);
        let task = room.tasks().remove(0);
        let ended = room.wait(&task.id, None).await.unwrap();
        assert_eq!(ended.output.as_deref(), Some("done: work"), "{ended:?}");
        room.close("that was all").await.unwrap();
        guard.closed().await.unwrap();
    }
}

/// A store in a folder, and one in a database.
fn each_store() -> Vec<StorePlace> {
    let mut stores = vec![StorePlace::new()];
    #[cfg(feature = "postgres")]
    stores.extend(StorePlace::in_database());
    stores
}

fn has_end_of_task(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record.event, Event::BackgroundEnded { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_stops_when_the_journal_of_a_child_room_fails() {
    for place in each_store() {
        let (office, fail) = (Office::new(&place).await, Arc::new(AtomicBool::new(false)));
        let (room, guard) = office.with_task(office.options(Some((Failing::Child, &fail)))).await;
        let child = room.tasks()[0].room.clone();
        fail.store(true, Ordering::SeqCst);
        office.may_end.send_replace(true);
        let failure = guard.closed().await.unwrap_err();
        let SessionError::Journal(failure) = failure else { panic!("{failure}") };
        assert_eq!(failure.room, child, "{failure}");
        assert!(!has_end_of_task(&records(place.address(), "r")), "its parent got no end of it");
        office.goes_on().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_children_of_a_run_whose_journal_fails_are_not_cancelled() {
    for place in each_store() {
        let (office, fail) = (Office::new(&place).await, Arc::new(AtomicBool::new(false)));
        let (room, guard) = office.with_task(office.options(Some((Failing::Parent, &fail)))).await;
        fail.store(true, Ordering::SeqCst);
        room.inbound(Inbound::new("terminal", "hello")).await.unwrap_err();
        let failure = guard.closed().await.unwrap_err();
        assert!(matches!(failure, SessionError::Journal(_)), "{failure}");
        office.goes_on().await;
    }
}
