mod blobs;

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use conclave_core::types::durability::Durability;
use conclave_core::types::ids::CallId;
use conclave_core::types::outcome::{Outcome, Status};
use conclave_core::types::usage::Spent;

use super::super::queue::{Front, NewRoom, RoomWriting};
use super::*;
use crate::storage::store::chain::{ChainHead, hex};
use crate::storage::store::postgres::make_first_format;
use crate::storage::store::record::part;
use crate::storage::store::{StoreAddress, StoreReader, TestDatabase};

mod durability;
mod run_records;

fn engine(database: &TestDatabase, host: &str) -> PostgresEngine {
    let entry = HostEntry { host: host.to_owned(), ..HostEntry::default() };
    PostgresEngine::open(&database.address, entry).unwrap()
}

fn write(room: &str, epoch: u64, seqs: std::ops::Range<u64>) -> Write {
    let row = |seq: u64| EventRow {
        seq,
        at: 1_000 + seq,
        principal: "ada".into(),
        rules: RULES,
        epoch,
        body: format!("{{\"event\":\"sent\",\"seq\":{seq},\"text\":\"ä\\u0000\"}}"),
        parts: (seq == 1).then(|| "{}".to_owned()),
    };
    Write {
        writing: RoomWriting::new(RoomId::from(room)),
        front: (seqs.start == 0).then(|| Front {
            entry: "main".to_owned(),
            agents: "[\"a\"]".to_owned(),
            text: "be\0gin".to_owned(),
        }),
        rows: seqs.map(row).collect(),
        parts: Vec::new(),
        waits: Vec::new(),
        new_room: Arc::new(NewRoom {
            durability: Durability::Group.as_str(),
            config: None,
            command: "run".to_owned(),
            locked: true,
            approvals: String::new(),
            questions: String::new(),
            pool: None,
        }),
        inbound: None,
        begins: false,
        outcome: None,
        spent: Spent { turns: 2, ..Spent::default() },
        durable: true,
        answer: None,
    }
}

fn group(writes: &[Write]) -> CommitGroup<'_> {
    CommitGroup { writes: writes.iter().collect(), ..CommitGroup::default() }
}

fn commit(engine: &mut PostgresEngine, writes: &[Write]) -> Vec<(usize, Refusal)> {
    engine.commit(&group(writes)).unwrap().refused
}

fn take(engine: &mut PostgresEngine, room: &str) -> Taken {
    engine.take(&RoomId::from(room), Millis(0)).unwrap()
}

/// Checks that each chain is the one of chain.rs, over the records of the table. Returns the number
/// of chains.
fn check_chains(database: &TestDatabase) -> usize {
    let link = database.link();
    let heads = link.rows("SELECT chain, number, hash FROM chains ORDER BY chain", &[]).unwrap();
    let lines = "SELECT audit.number, audit.room, audit.seq, audit.at, audit.record, audit.hash,
         events.hash FROM audit JOIN events USING (chain, number) WHERE chain = ?1 ORDER BY number";
    for (row, expected) in heads.iter().zip(1_i64..) {
        assert_eq!(row.get::<_, i64>(0), expected);
        let mut head = ChainHead::default();
        for row in &link.rows(lines, &[&expected]).unwrap() {
            let record: Vec<u8> = row.get(4);
            let (seq, at): (i64, i64) = (row.get(2), row.get(3));
            let record = record.as_slice().try_into().unwrap();
            head = head.next(row.get(1), seq.cast_unsigned(), at.cast_unsigned(), &record);
            assert_eq!(head.number.cast_signed(), row.get::<_, i64>(0));
            assert_eq!(head.hash[..], row.get::<_, Vec<u8>>(5));
            assert_eq!(record[..], row.get::<_, Vec<u8>>(6));
        }
        assert_eq!(row.get::<_, i64>(1), head.number.cast_signed());
        assert_eq!(row.get::<_, Vec<u8>>(2), head.hash);
    }
    assert_eq!(
        database.number("SELECT CAST(sum(number) AS BIGINT) FROM chains"),
        database.number("SELECT count(*) FROM audit")
    );
    heads.len()
}

