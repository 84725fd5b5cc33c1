//! The end of an activation, with the calls and children that it had, and of the run.

use std::sync::Arc;

use super::result::{failed_instead, has_answer, without_quotes};
use crate::protocol::notice::Notice;
use crate::room::delegates::{children_of, waits_for_delegate};
use crate::room::passages::withholds_result;
use crate::room::state::closing::FrameEnd;
use crate::room::state::frame::Frame;
use crate::room::state::frame_state::FrameWait;
use crate::room::state::responder::Responder;
use crate::room::{
    BackgroundWork, Frames, Invariant, Purpose, RoomContext, RoomPhase, RunControl, result_types,
};
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::outcome::{EndCause, Outcome, Status};

impl RunControl<'_> {
    /// Ends a frame, after its judge and the gates have decided on its result.
    pub(in crate::room) fn end_frame(&mut self, id: FrameId, ending: FrameEnd) {
        let Some(ending) = self.background_work().asks_again(id, ending) else { return };
        if !self.decide_first(id, &ending) {
            self.close_frame(id, ending);
        }
    }

    /// Ends a frame: stops its calls and children, and passes the result to its caller. A result
    /// that gates have not let pass is withheld.
    pub(in crate::room) fn close_frame(&mut self, id: FrameId, ending: FrameEnd) {
        // The frame leaves the table before its result is delivered, so its calls are already
        // abandoned.
        let Some(frame) = self.background_work().remove_frame(id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let ending = failed_instead(self.cx, &frame, ending);
        let task = self.cx.setup.tasks.get(&frame.task);
        let outlives = task.is_some_and(|task| task.rules().pending_outlives_activation);
        // A fixed number of turns is no end of the task: the next run continues with its pending
        // message.
        let goes_on = !outlives
            && frame.caller.is_none()
            && ending.status == Status::FixedTurns
            && self.cx.opening.turns.is_some();
        if outlives || goes_on {
            let memory = self.histories.memory(self.cx, &frame.task);
            memory.left_pending.clone_from(&frame.turn().pending);
            memory.left_by = goes_on.then(|| frame.turn().pending_sender.clone());
        }
        let notice = Notice::TaskEnded {
            task: frame.task.clone(),
            status: ending.status,
            reason: ending.reason.clone(),
        };
        self.cx.notify(notice);
        self.agent_states.state_at_end(self.cx, &frame.task, ending.status, &ending.reason);
        // After the notice and the agent's state: these do not leave the task.
        let ending = without_quotes(self.cx, &frame, ending);
        let ends_callers = ending.status == Status::InfLoop
            || (ending.cause == Some(EndCause::NobodyToAsk)
                && !is_root_interactive(self.frames, self.cx));
        if ends_callers
            && let Some(caller) = frame.caller
            && !waits_for_delegate(self.frames, caller, id)
        {
            // A caller that only relays messages would loop itself, as in the reference, or have
            // the same question asked again. An interactive root asks its user itself, and ends
            // that way. The frame is put back so that it ends together with its callers.
            self.frames.insert(id, frame);
            self.end_delegation(caller, ending);
            return;
        }
        match frame.caller {
            Some(caller) => self.give_result(caller, &frame, &ending),
            None => {
                let status = ending.status;
                self.end_run(&frame, ending);
                // The history of a loop is needed to find its cause.
                if frame.only.is_none() && status != Status::InfLoop {
                    self.histories.erase_substeps(self.cx, &frame);
                }
            }
        }
    }

    /// Ends the work that a sub-task belongs to when it loops or its question has no user: its
    /// delegation, or else the run. Unlike in the reference (O-106), the delegating task is not
    /// ended with it. It reads that there is no answer, and can do something else.
    fn end_delegation(&mut self, caller: FrameId, ending: FrameEnd) {
        let mut next = Some(caller);
        while let Some(frame) = next.and_then(|id| self.frames.get(&id)) {
            let (id, above) = (frame.id, frame.caller);
            if above.is_some_and(|above| waits_for_delegate(self.frames, above, id)) {
                self.end_frame(id, ending);
                return;
            }
            next = above;
        }
        self.stop_work(ending);
    }

    fn give_result(&mut self, caller: FrameId, child: &Frame, ending: &FrameEnd) {
        let message = self.dialogue().result_message(child, ending);
        self.histories.erase_substeps(self.cx, child);
        if let (Some(message), Some(pending)) = (&message, &child.turn().pending) {
            self.histories.link(pending).child = Some(message.seq);
        }
        let waits = |frame: &Frame| frame.wait() == Some(&FrameWait::Subtask(child.id));
        if self.frames.get(&caller).is_some_and(waits) {
            self.frames.ready(
                self.cx,
                caller,
                message.map(|message| (Responder::Subtask(child.task.clone()), Arc::new(message))),
            );
        } else {
            // It was called as a delegate, and its result belongs to a slot of the caller's round.
            self.dialogue().delegate_ended(caller, child, ending, message.as_ref());
        }
    }

    fn end_run(&mut self, root: &Frame, ending: FrameEnd) {
        let only = root.only.is_some();
        let mut ending = ending;
        let has_result = ending.status != Status::Error && has_answer(self.cx, root);
        let is_withheld =
            has_result && ending.status != Status::UserQuit && withholds_result(self.cx, root);
        if is_withheld {
            ending.reason =
                format!("{}; gates did not check the answer, so it is withheld", ending.reason);
        }
        let message = match root.closing() {
            None if only => root.turn().pending.as_deref().cloned().filter(|_| !is_withheld),
            _ => self.dialogue().result_message(root, &ending),
        };
        let task = self.cx.setup.tasks.get(&root.task).cloned();
        let message = message.filter(|_| has_result).map(Arc::new);
        let return_type =
            self.cx.opening.returns.clone().or_else(|| task.and_then(|task| task.returns.clone()));
        let typed =
            message.as_deref().zip(return_type.as_ref()).and_then(|(message, return_type)| {
                self.histories.typed(self.cx, &root.task, message, return_type)
            });
        if let (Some(return_type), None, Some(_)) = (&return_type, &typed, &message) {
            ending.reason = format!(
                "{}; the result is not {}",
                ending.reason,
                result_types::describe(return_type)
            );
        }
        // A result that gates decide on has the structured value in its message already.
        let structured = self
            .background
            .structured_result()
            .filter(|_| root.closing().is_none() && !withholds_result(self.cx, root));
        let outcome = Arc::new(Outcome {
            content: message.as_ref().and_then(|message| message.content.clone()),
            value: structured
                .or_else(|| message.as_ref().and_then(|message| message.value.clone())),
            recipient: message.as_ref().and_then(|message| message.recipient.clone()),
            tools: message.as_ref().map(|message| message.tools.clone()).unwrap_or_default(),
            typed,
            message,
            spent: self.budgets.spent,
            used: self.budgets.used.clone(),
            cause: ending.cause,
            ..Outcome::new(ending.status, ending.reason)
        });
        // Dropped before the phase changes, so that no grant can revive the ended run.
        self.budgets.drop_top_up(self.cx);
        self.cx.notify(Notice::ResultReady { outcome: Arc::clone(&outcome) });
        self.cx.phase = RoomPhase::Draining { outcome: Arc::clone(&outcome) };
        self.channels.turn_ended(self.cx, &outcome);
        self.channels.report_shared_channels(self.cx, &outcome);
    }

    /// Ends every activation of a task, and the work it delegated (L-080). At the root this ends
    /// the run.
    pub(in crate::room) fn kill_task(&mut self, task: &TaskName, reason: &str) {
        // A working task is never called again below itself, so there is at most one frame.
        let active = self.frames.values().find(|frame| frame.task == *task).map(|frame| frame.id);
        if let Some(id) = active {
            self.close_frame(id, FrameEnd::new(Status::Kill, reason));
        }
        // The ids are copied because killing changes the table of calls.
        let in_background: Vec<CallId> = self.cx.calls
            .iter()
            .filter(|(_, purpose)| matches!(purpose, Purpose::Background { id } if self.background.is_task_of(id, task)))
            .map(|(call, _)| *call)
            .collect();
        for call in in_background {
            if let Some(Purpose::Background { id }) = self.cx.calls.get(&call) {
                let id = id.clone();
                self.background_work().kill_background(&id, reason);
            }
        }
    }
}

