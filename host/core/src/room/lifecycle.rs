//! A room that is held open: nobody need be at work in it, what comes in on its channels begins a
//! turn, and so it goes on until it is closed. Histories stay from turn to turn, and budgets are
//! those of the whole room; the run's wall time is that of each turn.

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

/// How a room stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoomStatus {
    Active,
    Paused,
    /// It takes nothing new; what is under way goes on to its end.
    Closed,
    /// Nothing will happen in it any more.
    Over,
}

impl RoomStatus {
    /// The word in JSON and for people.
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
    /// How the room stands.
    #[must_use]
    pub fn status(&self) -> RoomStatus {
        match &self.phase {
            RoomPhase::Finished { .. } => RoomStatus::Over,
            _ if self.conversation.closed.is_some() => RoomStatus::Closed,
            _ if self.paused().is_some() => RoomStatus::Paused,
            _ => RoomStatus::Active,
        }
    }

    /// Why somebody closed the room; none: nobody did.
    #[must_use]
    pub fn closed(&self) -> Option<&str> {
        self.conversation.closed.as_deref()
    }

    /// What is known of the room: who opened it and what for; a JSON object, null when there is
    /// nothing.
    #[must_use]
    pub fn metadata(&self) -> &Value {
        &self.opening.metadata
    }

    /// The room that this one works for; none: it works for nobody.
    #[must_use]
    pub fn parent(&self) -> Option<RoomId> {
        let (parent, _) =
            self.opening.room.as_str().rsplit_once('/').filter(|_| self.opening.depth > 0)?;
        Some(RoomId::from(parent))
    }

    /// Nobody need be at work in it for it to go on.
    pub(super) fn is_held(&self) -> bool {
        self.opening.hold && self.conversation.closed.is_none()
    }

    /// The task whose turn it is to answer what comes in: the one at work for whoever spoke, and in
    /// a held room the one that the conversation was handed to, or that it began with.
    pub(super) fn active_task(&self) -> &TaskName {
        match &self.phase {
            RoomPhase::Running { root } if !self.is_held() => {
                self.frames.get(root).map_or(&self.opening.entry, |frame| &frame.task)
            }
            _ => self.handed_to().unwrap_or(&self.opening.entry),
        }
    }

    /// Nobody said anything yet, and nobody has to: the room waits for what comes in.
    pub(super) fn opens_idle(opening: &RunOpening) -> bool {
        let is_empty =
            opening.content.is_none() && opening.attachments.is_empty() && opening.tools.is_empty();
        opening.hold && is_empty && opening.seat.is_none() && opening.replay.is_empty()
    }

    pub(super) fn wait_for_messages(&mut self) {
        // What limits a turn begins with it.
        self.opening.deadline = None;
        let outcome = Arc::new(Outcome::new(Status::Done, "nobody has been at work in the room"));
        self.phase = RoomPhase::Draining { outcome };
    }

    /// A task at work reads it in its next step; in a held room one that is not begins a turn with
    /// it, when its turn has come.
    pub(super) fn hear_or_begin(&mut self, words: UserWords) {
        if self.at_work(&words.task).is_some() {
            self.pausing.words.push(words);
        } else if self.is_held() {
            self.conversation.waiting.push_back(words);
        } else {
            self.unheard(words);
        }
    }

    /// Words wait for a turn of their own, which can begin.
    pub(super) fn has_turns_waiting(&self) -> bool {
        self.is_held() && !self.conversation.waiting.is_empty()
    }

    /// After each event: turns begin that wait, and a closed room waits for nobody.
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

    /// A task begins a turn of a held room, about these words or about nothing that anybody said.
    /// Its first message is still to come.
    pub(super) fn open_turn(&mut self, task: &TaskName, words: Option<&str>) -> FrameId {
        self.idle_steps = 0;
        // What the turn is about is no answer.
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

    /// When the time of what begins in the background is over: that of the run, and in a held room
    /// as long as a turn may take, for the turn ends before.
    pub(super) fn deadline_in_background(&self) -> Option<Millis> {
        if self.opening.hold {
            self.opening.limits.wall_ms.map(|wall_ms| self.now.plus(wall_ms))
        } else {
            self.opening.deadline
        }
    }

    /// The task that was at work in a held room has ended: its answer is told, and its time is
    /// over.
    pub(super) fn turn_ended(&mut self, outcome: &Outcome) {
        if !self.opening.hold {
            return;
        }
        self.timers.retain(|_, purpose| *purpose != TimerPurpose::Wall);
        self.opening.deadline = None;
        if !(self.conversation.closed.is_some() && outcome.status.is_budget()) {
            self.report_outcome(outcome);
        }
    }

    /// A hard stop of the work that goes on for whoever spoke: of a held room only the turn ends,
    /// and what goes on beside it goes on.
    pub(super) fn stop_work(&mut self, ending: FrameEnd) {
        match self.phase {
            RoomPhase::Running { root } if self.is_held() => self.end_frame(root, ending),
            _ => self.stop_with(ending),
        }
    }

    /// What an interactive task asks its user is told on the other channels of a held room too.
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

    /// The room takes nothing new from here on.
    pub(super) fn shut(&mut self, reason: &str) {
        self.conversation.closed = Some(reason.to_owned());
        self.tell(Notice::RoomClosed { reason: reason.to_owned() });
        for words in std::mem::take(&mut self.conversation.waiting) {
            let reason = format!("the room was closed before it was read: {reason}");
            self.tell(Notice::UserUnheard { task: words.task, text: words.text, reason });
        }
    }

    /// Nobody will answer in a closed room, so a task that waits for nothing but its user is done.
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
