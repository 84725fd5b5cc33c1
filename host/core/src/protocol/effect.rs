//! What the host must do next. Names in the imperative. Each carries the `CallId` that the event
//! which answers it must carry.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::budget::LimitIncrease;
use crate::protocol::event::RunOpening;
use crate::setup::plugin_query::PluginQuery;
use crate::types::approval::ApprovalRequest;
use crate::types::completion::{Completion, ModelError, Prompt};
use crate::types::delivery::{Speech, Wake};
use crate::types::denial::Denial;
use crate::types::ids::{
    BackgroundId, CallId, ChannelId, ControlId, FrameId, Millis, ModelName, PluginName, TaskName,
    TimerId,
};
use crate::types::outcome::Outcome;
use crate::types::request::{Refusal, RequestId, RequestReply};

/// What the host must do.
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
        arguments: Value,
    },
    /// Ask a plugin something beside steps and tool calls, with `room.agent_view(call)`. Answer:
    /// `Consulted`.
    Consult { call: CallId, task: TaskName, plugin: PluginName, question: PluginQuery },
    /// Ask whether a tool call may run. Answer: `Decided`.
    AskApproval { call: CallId, request: ApprovalRequest },
    /// Ask whether the run may have more of a budget. Answer: `Decided`.
    AskTopUp { call: CallId, top_up: LimitIncrease },
    /// Ask a person. Answer: `UserAnswered`.
    AskUser { call: CallId, task: TaskName, channel: ChannelId, prompt: String },
    /// Ask a model. Answer: `ModelAnswered`.
    CallModel { call: CallId, ordinal: u32, model: ModelName, prompt: Prompt },
    /// Give the plugin that waits in this call its answer. No event answers it.
    AnswerModel { call: CallId, ordinal: u32, answer: Result<Completion, ModelError> },
    /// Let the plugin that waits in this call do what it asked for, or not. Answer:
    /// `SideEffectEnded`.
    AllowSideEffect { call: CallId, ordinal: u32, leave: Result<(), Denial> },
    /// The end of a side effect is kept: the plugin that waits in this call goes on. No event
    /// answers it.
    ConfirmSideEffect { call: CallId, ordinal: u32 },
    /// Open a child room and run it to its end. Answer: `BackgroundEnded`.
    StartBackground { call: CallId, id: BackgroundId, opening: Box<RunOpening> },
    /// Call the strategy's `decide` with `room.delivery_view(call)`. Answer: `StrategyDecided`.
    WakeStrategy { call: CallId, strategy: PluginName, wake: Wake },
    /// Say something on a channel. Answer: `Spoken`.
    Speak { call: CallId, speech: Box<Speech> },
    /// Tell whoever asked what came of it. No event answers it.
    Reply { request: RequestId, reply: Result<RequestReply, Refusal> },
    /// Say something to the background task that this call runs, as a control message of this id:
    /// it is said again when the host goes on after it had stopped, and the task hears it once. No
    /// event answers it.
    TellTask { call: CallId, id: ControlId, text: String },
    /// The background task that this call runs goes on alone: nobody waits for its answer any more.
    /// No event answers it.
    DetachTask { call: CallId },
    /// Answer: `TimerFired`, at this time or later.
    SetTimer { timer: TimerId, at: Millis },
    /// Nobody waits for this call any more: stop it and drop its answer.
    AbandonCall { call: CallId },
    /// The room is over; nothing is in flight.
    Finish { outcome: Arc<Outcome> },
}

impl Effect {
    /// The call that this effect starts; none when it starts none.
    #[must_use]
    pub fn starts(&self) -> Option<CallId> {
        match self {
            Self::StepAgent { call, .. }
            | Self::AskResponder { call, .. }
            | Self::CallTool { call, .. }
            | Self::Consult { call, .. }
            | Self::AskApproval { call, .. }
            | Self::AskTopUp { call, .. }
            | Self::AskUser { call, .. }
            | Self::StartBackground { call, .. }
            | Self::WakeStrategy { call, .. }
            | Self::Speak { call, .. } => Some(*call),
            Self::AllowSideEffect { .. } | Self::ConfirmSideEffect { .. } => None,
            Self::Reply { .. } | Self::TellTask { .. } | Self::DetachTask { .. } => None,
            Self::CallModel { .. }
            | Self::AnswerModel { .. }
            | Self::SetTimer { .. }
            | Self::AbandonCall { .. }
            | Self::Finish { .. } => None,
        }
    }
}
