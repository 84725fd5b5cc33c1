//! Appended records are read back.

use std::sync::Arc;

use conclave_runtime::event::{Event, RunOpening};
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::journal::Keeping;
use conclave_runtime::store::{Durability, Store, StoreReader};
use futures_executor::block_on;

use crate::support::{
    SECRET, about, append, damage, entry, message_record, opened, opened_in, record, records,
    reopened_in, run, settle, setup, sql,
};

#[test]
fn every_durability_gives_back_what_was_appended() {
    for durability in [Durability::Sync, Durability::Group, Durability::Exit] {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::open(temp.path()).unwrap();
        let mut journal = opened_in(&*store.journals(durability, about()), "a").unwrap();
        let all = [opened("a", "hello"), message_record(1, "one"), message_record(2, "two")];
        let keeping = journal.append(&entry(&all[..1])).unwrap();
        let is_so = matches!(
            (durability, &keeping),
            (Durability::Sync, Keeping::First(_))
                | (Durability::Group, Keeping::Soon(_))
                | (Durability::Exit, Keeping::Kept)
        );
        assert!(is_so, "{durability:?}");
        settle(keeping).unwrap();
        settle(journal.append(&entry(&all[1..])).unwrap()).unwrap();
        block_on(journal.settle()).unwrap();
        let read: Vec<_> = records(temp.path(), "a").into_iter().map(Arc::new).collect();
        assert_eq!(read, all, "{durability:?}");
        assert!(records(temp.path(), "b").is_empty());
    }
}

#[test]
fn a_room_is_opened_once_and_gone_on_with_after_it_was_let_go() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let journals = store.journals(Durability::Group, about());
    let journal = run(&store, "a", 3);
    let twice = opened_in(&*journals, "a").map(drop).unwrap_err();
    assert_eq!(twice.cause.kind(), std::io::ErrorKind::AlreadyExists);
    let busy = reopened_in(&*journals, "a").map(drop).unwrap_err();
    assert_eq!(busy.cause.kind(), std::io::ErrorKind::ResourceBusy);
    drop(journal);
    assert_eq!(
        opened_in(&*journals, "a").map(drop).unwrap_err().cause.kind(),
        std::io::ErrorKind::AlreadyExists
    );
    let mut reopened = reopened_in(&*journals, "a").unwrap().unwrap();
    assert_eq!(reopened.records.len(), 3);
    assert!(append(&mut *reopened.journal, &[message_record(7, "a gap")]).is_err());
    append(&mut *reopened.journal, &[message_record(3, "three")]).unwrap();
    assert_eq!(records(temp.path(), "a").len(), 4);
    assert!(reopened_in(&*journals, "b").unwrap().is_none());
}

#[test]
fn large_fields_and_setups_are_blobs_and_one_setup_is_kept_once() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let setup = setup();
    let journals = store.journals(Durability::Group, about());
    let mut all = Vec::new();
    for name in ["a", "b"] {
        let mut journal = opened_in(&*journals, name).unwrap();
        let opening = RunOpening {
            room: RoomId::from(name),
            content: Some("x".repeat(50_000)),
            ..RunOpening::default()
        };
        let large = Event::UserAnswered {
            call: CallId(1),
            text: Some("é\"\n".repeat(20_000)),
            attachments: Vec::new(),
            passed: false,
        };
        let written = [
            record(0, 1, Event::RoomOpened { setup: Arc::clone(&setup), opening, secret: SECRET }),
            record(1, 2, large),
        ];
        append(&mut *journal, &written).unwrap();
        all.push((name, written));
    }
    for (name, expected) in all {
        let read: Vec<_> = records(temp.path(), name).into_iter().map(Arc::new).collect();
        assert_eq!(read, expected);
    }
    let sql = sql(temp.path());
    let count = |query: &str| sql.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT max(length(body)) < 1000 FROM events"), 1);
    // The setup and the answer are stored once, each opening by itself.
    assert_eq!(count("SELECT count(*) FROM blobs"), 4);
    assert_eq!(count("SELECT count(DISTINCT parts ->> 'setup') FROM events WHERE seq = 0"), 1);
}

