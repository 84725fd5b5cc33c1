//! A frame: one activation of a task, with its pending message and its current step.

mod past_actions;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smallvec::SmallVec;

use super::RoomContext;
use super::acting::Acting;
use super::judging::RuledAnswer;
use super::loop_detection::LoopDetector;
use super::passages::FrameHold;
use super::stuck_detection::StuckWatch;
use crate::protocol::event::RoleCall;
use crate::protocol::notice::{SkipReason, SkippedResponder};
use crate::setup::{ResponderName, Setup, TaskSetup};
use crate::tool_calls::parse::ParsedCalls;
use crate::types::action::{Action, Observation};
use crate::types::denial::Denial;
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, Role, ToolCall};
use crate::types::view::Peer;

pub(super) use past_actions::PastActions;

/// A responder: a role or a sub-task that may answer the pending message (L-020).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Responder {
    Agent,
    Llm,
    User,
    Subtask(TaskName),
    /// The host itself, which is no role.
    System,
}

impl Responder {
    /// Its name in a config; `None` for the host.
    pub(super) fn name(&self) -> Option<ResponderName> {
        match self {
            Self::Subtask(task) => Some(ResponderName::Subtask(task.clone())),
            other => other.role().map(ResponderName::Role),
        }
    }

    /// Its role; `None` for a sub-task, which counts by name only (L-081), and for the host.
    pub(super) fn role(&self) -> Option<Role> {
        match self {
            Self::Agent => Some(Role::Agent),
            Self::Llm => Some(Role::Llm),
            Self::User => Some(Role::User),
            Self::Subtask(_) | Self::System => None,
        }
    }

    /// The responder that a message's sender is.
    pub(super) fn of(role: Role) -> Self {
        match role {
            Role::Llm => Self::Llm,
            Role::Agent => Self::Agent,
            Role::User => Self::User,
            Role::System => Self::System,
        }
    }

    /// The label for people and traces.
    pub(super) fn label(&self) -> Cow<'static, str> {
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
    pub(super) fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Subtask(task) => task.as_str().eq_ignore_ascii_case(name),
            Self::Agent | Self::Llm | Self::User => {
                self.role() == Role::from_name(name) && self.role().is_some()
            }
            Self::System => false,
        }
    }
}

/// The activations of tasks, and those that are ready to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Frames {
    /// Boxed, because a node of the map has room for eleven.
    frames: BTreeMap<FrameId, Box<Frame>>,
    /// Frames that are ready to run; empty between events.
    pub(super) runnable: VecDeque<FrameId>,
}

impl Frame {
    /// Notes that the current step passes a responder over.
    pub(super) fn pass_over(&mut self, responder: &Responder, reason: SkipReason) {
        self.skipped.push(SkippedResponder { responder: responder.label(), reason });
    }
}

impl Frames {
    /// The number of delegations above a frame, in this room and its parents.
    pub(super) fn level_of(&self, cx: &RoomContext, frame: &Frame) -> u32 {
        let above = std::iter::successors(frame.caller, |caller| {
            self.get(caller).and_then(|frame| frame.caller)
        });
        cx.opening.depth.saturating_add(u32::try_from(above.count()).unwrap_or(u32::MAX))
    }

