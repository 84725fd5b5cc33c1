//! Outcomes of tasks and runs. Every outcome has a reason, also one without a result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::message::{Message, ToolCall};
use crate::types::usage::{Spent, UsedByPlugin};

/// The status of a task that stopped (L-090).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// The task is done.
    Done,
    /// The agent rejected the task as impossible.
    Rejected,
    /// The task used its own limit of steps (L-050f).
    FixedTurns,
    /// The run used its limit of steps.
    MaxTurns,
    /// No responder had a valid answer, several times in a row (L-084).
    Stalled,
    /// The task was stopped.
    Kill,
    /// The run exceeded its time.
    Timeout,
    /// The run exceeded its cost (L-085).
    MaxCost,
    /// The run exceeded its tokens (L-085).
    MaxTokens,
    /// The run exceeded its model or tool calls.
    MaxCalls,
    /// The run exceeded its CPU time.
    MaxCpu,
    /// A room exceeded its memory for messages, calls and results.
    MaxHistory,
    /// Loop detection ended it (L-096, L-097).
    InfLoop,
    /// Its first message was addressed to another task (L-050d).
    NotAddressed,
    /// Its agent failed repeatedly.
    Error,
    /// The user quit (L-086).
    UserQuit,
    /// The host reached a state that no events lead to: a defect of Conclave.
    InternalError,
}

/// The cause of an end by the host, as a code that stays stable when the reason's text changes.
/// Never taken from an agent's text: a worker that fails with the same words has no cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum EndCause {
    /// The room's time limit was reached.
    WallTime,
    /// The task was cancelled without a reason.
    Cancelled,
    /// The result was not submitted with `submit_result` after this many requests.
    NoStructuredResult { attempts: u64 },
    /// The task asked its user, no user was present, and no other responder could answer.
    NobodyToAsk,
}

impl Status {
    /// Whether the task ended as its operator wanted.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Done | Self::FixedTurns | Self::UserQuit)
    }

    /// Whether a hard limit of the run ended the task.
    #[must_use]
    pub fn is_budget(self) -> bool {
        matches!(
            self,
            Self::MaxTurns
                | Self::MaxCost
                | Self::MaxTokens
                | Self::MaxCalls
                | Self::MaxCpu
                | Self::MaxHistory
        )
    }

    /// The word in JSON and in conformance cases.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::Rejected => "REJECTED",
            Self::FixedTurns => "FIXED_TURNS",
            Self::MaxTurns => "MAX_TURNS",
            Self::Stalled => "STALLED",
            Self::Kill => "KILL",
            Self::Timeout => "TIMEOUT",
            Self::MaxCost => "MAX_COST",
            Self::MaxTokens => "MAX_TOKENS",
            Self::MaxCalls => "MAX_CALLS",
            Self::MaxCpu => "MAX_CPU",
            Self::MaxHistory => "MAX_HISTORY",
            Self::InfLoop => "INF_LOOP",
            Self::NotAddressed => "NOT_ADDRESSED",
            Self::Error => "ERROR",
            Self::UserQuit => "USER_QUIT",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }
}

impl Outcome {
    /// Returns an outcome without a result.
    #[must_use]
    pub fn new(status: Status, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            cause: None,
            content: None,
            value: None,
            recipient: None,
            tools: Vec::new(),
            typed: None,
            message: None,
            spent: Spent::default(),
            used: UsedByPlugin::new(),
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// The reason, in one sentence for people.
    pub reason: String,
    /// The reason as a code, if the host ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndCause>,
    /// The text of the result, if any.
    pub content: Option<String>,
    /// The result, if it is more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The recipient that the result names (L-070).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// Tool calls that are the result, or part of it (L-141…L-143).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolCall>,
    /// The result in its requested type; `None` if it does not fit, or no type was requested
    /// (L-050i).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<Value>,
    /// The message that the result was made from, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<Message>>,
    /// The usage, background tasks included.
    pub spent: Spent,
    /// The usage of grants by each plugin, that of the rooms above included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: UsedByPlugin,
}
