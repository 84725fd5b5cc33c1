//! Persistent rooms: rooms that stay open while no task is at work. A message on a channel begins a
//! turn, until the room is closed. Histories last from turn to turn. Budgets apply to the whole
//! room, but the wall time applies to each turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::frame::Responder;
use super::pausing::UserWords;
use super::prompt_agent::with_message;
use super::termination::FrameEnd;
use super::{Purpose, Room, RoomPhase, TimerPurpose};
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
    /// Returns the word used in JSON and in output.
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
    /// Returns the status of the room.
    #[must_use]
    pub fn status(&self) -> RoomStatus {
        match &self.phase {
            RoomPhase::Finished { .. } => RoomStatus::Over,
            _ if self.conversation.closed.is_some() => RoomStatus::Closed,
            _ if self.paused().is_some() => RoomStatus::Paused,
            _ => RoomStatus::Active,
        }
    }

    /// Returns the reason why the room was closed; `None` if it was not closed.
    #[must_use]
    pub fn closed(&self) -> Option<&str> {
        self.conversation.closed.as_deref()
    }

    /// Returns the metadata that the room was opened with: a JSON object, or null if there is none.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        &self.opening.metadata
    }

    /// Returns the room that this one works for; `None` if it has no parent.
    #[must_use]
    pub fn parent(&self) -> Option<RoomId> {
        let (parent, _) =
            self.opening.room.as_str().rsplit_once('/').filter(|_| self.opening.depth > 0)?;
        Some(RoomId::from(parent))
    }

    /// Returns whether the room stays open while no task is at work.
    pub(super) fn is_held(&self) -> bool {
        self.opening.hold && self.conversation.closed.is_none()
    }

    /// Returns the task that answers incoming messages. In a run it is the task at work for the
    /// user. In a persistent room it is the task that the conversation was handed to, or else the
    /// entry task.
    pub(super) fn active_task(&self) -> &TaskName {
        match &self.phase {
            RoomPhase::Running { root } if !self.is_held() => {
                self.frames.get(root).map_or(&self.opening.entry, |frame| &frame.task)
            }
            _ => self.handed_to().unwrap_or(&self.opening.entry),
        }
    }

    /// Returns whether the room opens without a message and waits for the first one.
    pub(super) fn opens_idle(opening: &RunOpening) -> bool {
        let is_empty =
            opening.content.is_none() && opening.attachments.is_empty() && opening.tools.is_empty();
        opening.hold && is_empty && opening.seat.is_none() && opening.replay.is_empty()
    }

    pub(super) fn wait_for_messages(&mut self) {
        // The time limit applies to turns, so it starts with the first one.
        self.opening.deadline = None;
        let outcome = Arc::new(Outcome::new(Status::Done, "nobody has been at work in the room"));
        self.phase = RoomPhase::Draining { outcome };
    }

    /// Queues a message for the next step of a task at work. In a persistent room, a message for
    /// any other task begins a turn later.
    pub(super) fn hear_or_begin(&mut self, words: UserWords) {
        if self.at_work(&words.task).is_some() {
            self.pausing.words.push(words);
        } else if self.is_held() {
            self.conversation.waiting.push_back(words);
        } else {
            self.unheard(words);
        }
    }

    /// Returns whether messages are queued that can each begin a turn.
    pub(super) fn has_turns_waiting(&self) -> bool {
        self.is_held() && !self.conversation.waiting.is_empty()
    }

    /// Runs after each event: begins queued turns, and ends waits for the user in a closed room.
    pub(super) fn host(&mut self) {
        if self.conversation.closed.is_some() {
            self.end_waiting_for_user();
        }
        while self.new_violation.is_none()
            && self.is_held()
            && matches!(self.phase, RoomPhase::Draining { .. })
        {
            let Some(words) = self.conversation.waiting.pop_front() else { return };
            self.begin_turn(words);
            self.run();
            self.handle_words();
            self.end_if_over();
        }
    }

    fn begin_turn(&mut self, UserWords { task, text, attachments, chain_depth }: UserWords) {
        // The depth counts on from the message that begins the turn.
        self.conversation.chain_depth = self.opening.chain_depth.max(chain_depth);
        let root = self.open_turn(&task, Some(&text));
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.chain_depth = self.conversation.chain_depth;
        }
        let mut message = self.user_message(text);
        message.attachments = attachments;
        self.put_pending(root, Responder::User, message);
        self.runnable.push_back(root);
    }

    /// Begins a turn of a persistent room, about `words` or without a user message. The caller
    /// still has to put the first message.
    pub(super) fn open_turn(&mut self, task: &TaskName, words: Option<&str>) -> FrameId {
        self.idle_steps = 0;
        // The message that opened the turn does not count as an answer.
        self.opening.content = Some(words.unwrap_or_default().to_owned());
        let inputs = Arc::new(self.opening.inputs.clone());
        let inputs = match self.setup.tasks.get(task) {
            Some(setup) => with_message(setup, inputs, words),
            None => inputs,
        };
        let root = self.new_frame(task, None, inputs);
        self.phase = RoomPhase::Running { root };
        if let Some(frame) = self.frames.get_mut(&root) {
            frame.turn_limit = self.opening.turns.or(frame.turn_limit);
        }
        if let Some(wall_ms) = self.opening.limits.wall_ms {
            let deadline = self.now.plus(wall_ms);
            self.opening.deadline = Some(deadline);
            self.set_timer(TimerPurpose::Wall, deadline);
        }
        root
    }

    /// Returns the deadline of background work that starts now. In a run it is the run's. In a
    /// persistent room it is one full turn from now, since the current turn ends earlier.
    pub(super) fn deadline_in_background(&self) -> Option<Millis> {
        if self.opening.hold {
            self.opening.limits.wall_ms.map(|wall_ms| self.now.plus(wall_ms))
        } else {
            self.opening.deadline
        }
    }

    /// Ends a turn of a persistent room: drops its deadline, and reports its answer on the
    /// channels.
    pub(super) fn turn_ended(&mut self, outcome: &Outcome) {
        if !self.opening.hold {
            return;
        }
        self.timers.retain(|_, purpose| *purpose != TimerPurpose::Wall);
        self.opening.deadline = None;
        // If a budget closed the room, `stop_with` reports that instead.
        if !(self.conversation.closed.is_some() && outcome.status.is_budget()) {
            self.report_outcome(outcome);
        }
    }

    /// Stops the work for the user at once. In a persistent room only the turn ends, and background
    /// work continues.
    pub(super) fn stop_work(&mut self, ending: FrameEnd) {
        match self.phase {
            RoomPhase::Running { root } if self.is_held() => self.end_frame(root, ending),
            _ => self.stop_with(ending),
        }
    }

    /// Reports a question of an interactive task on the other channels of a persistent room.
    pub(super) fn report_question(&mut self, channel: &ChannelId, prompt: &str) {
        if self.is_held() && !prompt.trim().is_empty() {
            self.report_channels(prompt, Some(channel));
        }
    }

    pub(super) fn close(&mut self, request: RequestId, reason: &str) {
        self.reply(request, Ok(RequestReply::Done));
        if self.conversation.closed.is_none() && !matches!(self.phase, RoomPhase::Finished { .. }) {
            self.shut(reason);
            self.close_tasks(reason);
        }
    }

    /// Closes the room to anything new, and reports queued messages as unread.
    pub(super) fn shut(&mut self, reason: &str) {
        self.conversation.closed = Some(reason.to_owned());
        self.tell(Notice::RoomClosed { reason: reason.to_owned() });
        for words in std::mem::take(&mut self.conversation.waiting) {
            let reason = format!("the room was closed before it was read: {reason}");
            self.tell(Notice::UserUnheard { task: words.task, text: words.text, reason });
        }
    }

    /// Ends a task that waits only for its user once the room is closed, because no answer can
    /// come.
    fn end_waiting_for_user(&mut self) {
        let RoomPhase::Running { root } = self.phase else { return };
        let of_frames = || self.calls.values().filter(|purpose| purpose.frame().is_some());
        if of_frames().next().is_some()
            && of_frames().all(|purpose| matches!(purpose, Purpose::User { .. }))
        {
            self.end_frame(
                root,
                FrameEnd::new(Status::UserQuit, "the room was closed while it waited for its user"),
            );
        }
    }
}
