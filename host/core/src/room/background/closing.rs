//! The end of background tasks when their parent is stopped or closed, by the `on_close` of each
//! (R-063 done right).

use super::ending::EndRecipient;
use crate::room::state::closing::FrameEnd;
use crate::room::{Background, BackgroundWork, Budgets, RoomChannels, RoomContext};
use crate::types::delegation::OnClose;
use crate::types::ids::BackgroundId;
use crate::types::outcome::{Outcome, Status};

impl BackgroundWork<'_> {
    /// Stops, detaches or silences the background tasks of a closed room.
    pub(in crate::room) fn close_tasks(&mut self, reason: &str) {
        // A task that a call waits for ends with that call.
        let running =
            self.background.tasks.values().filter(|task| !task.is_stopped && task.waiter.is_none());
        let ids: Vec<(BackgroundId, OnClose)> =
            running.map(|task| (task.id.clone(), task.on_close)).collect();
        for (id, on_close) in ids {
            match on_close {
                OnClose::Cascade => drop(self.stop_task(
                    &id,
                    &FrameEnd::new(Status::Kill, reason),
                    &EndRecipient::Nobody("room_closed"),
                )),
                OnClose::Detach if self.background.has_begun(self.cx, &id) => {
                    self.background.detach_task(self.cx, self.budgets, &id, reason)
                }
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
}

/// Whether the room is that of a background task with channels of its parent.
pub(in crate::room) fn shares_channels(cx: &RoomContext) -> bool {
    cx.opening.depth > 0 && !cx.opening.persistent && cx.opening.bindings.is_some()
}

impl RoomChannels {
    /// Reports the answer of a task on the channels that it was given. Its request is not reported
    /// (R-029 done right).
    pub(in crate::room) fn report_shared_channels(
        &mut self,
        cx: &mut RoomContext,
        outcome: &Outcome,
    ) {
        let answer = outcome.content.clone().filter(|answer| {
            shares_channels(cx) && outcome.status.is_success() && !answer.trim().is_empty()
        });
        if let Some(answer) = answer {
            self.report_channels(cx, &answer, None);
        }
    }
}

impl Background {
    /// Marks the run as stopped. Returns whether this is the first stop: a second one waits for
    /// nothing.
    pub(in crate::room) fn begin_stop(&mut self, reason: &str) -> bool {
        let is_first = self.records.stopped.is_none();
        self.records.stopped.get_or_insert_with(|| reason.to_owned());
        is_first
    }

    /// Whether the run was stopped.
    pub(in crate::room) fn is_stopped(&self) -> bool {
        self.records.stopped.is_some()
    }

    /// Whether this task continues after a stop of the run, alone or until its end.
    pub(in crate::room) fn resumes_after_stop(
        &mut self,
        cx: &mut RoomContext,
        budgets: &mut Budgets,
        id: &BackgroundId,
        reason: &str,
    ) -> bool {
        let Some(task) =
            self.tasks.get(id).filter(|task| !task.is_stopped && task.waiter.is_none())
        else {
            return false;
        };
        match task.on_close {
            OnClose::Cascade => false,
            OnClose::FinishSilently => self.has_begun(cx, id),
            OnClose::Detach if self.has_begun(cx, id) => {
                self.detach_task(cx, budgets, id, reason);
                true
            }
            OnClose::Detach => false,
        }
    }

    fn has_begun(&self, cx: &RoomContext, id: &BackgroundId) -> bool {
        let Some(call) = self.tasks.get(id).map(|task| task.call) else { return false };
        !cx.effects.iter().any(|effect| effect.starts() == Some(call))
    }
}
