//! A frame: one activation of a task, with its pending message and its current step.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::acting::Acting;
use super::closing::Closing;
use super::frame_state::{Attempt, FrameState, FrameWait, Transition};
use super::is_zero;
use super::loop_detection::LoopDetector;
use super::past_actions::PastActions;
use super::rounds::ToolRound;
use super::stuck_watch::StuckWatch;
use crate::protocol::event::RoleCall;
use crate::protocol::notice::{SkipReason, SkippedResponder};
use crate::setup::{ResponderName, Setup, TaskSetup};
use crate::tool_calls::parse::ParsedCalls;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Message, Role};
use crate::types::view::Peer;

/// A responder: a role or a sub-task that may answer the pending message (L-020).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) enum Responder {
    Agent,
    Llm,
    User,
    Subtask(TaskName),
    /// The host itself, which is no role.
    System,
}

impl Responder {
    /// Its name in a config; `None` for the host.
    pub(in crate::room) fn name(&self) -> Option<ResponderName> {
        match self {
            Self::Subtask(task) => Some(ResponderName::Subtask(task.clone())),
            other => other.role().map(ResponderName::Role),
        }
    }

    /// Its role; `None` for a sub-task, which counts by name only (L-081), and for the host.
    pub(in crate::room) fn role(&self) -> Option<Role> {
        match self {
            Self::Agent => Some(Role::Agent),
            Self::Llm => Some(Role::Llm),
            Self::User => Some(Role::User),
            Self::Subtask(_) | Self::System => None,
        }
    }

    /// The responder that a message's sender is.
    pub(in crate::room) fn of(role: Role) -> Self {
        match role {
            Role::Llm => Self::Llm,
            Role::Agent => Self::Agent,
            Role::User => Self::User,
            Role::System => Self::System,
        }
    }

    /// The label for people and traces.
    pub(in crate::room) fn label(&self) -> Cow<'static, str> {
        match self {
            Self::Subtask(task) => Cow::Owned(task.to_string()),
            Self::System => Cow::Borrowed(Role::System.as_str()),
            Self::Agent | Self::Llm | Self::User => {
                Cow::Borrowed(self.role().map_or("", Role::as_str))
            }
        }
    }

    /// Whether it answers to this name, in any case of letters (L-006, and the reference's defect
    /// in L-064 done right).
    pub(in crate::room) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Subtask(task) => task.as_str().eq_ignore_ascii_case(name),
            Self::Agent | Self::Llm | Self::User => {
                self.role() == Role::from_name(name) && self.role().is_some()
            }
            Self::System => false,
        }
    }
}

impl Frame {
    /// Notes that the current step passes a responder over.
    pub(in crate::room) fn pass_over(&mut self, responder: &Responder, reason: SkipReason) {
        self.skipped.push(SkippedResponder { responder: responder.label(), reason });
    }
}

/// The setup of a frame's task. A step reads it many times, and a search by name costs more than
/// most of those reads.
#[derive(Clone, Debug, Default)]
pub(in crate::room) struct CachedTaskSetup(Option<(Arc<Setup>, Arc<TaskSetup>)>);

impl CachedTaskSetup {
    pub(in crate::room) fn new(setup: &Arc<Setup>, task: &TaskName) -> Self {
        Self(setup.tasks.get(task).map(|of_task| (Arc::clone(setup), Arc::clone(of_task))))
    }

    /// The setup of the task in `setup`, which may have replaced the cached one.
    pub(super) fn of<'r>(
        &'r self,
        setup: &'r Arc<Setup>,
        task: &TaskName,
    ) -> Option<&'r Arc<TaskSetup>> {
        match &self.0 {
            Some((of, of_task)) if Arc::ptr_eq(of, setup) => Some(of_task),
            _ => setup.tasks.get(task),
        }
    }
}

