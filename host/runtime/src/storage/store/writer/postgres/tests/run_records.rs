//! The records of a run as event streams read them, whatever became of its hosts' chains.

use super::*;
use crate::storage::store::RunPosition;
use crate::storage::store::reader::run_records::statement;
use crate::storage::store::sql::EngineKind;

/// A write of records that can be read.
fn readable(room: &str, epoch: u64, seqs: std::ops::Range<u64>) -> Write {
    let mut write = write(room, epoch, seqs);
    for row in &mut write.rows {
        row.body = r#"{"event":"cancelled","reason":"enough"}"#.to_owned();
        row.parts = None;
    }
    write
}

/// Returns the rooms and numbers of the records of run `r` after a position, read two at a time, and
/// the position of the last one.
fn read(
    database: &TestDatabase,
    mut after: Option<RunPosition>,
) -> (Vec<String>, Option<RunPosition>) {
    let reader = StoreReader::open(StoreAddress::Postgres(database.address.clone())).unwrap();
    let mut all = Vec::new();
    loop {
        let records = reader.run_records(&"r".into(), after, 2).unwrap();
        let Some(last) = records.last() else { break };
        after = Some(last.position);
        all.extend(records.iter().map(|next| format!("{} {}", next.room, next.record.seq)));
    }
    (all, after)
}

#[test]
fn records_behind_the_loss_of_a_chain_follow_those_before_it() {
    let Some(database) = TestDatabase::new() else { return };
    let (mut one, mut two) = (engine(&database, "one"), engine(&database, "two"));
    // Its lines have high numbers.
    assert_eq!(commit(&mut one, &[readable("other", 1, 0..20), readable("r", 1, 0..2)]), []);
    let (before, position) = read(&database, None);
    assert_eq!(before, ["r 0", "r 1"]);
    // Its lease lapsed in an outage, and another host began to write.
    database.link().run("UPDATE hosts SET until = now() WHERE host = 'one'", &[]).unwrap();
    assert_eq!(commit(&mut two, &[readable("b", 1, 0..2)]), []);
    let group = [readable("r", 1, 2..3), readable("r/1", 1, 0..2), readable("r", 1, 3..4)];
    assert_eq!(commit(&mut one, &group), []);
    let lower = "SELECT max(number) FROM events WHERE chain = 2 AND epoch = 1";
    assert!(database.number(lower) < 20, "numbers of the same epoch are lower now");
    let (behind, last) = read(&database, position);
    assert_eq!(behind, ["r 2", "r/1 0", "r/1 1", "r 3"]);
    let reader = StoreReader::open(StoreAddress::Postgres(database.address.clone())).unwrap();
    assert_eq!(reader.run_end(&"r".into()).unwrap(), last);
    let (all, _) = read(&database, None);
    assert_eq!(all, [before, behind].concat());
    // Streams would miss records whose places do not grow.
    let misplaced = |problem: &String| problem.contains("has the place of an earlier one");
    assert!(!reader.check().unwrap().problems.iter().any(misplaced));
    let damage = "ALTER TABLE events ALTER place DROP IDENTITY;
        UPDATE events SET place = 1 WHERE room = 'r' AND seq = 2";
    database.link().batch(damage).unwrap();
    assert!(reader.check().unwrap().problems.iter().any(misplaced));
}

#[test]
fn void_records_are_in_no_stream() {
    let Some(database) = TestDatabase::new() else { return };
    let mut one = engine(&database, "one");
    assert_eq!(commit(&mut one, &[readable("r", 1, 0..2), readable("r/1", 1, 0..1)]), []);
    let Taken::Owned { epoch: 2 } = take(&mut one, "r") else { panic!("it is free") };
    assert_eq!(commit(&mut one, &[readable("r", 2, 3..4)]), []);
    let (_, before) = read(&database, None);
    // Of a store that lets late records in: they are void in the root, where a newer epoch is before
    // them, and count in the child, where none is.
    for room in ["r", "r", "r", "r/1"] {
        let link = database.link();
        let records = "SELECT records FROM rooms WHERE room = ?1";
        let seq: i64 = link.row(records, &[&room]).unwrap().get(0);
        let row = readable(room, 1, seq.cast_unsigned()..seq.cast_unsigned() + 1).rows.remove(0);
        link.run("UPDATE rooms SET records = records + 1 WHERE room = ?1", &[&room]).unwrap();
        link.run(
            "INSERT INTO events (chain, number, room, seq, at, kind, principal, rules, body, hash, epoch)
             SELECT 9, 1 + count(*), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1 FROM events",
            &[
                &room, &seq, &row.at.cast_signed(), &row.kind(), &&*row.principal,
                &i64::from(row.rules), &row.body, &&row.hash(room)[..],
            ],
        )
        .unwrap();
    }
    assert_eq!(commit(&mut one, &[readable("r", 2, 7..8)]), []);
    let counted = ["r 0", "r 1", "r/1 0", "r 2", "r 3", "r/1 1", "r 7"];
    assert_eq!(read(&database, None).0, counted);
    let position: Option<RunPosition> = before.unwrap().to_string().parse().ok();
    assert_eq!(read(&database, position).0, counted[5..], "also by a reader that comes again");
}

#[test]
fn what_follows_a_position_is_found_by_the_key_of_records() {
    let Some(database) = TestDatabase::new() else { return };
    let mut one = engine(&database, "one");
    assert_eq!(commit(&mut one, &[readable("r", 1, 0..1)]), []);
    let link = database.link();
    link.batch(
        "INSERT INTO rooms (room, run, parent, started, changed, entry, agents, text, turns, tokens, cost_micro_usd,
             spent, records, durability, command, locked, principal, approvals, questions, epoch)
         SELECT 'r/' || n, 'r', 'r', 0, 0, '', '', '', 0, 0, 0, '', 100, '', '', 0, '', '', '', 1 FROM generate_series(1, 300) AS n;
         INSERT INTO events (chain, number, room, seq, at, kind, principal, rules, body, hash, epoch, place)
         OVERRIDING SYSTEM VALUE SELECT 9, n * 100 + s, 'r/' || n, s, 0, '', '', 0, '', '', 1, s * 300 + n + 1
         FROM generate_series(1, 300) AS n, generate_series(0, 99) AS s;
         ANALYZE rooms; ANALYZE events",
    )
    .unwrap();
    let statement = statement(EngineKind::Postgres);
    let statement = statement.replace("?1", "'r'").replace("?2", "29000").replace("?3", "50");
    let plan = link.rows(&format!("EXPLAIN {statement}"), &[]).unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(!plan.iter().any(|step| step.contains("Seq Scan on events")), "{plan:#?}");
}
