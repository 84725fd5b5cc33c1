//! Queries to plugins besides steps and tool calls: memories for a text, the risk of an action, the
//! condensation of a history, the verdict of a gate, the ruling of a judge, a simulated user's
//! answer.

mod channel;
mod condensed;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::setup::GatePoint;
use crate::types::action::Action;
use crate::types::ids::{ChannelId, RoomId, TaskName};
use crate::types::message::Message;
use crate::types::observed::ObservedEvent;
use crate::types::outcome::Status;
use crate::types::plugin_kind::PluginKind;
use crate::types::risk::Risk;

pub use channel::{
    ChannelDelivery, ChannelMessage, ChannelReception, ChannelRequest, ReceivedMessage,
};
pub use condensed::{BadCondensation, Condensed, LEFT_OUT, RetainedEntries, SUMMARY_MAX, Summary};

/// A security analyzer's verdict on an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub risk: Risk,
    /// The reason, shown to the approver; may be empty.
    pub reason: String,
}

/// The reason for condensing a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CondenseReason {
    /// The history is longer than the operator's limit.
    Size,
    /// The agent requested it.
    Requested,
    /// A prompt did not fit into its model's context.
    Overflow,
}

/// A range of history entries: `start` included, `end` excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySpan {
    pub start: u64,
    pub end: u64,
}

/// A text that replaces an entry's own: [`LEFT_OUT`], or the beginning or end of the entry's own
/// text with an `…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masked {
    pub index: u64,
    pub text: String,
}

/// A condenser's proposal for a history. The host checks it: a call is never separated from its
/// result (O-123, O-125).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condensation {
    /// The ranges of entries to drop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget: Vec<EntrySpan>,
    /// The entries to shorten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<Masked>,
    /// The text at the position of the first dropped entry; `None` for no summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// The limit in bytes of a gate's replacement text.
pub const GATE_INPUT_MAX: usize = 1 << 20;

/// A text on its way through a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateInput {
    pub point: GatePoint,
    pub room: RoomId,
    /// The channel it came from or goes to; `None` for a background task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<ChannelId>,
    /// The task that delegates, calls, asks, or that produced the result; `None` for none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_task: Option<TaskName>,
    /// The name of the task it is addressed to; `None` for no particular task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_task: Option<String>,
    /// The message, the brief of the worker, the question, or the text to deliver.
    pub text: String,
    /// A JSON object of further facts about it.
    pub metadata: Value,
}

/// A gate's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "gate", rename_all = "kebab-case")]
pub enum GateVerdict {
    Allow,
    /// The text passes with this replacement.
    Modify {
        text: String,
    },
    /// The text is blocked, with the reason for its sender.
    Block {
        reason: String,
    },
}

/// The limit in bytes of a simulated user's answer, and of a judge's result.
pub const RESULT_MAX: usize = 1 << 20;

/// An answer in a task, before it takes effect, with the host's ruling (L-054…L-062, L-081).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedAnswer {
    pub message: Arc<Message>,
    /// A role, or the name of a sub-task.
    pub responder: String,
    /// Whether it would become the pending message.
    pub valid: bool,
    /// Whether it would end the task.
    #[serde(rename = "done")]
    pub is_done: bool,
}

/// A judge's decision on an answer; `None` leaves the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ruling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<bool>,
    #[serde(rename = "done", skip_serializing_if = "Option::is_none")]
    pub is_done: Option<bool>,
    /// The judge's words for the agent whose answer it refuses, or does not take as the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

impl Ruling {
    /// The ruling for people: `valid, ends the task`.
    #[must_use]
    pub fn to_text(&self) -> String {
        let words = [
            self.valid.map(|valid| if valid { "valid" } else { "not valid" }),
            self.is_done
                .map(|is_done| if is_done { "ends the task" } else { "does not end the task" }),
            self.feedback.as_deref(),
        ];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        if words.is_empty() { "as the host ruled".to_owned() } else { words.join(", ") }
    }
}

/// A task's result: a text, with its structured value if it has one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// The end of a task with the result of the host's rules (L-088).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnding {
    pub status: Status,
    pub reason: String,
    pub result: TaskResult,
}

/// An observer's answer to a batch of events. An observer that fails has a fault instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "observe", rename_all = "kebab-case")]
pub enum ObserverReply {
    /// It took all events of the batch.
    Taken,
    /// It can take them later.
    Unavailable {
        /// The shortest pause before the next call, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// It was refused a capability without which it cannot continue. Another call would be refused
    /// as well.
    Denied,
}

/// A query to a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "kebab-case")]
pub enum PluginQuery {
    /// A query to a `memory`.
    Memories { query: String, limit: u32 },
    /// A query to a `security-analyzer`.
    Risk { action: Box<Action>, thought: String },
    /// A query to a `condenser`.
    Condense { reason: CondenseReason },
    /// A query to a `gate`.
    Gate { input: Box<GateInput> },
    /// An answer for a `judge`.
    Rule { answer: Box<JudgedAnswer> },
    /// The end of a task for a `judge`.
    Conclude { ending: Box<TaskEnding> },
    /// A question to a `simulated-user`; empty if there is nothing to show.
    AnswerAsUser { prompt: String },
    /// Events for an `observer`, all of one room.
    Observe { events: Arc<Vec<ObservedEvent>> },
    /// A message for a `channel`.
    Deliver { message: Box<ChannelMessage> },
    /// A request for a `channel`.
    Receive { request: Arc<ChannelRequest> },
}

impl PluginQuery {
    /// The interface that answers the query.
    #[must_use]
    pub fn kind(&self) -> PluginKind {
        match self {
            Self::Memories { .. } => PluginKind::Memory,
            Self::Risk { .. } => PluginKind::SecurityAnalyzer,
            Self::Condense { .. } => PluginKind::Condenser,
            Self::Gate { .. } => PluginKind::Gate,
            Self::Rule { .. } | Self::Conclude { .. } => PluginKind::Judge,
            Self::AnswerAsUser { .. } => PluginKind::SimulatedUser,
            Self::Observe { .. } => PluginKind::Observer,
            Self::Deliver { .. } | Self::Receive { .. } => PluginKind::Channel,
        }
    }
}

/// A plugin's reply to a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "advice", rename_all = "kebab-case")]
pub enum PluginReply {
    /// The memories, best first.
    Memories {
        memories: Vec<String>,
    },
    Risk {
        verdict: Verdict,
    },
    /// The condensation; `None` if the history stays as it is.
    Condense {
        condensation: Option<Condensation>,
    },
    Gate {
        verdict: GateVerdict,
    },
    Rule {
        ruling: Ruling,
    },
    /// The result in place of the host's; `None` if the host's stays.
    Conclude {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<TaskResult>,
    },
    /// The simulated user's words; `None` for no answer.
    AnswerAsUser {
        text: Option<String>,
    },
    Observe {
        reply: ObserverReply,
    },
    Deliver {
        delivery: ChannelDelivery,
    },
    Receive {
        reception: ChannelReception,
    },
}
