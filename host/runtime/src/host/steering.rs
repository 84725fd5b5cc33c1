//! What people do to stored runs: stop, pause, resume, send a text, decide a call, answer a
//! question. The command line and a server call the same functions. A command reaches the process
//! that has the run as a message in the mail of the run's store, and is journalled there or taken
//! back. None is left behind, to take effect much later, unless the run waits for a worker or for
//! its resumption: the process that takes it receives the message first.
//!
//! The functions block: they read the store until the message has arrived. Run them on a thread
//! that may block.

mod decisions;
mod delivery;
mod pausing;
mod stopping;
mod texts;

use std::time::Duration;

use conclave_core::inspect::questions::Settlement;
use conclave_core::types::approval::DecisionFault;
use conclave_core::types::ids::{RoomId, TaskName};
use conclave_core::types::outcome::Status;

use crate::storage::store::{RunRow, StoreError, StoreReader};

pub use decisions::{DecisionPlace, PendingCall, recorded, settle_once, word_of};
pub use delivery::{Delivery, repeated, send, until};
pub use pausing::{Paused, Unpaused, pause, pause_reason, unpause};
pub use stopping::{Stopped, stop};
pub use texts::{TextPlace, tell};

/// The interval between two checks whether a message was received, or a run has ended.
const EVERY: Duration = Duration::from_millis(100);

/// The reason why a command had no effect, or why its effect is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// The store cannot be used; nothing was sent.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was lost after the command was sent, so it may still take effect.
    #[error("{error}")]
    Unconfirmed {
        /// The run.
        run: RoomId,
        /// The failure of the store.
        error: StoreError,
    },
    /// The store has no such run.
    #[error("the run {run} is not stored")]
    Unknown {
        /// The run.
        run: RoomId,
    },
    /// The run has ended.
    #[error("the run {run} has ended ({})", status.as_str())]
    Ended {
        /// The run.
        run: RoomId,
        /// How it ended.
        status: Status,
    },
    /// No process has the run, and none takes it by itself.
    #[error("the run {run} was interrupted")]
    Interrupted {
        /// The run.
        run: RoomId,
    },
    /// The run has no such task.
    #[error("the run {run} has no task {task}")]
    UnknownTask {
        /// The run.
        run: RoomId,
        /// The requested task.
        task: TaskName,
        /// The tasks of the run.
        known: Vec<String>,
    },
    /// The receiver could not parse the message.
    #[error("the process of {run} could not read the message")]
    Unreadable {
        /// The run.
        run: RoomId,
    },
    /// No process received the message in time; it was withdrawn.
    #[error("the process of {run} did not receive the message within {} s; the message was withdrawn", most.as_secs())]
    NotReceived {
        /// The run.
        run: RoomId,
        /// The time.
        most: Duration,
    },
    /// The receiver did not record the message in time.
    #[error("the process of {run} received the message but did not record it within {} s; it may still take effect", most.as_secs())]
    NotRecorded {
        /// The run.
        run: RoomId,
        /// The time.
        most: Duration,
    },
    /// The receiver ended before; the message was withdrawn.
    #[error("the process of {run} ended before it received the message; the message was withdrawn")]
    ReceiverEnded {
        /// The run.
        run: RoomId,
    },
    /// The run received a stop, and has not ended.
    #[error("{run} received the stop, and has not ended within {} s", most.as_secs())]
    NotEnded {
        /// The run.
        run: RoomId,
        /// The time.
        most: Duration,
    },
    /// The run has the text, and no agent of it reads texts.
    #[error("{run} received the message, and no agent reads it: {reason}")]
    Dropped {
        /// The run.
        run: RoomId,
        /// The reason, as the room records it.
        reason: String,
    },
    /// The call does not wait for a person.
    #[error("{id} is not pending: it was decided, has expired, or never existed")]
    NotPending {
        /// The id of the call.
        id: String,
        /// The ids of the calls of the same run that do.
        others: Vec<String>,
    },
    /// Another decision about the call is on its way.
    #[error("{id} was already {word}; the run has not received that yet")]
    DecisionOnItsWay {
        /// The id of the call.
        id: String,
        /// `approved`, `refused` or `answered`.
        word: &'static str,
        /// The person at a server who sent it; `None` for a terminal.
        by: Option<String>,
    },
    /// The call was settled before. Only the first decision counts.
    #[error("{id} is not pending any more{}", settled_text(decision.as_ref()))]
    AlreadyDecided {
        /// The id of the call.
        id: String,
        /// The recorded decision; `None` if the call waits no more for another reason.
        decision: Option<Settlement>,
    },
    /// The room rejected the decision; the call still waits for one.
    #[error("the run rejected the decision about {id}: {fault}")]
    Rejected {
        /// The id of the call.
        id: String,
        /// The reason.
        fault: DecisionFault,
    },
    /// The run has received an earlier decision that was to be replaced.
    #[error(
        "the run of {id} has received an earlier decision and not recorded it yet; that one may take effect"
    )]
    DecisionReceived {
        /// The id of the call.
        id: String,
    },
    /// A message with this id and other contents was sent before.
    #[error("the key was used for another request about {run}")]
    KeyReused {
        /// The run.
        run: RoomId,
    },
}

impl SteeringError {
    /// The stable code for programs; the same at every door.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(_) => "failed",
            Self::Unconfirmed { .. } | Self::NotRecorded { .. } => "unconfirmed",
            Self::Unknown { .. } => "run_not_found",
            Self::Ended { .. } | Self::ReceiverEnded { .. } => "run_ended",
            Self::Interrupted { .. } => "run_interrupted",
            Self::UnknownTask { .. } => "unknown_task",
            Self::Unreadable { .. } | Self::NotReceived { .. } | Self::NotEnded { .. } => {
                "not_received"
            }
            Self::Dropped { .. } => "not_read",
            Self::NotPending { .. } => "question_not_found",
            Self::DecisionOnItsWay { .. }
            | Self::AlreadyDecided { .. }
            | Self::DecisionReceived { .. } => "already_decided",
            Self::Rejected { fault, .. } => fault.code(),
            Self::KeyReused { .. } => "key_reused",
        }
    }
}

fn settled_text(decision: Option<&Settlement>) -> String {
    let Some(Settlement { decision, by, .. }) = decision else { return String::new() };
    let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    format!(": it was already {}{by}", decision.as_str())
}

/// The row of a run.
fn row_of(reader: &StoreReader, run: &RoomId) -> Result<RunRow, SteeringError> {
    reader.run(run)?.ok_or_else(|| SteeringError::Unknown { run: run.clone() })
}