#[test]
fn records_are_appended_by_the_owner_alone_and_the_chain_is_that_of_sqlite() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    let behind = |index, next| (index, Refusal::Behind { next });
    let fenced = |index, epoch| (index, Refusal::Fenced { epoch });
    // A root with a child, in one group and in the order of their records.
    let group = [write("r", 1, 0..2), write("r/c", 1, 0..1), write("r", 1, 2..3)];
    assert_eq!(commit(&mut one, &group), []);
    let order =
        database.link().rows("SELECT room FROM events ORDER BY chain, number", &[]).unwrap();
    let order: Vec<String> = order.iter().map(|row| row.get(0)).collect();
    assert_eq!(order, ["r", "r", "r/c", "r"]);
    // Sent again after a lost answer, nothing is stored twice.
    assert_eq!(commit(&mut one, &group), []);
    assert_eq!(database.number("SELECT count(*) FROM events"), 4);
    // Another record in the place, a gap, a room that is there, a child without its run.
    assert_eq!(commit(&mut one, &[write("r", 1, 4..5)]), [behind(0, 3)]);
    let other = Write { rows: vec![write("r", 1, 0..1).rows.remove(0)], ..write("r", 1, 0..1) };
    let mut other_rows = other.rows.clone();
    other_rows[0].at = 7;
    assert_eq!(commit(&mut one, &[Write { rows: other_rows, ..other }]), [behind(0, 3)]);
    assert_eq!(commit(&mut one, &[write("x/c", 1, 0..1)]), [fenced(0, 0)]);
    // While the lease lasts nobody else takes it.
    assert_eq!(take(&mut two, "r"), Taken::Busy { host: "one".to_owned() });
    assert_eq!(take(&mut two, "none"), Taken::Missing);
    database.link().run("UPDATE hosts SET until = now() WHERE host = 'one'", &[]).unwrap();
    assert_eq!(take(&mut two, "r"), Taken::Owned { epoch: 2 });
    assert_eq!(take(&mut two, "r/c"), Taken::Owned { epoch: 2 });
    // The host before is fenced in all rooms at once; what it has in other runs goes on.
    let late =
        [write("r", 1, 3..4), write("r/c", 1, 1..2), write("r/d", 1, 0..1), write("s", 1, 0..1)];
    assert_eq!(commit(&mut one, &late), [fenced(0, 2), fenced(1, 2), fenced(2, 2)]);
    assert_eq!(commit(&mut two, &[write("r", 2, 4..5), write("r/c", 2, 2..3)]), []);
    let owned = database
        .link()
        .row("SELECT body, kind, epoch FROM events WHERE room = 'r' AND seq = 3", &[])
        .unwrap();
    assert_eq!(owned.get::<_, &str>(0), r#"{"event":"owned","host":"two","new_epoch":2}"#);
    assert_eq!((owned.get::<_, &str>(1), owned.get::<_, i64>(2)), ("owned", 2));
    assert_eq!(database.number("SELECT count(*) FROM rooms WHERE room = 's'"), 1);
    check_chains(&database);
}

