//! Agent turns about results (R-102, R-108 done right). The host posts a message with fenced data
//! for the notified task alone. It does not count as a user's or another agent's message. A task
//! that waits for its user takes the turn at once, and then asks again. A task at work reads it in
//! its next step.

use std::sync::Arc;

use super::{Room, texts};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::state::frame::Frame;
use crate::room::state::frame_state::FrameWait;
use crate::room::state::gated::GatedMessage;
use crate::room::state::responder::Responder;
use crate::room::{
    Background, Frames, Invariant, Purpose, ResultDelivery, RoomChannels, RoomContext, RoomPhase,
    StepLoop,
};
use crate::types::delegation::BackgroundState;
use crate::types::delivery::{DeliveryRecord, DeliveryState};
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::message::Message;

/// The recipient of a relayed message.
pub(super) enum RelayTarget {
    /// The task waits for its user with this call.
    Asking(FrameId, CallId),
    /// The task's next step has not begun.
    Beginning(FrameId),
    /// The task reads it later, or another task holds the conversation.
    Later,
    /// The room is persistent, and no task is at work.
    Held,
    Nobody,
}

impl RoomChannels {
    /// Whether the task can take a turn about a relayed message.
    pub(super) fn can_take_turn(&self, cx: &RoomContext, frames: &Frames, task: &TaskName) -> bool {
        cx.setup.tasks.contains_key(task)
            && (self.is_persistent(cx) || active_turn_frame(frames, task).is_some())
    }
}

fn active_turn_frame(frames: &Frames, task: &TaskName) -> Option<FrameId> {
    frames.values().find(|frame| frame.task == *task && frame.only.is_none()).map(|frame| frame.id)
}

impl Room {
    pub(super) fn handle_relays(&mut self) {
        let tasks: Vec<TaskName> = self.deliveries.relays.keys().cloned().collect();
        for task in tasks {
            match self.relay_target(&task) {
                RelayTarget::Asking(frame, call) => {
                    let not_yet_asked =
                        self.cx.effects.iter().position(|effect| effect.starts() == Some(call));
                    // A question that was not sent yet needs no `AbandonCall`.
                    match not_yet_asked {
                        Some(place) => drop(self.cx.effects.remove(place)),
                        None => self.cx.effects.push_back(Effect::AbandonCall { call }),
                    }
                    self.cx.calls.remove(&call);
                    self.take_turn_about(frame, &task);
                }
                RelayTarget::Beginning(frame) => self.step_loop().read_relayed_messages(frame),
                RelayTarget::Held => {
                    let frame = self.dialogue().open_turn(&task, None);
                    self.take_turn_about(frame, &task);
                }
                RelayTarget::Later => {}
                RelayTarget::Nobody => {
                    let relays = self.deliveries.relays.remove(&task).unwrap_or_default();
                    relays
                        .into_iter()
                        .for_each(|gated| self.result_delivery().deliver_to_people(gated));
                }
            }
        }
    }

    pub(super) fn relay_target(&self, task: &TaskName) -> RelayTarget {
        let is_paused = self.pausing.paused().is_some();
        let Some(frame) = active_turn_frame(&self.frames, task) else {
            return match self.cx.phase {
                _ if !self.channels.is_persistent(&self.cx) => RelayTarget::Nobody,
                RoomPhase::Draining { .. } if !is_paused => RelayTarget::Held,
                _ => RelayTarget::Later,
            };
        };
        if is_paused {
            return RelayTarget::Later;
        }
        let wait = self.frames.get(&frame).and_then(Frame::wait);
        if let Some(FrameWait::Call(call)) = wait
            && matches!(self.cx.calls.get(call), Some(Purpose::User { .. }))
        {
            return RelayTarget::Asking(frame, *call);
        }
        let steps =
            |effect: &Effect| matches!(effect, Effect::StepAgent { frame: of, .. } if *of == frame);
        if self.cx.effects.iter().any(steps) {
            RelayTarget::Beginning(frame)
        } else {
            RelayTarget::Later
        }
    }

    /// Lets the agent take a turn about all messages that are put to it; the task then continues as
    /// after any other.
    fn take_turn_about(&mut self, id: FrameId, task: &TaskName) {
        let Some(last) = self.step_loop().read_relays(id, task) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.abandon_step();
        }
        // The agent must answer before the user is asked again.
        self.histories.memory(&self.cx, task).human_tried = true;
        self.dialogue().put_pending(id, Responder::Agent, last);
        self.frames.runnable.push_back(id);
        self.step_loop().run();
    }
}

impl StepLoop<'_> {
    /// Adds relayed messages to the history right before an agent's step.
    pub(super) fn read_relayed_messages(&mut self, id: FrameId) {
        if self.deliveries.relays.is_empty() || self.pausing.paused().is_some() {
            return;
        }
        let Some(task) = self
            .frames
            .get(&id)
            .filter(|frame| frame.only.is_none())
            .map(|frame| frame.task.clone())
        else {
            return;
        };
        self.read_relays(id, &task);
    }

    /// Writes relayed messages to the agent's history, each as a message, and returns the last one.
    fn read_relays(&mut self, id: FrameId, task: &TaskName) -> Option<Arc<Message>> {
        let mut last = None;
        for gated in self.deliveries.relays.remove(task)? {
            let text = self.background.as_read_in_turn(&gated);
            let Some(message) = self.dialogue().read_data(id, text, &gated.outgoing.tasks) else {
                continue;
            };
            if let Some(frame) = self.frames.get_mut(&id) {
                // results may lead to a limited number of automatic answers only.
                frame.raise_depth(gated.chain_depth);
            }
            for result in &gated.outgoing.tasks {
                self.deliveries.set_delivery_state(
                    self.cx,
                    self.background,
                    result,
                    DeliveryState::Delivered,
                    None,
                    None,
                );
            }
            let ids = gated.outgoing.tasks.clone();
            self.cx.notify(Notice::ResultsRelayed {
                task: task.clone(),
                ids,
                message: Arc::clone(&message),
            });
            self.deliveries.announcement_taken(
                self.cx,
                &gated,
                DeliveryRecord {
                    state: DeliveryState::Delivered,
                    attempts: 1,
                    ..DeliveryRecord::default()
                },
            );
            last = Some(message);
        }
        last
    }
}

impl Background {
    /// The text of the message, with a fence around the data that gates let through.
    fn as_read_in_turn(&self, gated: &GatedMessage) -> String {
        if gated.outgoing.tasks.is_empty() {
            return texts::announcement(&gated.outgoing.text);
        }
        let is_completed =
            |id| self.task(id).is_some_and(|record| record.state == BackgroundState::Completed);
        texts::for_turn(&gated.outgoing.text, gated.outgoing.tasks.iter().all(is_completed))
    }
}

impl ResultDelivery<'_> {
    /// Whether the run was stopped or failed; nothing more is said then.
    pub(super) fn was_stopped(&self) -> bool {
        self.background.is_stopped()
            || matches!(&self.cx.phase, RoomPhase::Draining { outcome } if !outcome.status.is_success())
    }

    /// Delivers a message to people instead, because the task ended before its agent read it. After
    /// a stop, nothing more is said.
    fn deliver_to_people(&mut self, mut gated: GatedMessage) {
        match gated.otherwise.take().filter(|_| !self.was_stopped()) {
            Some(text) => {
                (gated.outgoing.text, gated.relay) = (text, None);
                self.send_through_gates(gated);
            }
            None => self.deliveries.delivery_interrupted(
                self.cx,
                self.background,
                gated,
                "the task was over before its agent took a turn about it",
            ),
        }
    }
}
