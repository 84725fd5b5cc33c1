//! A store in a folder and one in a database answer the same.

use std::fmt::Debug;
use std::sync::Arc;

use conclave_core::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use conclave_core::types::ids::TimerId;
use conclave_runtime::event::{Event, Principal, Record};
use conclave_runtime::ids::{CallId, ControlId, Millis, RoomId};
use conclave_runtime::journal::{Journal, JournalBatch};
use conclave_runtime::outcome::Status;
use conclave_runtime::store::{
    Retention, RunFilter, RunListPlace, Store, StoreAddress, StoreReader,
};
use conclave_runtime::usage::Spent;
use conclave_test_servers::{TestDatabase, TestPostgres, postgres_or_skip};

use crate::support::{append, end, message_record, open, opened, record, settle};

fn address(database: &TestDatabase) -> StoreAddress {
    database.url().parse().unwrap()
}

/// The records with the epoch by which the journal's host owns the run.
fn of_journal(journal: &dyn Journal, records: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
    let epoch = journal.epoch();
    let owned = |record| Arc::new(Record { epoch, ..Arc::unwrap_or_clone(record) });
    records.into_iter().map(owned).collect()
}

fn started_run(store: &Store, room: &str, text: &str, records: u64) -> Box<dyn Journal> {
    let mut journal = open(store, room);
    let mut all = vec![opened(room, text)];
    all.extend((1..records).map(|seq| message_record(seq, "yes")));
    let all = of_journal(&*journal, all);
    append(&mut *journal, &all).unwrap();
    journal
}

/// Begins two timers and two calls in a room, whose next record is `seq`.
fn wait(journal: &mut dyn Journal, seq: u64) {
    let start_wait = |key, kind: &str, at: Option<u64>| {
        let (kind, target, at) = (kind.to_owned(), "t".to_owned(), at.map(Millis));
        WaitChange::Begun(PendingWork { key, kind, target, at, request: None })
    };
    let waits = [
        start_wait(WaitKey::Timer(TimerId(10)), "timer", Some(90_000)),
        start_wait(WaitKey::Timer(TimerId(9)), "timer", Some(80_000)),
        start_wait(WaitKey::Call(CallId(3)), "question", None),
        start_wait(WaitKey::Call(CallId(20)), "approval", None),
    ];
    let records = of_journal(journal, vec![message_record(seq, "wait")]);
    let batch =
        JournalBatch { records: &records, waits: &waits, outcome: None, spent: Spent::default() };
    let keeping = journal.append(&batch).unwrap();
    journal.hurry();
    settle(keeping).unwrap();
}

/// What the engines may not agree on: the epochs of records, and so the hashes over them.
fn without_epochs(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().for_each(|record| record.epoch = 0);
    records
}

/// Returns the rooms and numbers of a run's records in their order, read one after the other.
fn records_of_run(reader: &StoreReader, run: &RoomId) -> Vec<(RoomId, u64)> {
    let (mut all, mut last) = (Vec::new(), None);
    while let Some(next) = reader.run_records(run, last, 1).unwrap().pop() {
        last = Some(next.position);
        all.push((next.room, next.record.seq));
    }
    assert_eq!(reader.run_end(run).unwrap(), last);
    let at_once = reader.run_records(run, None, 1_000).unwrap();
    let at_once: Vec<_> = at_once.into_iter().map(|next| (next.room, next.record.seq)).collect();
    assert_eq!(at_once, all);
    all
}

