//! The data of a room's parts that many concerns read: declarations with their small accessors, and
//! no decision about the room. Files of behaviour import it, and it imports none of them.

pub(super) mod acting;
pub(super) mod as_pairs;
pub(super) mod calls;
pub(super) mod closing;
pub(super) mod consent;
pub(super) mod context;
pub(super) mod delegation;
pub(super) mod frame;
pub(super) mod frame_state;
pub(super) mod frames;
pub(super) mod gated;
pub(super) mod invariant;
pub(super) mod loop_detection;
pub(super) mod past_actions;
pub(super) mod replayed_turns;
pub(super) mod responder;
pub(super) mod rounds;
pub(super) mod running_tasks;
pub(super) mod stuck_watch;

/// Whether a number need not be serialised.
fn is_zero(number: &u32) -> bool {
    *number == 0
}
