//! A row of a timeline: a span of time or a moment.

use serde::{Deserialize, Serialize};

use crate::protocol::notice::SkippedResponder;
use crate::types::completion::TokenUsage;
use crate::types::denial::Layer;
use crate::types::fault::CallReport;
use crate::types::ids::{BackgroundId, ChannelId, ModelName, PluginName, RoomId, TaskName};
use crate::types::limits::TICK_MS;
use crate::types::message::Role;
use crate::types::outcome::Status;
use crate::types::plugin_kind::PluginKind;

/// A row of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineRow {
    pub room: RoomId,
    /// The sequence number of the record that began it: `room:seq` is its address.
    pub seq: u64,
    /// The number of rows above it in the tree.
    pub depth: u32,
    pub start_ms: u64,
    /// The end; `None` if the newest record was written before it. Equal to the start for a moment.
    pub end_ms: Option<u64>,
    /// Whether its end was no longer awaited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    #[serde(flatten)]
    pub what: RowSubject,
}

/// The resource usage of a call: in its sandbox, or outside of one, which has no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxUsage {
    pub wall_us: u64,
    /// Milliseconds of CPU time, in whole ticks of ten.
    pub cpu_ms: u64,
    /// The peak memory in bytes.
    pub memory: u64,
}

impl SandboxUsage {
    /// The usage of a call; `None` if nothing ran.
    #[must_use]
    pub fn of(report: &CallReport) -> Option<Self> {
        let sandbox = Self {
            wall_us: report.wall_us,
            cpu_ms: report.cpu_ticks.saturating_mul(TICK_MS),
            memory: report.memory,
        };
        (sandbox != Self::default()).then_some(sandbox)
    }

    /// Whether the call ran in a sandbox. Each has memory of its own; a call of a foreign server or
    /// of the embedding program has none.
    #[must_use]
    pub fn is_sandboxed(&self) -> bool {
        self.memory > 0
    }
}

