//! What happened in a run and when, as rows: steps, model calls, tool calls, what left for the
//! world, approvals, refusals, background tasks. Worked out of the records of its rooms by the same
//! fold as everything; for whoever looks at a run, whether it is over or not. How it is shown is
//! others' business. Texts in it are a plugin's or a model's, cut but not made harmless.

mod clock;
mod fold;
mod row;
mod tree;

use serde::{Deserialize, Serialize};

use crate::protocol::event::Record;
use crate::types::ids::{Millis, RoomId, TaskName};
use crate::types::outcome::Status;

pub(crate) use fold::verb_of;
pub use row::{Effected, Given, RowSubject, SandboxUsage, TimelineRow};

/// Characters of a text that are kept.
pub const TEXT: usize = 400;

/// A run from its first record to its newest one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub run: RoomId,
    /// Times of rows are milliseconds from here.
    pub started: Millis,
    /// To the newest record. As in all times here, those in which no host ran are left out.
    pub took_ms: u64,
    pub entry: TaskName,
    /// The first message, cut.
    pub message: String,
    /// Why the run ended; none when its journal does not say that it did.
    pub ended: Option<RoomEnd>,
    pub totals: Totals,
    /// The root first.
    pub rooms: Vec<Lane>,
    /// Each before what is below it, which comes in the order in which it began.
    pub rows: Vec<TimelineRow>,
}

/// How a room ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomEnd {
    pub status: Status,
    pub reason: String,
    /// The text of the result, cut.
    pub answer: Option<String>,
}

/// A room of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    pub room: RoomId,
    pub entry: TaskName,
    pub start_ms: u64,
    pub end_ms: Option<u64>,
    pub records: u64,
    pub status: Option<Status>,
}

/// Amounts over all rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub records: u64,
    /// Calls of agents.
    pub steps: u64,
    pub model_calls: u64,
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Of all answers whose price is known.
    pub cost_micro_usd: u64,
    /// Answers whose price is not known.
    pub unpriced: u64,
    pub tool_calls: u64,
    /// Calls in a sandbox of their own: agents, tools, strategies, and whatever else plugins are
    /// asked.
    pub sandboxes: u64,
    /// The most that one of them held, in bytes.
    pub memory: u64,
    pub cpu_ms: u64,
    pub side_effects: u64,
    pub approvals: u64,
    /// Milliseconds that approvals were waited for, all together.
    pub approval_ms: u64,
    /// Times that more of a budget was asked for.
    #[serde(default)]
    pub top_ups: u64,
    pub denials: u64,
    pub faults: u64,
    pub background: u64,
    pub resumed: u64,
    /// Milliseconds in which no host ran.
    pub down_ms: u64,
}

impl Timeline {
    /// From the records of each room, the root's first, which may be cut off anywhere; none when
    /// the root's do not begin as they should.
    #[must_use]
    pub fn of(rooms: impl IntoIterator<Item = Vec<Record>>) -> Option<Self> {
        let mut folded = fold::Fold::default();
        for records in rooms {
            folded.room(records);
        }
        folded.into_timeline()
    }

    /// Of a run that goes on: up to this moment, not only to the newest record.
    pub fn extend(&mut self, now: Millis) {
        let took_ms = now.since(self.started).saturating_sub(self.totals.down_ms).max(self.took_ms);
        let waiting = self
            .rows
            .iter()
            .filter(|row| row.end_ms.is_none() && matches!(row.what, RowSubject::Approval { .. }));
        let more = (took_ms - self.took_ms).saturating_mul(waiting.count() as u64);
        self.totals.approval_ms = self.totals.approval_ms.saturating_add(more);
        self.took_ms = took_ms;
    }
}

impl Totals {
    /// Input and output.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// In micro-US-dollars; none when some of it is not known, or no model answered.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        (self.unpriced == 0 && self.tokens() > 0).then_some(self.cost_micro_usd)
    }
}

/// Text of at most [`TEXT`] characters, with a mark when it was cut.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
