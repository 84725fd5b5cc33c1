//! Resumption of a room after its host had stopped. The downtime does not count, and model attempts
//! that were lost are charged. A pending message is repeated under the same key, so a channel that
//! took it does not say it twice.

use super::{Room, TimerPurpose};
use crate::protocol::notice::Notice;

impl Room {
    pub(super) fn resumed(&mut self, down_ms: u64) {
        self.cx.notify(Notice::Resumed { down_ms });
        // A pause counts the downtime itself.
        if !self.pausing.count_downtime(down_ms) {
            self.cx.opening.deadline =
                self.cx.opening.deadline.map(|deadline| deadline.plus(down_ms));
            for purpose in self.cx.timers.values_mut() {
                if let TimerPurpose::Delivery { at, .. } = purpose {
                    *at = at.plus(down_ms);
                }
            }
        }
        self.result_delivery().forget_activities();
        self.budgets.charge_lost_attempts(&mut self.cx, &mut self.models);
        self.background.settle_stopped_tasks(&mut self.cx, &mut self.budgets);
    }
}
