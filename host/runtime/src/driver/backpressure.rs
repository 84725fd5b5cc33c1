//! A full queue of an observer holds work that has not begun. The loop continues meanwhile: messages,
//! decisions, stops, timers and limits are handled, because none of them may depend on an observer.

use conclave_core::journal::recovery::Start;
use conclave_core::protocol::effect::Effect;
use conclave_core::types::ids::CallId;

use super::Driver;
use crate::observe::subscribe::RunEvent;
use crate::support::fail_points::kill_point;

/// Work that waits for space in the queues of the observers.
pub(super) type HeldWork = (Box<Effect>, Option<Box<Start>>);

impl Driver {
    /// Performs an effect, or holds it if it begins work and an observer's queue is full.
    pub(super) fn perform_or_hold(&mut self, effect: Box<Effect>, start: Option<Box<Start>>) {
        if effect.begins_work() && self.check_queues() {
            self.held_work.push_back((effect, start));
            return;
        }
        self.perform_wanted((effect, start));
    }

    /// Performs the held work in its order, as far as the queues have space.
    pub(super) fn perform_held_work(&mut self) {
        while self.shared.observers.full().is_none()
            && let Some(work) = self.held_work.pop_front()
        {
            self.perform_wanted(work);
        }
        if self.held_work.is_empty() && self.shared.observers.full().is_none() {
            self.reports_wait = false;
            for queue in self.shared.observers.iter().filter(|queue| queue.end_wait()) {
                let observer = queue.observer.clone();
                self.publisher.tell(|| RunEvent::ObserverQueueFree { observer });
            }
        }
        self.poll_begun();
    }

    /// Drops the held work of a call that was abandoned.
    pub(super) fn drop_held_work(&mut self, call: CallId) {
        self.held_work.retain(|(effect, _)| effect.starts() != Some(call));
    }

    fn perform_wanted(&mut self, (effect, start): HeldWork) {
        if self.is_wanted(&effect) {
            kill_point!("before-perform");
            self.perform(*effect, start.map(|start| *start));
            kill_point!("after-perform");
        }
    }

    /// Reports a full queue, once for each wait. Returns whether new work has to wait.
    fn check_queues(&mut self) -> bool {
        let full = self.shared.observers.full();
        if let Some(queue) = full
            && let Some(queued) = queue.begin_wait()
        {
            let observer = queue.observer.clone();
            self.publisher.tell(|| RunEvent::ObserverQueueFull { observer, queued });
            self.reports_wait = true;
        }
        // Work keeps its order.
        full.is_some() || !self.held_work.is_empty()
    }
}
