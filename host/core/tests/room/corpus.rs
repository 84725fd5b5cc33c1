//! The corpus: recorded behavior of rooms, as hashes under `tests/data/corpus`. A change that
//! moves, renames or splits code leaves every hash unchanged.
//!
//! `CONCLAVE_CORPUS=record` writes the files anew. `CONCLAVE_CORPUS=text` writes the hashed text of
//! every input to `corpus/` in cargo's folder for tests' files, to compare two commits with `diff
//! -r`.

mod canon;
mod file;
mod folded;

use conclave_core::journal::record::from_lines;
use conclave_core::protocol::event::{Event, RULES, Record};
use serde_json::{Value, json};

use crate::case::Case;
use crate::cases;
use crate::properties::{Recorded, answered, nonsense};
use crate::world::{Order, World};

use canon::Canon;
use file::Source;
use folded::{Folded, Way};

/// The number of seeds of arbitrary events.
const SEEDS: u64 = 200;

/// The files with journals of test suites.
const SUITES: [&str; 5] = ["cli", "embed", "mcp", "store", "suite"];

#[test]
fn room_cases_do_what_was_recorded() {
    compare_cases(Way::Straight);
}

#[test]
fn rooms_with_nonsense_events_do_what_was_recorded() {
    compare_nonsense(Way::Straight);
}

#[test]
fn rooms_whose_calls_are_answered_do_what_was_recorded() {
    compare_answered(Way::Straight);
}

#[test]
fn journals_of_conformance_cases_do_what_was_recorded() {
    compare_journals("conformance", Way::Straight);
}

#[test]
fn journals_of_test_suites_do_what_was_recorded() {
    for start in SUITES {
        compare_journals(start, Way::Straight);
    }
}

#[test]
fn rooms_read_from_snapshots_do_what_was_recorded() {
    compare_cases(Way::ThroughSnapshots);
    compare_nonsense(Way::ThroughSnapshots);
    compare_answered(Way::ThroughSnapshots);
}

#[test]
fn conformance_cases_read_from_snapshots_do_what_was_recorded() {
    compare_journals("conformance", Way::ThroughSnapshots);
}

#[test]
fn test_suites_read_from_snapshots_do_what_was_recorded() {
    for start in SUITES {
        compare_journals(start, Way::ThroughSnapshots);
    }
}

fn compare_cases(way: Way) {
    let mut source = Source::open("room", way);
    for (file, text) in cases::FILES {
        let cases: Vec<Case> = serde_json::from_str(text).expect("the file holds a list of cases");
        for case in &cases {
            for order in &case.orders {
                let mut world = World::new(case, Order::parse(order));
                world.run();
                let order = order.as_str().map_or_else(|| order.to_string(), str::to_owned);
                source.check(&format!("{file}: {} ({order})", case.name), &world.records);
            }
        }
    }
    source.close();
}

fn compare_nonsense(way: Way) {
    let mut source = Source::open("nonsense", way);
    for seed in (0..SEEDS).step_by(every(way)) {
        let mut recorded = Recorded::default();
        for (event, at) in nonsense(&row(seed, 2_000)) {
            recorded.handle(event, at);
        }
        source.check(&format!("seed {seed}"), &recorded.records);
    }
    source.close();
}

fn compare_answered(way: Way) {
    let mut source = Source::open("answered", way);
    // The file lists the seeds: those below 6000 whose rooms take 16 events or more, because most
    // end sooner. Most of those with the largest messages are omitted, because their hashing is
    // slow.
    for input in source.inputs().into_iter().step_by(every(way)) {
        let seed = input.strip_prefix("seed ").and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.expect("an input is a seed");
        source.check(&input, &answered(&row(seed, 3_000), 40_000).records);
    }
    source.close();
}

/// Returns how many seeds there are for each one that is folded. Reading and writing a room of many
/// events again and again is slow.
fn every(way: Way) -> usize {
    match way {
        Way::Straight => 1,
        Way::ThroughSnapshots => 4,
    }
}

/// Compares the journals of the files with this prefix.
fn compare_journals(start: &'static str, way: Way) {
    let mut source = Source::open(start, way);
    let journals = file::journals(start);
    assert!(!journals.is_empty(), "no journal of {start} was recorded");
    for (name, recorded) in journals {
        source.check(&name, &records(&recorded));
    }
    source.close();
}

/// The records of every recorded journal.
pub(crate) fn recorded_journals() -> impl Iterator<Item = Vec<Record>> {
    std::iter::once("conformance")
        .chain(SUITES)
        .flat_map(|start| file::journals(start).into_iter().map(|(_, recorded)| records(&recorded)))
}

/// The records of a recorded journal.
fn records(recorded: &[Value]) -> Vec<Record> {
    let line = |recorded: &Value| {
        let mut record = recorded.clone();
        // The version of the rules is replaced, so that the hashes show the effect of the current
        // rules.
        record["rules"] = json!(RULES);
        format!("{record}\n")
    };
    from_lines(&recorded.iter().map(line).collect::<String>()).expect("it is a journal")
}

/// Returns the numbers of a seed, at least 300 (the size of a setup) and fewer than `most`.
/// SplitMix64 is the same on every machine, with every version of every crate.
pub(crate) fn row(seed: u64, most: u64) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let length = 300 + next() % (most - 300);
    (0..length).map(|_| u16::try_from(next() & 0xffff).expect("it was cut to 16 bits")).collect()
}

fn records_of_a_case() -> Vec<Record> {
    let case = json!({
        "name": "a tool", "expect": {}, "input": "hello there",
        "setup": { "plugins": { "desk": { "grants": { "tools": ["*"] } }, "box": { "tools": ["a"] } } },
        "scripts": { "agents": { "desk": [
            { "say": "let me look", "call": ["box.a"] }, { "finish": "a pearl" },
        ] } },
    });
    let case: Case = serde_json::from_value(case).expect("a case of the right form");
    let mut world = World::new(&case, Order::First);
    world.run();
    world.records
}

#[test]
fn another_wording_changes_the_texts_alone() {
    let (mut first, mut second) = (Canon::default(), Canon::default());
    let one = first.text(&json!({ "reason": "it was refused", "code": "refused" }));
    let other = second.text(&json!({ "reason": "the call is not allowed", "code": "refused" }));
    assert_eq!(one, other);
    assert_ne!(first.texts(), second.texts());
    assert_ne!(one, first.text(&json!({ "reason": "it was refused", "code": "denied" })));
}

/// Each hash must change with the data that it covers.
#[test]
fn every_hash_notices_a_change() {
    let records = records_of_a_case();
    let fold = |records: &[Record]| Folded::of(records, Way::Straight).hashes();
    let hashes = fold(&records);
    assert_eq!(fold(&records), hashes, "the same records have the same hashes");
    let opened = fold(&records[..1]);
    for (hash, what) in &hashes {
        assert!(*what != opened[hash], "{hash} does not see that nothing comes after the opening");
    }
    let mut reworded = records.clone();
    let Event::RoomOpened { opening, .. } = &mut reworded[0].event else {
        panic!("it is opened first")
    };
    opening.content = Some("hello again".to_owned());
    let changed = fold(&reworded);
    let differ: Vec<_> = hashes.iter().filter(|(hash, what)| changed[*hash] != **what).collect();
    assert!(matches!(differ[..], [(&"texts", _)]), "{differ:?}");
}
