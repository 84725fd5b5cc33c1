//! Processes that end cleanly or not, and two processes that open one store.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::store::{RunFilter, RunState, Store, StoreError, StoreReader, all};

use crate::support::{
    StorePlace, append, copied, damage, ended, message_record, open, opened, records, reopen, run,
    sql,
};

const FOLDER: &str = "CONCLAVE_ENDS_FOLDER";

/// Starts this test program as another process, which prints a line for each durable record.
fn another(folder: &Path) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["ends::another_process", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

#[test]
#[ignore = "the other process of the tests below"]
fn another_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let store = Store::open(Path::new(&folder)).unwrap();
    let mut journal = open(&store, "a");
    append(&mut *journal, &[opened("a", "x")]).unwrap();
    for seq in 1.. {
        append(
            &mut *journal,
            &[message_record(seq, &"y".repeat(usize::try_from(seq % 3_000).unwrap()))],
        )
        .unwrap();
        println!("kept {seq}");
    }
}

fn read_until(out: &mut impl BufRead, least: u64) -> u64 {
    for line in out.lines() {
        let line = line.unwrap();
        if let Some(seq) = line.strip_prefix("kept ").and_then(|seq| seq.parse().ok())
            && seq >= least
        {
            return seq;
        }
    }
    panic!("the other process ended early")
}

#[test]
fn two_processes_never_write_one_store_and_one_that_is_killed_loses_nothing_acknowledged() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("1");
    let mut acknowledged = 0;
    for round in 1..=3 {
        let (mut child, mut out) = another(&folder);
        acknowledged = read_until(&mut out, 20 * round);
        match Store::open(&folder).map(drop) {
            Err(StoreError::InUse { who, .. }) => {
                assert!(who.contains(&child.id().to_string()), "{who}")
            }
            other => panic!("{other:?}"),
        }
        // The store can be read meanwhile.
        assert_eq!(
            StoreReader::open(&folder).unwrap().runs(&RunFilter::default()).unwrap()[0].state,
            RunState::Running
        );
        let second = Store::open_free(temp.path()).unwrap();
        assert_eq!(second.folder(), Some(&*temp.path().join("2")));
        assert_eq!(all(temp.path()), [folder.clone(), temp.path().join("2")]);
        drop(second);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            StoreReader::open(&folder).unwrap().runs(&RunFilter::default()).unwrap()[0].state,
            RunState::Interrupted
        );
        assert!(records(&folder, "a").len() as u64 > acknowledged);
        let store = Store::open(&folder).unwrap();
        assert_eq!(
            damage(&StoreReader::open(&folder).unwrap().check().unwrap()),
            Vec::<String>::new()
        );
        drop(store);
        std::fs::remove_dir_all(&folder).unwrap();
    }
    assert!(acknowledged >= 60);
}

#[test]
fn an_end_as_it_should_be_leaves_one_file_and_any_other_a_mark() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(&folder).unwrap();
    let journal = run(&store, "a", 3);
    let cut_off = temp.path().join("cut-off");
    copied(&folder, &cut_off);
    drop(store);
    assert!(Store::open(&folder).is_err(), "a journal still holds it");
    drop(journal);
    assert!(!folder.join("log.db-wal").exists());
    let open = |folder: &Path| {
        sql(folder)
            .query_row("SELECT value FROM meta WHERE name = 'open'", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!((open(&folder), open(&cut_off)), (0, 1));
    assert_eq!(records(&cut_off, "a").len(), 3);
    drop(Store::open(&cut_off).unwrap());
    assert_eq!(open(&cut_off), 0);
}

#[test]
fn the_pages_are_looked_at_after_an_end_that_was_none() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    drop((run(&store, "a", 200), store));
    sql(temp.path())
        .execute_batch(
            "UPDATE meta SET value = 1 WHERE name = 'open'; PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .unwrap();
    let path = temp.path().join("log.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // Overwrites the page headers of the rows, so that their page type is invalid.
    let pages = bytes.len() / 4_096;
    (pages / 2..pages).for_each(|page| bytes[page * 4_096..page * 4_096 + 64].fill(0xee));
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(Store::open(temp.path()).map(drop), Err(StoreError::Damaged { .. })));
}

#[test]
fn a_stop_is_noted_in_the_rooms_that_the_process_runs() {
    let place = StorePlace::new();
    let store = Store::open(place.address()).unwrap();
    ended(&store, "over");
    drop(run(&store, "released", 1));
    let (mut one, two) = (run(&store, "one", 1), run(&store, "two", 1));
    store.note_stop(Millis(1)).unwrap();
    // The newest note counts.
    store.note_stop(Millis(9_000)).unwrap();
    drop((one, two));
    let stopped = |room: &str| reopen(&store, room).stopped;
    assert_eq!(
        ["one", "two", "released"].map(stopped),
        [Some(Millis(9_000)), Some(Millis(9_000)), None]
    );
    drop(store);
    // A process that did not run a room says nothing about it.
    let store = Store::open(place.address()).unwrap();
    one = run(&store, "three", 1);
    store.note_stop(Millis(20_000)).unwrap();
    let reader = StoreReader::open(place.address()).unwrap();
    let until =
        |room: &str| reader.run(&RoomId::from(room)).unwrap().map(|row| row.until(Millis(30_000)));
    assert_eq!(until("three"), Some(Millis(30_000)), "its process runs");
    assert_eq!(until("one"), Some(Millis(9_000)), "its process stopped then");
    drop(one);
    let stopped = |room: &str| reopen(&store, room).stopped;
    assert_eq!(["one", "three"].map(stopped), [Some(Millis(9_000)), Some(Millis(20_000))]);
}