#[test]
fn a_row_of_a_room_says_what_its_records_do() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    let wait = |call, kind: &str| {
        WaitChange::Begun(PendingWork {
            key: WaitKey::Call(CallId(call)),
            kind: kind.to_owned(),
            target: "t\0".to_owned(),
            at: None,
            request: None,
        })
    };
    let blob = part(b"bytes".to_vec());
    let first = Write {
        waits: vec![wait(1, "tool"), wait(2, "model"), WaitChange::Over(WaitKey::Call(CallId(9)))],
        parts: vec![blob.clone()],
        ..write("r", 1, 0..2)
    };
    assert_eq!(commit(&mut engine, &[first]), []);
    let row = |columns: &str| {
        let rows = database.link().rows(&format!("SELECT {columns} FROM rooms"), &[]).unwrap();
        let row = &rows[0];
        let columns = row.columns().iter().enumerate();
        let values = columns.map(|(index, column)| {
            let value = match *column.type_() {
                tokio_postgres::types::Type::INT8 => {
                    row.get::<_, Option<i64>>(index).map(|value| value.to_string())
                }
                _ => row.get::<_, Option<String>>(index),
            };
            (column.name().to_owned(), value.unwrap_or_else(|| "-".to_owned()))
        });
        values.collect::<BTreeMap<_, _>>().into_values().collect::<Vec<_>>()
    };
    assert_eq!(
        row("text, run, parent, started, changed, ended, turns, records, locked, host"),
        ["1001", "-", "one", "1", "-", "2", "r", "1000", "be\u{fffd}gin", "2"]
    );
    assert_eq!(database.number("SELECT count(*) FROM waits"), 2);
    let ended = Write {
        waits: vec![WaitChange::Abandoned(CallId(1)), wait(3, "user")],
        outcome: Some(Arc::new(Outcome::new(Status::Done, "well"))),
        ..write("r", 1, 2..3)
    };
    let second = Write { begins: true, waits: vec![WaitChange::Finished], ..write("r", 1, 3..4) };
    assert_eq!(commit(&mut engine, &[ended]), []);
    assert_eq!(row("ended, status, reason, started"), ["1002", "well", "1000", "DONE"]);
    assert_eq!(database.number("SELECT CAST(sum(call) AS BIGINT) FROM waits"), 5);
    assert_eq!(commit(&mut engine, &[second]), []);
    assert_eq!(row("ended, status, reason, started"), ["-", "-", "1003", "-"]);
    assert_eq!(database.number("SELECT count(*) FROM waits"), 0);
    // A closed run is free, and one whose blob another host removed is stored again.
    database.link().run("DELETE FROM blobs", &[]).unwrap();
    let room = |name: &str| {
        let writing = RoomWriting::new(RoomId::from(name));
        writing.own_by(1);
        writing
    };
    let (room, other) = (room("r"), room("r/c"));
    let with_blob = Write { parts: vec![blob], ..write("r", 1, 4..5) };
    let closing = CommitGroup {
        writes: vec![&with_blob],
        claims: vec![(&*room, false), (&*other, false)],
        ..CommitGroup::default()
    };
    assert!(engine.commit(&closing).unwrap().has_changed);
    assert_eq!(row("host, records"), ["-", "5"]);
    assert_eq!(database.number("SELECT length FROM blobs"), 5);
    engine.close(&[]);
    assert_eq!(database.number("SELECT count(*) FROM hosts"), 0);
    check_chains(&database);
}

#[test]
fn a_late_release_frees_no_run_that_its_host_took_again() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    assert_eq!(commit(&mut engine, &[write("r", 1, 0..1)]), []);
    assert_eq!(take(&mut engine, "r"), Taken::Owned { epoch: 2 });
    let mut owned_after_release = |epoch| {
        let writing = RoomWriting::new(RoomId::from("r"));
        writing.own_by(epoch);
        let closing = CommitGroup { claims: vec![(&*writing, false)], ..CommitGroup::default() };
        engine.commit(&closing).unwrap();
        database.number("SELECT count(host) FROM rooms")
    };
    assert_eq!([owned_after_release(1), owned_after_release(2)], [1, 0]);
}

#[test]
fn a_group_whose_connection_is_cut_is_stored_once() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut next = 0;
    std::thread::scope(|scope| {
        let (begin, signals) = std::sync::mpsc::channel();
        let link = database.link();
        scope.spawn(move || signals.iter().for_each(|()| drop(link.rows(cut, &[]).unwrap())));
        for _ in 0..20 {
            // The cut meets the commit, or the time before or after it.
            begin.send(()).unwrap();
            let group = [write("r", 1, next..next + 2), write("r/c", 1, next..next + 1)];
            let group = if next == 0 { &group[..] } else { &group[..1] };
            assert_eq!(commit(&mut engine, group), []);
            next += 2;
        }
    });
    assert_eq!(database.number("SELECT records FROM rooms WHERE room = 'r'"), next.cast_signed());
    assert_eq!(database.number("SELECT count(*) FROM events WHERE room = 'r'"), next.cast_signed());
    check_chains(&database);
}

#[test]
fn a_late_answer_is_only_believed_if_the_run_is_still_owned() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    let writes = [write("r", 1, 0..1), write("s", 1, 0..1)];
    let group = group(&writes);
    let call = GroupCall::of(&group);
    assert!(engine.send(&call).unwrap());
    database.link().run("UPDATE rooms SET epoch = 2 WHERE room = 's'", &[]).unwrap();
    assert_eq!(engine.confirmed(&call, Vec::new()).unwrap(), [(1, Refusal::Fenced { epoch: 2 })]);
}

