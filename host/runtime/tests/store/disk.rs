//! Disks that are full or read-only, and files that were torn or changed.

use std::path::Path;

use conclave_runtime::event::Event;
use conclave_runtime::ids::{CallId, RoomId};
use conclave_runtime::store::{
    Durability, RunFilter, Store, StoreError, StoreOptions, StoreReader,
};

use crate::support::{
    about, append, copied, damage, entry, message_record, opened, opened_in, record, records,
    reopen, run, settle,
};

#[test]
fn a_full_disk_stops_the_room_and_a_reopened_store_goes_on() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open_with(
        temp.path(),
        &StoreOptions { most_bytes: Some(400 << 10), ..StoreOptions::default() },
    )
    .unwrap();
    let mut journal = run(&store, "a", 1);
    let text = "x".repeat(20_000);
    let (mut seq, failure) = (1, loop_until_full(&mut *journal, &text));
    assert_eq!(failure.1.cause.kind(), std::io::ErrorKind::StorageFull, "{}", failure.1);
    assert!(failure.1.to_string().contains(&temp.path().display().to_string()));
    seq += failure.0;
    // The failed record left a gap, so every later record of the room is refused, even a small one.
    assert!(append(&mut *journal, &[message_record(seq + 1, "small")]).is_err());
    assert!(append(&mut *journal, &[message_record(seq, "small")]).is_err());
    drop((journal, store));
    assert_eq!(
        records(temp.path(), "a").len() as u64,
        seq,
        "all that was acknowledged, and nothing else"
    );
    let store = Store::open(temp.path()).unwrap();
    let mut reopened = reopen(&store, "a");
    append(&mut *reopened.journal, &[message_record(seq, &text)]).unwrap();
    assert!(damage(&StoreReader::open(temp.path()).unwrap().check().unwrap()).is_empty());
}

/// Returns the number of records that fit, and the failure of the next.
fn loop_until_full(
    journal: &mut dyn conclave_runtime::journal::Journal,
    text: &str,
) -> (u64, conclave_runtime::journal::JournalFailure) {
    for count in 0..1_000 {
        if let Err(failure) = append(journal, &[message_record(1 + count, text)]) {
            return (count, failure);
        }
    }
    panic!("the disk was never full")
}

#[test]
fn what_nobody_waited_for_and_could_not_be_kept_is_said_when_the_run_settles() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open_with(
        temp.path(),
        &StoreOptions { most_bytes: Some(1), ..StoreOptions::default() },
    )
    .unwrap();
    let mut journal = opened_in(&*store.journals(Durability::Exit, about()), "a").unwrap();
    for seq in 0..50 {
        let record =
            if seq == 0 { opened("a", "x") } else { message_record(seq, &"x".repeat(30_000)) };
        if journal.append(&entry(&[record])).is_err() {
            return;
        }
    }
    let failure = futures_executor::block_on(journal.settle()).unwrap_err();
    assert_eq!(failure.cause.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn an_attachment_for_which_there_is_no_room_is_not_lost_silently() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open_with(
        temp.path(),
        &StoreOptions { most_bytes: Some(300 << 10), ..StoreOptions::default() },
    )
    .unwrap();
    let (mut refers, mut other) = (run(&store, "a", 1), run(&store, "b", 1));
    let blob = store.blobs().keep(&vec![7; 1 << 20], "image/png", None).unwrap();
    let answered = |seq| {
        record(
            seq,
            2,
            Event::UserAnswered {
                call: CallId(1),
                text: None,
                attachments: vec![blob.clone()],
                passed: false,
            },
        )
    };
    // The other rooms must not fail with it.
    append(&mut *other, &[message_record(1, "nothing of it")]).unwrap();
    let failure = append(&mut *refers, &[answered(1)]).unwrap_err();
    assert_eq!(failure.cause.kind(), std::io::ErrorKind::StorageFull);
    assert!(
        append(&mut *refers, &[message_record(1, "small")]).is_err(),
        "nothing of the room is taken after it"
    );
    append(&mut *other, &[message_record(2, "on")]).unwrap();
    store.blobs().keep(b"small", "text/plain", None).unwrap();
    append(&mut *other, &[message_record(3, "on")]).unwrap();
    assert!(append(&mut *other, &[answered(4)]).is_err());
    drop((refers, other, store));
    assert_eq!((records(temp.path(), "a").len(), records(temp.path(), "b").len()), (1, 4));
    assert_eq!(
        damage(&StoreReader::open(temp.path()).unwrap().check().unwrap()),
        Vec::<String>::new()
    );
}

