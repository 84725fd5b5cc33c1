//! Items that gates check before they take effect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::consent::Consent;
use super::delegation::{Delegating, Waiter};
use crate::setup::GatePoint;
use crate::types::delivery::OutgoingMessage;
use crate::types::fault::CallReport;
use crate::types::ids::{CallId, ChannelId, FrameId, PluginName, TaskName};
use crate::types::request::{Inbound, RequestId};
use crate::types::tool::{ToolError, ToolOutcome};

/// An item that passes the gates, with all that is needed to resume it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum GatedAct {
    Inbound { request: RequestId, inbound: Box<Inbound> },
    Delegation { delegating: Box<Delegating> },
    Delivery { gated: Box<GatedMessage> },
    Passage { passage: Box<Passage> },
    ToolCall { call: Box<GatedCall> },
    ToolResult { result: Box<GatedResult> },
}

impl GatedAct {
    pub(in crate::room) fn point(&self) -> GatePoint {
        match self {
            Self::Inbound { .. } => GatePoint::Inbound,
            Self::Delegation { .. } => GatePoint::Delegate,
            Self::Delivery { .. } => GatePoint::Deliver,
            Self::Passage { passage } => passage.kind.point(),
            Self::ToolCall { .. } => GatePoint::ToolCall,
            Self::ToolResult { .. } => GatePoint::ToolResult,
        }
    }

    /// What decides which gates check it: its point, and the `plugin.tool` of a call or a result.
    pub(in crate::room) fn place(&self) -> (GatePoint, Option<&str>) {
        (self.point(), self.tool())
    }

    /// The `plugin.tool` of a call or a result; `None` for other items.
    pub(in crate::room) fn tool(&self) -> Option<&str> {
        match self {
            Self::ToolCall { call } => Some(&call.tool),
            Self::ToolResult { result } => Some(&result.tool),
            Self::Inbound { .. }
            | Self::Delegation { .. }
            | Self::Delivery { .. }
            | Self::Passage { .. } => None,
        }
    }

    /// The activation without which the item has no effect.
    pub(in crate::room) fn frame(&self) -> Option<FrameId> {
        match self {
            Self::Passage { passage } => Some(passage.frame),
            Self::ToolCall { call } => Some(call.waiter.frame),
            Self::ToolResult { result } => Some(result.reader.frame()),
            Self::Inbound { .. } | Self::Delegation { .. } | Self::Delivery { .. } => None,
        }
    }

    /// The slot of a call or a result; `None` for other items.
    pub(in crate::room) fn slot(&self) -> Option<(FrameId, usize)> {
        match self {
            Self::ToolCall { call } => Some((call.waiter.frame, call.waiter.slot)),
            Self::ToolResult { result } => match &result.reader {
                ResultReader::Slot { waiter } => Some((waiter.frame, waiter.slot)),
                ResultReader::Poll { .. } => None,
            },
            _ => None,
        }
    }

    /// Whether it is output of this background command of an activation.
    pub(in crate::room) fn is_output_of(&self, of: FrameId, command: i64) -> bool {
        let Self::ToolResult { result } = self else { return false };
        matches!(result.reader, ResultReader::Poll { frame, command_id, .. } if (frame, command_id) == (of, command))
    }

    /// The text that a gate may read and change. For a delegation it is what the worker reads.
    pub(in crate::room) fn text(&self) -> &str {
        match self {
            Self::Inbound { inbound, .. } => &inbound.text,
            Self::Delegation { delegating } => {
                delegating.delegation.brief.as_ref().unwrap_or(&delegating.delegation.description)
            }
            Self::Delivery { gated } => &gated.outgoing.text,
            Self::Passage { passage } => &passage.text,
            Self::ToolCall { call } => &call.text,
            Self::ToolResult { result } => &result.text,
        }
    }

    pub(in crate::room) fn set_text(&mut self, text: String) {
        match self {
            Self::Inbound { inbound, .. } => inbound.text = text,
            Self::Delegation { delegating } => {
                // Text that a gate removed from the brief must not remain in the label.
                if delegating.delegation.brief.is_some() {
                    delegating.delegation.brief = Some(text.clone());
                }
                delegating.delegation.description = text;
            }
            Self::Delivery { gated } => gated.outgoing.text = text,
            Self::Passage { passage } => (passage.text, passage.is_changed) = (text, true),
            Self::ToolCall { call } => (call.text, call.is_changed) = (text, true),
            Self::ToolResult { result } => (result.text, result.is_changed) = (text, true),
        }
    }

