//! A round: the tool calls or the action of one message, a slot for each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::is_zero;
use crate::types::action::{Action, Observation};
use crate::types::denial::Denial;
use crate::types::ids::{CallId, FrameId};
use crate::types::message::{Label, Message, ToolCall};

/// The tool calls of one message, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct ToolRound {
    pub slots: Vec<Slot>,
    /// The message that holds the calls.
    pub message: Arc<Message>,
    /// Bytes of the answers so far.
    weight: u64,
    /// Those of them that count against the run's history: none while the round is worked on.
    counted: u64,
}

impl ToolRound {
    pub(in crate::room) fn new(slots: Vec<Slot>, message: Arc<Message>) -> Self {
        let weight = slots.iter().filter_map(Slot::answer).map(SlotAnswer::weight).sum();
        Self { slots, message, weight, counted: 0 }
    }

    /// The bytes of the answers so far.
    pub(in crate::room) fn weight(&self) -> u64 {
        self.weight
    }

    /// The bytes of the answers that count against the run's history.
    pub(in crate::room) fn counted(&self) -> u64 {
        self.counted
    }

    /// Begins work on a slot. A child that it starts gets a share of the history's limit as if the
    /// round had no answers yet.
    pub(in crate::room) fn begin_work(&mut self) {
        self.counted = 0;
    }

    /// Ends work on the round, which waits for its other slots.
    pub(in crate::room) fn rest(&mut self) {
        self.counted = self.weight;
    }

    /// Adds a slot behind the others.
    pub(in crate::room) fn push(&mut self, slot: Slot) {
        // The answer of a nested call goes to its tool, and not into the round's message.
        if slot.nested.is_none() {
            self.weight += slot.answer().map_or(0, SlotAnswer::weight);
        }
        self.slots.push(slot);
    }

    /// Answers a slot. Returns false if there is no such slot.
    #[must_use]
    pub(in crate::room) fn answer(&mut self, index: usize, answer: SlotAnswer) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        if slot.nested.is_none() {
            self.weight += answer.weight();
        }
        slot.state = SlotState::Answered(Box::new(answer));
        true
    }

    /// Whether the message that holds the calls derives from external text (L-172).
    pub(in crate::room) fn is_untrusted(&self) -> bool {
        self.message.labels.contains(&Label::Untrusted)
    }

    /// Whether all slots are answered.
    pub(in crate::room) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| !slot.is_open())
    }
}

/// A tool call or an action of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Slot {
    /// The call as it stands in the message.
    pub call: Arc<ToolCall>,
    /// The call that is carried out: the original, or one that a tool asked for in its place
    /// (L-121). Its `led_by` names all that led to it.
    pub now: Arc<ToolCall>,
    /// Number of tools that led to this call, one after the other.
    pub depth: u32,
    /// The action, if the slot is not a tool call; `call` then names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The request that it belongs to, if a running tool made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<Nested>,
    /// Number of nested calls that its tool has made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nested_calls: u32,
    pub state: SlotState,
}

/// The request of a running tool that a call belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Nested {
    pub call: CallId,
    pub ordinal: u32,
    /// The refusal, if the plugin may not make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<Denial>,
    /// Whether the tool got the answer, or is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_told: bool,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum SlotState {
    /// It has not begun.
    Ready,
    /// A delegate that waits until it may run beside the others.
    Queued,
    /// It waits for an analyzer, an approver or more budget, and has started nothing.
    Confirming,
    /// A plugin works on it.
    Calling,
    /// A child in the run works on it (O-088).
    Delegated { child: FrameId },
    /// Gates check its text or its delegation, or a background task works on it.
    InBackground,
    /// Its answer waits for those of the other slots.
    Answered(Box<SlotAnswer>),
}

/// The answer of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct SlotAnswer {
    #[serde(rename = "said")]
    pub outcome: CallOutcome,
    /// The observation for the agent (O-053), if it is more than the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observation: Option<Observation>,
}

impl SlotAnswer {
    fn weight(&self) -> u64 {
        self.outcome.message.as_ref().map_or(0, |message| message.weight() as u64)
    }
}

impl From<CallOutcome> for SlotAnswer {
    fn from(outcome: CallOutcome) -> Self {
        Self { outcome, observation: None }
    }
}

impl Slot {
    /// Returns a call that has not begun.
    pub(in crate::room) fn new(call: ToolCall) -> Self {
        let (call, state) = (Arc::new(call), SlotState::Ready);
        Self {
            now: Arc::clone(&call),
            call,
            depth: 0,
            action: None,
            nested: None,
            nested_calls: 0,
            state,
        }
    }

    /// Returns an action that has not begun. Its name and `arguments` are the fixed form for rules
    /// and for people.
    pub(in crate::room) fn of_action(action: Action, arguments: impl Into<Arc<Value>>) -> Self {
        let call = ToolCall::new(action.name(), arguments);
        Self { action: Some(action), ..Self::new(call) }
    }

    /// Returns the slot with an answer, if there is one.
    pub(in crate::room) fn answered(mut self, answer: Option<impl Into<SlotAnswer>>) -> Self {
        if let Some(answer) = answer {
            self.state = SlotState::Answered(Box::new(answer.into()));
        }
        self
    }

    /// The answer; `None` if the slot is open.
    pub(in crate::room) fn answer(&self) -> Option<&SlotAnswer> {
        match &self.state {
            SlotState::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Whether it has no answer yet.
    pub(in crate::room) fn is_open(&self) -> bool {
        self.answer().is_none()
    }

    /// Replaces its action. The calls of an action repeat its arguments for rules and for people.
    pub(in crate::room) fn set_action(&mut self, action: Action, arguments: Arc<Value>) {
        Arc::make_mut(&mut self.now).arguments.clone_from(&arguments);
        Arc::make_mut(&mut self.call).arguments = arguments;
        self.action = Some(action);
    }

    /// Whether a plugin other than its agent requests the call that is carried out.
    pub(in crate::room) fn is_requested(&self) -> bool {
        self.now.requester().is_some()
    }

    /// The child that works on it.
    pub(in crate::room) fn child(&self) -> Option<FrameId> {
        match self.state {
            SlotState::Delegated { child } => Some(child),
            _ => None,
        }
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct CallOutcome {
    /// The message of the agent role if it were the only call; `None` if there is no result
    /// (L-117).
    pub message: Option<Box<Message>>,
    pub is_error: bool,
    /// True if the text is a tool's, a worker's or a refusal: the result of a native call, and data
    /// to the agent.
    pub is_result: bool,
}