/// A conflicting record of room `a` makes its next record fail.
#[test]
fn nothing_of_a_room_is_kept_after_a_record_that_was_not() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let (mut fails, mut other) = (run(&store, "a", 1), run(&store, "b", 1));
    let sql = crate::support::sql(temp.path());
    let odd = "INSERT INTO events SELECT 1000000, room, 1, at, kind, principal, rules, body, parts, hash FROM events WHERE room = 'a'";
    assert_eq!(sql.execute(odd, []).unwrap(), 1);
    // Appended without a wait in between, the records share a commit.
    let handed: Vec<_> =
        (1..4).map(|seq| fails.append(&entry(&[message_record(seq, "x")]))).collect();
    let beside = other.append(&entry(&[message_record(1, "x")])).unwrap();
    settle(beside).unwrap();
    assert!(handed.into_iter().all(|handed| handed.and_then(settle).is_err()));
    let exists = |seq: i64| {
        sql.query_row("SELECT count(*) FROM events WHERE room = 'a' AND seq >= ?", [seq], |row| {
            row.get::<_, i64>(0)
        })
    };
    assert_eq!((exists(1).unwrap(), exists(2).unwrap()), (1, 0));
    assert_eq!(records(temp.path(), "b").len(), 2);
}

#[test]
fn what_waits_while_the_store_breaks_is_not_said_to_be_kept() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    let exit = store.journals(Durability::Exit, about());
    let (mut breaks, mut waits) = (run(&store, "a", 1), opened_in(&*exit, "b").unwrap());
    waits.append(&entry(&[opened("b", "x")])).unwrap();
    futures_executor::block_on(waits.settle()).unwrap();
    let sql = crate::support::sql(temp.path());
    // The transaction blocks the thread while more records arrive, behind or within the group that
    // it has taken.
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let broken = breaks.append(&entry(&[message_record(1, "x")])).unwrap();
    waits.append(&entry(&[message_record(1, "y")])).unwrap();
    let settled = waits.settle();
    sql.execute_batch(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE events (' WHERE name = 'events';
         PRAGMA schema_version = 1000; COMMIT",
    )
    .unwrap();
    let failure = settle(broken).unwrap_err();
    assert_eq!(failure.cause.kind(), std::io::ErrorKind::InvalidData, "{failure}");
    assert!(futures_executor::block_on(settled).is_err());
    assert!(futures_executor::block_on(waits.settle()).is_err());
    assert!(waits.append(&entry(&[message_record(2, "y")])).is_err());
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_be_written_can_be_read() {
    use std::os::unix::fs::PermissionsExt;

    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(&folder).unwrap();
    drop((run(&store, "a", 3), store));
    for (name, mode) in [("log.db", 0o400), ("lock", 0o400), ("", 0o500)] {
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(records(&folder, "a").len(), 3);
    if std::fs::write(folder.join("probe"), "").is_err() {
        // The permissions do not bind root, and tests may run as root.
        assert!(matches!(Store::open(&folder).map(drop), Err(StoreError::Other { .. })));
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// Returns a store with small pages, so that there are few places to cut: two records are in its
/// file, four in its write-ahead log.
fn small(folder: &Path) -> Store {
    std::fs::create_dir_all(folder).unwrap();
    let sql = rusqlite::Connection::open(folder.join("log.db")).unwrap();
    sql.execute_batch("PRAGMA page_size = 512; VACUUM").unwrap();
    drop(sql);
    let store = Store::open(folder).unwrap();
    drop((run(&store, "a", 2), store));
    let store = Store::open(folder).unwrap();
    let mut reopened = reopen(&store, "a");
    for seq in 2..4 {
        append(&mut *reopened.journal, &[message_record(seq, "more")]).unwrap();
    }
    std::mem::forget(reopened.journal);
    store
}

#[test]
fn a_log_that_is_cut_anywhere_gives_a_prefix() {
    let temp = tempfile::tempdir().unwrap();
    let complete = temp.path().join("whole");
    let store = small(&complete);
    let cut = temp.path().join("cut");
    copied(&complete, &cut);
    let log = std::fs::read(cut.join("log.db-wal")).unwrap();
    let file = std::fs::read(cut.join("log.db")).unwrap();
    let all = records(&complete, "a");
    assert_eq!(all.len(), 4);
    let shorter = std::fs::OpenOptions::new().write(true).open(cut.join("log.db-wal")).unwrap();
    let mut shortest = all.len();
    for length in (0..=log.len()).rev() {
        shorter.set_len(length as u64).unwrap();
        let _ = std::fs::remove_file(cut.join("log.db-shm"));
        let read = records(&cut, "a");
        assert!(read.len() >= 2, "what was in the file is lost at {length}");
        assert!(read.len() <= shortest, "more at {length} than at a longer cut");
        assert_eq!(read[..], all[..read.len()], "at {length}");
        shortest = read.len();
        if length % 211 == 0 {
            goes_on(&temp.path().join("on"), &file, &log[..length], read.len());
        }
    }
    assert_eq!(shortest, 2);
    std::mem::forget(store);
}

/// Checks that the remaining files can be opened for writing if they can be read.
fn goes_on(folder: &Path, file: &[u8], log: &[u8], length: usize) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("log.db"), file).unwrap();
    std::fs::write(folder.join("log.db-wal"), log).unwrap();
    let _ = std::fs::remove_file(folder.join("reached"));
    let store = Store::open(folder).unwrap();
    let mut reopened = reopen(&store, "a");
    assert_eq!(reopened.records.len(), length);
    append(&mut *reopened.journal, &[message_record(length as u64, "on")]).unwrap();
    assert_eq!(
        damage(&StoreReader::open(folder).unwrap().check().unwrap()),
        Vec::<String>::new(),
        "at {}",
        log.len()
    );
}

#[test]
fn a_changed_byte_is_found_or_was_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let complete = temp.path().join("whole");
    let store = Store::open(&complete).unwrap();
    drop((run(&store, "a", 6), store));
    let bytes = std::fs::read(complete.join("log.db")).unwrap();
    let all = records(&complete, "a");
    let flipped = temp.path().join("flipped");
    std::fs::create_dir(&flipped).unwrap();
    let (mut found, mut nothing) = (0, 0);
    for place in (0..bytes.len()).step_by(211) {
        let mut changed = bytes.clone();
        changed[place] ^= 0x55;
        for name in ["log.db-shm", "log.db-wal"] {
            let _ = std::fs::remove_file(flipped.join(name));
        }
        std::fs::write(flipped.join("log.db"), changed).unwrap();
        let reader = StoreReader::open(&flipped);
        let is_found = reader.as_ref().map_or(true, |reader| {
            reader.check().map_or(true, |checked| !damage(&checked).is_empty())
        });
        // The result is never a panic, and never other records than the written ones.
        let read = reader.and_then(|reader| reader.records(&RoomId::from("a")));
        assert!(
            read.as_ref()
                .map_or(true, |read| read.len() <= all.len() && read[..] == all[..read.len()]),
            "at {place}"
        );
        if is_found {
            found += 1
        } else {
            nothing += 1
        }
        assert!(is_found || read.is_ok_and(|read| read == all), "at {place}");
    }
    assert!(found > 10, "{found} found, {nothing} where nothing is");
}

#[test]
fn what_is_no_store_of_ours_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    assert!(matches!(
        StoreReader::open(temp.path().join("none")).map(drop),
        Err(StoreError::Missing { .. })
    ));
    let garbage = temp.path().join("garbage");
    std::fs::create_dir(&garbage).unwrap();
    std::fs::write(garbage.join("log.db"), "this is no database, however long it is".repeat(100))
        .unwrap();
    assert!(matches!(Store::open(&garbage).map(drop), Err(StoreError::Damaged { .. })));
    assert!(matches!(StoreReader::open(&garbage).map(drop), Err(StoreError::Damaged { .. })));
    let newer = temp.path().join("newer");
    drop(Store::open(&newer).unwrap());
    crate::support::sql(&newer).pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Store::open(&newer).map(drop), Err(StoreError::Newer { version: 99, .. })));
    assert!(matches!(
        StoreReader::open(&newer).map(drop),
        Err(StoreError::Newer { version: 99, .. })
    ));
}

