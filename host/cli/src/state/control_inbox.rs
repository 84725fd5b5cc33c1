//! Receives messages from other terminals for the runs that this process has in progress:
//! approvals, refusals, stops, pauses and texts for agents. Messages for other runs stay in the
//! mail until a process resumes those runs.

use std::sync::Arc;
use std::time::Duration;

use conclave_core::types::approval::{Approval, approval_id};
use conclave_core::types::ids::Principal;
use conclave_core::types::request::RoomRequest;
use conclave_runtime::ControlInbox;
use conclave_runtime::Host;
use conclave_runtime::store::{ControlCommand, ControlMessage, Store};
use tokio::task::AbortHandle;

use crate::ui::screen::Screen;
use crate::ui::show::{FAINT, one_line, paint, printable};

/// The interval between two looks for the mail of other processes.
const EVERY: Duration = Duration::from_millis(200);

/// Characters of a text that are shown.
const SHOWN: usize = 80;

/// Receives messages until it is dropped.
pub(crate) struct ControlListener(AbortHandle);

impl ControlListener {
    pub(crate) fn begin(store: &Store, host: &Arc<Host>, screen: &Arc<Screen>) -> Self {
        let (mut inbox, screen) = (ControlInbox::new(store, host), Arc::clone(screen));
        let task = tokio::spawn(async move {
            loop {
                inbox.receive_next(EVERY, |mail| show(&screen, mail)).await;
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Shows a message when its room receives it.
fn show(screen: &Screen, ControlMessage { room, by, word, .. }: &ControlMessage) {
    let whence = by.as_ref().map_or_else(
        || "from another terminal".to_owned(),
        |Principal(name)| format!("by {}", printable(name)),
    );
    let line = match word {
        ControlCommand::Decide { call, approval, .. } => {
            format!(
                "{} was decided {whence}: {}",
                approval_id(room, *call),
                decision_text(approval)
            )
        }
        ControlCommand::Answer { call, text } => {
            format!("{} was answered {whence}: {}", approval_id(room, *call), one_line(text, SHOWN))
        }
        ControlCommand::Stop { .. } => format!("{room} was stopped {whence}"),
        ControlCommand::StopTurn { .. } => {
            format!("the turn of {room} was stopped {whence}")
        }
        ControlCommand::KillTask { task, .. } => {
            format!("{task} of {room} was stopped {whence}")
        }
        ControlCommand::Pause { reason } => {
            format!(
                "{room} was paused {whence}: {}; `conclave resume {room}` resumes it",
                one_line(reason, SHOWN)
            )
        }
        ControlCommand::Unpause => format!("{room} was resumed {whence}"),
        ControlCommand::Tell { text, .. } => {
            format!("{room} received a message {whence}: {}", one_line(text, SHOWN))
        }
        ControlCommand::Ask { what } => {
            format!("{room} received a request {whence}: {}", request_text(what))
        }
    };
    screen.line(paint(FAINT, format_args!("      {line}")));
}

fn request_text(what: &RoomRequest) -> String {
    match what {
        RoomRequest::CancelTask { task, reason } => {
            format!("to cancel {task}: {}", one_line(reason, SHOWN))
        }
        RoomRequest::TellTask { task, text } => {
            format!("to send {task} a message: {}", one_line(text, SHOWN))
        }
        RoomRequest::Close { reason } => format!("to close: {}", one_line(reason, SHOWN)),
        _ => "of another kind".to_owned(),
    }
}

fn decision_text(approval: &Approval) -> String {
    match approval {
        Approval::Approved => "approved".to_owned(),
        Approval::Edited { .. } => "approved with other arguments".to_owned(),
        Approval::Refused { reason } => format!("refused: {}", one_line(reason, SHOWN)),
        Approval::Invalid { message } => format!("cannot run: {}", printable(message)),
    }
}
