//! A frame: one activation of a task, with its pending message and the step that is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::acting::Acting;
use super::loop_detection::LoopDetector;
use super::stuck_detection::StuckWatch;
use crate::protocol::event::SeatCall;
use crate::tool_calls::parse::ParsedCalls;
use crate::types::action::{Action, Observation, PastAction};
use crate::types::ids::PluginName;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::message::{Entity, Message, ToolCall};
use crate::types::view::Peer;

/// Who may answer the pending message (L-020).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Responder {
    Agent,
    Llm,
    User,
    Subtask(TaskName),
    /// Nobody's seat: what the host says for itself.
    System,
}

impl Responder {
    /// The seat; none for a sub-task, which counts by its name only (L-081).
    pub(super) fn seat(&self) -> Option<Entity> {
        match self {
            Self::Agent => Some(Entity::Agent),
            Self::Llm => Some(Entity::Llm),
            Self::User => Some(Entity::User),
            Self::Subtask(_) | Self::System => None,
        }
    }

    /// The one that a message's sender is.
    pub(super) fn of(entity: Entity) -> Self {
        match entity {
            Entity::Llm => Self::Llm,
            Entity::Agent => Self::Agent,
            Entity::User => Self::User,
            Entity::System => Self::System,
        }
    }

    /// For people and traces.
    pub(super) fn label(&self) -> &str {
        match self {
            Self::Subtask(task) => task.as_str(),
            Self::System => Entity::System.as_str(),
            Self::Agent | Self::Llm | Self::User => self.seat().map_or("", Entity::as_str),
        }
    }

    /// It answers to this name; names ignore case (L-006, and the reference's defect in L-064 done
    /// right).
    pub(super) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Subtask(task) => task.as_str().eq_ignore_ascii_case(name),
            Self::Agent | Self::Llm | Self::User => {
                self.seat() == Entity::named(name) && self.seat().is_some()
            }
            Self::System => false,
        }
    }
}

/// One activation of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) id: FrameId,
    pub(super) task: TaskName,
    pub(super) caller: Option<FrameId>,
    pub(super) inputs: Arc<Value>,
    /// The system text of this activation, where it is not the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<Arc<str>>,
    pub(super) peers: Arc<Vec<Peer>>,
    pub(super) pending: Option<Arc<Message>>,
    pub(super) pending_sender: Responder,
    pub(super) intent: Option<Arc<Message>>,
    /// Steps in a row without a valid answer (L-084).
    pub(super) stalled: u32,
    /// Faults of the agent in a row.
    pub(super) faults: u32,
    pub(super) steps: u32,
    pub(super) turn_limit: Option<u32>,
    /// The newest message that was read, as this task's agent reads it. Not part of what a fold
    /// must give back.
    #[serde(skip)]
    pub(super) reading: ParsedMessage,
    /// The user was asked in this step, and there is none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_unattended: bool,
    /// The last answer passed on what was pending (L-059).
    pub(super) passes: bool,
    /// Who gave the last valid answer (L-059).
    pub(super) last_responder: Option<Responder>,
    pub(super) circles: LoopDetector,
    /// The newest answers, oldest first, as many as the longest done sequence has events (L-093).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) chain: VecDeque<SequenceAnswer>,
    /// Messages in the agent's history when the activation began (L-050l).
    pub(super) history_start: usize,
    /// Only this seat is asked, without a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only: Option<SeatCall>,
    /// Calls of the agent's `step` that were answered.
    pub(super) iteration: u32,
    /// What came since the previous step returned (O-053).
    pub(super) past: Vec<PastAction>,
    /// What an agent that acts is about.
    #[serde(default, skip_serializing_if = "super::acting::Acting::is_idle")]
    pub(super) acting: Acting,
    /// Whether it does the same again and again (O-098…O-108).
    #[serde(default, skip_serializing_if = "super::stuck_detection::StuckWatch::is_new")]
    pub(super) astray: StuckWatch,
    /// How many automatic answers led to what it is at work on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) chain_depth: u32,
    /// None between steps.
    pub(super) attempt: Option<Attempt>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The number of a message, and what was read in it. Follows from the rest, so two of them never
