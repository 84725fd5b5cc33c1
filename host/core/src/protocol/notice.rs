//! What people who follow a run want to know, derived from its events: never read back, never
//! journalled. The command line, the server, logs and traces all show these.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::budget::{Budget, LimitIncrease};
use crate::setup::GatePoint;
use crate::types::agent_state::AgentState;
use crate::types::approval::{Approval, ApprovalAuthor, ApprovalRequest};
use crate::types::channel::Binding;
use crate::types::completion::{ModelDiagnostic, StopReason, TokenUsage};
use crate::types::delivery::EndedTask;
use crate::types::denial::DenialRecord;
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{BackgroundId, CallId, ChannelId, ModelName, PluginName, RoomId, TaskName};
use crate::types::message::Message;
use crate::types::outcome::{Outcome, Status};
use crate::types::request::{Refusal, RefusalCode};
use crate::types::side_effect::{SideEffect, SideEffectAnswer};
use crate::types::stuck_rules::Recovery;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    TaskStarted {
        task: TaskName,
        agent: PluginName,
        caller: Option<TaskName>,
    },
    /// The room met a state that no events lead to, and is ended with `INTERNAL_ERROR`.
    InvariantViolated {
        /// The invariant that did not hold, as a stable word.
        code: String,
        reason: String,
    },
    /// A seat gave a valid answer, which is now the pending message.
    MessagePosted {
        task: TaskName,
        agent: PluginName,
        message: Arc<Message>,
    },
    /// A step of a task is over; `message` is what is pending now.
    StepEnded {
        task: TaskName,
        /// The seat or sub-task that it came from.
        by: String,
        message: Option<Arc<Message>>,
    },
    /// Nobody had a valid answer.
    StepStalled {
        task: TaskName,
        stalled: u32,
        of: u32,
    },
    /// A task asked its user, there was none, and no other responder could answer: the task ends.
    QuestionUnanswered {
        task: TaskName,
        question: String,
    },
    ToolCalled {
        call: CallId,
        task: TaskName,
        caller: PluginName,
        name: String,
        arguments: Value,
    },
    ToolAnswered {
        /// None: it was answered without starting a tool.
        call: Option<CallId>,
        task: TaskName,
        name: String,
        /// The arguments of a call for which no tool was started; `None` if `ToolCalled` has them,
        /// or if they could not be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        content: String,
        is_error: bool,
        fault: Option<Fault>,
        report: CallReport,
    },
    /// A plugin broke a limit or a promise outside a tool call.
    PluginFaulted {
        call: CallId,
        plugin: PluginName,
        fault: Fault,
    },
    /// Something was refused: by the room (a tool, an address, a background task, a model), or by
    /// an import while a call ran.
    Denied {
        /// The call in whose course it was; none when the room refused it.
        call: Option<CallId>,
        plugin: PluginName,
        record: DenialRecord,
    },
    /// A plugin does something to the world: the room let it.
    SideEffectStarted {
        call: CallId,
        ordinal: u32,
        plugin: PluginName,
        side_effect: SideEffect,
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
    /// A budget is used up, and an approver is asked for more.
    TopUpAsked {
        call: CallId,
        top_up: LimitIncrease,
    },
    ToppedUp {
        call: CallId,
        budget: Budget,
        /// In the budget's smallest unit; none: it was refused.
        more: Option<u64>,
        reason: Option<String>,
        author: ApprovalAuthor,
    },
    /// Money is limited by this key, and holds nothing back: nobody knows what the model costs.
    PriceUnknown {
        model: ModelName,
        limit: String,
    },
    /// A request to a model has no answer: the host stopped in between, and asks again, or nobody
    /// waits for the answer any more. What was sent is counted, for it may be charged.
    AttemptLost {
        call: CallId,
        ordinal: u32,
        model: ModelName,
        input_tokens: u64,
        cost_micro_usd: u64,
    },
    /// An agent's `step` or `respond` begins.
    StepStarted {
        call: CallId,
        task: TaskName,
        agent: PluginName,
    },
    ModelCalled {
        call: CallId,
        ordinal: u32,
        /// The task whose agent asks; none for a tool or a strategy.
        task: Option<TaskName>,
        plugin: PluginName,
        model: ModelName,
        /// Its text is shown while it is generated.
        stream: bool,
    },
    ModelAnswered {
        call: CallId,
        ordinal: u32,
        usage: TokenUsage,
        /// In the provider's words; none when it did not answer.
        model: Option<String>,
        /// Why the model stopped; none when it did not answer.
        stop: Option<StopReason>,
        /// It said nothing and called nothing.
        is_empty: bool,
        error: Option<String>,
        trouble: Option<ModelDiagnostic>,
    },
    /// A history did not fit into its model: so many of its messages were cut, and so many left out
    /// (L-180).
    HistoryCut {
        task: TaskName,
        cut: u64,
        dropped: u64,
    },
    /// The room goes on after its host had stopped in the middle.
    Resumed {
        /// Milliseconds in which no host ran.
        down_ms: u64,
    },
    /// Calls from here on go to a component that was built anew.
    PluginReplaced {
        plugin: PluginName,
        /// Lower-case hexadecimal.
        sha256: String,
    },
    /// Somebody stopped what the entry task was doing.
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
    /// What the agent of a task is doing changed (O-069).
    AgentStateChanged {
        task: TaskName,
        state: AgentState,
        /// Why; none where the state says it all.
        reason: Option<String>,
    },
    /// An agent does the same again and again (O-098…O-101), and this is done about it (O-108).
    AgentStuck {
        task: TaskName,
        reason: String,
        recovery: Recovery,
    },
    /// Somebody paused the run: what is under way goes on to its end, and nothing new begins
    /// (O-122).
    RunPaused {
        reason: String,
    },
    /// It goes on.
    RunUnpaused,
    /// An agent reads what somebody said while it was at work.
    UserHeard {
        task: TaskName,
        message: Arc<Message>,
    },
    /// Nobody reads what somebody said while the run was at work, and why.
    UserUnheard {
        task: TaskName,
        text: String,
        reason: String,
    },
    /// A history was made shorter by its task's condenser; the log keeps all of it (O-123).
    HistoryCondensed {
        task: TaskName,
        forgotten: u64,
        masked: u64,
        summarised: bool,
    },
    /// A user's message says a trigger of one of the task's knowledge files: its agent reads the
    /// file (O-126).
    KnowledgeAdded {
        task: TaskName,
        /// As the config writes it.
        file: String,
        /// As the file writes it.
        trigger: String,
    },
    /// A gate, or the lack of its answer, kept something from counting.
    GateBlocked {
        point: GatePoint,
        plugin: PluginName,
        reason: String,
    },
    /// A gate changed the text of something that passed it.
    GateModified {
        point: GatePoint,
        plugin: PluginName,
    },
    /// The conversation moved to another task.
    HandedOff {
        from: TaskName,
        /// None: it waits for its user, whose next word goes to the task that it is with.
        to: Option<TaskName>,
        phase: String,
        reason: String,
    },
    /// A task wanted to hand the conversation over, and may not.
    HandoffRejected {
        from: TaskName,
        /// As it named it.
        to: String,
        refusal: Refusal,
    },
    /// Something came in on a channel, and counts.
    Inbound {
        /// Its number in the room, without gaps.
        index: u64,
        channel: ChannelId,
        /// In the channel's words; empty when it does not say.
        sender: String,
        text: String,
    },
    /// Something came in on a channel, and does not count; of a flood only the first message too
    /// many is told.
    InboundRefused {
        channel: ChannelId,
        sender: String,
        error: RefusalCode,
        reason: String,
    },
    /// A channel did not take something that was said in the room; the others were told all the
    /// same.
    NotTold {
        channel: ChannelId,
        /// Of the speech.
        key: String,
        reason: String,
    },
    /// A channel was attached to the room, or is bound otherwise than before.
    ChannelBound {
        channel: ChannelId,
        binding: Binding,
    },
    ChannelUnbound {
        channel: ChannelId,
    },
    /// The room takes nothing new; what is under way goes on to its end.
    RoomClosed {
        reason: String,
    },
    BackgroundStarted {
        id: BackgroundId,
        task: TaskName,
        room: RoomId,
        /// The task that delegates; none: a program does.
        by: Option<TaskName>,
        /// What the task is to do.
        brief: String,
    },
    BackgroundEnded {
        ended: EndedTask,
    },
    /// A strategy's speech reached a channel.
    Delivered {
        id: BackgroundId,
        agent: TaskName,
        strategy: PluginName,
        channel: ChannelId,
        text: String,
    },
    /// A result stays in the inbox, and why.
    NotDelivered {
        id: BackgroundId,
        agent: TaskName,
        reason: String,
    },
    /// Speeches about a result were not accepted, so often that it is tried no more; it waits for
    /// the agent's next turn.
    DeadLetter {
        id: BackgroundId,
        agent: TaskName,
        attempts: u32,
        reason: String,
    },
    /// An agent takes a turn about results; the message is for it alone.
    ResultsRelayed {
        task: TaskName,
        ids: Vec<BackgroundId>,
        message: Arc<Message>,
    },
    /// An agent reads results that nobody was told.
    ResultsTold {
        task: TaskName,
        ids: Vec<BackgroundId>,
    },
    TaskEnded {
        task: TaskName,
        status: Status,
        reason: String,
    },
    /// The entry task has its result; background work may still go on.
    ResultReady {
        outcome: Arc<Outcome>,
    },
}
