//! The end of background tasks when their parent is stopped or closed, by the `on_close` of each
//! (R-063 done right).

use super::super::Room;
use super::super::termination::FrameEnd;
use super::ending::EndRecipient;
use crate::types::delegation::OnClose;
use crate::types::ids::BackgroundId;
use crate::types::outcome::{Outcome, Status};

impl Room {
    /// Stops, detaches or silences the background tasks of a closed room.
    pub(in crate::room) fn close_tasks(&mut self, reason: &str) {
        // A task that a call waits for ends with that call.
        let running =
            self.background.values().filter(|task| !task.is_stopped && task.waiter.is_none());
        let ids: Vec<(BackgroundId, OnClose)> =
            running.map(|task| (task.id.clone(), task.on_close)).collect();
        for (id, on_close) in ids {
            match on_close {
                OnClose::Cascade => drop(self.stop_task(
                    &id,
                    &FrameEnd::new(Status::Kill, reason),
                    &EndRecipient::Nobody("room_closed"),
                )),
                OnClose::Detach if self.has_begun(&id) => self.detach_task(&id, reason),
                // A task that has not begun cannot run on alone, so it is stopped.
                OnClose::Detach => drop(self.stop_task(
                    &id,
                    &FrameEnd::new(Status::Kill, reason),
                    &EndRecipient::Nobody("room_closed"),
                )),
                OnClose::FinishSilently => {}
            }
        }
    }

    /// Reports the answer of a task on the channels that it was given. Its request is not reported
    /// (R-029 done right).
    pub(in crate::room) fn report_shared_channels(&mut self, outcome: &Outcome) {
        let is_shared =
            self.opening.depth > 0 && !self.opening.hold && self.opening.bindings.is_some();
        let answer = outcome
            .content
            .clone()
            .filter(|answer| is_shared && outcome.status.is_success() && !answer.trim().is_empty());
        if let Some(answer) = answer {
            self.report_channels(&answer, None);
        }
    }

    /// Marks the run as stopped. Returns whether this is the first stop: a second one waits for
    /// nothing.
    pub(in crate::room) fn begin_stop(&mut self, reason: &str) -> bool {
        let is_first = self.tasks.stopped.is_none();
        self.tasks.stopped.get_or_insert_with(|| reason.to_owned());
        is_first
    }

    /// Returns whether this task continues after a stop of the run, alone or until its end.
    pub(in crate::room) fn resumes_after_stop(&mut self, id: &BackgroundId, reason: &str) -> bool {
        let Some(task) =
            self.background.get(id).filter(|task| !task.is_stopped && task.waiter.is_none())
        else {
            return false;
        };
        match task.on_close {
            OnClose::Cascade => false,
            OnClose::FinishSilently => self.has_begun(id),
            OnClose::Detach if self.has_begun(id) => {
                self.detach_task(id, reason);
                true
            }
            OnClose::Detach => false,
        }
    }

    fn has_begun(&self, id: &BackgroundId) -> bool {
        let Some(call) = self.background.get(id).map(|task| task.call) else { return false };
        !self.effects.iter().any(|effect| effect.starts() == Some(call))
    }
}
