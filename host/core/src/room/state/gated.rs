//! Items that gates check before they take effect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::delegation::{Delegating, Waiter};
use crate::setup::GatePoint;
use crate::types::delivery::OutgoingMessage;
use crate::types::ids::{ChannelId, FrameId, PluginName, TaskName};
use crate::types::request::{Inbound, RequestId};

/// An item that passes the gates, with all that is needed to resume it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) enum GatedAct {
    Inbound { request: RequestId, inbound: Box<Inbound> },
    Delegation { delegating: Box<Delegating> },
    Delivery { gated: Box<GatedMessage> },
    Passage { passage: Box<Passage> },
}

impl GatedAct {
    pub(in crate::room) fn point(&self) -> GatePoint {
        match self {
            Self::Inbound { .. } => GatePoint::Inbound,
            Self::Delegation { .. } => GatePoint::Delegate,
            Self::Delivery { .. } => GatePoint::Deliver,
            Self::Passage { passage } => passage.kind.point(),
        }
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
        }
    }

    /// The channel whose order the item keeps.
    pub(in crate::room) fn lane(&self) -> Option<&ChannelId> {
        match self {
            Self::Inbound { inbound, .. } => Some(&inbound.channel),
            Self::Delegation { .. } | Self::Delivery { .. } | Self::Passage { .. } => None,
        }
    }
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
