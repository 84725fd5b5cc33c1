//! Pauses (O-122), and user messages to a task at work (O-053…O-055). A paused room takes every
//! answer as usual, and holds back effects that would begin something, so it resumes exactly where
//! it was. Time in a pause counts against no limit.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::responder::Responder;
use super::{Frames, Purpose, Room, RoomContext, RoomPhase, StepLoop, TimerPurpose};
use crate::protocol::control::HANDOVER;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::types::action::{Action, Reply};
use crate::types::ids::{CallId, FrameId, Millis, TaskName, TimerId};
use crate::types::message::Blob;

/// The pause state of a room, and its unread user messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Pausing {
    /// The reason of the pause; `None` if the run is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Time up to which the pause has been counted.
    counted: Millis,
    /// Effects that would begin something, held until the pause ends.
    #[serde(rename = "held", skip_serializing_if = "Vec::is_empty")]
    pending_effects: Vec<Effect>,
    /// Milliseconds of pauses by which each timer will fire too early.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    owed: BTreeMap<TimerId, u64>,
    /// Timers that fired in the pause, and the milliseconds after its end at which they are due.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    fired: BTreeMap<TimerId, u64>,
    /// Unread user messages, in order of arrival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) words: Vec<UserMessage>,
}

impl Pausing {
    /// Whether there is nothing to serialize.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// A user message to a task at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UserMessage {
    pub(super) task: TaskName,
    pub(super) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attachments: Vec<Blob>,
    /// Number of automatic answers that led to it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) chain_depth: u32,
}

impl UserMessage {
    /// The bytes of its text and of the names of its attachments.
    pub(super) fn weight(&self) -> usize {
        self.text.len() + self.attachments.iter().map(Blob::weight).sum::<usize>()
    }
}

fn is_none(depth: &u32) -> bool {
    *depth == 0
}

impl Room {
    /// The reason of the pause; `None` if the run is not paused.
    #[must_use]
    pub fn paused(&self) -> Option<&str> {
        self.pausing.paused()
    }

    pub(super) fn user_said_while_running(
        &mut self,
        task: Option<&TaskName>,
        text: String,
        attachments: Vec<Blob>,
    ) {
        let task = task
            .unwrap_or(self.handoffs.active_task(&self.cx, &self.frames, &self.channels))
            .clone();
        let words = UserMessage { task, text, attachments, chain_depth: 0 };
        let reason = if !self.cx.setup.tasks.contains_key(&words.task) {
            "the config has no task of that name".to_owned()
        } else if let Some(reason) = self.full_queue(words.weight()) {
            reason
        } else if self.channels.is_persistent(&self.cx) {
            self.queue_or_begin_turn(words);
            return;
        } else if !matches!(self.cx.phase, RoomPhase::Running { .. }) {
            "the run has its result already".to_owned()
        } else {
            match active_frame(&self.frames, &words.task).and_then(|id| self.frames.get(&id)) {
                None => "that task is not at work now".to_owned(),
                // Its agent makes no further step, whatever they decide.
                Some(frame) if frame.closing().is_some() => {
                    "the task has ended, and its judge or gates decide on its result".to_owned()
                }
                Some(_) => return self.pausing.words.push(words),
            }
        };
        let UserMessage { task, text, .. } = words;
        self.cx.notify(Notice::UserMessageDropped { task, text, reason });
    }

    /// Runs after each event: passes user messages to a question or a step that waits for them.
    /// Messages to a task that is over begin a turn, or are reported as unread.
    pub(super) fn deliver_user_messages(&mut self) {
        while let Some(next) = self.pausing.next_user_message(&self.cx, &self.frames) {
            let words = self.pausing.words.remove(next.0);
            match next.1 {
                // The message answers the task's question.
                MessageTarget::Answer(call) => {
                    let not_yet_asked =
                        self.cx.effects.iter().position(|effect| effect.starts() == Some(call));
                    // A question that was not sent yet needs no `AbandonCall`.
                    match not_yet_asked {
                        Some(place) => drop(self.cx.effects.remove(place)),
                        None => self.cx.effects.push_back(Effect::AbandonCall { call }),
                    }
                    // Read before the answer removes the call.
                    let asker = self.cx.calls.get(&call).and_then(Purpose::frame);
                    let depth = words.chain_depth.max(self.cx.opening.chain_depth);
                    self.step_loop().user_answered(call, Some(words.text), words.attachments);
                    if let Some(frame) = asker.and_then(|frame| self.frames.get_mut(&frame)) {
                        frame.work_at_depth(depth);
                    }
                    self.step_loop().run();
                }
                MessageTarget::Step(frame) => self.step_loop().write_user_message(frame, words),
                MessageTarget::Nobody => self.queue_or_begin_turn(words),
            }
        }
    }
}