/// Returns the answers to the questions about all runs, each as text.
fn answers(reader: &StoreReader) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut say = |question: &str, answer: &dyn Debug| all.push(format!("{question}: {answer:#?}"));
    let filter = RunFilter::default;
    let place = |run: &str| {
        let started = reader.run(&run.into()).unwrap().map_or(Millis(1_000), |row| row.started);
        RunListPlace { started, run: run.into() }
    };
    for filter in [
        filter(),
        RunFilter { status: Some("running".to_owned()), ..filter() },
        RunFilter { status: Some("INTERRUPTED".to_owned()), ..filter() },
        RunFilter { status: Some("done".to_owned()), ..filter() },
        RunFilter { text: Some("GOOD".to_owned()), most: Some(2), ..filter() },
        RunFilter { agent: Some("nobody".to_owned()), ..filter() },
        RunFilter { cost: Some(500), since: Some(Millis(1_000)), ..filter() },
        RunFilter { most: Some(0), ..filter() },
        RunFilter { config: Some("/work/desk.toml".into()), most: Some(1), ..filter() },
        RunFilter { config: Some("/work/other.toml".into()), ..filter() },
        RunFilter { principal: Some(Principal("bob".into())), ..filter() },
        RunFilter { after: Some(place("ab2")), most: Some(2), ..filter() },
        RunFilter { after: Some(place("nothing")), ..filter() },
    ] {
        let mut runs = reader.runs(&filter).unwrap();
        runs.iter_mut().for_each(|run| run.store = StoreAddress::Folder("store".into()));
        say("runs", &runs);
    }
    for name in ["", "%", "a", "aa", "aa1", "ab/1", "ab2/1", "z", "/1", "é"] {
        say("find", &reader.find(name).unwrap());
    }
    for room in ["aa1", "ab2", "ab2/1", "ab2/2", "old", "nothing"].map(RoomId::from) {
        let run = reader.run(&room).unwrap().map(|run| (run.state, run.rooms, run.records));
        say("run", &run);
        say("rooms", &reader.rooms(&room).unwrap());
        say("waits", &reader.waits(Some(&room)).unwrap());
        say("approvals", &reader.approvals(Some(&room)).unwrap());
        say("records", &without_epochs(reader.records(&room).unwrap()));
        let lines = reader.lines(&room).unwrap().join("\n").replace("\"epoch\":1,", "");
        say("lines", &lines);
        let of_run = records_of_run(reader, &room);
        say("records of the run", &of_run);
        say("down", &reader.down_ms(&room).unwrap());
        let ids = ["1", "2"].map(|id| reader.has_received(&room, &ControlId::from(id)).unwrap());
        say("received", &ids);
    }
    say("waits", &reader.waits(None).unwrap());
    for config in ["/work/desk.toml", "/work/other.toml"] {
        say("totals", &reader.run_totals(config.as_ref()).unwrap());
    }
    for (first, most) in [(0, 1_000), (3, 2), (1_000, 5), (u64::MAX, usize::MAX)] {
        // Only a database has lines about removals. Their times are of the clock.
        let lines = reader.audit(1, first, most).unwrap().into_iter();
        for line in lines.filter(|line| line.at < Millis(1_000_000)) {
            let record = line.record.map(|record| without_epochs(vec![record]));
            say("audit", &(line.number, line.room, line.seq, line.at, record));
        }
    }
    say("blob", &reader.blob("nothing").unwrap());
    let verified = reader.verify(&[]).unwrap();
    let heads = verified.heads.clone();
    assert_eq!(reader.verify(&[&heads[0]]).unwrap().problems, verified.problems);
    let checked = reader.check().unwrap();
    assert!(checked.bytes > 0 && checked.heads == heads);
    for checked in [verified, checked] {
        say("problems", &checked.problems);
        say("counts", &(checked.rooms, checked.records, checked.blobs));
    }
    say("another head", &reader.verify(&["ab"]).unwrap().problems);
    all
}

/// Writes runs to a new store, and returns its answers while they are in progress, after its process
/// has ended, and after runs were removed.
fn history(address: &StoreAddress) -> Vec<String> {
    let store = Store::open(address).unwrap();
    for room in ["older", "old", "odd"] {
        let mut journal = started_run(&store, room, "Good evening", 2);
        let bye = of_journal(&*journal, vec![message_record(2, "bye")]).remove(0);
        end(&mut *journal, bye, Status::Done);
    }
    let mut aa = started_run(&store, "aa1", &"Good ä ".repeat(2_000), 3);
    let resumed = Event::Resumed { down_ms: 70, is_exact: true, setup: None };
    let resumed = of_journal(&*aa, vec![record(3, 2_000, resumed)]);
    append(&mut *aa, &resumed).unwrap();
    wait(&mut *aa, 4);
    let mut ab = started_run(&store, "ab2", "Hello", 2);
    let mut second = started_run(&store, "ab2/2", "Two", 1);
    let first = started_run(&store, "ab2/1", "One", 2);
    wait(&mut *second, 1);
    wait(&mut *ab, 2);
    let reader = StoreReader::open(address).unwrap();
    let mut all = answers(&reader);
    drop((aa, ab, first, second));
    drop(store);
    let read = |all: &mut Vec<String>| all.extend(answers(&StoreReader::open(address).unwrap()));
    read(&mut all);
    let store = Store::open(address).unwrap();
    let keep = |runs, dry| Retention { runs: Some(runs), dry, ..Retention::default() };
    for keep in [keep(4, true), keep(4, false), keep(3, true), Retention::default(), keep(0, false)]
    {
        let mut collected = store.collect(&keep).unwrap();
        collected.bytes = 0;
        all.push(format!("{collected:#?}"));
    }
    drop(store);
    read(&mut all);
    all
}

#[test]
fn a_store_answers_the_same_in_a_folder_and_in_a_database() {
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let temp = tempfile::tempdir().unwrap();
    let (folder, database) = (history(&temp.path().into()), history(&address(&database)));
    for (in_folder, in_database) in folder.iter().zip(&database) {
        assert_eq!(in_folder, in_database);
    }
    assert_eq!(folder.len(), database.len());
}

/// The lists are those of real runs, so they must follow from the records.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_intact_after_runs_of_a_host() {
    let Some(database) = postgres_or_skip(TestPostgres::shared()) else { return };
    let address = address(&database);
    crate::derived::write(&address).await;
    let checked = tokio::task::spawn_blocking(move || {
        let reader = StoreReader::open(&address).unwrap();
        assert_eq!(reader.approvals(None).unwrap()[0].wait.target, "bell.ring");
        (reader.check().unwrap(), reader.verify(&[]).unwrap())
    });
    let (checked, verified) = checked.await.unwrap();
    assert_eq!(checked.problems, Vec::<String>::new());
    assert!(verified.problems.is_empty() && checked.rooms == 2 && checked.blobs > 0);
}
