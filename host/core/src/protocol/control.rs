//! Commands to a room from outside. A handle of the embedding program, a message of another process
//! and a key of a terminal give the same value, and it reaches the room as the same event.

use serde::{Deserialize, Serialize};

use crate::protocol::event::Event;
use crate::types::approval::{Approval, ApprovalAuthor};
use crate::types::ids::{CallId, ControlId, Principal, TaskName};
use crate::types::request::{RequestId, RoomRequest};

/// The reason of a pause by which a host gives its run to another one. The next host lifts it, and a
/// person's pause takes its place.
pub const HANDOVER: &str = "its worker stops; the next one goes on";

/// A command to a room. It has no reply, and no effect once the run is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum ControlCommand {
    /// Decides a call that waits for an approval.
    Decide {
        call: CallId,
        approval: Approval,
        /// The SHA-256 of the arguments that the approver saw: the decision counts only for these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments_sha256: Option<String>,
    },
    /// Answers a question that waits for its user.
    Answer { call: CallId, text: String },
    /// Ends the run.
    Stop { reason: String },
    /// Stops the current work of the entry task. An interactive task then asks its user; any other
    /// ends.
    StopTurn { reason: String },
    /// Stops one task, wherever it works in the run, and its own sub-tasks. The caller of a
    /// sub-task continues with the partial result; a background task ends as cancelled. Stopping
    /// the entry task ends the run.
    KillTask { task: TaskName, reason: String },
    /// Pauses the run with its background tasks: active work runs to its end, and nothing new
    /// begins (O-122).
    Pause { reason: String },
    /// Resumes a paused run.
    Unpause,
    /// Sends a text that the agent reads in its next step (O-053).
    Tell {
        /// The recipient; `None` means the entry task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskName>,
        text: String,
    },
    /// Any other request to a room, without a reply.
    Ask { what: Box<RoomRequest> },
}

/// A command of another process, with the id under which it takes effect once.
#[derive(Clone, Debug, PartialEq)]
pub struct SentCommand {
    pub id: ControlId,
    /// The person at a server who sent it; `None` for a command of a terminal.
    pub by: Option<Principal>,
    pub word: ControlCommand,
}

impl SentCommand {
    /// The event that a room records of it.
    #[must_use]
    pub fn into_event(self) -> Event {
        let Self { id, by, word } = self;
        let at = by.as_ref().map_or_else(
            || "another terminal".to_owned(),
            |Principal(name)| format!("the server ({name})"),
        );
        let message = Box::new(word.into_event(ApprovalAuthor::Person { at }));
        Event::ControlReceived { id, by, message }
    }
}

impl ControlCommand {
    /// The waiting call that the command decides or answers. The first such command
    /// counts.
    #[must_use]
    pub fn settles(&self) -> Option<CallId> {
        match self {
            Self::Decide { call, .. } | Self::Answer { call, .. } => Some(*call),
            _ => None,
        }
    }

    /// The event of this command. `author` is recorded with a decision.
    #[must_use]
    pub fn into_event(self, author: ApprovalAuthor) -> Event {
        match self {
            Self::Decide { call, approval, arguments_sha256 } => {
                Event::Decided { call, approval, author, arguments_sha256 }
            }
            Self::Answer { call, text } => Event::UserAnswered {
                call,
                text: Some(text),
                attachments: Vec::new(),
                passed: false,
            },
            Self::Stop { reason } => Event::Cancelled { reason },
            Self::StopTurn { reason } => Event::TurnStopped { reason },
            Self::KillTask { task, reason } => Event::TaskKilled { task, reason },
            Self::Pause { reason } => Event::Paused { reason },
            Self::Unpause => Event::Unpaused,
            Self::Tell { task, text } => {
                Event::UserMessageSent { task, text, attachments: Vec::new() }
            }
            Self::Ask { what } => Event::Requested { request: RequestId::NO_REPLY, what: *what },
        }
    }
}
