//! What the host asks a plugin beside steps and tool calls: memories that fit a query, how risky an
//! action is, what a history may forget, what may pass.

mod condensed;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::setup::GatePoint;
use crate::types::action::Action;
use crate::types::ids::{ChannelId, RoomId, TaskName};
use crate::types::risk::Risk;

pub use condensed::{BadCondensation, Condensed, LEFT_OUT, RetainedEntries, SUMMARY_MAX, Summary};

/// What a security analyzer says of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub risk: Risk,
    /// Why, for whoever is asked; may be empty.
    pub reason: String,
}

/// Why a history is to be condensed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CondenseReason {
    /// It has become longer than the operator wants.
    Size,
    /// The agent asked for it.
    Requested,
    /// A prompt did not fit into its model.
    Overflow,
}

/// Entries of a history: `start` included, `end` not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySpan {
    pub start: u64,
    pub end: u64,
}

/// A text in the place of an entry's own: [`LEFT_OUT`], or the beginning or end of the entry's own
/// words with an `…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masked {
    pub index: u64,
    pub text: String,
}

/// What a condenser wants done with a history. The host holds it against its rules: no call is
/// parted from its result (O-123, O-125).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condensation {
    /// Entries to leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget: Vec<EntrySpan>,
    /// Entries to say less in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<Masked>,
    /// Stands where the first of what is forgotten stood; none: nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Bytes of a text that a gate puts in the place of another.
pub const PASSING_MAX: usize = 1 << 20;

/// Something that is about to count, as a gate sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passing {
    pub on: GatePoint,
    pub room: RoomId,
    /// Where it came in, or will be said; none for a background task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// The task that delegates, or whose result it is; none: nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<TaskName>,
    /// The task that it is for, as it was named; none: no task in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What is said, or what the worker is told to do.
    pub text: String,
    /// A JSON object of what else is known of it.
    pub metadata: Value,
}

/// What a gate says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "kebab-case")]
pub enum GateVerdict {
    Allow,
    /// It passes with this text in the place of its own.
    Modify {
        text: String,
    },
    /// It does not pass; why, for whoever sent it.
    Block {
        reason: String,
    },
}

/// What a plugin is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "kebab-case")]
pub enum PluginQuery {
    /// Of a `memory`.
    Memories { query: String, limit: u32 },
    /// Of a `security-analyzer`.
    Risk { action: Box<Action>, thought: String },
    /// Of a `condenser`.
    Condense { reason: CondenseReason },
    /// Of a `gate`.
    Gate { passing: Box<Passing> },
}

impl PluginQuery {
    /// The interface that answers it.
    #[must_use]
    pub fn kind(&self) -> crate::setup::PluginKind {
        match self {
            Self::Memories { .. } => crate::setup::PluginKind::Memory,
            Self::Risk { .. } => crate::setup::PluginKind::SecurityAnalyzer,
            Self::Condense { .. } => crate::setup::PluginKind::Condenser,
            Self::Gate { .. } => crate::setup::PluginKind::Gate,
        }
    }
}

/// What a plugin answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "kebab-case")]
pub enum PluginReply {
    /// Best first.
    Memories {
        memories: Vec<String>,
    },
    Risk {
        verdict: Verdict,
    },
    /// None: nothing is to be done.
    Condense {
        condensation: Option<Condensation>,
    },
    Gate {
        verdict: GateVerdict,
    },
}