impl Pausing {
    /// The reason of the pause; `None` if the run is not paused.
    pub(super) fn paused(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn pause(&mut self, cx: &mut RoomContext, reason: &str) {
        match self.reason.as_deref() {
            None => self.counted = cx.now,
            // The next host lifts that one, and a person's pause must outlast it.
            Some(HANDOVER) if reason != HANDOVER => {}
            // The first reason stays: one end lifts them all.
            Some(_) => return,
        }
        self.reason = Some(reason.to_owned());
        cx.notify(Notice::RunPaused { reason: reason.to_owned() });
    }

    pub(super) fn unpause(&mut self, cx: &mut RoomContext) {
        if self.reason.take().is_none() {
            return;
        }
        // Timers that fired in the pause are set again for their remaining time.
        for (timer, rest) in std::mem::take(&mut self.fired) {
            if let Some(purpose) = cx.timers.remove(&timer) {
                cx.set_timer(purpose, cx.now.plus(rest));
            }
        }
        let timers = &cx.timers;
        // Timers that were dropped in the pause are owed nothing.
        self.owed.retain(|timer, _| timers.contains_key(timer));
        self.counted = Millis::default();
        cx.notify(Notice::RunUnpaused);
    }

    /// Runs before each event: counts the time that passed in a pause. Held effects return to the
    /// queue, where they can be abandoned like any other.
    pub(super) fn count_pause(&mut self, cx: &mut RoomContext) {
        if self.reason.is_none() {
            return;
        }
        // Reversed, because each effect is pushed to the front: the order must stay as it was.
        for effect in std::mem::take(&mut self.pending_effects).into_iter().rev() {
            cx.effects.push_front(effect);
        }
        let passed = cx.now.since(self.counted);
        self.counted = cx.now;
        if passed == 0
            || !matches!(cx.phase, RoomPhase::Running { .. } | RoomPhase::Draining { .. })
        {
            return;
        }
        cx.opening.deadline = cx.opening.deadline.map(|deadline| deadline.plus(passed));
        for (timer, purpose) in
            cx.timers.iter_mut().filter(|(timer, _)| !self.fired.contains_key(timer))
        {
            // Timers cannot be moved, so the time is added when they fire.
            let owed = self.owed.entry(*timer).or_default();
            *owed = owed.saturating_add(passed);
            if let TimerPurpose::Delivery { at, .. } = purpose {
                *at = at.plus(passed);
            }
        }
    }

    /// Corrects timers after a downtime of the host in a pause. They were set anew without that
    /// time, so it is not owed twice. Returns true if the pause has counted it already.
    pub(super) fn count_downtime(&mut self, down_ms: u64) -> bool {
        if self.reason.is_none() {
            return false;
        }
        self.owed.values_mut().for_each(|owed| *owed = owed.saturating_sub(down_ms));
        true
    }

    /// Returns the next effect; in a pause, effects that begin something are held.
    pub(super) fn next_effect(&mut self, cx: &mut RoomContext) -> Option<Effect> {
        loop {
            let effect = cx.effects.pop_front()?;
            if self.reason.is_none() || effect.starts().is_none() {
                return Some(effect);
            }
            self.pending_effects.push(effect);
        }
    }

    /// Returns whether a timer fired too early because of a pause, and sets it again.
    pub(super) fn fired_too_early(&mut self, cx: &mut RoomContext, timer: TimerId) -> bool {
        if self.is_idle() || !cx.timers.contains_key(&timer) {
            return false;
        }
        if self.fired.contains_key(&timer) {
            return true;
        }
        let owed = self.owed.remove(&timer).unwrap_or_default();
        if self.reason.is_some() {
            self.fired.insert(timer, owed);
            return true;
        }
        let purpose = if owed > 0 { cx.timers.remove(&timer) } else { None };
        let Some(purpose) = purpose else { return false };
        cx.set_timer(purpose, cx.now.plus(owed));
        true
    }

    /// Drops the pause of a finished run, and reports its unread messages.
    pub(super) fn end_pause(&mut self, cx: &mut RoomContext) {
        if matches!(cx.phase, RoomPhase::Finished { .. }) && !self.is_idle() {
            let Pausing { words, .. } = std::mem::take(self);
            words.into_iter().for_each(|words| report_unread(cx, words));
        }
    }

    fn next_user_message(
        &self,
        cx: &RoomContext,
        frames: &Frames,
    ) -> Option<(usize, MessageTarget)> {
        let is_paused = self.reason.is_some();
        self.words.iter().enumerate().find_map(|(place, words)| {
            let Some(frame) = active_frame(frames, &words.task) else { return Some((place, MessageTarget::Nobody)) };
            if is_paused {
                return None;
            }
            let asks = |(call, purpose): (&CallId, &Purpose)| (*purpose == Purpose::User { frame }).then_some(*call);
            if let Some(call) = cx.calls.iter().find_map(asks) {
                return Some((place, MessageTarget::Answer(call)));
            }
            let steps = |effect: &Effect| matches!(effect, Effect::StepAgent { frame: of, .. } if *of == frame);
            cx.effects.iter().any(steps).then_some((place, MessageTarget::Step(frame)))
        })
    }
}

pub(super) fn active_frame(frames: &Frames, task: &TaskName) -> Option<FrameId> {
    frames.values().find(|frame| frame.task == *task).map(|frame| frame.id)
}

pub(super) fn report_unread(cx: &mut RoomContext, UserMessage { task, text, .. }: UserMessage) {
    cx.notify(Notice::UserMessageDropped {
        task,
        text,
        reason: "the task was over before its agent made another step".to_owned(),
    });
}

impl StepLoop<'_> {
    /// Writes user messages to the history right before an agent's step. Messages in a pause wait
    /// for its end.
    pub(super) fn read_user_messages(&mut self, id: FrameId) {
        if self.pausing.words.is_empty() || self.pausing.reason.is_some() {
            return;
        }
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else { return };
        let (own, others) = std::mem::take(&mut self.pausing.words)
            .into_iter()
            .partition(|words| words.task == task);
        self.pausing.words = others;
        let own: Vec<UserMessage> = own;
        own.into_iter().for_each(|words| self.write_user_message(id, words));
    }

