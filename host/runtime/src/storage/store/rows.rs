//! The rows of the lists, stored beside the records and written with them.

use std::path::PathBuf;

use conclave_core::journal::pending_work::PendingWork;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Status;
use conclave_core::types::usage::Spent;
use serde::Serialize;

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "status", rename_all = "kebab-case")]
pub enum RunState {
    /// A process has the run open.
    Running,
    /// The process that had the run open is gone; the run can be resumed.
    Interrupted,
    Ended(Status),
}

/// A run: a root room and the rooms below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    pub run: RoomId,
    pub started: Millis,
    /// The time of the newest record of any of its rooms.
    pub updated: Millis,
    pub ended: Option<Millis>,
    pub state: RunState,
    pub entry: String,
    /// The plugins that are agents of its tasks, in order.
    pub agents: Vec<String>,
    /// The beginning of its first message.
    pub message: String,
    /// The reason for its end.
    pub reason: Option<String>,
    pub turns: u64,
    pub tokens: u64,
    pub cost_micro_usd: u64,
    pub rooms: u64,
    pub records: u64,
    pub durability: String,
    pub config: Option<PathBuf>,
    pub command: String,
    pub locked: bool,
    pub principal: String,
    /// The store that holds it.
    pub store: PathBuf,
}

/// A room of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomRow {
    pub room: RoomId,
    pub parent: Option<RoomId>,
    pub state: RunState,
    pub started: Millis,
    pub ended: Option<Millis>,
    pub entry: String,
    pub records: u64,
    pub spent: Spent,
}

/// A piece of pending work of a room.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    pub room: RoomId,
    pub since: Millis,
    pub wait: PendingWork,
    /// Whether a process has the run open and receives control messages for it.
    pub is_live: bool,
}

impl RunState {
    /// Returns the word for a filter: `running`, `interrupted`, or the ending's, such as
    /// `max-turns`.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Running => "running".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Ended(status) => status.as_str().to_lowercase().replace('_', "-"),
        }
    }
}
