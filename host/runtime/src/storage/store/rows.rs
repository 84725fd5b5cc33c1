//! The rows of the lists, stored beside the records and written with them.

use std::path::PathBuf;

use conclave_core::inspect::questions::{Question, QuestionKind};
use conclave_core::inspect::telling::Tone;
use conclave_core::journal::pending_work::PendingWork;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Status;
use conclave_core::types::usage::Spent;
use serde::Serialize;

use super::StoreAddress;

/// The commands whose runs are conversations.
const CONVERSATIONS: [&str; 2] = ["chat", "serve"];

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "status", rename_all = "kebab-case")]
pub enum RunState {
    /// A process has the run open.
    Running,
    /// The process that had the run open is gone; the run can be resumed.
    Interrupted,
    /// The run waits for a worker of its pool, in a store that hosts share.
    Queued,
    /// The run waits for a time or a person, and has no host meanwhile: a worker takes it
    /// afterwards.
    Asleep,
    /// The run has an outcome with this status.
    Ended(Status),
}

/// A run: a root room and the rooms below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    /// The root room, whose name is the run's.
    pub run: RoomId,
    /// The time of the root room's first record.
    pub started: Millis,
    /// The time of the newest record of any of its rooms.
    pub updated: Millis,
    /// The time of the outcome; `None` if the run has none yet.
    pub ended: Option<Millis>,
    /// The time at which a process that ran it noted that it stops; `None` if none noted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Millis>,
    /// The state of the run, as of the query.
    pub state: RunState,
    /// The entry task.
    pub entry: String,
    /// The plugins that are agents of its tasks, in order.
    pub agents: Vec<String>,
    /// The beginning of its first message.
    pub message: String,
    /// The reason for its end.
    pub reason: Option<String>,
    /// The number of turns, with those of ended child rooms.
    pub turns: u64,
    /// The number of tokens of all model requests, with those of ended child rooms.
    pub tokens: u64,
    /// The cost in micro-US-dollars, with that of ended child rooms.
    pub cost_micro_usd: u64,
    /// The number of rooms, the root included.
    pub rooms: u64,
    /// The number of records in all rooms.
    pub records: u64,
    /// The durability with which it was started: `sync`, `group` or `exit`.
    pub durability: String,
    /// The config's file, as an absolute path; `None` if the config is not from a file.
    pub config: Option<PathBuf>,
    /// The command that started it, such as `run` or `chat`.
    pub command: String,
    /// Whether it was checked against the lock beside the config.
    pub locked: bool,
    /// Who decides on calls that need an approval, as its program said at its start.
    pub approvals: String,
    /// Who answers the questions of tasks, likewise.
    pub questions: String,
    /// The principal on whose behalf it acts.
    pub principal: String,
    /// The store that holds it.
    pub store: StoreAddress,
}

/// A room of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomRow {
    /// The name of the room, which begins with its parent's.
    pub room: RoomId,
    /// The room that opened this one; `None` for the root room.
    pub parent: Option<RoomId>,
    /// The state of the room, as of the query.
    pub state: RunState,
    /// The time of the room's first record.
    pub started: Millis,
    /// The time of the room's outcome; `None` if it has none yet.
    pub ended: Option<Millis>,
    /// The entry task.
    pub entry: String,
    /// The number of the room's own records.
    pub records: u64,
    /// The usage of the room, with that of ended child rooms.
    pub spent: Spent,
}

/// A piece of pending work of a room.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    /// The room that waits.
    pub room: RoomId,
    /// The time since which it waits.
    pub since: Millis,
    /// The call or timer that it waits for.
    pub wait: PendingWork,
    /// Whether a process has the run open and receives control messages for it.
    pub is_live: bool,
}

/// Pending work of a room that waits for a person, with its question.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionRow {
    /// The pending work.
    pub wait: WaitRow,
    /// The question, as the records of the room lead to it. `None` if this host cannot fold them, or
    /// if they ask nothing.
    pub question: Option<Question>,
}

/// A row of a list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamagedRow {
    /// The room of the row.
    pub room: RoomId,
    /// The damage, for display.
    #[serde(rename = "reason")]
    pub what: String,
}

impl WaitRow {
    /// Whether it waits for a person: an approver, or the user of a task.
    #[must_use]
    pub fn asks_person(&self) -> bool {
        self.wait.asks_approval() || self.wait.kind == "user"
    }
}

impl QuestionRow {
    /// Whether a conversation waits for its next message, rather than a task for an answer. `run` is
    /// the run of the room.
    #[must_use]
    pub fn is_next_message(&self, run: &RunRow) -> bool {
        let Some(Question { kind: QuestionKind::Ask { .. }, chain, .. }) = &self.question else {
            return false;
        };
        let is_of_entry = chain.last().is_some_and(|asker| asker.task.as_str() == run.entry);
        run.is_conversation() && is_of_entry
    }
}

impl RunRow {
    /// Whether people talk with it: it then waits for its next message most of the time.
    #[must_use]
    pub fn is_conversation(&self) -> bool {
        CONVERSATIONS.contains(&self.command.as_str())
    }

    /// The time up to which a host ran the run, as far as it is known: `now` while one does,
    /// its noted stop, or else the newest record.
    #[must_use]
    pub fn until(&self, now: Millis) -> Millis {
        let latest = match self.state {
            RunState::Running => now,
            // A note of an earlier process is older than the records of the next one.
            RunState::Interrupted | RunState::Queued | RunState::Asleep => {
                self.stopped.unwrap_or_default()
            }
            RunState::Ended(_) => self.updated,
        };
        latest.max(self.updated)
    }
}

/// The command under which conversations of browsers are stored. `conclave serve` continues them
/// itself.
pub const SERVED: &str = "serve";
/// The state of such a conversation while no server has it open.
pub const CLOSED: &str = "closed";

impl RunState {
    /// The word for people for a run of this command, with its tone.
    #[must_use]
    pub fn in_words(self, command: &str) -> (Tone, String) {
        match self {
            // Its server left it in order, or continues it at its next start.
            Self::Interrupted if command == SERVED => (Tone::Name, CLOSED.to_owned()),
            Self::Running | Self::Queued | Self::Asleep => (Tone::Name, self.word()),
            Self::Interrupted => (Tone::Odd, self.word()),
            Self::Ended(status) if status.is_success() => (Tone::Good, self.word()),
            Self::Ended(_) => (Tone::Bad, self.word()),
        }
    }

    /// Whether a process has the run open, or a worker takes it by itself: a message to it arrives.
    #[must_use]
    pub fn goes_on(self) -> bool {
        matches!(self, Self::Running | Self::Queued | Self::Asleep)
    }

    /// The word for a filter: `running`, `interrupted`, `queued`, `asleep`, or the ending's, such as
    /// `max-turns`.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Running => "running".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Queued => "queued".to_owned(),
            Self::Asleep => "asleep".to_owned(),
            Self::Ended(status) => status.as_str().to_lowercase().replace('_', "-"),
        }
    }
}