#[test]
fn hosts_that_commit_and_take_at_once_do_not_stop_each_other() {
    let Some(database) = TestDatabase::new() else { return };
    engine(&database, "zero").close(&[]);
    std::thread::scope(|scope| {
        for host in 0..4 {
            let database = &database;
            scope.spawn(move || {
                let mut engine = engine(database, &format!("host{host}"));
                let shared = part(b"shared".to_vec());
                for run in 0..10 {
                    let name = format!("r{host}-{run}");
                    let child = format!("{name}/c");
                    let first = Write { parts: vec![shared.clone()], ..write(&name, 1, 0..3) };
                    assert_eq!(commit(&mut engine, &[first, write(&child, 1, 0..3)]), []);
                    assert_eq!(take(&mut engine, &name), Taken::Owned { epoch: 2 });
                    assert_eq!(commit(&mut engine, &[write(&name, 2, 4..5)]), []);
                }
                engine.close(&[]);
            });
        }
    });
    assert_eq!(database.number("SELECT count(*) FROM events"), 4 * 10 * 8);
    let chains = check_chains(&database);
    assert!((1..=4).contains(&chains), "{chains}");
}

#[test]
fn a_host_whose_chain_was_taken_goes_on_with_another() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    assert_eq!(commit(&mut one, &[write("a", 1, 0..2)]), []);
    database.link().run("UPDATE hosts SET until = now() WHERE host = 'one'", &[]).unwrap();
    assert_eq!(commit(&mut two, &[write("b", 1, 0..2)]), []);
    // It still owns its run, and only its next line does not follow the newest one.
    assert_eq!(commit(&mut one, &[write("a", 1, 2..3)]), []);
    assert_eq!(commit(&mut two, &[write("b", 1, 2..3)]), []);
    let of_chain = "SELECT CAST(sum(chain) AS BIGINT) FROM events WHERE room = ";
    assert_eq!(database.number(&format!("{of_chain}'b'")), 3);
    assert_eq!(database.number(&format!("{of_chain}'a'")), 1 + 1 + 2);
    assert_eq!(check_chains(&database), 2);
}

#[test]
fn a_database_of_the_first_format_is_migrated_with_its_records_and_its_chain_goes_on() {
    let Some(database) = TestDatabase::new() else { return };
    make_first_format(&database.link()).unwrap();
    // Three records and an ended run without its records, as a host of format 1 left them.
    let (mut head, hash_of) = (ChainHead::default(), |row: &EventRow, room| row.hash(room));
    let link = database.link();
    let records = write("r", 1, 0..3).rows;
    for (row, room) in
        [(&records[0], "gone"), (&records[0], "r"), (&records[1], "r"), (&records[2], "r")]
    {
        let hash = hash_of(row, room);
        head = head.next(room, row.seq, row.at, &hash);
        let number = head.number.cast_signed();
        let (seq, at) = (row.seq.cast_signed(), row.at.cast_signed());
        link.run(
            "INSERT INTO audit (number, room, seq, at, record, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            &[&number, &room, &seq, &at, &&hash[..], &&head.hash[..]],
        )
        .unwrap();
        if room == "r" {
            link.run(
                "INSERT INTO events (number, room, seq, at, kind, principal, rules, body, parts, hash, epoch)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                &[
                    &number, &room, &seq, &at, &row.kind(), &&*row.principal, &i64::from(row.rules),
                    &row.body, &row.parts, &&hash[..], &row.epoch.cast_signed(),
                ],
            )
            .unwrap();
        }
    }
    link.run("UPDATE chain SET number = 4, hash = ?1", &[&&head.hash[..]]).unwrap();
    link.batch(
        "INSERT INTO removed (run, at, last) VALUES ('gone', 1, 1);
         INSERT INTO rooms (room, run, started, changed, entry, agents, text, turns, tokens, cost_micro_usd,
             spent, records, durability, command, locked, principal, approvals, questions, epoch)
         VALUES ('r', 'r', 1000, 1002, 'main', '[]', '', 0, 0, 0, '{}', 3, 'group', 'run', 0, 'ada', '', '', 1)",
    )
    .unwrap();
    // A host of the older version calls functions that a migration removes.
    let older = "INSERT INTO hosts (host, command, capacity, until)
         VALUES ('older', '', 0, clock_timestamp() + INTERVAL '1 hour')";
    database.link().run(older, &[]).unwrap();
    let refusal = Session::open(&database.address).map(drop).unwrap_err().to_string();
    assert!(refusal.contains("(older): stop those"), "{refusal}");
    database.link().run("DELETE FROM hosts", &[]).unwrap();
    let mut one = engine(&database, "one");
    assert_eq!(take(&mut one, "r"), Taken::Owned { epoch: 2 });
    assert_eq!(commit(&mut one, &[write("r", 2, 4..6)]), []);
    let last = "SELECT number FROM audit WHERE chain = 1 ORDER BY number DESC LIMIT 1";
    // The fifth one notes the removal.
    assert_eq!(database.number(last), 8);
    let reader = StoreReader::open(StoreAddress::Postgres(database.address.clone())).unwrap();
    let mut checked = reader.verify(&[&hex(&head.hash)]).unwrap();
    // The fictitious records lead to no list.
    checked.problems.retain(|problem| !problem.ends_with("is not what its records lead to"));
    assert_eq!(checked.problems, Vec::<String>::new());
    assert_eq!((checked.records, checked.heads.len()), (6, 1));
    let in_order = "SELECT count(*) FROM events WHERE room = 'r' AND place = seq + 1";
    assert_eq!(database.number(in_order), 6);
}

