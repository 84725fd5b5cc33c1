//! Rooms that changed their host: records of a host that had lost the room are void for every
//! reader, and a take-over changes nothing but the owner.

use conclave_core::inspect::audit::{self, AuditKind};
use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::inspect::timeline::{RowSubject, Timeline};
use conclave_core::journal::ownership::{OneHistory, one_history};
use conclave_core::journal::record::{from_lines, retold, to_line};
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::event::{Event, Principal, RULES, Record};
use conclave_core::types::ids::Millis;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;

use crate::properties::{Recorded, answered, config};

fn owned(at: Millis, epoch: u64) -> Record {
    let event = Event::Owned { host: "b".to_owned(), epoch };
    Record { seq: 0, at, principal: Principal("tester".into()), rules: RULES, epoch, event }
}

fn of_epoch(records: &[Record], epoch: u64) -> Vec<Record> {
    records.iter().map(|record| Record { epoch, ..record.clone() }).collect()
}

fn numbered(mut records: Vec<Record>) -> Vec<Record> {
    records.iter_mut().zip(0..).for_each(|(record, seq)| record.seq = seq);
    records
}

/// The records of a run that host `b` took over after `cut` of them.
fn taken_over(run: &Recorded, cut: usize) -> Vec<Record> {
    let (before, after) = run.records.split_at(cut);
    let at = before.last().map_or(Millis(0), |record| record.at);
    let (before, after) = (of_epoch(before, 1), of_epoch(after, 2));
    numbered([before, vec![owned(at, 2)], after].concat())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_late_record_of_an_older_epoch_is_void_for_every_reader(
        row in vec(any::<u16>(), 0..600), cut in any::<Index>(), late in any::<Index>(),
    ) {
        let run = answered(&row, 40_000);
        let cut = 1 + cut.index(run.records.len());
        let clean = taken_over(&run, cut);
        // The host that lost the room goes on as if it had not, and ends the run as it likes.
        let mut void = of_epoch(&run.records[cut..], 1);
        let stop = Event::Cancelled { reason: "late".to_owned() };
        void.push(Record { event: stop, ..owned(run.records[cut - 1].at.plus(1_000_000), 1) });
        let place = cut + 1 + late.index(clean.len() - cut);
        let mixed = numbered([&clean[..place], &void[..], &clean[place..]].concat());

        let (folded, expected) = (Unfinished::fold(mixed.clone()), Unfinished::fold(clean.clone()));
        prop_assert!(folded.room == expected.room && run.room == expected.room);
        prop_assert_eq!(folded.next, mixed.len() as u64, "void records have numbers too");
        prop_assert_eq!(folded.history, OneHistory::after(2));
        // A snapshot before the late records knows that they are void.
        let snapshot = Unfinished::fold(mixed[..place].to_vec()).to_snapshot().expect("it is written");
        let mut resumed = Unfinished::from_snapshot(&snapshot).expect("it is read");
        resumed.extend(mixed[place..].to_vec());
        prop_assert!(resumed.room == folded.room && resumed.next == folded.next);

        let rows = |records: &[Record]| {
            let mut fold = RoomRowFold::default();
            fold.extend(records.to_vec());
            (fold.waits().clone(), fold.outcome().cloned(), fold.spent())
        };
        prop_assert_eq!(rows(&mixed), rows(&clean));
        let events = |records: &[Record]| {
            one_history(records.to_vec()).map(|record| record.event).collect::<Vec<_>>()
        };
        prop_assert_eq!(events(&mixed), events(&clean));
    }
}

#[test]
fn a_take_over_is_seen_and_stops_no_clock() {
    let run = answered(&(0..400).collect::<Vec<u16>>(), 40_000);
    assert!(run.records.len() > 4, "{}", run.records.len());
    let cut = run.records.len() / 2;
    let mut records = taken_over(&run, cut);
    let last = records[cut - 1].at;
    // The room was without a host for an hour before it was taken over.
    records[cut].at = last.plus(3_600_000);
    let unfinished = Unfinished::fold(records[..=cut].to_vec());
    assert_eq!(unfinished.downtime(last.plus(3_600_005)).ms, 3_600_005);
    let timeline = Timeline::of([records.clone()]).expect("a timeline");
    let take_overs: Vec<&RowSubject> = timeline
        .rows
        .iter()
        .map(|row| &row.what)
        .filter(|what| what.kind() == "taken-over")
        .collect();
    assert_eq!(take_overs, [&RowSubject::TakenOver { host: "b".to_owned(), epoch: 2 }]);
    let entries = audit::entries(&retold(records.clone()));
    let take_over = entries.iter().find(|entry| entry.kind == AuditKind::Resumed);
    assert_eq!(take_over.map(|entry| &*entry.message), Some("host b took the room over (epoch 2)"));

    let lines = |records: &[Record]| -> String {
        records.iter().map(|record| to_line(record).expect("it is not deep") + "\n").collect()
    };
    let text = lines(&records);
    assert!(text.contains("\"epoch\":1,\"event\":"), "{text}");
    assert_eq!(from_lines(&text).expect("they are read"), records);
    assert!(!lines(&run.records).contains("epoch"), "a store of one host has no epochs");
}
