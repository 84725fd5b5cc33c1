//! Persistent rooms: rooms that stay open while no task is at work. A message on a channel begins a
//! turn, until the room is closed. Histories last from turn to turn. Budgets apply to the whole
//! room, but the wall time applies to each turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pausing::{UserMessage, active_frame, report_unread};
use super::prompt_agent::with_message;
use super::queue_limit::QueueLimit;
use super::state::closing::FrameEnd;
use super::state::responder::Responder;
use super::{
    Dialogue, Frames, Handoffs, Purpose, Room, RoomChannels, RoomContext, RoomPhase, RunControl,
    TimerPurpose,
};
use crate::protocol::event::RunOpening;
use crate::protocol::notice::Notice;
use crate::types::ids::{ChannelId, FrameId, Millis, RoomId, TaskName};
use crate::types::outcome::{Outcome, Status};
use crate::types::request::{RequestId, RequestReply};

/// The status of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoomStatus {
    Active,
    Paused,
    /// Takes nothing new; running work continues to its end.
    Closed,
    /// Nothing more will happen in it.
    Over,
}

impl RoomStatus {
    /// The word used in JSON and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Closed => "closed",
            Self::Over => "over",
        }
    }
}

impl Room {
    /// The status of the room.
    #[must_use]
    pub fn status(&self) -> RoomStatus {
        match &self.cx.phase {
            RoomPhase::Finished { .. } => RoomStatus::Over,
            _ if self.channels.is_closed() => RoomStatus::Closed,
            _ if self.pausing.paused().is_some() => RoomStatus::Paused,
            _ => RoomStatus::Active,
        }
    }

    /// The reason why the room was closed; `None` if it was not closed.
    #[must_use]
    pub fn closed(&self) -> Option<&str> {
        self.channels.closed()
    }

    /// The metadata that the room was opened with: a JSON object, or null if there is none.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        metadata(&self.cx)
    }

    /// The room that this one works for; `None` if it has no parent.
    #[must_use]
    pub fn parent(&self) -> Option<RoomId> {
        parent(&self.cx)
    }

    /// Returns why a message of these bytes may not wait for an agent, if so.
    pub(super) fn full_queue(&self, bytes: usize) -> Option<String> {
        // Messages for a later turn wait in `waiting`, those for a task at work in `words`.
        let waiting = self.channels.waiting.iter().map(UserMessage::weight);
        let words = self.pausing.words.iter().map(UserMessage::weight);
        QueueLimit::exceeded_by(waiting.chain([bytes]))
            .or_else(|| QueueLimit::exceeded_by(words.chain([bytes])))
            .map(|limit| limit.reason("messages", "wait for their turn"))
    }

    /// Queues a message for the next step of a task at work. In a persistent room, a message for
    /// any other task begins a turn later.
    pub(super) fn queue_or_begin_turn(&mut self, words: UserMessage) {
        if active_frame(&self.frames, &words.task).is_some() {
            self.pausing.words.push(words);
        } else if self.channels.is_persistent(&self.cx) {
            self.channels.waiting.push_back(words);
        } else {
            report_unread(&mut self.cx, words);
        }
    }

    /// Runs after each event: begins queued turns, and ends waits for the user in a closed room.
    pub(super) fn begin_queued_turns(&mut self) {
        if self.channels.is_closed() {
            self.end_waiting_for_user();
        }
        while self.cx.new_violation.is_none()
            && self.channels.is_persistent(&self.cx)
            && matches!(self.cx.phase, RoomPhase::Draining { .. })
        {
            let Some(words) = self.channels.waiting.pop_front() else { return };
            self.begin_turn(words);
            self.step_loop().run();
            self.deliver_user_messages();
            self.run_control().end_if_over();
        }
    }

    fn begin_turn(&mut self, UserMessage { task, text, attachments, chain_depth }: UserMessage) {
        // The depth counts on from the message that begins the turn.
        self.channels.chain_depth = self.cx.opening.chain_depth.max(chain_depth);
        let root = self.dialogue().open_turn(&task, Some(&text));
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.work_at_depth(self.channels.chain_depth);
        }
        let mut message = self.handoffs.user_message(&mut self.cx, text);
        message.attachments = attachments;
        self.dialogue().put_pending(root, Responder::User, message);
        self.frames.runnable.push_back(root);
    }

    pub(super) fn close(&mut self, request: RequestId, reason: &str) {
        self.cx.reply(request, Ok(RequestReply::Done));
        if !self.channels.is_closed() && !matches!(self.cx.phase, RoomPhase::Finished { .. }) {
            self.channels.close_to_messages(&mut self.cx, reason);
            self.background_work().close_tasks(reason);
        }
    }

    /// Ends a task that waits only for its user once the room is closed, because no answer can
    /// come.
    fn end_waiting_for_user(&mut self) {
        let RoomPhase::Running { root } = self.cx.phase else { return };
        let of_frames = || self.cx.calls.values().filter(|purpose| purpose.frame().is_some());
        if of_frames().next().is_some()
            && of_frames().all(|purpose| matches!(purpose, Purpose::User { .. }))
        {
            self.run_control().end_frame(
                root,
                FrameEnd::new(Status::UserQuit, "the room was closed while it waited for its user"),
            );
        }
    }
}

impl RoomChannels {
    /// The reason why the room was closed; `None` if it was not closed.
    pub(super) fn closed(&self) -> Option<&str> {
        self.closed.as_deref()
    }