#[test]
fn a_database_that_would_lose_records_is_refused_with_the_line_that_mends_it() {
    let Some(database) = TestDatabase::new() else { return };
    let refused = |setting: &str| {
        let link = database.link();
        link.batch(&format!("ALTER DATABASE {} SET {setting}", database.name())).unwrap();
        let error = Session::open(&database.address).map(drop).unwrap_err().to_string();
        link.batch(&format!("ALTER DATABASE {} RESET ALL", database.name())).unwrap();
        error
    };
    let error = refused("synchronous_commit = off");
    assert!(error.contains("ALTER DATABASE … RESET synchronous_commit;"), "{error}");
    assert!(refused("synchronous_commit = local").contains("synchronous_commit is local"));
    Session::open(&database.address).unwrap();
}

#[test]
fn tables_are_made_once_and_newer_ones_are_refused() {
    let Some(database) = TestDatabase::new() else { return };
    // Many hosts at once.
    std::thread::scope(|scope| {
        let opening = |_| scope.spawn(|| Session::open(&database.address).map(drop).unwrap());
        let all: Vec<_> = (0..6).map(opening).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let current = database.number("SELECT value FROM meta WHERE name = 'version'");
    assert_eq!(database.number("SELECT count(*) FROM chains"), 1);
    Session::open(&database.address).unwrap();
    database.link().run("UPDATE meta SET value = 99 WHERE name = 'version'", &[]).unwrap();
    let newer = Session::open(&database.address).map(drop).unwrap_err();
    let is_newer = matches!(newer, SessionError::Newer { version: 99, known } if known == current);
    assert!(is_newer, "{newer}");
}

#[test]
fn ended_runs_and_blobs_without_references_are_removed() {
    let Some(database) = TestDatabase::new() else { return };
    let mut engine = engine(&database, "one");
    let over = |room: &str| {
        let blob = part(room.as_bytes().to_vec());
        let mut ended = Write {
            outcome: Some(Arc::new(Outcome::new(Status::Done, ""))),
            parts: vec![blob.clone()],
            ..write(room, 1, 0..2)
        };
        ended.rows[1].parts = Some(format!("{{\"x\":\"{}\"}}", blob.sha256));
        ended
    };
    let writes = [over("a"), over("b"), write("c", 1, 0..1)];
    assert_eq!(commit(&mut engine, &writes), []);
    let unused = part(b"unused".to_vec());
    engine
        .commit(&CommitGroup { blobs: std::slice::from_ref(&unused), ..CommitGroup::default() })
        .unwrap();
    let keep = Retention { runs: Some(2), dry: true, ..Retention::default() };
    let none = HashSet::new();
    let dry = engine.collect(&keep, &none, &HashSet::new()).unwrap();
    assert_eq!((dry.runs.len(), dry.records, dry.blobs), (1, 2, 2));
    assert_eq!(database.number("SELECT count(*) FROM rooms"), 3);
    let keep = Retention { dry: false, ..keep };
    let live = HashSet::from([RoomId::from("a")]);
    assert_eq!(engine.collect(&keep, &live, &none_stored()).unwrap().runs, []);
    let stored = HashSet::from([unused.sha256.clone()]);
    let collected = engine.collect(&keep, &HashSet::new(), &stored).unwrap();
    assert_eq!((collected.runs, collected.blobs), (vec![RoomId::from("a")], 1));
    let remaining = "SELECT CAST(sum(n) AS BIGINT) FROM (SELECT count(*) AS n FROM rooms
        UNION ALL SELECT count(*) FROM events UNION ALL SELECT count(*) FROM blobs) AS counts";
    assert_eq!(database.number(remaining), 2 + 3 + 2);
    assert_eq!(database.number("SELECT count(*) FROM audit"), 5 + 1, "the removal has a line");
}

#[test]
fn a_run_is_removed_only_if_an_audit_chain_says_so() {
    let Some(database) = TestDatabase::new() else { return };
    let mut one = engine(&database, "one");
    let over = |room: &str, epoch: u64, seqs: std::ops::Range<u64>| Write {
        outcome: Some(Arc::new(Outcome::new(Status::Done, ""))),
        ..write(room, epoch, seqs)
    };
    assert_eq!(commit(&mut one, &[over("gone", 1, 0..2), write("stays", 1, 0..2)]), []);
    // Lines of one run in two chains, and a run that begins again under its name.
    database.link().run("UPDATE hosts SET until = now() WHERE host = 'one'", &[]).unwrap();
    let mut two = engine(&database, "two");
    assert_eq!(take(&mut two, "gone"), Taken::Owned { epoch: 2 });
    assert_eq!(commit(&mut one, &[write("stays", 1, 2..3)]), []);
    let all = Retention { runs: Some(0), ..Retention::default() };
    let none = HashSet::new();
    let dry = Retention { dry: true, ..all.clone() };
    assert_eq!(two.collect(&dry, &none, &none_stored()).unwrap().runs, [RoomId::from("gone")]);
    assert_eq!(database.number("SELECT count(*) FROM audit"), 6, "a dry run notes nothing");
    for _ in 0..2 {
        assert_eq!(two.collect(&all, &none, &none_stored()).unwrap().runs, [RoomId::from("gone")]);
        assert_eq!(commit(&mut two, &[over("gone", 1, 0..2)]), []);
    }
    let reader = StoreReader::open(StoreAddress::Postgres(database.address.clone())).unwrap();
    let problems = || {
        let mut problems = reader.verify(&[]).unwrap().problems;
        // The fictitious records lead to no list.
        problems.retain(|problem| !problem.ends_with("is not what its records lead to"));
        problems
    };
    assert_eq!(problems(), Vec::<String>::new());
    // Whoever takes records out does not hide that by a row, with or without the line of another
    // removal.
    database.link().batch("DELETE FROM events WHERE room = 'stays' AND seq > 0").unwrap();
    let expected = problems();
    assert!(expected.iter().any(|problem| problem.contains("was taken out")), "{expected:?}");
    for line in ["NULL, NULL", "line_chain, line_number"] {
        let forged = format!(
            "DELETE FROM removed WHERE run = 'stays'; INSERT INTO removed (run, at, chain, last, line_chain, line_number)
             SELECT 'stays', 1, chains.chain, 1000, {line} FROM chains, (SELECT * FROM removed LIMIT 1) AS other"
        );
        database.link().batch(&forged).unwrap();
        let found = problems();
        assert!(expected.iter().all(|problem| found.contains(problem)), "{found:?}");
        let unnoted = "run stays is noted as removed, and no line of an audit chain says so";
        assert!(found.iter().any(|problem| problem == unnoted), "{found:?}");
    }
}

fn none_stored() -> HashSet<String> {
    HashSet::new()
}
