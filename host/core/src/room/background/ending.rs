//! The end of a background task: by its room, by a stop, or with the run. The first end counts; a
//! later report only adds what was used (R-040, R-041, R-060, R-061 done right). Every end takes
//! the same path.

use serde_json::{Value, json};

use super::super::delivery::Undelivered as Delivering;
use super::asking::CANCELLED;
use super::structured::never_handed_in;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::state::closing::FrameEnd;
use crate::room::state::delegation::{BackgroundTask, DelegationAnswer, Waiter};
use crate::room::{
    Background, BackgroundWork, Budgets, Invariant, Purpose, RoomContext, RunControl,
};
use crate::types::delivery::{BackgroundStatus, DeliveryRecord, DeliveryState, EndedTask};
use crate::types::ids::{BackgroundId, CallId, TaskName};
use crate::types::outcome::{EndCause, Status};
use crate::types::usage::{Spent, UsedByPlugin};

/// The errors recorded for a task that gives none.
const NO_ANSWER: &str = "it ended without an answer";
const NO_REASON: &str = "it failed, and gave no reason";
const CLOSED: &str = "room_closed";

/// The agents to notify of an end.
pub(super) enum EndRecipient<'a> {
    /// The task that the delegation names.
    Notified,
    /// The same, except this task: its agent stopped the work itself.
    ExceptTo(&'a TaskName),
    /// No agent, for this reason.
    Nobody(&'a str),
}

impl RunControl<'_> {
    pub(in crate::room) fn background_ended(
        &mut self,
        call: CallId,
        ended: EndedTask,
        spent: Spent,
        used: &UsedByPlugin,
    ) {
        let Some(Purpose::Background { id }) = self.cx.calls.get(&call).cloned() else { return };
        self.cx.calls.remove(&call);
        let Some(task) = self.background.tasks.remove(&id) else {
            return self.cx.violated(Invariant::TaskKnown, None::<crate::types::ids::FrameId>);
        };
        // A stopped task still reports what it used.
        self.budgets.settle_reserve(task.reserved, spent);
        for (plugin, used) in used {
            // The child began with the parent's counts, so only the difference is new.
            let before = task.inherited.get(plugin).copied().unwrap_or_default();
            self.budgets.used_by(plugin).add(used.since(before));
        }
        if !task.is_stopped {
            let ended = checked_end(self.cx, &task, ended);
            self.background_work().conclude(&task, ended, &EndRecipient::Notified);
        }
        // The child may have used more than was reserved.
        self.stop_if_spent();
    }
}

impl Budgets {
    fn settle_reserve(&mut self, reserved: Spent, spent: Spent) {
        self.reserved = self.reserved.minus(reserved);
        self.spent = self.spent.plus(spent);
    }
}

/// The end that a child reports, with corrections. A child may not name another task, nor
/// complete without an answer.
fn checked_end(cx: &RoomContext, task: &BackgroundTask, report: EndedTask) -> EndedTask {
    // Blank text is not an answer.
    let output = report.output.filter(|output| !output.trim().is_empty());
    let (status, error) = match (report.status, &output) {
        (BackgroundStatus::Completed, None) => {
            (BackgroundStatus::Failed, report.error.or_else(|| Some(NO_ANSWER.to_owned())))
        }
        (status, _) => (status, report.error),
    };
    let completed = status == BackgroundStatus::Completed;
    // A child knows only one deadline. If the run still has time, the deadline was the task's
    // own.
    let of_task = cx.opening.deadline.is_none_or(|deadline| cx.now < deadline);
    let cause = report.cause.filter(|_| !completed);
    let error = match cause {
        Some(EndCause::WallTime) if of_task => Some(format!(
            "it took longer than its deadline allows (tasks.{}.deadline, or the one of the call)",
            task.task
        )),
        _ => error,
    };
    let error = error
        .filter(|error| !error.trim().is_empty())
        .or_else(|| (!completed).then(|| NO_REASON.to_owned()));
    // The child's metadata counts only if its result has the fixed form.
    let mut metadata = task.context.clone();
    if let Some(metadata) =
        metadata.as_object_mut().filter(|_| task.structured && report.metadata.is_object())
    {
        metadata.insert("result".to_owned(), report.metadata);
    }
    EndedTask {
        id: task.id.clone(),
        worker: task.task.clone(),
        description: task.prompt.clone(),
        status,
        output: output.filter(|_| completed),
        error: error.filter(|_| !completed),
        cause,
        duration_ms: cx.now.since(task.started),
        metadata,
        attempts: 0,
    }
}