    /// The channel whose order the item keeps.
    pub(in crate::room) fn lane(&self) -> Option<&ChannelId> {
        match self {
            Self::Inbound { inbound, .. } => Some(&inbound.channel),
            Self::Delegation { .. }
            | Self::Delivery { .. }
            | Self::Passage { .. }
            | Self::ToolCall { .. }
            | Self::ToolResult { .. } => None,
        }
    }
}

/// A call of a plugin's tool that gates check before the operator's rules apply to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct GatedCall {
    /// The slot of the call.
    pub waiter: Waiter,
    /// The tool as `plugin.tool`.
    pub tool: String,
    /// The arguments as JSON.
    pub text: String,
    /// Whether a gate replaced the arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changed: bool,
    /// The consent that it has so far, for arguments that no gate changes.
    pub consent: Consent,
}

/// The reader of a tool's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum ResultReader {
    /// The slot of the call.
    Slot { waiter: Waiter },
    /// The activation whose background command was polled.
    Poll { task: TaskName, frame: FrameId, command_id: i64 },
}

impl ResultReader {
    fn frame(&self) -> FrameId {
        match self {
            Self::Slot { waiter } => waiter.frame,
            Self::Poll { frame, .. } => *frame,
        }
    }
}

/// A call of a tool that is over, with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct AnsweredCall {
    pub call: CallId,
    pub plugin: PluginName,
    pub answer: Result<ToolOutcome, ToolError>,
    pub report: CallReport,
}

/// The answer of a tool that gates check before anything reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct GatedResult {
    pub reader: ResultReader,
    /// The tool as `plugin.tool`.
    pub tool: String,
    pub answered: AnsweredCall,
    /// The readable parts of the answer, as a JSON object.
    pub text: String,
    /// Whether a gate replaced the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changed: bool,
}

/// The content of a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::room) enum PassageKind {
    /// The first message of a sub-task or delegate.
    Message,
    /// A task's result for its caller.
    Result,
    /// The summary for the task that takes over the conversation.
    Handoff,
    /// A question to the user.
    Question,
    /// The result of the run.
    Answer,
    /// What an agent says to people while it works.
    Talk,
}

/// A text that gates check before it leaves an activation, or reaches a new one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Passage {
    pub kind: PassageKind,
    /// The activation that it leaves; for a first message, the one that it reaches.
    pub frame: FrameId,
    /// The task that it goes to; `None` for the user, or for another room.
    pub to: Option<String>,
    pub text: String,
    /// The action that waits for the gates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter: Option<Waiter>,
    /// Further texts that pass with it, by name; null for none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub facts: Value,
    /// Whether a gate replaced the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_changed: bool,
}

impl Passage {
    pub(in crate::room) fn new(kind: PassageKind, frame: FrameId, text: String) -> Self {
        Self { kind, frame, to: None, text, waiter: None, facts: Value::Null, is_changed: false }
    }
}

impl PassageKind {
    pub(in crate::room) fn point(self) -> GatePoint {
        match self {
            Self::Message | Self::Result | Self::Handoff => GatePoint::Subtask,
            Self::Question | Self::Answer | Self::Talk => GatePoint::Outbound,
        }
    }
}

/// A message that gates still check, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct GatedMessage {
    pub outgoing: OutgoingMessage,
    /// The strategy that requested it; `None` for an announcement, and for results that the host
    /// reports.
    pub strategy: Option<PluginName>,
    /// The request of an announcement.
    pub request: Option<RequestId>,
    /// The task whose agent takes a turn about it; `None` if it is said on the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<TaskName>,
    /// Number of automatic answers that led to it.
    #[serde(default)]
    pub chain_depth: u32,
    /// The text for people if no agent can take the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

impl GatedMessage {
    /// The bytes of its texts.
    pub(in crate::room) fn weight(&self) -> usize {
        self.outgoing.text.len() + self.otherwise.as_ref().map_or(0, String::len)
    }
}
