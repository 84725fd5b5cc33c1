//! Every manual change of the file is detected by the audit chain.

use conclave_runtime::store::{Store, StoreReader};

use crate::support::{damage, ended, run, sql};

fn problems(change: &str) -> (Vec<String>, Vec<String>) {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    ended(&store, "a");
    drop((run(&store, "b", 3), store));
    let reader = StoreReader::open(temp.path()).unwrap();
    let before = reader.verify(&[]).unwrap();
    assert_eq!(damage(&before), Vec::<String>::new());
    let head = before.heads[0].clone();
    assert_eq!(damage(&reader.verify(&[&head.to_uppercase()]).unwrap()), Vec::<String>::new());
    sql(temp.path()).execute_batch(change).unwrap();
    // An attacker who changes the file can change the note beside it too, so the file must suffice.
    std::fs::remove_file(temp.path().join("reached")).unwrap();
    let problems = |heads: &[&str]| damage(&reader.verify(heads).unwrap());
    (problems(&[]), problems(&[&head]))
}

#[test]
fn every_change_by_hand_is_found() {
    for change in [
        "UPDATE events SET body = replace(body, 'yes', 'no') WHERE room = 'b' AND seq = 1",
        "UPDATE events SET at = at + 1 WHERE room = 'a' AND seq = 1",
        "UPDATE events SET principal = 'eve' WHERE number = 2",
        "UPDATE events SET rules = 1 WHERE number = 2",
        "UPDATE events SET kind = 'refused' WHERE number = 2",
        "UPDATE events SET parts = NULL WHERE number = 1",
        "UPDATE events SET hash = zeroblob(32) WHERE number = 2",
        "UPDATE events SET room = 'a', seq = 9 WHERE number = 5",
        "UPDATE audit SET at = at + 1 WHERE number = 2",
        "UPDATE audit SET room = 'b' WHERE number = 2",
        "UPDATE audit SET hash = zeroblob(32) WHERE number = 3",
        "UPDATE audit SET hash = x'00' WHERE number = 3",
        "DELETE FROM audit WHERE number = 1",
        "DELETE FROM audit WHERE number = 3",
        "DELETE FROM events WHERE number = 3",
        "DELETE FROM events WHERE number = 6; DELETE FROM audit WHERE number = 6",
        "UPDATE events SET number = 0 WHERE number = 2; UPDATE events SET number = 2 WHERE number = 3; UPDATE events SET number = 3 WHERE number = 0",
        "UPDATE audit SET number = 0 WHERE number = 2; UPDATE audit SET number = 2 WHERE number = 3; UPDATE audit SET number = 3 WHERE number = 0",
        "INSERT INTO events SELECT 90, room, 90, at, kind, principal, rules, body, parts, hash FROM events WHERE number = 2",
        "DELETE FROM blobs",
        "DELETE FROM rooms WHERE room = 'a'",
    ] {
        let (found, _) = problems(change);
        assert!(!found.is_empty(), "not found: {change}");
    }
}

#[test]
fn a_noted_hash_tells_of_an_end_that_was_cut_off_whole() {
    let all_of_b = "DELETE FROM events WHERE room = 'b'; DELETE FROM audit WHERE room = 'b'; DELETE FROM rooms WHERE room = 'b'";
    let (found, with_hash) = problems(all_of_b);
    assert_eq!(found, Vec::<String>::new(), "by itself the chain cannot tell");
    assert_eq!(with_hash.len(), 1);
    assert!(with_hash[0].contains("is not in the audit chain"), "{with_hash:?}");
}

#[test]
fn the_hashes_are_what_the_documentation_says() {
    use sha2::{Digest, Sha256};

    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(temp.path()).unwrap();
    drop((run(&store, "a", 3), store));
    let sql = sql(temp.path());
    let mut query = sql
        .prepare(
            "SELECT e.number, e.room, e.seq, e.at, e.principal, e.rules, e.body, coalesce(e.parts, ''), a.record, a.hash
             FROM events e JOIN audit a USING (number) ORDER BY number",
        )
        .unwrap();
    let mut rows = query.query([]).unwrap();
    let (mut before, mut count) = (vec![0; 32], 0);
    while let Some(row) = rows.next().unwrap() {
        let number = |index: usize| row.get::<_, i64>(index).unwrap().to_be_bytes();
        let text = |index: usize| {
            let text: String = row.get(index).unwrap();
            [&(text.len() as u64).to_be_bytes()[..], text.as_bytes()].concat()
        };
        let rules = row.get::<_, u32>(5).unwrap().to_be_bytes();
        let record = Sha256::digest(
            [text(1), text(4), text(6), text(7), number(2).into(), number(3).into(), rules.into()]
                .concat(),
        );
        assert_eq!(record[..], row.get::<_, Vec<u8>>(8).unwrap()[..]);
        let line = [
            before,
            number(0).into(),
            text(1),
            number(2).into(),
            number(3).into(),
            record.to_vec(),
        ]
        .concat();
        before = Sha256::digest(line).to_vec();
        assert_eq!(before, row.get::<_, Vec<u8>>(9).unwrap());
        count += 1;
    }
    assert_eq!(count, 3);
}
