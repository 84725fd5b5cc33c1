//! Hard stops: of a turn, of all work in the room, and the end of a room that has none left.

use std::sync::Arc;

use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::acting::jobs::is_clearing_up;
use crate::room::state::closing::FrameEnd;
use crate::room::state::responder::Responder;
use crate::room::{Invariant, PluginCalls, Purpose, Room, RoomContext, RoomPhase, RunControl};
use crate::types::ids::CallId;
use crate::types::outcome::{Outcome, Status};

impl RunControl<'_> {
    /// Stops all work in the room at once.
    pub(in crate::room) fn stop(&mut self, status: Status, reason: &str) {
        self.stop_with(FrameEnd::new(status, reason));
    }

    /// Stops all work in the room at once, with a cause.
    pub(in crate::room) fn stop_with(&mut self, ending: FrameEnd) {
        let FrameEnd { status, ref reason, .. } = ending;
        let was_persistent = self.channels.is_persistent(self.cx);
        if was_persistent {
            // Closed first, so that no queued turn begins while the room stops.
            self.channels.close_to_messages(self.cx, reason);
        }
        let was_running = matches!(self.cx.phase, RoomPhase::Running { .. });
        let is_first = self.background.begin_stop(reason);
        // Not through `end_frame`: a stopped run asks neither its judge nor gates.
        if let RoomPhase::Running { root } = self.cx.phase {
            self.close_frame(root, ending.clone());
        }
        self.frames.clear();
        self.frames.runnable.clear();
        self.background_work().block_all(reason);
        // The ids are copied because each iteration removes calls.
        let calls: Vec<CallId> = self.cx.calls.keys().copied().collect();
        for call in calls {
            if was_running && is_clearing_up(self.cx, call) {
                // The first stop lets a cleanup end; a second one does not wait for it.
                continue;
            }
            if let Some(Purpose::Background { id }) = self.cx.calls.get(&call) {
                let id = id.clone();
                if is_first
                    && self.background.resumes_after_stop(self.cx, self.budgets, &id, reason)
                {
                    continue;
                }
                self.background_work().background_stopped(&id, &ending);
            }
            self.plugin_calls().abandon(call);
        }
        self.cx.timers.clear();
        if was_persistent && status.is_budget() {
            // The sender of the last message would wait for an answer.
            self.channels.report_channels(self.cx, &format!("The room is closed: {reason}."), None);
        }
    }

    /// Finishes the room once nothing is in flight.
    pub(in crate::room) fn finish_if_idle(&mut self) {
        let RoomPhase::Draining { outcome } = &self.cx.phase else { return };
        // A persistent room waits for the next message.
        if self.channels.is_persistent(self.cx) {
            return;
        }
        // A strategy's timer keeps the room open while results wait for it.
        let waits = self.cx.timers.values().any(|purpose| self.deliveries.is_waited_for(purpose));
        if waits || !self.cx.calls.is_empty() {
            return;
        }
        let outcome = Arc::clone(outcome);
        self.budgets.give_up_model_calls(self.cx, self.models);
        // Spending is read again: calls that were just given up are charged as well.
        let outcome = Arc::new(Outcome {
            spent: self.budgets.spent,
            used: self.budgets.used.clone(),
            ..Outcome::clone(&outcome)
        });
        self.cx.timers.clear();
        self.result_delivery().report_undelivered();
        self.cx.effects.push_back(Effect::Finish { outcome: Arc::clone(&outcome) });
        self.cx.phase = RoomPhase::Finished { outcome };
    }
}

impl PluginCalls<'_> {
    /// Drops a call. Its answer will be ignored.
    pub(in crate::room) fn abandon(&mut self, call: CallId) {
        if let Some(purpose) = self.cx.calls.remove(&call) {
            self.forget_requests(call, Some(&purpose));
            self.models.without_model.remove(&call);
            self.models.incomplete.remove(&call);
            self.models.does_not_fit.remove(&call);
            // An effect that was never polled needs no `AbandonCall`.
            let unpolled = |cx: &RoomContext| cx.effects.len() + cx.awaiting_scratch.len();
            let before = unpolled(self.cx);
            self.cx.effects.retain(|effect| effect.starts() != Some(call));
            self.cx.awaiting_scratch.retain(|effect| effect.starts() != Some(call));
            if unpolled(self.cx) == before {
                self.cx.effects.push_back(Effect::AbandonCall { call });
            }
        }
    }
}

impl Room {
    /// Stops the work of the entry task, except for its background tasks. An interactive task then
    /// turns to its user, as after any step. Any other task has no user to turn to, so the run
    /// ends.
    pub(in crate::room) fn stop_turn(&mut self, reason: &str) {
        let RoomPhase::Running { root } = self.cx.phase else { return };
        let Some((frame, task)) = self.frames.task_of(&self.cx, root) else {
            return self.cx.violated(Invariant::FrameExists, root);
        };
        let name = frame.task.clone();
        if !task.interactive {
            self.run_control().stop_work(FrameEnd::new(Status::Kill, reason));
            return;
        }
        if self.cx.calls.values().any(|purpose| *purpose == Purpose::User { frame: root }) {
            // It already waits for its user, so there is no turn to stop.
            return;
        }
        self.background_work().stop_working(root);
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.stop_turn();
        }
        self.handoffs.forget(root);
        let text = format!("This turn was stopped: {reason}");
        let message = Arc::new(self.frames.host_message(&mut self.cx, root, text));
        // The agent's next step reads that its turn was stopped.
        self.dialogue().write_history(root, &message);
        self.dialogue().put_pending(root, Responder::Agent, message);
        // Lets the next step ask the user.
        self.histories.memory(&self.cx, &name).human_tried = false;
        self.cx.notify(Notice::TurnStopped { task: name, reason: reason.to_owned() });
        self.frames.runnable.push_back(root);
    }
}