    fn write_user_message(
        &mut self,
        id: FrameId,
        UserMessage { task, text, attachments, chain_depth }: UserMessage,
    ) {
        if text.trim().is_empty() && attachments.is_empty() {
            return;
        }
        let mut message = self.handoffs.user_message(self.cx, text.clone());
        message.attachments.clone_from(&attachments);
        let message = Arc::new(message);
        self.dialogue().write_history(id, &message);
        if let Some(frame) = self.frames.get_mut(&id) {
            // O-055: the newest user message counts.
            frame.hear_user(Arc::clone(&message));
            frame.work_at_depth(chain_depth.max(self.cx.opening.chain_depth));
        }
        // O-054: an event without an action, (message, null).
        let action = Action::Reply(Reply { content: Some(text), attachments, ..Reply::default() });
        self.frames.remember(self.cx, id, Some(action), None, message.seq);
        // A user message ends any loop, so the detector starts anew. Its verdict is not needed.
        drop(self.dialogue().watch(id, &Responder::User, &message, None));
        self.cx.notify(Notice::UserMessageRead { task, message });
    }
}

/// The target of a user message.
enum MessageTarget {
    /// It answers this question.
    Answer(CallId),
    /// It joins this frame's step, which has not begun.
    Step(FrameId),
    Nobody,
}
