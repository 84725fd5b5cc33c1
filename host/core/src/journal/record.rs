//! The journal as lines of JSON, and the fold that gives a room back. Text in, text out: where the
//! lines are kept is the host's matter.

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
        "record {expected} of the journal is missing: line {line} holds record {found}. A line was lost, or two journals were joined."
    )]
    Gap { line: usize, expected: u64, found: u64 },
    #[error(
        "record {seq} was written by rules {found}; this host folds rules {RULES}. Use the host that wrote it."
    )]
    OtherRules { seq: u64, found: u32 },
}

impl JournalError {
    /// The stable word for programs.
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

/// A record that no journal takes, because none could be read again that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record {seq} is nested deeper than {JSON_DEPTH_MAX} levels (record_too_deep), and a journal with it could not be read again. Hand over \
     inputs and metadata that are nested less deep"
)]
pub struct RecordTooDeep {
    pub seq: u64,
}

/// Returns one record as a line of a journal, without its end. It holds the room's secret: it is
/// for journals alone.
///
/// # Errors
/// When it is nested deeper than [`from_lines`] reads.
pub fn to_line(record: &Record) -> Result<String, RecordTooDeep> {
    let mut line = shown(record);
    if let Event::RoomOpened { secret, .. } = &record.event {
        line.pop();
        line.push_str(&format!(",\"secret\":\"{}\"}}", secret.to_hex()));
    }
    if is_too_deep(&line) { Err(RecordTooDeep { seq: record.seq }) } else { Ok(line) }
}

/// Returns one record as JSON, without the room's secret.
fn shown(record: &Record) -> String {
    serde_json::to_string(record)
        .expect("a record holds nothing but JSON values, texts and numbers")
}

/// The records of a journal, in order. A torn last line, cut off while it was written, was never
/// acknowledged and is left out.
///
/// # Errors
/// `Malformed` when another line is not a record, `TooDeep` when it is nested deeper than any
/// record, `Gap` when one is missing, `OtherRules` when it was written by other rules.
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
                // What other rules wrote may not look like a record of these; it is no less whole
                // for that.
                return Err(match serde_json::from_str(line) {
                    Ok(RecordStamp { seq, rules }) if rules != RULES => {
                        JournalError::OtherRules { seq, found: rules }
                    }
                    _ => JournalError::Malformed { line: index + 1, cause },
                });
            }
        };
        if record.seq != expected {
            return Err(JournalError::Gap { line: index + 1, expected, found: record.seq });
        }
        if record.rules != RULES {
            return Err(JournalError::OtherRules { seq: record.seq, found: record.rules });
        }
        records.push(record);
    }
    Ok(records)
}

/// A record without its event.
#[derive(serde::Deserialize)]
struct RecordStamp {
    seq: u64,
    rules: u32,
}

/// The room that these records lead to. Effects that they gave rise to are not given out again.
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

/// What people were told in the course of each record, by the record's number, and with what the
/// room ran then. For whoever looks into a run that is over.
#[must_use]
pub fn retold(records: impl IntoIterator<Item = Record>) -> Vec<Retold> {
    let (mut room, mut setup, mut all) = (Room::new(), None, Vec::new());
    for record in records {
        match &record.event {
            Event::RoomOpened { setup: opened, .. } => setup = Some(Arc::clone(opened)),
            Event::RunStarted { setup: Some(anew), .. } => setup = Some(Arc::clone(anew)),
            _ => {}
        }
        let has_effect = room.effect_of(&record.event).is_some();
        room.handle(record.event.clone(), record.at);
        while room.poll_effect().is_some() {}
        let told = std::iter::from_fn(|| room.poll_notice()).collect();
        all.push(Retold { record, has_effect, told, setup: setup.clone() });
    }
    all
}

/// A record, and what followed from it.
#[derive(Clone, Debug)]
pub struct Retold {
    pub record: Record,
    /// False for a control message that took effect before.
    pub has_effect: bool,
    pub told: Vec<Notice>,
    /// None: the journal does not begin as one does.
    pub setup: Option<Arc<Setup>>,
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&shown(self))
    }
}
