//! The work that a room waits for, as a list for users and tools: one line for each call or timer
//! under way. Holds only the fields of such a list; the details are in the journal.

use serde::{Deserialize, Serialize};

use crate::protocol::effect::Effect;
use crate::protocol::event::Event;
use crate::types::approval::ApprovalRequest;
use crate::types::ids::{CallId, Millis, TimerId};

/// A call or timer that a room waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingWork {
    pub key: WaitKey,
    /// The kind of work, such as `step`, `tool`, `approval`, `top-up`, `user`, `model`,
    /// `background`, `strategy`, `message`, `timer`.
    pub kind: String,
    /// The name of the plugin, tool, model or channel that the room waits for.
    pub target: String,
    /// The time at which a `timer` fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Millis>,
    /// The request of an `approval` or a `top-up`. A store's list does not hold it: it follows from
    /// the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<ApprovalRequest>>,
}

/// The key of one item of pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKey {
    Call(CallId),
    Model(CallId, u32),
    Timer(TimerId),
}

impl PendingWork {
    /// Whether it is a call of a plugin, a model or a side effect.
    #[must_use]
    pub fn is_call(&self) -> bool {
        !matches!(self.kind.as_str(), "timer" | "approval" | "top-up" | "user" | "background")
    }

    /// Whether an approver decides it: an approval, or a top-up.
    #[must_use]
    pub fn asks_approval(&self) -> bool {
        matches!(self.kind.as_str(), "approval" | "top-up")
    }
}

impl WaitKey {
    /// The call that waits; `None` for a timer.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match self {
            Self::Call(call) | Self::Model(call, _) => Some(*call),
            Self::Timer(_) => None,
        }
    }
}

/// A change to the list of pending work.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitChange {
    Begun(PendingWork),
    Over(WaitKey),
    /// The call ended, with all requests that it had made.
    Abandoned(CallId),
    /// The room has ended; all pending work is removed.
    Finished,
}

impl WaitChange {
    /// The work that an effect begins or ends; `None` if it changes nothing.
    #[must_use]
    pub fn of_effect(effect: &Effect) -> Option<Self> {
        let begin = |key, kind: &str, target: String| {
            Some(Self::Begun(PendingWork {
                key,
                kind: kind.to_owned(),
                target,
                at: None,
                request: None,
            }))
        };
        match effect {
            Effect::StepAgent { call, agent, .. } => {
                begin(WaitKey::Call(*call), "step", agent.to_string())
            }
            Effect::AskResponder { call, agent, .. } => {
                begin(WaitKey::Call(*call), "respond", agent.to_string())
            }
            Effect::CallTool { call, plugin, tool, .. } => {
                begin(WaitKey::Call(*call), "tool", format!("{plugin}.{tool}"))
            }
            Effect::QueryPlugin { call, plugin, question, .. } => {
                begin(WaitKey::Call(*call), question.kind().as_str(), plugin.to_string())
            }
            Effect::AskApproval { call, request } => Some(Self::Begun(PendingWork {
                key: WaitKey::Call(*call),
                kind: "approval".to_owned(),
                target: request.tool.clone(),
                at: None,
                request: Some(Box::new(request.clone())),
            })),
            Effect::AskTopUp { call, top_up } => Some(Self::Begun(PendingWork {
                key: WaitKey::Call(*call),
                kind: "top-up".to_owned(),
                target: top_up.budget.key().to_owned(),
                at: None,
                // Listed as an approval, so that one command decides both.
                request: Some(Box::new(top_up.as_approval())),
            })),
            Effect::AskUser { call, channel, .. } => {
                begin(WaitKey::Call(*call), "user", channel.to_string())
            }
            Effect::CallModel { call, ordinal, model, .. } => {
                begin(WaitKey::Model(*call, *ordinal), "model", model.to_string())
            }
            Effect::StartBackground { call, opening, .. } => {
                begin(WaitKey::Call(*call), "background", opening.room.to_string())
            }
            Effect::WakeStrategy { call, strategy, .. } => {
                begin(WaitKey::Call(*call), "strategy", strategy.to_string())
            }
            Effect::Send { call, message } => {
                begin(WaitKey::Call(*call), "message", message.channel.to_string())
            }
            Effect::SetTimer { timer, at } => Some(Self::Begun(PendingWork {
                key: WaitKey::Timer(*timer),
                kind: "timer".to_owned(),
                target: String::new(),
                at: Some(*at),
                request: None,
            })),
            Effect::AbandonCall { call } => Some(Self::Abandoned(*call)),
            Effect::Finish { .. } => Some(Self::Finished),
            Effect::AnswerModel { .. }
            | Effect::AnswerTools { .. }
            | Effect::AllowSideEffect { .. }
            | Effect::ConfirmSideEffect { .. } => None,
            Effect::Reply { .. } | Effect::TellTask { .. } | Effect::DetachTask { .. } => None,
        }
    }

    /// The work that an event ends; `None` if it ends nothing.
    #[must_use]
    pub fn of_event(event: &Event) -> Option<Self> {
        match event.effective() {
            Event::AgentStepped { call, .. }
            | Event::AgentResponded { call, .. }
            | Event::ToolAnswered { call, .. }
            | Event::PluginQueried { call, .. }
            | Event::StrategyDecided { call, .. }
            | Event::UserAnswered { call, .. }
            | Event::Decided { call, .. }
            | Event::Sent { call, .. }
            | Event::BackgroundEnded { call, .. } => Some(Self::Over(WaitKey::Call(*call))),
            Event::ModelAnswered { call, ordinal, .. } => {
                Some(Self::Over(WaitKey::Model(*call, *ordinal)))
            }
            Event::TimerFired { timer } => Some(Self::Over(WaitKey::Timer(*timer))),
            _ => None,
        }
    }
}