/// The subject of a row. Texts are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum RowSubject {
    /// A task, from its first message to its result.
    Task {
        task: TaskName,
        agent: PluginName,
        caller: Option<TaskName>,
        status: Option<Status>,
        reason: String,
    },
    /// A step of an agent in its sandbox.
    Step {
        task: TaskName,
        agent: PluginName,
        says: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A request to a model.
    Model {
        task: Option<TaskName>,
        plugin: PluginName,
        model: ModelName,
        /// The model's name in the provider's words.
        answered_by: Option<String>,
        usage: TokenUsage,
        error: Option<String>,
    },
    /// A tool call, also one that was answered without starting a tool.
    Tool {
        task: TaskName,
        /// The calling plugin; `None` if the call was answered at once.
        caller: Option<PluginName>,
        name: String,
        arguments: String,
        answer: String,
        is_error: bool,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A side effect of a plugin.
    SideEffect {
        plugin: PluginName,
        verb: String,
        target: String,
        bytes: Option<u64>,
        came: Option<Effected>,
    },
    /// A question to an approver.
    Approval {
        task: TaskName,
        caller: PluginName,
        tool: String,
        arguments: String,
        source: String,
        given: Option<Given>,
        /// The approver, for people; `None` while the question is pending.
        author: Option<String>,
    },
    /// A request to raise a limit of the run; `more` is in the budget's smallest unit.
    TopUp { budget: String, more: Option<u64>, reason: Option<String> },
    /// A request to a model without an answer; its tokens are counted.
    AttemptLost { model: ModelName, tokens: u64, cost_micro_usd: u64, reason: Option<String> },
    /// A money limit without effect, because the model's price is unknown.
    PriceUnknown { model: ModelName, limit: String },
    /// A question to the user; `None` if there was no answer.
    User { task: TaskName, channel: ChannelId, prompt: String, answer: Option<String> },
    /// A background task, with its rows below it.
    Background {
        id: BackgroundId,
        task: TaskName,
        child: RoomId,
        status: Option<String>,
        came: String,
    },
    /// A query to a memory, a security analyzer or a condenser.
    PluginQuery {
        task: TaskName,
        plugin: PluginName,
        kind: PluginKind,
        asks: String,
        says: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A call of a delivery strategy.
    Strategy {
        strategy: PluginName,
        wake: String,
        decided: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A result that reached a channel.
    Delivered {
        id: BackgroundId,
        task: TaskName,
        /// The strategy that delivered it; `None` for the host.
        strategy: Option<PluginName>,
        channel: ChannelId,
        text: String,
    },
    /// A result that was not delivered, and why.
    NotDelivered { id: BackgroundId, task: TaskName, reason: String },
    /// A refusal.
    Denied {
        plugin: PluginName,
        capability: String,
        target: String,
        layer: Layer,
        reason: String,
        suggestion: Option<String>,
    },
    /// A step without a valid answer.
    Stalled {
        task: TaskName,
        stalled: u32,
        of: u32,
        /// The responders that were not asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<SkippedResponder>,
    },
    /// The answer of a step whose message passed by responders before it, in order. Steps that
    /// passed over only those that nearly every step passes over have no such row.
    PassedOver { task: TaskName, by: String, skipped: Vec<SkippedResponder> },
    /// Older messages that were left out for a model.
    HistoryCut { task: TaskName, cut: u64, dropped: u64 },
    /// A further message of the same conversation.
    Message { task: TaskName, text: String },
    /// A message that somebody wrote on a channel of the conversation. Without an outcome, gates
    /// still check it.
    Inbound {
        channel: ChannelId,
        /// The sender in the channel's words; empty if the channel names none.
        sender: String,
        text: String,
        outcome: Option<InboundOutcome>,
    },
    /// The resumption of the run after an interruption of its host. The time is an upper bound
    /// unless it is exact.
    Resumed { down_ms: u64, is_exact: bool },
    /// A host took the run over from another, or from an earlier process of its own.
    TakenOver { host: String, epoch: u64 },
    /// A component that was rebuilt.
    Replaced { plugin: PluginName, sha256: String },
    /// A stopped task; `None` for the current turn or the whole run.
    Stopped { task: Option<TaskName>, by: Role, reason: String },
    /// Another event of the journal, by its own name.
    Other { event: String },
}

impl TimelineRow {
    /// Whether this is a message that has a row already, or a turn of the user without a question
    /// and an answer.
    pub(super) fn says_nothing(&self) -> bool {
        if let RowSubject::Inbound { outcome: Some(InboundOutcome::Repeated), .. } = &self.what {
            return true;
        }
        let RowSubject::User { prompt, answer, .. } = &self.what else { return false };
        self.end_ms.is_some()
            && prompt.trim().is_empty()
            && answer.as_deref().unwrap_or_default().trim().is_empty()
    }
}

/// The result of a side effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "came", rename_all = "kebab-case")]
pub enum Effected {
    Done {
        length: u64,
    },
    Answered {
        status: u16,
        length: u64,
        address: Option<String>,
    },
    /// A program ended, as `ending` says; `length` is that of its output.
    Ran {
        ending: String,
        length: u64,
    },
    Denied {
        target: String,
    },
    Failed {
        message: String,
    },
}

/// What became of a message from a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum InboundOutcome {
    Accepted,
    /// The sender had the reply to an earlier copy of it, or it was one more of a flood whose
    /// refusal has a row.
    Repeated,
    Refused {
        reason: String,
    },
}

/// An approver's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "given", rename_all = "kebab-case")]
pub enum Given {
    Approved,
    Edited { arguments: String },
    Refused { reason: String },
}

impl RowSubject {
    /// The word of its kind, the same as in JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Task { .. } => "task",
            Self::Step { .. } => "step",
            Self::Model { .. } => "model",
            Self::Tool { .. } => "tool",
            Self::SideEffect { .. } => "side-effect",
            Self::Approval { .. } => "approval",
            Self::TopUp { .. } => "top-up",
            Self::AttemptLost { .. } => "attempt-lost",
            Self::PriceUnknown { .. } => "price-unknown",
            Self::User { .. } => "user",
            Self::Background { .. } => "background",
            Self::PluginQuery { .. } => "consult",
            Self::Strategy { .. } => "strategy",
            Self::Delivered { .. } => "delivered",
            Self::NotDelivered { .. } => "not-delivered",
            Self::Denied { .. } => "denied",
            Self::Stalled { .. } => "stalled",
            Self::PassedOver { .. } => "passed-over",
            Self::HistoryCut { .. } => "history-cut",
            Self::Message { .. } => "message",
            Self::Inbound { .. } => "inbound",
            Self::Resumed { .. } => "resumed",
            Self::TakenOver { .. } => "taken-over",
            Self::Replaced { .. } => "replaced",
            Self::Stopped { .. } => "stopped",
            Self::Other { .. } => "other",
        }
    }

    /// Whether a reader of a long run should notice the row: a refusal, a fault, a stop, an
    /// approval.
    #[must_use]
    pub fn stands_out(&self) -> bool {
        match self {
            Self::Step { fault, .. }
            | Self::Strategy { fault, .. }
            | Self::PluginQuery { fault, .. } => fault.is_some(),
            Self::Tool { is_error, .. } => *is_error,
            Self::Model { error, .. } => error.is_some(),
            Self::SideEffect { came, .. } => {
                matches!(came, Some(Effected::Denied { .. } | Effected::Failed { .. }))
            }
            Self::Inbound { outcome, .. } => {
                matches!(outcome, Some(InboundOutcome::Refused { .. }))
            }
            Self::Task { status, .. } => status.is_some_and(|status| !status.is_success()),
            Self::User { .. }
            | Self::PassedOver { .. }
            | Self::HistoryCut { .. }
            | Self::Message { .. } => false,
            _ => true,
        }
    }

    /// The call's usage of its sandbox.
    #[must_use]
    pub fn sandbox(&self) -> Option<SandboxUsage> {
        match self {
            Self::Step { sandbox, .. }
            | Self::Tool { sandbox, .. }
            | Self::Strategy { sandbox, .. }
            | Self::PluginQuery { sandbox, .. } => *sandbox,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_memory_was_in_no_sandbox() {
        let report = |memory| CallReport { wall_us: 5_000, memory, ..CallReport::default() };
        let sandboxed = |memory| SandboxUsage::of(&report(memory)).map(|used| used.is_sandboxed());
        assert_eq!([sandboxed(0), sandboxed(65_536)], [Some(false), Some(true)]);
        assert_eq!(SandboxUsage::of(&CallReport::default()), None);
    }
}