/// A cache makes no difference between two frames.
impl PartialEq for CachedTaskSetup {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A message that an agent failed to answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct UnansweredMessage {
    /// The number of the host's message about the fault.
    pub(in crate::room) fault: u64,
    pub(in crate::room) message: Arc<Message>,
}

/// One activation of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Frame {
    pub(in crate::room) id: FrameId,
    pub(in crate::room) task: TaskName,
    /// Not part of the folded state.
    #[serde(skip)]
    pub(in crate::room) task_setup: CachedTaskSetup,
    pub(in crate::room) caller: Option<FrameId>,
    /// The tools that led to the caller's delegation, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::room) led_by: Vec<PluginName>,
    pub(in crate::room) inputs: Arc<Value>,
    /// The system text of this activation, if it differs from the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) system: Option<Arc<str>>,
    pub(in crate::room) peers: Arc<Vec<Peer>>,
    pub(in crate::room) pending: Option<Arc<Message>>,
    pub(in crate::room) pending_sender: Responder,
    pub(in crate::room) latest_user_message: Option<Arc<Message>>,
    /// Consecutive steps without a valid answer (L-084).
    pub(in crate::room) stalled: u32,
    /// Consecutive faults of the agent.
    pub(in crate::room) faults: u32,
    /// The message whose answer the newest of these faults replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) unanswered: Option<UnansweredMessage>,
    pub(in crate::room) steps: u32,
    pub(in crate::room) turn_limit: Option<u32>,
    /// Cached calls of the newest parsed message. Not part of the folded state.
    #[serde(skip)]
    pub(in crate::room) reading: ParsedMessage,
    /// True if the user was asked in this step while none is present.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::room) is_unattended: bool,
    /// True if the last answer passed on the pending message (L-059).
    pub(in crate::room) passes: bool,
    /// The responder of the last valid answer (L-059).
    pub(in crate::room) last_responder: Option<Responder>,
    pub(in crate::room) loops: LoopDetector,
    /// The newest answers, oldest first, as many as the longest done sequence has events (L-093).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(in crate::room) chain: VecDeque<SequenceAnswer>,
    /// Number of messages in the agent's history when the activation began (L-050l).
    pub(in crate::room) history_start: usize,
    /// The only role to ask, outside the step loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) only: Option<RoleCall>,
    /// Number of answered calls of the agent's `step`.
    pub(in crate::room) iteration: u32,
    /// Events since the previous step returned (O-053).
    #[serde(rename = "past")]
    pub(in crate::room) past_actions: PastActions,
    /// The state of an acting agent.
    #[serde(default, skip_serializing_if = "super::acting::Acting::is_idle")]
    pub(in crate::room) acting: Acting,
    /// The stuck detector (O-098…O-108).
    #[serde(default, skip_serializing_if = "super::stuck_watch::StuckWatch::is_new")]
    pub(in crate::room) stuck_watch: StuckWatch,
    /// Number of automatic answers that led to the current work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(in crate::room) chain_depth: u32,
    /// A judge's decision whether the pending message ends the task; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) ruled_done: Option<bool>,
    /// The question of the current step as gates changed it.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(in crate::room) gated_question: Option<String>,
    /// The responders that the current step has passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::room) skipped: Vec<SkippedResponder>,
    /// The limit of steps that the agent's newest turn sets for the sub-task or the delegates that
    /// work on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::room) delegated_turns: Option<u32>,
    pub(in crate::room) state: FrameState,
}

impl Frame {
    pub(in crate::room) fn state(&self) -> &FrameState {
        &self.state
    }

    /// The step in progress; `None` between steps, and while something holds the activation.
    pub(in crate::room) fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            FrameState::Asking(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// What its step waits for.
    pub(in crate::room) fn wait(&self) -> Option<&FrameWait> {
        self.attempt().map(|attempt| &attempt.wait)
    }

    /// The round that its step waits for.
    pub(in crate::room) fn round_mut(&mut self) -> Option<&mut ToolRound> {
        match &mut self.state {
            FrameState::Asking(Attempt { wait: FrameWait::Tools(round), .. }) => Some(round),
            _ => None,
        }
    }

    /// The end that a judge and gates decide on, with its result.
    pub(in crate::room) fn closing(&self) -> Option<&Closing> {
        match &self.state {
            FrameState::Closing(closing) => Some(closing),
            _ => None,
        }
    }

    pub(in crate::room) fn closing_mut(&mut self) -> Option<&mut Closing> {
        match &mut self.state {
            FrameState::Closing(closing) => Some(closing),
            _ => None,
        }
    }

    /// Takes the step in progress, for the loop that carries it on; the frame is then `Idle`. What
    /// holds the activation stays.
    pub(in crate::room) fn take_attempt(&mut self) -> Option<Attempt> {
        match std::mem::take(&mut self.state) {
            FrameState::Asking(attempt) => Some(attempt),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Gives up the step in progress. What holds the activation stays.
    pub(in crate::room) fn abandon_step(&mut self) {
        drop(self.take_attempt());
    }

    /// Gives up its step, and what holds it.
    pub(in crate::room) fn stop_turn(&mut self) {
        self.state = FrameState::Idle;
    }

    /// Ends it once a judge and gates have decided on its result.
    pub(in crate::room) fn close(&mut self, closing: Closing) {
        self.state = std::mem::take(&mut self.state).close(closing);
    }

    /// Leads it to its next state. Returns false, and changes nothing, if that may not follow.
    #[must_use]
    pub(in crate::room) fn follow(
        &mut self,
        transition: impl FnOnce(FrameState) -> Transition,
    ) -> bool {
        let (state, follows) = match transition(std::mem::take(&mut self.state)) {
            Ok(next) => (next, true),
            Err(unchanged) => (unchanged, false),
        };
        self.state = state;
        follows
    }

    /// The message that the agent is to answer. After its own fault that is still the message
    /// before: the host's words about the fault are among the agent's errors, and no question.
    pub(in crate::room) fn to_answer(&self) -> Option<&Arc<Message>> {
        let pending = self.pending.as_ref()?;
        match &self.unanswered {
            Some(unanswered) if unanswered.fault == pending.seq => Some(&unanswered.message),
            _ => Some(pending),
        }
    }
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

/// An answer, as done sequences see it (L-094).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct SequenceAnswer {
    pub(in crate::room) message: Arc<Message>,
    /// Names of the calls in it that the agent knows.
    pub(in crate::room) tools: Vec<String>,
}