#[test]
fn many_middling_fields_go_out_together() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let mut journal = run(&store, "a", 1);
    let (text, message) = ("y".repeat(20_000), "z".repeat(20_000));
    let answer = conclave_runtime::side_effect::SideEffectAnswer::Failed {
        cause: conclave_runtime::side_effect::FailureCause::Other,
        message,
    };
    let ended = record(1, 5, Event::SideEffectEnded { call: CallId(1), ordinal: 0, answer });
    let killed = record(2, 6, Event::TaskKilled { task: text.as_str().into(), reason: text });
    append(&mut *journal, &[ended, Arc::clone(&killed)]).unwrap();
    assert_eq!(records(temp.path(), "a")[2], *killed);
    let parts: String = sql(temp.path())
        .query_row("SELECT parts FROM events WHERE seq = 2", [], |row| row.get(0))
        .unwrap();
    assert!(parts.starts_with("{\"*\":"), "{parts}");
}

#[test]
fn attachments_are_read_back_at_once_and_after_the_end() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let blob = store.blobs().keep(b"\x89PNG", "image/png", Some("chart.png")).unwrap();
    assert_eq!(store.blobs().read(&blob.sha256).unwrap().as_deref(), Some(&b"\x89PNG"[..]));
    assert!(store.blobs().keep(&vec![0; (16 << 20) + 1], "image/png", None).is_err());
    assert!(store.blobs().keep(b"x", "nothing", None).is_err());
    drop(store);
    assert_eq!(
        StoreReader::open(temp.path()).unwrap().blob(&blob.sha256).unwrap().as_deref(),
        Some(&b"\x89PNG"[..])
    );
    let store = Store::open(temp.path()).unwrap();
    assert_eq!(store.blobs().read(&blob.sha256).unwrap().as_deref(), Some(&b"\x89PNG"[..]));
}

#[test]
fn a_clock_that_goes_back_changes_nothing_but_the_times() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let mut journal = run(&store, "a", 1);
    let back = record(1, 3, Event::Cancelled { reason: "late".to_owned() });
    let far = record(2, u64::MAX, Event::Cancelled { reason: "far".to_owned() });
    append(&mut *journal, &[back, far]).unwrap();
    let times: Vec<u64> = records(temp.path(), "a").iter().map(|record| record.at.0).collect();
    assert_eq!(times, [1_000, 3, u64::MAX]);
    assert!(damage(&StoreReader::open(temp.path()).unwrap().check().unwrap()).is_empty());
}

#[test]
fn the_lines_are_those_of_a_journal_of_lines() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    drop(run(&store, "a", 3));
    let lines = StoreReader::open(temp.path()).unwrap().lines(&RoomId::from("a")).unwrap();
    let read = conclave_core::journal::record::from_lines(&(lines.join("\n") + "\n")).unwrap();
    assert_eq!(read, records(temp.path(), "a"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_room_that_is_let_go_of_later_is_waited_for_and_holds_up_nobody() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let journals = store.journals(Durability::Group, about());
    let mut journal = journals.open(&RoomId::from("a")).unwrap().await.unwrap();
    append(&mut *journal, &[opened("a", "hello")]).unwrap();
    let (waits, started) = tokio::sync::oneshot::channel();
    let reopening = journals.reopen(&RoomId::from("a"));
    let reopening = tokio::spawn(async move {
        waits.send(()).unwrap();
        reopening.await
    });
    // On this single thread the test continues only when that task yields: it waits for the room
    // without blocking.
    started.await.unwrap();
    assert!(!reopening.is_finished());
    drop(journal);
    let reopened = reopening.await.unwrap().unwrap().unwrap();
    assert_eq!(reopened.records.len(), 1);
}