    /// Whether the room was closed to anything new.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether the room stays open while no task is at work.
    pub(super) fn is_persistent(&self, cx: &RoomContext) -> bool {
        cx.opening.persistent && !self.is_closed()
    }

    /// Whether messages are queued that can each begin a turn.
    pub(super) fn has_turns_waiting(&self, cx: &RoomContext) -> bool {
        self.is_persistent(cx) && !self.waiting.is_empty()
    }

    /// Ends a turn of a persistent room: drops its deadline, and reports its answer on the
    /// channels.
    pub(super) fn turn_ended(&mut self, cx: &mut RoomContext, outcome: &Outcome) {
        if !cx.opening.persistent {
            return;
        }
        cx.timers.retain(|_, purpose| *purpose != TimerPurpose::Wall);
        cx.opening.deadline = None;
        // If a budget closed the room, `stop_with` reports that instead.
        if !(self.is_closed() && outcome.status.is_budget()) {
            self.report_outcome(cx, outcome);
        }
    }

    /// Reports a question of an interactive task on the other channels of a persistent room.
    pub(super) fn report_question(
        &mut self,
        cx: &mut RoomContext,
        channel: &ChannelId,
        prompt: &str,
    ) {
        if self.is_persistent(cx) && !prompt.trim().is_empty() {
            self.report_channels(cx, prompt, Some(channel));
        }
    }

    /// Closes the room to anything new, and reports queued messages as unread.
    pub(super) fn close_to_messages(&mut self, cx: &mut RoomContext, reason: &str) {
        self.closed = Some(reason.to_owned());
        cx.notify(Notice::RoomClosed { reason: reason.to_owned() });
        for words in std::mem::take(&mut self.waiting) {
            let reason = format!("the room was closed before it was read: {reason}");
            cx.notify(Notice::UserMessageDropped { task: words.task, text: words.text, reason });
        }
    }
}

/// The metadata that the room was opened with: a JSON object, or null if there is none.
fn metadata(cx: &RoomContext) -> &Value {
    &cx.opening.metadata
}

/// The room that this one works for; `None` if it has no parent.
fn parent(cx: &RoomContext) -> Option<RoomId> {
    let (parent, _) = cx.opening.room.as_str().rsplit_once('/').filter(|_| cx.opening.depth > 0)?;
    Some(RoomId::from(parent))
}

/// Whether the room opens without a message and waits for the first one.
pub(super) fn opens_idle(opening: &RunOpening) -> bool {
    let is_empty =
        opening.content.is_none() && opening.attachments.is_empty() && opening.tools.is_empty();
    opening.persistent && is_empty && opening.role_call.is_none() && opening.replay.is_empty()
}

pub(super) fn wait_for_messages(cx: &mut RoomContext) {
    // The time limit applies to turns, so it starts with the first one.
    cx.opening.deadline = None;
    let outcome = Arc::new(Outcome::new(Status::Done, "nobody has been at work in the room"));
    cx.phase = RoomPhase::Draining { outcome };
}

/// The deadline of background work that starts now. In a run it is the run's. In a persistent
/// room it is one full turn from now, since the current turn ends earlier.
pub(super) fn deadline_in_background(cx: &RoomContext) -> Option<Millis> {
    if cx.opening.persistent {
        cx.opening.limits.wall_ms.map(|wall_ms| cx.now.plus(wall_ms))
    } else {
        cx.opening.deadline
    }
}

impl Handoffs {
    /// The task that answers incoming messages. In a run it is the task at work for the user. In a
    /// persistent room it is the task that the conversation was handed to, or else the entry task.
    pub(super) fn active_task<'r>(
        &'r self,
        cx: &'r RoomContext,
        frames: &'r Frames,
        channels: &'r RoomChannels,
    ) -> &'r TaskName {
        match &cx.phase {
            RoomPhase::Running { root } if !channels.is_persistent(cx) => {
                frames.get(root).map_or(&cx.opening.entry, |frame| &frame.task)
            }
            _ => self.handed_to(cx).unwrap_or(&cx.opening.entry),
        }
    }
}

impl Dialogue<'_> {
    /// Begins a turn of a persistent room, about `words` or without a user message. The caller
    /// still has to put the first message.
    pub(super) fn open_turn(&mut self, task: &TaskName, words: Option<&str>) -> FrameId {
        self.cx.idle_steps = 0;
        // The message that opened the turn does not count as an answer.
        self.cx.opening.content = Some(words.unwrap_or_default().to_owned());
        let inputs = Arc::new(self.cx.opening.inputs.clone());
        let inputs = match self.cx.setup.tasks.get(task) {
            Some(setup) => with_message(setup, inputs, words),
            None => inputs,
        };
        let root = self.new_frame(task, None, inputs);
        self.cx.phase = RoomPhase::Running { root };
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.grant_steps(self.cx.opening.turns);
        }
        if let Some(wall_ms) = self.cx.opening.limits.wall_ms {
            let deadline = self.cx.now.plus(wall_ms);
            self.cx.opening.deadline = Some(deadline);
            self.cx.set_timer(TimerPurpose::Wall, deadline);
        }
        root
    }
}

impl RunControl<'_> {
    /// Stops the work for the user. In a persistent room only the turn ends, through its judge and
    /// gates, and background work continues; any other room stops at once.
    pub(super) fn stop_work(&mut self, ending: FrameEnd) {
        match self.cx.phase {
            RoomPhase::Running { root } if self.channels.is_persistent(self.cx) => {
                self.end_frame(root, ending)
            }
            _ => self.stop_with(ending),
        }
    }
}
