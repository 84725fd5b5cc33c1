//! How tasks and runs end: the tests after each step, the result that a caller gets, the hard stops (L-080…L-090).

use std::sync::Arc;

use super::frame::{Frame, Responder, Wait};
use super::posting::text_form;
use super::{Phase, Purpose, Room};
use crate::action::Observation;
use crate::effect::Effect;
use crate::ids::{CallId, FrameId, TaskName};
use crate::message::{Entity, Message, Signal};
use crate::notice::Notice;
use crate::outcome::{Outcome, Status};
use crate::setup::TaskSetup;

/// Why a frame ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    status: Status,
    reason: String,
}

impl Ending {
    pub(super) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// Words with which a user ends a task (L-086).
const QUIT_WORDS: [&str; 6] = ["q", "x", "quit", "exit", "bye", "DONE"];

impl Room {
    /// The ending that a task has come to after a step, if any. `ends`: the operator said that this answer ends it (L-081).
    /// `typed`: the user gave this answer; what a sub-task or a tool hands on is never taken for the user's goodbye.
    pub(super) fn ending_of(&mut self, id: FrameId, ends: bool, typed: bool) -> Option<Ending> {
        let (frame, task) = self.task_of(id)?;
        let (users_alone, max_stalled) = (is_ended_by_user_alone(frame, task), task.max_stalled_steps);
        let name = frame.task.clone();
        if typed && frame.pending.as_deref().is_some_and(says_goodbye) {
            return Some(Ending::new(Status::UserQuit, "the user said goodbye"));
        }
        if users_alone {
            // The signal is taken out, so that it ends nothing later either.
            self.strip_signal(id);
        } else if let Some(ending) = self.is_done(id, ends) {
            return Some(ending);
        }
        let frame = self.frames.get(&id)?;
        if frame.stalled >= max_stalled {
            let reason = format!("nobody in {name} had a valid answer, {max_stalled} steps in a row");
            return Some(Ending::new(Status::Stalled, reason));
        }
        let limit = frame.turn_limit.filter(|limit| frame.steps >= *limit)?;
        Some(Ending::new(Status::FixedTurns, format!("{name} made the {limit} steps that tasks.{name}.turns gives it")))
    }

    fn is_done(&self, id: FrameId, ends: bool) -> Option<Ending> {
        let frame = self.frames.get(&id)?;
        let name = &frame.task;
        if ends {
            return Some(Ending::new(Status::Done, format!("{name} is set to end with this answer")));
        }
        let pending = frame.pending.as_ref()?;
        match pending.signal {
            Some(Signal::Done { .. }) => return Some(Ending::new(Status::Done, format!("{} says that it is done", pending.sender_name))),
            Some(Signal::Rejected) => {
                return Some(Ending::new(Status::Rejected, format!("{} says that it cannot be done", pending.sender_name)));
            }
            None => {}
        }
        // L-070: what is addressed to the caller is the result.
        let recipient = pending.recipient.as_deref()?;
        let caller = self.caller_name(frame)?;
        caller.eq_ignore_ascii_case(recipient).then(|| Ending::new(Status::Done, format!("{name} answers to {caller}")))
    }

    fn strip_signal(&mut self, id: FrameId) {
        let Some(pending) = self.frames.get_mut(&id).and_then(|frame| frame.pending.as_mut()) else { return };
        if pending.signal.is_some() {
            Arc::make_mut(pending).signal = None;
        }
    }

    /// Ends a frame: stops what it waits for, and gives its caller the result.
    pub(super) fn end_frame(&mut self, id: FrameId, ending: Ending) {
        let Some(frame) = self.remove_frame(id) else { return };
        let notice = Notice::TaskEnded { task: frame.task.clone(), status: ending.status, reason: ending.reason.clone() };
        self.tell(notice);
        match frame.caller {
            Some(caller) => self.give_result(caller, &frame, &ending),
            None => self.end_run(&frame, ending),
        }
    }

    fn remove_frame(&mut self, id: FrameId) -> Option<Frame> {
        let frame = self.frames.remove(&id)?;
        self.abandon_calls_of(id);
        if let Some(Wait::Subtask(child) | Wait::Delegate(child)) = frame.attempt.as_ref().map(|attempt| &attempt.wait) {
            self.remove_frame(*child);
        }
        Some(frame)
    }

