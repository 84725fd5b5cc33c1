//! Lines of a journal. A line that is a record is put in its place, so that any sequence of records is folded, not only a whole journal.

use conclave_core::audit;
use conclave_core::event::{RULES, Record};
use conclave_core::ids::Millis;
use conclave_core::journal::{fold, from_lines, retold, to_line};
use conclave_core::timeline::Timeline;
use conclave_core::unfinished::Unfinished;

/// Records of one input at most.
const RECORDS: usize = 64;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(records) = from_lines(&text) {
        assert!(records.iter().zip(0..).all(|(record, seq)| record.seq == seq && record.rules == RULES), "a gap, or other rules");
    }
    let mut records: Vec<Record> = Vec::new();
    for line in text.lines().take(RECORDS) {
        // With a line end a line that is no record is an error, not a torn end.
        if let Some(record) = alone(line) {
            records.push(Record { seq: records.len() as u64, ..record });
        }
    }
    written_and_read(&records);
    folded(&records);
}

/// The record that stands in a line, whatever its number and the version of its rules: the corpus outlives versions.
fn alone(line: &str) -> Option<Record> {
    let line = with_number(&with_number(line, "\"seq\":", 0)?, "\"rules\":", u64::from(RULES))?;
    let mut records = from_lines(&format!("{line}\n")).ok()?;
    records.pop()
}

/// The line with another number behind the first of these keys.
fn with_number(line: &str, key: &str, number: u64) -> Option<String> {
    let (before, after) = line.split_once(key)?;
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    Some(format!("{before}{key}{number}{rest}"))
}

fn written_and_read(records: &[Record]) {
    let lines: String = records.iter().map(|record| to_line(record).expect("what was read is written") + "\n").collect();
    let read = from_lines(&lines).unwrap_or_else(|error| panic!("what was written is read: {error}"));
    assert_eq!(read, records, "records are read back as they were");
    // A torn end was never acknowledged; what comes before it is whole.
    if let Some(cut) = lines.len().checked_sub(2).map(|cut| lines.floor_char_boundary(cut)) {
        let torn = from_lines(&lines[..cut]).unwrap_or_else(|error| panic!("a torn end is left out: {error}"));
        assert_eq!(torn, records[..records.len() - 1], "only the torn record is left out");
    }
}

fn folded(records: &[Record]) {
    let room = fold(records.iter().cloned());
    let retold = retold(records.iter().cloned());
    assert_eq!(retold.len(), records.len());
    let _ = audit::entries(&retold);
    let _ = Timeline::of([records.to_vec()]);
    let now = records.last().map_or(Millis(0), |record| record.at);
    let unfinished = Unfinished::fold(records.iter().cloned());
    let resumption = unfinished.resumption(now);
    let mut room = room;
    for event in resumption.events {
        room.handle(event, now);
        while room.poll_effect().is_some() {}
        while room.poll_notice().is_some() {}
    }
}
