//! The recorded turns of a replayed run that took the place of steps.

use crate::types::action::{PastAction, Turn};
use crate::types::ids::FrameId;

/// A recorded turn that replaced a step of an agent.
#[derive(Clone, Debug)]
pub(crate) struct ReplayedTurn {
    pub(crate) frame: FrameId,
    /// The events since the turn before, as the agent would have read them.
    pub(crate) since: Vec<PastAction>,
    pub(crate) turn: Turn,
}

/// The turns that were replayed since the current or last event began. They are for readers of the
/// journal and not part of the folded state.
#[derive(Clone, Debug, Default)]
pub(in crate::room) struct ReplayedTurns(pub(in crate::room) Vec<ReplayedTurn>);

impl PartialEq for ReplayedTurns {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl ReplayedTurns {
    /// Begins another event.
    pub(in crate::room) fn begin_event(&mut self) {
        self.0.clear();
    }
}