/// The end of a task that this room stopped.
fn end_of_stopped(cx: &RoomContext, task: &BackgroundTask, why: &FrameEnd) -> EndedTask {
    let is_late = why.cause == Some(EndCause::WallTime);
    let status = if is_late { BackgroundStatus::TimedOut } else { BackgroundStatus::Cancelled };
    let ended =
        EndedTask { status, cause: why.cause, ..EndedTask::interrupted(why.reason.clone()) };
    checked_end(cx, task, ended)
}

impl BackgroundWork<'_> {
    /// Concludes every end in the same way: record, notice, waiting call, delivery.
    fn conclude(&mut self, task: &BackgroundTask, ended: EndedTask, recipient: &EndRecipient<'_>) {
        // The record accepts one end only, so a second end stops here.
        if !self.background.records.end(&ended, self.cx.now) {
            return;
        }
        self.cx.notify(Notice::BackgroundEnded { ended: ended.clone() });
        // A result that was to answer a call is delivered in no other way.
        if let Some(waiter) = &task.waiter {
            let was_delivered = self.report_waiter(waiter, task, &ended);
            let reason = if was_delivered {
                "it was the answer of the call that waited for it"
            } else {
                "its waiting call had ended"
            };
            self.background.note_delivery(
                task,
                if was_delivered { DeliveryState::Read } else { DeliveryState::Blocked },
                reason,
            );
            return;
        }
        let knows =
            matches!(recipient, EndRecipient::ExceptTo(canceller) if **canceller == task.notify);
        match recipient {
            _ if knows => {
                self.background.note_delivery(task, DeliveryState::Read, "its own agent stopped it")
            }
            EndRecipient::Nobody(reason) => {
                self.background.note_delivery(task, DeliveryState::Blocked, reason)
            }
            // R-063 done right: the end is recorded without a delivery.
            _ if self.background.is_stopped() => {
                self.background.note_delivery(task, DeliveryState::Blocked, CLOSED)
            }
            EndRecipient::Notified | EndRecipient::ExceptTo(_) => {
                self.result_delivery().deliver_result(Delivering {
                    ended,
                    notify: task.notify.clone(),
                    strategy: task.strategy.clone(),
                    host_reports: task.host_reports,
                    result_delivery: task.result_delivery,
                    chain_depth: task.chain_depth,
                })
            }
        }
    }

    /// Answers the waiting call with the result. Returns whether the call still waited.
    fn report_waiter(&mut self, waiter: &Waiter, task: &BackgroundTask, ended: &EndedTask) -> bool {
        let room = self.background.records.get(&task.id).map(|record| record.room.clone());
        let mut answer = json!({ "status": ended.status.as_str(), "task_id": task.id, "room_id": room, "agent": task.task });
        if let Some(output) = &ended.output {
            answer["output"] = json!(output);
        }
        if ended.status != BackgroundStatus::Completed {
            // a worker's own error text is for people. The model reads a text that the host
            // made from the cause.
            let why = match ended.cause {
                Some(EndCause::Cancelled) => CANCELLED.to_owned(),
                Some(EndCause::NoStructuredResult { attempts }) => never_handed_in(attempts),
                Some(EndCause::NobodyToAsk) => {
                    "it asked its user, and nobody is there to answer".to_owned()
                }
                Some(EndCause::WallTime) | None => {
                    format!("the task ended as {}; people can read why", ended.status.as_str())
                }
            };
            answer["error"] = json!(why);
        }
        if let Some(result) = ended.metadata.get("result").filter(|_| task.structured) {
            answer["result"] = Value::clone(result);
        }
        let is_error = ended.status != BackgroundStatus::Completed;
        self.answer_waiter(waiter, &DelegationAnswer { answer, is_error, is_data: true })
    }

    /// Stops a background task while the run continues. Returns false if no such task runs. The
    /// reserve is held until its room reports what it used. Otherwise a cycle of kills and starts
    /// could overspend.
    pub(super) fn stop_task(
        &mut self,
        id: &BackgroundId,
        why: &FrameEnd,
        recipient: &EndRecipient<'_>,
    ) -> bool {
        let Some(task) = self.background.tasks.get_mut(id).filter(|task| !task.is_stopped) else {
            return false;
        };
        let call = task.call;
        if self.cx.effects.iter().any(|effect| effect.starts() == Some(call)) {
            // It has not begun, so it used nothing.
            let Some(task) = self.background.tasks.remove(id) else {
                self.cx.violated(Invariant::TaskKnown, None::<crate::types::ids::FrameId>);
                return false;
            };
            self.budgets.settle_reserve(task.reserved, Spent::default());
            self.plugin_calls().abandon(call);
            let ended = end_of_stopped(self.cx, &task, why);
            self.conclude(&task, ended, recipient);
            return true;
        }
        // Its room still has to report what it used, and that report must not conclude it again.
        task.is_stopped = true;
        let task = task.clone();
        self.cx.effects.push_back(Effect::AbandonCall { call });
        let ended = end_of_stopped(self.cx, &task, why);
        self.conclude(&task, ended, recipient);
        true
    }

    /// Stops a background task for the operator.
    pub(in crate::room) fn kill_background(&mut self, id: &BackgroundId, reason: &str) {
        self.stop_task(id, &FrameEnd::new(Status::Kill, reason), &EndRecipient::Notified);
    }

    /// Stops the background tasks whose results were to answer a call of this frame.
    pub(in crate::room) fn stop_waited_for(&mut self, frame: crate::types::ids::FrameId) {
        let waits = |task: &BackgroundTask| {
            !task.is_stopped && task.waiter.is_some_and(|waiter| waiter.frame == frame)
        };
        let ids: Vec<BackgroundId> = self
            .background
            .tasks
            .values()
            .filter(|task| waits(task))
            .map(|task| task.id.clone())
            .collect();
        for id in ids {
            // Its slot is gone, so the end must not try to answer it.
            if let Some(task) = self.background.tasks.get_mut(&id) {
                task.waiter = None;
            }
            let why = FrameEnd::new(Status::Kill, "its waiting call had ended");
            self.stop_task(&id, &why, &EndRecipient::Nobody("its waiting call had ended"));
        }
    }

    /// Stops a background task, and its room, at the end of the run.
    pub(in crate::room) fn background_stopped(&mut self, id: &BackgroundId, why: &FrameEnd) {
        let Some(task) = self.background.tasks.remove(id) else {
            return self.cx.violated(Invariant::TaskKnown, None::<crate::types::ids::FrameId>);
        };
        // Its use will never be reported. A parent room would spend again what this room leaves
        // out, so in a child room the whole reserve counts.
        let unknown = if self.cx.opening.depth > 0 { task.reserved } else { Spent::default() };
        self.budgets.settle_reserve(task.reserved, unknown);
        if !task.is_stopped {
            let ended = end_of_stopped(self.cx, &task, why);
            self.conclude(&task, ended, &EndRecipient::Nobody(CLOSED));
        }
    }
}

