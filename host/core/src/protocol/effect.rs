//! The effects of a room: the work that the host must do next. Names are imperative. Each effect
//! carries the `CallId` that its answering event must carry.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::budget::LimitIncrease;
use crate::protocol::event::RunOpening;
use crate::setup::plugin_query::PluginQuery;
use crate::types::approval::ApprovalRequest;
use crate::types::completion::{Completion, ModelError, Prompt};
use crate::types::delivery::{OutgoingMessage, Wake};
use crate::types::denial::Denial;
use crate::types::ids::{
    BackgroundId, CallId, ChannelId, ControlId, FrameId, Millis, ModelName, PluginName, TaskName,
    TimerId,
};
use crate::types::outcome::Outcome;
use crate::types::request::{Refusal, RequestId, RequestReply};
use crate::types::tool::NestedAnswer;

/// Work that the host must do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case")]
pub enum Effect {
    /// Call the agent's `step` with `room.agent_view(call)`. Answer: `AgentStepped`.
    StepAgent { call: CallId, frame: FrameId, task: TaskName, agent: PluginName },
    /// Call the agent's `respond` with `room.agent_view(call)`. Answer: `AgentResponded`.
    AskResponder { call: CallId, frame: FrameId, task: TaskName, agent: PluginName },
    /// Call a tool. Answer: `ToolAnswered`.
    CallTool {
        call: CallId,
        task: TaskName,
        caller: PluginName,
        plugin: PluginName,
        tool: String,
        arguments: Arc<Value>,
    },
    /// Send a query to a plugin, besides steps and tool calls, with `room.agent_view(call)`.
    /// Answer: `Consulted`.
    QueryPlugin { call: CallId, task: TaskName, plugin: PluginName, question: PluginQuery },
    /// Ask an approver whether a tool call may run. Answer: `Decided`.
    AskApproval { call: CallId, request: ApprovalRequest },
    /// Ask an approver whether to raise a limit of the run. Answer: `Decided`.
    AskTopUp { call: CallId, top_up: LimitIncrease },
    /// Ask the user. Answer: `UserAnswered`.
    AskUser { call: CallId, task: TaskName, channel: ChannelId, prompt: String },
    /// Send a request to a model. Answer: `ModelAnswered`.
    CallModel { call: CallId, ordinal: u32, model: ModelName, prompt: Prompt },
    /// Return a model's answer to the plugin that waits in this call. No event answers it.
    AnswerModel { call: CallId, ordinal: u32, answer: Result<Completion, ModelError> },
    /// Return the answers of nested calls to the tool that waits in this call. No event answers it.
    AnswerTools { call: CallId, ordinal: u32, answers: Vec<NestedAnswer> },
    /// Permit or refuse a side effect of the plugin that waits in this call. Answer:
    /// `SideEffectEnded`.
    AllowSideEffect { call: CallId, ordinal: u32, leave: Result<(), Denial> },
    /// Resume the plugin that waits in this call: the result of its side effect is durable. No
    /// event answers it.
    ConfirmSideEffect { call: CallId, ordinal: u32 },
    /// Open a child room and run it to its end. Answer: `BackgroundEnded`.
    StartBackground { call: CallId, id: BackgroundId, opening: Box<RunOpening> },
    /// Call the strategy's `decide` with `room.delivery_view(call)`. Answer: `StrategyDecided`.
    WakeStrategy { call: CallId, strategy: PluginName, wake: Wake },
    /// Send a text to a channel. Answer: `Sent`.
    Send { call: CallId, message: Box<OutgoingMessage> },
    /// Reply to a request from outside. No event answers it.
    Reply { request: RequestId, reply: Result<RequestReply, Refusal> },
    /// Send a text to the background task that this call runs, as a control message with this id.
    /// After an interruption of the host it is sent again, and the task reads it once. No event
    /// answers it.
    TellTask { call: CallId, id: ControlId, text: String },
    /// Detach the background task that this call runs; its answer is no longer awaited. No event
    /// answers it.
    DetachTask { call: CallId },
    /// Start a timer. Answer: `TimerFired`, at this time or later.
    SetTimer { timer: TimerId, at: Millis },
    /// Stop this call and drop its answer.
    AbandonCall { call: CallId },
    /// The room has ended; nothing is in flight.
    Finish { outcome: Arc<Outcome> },
}

impl Effect {
    /// Whether the effect begins work that leads to any number of further events: a step, a tool
    /// call, a request to a model or a background task.
    #[must_use]
    pub fn begins_work(&self) -> bool {
        matches!(
            self,
            Self::StepAgent { .. }
                | Self::AskResponder { .. }
                | Self::CallTool { .. }
                | Self::CallModel { .. }
                | Self::StartBackground { .. }
        )
    }

    /// The call that this effect starts; `None` if it starts none.
    #[must_use]
    pub fn starts(&self) -> Option<CallId> {
        match self {
            Self::StepAgent { call, .. }
            | Self::AskResponder { call, .. }
            | Self::CallTool { call, .. }
            | Self::QueryPlugin { call, .. }
            | Self::AskApproval { call, .. }
            | Self::AskTopUp { call, .. }
            | Self::AskUser { call, .. }
            | Self::StartBackground { call, .. }
            | Self::WakeStrategy { call, .. }
            | Self::Send { call, .. } => Some(*call),
            Self::AllowSideEffect { .. } | Self::ConfirmSideEffect { .. } => None,
            Self::Reply { .. } | Self::TellTask { .. } | Self::DetachTask { .. } => None,
            Self::CallModel { .. }
            | Self::AnswerModel { .. }
            | Self::AnswerTools { .. }
            | Self::SetTimer { .. }
            | Self::AbandonCall { .. }
            | Self::Finish { .. } => None,
        }
    }
}
