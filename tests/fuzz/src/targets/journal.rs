//! Lines of a journal. A line that is a valid record is renumbered to its position, so that any
//! sequence of records is folded, not only a whole journal.
//!
//! With setups that a host assembles, the target also checks invariants. No order of events may
//! lead to an invalid state, with or without a stop and a resume of the host between them.

use std::sync::{Arc, LazyLock};

use conclave_core::config::assemble::assemble;
use conclave_core::config::{Config, Problems};
use conclave_core::inspect::audit;
use conclave_core::inspect::timeline::Timeline;
use conclave_core::journal::record::{fold, from_lines, retold, to_line};
use conclave_core::journal::recovery::Unfinished;
use conclave_core::protocol::event::{Event, RULES, Record, RunOpening};
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::ids::Millis;

use super::facts;
use crate::drive::hash;

/// The maximum number of records of one input.
const RECORDS: usize = 64;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(records) = from_lines(&text) {
        assert!(
            records.iter().zip(0..).all(|(record, seq)| record.seq == seq && record.rules == RULES),
            "a gap, or other rules"
        );
    }
    let mut records: Vec<Record> = Vec::new();
    for line in text.lines().take(RECORDS) {
        // With a line end, a malformed line is an error instead of a torn end.
        if let Some(record) = alone(line) {
            records.push(Record { seq: records.len() as u64, ..record });
        }
    }
    written_and_read(&records);
    folded(&records);
    hosted(&records, hash(input));
}

/// Returns the record in a line, with any number and any version of its rules, because the corpus
/// outlives versions.
fn alone(line: &str) -> Option<Record> {
    let line = with_number(&with_number(line, "\"seq\":", 0)?, "\"rules\":", u64::from(RULES))?;
    let mut records = from_lines(&format!("{line}\n")).ok()?;
    records.pop()
}

/// Returns the line with another number behind the first of these keys.
fn with_number(line: &str, key: &str, number: u64) -> Option<String> {
    let (before, after) = line.split_once(key)?;
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    Some(format!("{before}{key}{number}{rest}"))
}