    pub(super) fn task_of<'r>(
        &'r self,
        cx: &'r RoomContext,
        frame: FrameId,
    ) -> Option<(&'r Frame, &'r Arc<TaskSetup>)> {
        let frame = self.get(&frame)?;
        Some((frame, frame.task_setup.of(&cx.setup, &frame.task)?))
    }

    pub(super) fn get(&self, id: &FrameId) -> Option<&Frame> {
        self.frames.get(id).map(|frame| &**frame)
    }

    pub(super) fn get_mut(&mut self, id: &FrameId) -> Option<&mut Frame> {
        self.frames.get_mut(id).map(|frame| &mut **frame)
    }

    pub(super) fn contains_key(&self, id: &FrameId) -> bool {
        self.frames.contains_key(id)
    }

    pub(super) fn insert(&mut self, id: FrameId, frame: Frame) {
        self.frames.insert(id, Box::new(frame));
    }

    pub(super) fn remove(&mut self, id: &FrameId) -> Option<Frame> {
        self.frames.remove(id).map(|frame| *frame)
    }

    /// Drops all frames.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.runnable.clear();
    }

    /// The ids of the frames, oldest first.
    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &FrameId> {
        self.frames.keys()
    }

    /// The frames, oldest first.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.values().map(|frame| &**frame)
    }

    /// Returns the frames, oldest first.
    pub(super) fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Frame> {
        self.frames.values_mut().map(|frame| &mut **frame)
    }

    /// The round that a frame waits for; `None` if it waits for none.
    pub(super) fn round(&self, id: FrameId) -> Option<&ToolRound> {
        match &self.get(&id)?.attempt.as_ref()?.wait {
            FrameWait::Tools(round) => Some(round),
            _ => None,
        }
    }

    /// A slot of the round that a frame waits for.
    pub(super) fn slot(&self, id: FrameId, slot: usize) -> Option<&Slot> {
        self.round(id)?.slots.get(slot)
    }
}

/// The setup of a frame's task. A step reads it many times, and a search by name costs more than
/// most of those reads.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedTaskSetup(Option<(Arc<Setup>, Arc<TaskSetup>)>);

impl CachedTaskSetup {
    pub(super) fn new(setup: &Arc<Setup>, task: &TaskName) -> Self {
        Self(setup.tasks.get(task).map(|of_task| (Arc::clone(setup), Arc::clone(of_task))))
    }