#[test]
fn a_backup_taken_while_runs_go_on_is_a_store_of_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("store");
    let store = Store::open(&folder).unwrap();
    let mut journal = run(&store, "a", 3);
    let copy = temp.path().join("copy");
    let reader = StoreReader::open(&folder).unwrap();
    reader.backup(&copy).unwrap();
    assert!(reader.backup(&copy).is_err(), "nothing is written over");
    append(&mut *journal, &[message_record(3, "after")]).unwrap();
    assert_eq!(records(&copy, "a").len(), 3);
    let checked = StoreReader::open(&copy).unwrap().check().unwrap();
    assert_eq!(damage(&checked), Vec::<String>::new());
    let second = Store::open(&copy).unwrap();
    settle(reopen(&second, "a").journal.append(&entry(&[message_record(3, "x")])).unwrap())
        .unwrap();
    assert_eq!(StoreReader::open(&copy).unwrap().runs(&RunFilter::default()).unwrap().len(), 1);
}

#[cfg(unix)]
#[test]
fn the_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("deep/store");
    let store = Store::open(&folder).unwrap();
    let journal = run(&store, "a", 2);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(names.len() >= 4, "{names:?}");
    names.iter().for_each(|path| assert_eq!(mode(path), 0o600, "{}", path.display()));
    StoreReader::open(&folder).unwrap().backup(&temp.path().join("copy")).unwrap();
    assert_eq!(
        (mode(&temp.path().join("copy")), mode(&temp.path().join("copy/log.db"))),
        (0o700, 0o600)
    );
    drop((journal, store));
    std::fs::set_permissions(folder.join("log.db"), std::fs::Permissions::from_mode(0o666))
        .unwrap();
    assert!(Store::open(&folder).is_err(), "others could have written it");
}