fn written_and_read(records: &[Record]) {
    let lines: String = records
        .iter()
        .map(|record| to_line(record).expect("what was read is written") + "\n")
        .collect();
    let read =
        from_lines(&lines).unwrap_or_else(|error| panic!("what was written is read: {error}"));
    assert_eq!(read, records, "records are read back as they were");
    // A torn end was never acknowledged; everything before it must be intact.
    if let Some(cut) = lines.len().checked_sub(2).map(|cut| lines.floor_char_boundary(cut)) {
        let torn = from_lines(&lines[..cut])
            .unwrap_or_else(|error| panic!("a torn end is left out: {error}"));
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
    let resumption = unfinished.resumption(now, unfinished.room.setup());
    let mut room = room;
    for event in resumption.events {
        room.handle(event, now);
        while room.poll_effect().is_some() {}
        while room.poll_notice().is_some() {}
    }
}

macro_rules! corpus {
    ($($file:literal),* $(,)?) => { [$(include_str!(concat!("../../corpus/", $file))),*] };
}

/// Journals of the examples, journals of cases in `tests/data/room`, and configs.
const JOURNALS: [&str; 16] = corpus![
    "journal/digest",
    "journal/handoff",
    "journal/pipeline",
    "journal/supervisor",
    "journal/voice",
    "journal/voice-1",
    "journal/case-background",
    "journal/case-condense",
    "journal/case-delegate",
    "journal/case-executor",
    "journal/case-memory",
    "journal/case-responder",
    "journal/case-risk",
    "journal/case-strategy",
    "journal/case-subtask",
    "journal/case-user",
];
const CONFIGS: [&str; 5] =
    corpus!["config/acting", "config/chat", "config/handoff", "config/model", "config/whole"];

/// Setups that hosts create. A room needs to handle no others, because the config and the admission
/// of plugins are checked before a room opens.
static SETUPS: LazyLock<Vec<Arc<Setup>>> = LazyLock::new(|| {
    let opened = JOURNALS.iter().filter_map(|text| match alone(text.lines().next()?)?.event {
        Event::RoomOpened { setup, .. } => Some(setup),
        _ => None,
    });
    let assembled = CONFIGS.iter().filter_map(|text| assembled(text).ok());
    opened.chain(assembled).collect()
});

fn assembled(text: &str) -> Result<Arc<Setup>, Problems> {
    let config = Config::parse("conclave.toml", "/srv/desk", text)?;
    assemble(&config, &facts::all(config.plugins.keys())).map(|assembly| Arc::new(assembly.setup))
}

/// Handles the records as a host handles events. Then repeats that with a stop of the host after
/// one of them.
fn hosted(records: &[Record], chosen: u64) {
    let mut room = Room::new();
    let mut taken = Vec::new();
    for record in records {
        let record = Record { event: sound(&record.event, record.at, &room), ..record.clone() };
        take(&mut room, record.event.clone(), record.at);
        taken.push(record);
    }
    let cut = usize::try_from(chosen % (taken.len() as u64 + 1)).unwrap_or(0);
    let (before, after) = taken.split_at(cut);
    let folded = Unfinished::fold(before.iter().cloned());
    let snapshot = folded.to_snapshot().unwrap_or_else(|error| panic!("it is written: {error}"));
    let unfinished = Unfinished::from_snapshot(&snapshot)
        .unwrap_or_else(|error| panic!("a snapshot is read back: {error}"));
    assert!(unfinished.room == folded.room, "a snapshot is the same room");
    let now = before.last().map_or(Millis(0), |record| record.at).plus(chosen >> 48);
    let resumption = unfinished.resumption(now, unfinished.room.setup());
    let mut room = unfinished.room;
    resumption.events.into_iter().for_each(|event| take(&mut room, event, now));
    for record in after {
        let event = sound(&record.event, record.at, &room);
        take(&mut room, event, record.at);
    }
}

/// Handles an event. A violated invariant is reported with that event.
fn take(room: &mut Room, event: Event, at: Millis) {
    let taken = event.clone();
    room.handle(event, at);
    while room.poll_effect().is_some() {}
    while room.poll_notice().is_some() {}
    let shown = || format!("{taken:?}").chars().take(400).collect::<String>();
    assert!(room.violation().is_none(), "{:?} after {}", room.violation(), shown());
    assert!(
        room.outcome().is_none() || room.calls_in_flight().next().is_none(),
        "it is over and waits for calls after {}",
        shown()
    );
}

/// Returns the event as a host could have written it. An event that opens a room or begins a run
/// gets an assembled setup and one of its tasks. Other events come from outside and may come at any
/// time.
fn sound(event: &Event, at: Millis, room: &Room) -> Event {
    match event {
        Event::RoomOpened { setup, opening, secret } => {
            let setup = sound_setup(setup, at);
            let opening = sound_opening(opening, &setup);
            Event::RoomOpened { setup, opening, secret: secret.clone() }
        }
        Event::RunStarted { setup, opening } => {
            let setup = setup.as_ref().map(|setup| sound_setup(setup, at));
            let opening = sound_opening(opening, setup.as_ref().unwrap_or(room.setup()));
            Event::RunStarted { setup, opening }
        }
        Event::ControlReceived { id, by, message } => {
            let message = Box::new(sound(message, at, room));
            Event::ControlReceived { id: id.clone(), by: by.clone(), message }
        }
        event => event.clone(),
    }
}

/// Returns this setup if a host created it, else one with the same tasks, else any.
fn sound_setup(setup: &Arc<Setup>, at: Millis) -> Arc<Setup> {
    let same = SETUPS.iter().find(|known| *known == setup);
    let alike = || {
        SETUPS
            .iter()
            .find(|known| known.entry == setup.entry && known.tasks.keys().eq(setup.tasks.keys()))
    };
    let chosen = usize::try_from(at.0 % SETUPS.len() as u64).unwrap_or(0);
    Arc::clone(same.or_else(alike).unwrap_or(&SETUPS[chosen]))
}

fn sound_opening(opening: &RunOpening, setup: &Setup) -> RunOpening {
    let entry =
        if setup.tasks.contains_key(&opening.entry) { &opening.entry } else { &setup.entry };
    RunOpening { entry: entry.clone(), ..opening.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without setups the target would check less than it claims.
    #[test]
    fn every_journal_and_every_config_has_a_setup() {
        for text in CONFIGS {
            assembled(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        }
        assert_eq!(SETUPS.len(), JOURNALS.len() + CONFIGS.len());
    }

    #[test]
    fn a_journal_that_was_cut_off_after_any_record_goes_on() {
        for journal in JOURNALS {
            let mut records: Vec<Record> = journal.lines().filter_map(alone).collect();
            records.iter_mut().zip(0..).for_each(|(record, seq)| record.seq = seq);
            assert!(records.len() > 1, "it has records");
            (0..=records.len() as u64).for_each(|cut| hosted(&records, cut));
        }
    }

    /// The check must report a violation: here a step is answered after its task is gone.
    #[test]
    #[should_panic(expected = "StepWaits")]
    fn a_state_that_cannot_be_is_a_finding() {
        let records: Vec<Record> = JOURNALS[2].lines().filter_map(alone).collect();
        let mut room = fold(records[..1].iter().cloned());
        let mut state = serde_json::to_value(&room).expect("a room is serialisable");
        state["frames"]["frames"] = serde_json::json!({});
        room = serde_json::from_value(state).expect("it is a room");
        take(&mut room, records[1].event.clone(), records[1].at);
    }
}