    /// Nobody waits for the call any more; its answer will be ignored.
    pub(super) fn abandon(&mut self, call: CallId) {
        if self.calls.remove(&call).is_some() {
            self.forget_model_calls(call);
            self.without_model.remove(&call);
            // An effect that was never taken need not be stopped.
            let before = self.effects.len();
            self.effects.retain(|effect| effect.starts() != Some(call));
            if self.effects.len() == before {
                self.effects.push_back(Effect::AbandonCall { call });
            }
        }
    }

    fn give_result(&mut self, caller: FrameId, child: &Frame, ending: &Ending) {
        let message = self.result_message(child, ending);
        let Some(waiting) = self.frames.get(&caller).and_then(|frame| frame.attempt.as_ref()).map(|attempt| attempt.wait.clone()) else {
            return;
        };
        match waiting {
            Wait::Subtask(id) if id == child.id => {
                self.ready(caller, message.map(|message| (Responder::Subtask(child.task.clone()), Arc::new(message))));
            }
            Wait::Delegate(id) if id == child.id => {
                let content = message.as_ref().map_or_else(|| ending.reason.clone(), |message| message.text().to_owned());
                let outputs = serde_json::json!({ "content": content, "status": ending.status });
                let mut answer = Arc::unwrap_or_clone(self.host_message(caller, content));
                if let Some(message) = message {
                    answer.labels = message.labels;
                    answer.attachments = message.attachments;
                }
                let observation = Observation::Delegated { agent: child.task.to_string(), outputs };
                self.remember(caller, None, Some(observation), answer.seq);
                self.ready(caller, Some((Responder::Agent, Arc::new(answer))));
            }
            _ => {}
        }
    }

    /// What a caller gets (L-088); none: no answer, so its next responder is tried (L-162).
    fn result_message(&mut self, child: &Frame, ending: &Ending) -> Option<Message> {
        let content = match ending.status {
            Status::Stalled | Status::MaxTurns => return None,
            // A failure that says nothing would look like a task that has nothing to say.
            Status::Error => Some(format!("The task {} failed: {}", child.task, ending.reason)),
            _ => child.pending.as_ref()?.content.clone(),
        };
        let mut message = self.stamp(Entity::User, child.task.as_str());
        message.content = content;
        if let Some(pending) = &child.pending {
            message.labels.clone_from(&pending.labels);
            message.attachments.clone_from(&pending.attachments);
            message.recipient = pending.recipient.clone().filter(|name| self.is_for_caller(child, name));
        }
        Some(message)
    }

    /// A recipient that still means something where the result goes (L-070): the user, or another sub-task of the caller. The child's
    /// own seats and sub-tasks do not; and the caller itself has the result already.
    fn is_for_caller(&self, child: &Frame, name: &str) -> bool {
        let Some((_, caller)) = child.caller.and_then(|caller| self.task_of(caller)) else { return false };
        let is_sibling = |task: &TaskName| *task != child.task && task.as_str().eq_ignore_ascii_case(name);
        Entity::named(name) == Some(Entity::User) || caller.subtasks.iter().any(is_sibling)
    }

    fn end_run(&mut self, root: &Frame, ending: Ending) {
        // The message that the room was opened with answers nothing; without one, the first answer has no parent.
        let is_answer = |message: &&Arc<Message>| message.parent.is_some() || self.opening.content.is_none();
        let answer = root.pending.as_ref().filter(is_answer);
        let value = answer.and_then(|message| match &message.signal {
            Some(Signal::Done { value }) => value.clone(),
            _ => None,
        });
        let kept = !matches!(ending.status, Status::Stalled | Status::MaxTurns | Status::Error);
        let outcome = Arc::new(Outcome {
            status: ending.status,
            reason: ending.reason,
            content: answer.filter(|_| kept).and_then(|message| message.content.clone()),
            value: value.filter(|_| kept),
            spent: self.spent,
            used: self.used.clone(),
        });
        self.tell(Notice::ResultReady { outcome: Arc::clone(&outcome) });
        self.phase = Phase::Draining { outcome };
    }

