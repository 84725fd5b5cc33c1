//! Events and effects that come too late. An event that can change nothing any more gets no record,
//! and an effect whose call was abandoned is not performed.

use crate::protocol::effect::Effect;
use crate::protocol::event::Event;
use crate::room::Room;
use crate::types::ids::ControlId;

/// What becomes of an event that reached a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The event is journalled and handled.
    Admitted,
    /// The control message took effect before. It is only confirmed, because its sender may have
    /// missed the first confirmation.
    Repeated(ControlId),
    /// The room no longer waits for the timer, or has ended before the message. The event is
    /// dropped.
    Late,
}

impl Admission {
    /// Returns what becomes of an event that the room is to handle next.
    #[must_use]
    pub fn of(event: &Event, room: &Room) -> Self {
        match event {
            Event::TimerFired { timer } if !room.waits_for(*timer) => Self::Late,
            Event::ControlReceived { id, .. } if room.has_received(id) => {
                Self::Repeated(id.clone())
            }
            // A message in the same batch behind the end changes nothing, and its sender must not
            // read that the run has it.
            Event::ControlReceived { .. } if room.outcome().is_some() => Self::Late,
            // The late answer of a call is journalled too: its report says what the call did.
            _ => Self::Admitted,
        }
    }
}

/// Whether an effect is still to be performed. Its call may have been abandoned while its records
/// became durable.
#[must_use]
pub fn is_wanted(effect: &Effect, room: &Room) -> bool {
    match effect {
        Effect::CallModel { call, .. } => room.is_in_flight(*call),
        // A task that was detached before it began runs on its own.
        Effect::StartBackground { id, .. } if room.task(id).is_some_and(|task| task.detached) => {
            true
        }
        effect => effect.starts().is_none_or(|call| room.is_in_flight(call)),
    }
}
