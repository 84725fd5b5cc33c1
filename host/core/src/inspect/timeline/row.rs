//! A row of a timeline: one thing that took time, or happened at a moment.

use serde::{Deserialize, Serialize};

use crate::setup::PluginKind;
use crate::types::completion::TokenUsage;
use crate::types::denial::Layer;
use crate::types::fault::CallReport;
use crate::types::ids::{BackgroundId, ChannelId, ModelName, PluginName, RoomId, TaskName};
use crate::types::limits::TICK_MS;
use crate::types::message::Entity;
use crate::types::outcome::Status;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineRow {
    pub room: RoomId,
    /// The record in whose course it began: `room:seq` is its address.
    pub seq: u64,
    /// How many rows it is below.
    pub depth: u32,
    pub start_ms: u64,
    /// None: it had not ended when the newest record was kept. The same as the start: it is a
    /// moment.
    pub end_ms: Option<u64>,
    /// Nobody waited for its end any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    #[serde(flatten)]
    pub what: RowSubject,
}

/// What a call used up in its sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxUsage {
    pub wall_us: u64,
    /// Milliseconds of computing, counted in whole ticks of ten.
    pub cpu_ms: u64,
    /// Bytes, at most.
    pub memory: u64,
}

impl SandboxUsage {
    /// None: no sandbox ran.
    pub(super) fn of(report: &CallReport) -> Option<Self> {
        let sandbox = Self {
            wall_us: report.wall_us,
            cpu_ms: report.cpu_ticks.saturating_mul(TICK_MS),
            memory: report.memory,
        };
        (sandbox != Self::default()).then_some(sandbox)
    }
}

/// What a row is about. Texts are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum RowSubject {
    /// A task, from its first message to its result.
    Task {
        task: TaskName,
        agent: PluginName,
        caller: Option<TaskName>,
        status: Option<Status>,
        reason: String,
    },
    /// An agent at work in its sandbox.
    Step {
        task: TaskName,
        agent: PluginName,
        says: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A model was asked.
    Model {
        task: Option<TaskName>,
        plugin: PluginName,
        model: ModelName,
        /// In the provider's words.
        answered_by: Option<String>,
        usage: TokenUsage,
        error: Option<String>,
    },
    /// A tool at work; or a call that was answered without starting one.
    Tool {
        task: TaskName,
        /// None where it was answered at once.
        caller: Option<PluginName>,
        name: String,
        arguments: String,
        answer: String,
        is_error: bool,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A plugin did something to the world.
    SideEffect {
        plugin: PluginName,
        verb: String,
        target: String,
        bytes: Option<u64>,
        came: Option<Effected>,
    },
    /// An approver was asked.
    Approval {
        task: TaskName,
        caller: PluginName,
        tool: String,
        arguments: String,
        source: String,
        given: Option<Given>,
        /// Who answered, for people; none: nobody has yet.
        author: Option<String>,
    },
    /// A budget of the run was used up, and more was asked for; `more` in its smallest unit.
    TopUp { budget: String, more: Option<u64>, reason: Option<String> },
    /// A request to a model that has no answer; what it had sent is counted.
    AttemptLost { model: ModelName, tokens: u64, cost_micro_usd: u64 },
    /// A limit on money holds nothing back: nobody knows what the model costs.
    PriceUnknown { model: ModelName, limit: String },
    /// A person was asked; none: there was no answer.
    User { task: TaskName, channel: ChannelId, prompt: String, answer: Option<String> },
    /// A task in the background, whose rows are below it.
    Background {
        id: BackgroundId,
        task: TaskName,
        child: RoomId,
        status: Option<String>,
        came: String,
    },
    /// A memory, a security analyzer or a condenser at work.
    Consult {
        task: TaskName,
        plugin: PluginName,
        kind: PluginKind,
        asks: String,
        says: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A delivery strategy at work.
    Strategy {
        strategy: PluginName,
        wake: String,
        decided: String,
        fault: Option<String>,
        sandbox: Option<SandboxUsage>,
    },
    /// A result was spoken on a channel.
    Delivered {
        id: BackgroundId,
        task: TaskName,
        strategy: PluginName,
        channel: ChannelId,
        text: String,
    },
    /// It was not, and why.
    NotDelivered { id: BackgroundId, task: TaskName, reason: String },
    /// Something was refused.
    Denied {
        plugin: PluginName,
        capability: String,
        target: String,
        layer: Layer,
        reason: String,
        suggestion: Option<String>,
    },
    /// Nobody had a valid answer.
    Stalled { task: TaskName, stalled: u32, of: u32 },
    /// Older messages were left out for a model.
    HistoryCut { task: TaskName, cut: u64, dropped: u64 },
    /// Another message of the same conversation.
    Message { task: TaskName, text: String },
    /// The run went on after its host had stopped in the middle.
    Resumed { down_ms: u64 },
    /// A component was built anew.
    Replaced { plugin: PluginName, sha256: String },
    /// Somebody stopped a task, or all; none: the turn, or the run.
    Stopped { task: Option<TaskName>, by: Entity, reason: String },
    /// Something else that the journal tells, in its own word.
    Other { event: String },
}

impl TimelineRow {
    /// A turn of a person in which nothing was asked and nothing said.
    pub(super) fn says_nothing(&self) -> bool {
        let RowSubject::User { prompt, answer, .. } = &self.what else { return false };
        self.end_ms.is_some()
            && prompt.trim().is_empty()
            && answer.as_deref().unwrap_or_default().trim().is_empty()
    }
}

/// How a side effect went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "came", rename_all = "kebab-case")]
pub enum Effected {
    Done { length: u64 },
    Answered { status: u16, length: u64, address: Option<String> },
    Denied { target: String },
    Failed { message: String },
}

/// What an approver said.
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
            Self::Consult { .. } => "consult",
            Self::Strategy { .. } => "strategy",
            Self::Delivered { .. } => "delivered",
            Self::NotDelivered { .. } => "not-delivered",
            Self::Denied { .. } => "denied",
            Self::Stalled { .. } => "stalled",
            Self::HistoryCut { .. } => "history-cut",
            Self::Message { .. } => "message",
            Self::Resumed { .. } => "resumed",
            Self::Replaced { .. } => "replaced",
            Self::Stopped { .. } => "stopped",
            Self::Other { .. } => "other",
        }
    }

    /// Whoever looks through a long run should not miss it: a refusal, a fault, a stop, an
    /// approval.
    #[must_use]
    pub fn stands_out(&self) -> bool {
        match self {
            Self::Step { fault, .. }
            | Self::Strategy { fault, .. }
            | Self::Consult { fault, .. } => fault.is_some(),
            Self::Tool { is_error, .. } => *is_error,
            Self::Model { error, .. } => error.is_some(),
            Self::SideEffect { came, .. } => {
                matches!(came, Some(Effected::Denied { .. } | Effected::Failed { .. }))
            }
            Self::Task { status, .. } => status.is_some_and(|status| !status.is_success()),
            Self::User { .. } | Self::HistoryCut { .. } | Self::Message { .. } => false,
            _ => true,
        }
    }

    /// What the call used up in its sandbox.
    #[must_use]
    pub fn sandbox(&self) -> Option<SandboxUsage> {
        match self {
            Self::Step { sandbox, .. }
            | Self::Tool { sandbox, .. }
            | Self::Strategy { sandbox, .. }
            | Self::Consult { sandbox, .. } => *sandbox,
            _ => None,
        }
    }
}
