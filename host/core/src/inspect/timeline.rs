//! The timeline of a run as rows: steps, model calls, tool calls, side effects, approvals,
//! refusals, background tasks. Derived from the records of its rooms by the same fold as every
//! view, during a run or after it. Rendering is elsewhere. Texts come from plugins and models; they
//! are cut but not sanitised.

mod clock;
mod fold;
pub mod groups;
mod row;
pub mod row_text;
mod tree;

use serde::{Deserialize, Serialize};

use crate::protocol::event::{Event, Record};
use crate::types::ids::{Millis, RoomId, TaskName};
use crate::types::outcome::Status;
use crate::types::text::cut_chars;

pub use fold::TimelineFold;
pub use row::{Effected, Given, InboundOutcome, RowSubject, SandboxUsage, TimelineRow};

/// The number of characters kept of a text.
pub const TEXT: usize = 400;

/// A run from its first record to its newest one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub run: RoomId,
    /// The start of the run; times of rows are milliseconds from here.
    pub started: Millis,
    /// Milliseconds to the newest record. Like all times here, it excludes downtime of the host.
    pub took_ms: u64,
    pub entry: TaskName,
    /// The first message, cut.
    pub message: String,
    /// The end of the run; `None` if its journal records none.
    pub ended: Option<RoomEnd>,
    pub totals: Totals,
    /// The rooms, the root first.
    pub rooms: Vec<Lane>,
    /// The rows in tree order: each before its children, which are in the order of their beginning.
    pub rows: Vec<TimelineRow>,
}

/// The end of a room.
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

/// Totals over all rooms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub records: u64,
    /// The number of agent calls.
    pub steps: u64,
    pub model_calls: u64,
    pub input_tokens: u64,
    pub cached_input_tokens: u64,
    pub output_tokens: u64,
    /// Micro-US-dollars of all answers with a known price.
    pub cost_micro_usd: u64,
    /// The number of answers without a known price.
    pub unpriced: u64,
    pub tool_calls: u64,
    /// The number of calls in a sandbox of their own: agents, tools, strategies and queries, without
    /// those of foreign servers and of the embedding program.
    pub sandboxes: u64,
    /// The peak memory of a single call in bytes.
    pub memory: u64,
    pub cpu_ms: u64,
    pub side_effects: u64,
    pub approvals: u64,
    /// Milliseconds spent waiting for approvals, all together.
    pub approval_ms: u64,
    /// The number of requests to raise a limit.
    #[serde(default)]
    pub top_ups: u64,
    pub denials: u64,
    pub faults: u64,
    pub background: u64,
    pub resumed: u64,
    /// Milliseconds in which no host ran.
    pub down_ms: u64,
    /// Whether `down_ms` is an upper bound, because a host was killed.
    #[serde(default)]
    pub is_down_at_most: bool,
}

impl Timeline {
    /// The timeline of these rooms' records, the root's first. Each list may end anywhere. `None`
    /// if the root's records do not begin with an opening.
    #[must_use]
    pub fn of(rooms: impl IntoIterator<Item = Vec<Record>>) -> Option<Self> {
        let mut fold = TimelineFold::default();
        for records in rooms {
            let Some(Event::RoomOpened { opening, .. }) = records.first().map(|first| &first.event)
            else {
                continue;
            };
            let room = opening.room.clone();
            records.into_iter().for_each(|record| fold.take(&room, record));
        }
        fold.timeline()
    }

    /// Extends a run that is still under way to `now`, past its newest record.
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
    /// The tokens of input and output.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The cost in micro-US-dollars; `None` if part of it is unknown, or no model answered.
    #[must_use]
    pub fn cost(&self) -> Option<u64> {
        (self.unpriced == 0 && self.tokens() > 0).then_some(self.cost_micro_usd)
    }
}

/// At most [`TEXT`] characters of the text, with a mark if it was cut.
pub(crate) fn short(text: &str) -> String {
    cut_chars(text, TEXT).into_owned()
}