impl BackgroundWork<'_> {
    /// Removes a frame and those below it, with their calls.
    pub(in crate::room) fn remove_frame(&mut self, id: FrameId) -> Option<Frame> {
        let frame = self.frames.remove(&id)?;
        self.abandon_calls_of(id);
        self.plugin_calls().end_jobs(&frame);
        children_of(&frame).into_iter().for_each(|child| drop(self.remove_frame(child)));
        Some(frame)
    }

    /// Drops the calls, the checks of gates and the children of a frame that stays.
    pub(in crate::room) fn stop_working(&mut self, id: FrameId) {
        let children = self.frames.get(&id).map(children_of).unwrap_or_default();
        children.into_iter().for_each(|child| drop(self.remove_frame(child)));
        self.abandon_calls_of(id);
    }

    /// Drops the calls of a frame.
    pub(super) fn abandon_calls_of(&mut self, id: FrameId) {
        self.stop_waited_for(id);
        self.abandon_passages(id);
        let calls: Vec<CallId> = self
            .cx
            .calls
            .iter()
            .filter(|(_, purpose)| purpose.frame() == Some(id))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.plugin_calls().abandon(call));
    }
}

fn is_root_interactive(frames: &Frames, cx: &RoomContext) -> bool {
    let RoomPhase::Running { root } = cx.phase else { return false };
    frames.task_of(cx, root).is_some_and(|(_, task)| task.interactive)
}
