//! How a task, and so a run, can end. Every ending says why, also when there is no result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::message::{Message, ToolCall};
use crate::types::usage::{Spent, UsedByPlugin};

/// Why a task stopped (L-090).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// It says that it is done.
    Done,
    /// Its agent says that it cannot be done.
    Rejected,
    /// It made as many steps as it was given (L-050f).
    FixedTurns,
    /// The run made as many steps as it may.
    MaxTurns,
    /// Nobody had a valid answer, several times in a row (L-084).
    Stalled,
    /// Somebody stopped it.
    Kill,
    /// The run took longer than it may.
    Timeout,
    /// The run spent more than it may (L-085).
    MaxCost,
    /// The run used more tokens than it may (L-085).
    MaxTokens,
    /// The run asked models, or called tools, as often as it may.
    MaxCalls,
    /// The run computed longer than it may.
    MaxCpu,
    /// A room held as much of messages, calls and results as it may.
    MaxHistory,
    /// It went round in circles (L-096, L-097).
    InfLoop,
    /// Its first message was for somebody else (L-050d).
    NotAddressed,
    /// Its agent failed again and again.
    Error,
    /// The user said goodbye (L-086).
    UserQuit,
    /// The host met a state that no events lead to: a defect of Conclave.
    InternalError,
}

/// Why the host itself ended a task, as a code that stays the same when the reason beside it is
/// reworded. Never taken from what an agent says: a worker that fails with the host's words has no
/// cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum EndCause {
    /// The time that the room was given is over.
    WallTime,
    /// It was cancelled, and nobody said why.
    Cancelled,
    /// Its result was never handed in with `submit_result`, so often was it asked.
    NoStructuredResult { attempts: u64 },
    /// It asked its user, there was none, and no other responder could answer.
    NobodyToAsk,
}

impl Status {
    /// The task got to an end that its operator wanted.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Done | Self::FixedTurns | Self::UserQuit)
    }

    /// A hard limit of the run ended it.
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
    /// An end without a result.
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

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// Why, in one sentence for people.
    pub reason: String,
    /// The same for programs, where the host ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EndCause>,
    /// The text of the result; none when there is none.
    pub content: Option<String>,
    /// The result, when it is more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whom the result is for, when it says so (L-070).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// Calls that are the result, or part of it (L-141…L-143).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolCall>,
    /// The result as what it was to be; none when it is not that, or nothing was asked for
    /// (L-050i).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<Value>,
    /// The message that the result was made of; none when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<Message>>,
    /// Background tasks included.
    pub spent: Spent,
    /// What each plugin used of its grants, what the rooms above had used included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub used: UsedByPlugin,
}
