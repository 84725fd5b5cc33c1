//! The journal as lines of JSON, and the fold from records to a room. Works on text only; the
//! driver appends the lines (`driver/commit`), and the runtime stores them (`storage/`).

use std::fmt;
use std::sync::Arc;

use crate::protocol::event::{Event, RULES, Record};
use crate::protocol::notice::Notice;
use crate::room::Room;
use crate::setup::Setup;
use crate::types::json_depth::{JSON_DEPTH_MAX, JsonError, from_json, is_too_deep};

/// A journal that cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("line {line} of the journal is not a record: {cause}")]
    Malformed { line: usize, cause: serde_json::Error },
    #[error(
        "record {seq} of the journal, in line {line}, is nested deeper than {JSON_DEPTH_MAX} levels (record_too_deep). No host wrote it: \
         the file was changed."
    )]
    TooDeep { line: usize, seq: u64 },
    #[error(
        "record {expected} of the journal is missing: line {line} holds record {actual}. A line was lost, or two journals were joined."
    )]
    Gap { line: usize, expected: u64, actual: u64 },
    #[error(
        "record {seq} was written by rules {rules}; this host folds rules {RULES}. Use the host that wrote it."
    )]
    OtherRules { seq: u64, rules: u32 },
}

impl JournalError {
    /// The stable error code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed_record",
            Self::TooDeep { .. } => "record_too_deep",
            Self::Gap { .. } => "missing_record",
            Self::OtherRules { .. } => "other_rules",
        }
    }
}

/// A record that cannot be written, because no journal that holds it could be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record {seq} is nested deeper than {JSON_DEPTH_MAX} levels (record_too_deep), and a journal with it could not be read again. Hand over \
     inputs and metadata that are nested less deep"
)]
pub struct RecordTooDeep {
    pub seq: u64,
}

/// Returns one record as a line of a journal, without its line end. The line holds the room's
/// secret, so it is for journals only.
///
/// # Errors
/// `RecordTooDeep` if the record is nested deeper than [`from_lines`] reads.
pub fn to_line(record: &Record) -> Result<String, RecordTooDeep> {
    let mut line = to_json(record);
    if let Event::RoomOpened { secret, .. } = &record.event {
        line.pop();
        line.push_str(&format!(",\"secret\":\"{}\"}}", secret.to_hex()));
    }
    if is_too_deep(&line) { Err(RecordTooDeep { seq: record.seq }) } else { Ok(line) }
}

/// One record as JSON, without the room's secret.
fn to_json(record: &Record) -> String {
    serde_json::to_string(record)
        .expect("a record holds nothing but JSON values, texts and numbers")
}

/// Returns the records of a journal, in order. A torn last line was never acknowledged and is left
/// out.
///
/// # Errors
/// `Malformed` if another line is not a record, `TooDeep` if one is nested too deep, `Gap` if one
/// is missing, `OtherRules` if it was written by another version of the rules.
pub fn from_lines(text: &str) -> Result<Vec<Record>, JournalError> {
    let mut records: Vec<Record> = Vec::new();
    let ends_whole = text.ends_with('\n');
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let expected = records.len() as u64;
        let record: Record = match from_json(line) {
            Ok(record) => record,
            Err(_) if index + 1 == lines.len() && !ends_whole => break,
            Err(JsonError::TooDeep) => {
                return Err(JournalError::TooDeep { line: index + 1, seq: expected });
            }
            Err(JsonError::Malformed(cause)) => {
                // Records of another rules version may not parse as records of this one. Report the
                // version then, because the journal itself is not damaged.
                return Err(match serde_json::from_str(line) {
                    Ok(RecordStamp { seq, rules }) if rules != RULES => {
                        JournalError::OtherRules { seq, rules }
                    }
                    _ => JournalError::Malformed { line: index + 1, cause },
                });
            }
        };
        if record.seq != expected {
            return Err(JournalError::Gap { line: index + 1, expected, actual: record.seq });
        }
        if record.rules != RULES {
            return Err(JournalError::OtherRules { seq: record.seq, rules: record.rules });
        }
        records.push(record);
    }
    Ok(records)
}

/// The sequence number and time of a record, without its event.
#[derive(serde::Deserialize)]
struct RecordStamp {
    seq: u64,
    rules: u32,
}

/// The room that these records lead to. Their effects are discarded, not performed again.
#[must_use]
pub fn fold(records: impl IntoIterator<Item = Record>) -> Room {
    let mut room = Room::new();
    for record in records {
        room.handle(record.event, record.at);
        while room.poll_effect().is_some() {}
        while room.poll_notice().is_some() {}
    }
    room
}

/// The notices of each record, with the setup in force at that record. Used to inspect a run that
/// has ended.
#[must_use]
pub fn retold(records: impl IntoIterator<Item = Record>) -> Vec<ReplayedRecord> {
    let (mut room, mut setup, mut all) = (Room::new(), None, Vec::new());
    for record in records {
        setup = record.event.setup().map(Arc::clone).or(setup);
        let has_effect = room.effect_of(&record.event).is_some();
        room.handle(record.event.clone(), record.at);
        while room.poll_effect().is_some() {}
        let notices = std::iter::from_fn(|| room.poll_notice()).collect();
        all.push(ReplayedRecord { record, has_effect, notices, setup: setup.clone() });
    }
    all
}

/// The setup in force after these records; `None` if none of them carries one.
#[must_use]
pub fn setup_in_force(records: &[Record]) -> Option<&Arc<Setup>> {
    records.iter().rev().find_map(|record| record.event.setup())
}

/// A record with the notices that it caused.
#[derive(Clone, Debug)]
pub struct ReplayedRecord {
    pub record: Record,
    /// False for a control message that had already taken effect.
    pub has_effect: bool,
    pub notices: Vec<Notice>,
    /// The setup in force; `None` if the journal does not begin with an opening record.
    pub setup: Option<Arc<Setup>>,
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&to_json(self))
    }
}
