//! A room goes on after its host had stopped: time in which nothing ran does not count, what may have been said is not said again, and
//! what lost attempts at models may have cost is counted.

use super::{Purpose, Room, TimerPurpose};
use crate::ids::{BackgroundId, CallId};
use crate::notice::Notice;

/// What the operator reads of a speech whose end nobody knows.
const MAYBE_SAID: &str =
    "interrupted: the host stopped while it was being said, and nobody can say whether it was heard; it is not said again";

impl Room {
    pub(super) fn resumed(&mut self, down_ms: u64) {
        self.tell(Notice::Resumed { down_ms });
        if !self.slept_paused(down_ms) {
            self.opening.deadline = self.opening.deadline.map(|deadline| deadline.plus(down_ms));
            for purpose in self.timers.values_mut() {
                if let TimerPurpose::Delivery { at, .. } = purpose {
                    *at = at.plus(down_ms);
                }
            }
        }
        self.charge_lost_attempts();
        self.settle_stopped_tasks();
        let speeches: Vec<(CallId, Vec<BackgroundId>)> = self
            .calls
            .iter()
            .filter_map(|(call, purpose)| match purpose {
                Purpose::Speech { tasks, .. } => Some((*call, tasks.clone())),
                _ => None,
            })
            .collect();
        for (call, tasks) in speeches {
            self.calls.remove(&call);
            tasks.iter().for_each(|id| self.keep_in_inbox(id, MAYBE_SAID));
        }
    }
}
