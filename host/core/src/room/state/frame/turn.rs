//! The turn of a frame: the message to answer, and what the current step has made of it.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Frame;
use crate::protocol::notice::{SkipReason, SkippedResponder};
use crate::room::state::responder::Responder;
use crate::setup::LoopRules;
use crate::tool_calls::parse::ParsedCalls;
use crate::types::message::{Message, Role};

/// The message that a frame answers, and the answers so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct FrameTurn {
    pub pending: Option<Arc<Message>>,
    pub pending_sender: Responder,
    pub latest_user_message: Option<Arc<Message>>,
    /// The message whose answer the newest of the agent's faults replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<UnansweredMessage>,
    /// Cached calls of the newest parsed message. Not part of the folded state.
    #[serde(skip)]
    pub reading: ParsedMessage,
    /// True if the user was asked in this step while none is present.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unattended: bool,
    /// True if the last answer passed on the pending message (L-059).
    pub passes: bool,
    /// The responder of the last valid answer (L-059).
    pub last_responder: Option<Responder>,
    /// A judge's decision whether the pending message ends the task; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruled_done: Option<bool>,
    /// The question of the current step as gates changed it.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub gated_question: Option<String>,
    /// The responders that the current step has passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedResponder>,
    /// The limit of steps that the agent's newest turn sets for the sub-task or the delegates that
    /// work on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_turns: Option<u32>,
}

impl Default for FrameTurn {
    fn default() -> Self {
        Self {
            pending: None,
            pending_sender: Responder::User,
            latest_user_message: None,
            unanswered: None,
            reading: ParsedMessage::default(),
            is_unattended: false,
            passes: false,
            last_responder: None,
            ruled_done: None,
            gated_question: None,
            skipped: Vec::new(),
            delegated_turns: None,
        }
    }
}

impl Frame {
    pub(in crate::room) fn turn(&self) -> &FrameTurn {
        &self.turn
    }

    /// The message that the agent is to answer. After its own fault that is still the message
    /// before: the host's words about the fault are among the agent's errors, and no question.
    pub(in crate::room) fn to_answer(&self) -> Option<&Arc<Message>> {
        let pending = self.turn.pending.as_ref()?;
        match &self.turn.unanswered {
            Some(unanswered) if unanswered.fault == pending.seq => Some(&unanswered.message),
            _ => Some(pending),
        }
    }

    /// Puts a message to be answered.
    pub(in crate::room) fn put_pending(&mut self, sender: Responder, message: Arc<Message>) {
        if message.sender == Role::User {
            self.lead_by(&message.led_by);
            self.hear_user(Arc::clone(&message));
        }
        self.turn.ruled_done = None;
        self.set_pending(Some(message), sender);
    }

    /// Makes a message pending, or none. `put_pending` also notes a user's words, and forgets a
    /// judge's ruling.
    pub(in crate::room) fn set_pending(
        &mut self,
        message: Option<Arc<Message>>,
        sender: Responder,
    ) {
        (self.turn.pending, self.turn.pending_sender) = (message, sender);
    }

    /// The pending message, for a change of its content.
    pub(in crate::room) fn pending_mut(&mut self) -> Option<&mut Arc<Message>> {
        self.turn.pending.as_mut()
    }

    /// Keeps a user message, of which the newest counts.
    pub(in crate::room) fn hear_user(&mut self, message: Arc<Message>) {
        self.turn.latest_user_message = Some(message);
    }

    /// Notes the message that the agent failed to answer, with the number of the host's message
    /// about the fault.
    pub(in crate::room) fn note_unanswered(&mut self, fault: u64, message: Option<Arc<Message>>) {
        self.turn.unanswered = message.map(|message| UnansweredMessage { fault, message });
    }

    /// Forgets what the step before has noted about its responders and its question.
    pub(in crate::room) fn begin_step(&mut self) {
        (self.turn.is_unattended, self.turn.gated_question) = (false, None);
        self.turn.skipped.clear();
    }

    /// Notes whether the user was asked while none is present.
    pub(in crate::room) fn note_absence(&mut self, is_unattended: bool) {
        self.turn.is_unattended = is_unattended;
    }

    /// Replaces the question of the current step, as gates changed it.
    pub(in crate::room) fn change_question(&mut self, text: String) {
        self.turn.gated_question = Some(text);
    }

    /// Notes that the current step passes a responder over.
    pub(in crate::room) fn pass_over(&mut self, responder: &Responder, reason: SkipReason) {
        self.turn.skipped.push(SkippedResponder { responder: responder.label(), reason });
    }

    /// Takes the responders that the current step has passed over.
    pub(in crate::room) fn take_skipped(&mut self) -> Vec<SkippedResponder> {
        std::mem::take(&mut self.turn.skipped)
    }

    /// Notes whether the answer passes on the pending message.
    pub(in crate::room) fn note_pass(&mut self, passes: bool) {
        self.turn.passes = passes;
    }

    /// Notes the responder of a valid answer.
    pub(in crate::room) fn note_responder(&mut self, responder: Responder) {
        self.turn.last_responder = Some(responder);
    }

    /// Takes a judge's decision whether the pending message ends the task.
    pub(in crate::room) fn rule_done(&mut self, is_done: Option<bool>) {
        self.turn.ruled_done = is_done;
    }

    /// Sets the limit of steps for those that work on the agent's newest turn.
    pub(in crate::room) fn limit_delegated_turns(&mut self, turns: Option<u32>) {
        self.turn.delegated_turns = turns;
    }

    /// Keeps the parsed calls of a message.
    pub(in crate::room) fn cache_reading(&mut self, seq: u64, calls: SharedCalls) {
        self.turn.reading.0 = Some((seq, calls));
    }

    /// Drops the cached parse of a message that changed under the same number.
    pub(in crate::room) fn forget_reading(&mut self) {
        self.turn.reading = ParsedMessage::default();
    }

    /// Counts the pending message for loop detection.
    pub(in crate::room) fn count_pending(&mut self, rules: &LoopRules) {
        if let Some(pending) = &self.turn.pending {
            self.loops.saw(pending, rules);
        }
    }
}

/// A message that an agent failed to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct UnansweredMessage {
    /// The number of the host's message about the fault.
    pub fault: u64,
    pub message: Arc<Message>,
}

/// The number of a message and its parsed calls. They follow from other state, so two of them
/// always compare equal.
#[derive(Clone, Debug, Default)]
pub(in crate::room) struct ParsedMessage(pub(in crate::room) Option<(u64, SharedCalls)>);

/// The parsed calls of a message. Most messages have none, which takes no memory.
#[derive(Clone, Debug, Default)]
pub(in crate::room) struct SharedCalls(Option<Arc<ParsedCalls>>);

impl From<ParsedCalls> for SharedCalls {
    fn from(calls: ParsedCalls) -> Self {
        Self((calls != ParsedCalls::NONE).then(|| Arc::new(calls)))
    }
}

impl Deref for SharedCalls {
    type Target = ParsedCalls;

    fn deref(&self) -> &ParsedCalls {
        static NONE: ParsedCalls = ParsedCalls::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl PartialEq for ParsedMessage {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