    /// Stops what the entry task is doing, background tasks excepted. An interactive task turns to its user, as after any step; another
    /// has nobody to turn to, and the run ends.
    pub(super) fn stop_turn(&mut self, reason: &str) {
        let Phase::Running { root } = self.phase else { return };
        let Some((frame, task)) = self.task_of(root) else { return };
        let name = frame.task.clone();
        if !task.interactive {
            self.stop(Status::Kill, reason);
            return;
        }
        if self.calls.values().any(|purpose| *purpose == Purpose::User { frame: root }) {
            // It waits for its user already: there is no turn to stop.
            return;
        }
        let attempt = self.frames.get_mut(&root).and_then(|frame| frame.attempt.take());
        if let Some(Wait::Subtask(child) | Wait::Delegate(child)) = attempt.map(|attempt| attempt.wait) {
            self.remove_frame(child);
        }
        self.abandon_calls_of(root);
        let message = self.host_message(root, format!("This turn was stopped: {reason}"));
        self.write_history(root, &message);
        self.put_pending(root, Responder::Agent, Arc::unwrap_or_clone(message));
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.human_tried = false;
        }
        self.tell(Notice::TurnStopped { task: name, reason: reason.to_owned() });
        self.runnable.push_back(root);
    }

    fn abandon_calls_of(&mut self, id: FrameId) {
        let calls: Vec<CallId> = self.calls.iter().filter(|(_, purpose)| purpose.frame() == Some(id)).map(|(call, _)| *call).collect();
        calls.into_iter().for_each(|call| self.abandon(call));
    }

    /// A hard stop of everything that goes on in the room.
    pub(super) fn stop(&mut self, status: Status, reason: &str) {
        if let Phase::Running { root } = self.phase {
            self.end_frame(root, Ending::new(status, reason));
        }
        self.frames.clear();
        self.runnable.clear();
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for call in calls {
            if let Some(Purpose::Background { id }) = self.calls.get(&call) {
                let id = id.clone();
                self.background_stopped(&id, reason);
            }
            self.abandon(call);
        }
        self.timers.clear();
    }

    /// The room is over once nothing is in flight any more.
    pub(super) fn finish_if_idle(&mut self) {
        let Phase::Draining { outcome } = &self.phase else { return };
        let waits = self.timers.values().any(|purpose| self.is_waited_for(purpose));
        if waits || !self.calls.is_empty() {
            return;
        }
        let outcome = Arc::new(Outcome { spent: self.spent, used: self.used.clone(), ..Outcome::clone(outcome) });
        self.timers.clear();
        self.model_calls.clear();
        self.report_undelivered();
        self.effects.push_back(Effect::Finish { outcome: Arc::clone(&outcome) });
        self.phase = Phase::Finished { outcome };
    }

    /// Tokens or money beyond the run's limits stop it.
    pub(super) fn stop_if_spent(&mut self) {
        let limits = self.opening.limits.clone();
        if limits.tokens.is_some_and(|limit| self.spent.tokens > limit) {
            self.stop(Status::MaxTokens, "the run used more tokens than limits.run.tokens allows");
        } else if limits.cost_micro_usd.is_some_and(|limit| self.spent.cost_micro_usd > limit) {
            self.stop(Status::MaxCost, "the run spent more than limits.run.cost_usd allows");
        }
    }
}

/// L-061: only the user ends an interactive task at the root.
pub(super) fn is_ended_by_user_alone(frame: &Frame, task: &TaskSetup) -> bool {
    frame.caller.is_none() && task.interactive
}

fn says_goodbye(message: &Message) -> bool {
    QUIT_WORDS.contains(&message.text().trim())
}

/// The text of the result of a `done` call.
pub(super) fn done_signal(arguments: &serde_json::Value) -> (String, Signal) {
    let content = arguments.get("content").unwrap_or(&serde_json::Value::Null);
    let value = if content.is_string() || content.is_null() { None } else { Some(content.clone()) };
    (text_form(content), Signal::Done { value })
}