    /// The setup of the task in `setup`, which may have replaced the cached one.
    fn of<'r>(&'r self, setup: &'r Arc<Setup>, task: &TaskName) -> Option<&'r Arc<TaskSetup>> {
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
pub(super) struct UnansweredMessage {
    /// The number of the host's message about the fault.
    pub(super) fault: u64,
    pub(super) message: Arc<Message>,
}

/// One activation of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) id: FrameId,
    pub(super) task: TaskName,
    /// Not part of the folded state.
    #[serde(skip)]
    pub(super) task_setup: CachedTaskSetup,
    pub(super) caller: Option<FrameId>,
    /// The tools that led to the caller's delegation, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) led_by: Vec<PluginName>,
    pub(super) inputs: Arc<Value>,
    /// The system text of this activation, if it differs from the task's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<Arc<str>>,
    pub(super) peers: Arc<Vec<Peer>>,
    pub(super) pending: Option<Arc<Message>>,
    pub(super) pending_sender: Responder,
    pub(super) latest_user_message: Option<Arc<Message>>,
    /// Consecutive steps without a valid answer (L-084).
    pub(super) stalled: u32,
    /// Consecutive faults of the agent.
    pub(super) faults: u32,
    /// The message whose answer the newest of these faults replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unanswered: Option<UnansweredMessage>,
    pub(super) steps: u32,
    pub(super) turn_limit: Option<u32>,
    /// Cached calls of the newest parsed message. Not part of the folded state.
    #[serde(skip)]
    pub(super) reading: ParsedMessage,
    /// True if the user was asked in this step while none is present.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_unattended: bool,
    /// True if the last answer passed on the pending message (L-059).
    pub(super) passes: bool,
    /// The responder of the last valid answer (L-059).
    pub(super) last_responder: Option<Responder>,
    pub(super) loops: LoopDetector,
    /// The newest answers, oldest first, as many as the longest done sequence has events (L-093).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub(super) chain: VecDeque<SequenceAnswer>,
    /// Number of messages in the agent's history when the activation began (L-050l).
    pub(super) history_start: usize,
    /// The only role to ask, outside the step loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) only: Option<RoleCall>,
    /// Number of answered calls of the agent's `step`.
    pub(super) iteration: u32,
    /// Events since the previous step returned (O-053).
    #[serde(rename = "past")]
    pub(super) past_actions: PastActions,
    /// The state of an acting agent.
    #[serde(default, skip_serializing_if = "super::acting::Acting::is_idle")]
    pub(super) acting: Acting,
    /// The stuck detector (O-098…O-108).
    #[serde(default, skip_serializing_if = "super::stuck_detection::StuckWatch::is_new")]
    pub(super) stuck_watch: StuckWatch,
    /// Number of automatic answers that led to the current work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) chain_depth: u32,
    /// A judge's decision whether the pending message ends the task; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ruled_done: Option<bool>,
    /// The question of the current step as gates changed it.
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(super) gated_question: Option<String>,
    /// The reason why the step loop leaves it alone, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<FrameHold>,
    /// The responders that the current step has passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<SkippedResponder>,
    /// The limit of steps that the agent's newest turn sets for the sub-task or the delegates that
    /// work on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) delegated_turns: Option<u32>,
    /// The current step; `None` between steps.
    pub(super) attempt: Option<Attempt>,
}

impl Frame {
    /// The message that the agent is to answer. After its own fault that is still the message
    /// before: the host's words about the fault are among the agent's errors, and no question.
    pub(super) fn to_answer(&self) -> Option<&Arc<Message>> {
        let pending = self.pending.as_ref()?;
        match &self.unanswered {
            Some(unanswered) if unanswered.fault == pending.seq => Some(&unanswered.message),
            _ => Some(pending),
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The number of a message and its parsed calls. They follow from other state, so two of them
/// always compare equal.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedMessage(pub(super) Option<(u64, SharedCalls)>);

/// The parsed calls of a message. Most messages have none, which takes no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedCalls(Option<Arc<ParsedCalls>>);

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
pub(super) struct SequenceAnswer {
    pub(super) message: Arc<Message>,
    /// Names of the calls in it that the agent knows.
    pub(super) tools: Vec<String>,
}

/// Responders in the order in which they are tried. A task without sub-tasks has at most three.
pub(super) type Responders = SmallVec<[Responder; 3]>;

/// A step in progress: the current responder, and those to try next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) responder: Responder,
    pub(super) rest: Responders,
    pub(super) wait: FrameWait,
    /// The last answer that said only DO-NOT-KNOW (L-058).
    pub(super) do_not_know: Option<(Responder, Arc<Message>)>,
}

/// The event that a step waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FrameWait {
    /// Nothing: the next responder is to be tried.
    Next,
    /// The answer to a call of a plugin, a model or the user.
    Call(CallId),
    /// The result of a sub-task.
    Subtask(FrameId),
    /// The tool calls of a message.
    Tools(ToolRound),
    /// More budget; then the responder is asked.
    More,
    /// A judge's ruling on an answer.
    Judge(Box<RuledAnswer>),
    /// The gates of its question to the user.
    Gates,
    /// The responder's answer; `None` if it had nothing to say.
    Ready(Option<Arc<Message>>),
}

/// The tool calls of one message, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolRound {
    pub(super) slots: Vec<Slot>,
    /// The message that holds the calls.
    pub(super) message: Arc<Message>,
    /// Bytes of the answers so far.
    weight: u64,
    /// Those of them that count against the run's history: none while the round is worked on.
    counted: u64,
}

impl ToolRound {
    pub(super) fn new(slots: Vec<Slot>, message: Arc<Message>) -> Self {
        let weight = slots.iter().filter_map(Slot::answer).map(SlotAnswer::weight).sum();
        Self { slots, message, weight, counted: 0 }
    }

    /// The bytes of the answers so far.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// The bytes of the answers that count against the run's history.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Begins work on a slot. A child that it starts gets a share of the history's limit as if the
    /// round had no answers yet.
    pub(super) fn begin_work(&mut self) {
        self.counted = 0;
    }

    /// Ends work on the round, which waits for its other slots.
    pub(super) fn rest(&mut self) {
        self.counted = self.weight;
    }

