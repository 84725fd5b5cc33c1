//! The propagation of pauses: each child room gets the pauses of its parent. The meaning of a
//! pause belongs to the core.

use conclave_core::protocol::control::{ControlCommand, HANDOVER};
use conclave_core::protocol::event::Event;

use super::{Driver, UnderWay};
use crate::storage::journal::JournalFailure;

/// A change of a room's pause by an event.
pub(super) struct PauseChange {
    /// The command that child rooms get.
    command: Option<ControlCommand>,
}

impl PauseChange {
    /// Returns the change; `None` if the event makes none.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let command = match event.effective() {
            Event::Paused { reason } => Some(ControlCommand::Pause { reason: reason.clone() }),
            Event::Unpaused => Some(ControlCommand::Unpause),
            // A run begins unpaused.
            Event::RunStarted { .. } | Event::RoomOpened { .. } => None,
            _ => return None,
        };
        Some(Self { command })
    }
}

impl Driver {
    /// The reason why the run stays paused when it is resumed; `None` if it goes on.
    pub(crate) fn paused(&self) -> Option<&str> {
        self.paused.as_deref().filter(|reason| *reason != HANDOVER)
    }

    /// Takes the pause state over from the room, which has handled the event that changed it.
    /// Returns the command that child rooms are to get.
    pub(super) fn note_pause(&mut self, change: PauseChange) -> Option<ControlCommand> {
        self.paused = self.room.paused().map(str::to_owned);
        self.clients.view.set_pause(self.paused.clone());
        change.command
    }

    /// Sends pause commands to the child rooms. Called after the append, so that a child's record
    /// never precedes its parent's.
    pub(super) fn report_children(&self, pauses: Vec<ControlCommand>) {
        for pause in pauses {
            for under_way in self.under_way.values() {
                if let UnderWay::Child(child) = under_way {
                    child.control(pause.clone());
                }
            }
        }
    }

    /// Ends the pause by which the host before gave the run up. Called once the messages that
    /// arrived meanwhile are handled: one of them may be a person's pause, which stays.
    pub(super) async fn lift_handover(&mut self) -> Result<(), JournalFailure> {
        let is_root = self.progressing.is_none();
        // A child room gets the pause state of its parent.
        if !is_root || self.room.paused() != Some(HANDOVER) {
            return Ok(());
        }
        self.commit_and_perform(&mut vec![Event::Unpaused]).await
    }
}

/// The event that gives a child room the pause state of its parent. The child may have been
/// interrupted before it received the parent's event.
pub(super) fn pause_as(parent: Option<&str>, child: Option<&str>) -> Option<Event> {
    match (parent, child) {
        (Some(reason), None | Some(HANDOVER)) if child != Some(reason) => {
            Some(Event::Paused { reason: reason.to_owned() })
        }
        (None, Some(_)) => Some(Event::Unpaused),
        _ => None,
    }
}
