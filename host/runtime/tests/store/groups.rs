//! Records of many rooms share a commit, and waiting rooms are notified after it.

use std::sync::{Arc, Barrier};

use conclave_runtime::store::{Durability, RunFilter, Store, StoreReader};
use futures_executor::block_on;

use crate::support::{
    StorePlace, about, append, entry, message_record, of_epoch, opened, opened_in, records,
};

const ROOMS: usize = 64;
const EACH: u64 = 20;

#[test]
fn sixty_four_rooms_share_their_commits() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let start = Arc::new(Barrier::new(ROOMS));
    let rooms = (0..ROOMS).map(|room| {
        let (journals, start) = (store.journals(Durability::Group, about()), Arc::clone(&start));
        std::thread::spawn(move || {
            let name = format!("room{room}");
            let mut journal = opened_in(&*journals, &name).unwrap();
            start.wait();
            append(&mut *journal, &[opened(&name, "x")]).unwrap();
            for seq in 1..EACH {
                append(&mut *journal, &[message_record(seq, "y")]).unwrap();
            }
        })
    });
    rooms.collect::<Vec<_>>().into_iter().for_each(|room| room.join().unwrap());
    let written = store.written();
    assert_eq!(written.records, ROOMS as u64 * EACH);
    assert!(written.commits < written.records / 2, "{written:?}");
    let reader = StoreReader::open(place.address()).unwrap();
    assert_eq!(reader.runs(&RunFilter::default()).unwrap().len(), ROOMS);
    for room in 0..ROOMS {
        let stored = records(place.address(), &format!("room{room}"));
        assert_eq!(stored.len() as u64, EACH);
    }
    assert_eq!(reader.verify(&[]).unwrap().records, ROOMS as u64 * EACH);
}

#[test]
fn more_than_the_queue_holds_is_taken_in_its_time() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut journal = opened_in(&*store.journals(Durability::Exit, about()), "a").unwrap();
    journal.append(&entry(&of_epoch(&*journal, &[opened("a", "x")]))).unwrap();
    for seq in 1..10_000 {
        // As the driver does before each append.
        block_on(journal.ready()).unwrap();
        journal.append(&entry(&of_epoch(&*journal, &[message_record(seq, "y")]))).unwrap();
    }
    block_on(journal.settle()).unwrap();
    assert_eq!(records(place.address(), "a").len(), 10_000);
}

#[test]
fn an_answer_that_nobody_waits_for_is_no_hindrance() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    let mut journal = opened_in(&*store.journals(Durability::Group, about()), "a").unwrap();
    drop(journal.append(&entry(&of_epoch(&*journal, &[opened("a", "x")]))).unwrap());
    append(&mut *journal, &[message_record(1, "y")]).unwrap();
    block_on(journal.settle()).unwrap();
    assert_eq!(records(place.address(), "a").len(), 2);
}

/// A file takes records of `exit` without an fsync. Where hosts share the store, such records wait
/// for their commit.
mod files {
    use super::*;

    #[test]
    fn what_nobody_waits_for_is_committed_all_the_same_and_without_an_fsync() {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::open(temp.path()).unwrap();
        let mut journal = opened_in(&*store.journals(Durability::Exit, about()), "a").unwrap();
        journal.append(&entry(&[opened("a", "x")])).unwrap();
        // The record is committed soon without a waiting caller.
        while records(temp.path(), "a").is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(store.written().synced, 0);
        block_on(journal.settle()).unwrap();
        assert_eq!(store.written().synced, 1);
    }
}