    /// Adds a slot behind the others.
    pub(super) fn push(&mut self, slot: Slot) {
        // The answer of a nested call goes to its tool, and not into the round's message.
        if slot.nested.is_none() {
            self.weight += slot.answer().map_or(0, SlotAnswer::weight);
        }
        self.slots.push(slot);
    }

    /// Answers a slot. Returns false if there is no such slot.
    #[must_use]
    pub(super) fn answer(&mut self, index: usize, answer: SlotAnswer) -> bool {
        let Some(slot) = self.slots.get_mut(index) else { return false };
        if slot.nested.is_none() {
            self.weight += answer.weight();
        }
        slot.state = SlotState::Answered(Box::new(answer));
        true
    }

    /// Whether the message that holds the calls derives from external text (L-172).
    pub(super) fn is_untrusted(&self) -> bool {
        self.message.labels.contains(&Label::Untrusted)
    }

    /// Whether all slots are answered.
    pub(super) fn is_complete(&self) -> bool {
        self.slots.iter().all(|slot| !slot.is_open())
    }
}

/// A tool call or an action of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The call as it stands in the message.
    pub(super) call: Arc<ToolCall>,
    /// The call that is carried out: the original, or one that a tool asked for in its place
    /// (L-121). Its `led_by` names all that led to it.
    pub(super) now: Arc<ToolCall>,
    /// Number of tools that led to this call, one after the other.
    pub(super) depth: u32,
    /// The action, if the slot is not a tool call; `call` then names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<Action>,
    /// The request that it belongs to, if a running tool made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nested: Option<Nested>,
    /// Number of nested calls that its tool has made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) nested_calls: u32,
    pub(super) state: SlotState,
}

/// The request of a running tool that a call belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Nested {
    pub(super) call: CallId,
    pub(super) ordinal: u32,
    /// The refusal, if the plugin may not make the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) denial: Option<Denial>,
    /// Whether the tool got the answer, or is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_told: bool,
}

/// The state of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum SlotState {
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
pub(super) struct SlotAnswer {
    #[serde(rename = "said")]
    pub(super) outcome: CallOutcome,
    /// The observation for the agent (O-053), if it is more than the result of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) observation: Option<Observation>,
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
    pub(super) fn new(call: ToolCall) -> Self {
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
    pub(super) fn of_action(action: Action, arguments: impl Into<Arc<Value>>) -> Self {
        let call = ToolCall::new(action.name(), arguments);
        Self { action: Some(action), ..Self::new(call) }
    }

    /// Returns the slot with an answer, if there is one.
    pub(super) fn answered(mut self, answer: Option<impl Into<SlotAnswer>>) -> Self {
        if let Some(answer) = answer {
            self.state = SlotState::Answered(Box::new(answer.into()));
        }
        self
    }

    /// The answer; `None` if the slot is open.
    pub(super) fn answer(&self) -> Option<&SlotAnswer> {
        match &self.state {
            SlotState::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// Whether it has no answer yet.
    pub(super) fn is_open(&self) -> bool {
        self.answer().is_none()
    }

    /// Replaces its action. The calls of an action repeat its arguments for rules and for people.
    pub(super) fn set_action(&mut self, action: Action, arguments: Arc<Value>) {
        Arc::make_mut(&mut self.now).arguments.clone_from(&arguments);
        Arc::make_mut(&mut self.call).arguments = arguments;
        self.action = Some(action);
    }

    /// Whether a plugin other than its agent requests the call that is carried out.
    pub(super) fn is_requested(&self) -> bool {
        self.now.requester().is_some()
    }

    /// The child that works on it.
    pub(super) fn child(&self) -> Option<FrameId> {
        match self.state {
            SlotState::Delegated { child } => Some(child),
            _ => None,
        }
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct CallOutcome {
    /// The message of the agent role if it were the only call; `None` if there is no result
    /// (L-117).
    pub(super) message: Option<Box<Message>>,
    pub(super) is_error: bool,
    /// True if the text is a tool's, a worker's or a refusal: the result of a native call, and data
    /// to the agent.
    pub(super) is_result: bool,
}
