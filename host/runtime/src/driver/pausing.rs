//! The propagation of pauses: each child room gets the pauses of its parent. The meaning of a
//! pause belongs to the core.

use conclave_core::protocol::control::ControlCommand;
use conclave_core::protocol::event::Event;

use super::{Driver, UnderWay};

/// The pause state after an event; `None` if the event does not change it.
fn paused_by(event: &Event) -> Option<Option<String>> {
    match event.effective() {
        Event::Paused { reason } => Some(Some(reason.clone())),
        // A run begins unpaused.
        Event::Unpaused | Event::RunStarted { .. } | Event::RoomOpened { .. } => Some(None),
        _ => None,
    }
}

impl Driver {
    /// The reason why the run is paused; `None` if it is not.
    pub(crate) fn paused(&self) -> Option<&str> {
        self.paused.as_deref()
    }

    /// Updates the pause state from an event. Returns the command that child rooms are to get.
    pub(super) fn note_pause(&mut self, event: &Event) -> Option<ControlCommand> {
        self.paused = paused_by(event)?;
        match event.effective() {
            Event::Paused { reason } => Some(ControlCommand::Pause { reason: reason.clone() }),
            Event::Unpaused => Some(ControlCommand::Unpause),
            _ => None,
        }
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
}

/// The event that gives a child room the pause state of its parent. The child may have been
/// interrupted before it received the parent's event.
pub(super) fn pause_as(parent: Option<&str>, was_paused: bool) -> Option<Event> {
    match (parent, was_paused) {
        (Some(reason), false) => Some(Event::Paused { reason: reason.to_owned() }),
        (None, true) => Some(Event::Unpaused),
        (Some(_), true) | (None, false) => None,
    }
}