impl Background {
    fn note_delivery(&mut self, task: &BackgroundTask, state: DeliveryState, reason: &str) {
        let record = DeliveryRecord {
            state,
            strategy: task.strategy.clone(),
            reason: Some(reason.to_owned()),
            ..DeliveryRecord::default()
        };
        self.set_delivery(&task.id, record);
    }

    /// Charges tasks that were being stopped when the host went down. They do not resume, so their
    /// reports are lost and the whole reserve counts.
    pub(in crate::room) fn settle_stopped_tasks(
        &mut self,
        cx: &mut RoomContext,
        budgets: &mut Budgets,
    ) {
        let stopped: Vec<BackgroundId> = self
            .tasks
            .values()
            .filter(|task| task.is_stopped)
            .map(|task| task.id.clone())
            .collect();
        for id in stopped {
            if let Some(task) = self.tasks.remove(&id) {
                cx.calls.remove(&task.call);
                budgets.settle_reserve(task.reserved, task.reserved);
            }
        }
    }

    /// Detaches a background task.
    pub(super) fn detach_task(
        &mut self,
        cx: &mut RoomContext,
        budgets: &mut Budgets,
        id: &BackgroundId,
        reason: &str,
    ) {
        let Some(task) = self.tasks.remove(id) else {
            return cx.violated(Invariant::TaskKnown, None::<crate::types::ids::FrameId>);
        };
        // Its use will never be reported, so the whole reserve counts.
        budgets.settle_reserve(task.reserved, task.reserved);
        cx.calls.remove(&task.call);
        cx.effects.push_back(Effect::DetachTask { call: task.call });
        self.records.detach(id, reason);
    }
}