/// Acknowledged records must not be lost silently because SQLite stops reading its log.
#[test]
fn a_changed_byte_of_the_log_of_a_process_that_was_killed_is_found() {
    let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(temp.path()).unwrap();
    let journal = run(&store, "a", 40);
    // A copy of the files, as a kill leaves them.
    copied(temp.path(), other.path());
    drop((journal, store));
    let log = other.path().join("log.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let checked = StoreReader::open(other.path()).unwrap().check().unwrap();
    assert!(checked.problems[0].contains("write-ahead log"), "{:?}", damage(&checked));
    let refused = Store::open(other.path()).map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing was written over");
}

/// Copies the present files of a store, with the note of the newest durable line.
fn as_a_kill_leaves_it(from: &Path, to: &Path) {
    copied(from, to);
    std::fs::copy(from.join("reached"), to.join("reached")).unwrap();
}

/// Returns the contents of the files. An empty one counts as missing, because readers leave an
/// empty log behind.
fn files(folder: &Path) -> Vec<Option<Vec<u8>>> {
    ["log.db", "log.db-wal", "reached"]
        .map(|name| std::fs::read(folder.join(name)).ok().filter(|bytes| !bytes.is_empty()))
        .into()
}

#[test]
fn a_log_that_was_cut_off_removed_or_emptied_is_found_and_nothing_is_written_over() {
    let (temp, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(temp.path()).unwrap();
    let journal = run(&store, "a", 40);
    let restore = || as_a_kill_leaves_it(temp.path(), cut.path());
    let found = |how: &str| {
        let _ = std::fs::remove_file(cut.path().join("log.db-shm"));
        let before = files(cut.path());
        match StoreReader::open(cut.path()) {
            Ok(reader) => {
                for checked in [reader.verify(&[]).unwrap(), reader.check().unwrap()] {
                    assert!(
                        damage(&checked).first().is_some_and(|what| what.contains("acknowledged")),
                        "{how}: {:?}",
                        damage(&checked)
                    );
                }
            }
            Err(StoreError::Damaged { what, .. }) => {
                assert!(what.contains("acknowledged"), "{how}: {what}")
            }
            Err(error) => panic!("{how}: {error}"),
        }
        match Store::open(cut.path()).map(drop) {
            Err(StoreError::Damaged { what, .. }) => {
                assert!(what.contains("acknowledged"), "{how}: {what}")
            }
            other => panic!("{how}: {other:?}"),
        }
        assert!(files(cut.path()) == before, "{how}: something was written over");
    };
    restore();
    let length = std::fs::metadata(cut.path().join("log.db-wal")).unwrap().len();
    for part in 0..12 {
        restore();
        let log =
            std::fs::OpenOptions::new().write(true).open(cut.path().join("log.db-wal")).unwrap();
        log.set_len(length * part / 12).unwrap();
        found(&format!("cut at {part} of 12"));
    }
    restore();
    std::fs::remove_file(cut.path().join("log.db-wal")).unwrap();
    found("the log was removed");
    for name in ["log.db-wal", "log.db"] {
        restore();
        std::fs::write(cut.path().join(name), "").unwrap();
        found(&format!("{name} was emptied"));
    }
    restore();
    for name in ["log.db", "log.db-wal"] {
        std::fs::remove_file(cut.path().join(name)).unwrap();
    }
    found("both were removed");
    // A clean end, followed by a restore of an older state.
    restore();
    drop((journal, store));
    let (older, newer) =
        (std::fs::read(temp.path().join("log.db")).unwrap(), temp.path().join("reached"));
    let store = Store::open(temp.path()).unwrap();
    drop((run(&store, "b", 3), store));
    let _ = std::fs::remove_file(cut.path().join("log.db-wal"));
    std::fs::write(cut.path().join("log.db"), older).unwrap();
    std::fs::copy(newer, cut.path().join("reached")).unwrap();
    found("an older file was put back");
}

/// A process that is killed before the commit of its tables leaves frames in the write-ahead log.
#[test]
fn a_store_whose_creation_was_interrupted_is_missing_for_readers_and_is_created_by_the_next_writer()
{
    let (temp, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let creating = rusqlite::Connection::open(temp.path().join("log.db")).unwrap();
    creating.pragma_update(None, "journal_mode", "WAL").unwrap();
    creating.execute_batch("CREATE TABLE other (a); INSERT INTO other VALUES (1)").unwrap();
    let log = std::fs::read(temp.path().join("log.db-wal")).unwrap();
    std::fs::copy(temp.path().join("log.db"), cut.path().join("log.db")).unwrap();
    // Torn within its first commit.
    let torn = &log[..32 + 4_120 + 100];
    std::fs::write(cut.path().join("log.db-wal"), torn).unwrap();
    for _ in 0..2 {
        assert!(matches!(StoreReader::open(cut.path()).map(drop), Err(StoreError::Missing { .. })));
    }
    // Frames behind a header that SQLite rejects are no torn end.
    let mut changed = log.clone();
    changed[9] ^= 1;
    std::fs::write(cut.path().join("log.db-wal"), changed).unwrap();
    assert!(matches!(StoreReader::open(cut.path()).map(drop), Err(StoreError::Damaged { .. })));
    std::fs::write(cut.path().join("log.db-wal"), torn).unwrap();
    let store = Store::open(cut.path()).unwrap();
    drop((run(&store, "a", 3), store));
    assert_eq!(records(cut.path(), "a").len(), 3);
}

#[test]
fn a_note_that_is_behind_torn_or_gone_is_no_damage() {
    let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(temp.path()).unwrap();
    let mut journal = run(&store, "a", 3);
    let behind = std::fs::read(temp.path().join("reached")).unwrap();
    append(&mut *journal, &[message_record(3, "more")]).unwrap();
    let now = std::fs::read(temp.path().join("reached")).unwrap();
    assert_ne!(behind, now, "each durable commit is noted");
    let mut torn = now.clone();
    torn[10..].copy_from_slice(&[0; 256][..now.len() - 10]);
    for note in [&behind[..], &torn, &now[..30], b"", &now] {
        copied(temp.path(), other.path());
        std::fs::write(other.path().join("reached"), note).unwrap();
        assert_eq!(
            damage(&StoreReader::open(other.path()).unwrap().check().unwrap()),
            Vec::<String>::new()
        );
        drop(Store::open(other.path()).unwrap());
        assert_eq!(records(other.path(), "a").len(), 4);
        std::fs::remove_dir_all(other.path()).unwrap();
        std::fs::create_dir(other.path()).unwrap();
    }
}

/// A power cut may take only records that were never acknowledged as durable.
#[test]
fn what_was_never_synced_may_be_missing() {
    let (temp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(temp.path()).unwrap();
    let first = run(&store, "a", 3);
    copied(temp.path(), other.path());
    let mut unsynced = opened_in(&*store.journals(Durability::Exit, about()), "b").unwrap();
    for seq in 0..5 {
        let record = if seq == 0 { opened("b", "x") } else { message_record(seq, "y") };
        append(&mut *unsynced, &[record]).unwrap();
    }
    // The newest note beside the log as it was last synced.
    std::fs::copy(temp.path().join("reached"), other.path().join("reached")).unwrap();
    drop(Store::open(other.path()).unwrap());
    assert_eq!(records(other.path(), "a").len(), 3);
    futures_executor::block_on(unsynced.settle()).unwrap();
    copied(temp.path(), other.path());
    std::fs::copy(temp.path().join("reached"), other.path().join("reached")).unwrap();
    let _ = std::fs::remove_file(other.path().join("log.db-wal"));
    assert!(
        matches!(Store::open(other.path()).map(drop), Err(StoreError::Damaged { .. })),
        "settled, it is held to"
    );
    drop((first, unsynced, store));
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_may_write_into_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("shared");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Store::open(&folder).map(drop).unwrap_err().to_string();
    assert!(refused.contains("chmod 700"), "{refused}");
}

/// The setup of a run is in a blob of its own, and the audit covers it.
#[test]
fn a_changed_payload_is_found_by_the_audit() {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    drop((run(&store, "a", 3), store));
    let connection = rusqlite::Connection::open(temp.path().join("log.db")).unwrap();
    connection.execute("UPDATE blobs SET bytes = zeroblob(length(bytes))", []).unwrap();
    drop(connection);
    assert!(!damage(&StoreReader::open(temp.path()).unwrap().verify(&[]).unwrap()).is_empty());
}
