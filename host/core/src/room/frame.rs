//! A frame: one activation of a task, with its pending message and the step that is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::Past;
use crate::ids::PluginName;
use crate::ids::{CallId, FrameId, TaskName};
use crate::message::{Entity, Message, Signal, ToolCall, ToolResult};
use crate::view::Peer;

/// Who may answer the pending message (L-020).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Responder {
    Agent,
    Llm,
    User,
    Subtask(TaskName),
}

impl Responder {
    /// The seat; none for a sub-task, which counts by its name only (L-081).
    pub(super) fn seat(&self) -> Option<Entity> {
        match self {
            Self::Agent => Some(Entity::Agent),
            Self::Llm => Some(Entity::Llm),
            Self::User => Some(Entity::User),
            Self::Subtask(_) => None,
        }
    }

    /// It answers to this name; names ignore case (L-006, and the reference's defect in L-064 done right).
    pub(super) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Subtask(task) => task.as_str().eq_ignore_ascii_case(name),
            Self::Agent | Self::Llm | Self::User => self.seat() == Entity::named(name) && self.seat().is_some(),
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
    pub(super) peers: Arc<Vec<Peer>>,
    pub(super) pending: Option<Arc<Message>>,
    pub(super) pending_sender: Responder,
    pub(super) intent: Option<Arc<Message>>,
    /// The last responder that was called was the user (L-052).
    pub(super) human_tried: bool,
    /// Steps in a row without a valid answer (L-084).
    pub(super) stalled: u32,
    /// Faults of the agent in a row.
    pub(super) faults: u32,
    pub(super) steps: u32,
    pub(super) turn_limit: Option<u32>,
    /// Calls of the agent's `step` that were answered.
    pub(super) iteration: u32,
    /// What came since the previous step returned (O-053).
    pub(super) past: Vec<Past>,
    /// None between steps.
    pub(super) attempt: Option<Attempt>,
}

/// A step under way: who is asked now, who comes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) responder: Responder,
    pub(super) rest: VecDeque<Responder>,
    pub(super) wait: Wait,
    /// The last answer that said no more than DO-NOT-KNOW (L-058).
    pub(super) do_not_know: Option<(Responder, Arc<Message>)>,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Wait {
    /// For nothing: the next responder is to be tried.
    Next,
    Call(CallId),
    Subtask(FrameId),
    /// A child that the agent delegated to (O-088), with the agent's name for it.
    Delegate(FrameId),
    Tools(ToolRound),
    /// The responder has answered; none: it had nothing to say.
    Ready(Option<Arc<Message>>),
}

/// The tool calls of one message, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolRound {
    pub(super) slots: Vec<Slot>,
    /// A tool ended the task.
    pub(super) signal: Option<Signal>,
}

impl ToolRound {
    pub(super) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| slot.result.is_some())
    }
}

/// One tool call of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) call: ToolCall,
    /// The tool plugin whose outcome asked for this call; none when the agent did.
    pub(super) asked_by: Option<PluginName>,
    /// Tools that led to this call, one after the other.
    pub(super) depth: u32,
    pub(super) result: Option<ToolResult>,
}
