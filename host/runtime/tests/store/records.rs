//! Appended records are read back.

use std::collections::BTreeSet;
use std::sync::Arc;

use conclave_runtime::event::{Event, RunOpening};
use conclave_runtime::ids::{CallId, Millis, RoomId};
use conclave_runtime::journal::Keeping;
use conclave_runtime::store::{Durability, Store, StoreReader};
use futures_executor::block_on;

use crate::support::{
    SECRET, StorePlace, about, append, damage, entry, message_record, of_epoch, opened, opened_in,
    record, records, reopened_in, run, settle, setup, without_owned,
};

#[test]
fn every_durability_gives_back_what_was_appended() {
    for durability in [Durability::Sync, Durability::Group, Durability::Exit] {
        let place = StorePlace::new();
        let store = Store::open(place.address()).unwrap();
        let journals = store.journals(durability, about());
        let mut journal = opened_in(&*journals, "a").unwrap();
        let all = [opened("a", "hello"), message_record(1, "one"), message_record(2, "two")];
        let all = of_epoch(&*journal, &all);
        let keeping = journal.append(&entry(&all[..1])).unwrap();
        // Where hosts share the store, no record is answered before its commit.
        let is_answered = durability != Durability::Exit || journals.survive_power_cuts();
        let is_so = matches!(
            (durability, is_answered, &keeping),
            (Durability::Sync, true, Keeping::First(_))
                | (Durability::Group | Durability::Exit, true, Keeping::Soon(_))
                | (Durability::Exit, false, Keeping::Kept)
        );
        assert!(is_so, "{durability:?}");
        settle(keeping).unwrap();
        settle(journal.append(&entry(&all[1..])).unwrap()).unwrap();
        block_on(journal.settle()).unwrap();
        let read: Vec<_> = records(place.address(), "a").into_iter().map(Arc::new).collect();
        assert_eq!(read, all, "{durability:?}");
        assert!(records(place.address(), "b").is_empty());
    }
}

#[test]
fn a_room_is_opened_once_and_gone_on_with_after_it_was_let_go() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
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
    let next = reopened.records.len() as u64;
    assert_eq!(without_owned(reopened.records).len(), 3);
    assert!(append(&mut *reopened.journal, &[message_record(next + 4, "a gap")]).is_err());
    append(&mut *reopened.journal, &[message_record(next, "three")]).unwrap();
    assert_eq!(without_owned(records(place.address(), "a")).len(), 4);
    assert!(reopened_in(&*journals, "b").unwrap().is_none());
}

#[test]
fn large_fields_and_setups_are_blobs_and_one_setup_is_kept_once() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
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
        all.push((name, of_epoch(&*journal, &written)));
    }
    for (name, expected) in all {
        let read: Vec<_> = records(place.address(), name).into_iter().map(Arc::new).collect();
        assert_eq!(read, expected);
    }
    assert_eq!(place.count("events", "length(body) >= 1000"), 0);
    // The setup and the answer are stored once, each opening by itself.
    assert_eq!(place.count("blobs", "true"), 4);
    let parts = place.texts("SELECT parts FROM events WHERE seq = 0");
    let setups: BTreeSet<String> = parts
        .iter()
        .map(|parts| serde_json::from_str::<serde_json::Value>(parts).unwrap()["setup"].to_string())
        .collect();
    assert_eq!((parts.len(), setups.len()), (2, 1));
}

#[test]
fn many_middling_fields_go_out_together() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut journal = run(&store, "a", 1);
    let (text, message) = ("y".repeat(20_000), "z".repeat(20_000));
    let answer = conclave_runtime::side_effect::SideEffectAnswer::Failed {
        cause: conclave_runtime::side_effect::FailureCause::Other,
        message,
    };
    let ended = record(1, 5, Event::SideEffectEnded { call: CallId(1), ordinal: 0, answer });
    let killed = record(2, 6, Event::TaskKilled { task: text.as_str().into(), reason: text });
    append(&mut *journal, &[ended, Arc::clone(&killed)]).unwrap();
    let killed = of_epoch(&*journal, &[killed]).remove(0);
    assert_eq!(records(place.address(), "a")[2], *killed);
    let parts = place.texts("SELECT parts FROM events WHERE seq = 2").remove(0);
    assert!(parts.starts_with("{\"*\":"), "{parts}");
}

#[test]
fn attachments_are_read_back_at_once_and_after_the_end() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let blob = store.blobs().keep(b"\x89PNG", "image/png", Some("chart.png")).unwrap();
    assert_eq!(store.blobs().read(&blob.sha256).unwrap().as_deref(), Some(&b"\x89PNG"[..]));
    assert!(store.blobs().keep(&vec![0; (16 << 20) + 1], "image/png", None).is_err());
    assert!(store.blobs().keep(b"x", "nothing", None).is_err());
    drop(store);
    assert_eq!(
        StoreReader::open(place.address()).unwrap().blob(&blob.sha256).unwrap().as_deref(),
        Some(&b"\x89PNG"[..])
    );
    let store = Store::open(place.address()).unwrap();
    assert_eq!(store.blobs().read(&blob.sha256).unwrap().as_deref(), Some(&b"\x89PNG"[..]));
}

#[test]
fn a_clock_that_goes_back_changes_nothing_but_the_times() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut journal = run(&store, "a", 1);
    let back = record(1, 3, Event::Cancelled { reason: "late".to_owned() });
    let far = record(2, u64::MAX, Event::Cancelled { reason: "far".to_owned() });
    append(&mut *journal, &[back, far]).unwrap();
    let times: Vec<u64> = records(place.address(), "a").iter().map(|record| record.at.0).collect();
    assert_eq!(times, [1_000, 3, u64::MAX]);
    assert!(damage(&StoreReader::open(place.address()).unwrap().check().unwrap()).is_empty());
}

#[test]
fn the_lines_are_those_of_a_journal_of_lines() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    drop(run(&store, "a", 3));
    let lines = StoreReader::open(place.address()).unwrap().lines(&RoomId::from("a")).unwrap();
    let read = conclave_core::journal::record::from_lines(&(lines.join("\n") + "\n")).unwrap();
    assert_eq!(read, records(place.address(), "a"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_room_that_is_let_go_of_later_is_waited_for_and_holds_up_nobody() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let journals = store.journals(Durability::Group, about());
    let mut journal = journals.open(&RoomId::from("a")).unwrap().await.unwrap();
    append(&mut *journal, &[opened("a", "hello")]).unwrap();
    let (waits, started) = tokio::sync::oneshot::channel();
    let reopening = journals.reopen(&RoomId::from("a"), Millis(1_000));
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
    assert_eq!(without_owned(reopened.records).len(), 1);
}
