//! Notices about a run, derived from its events: never read back, never journalled. The command
//! line, the server, logs and traces all show them.

mod kinds;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::budget::{Budget, LimitIncrease};
use crate::setup::GatePoint;
use crate::setup::plugin_query::Ruling;
use crate::types::agent_state::AgentState;
use crate::types::approval::{Approval, ApprovalAuthor, ApprovalRequest, DecisionFault};
use crate::types::channel::Binding;
use crate::types::completion::{ModelDiagnostic, StopReason, TokenUsage};
use crate::types::delivery::EndedTask;
use crate::types::denial::DenialRecord;
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{BackgroundId, CallId, ChannelId, ModelName, PluginName, RoomId, TaskName};
use crate::types::message::{Message, Role};
use crate::types::outcome::{Outcome, Status};
use crate::types::request::{Refusal, RefusalCode};
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::stuck_rules::Recovery;

/// A fact about a run that is shown to its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    TaskStarted {
        task: TaskName,
        agent: PluginName,
        caller: Option<TaskName>,
    },
    /// The room reached a state that no events lead to, and ends with `INTERNAL_ERROR`.
    InvariantViolated {
        /// A stable code of the invariant that failed.
        code: String,
        reason: String,
    },
    /// A responder gave a valid answer, which is now the pending message.
    MessagePosted {
        task: TaskName,
        agent: PluginName,
        message: Arc<Message>,
    },
    /// A step of a task ended; `message` is now pending.
    StepEnded {
        task: TaskName,
        /// The responder or sub-task that sent the message.
        by: Cow<'static, str>,
        message: Option<Arc<Message>>,
        /// The responders that were passed over before it, in order, with the reasons (L-054).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<SkippedResponder>,
    },
    /// No responder had a valid answer.
    StepStalled {
        task: TaskName,
        stalled: u32,
        of: u32,
        /// The responders that may not answer the message, in the order in which a step asks
        /// (L-054); empty if the message was passed on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<SkippedResponder>,
    },
    /// A task asked its user, no user was present, and no other responder could answer: the task
    /// ends.
    QuestionUnanswered {
        task: TaskName,
        question: String,
    },
    ToolCalled {
        call: CallId,
        task: TaskName,
        caller: PluginName,
        name: String,
        arguments: Arc<Value>,
        /// The running call whose tool made it; `None` if the agent did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<CallId>,
        /// The plugins that led to it, in order; empty if the agent made it itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        led_by: Vec<PluginName>,
    },
    ToolAnswered {
        /// The call; `None` if it was answered without starting a tool.
        call: Option<CallId>,
        task: TaskName,
        name: String,
        /// The arguments of a call for which no tool was started; `None` if `ToolCalled` has them,
        /// or if they could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Arc<Value>>,
        content: String,
        is_error: bool,
        fault: Option<Fault>,
        report: CallReport,
    },
    /// A plugin broke a limit or a contract outside a tool call.
    PluginFaulted {
        call: CallId,
        plugin: PluginName,
        fault: Fault,
    },
    /// A request was refused, by the room (a tool, an address, a background task, a model) or by an
    /// import during a call.
    Denied {
        /// The call during which it was refused; `None` if the room refused it.
        call: Option<CallId>,
        plugin: PluginName,
        record: DenialRecord,
    },
    /// The room permitted a side effect, which begins.
    SideEffectStarted {
        call: CallId,
        ordinal: u32,
        plugin: PluginName,
        side_effect: SideEffect,
        /// Whether it changes an overlay of a folder: a person applies or drops the change.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        overlay: bool,
    },
    SideEffectEnded {
        call: CallId,
        ordinal: u32,
        plugin: PluginName,
        answer: SideEffectAnswer,
    },
    /// An approver is asked about a tool call.
    ApprovalAsked {
        call: CallId,
        request: ApprovalRequest,
    },
    ApprovalGiven {
        call: CallId,
        approval: Approval,
        author: ApprovalAuthor,
    },
    /// A decision was rejected; the call, or the limit, still waits for one.
    DecisionRejected {
        call: CallId,
        author: ApprovalAuthor,
        fault: DecisionFault,
    },
    /// A limit is used up, and an approver is asked to raise it.
    TopUpAsked {
        call: CallId,
        top_up: LimitIncrease,
    },
    ToppedUp {
        call: CallId,
        budget: Budget,
        /// The increase in the budget's smallest unit; `None` if it was refused.
        more: Option<u64>,
        reason: Option<String>,
        author: ApprovalAuthor,
    },
    /// A money limit with this key has no effect, because the model's price is unknown.
    PriceUnknown {
        model: ModelName,
        limit: String,
    },
    /// A request to a model got no answer. Either the host was interrupted and repeats it, or the
    /// answer is no longer needed. The tokens sent are counted, because the provider may charge for
    /// them; none are if the model was not available.
    AttemptLost {
        call: CallId,
        ordinal: u32,
        model: ModelName,
        input_tokens: u64,
        cost_micro_usd: u64,
        /// Why the model was not available, and the run was left; `None` if the request was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An agent's `step` or `respond` began.
    StepStarted {
        call: CallId,
        task: TaskName,
        agent: PluginName,
    },
    ModelCalled {
        call: CallId,
        ordinal: u32,
        /// The task whose agent asks; `None` for a tool or a strategy.
        task: Option<TaskName>,
        plugin: PluginName,
        model: ModelName,
        /// Whether its text is shown while it is generated.
        stream: bool,
    },
    ModelAnswered {
        call: CallId,
        ordinal: u32,
        usage: TokenUsage,
        /// The model's name in the provider's words; `None` if it did not answer.
        model: Option<String>,
        /// The reason why the model stopped; `None` if it did not answer.
        stop: Option<StopReason>,
        /// Whether the completion has no text and no tool call.
        is_empty: bool,
        error: Option<String>,
        trouble: Option<ModelDiagnostic>,
        /// The model that is asked instead (`tasks.NAME.model`); `None` if the plugin gets this
        /// answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback: Option<ModelName>,
    },
    /// A history did not fit into its model's context: messages were truncated or dropped (L-180).
    HistoryCut {
        task: TaskName,
        cut: u64,
        dropped: u64,
    },
    /// The room resumed after its host was interrupted.
    Resumed {
        /// Milliseconds in which no host ran.
        down_ms: u64,
        /// Whether the time is exact, and not an upper bound.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_exact: bool,
    },
    /// A component was rebuilt, and later calls use the new one.
    PluginReplaced {
        plugin: PluginName,
        /// The digest of the new component, in lower-case hexadecimal.
        sha256: String,
    },
    /// The entry task's current turn was stopped.
    TurnStopped {
        task: TaskName,
        reason: String,
    },
    /// An agent changed its plan (O-059, O-060).
    PlanChanged {
        task: TaskName,
        /// The whole plan, in the form of O-065.
        plan: Value,
    },
    /// The state of a task's agent changed (O-069).
    AgentStateChanged {
        task: TaskName,
        state: AgentState,
        /// The reason; `None` if the state alone says enough.
        reason: Option<String>,
    },
    /// An agent is stuck in repeated actions (O-098…O-101), and this recovery applies (O-108).
    AgentStuck {
        task: TaskName,
        reason: String,
        recovery: Recovery,
    },
    /// The run was paused: work under way continues to its end, and no new work begins (O-122).
    RunPaused {
        reason: String,
    },
    /// The run was resumed after a pause.
    RunUnpaused,
    /// An agent reads a text that a user sent while the run was busy.
    UserMessageRead {
        task: TaskName,
        message: Arc<Message>,
    },
    /// A text that a user sent while the run was busy is not read, and why.
    UserMessageDropped {
        task: TaskName,
        text: String,
        reason: String,
    },
    /// A task's condenser shortened a history; the journal keeps all of it (O-123).
    HistoryCondensed {
        task: TaskName,
        forgotten: u64,
        masked: u64,
        summarised: bool,
    },
    /// A user's message contains a trigger of a knowledge file, so the agent reads that file
    /// (O-126).
    KnowledgeAdded {
        task: TaskName,
        /// The file's path as the config writes it.
        file: String,
        /// The trigger as the file writes it.
        trigger: String,
    },
    /// A gate blocked a text, or failed and therefore blocked it.
    GateBlocked {
        point: GatePoint,
        plugin: PluginName,
        reason: String,
        /// The `plugin.tool` of a call or a result; `None` for other texts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
    },
    /// A gate changed a text and let it pass.
    GateModified {
        point: GatePoint,
        plugin: PluginName,
        /// The `plugin.tool` of a call or a result; `None` for other texts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
    },
    /// A judge overruled the host's rules for an answer (L-056, L-081).
    AnswerOverruled {
        task: TaskName,
        plugin: PluginName,
        /// The responder: a role, or a sub-task.
        responder: String,
        /// What the judge decided otherwise than the host.
        ruling: Ruling,
    },
    /// A judge replaced the result of a task (L-088).
    ResultReplaced {
        task: TaskName,
        plugin: PluginName,
    },
    /// The conversation moved to another task.
    HandedOff {
        from: TaskName,
        /// The new holder; `None` if the conversation waits for its user, whose next message goes
        /// to the current task.
        to: Option<TaskName>,
        phase: String,
        reason: String,
    },
    /// A task tried to hand the conversation over and was not allowed to.
    HandoffRejected {
        from: TaskName,
        /// The target's name as the task wrote it.
        to: String,
        refusal: Refusal,
    },
    /// A message arrived on a channel and was accepted.
    Inbound {
        /// The message's number in the room, without gaps.
        index: u64,
        channel: ChannelId,
        /// The sender in the channel's words; empty if the channel does not name one.
        sender: String,
        text: String,
    },
    /// A message arrived on a channel and was refused; of a flood, only the first excess message is
    /// reported.
    InboundRefused {
        channel: ChannelId,
        sender: String,
        error: RefusalCode,
        reason: String,
    },
    /// A channel did not accept a text of the room; the other channels got it.
    ChannelRefused {
        channel: ChannelId,
        /// The key of the message.
        key: String,
        reason: String,
    },
    /// A channel was attached to the room, or its binding changed.
    ChannelBound {
        channel: ChannelId,
        binding: Binding,
    },
    ChannelUnbound {
        channel: ChannelId,
    },
    /// The room accepts no new requests; work under way continues to its end.
    RoomClosed {
        reason: String,
    },
    BackgroundStarted {
        id: BackgroundId,
        task: TaskName,
        room: RoomId,
        /// The delegating task; `None` if a program delegates.
        by: Option<TaskName>,
        /// The brief of the task.
        brief: String,
    },
    BackgroundEnded {
        ended: EndedTask,
    },
    /// A text about a result reached a channel.
    Delivered {
        id: BackgroundId,
        worker: TaskName,
        /// The strategy that delivered it; `None` for the host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<PluginName>,
        channel: ChannelId,
        text: String,
    },
    /// A result stays in the inbox, and why.
    NotDelivered {
        id: BackgroundId,
        worker: TaskName,
        reason: String,
    },
    /// Delivery of a result failed too often and is not retried; the result waits for the agent's
    /// next turn.
    DeadLetter {
        id: BackgroundId,
        worker: TaskName,
        attempts: u32,
        reason: String,
    },
    /// An agent reads results in a turn of its own; the message is for this agent only.
    ResultsRelayed {
        task: TaskName,
        ids: Vec<BackgroundId>,
        message: Arc<Message>,
    },
    /// An agent reads results that were not delivered to any channel.
    ResultsRead {
        task: TaskName,
        ids: Vec<BackgroundId>,
    },
    TaskEnded {
        task: TaskName,
        status: Status,
        reason: String,
    },
    /// The entry task has its result; background tasks may still run.
    ResultReady {
        outcome: Arc<Outcome>,
    },
    /// A call of an observer failed, and it gets the same events again after a pause.
    ObserverRetried {
        observer: PluginName,
        /// The number of failed calls for these events.
        attempts: u32,
        of: u32,
        pause_ms: u64,
        reason: String,
    },
    /// An observer gets no more events in this run. Those that it did not take are still in the
    /// journal.
    ObserverStopped {
        observer: PluginName,
        attempts: u32,
        reason: String,
    },
}