/// differ.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedMessage(pub(super) Option<(u64, Arc<ParsedCalls>)>);

impl PartialEq for ParsedMessage {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An answer, as done sequences see it (L-094).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SequenceAnswer {
    pub(super) message: Arc<Message>,
    /// Names of all calls in it that the agent knows.
    pub(super) tools: Vec<String>,
}

/// A step under way: who is asked now, who comes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) responder: Responder,
    pub(super) rest: VecDeque<Responder>,
    pub(super) wait: FrameWait,
    /// The last answer that said no more than DO-NOT-KNOW (L-058).
    pub(super) do_not_know: Option<(Responder, Arc<Message>)>,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FrameWait {
    /// For nothing: the next responder is to be tried.
    Next,
    Call(CallId),
    Subtask(FrameId),
    Tools(ToolRound),
    /// For more of a budget: the responder is to be asked then.
    More,
    /// The responder has answered; none: it had nothing to say.
    Ready(Option<Arc<Message>>),
}

/// The tool calls of one message, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolRound {
    pub(super) slots: Vec<Slot>,
    /// The message that the calls stand in.
    pub(super) message: Arc<Message>,
    /// Bytes of the answers so far.
    #[serde(default)]
    weight: u64,
}

impl ToolRound {
    pub(super) fn new(slots: Vec<Slot>, message: Arc<Message>) -> Self {
        Self { slots, message, weight: 0 }
    }

    /// Returns the bytes of the answers that [`Self::weigh`] has counted.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// Counts the answers that came since it was called last.
    pub(super) fn weigh(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_weighed) {
            let Some(said) = &slot.said else { continue };
            slot.is_weighed = true;
            let answer = said.message.as_ref().map_or(0, |message| message.weight());
            self.weight = self.weight.saturating_add(answer as u64);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| slot.said.is_some())
    }
}

/// One tool call of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// As it stands in the message.
    pub(super) call: ToolCall,
    /// What is carried out now: the call, or one that a tool asked for in its place (L-121).
    pub(super) now: ToolCall,
    /// The tool plugin whose outcome asked for it; none when the agent did.
    pub(super) asked_by: Option<PluginName>,
    /// Tools that led to this call, one after the other.
    pub(super) depth: u32,
    pub(super) said: Option<CallOutcome>,
    /// What the agent wants done, where it is an action and no call of a tool; `call` then names
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<Action>,
    /// What the agent reads of it (O-053), where that is more than the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) observation: Option<Observation>,
    /// The child that works on it (O-088).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) child: Option<FrameId>,
    /// It is a delegation that waits for its turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) queued: bool,
    /// The round has counted its answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_weighed: bool,
}

impl Slot {
    /// A call that has not begun.
    pub(super) fn new(call: ToolCall, asked_by: Option<PluginName>) -> Self {
        Self {
            now: call.clone(),
            call,
            asked_by,
            depth: 0,
            said: None,
            action: None,
            observation: None,
            child: None,
            queued: false,
            is_weighed: false,
        }
    }

    /// An action that has not begun; `name` and `arguments` are its fixed form, for rules and for
    /// people.
    pub(super) fn of_action(action: Action, arguments: Value) -> Self {
        let call = ToolCall::new(action.name(), arguments);
        Self { action: Some(action), ..Self::new(call, None) }
    }
}

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallOutcome {
    /// As the agent seat would say it alone; none: no result (L-117).
    pub(super) message: Option<Box<Message>>,
    pub(super) is_error: bool,
    /// The text is a tool's, a worker's, or a refusal: what a native call waits for, and data to
    /// the agent.
    pub(super) is_result: bool,
}
