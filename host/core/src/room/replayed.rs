//! The recorded turns of a replayed run, which replace the first steps of the entry task's agent
//! (O-119).

use super::state::replayed_turns::ReplayedTurn;
use super::{Frames, Room, RoomContext};
use crate::types::action::Turn;
use crate::types::ids::FrameId;

impl Room {
    /// The turns that were replayed since the last event began. Nothing else reports them: no agent
    /// was called.
    pub(crate) fn replayed_turns(&self) -> &[ReplayedTurn] {
        &self.cx.replayed.0
    }
}

/// Returns the next turn of a replayed run, in place of the entry task's agent. `None` if no
/// turn is left.
pub(super) fn replayed(frames: &Frames, cx: &mut RoomContext, id: FrameId) -> Option<Turn> {
    let frame = frames.get(&id)?;
    if cx.opening.replay.is_empty() || frame.caller.is_some() || frame.task != cx.opening.entry {
        return None;
    }
    let mut turn = cx.opening.replay.remove(0);
    // Only the last turn may wait for an answer; the answers to earlier turns are in the log.
    turn.wait_for_response &= cx.opening.replay.is_empty();
    // No component was called. The number of replayed turns is finite, so they do not count as
    // idle.
    cx.idle_steps = 0;
    let since = frame.past_actions.iter().cloned().collect();
    cx.replayed.0.push(ReplayedTurn { frame: id, since, turn: turn.clone() });
    Some(turn)
}