/// A responder that could not answer the pending message (L-055).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedResponder {
    /// `llm`, `agent`, `user`, or the name of a sub-task.
    pub responder: Cow<'static, str>,
    pub reason: SkipReason,
}

impl SkippedResponder {
    /// Whether nearly every step passes it over: by the task's setup, or because the agent has
    /// nothing to carry out.
    #[must_use]
    pub fn is_routine(&self) -> bool {
        match self.reason {
            SkipReason::SentMessage | SkipReason::UserNotAsked | SkipReason::WaitsForTask => true,
            SkipReason::NoAnswer => self.responder == Role::Agent.as_str(),
            SkipReason::NotAddressed | SkipReason::CannotRunCalls => false,
        }
    }
}

/// The reason why a responder was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// It sent the message itself.
    SentMessage,
    /// The task asks its user only when a message is for the user.
    UserNotAsked,
    /// The sub-task waits for this task.
    WaitsForTask,
    /// The message is for another responder.
    NotAddressed,
    /// The message holds calls or an action, and the sub-task's agent can run none of them.
    CannotRunCalls,
    /// It was asked, and had no answer that counts.
    NoAnswer,
}

impl SkipReason {
    /// The reason for people, after the name of the responder.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SentMessage => "sent the message",
            Self::UserNotAsked => "is not asked here",
            Self::WaitsForTask => "waits for this task",
            Self::NotAddressed => "is not addressed",
            Self::CannotRunCalls => "cannot run its calls",
            Self::NoAnswer => "had no answer",
        }
    }
}
