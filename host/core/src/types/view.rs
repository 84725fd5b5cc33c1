//! An agent's view of its task: a snapshot that is cheap to take and read lazily. Does not define
//! how a plugin reads it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::action::PastAction;
use crate::types::history::History;
use crate::types::ids::TaskName;
use crate::types::message::Message;
use crate::types::plan::Plan;
use crate::types::tool::ToolSummary;
use crate::types::usage::Spent;

/// Another task that the agent may hand work to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub name: TaskName,
    pub description: String,
}

/// The rest of each budget; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remaining {
    pub turns: Option<u32>,
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub wall_ms: Option<u64>,
    pub model_calls: Option<u64>,
    pub tool_calls: Option<u64>,
}

/// The conversation around a tool call, for a tool that was granted to read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConversationView {
    /// The message that carried the call, or that led to it.
    pub calling: Arc<Message>,
    pub inputs: Arc<Value>,
    pub history: History,
    /// The number of the history's newest messages that the call may read.
    pub messages: u32,
}

impl ConversationView {
    /// The part of the history that the call may read, as a range of indices.
    #[must_use]
    pub fn window(&self) -> std::ops::Range<usize> {
        let length = self.history.len();
        let most = usize::try_from(self.messages).unwrap_or(usize::MAX);
        length.saturating_sub(most)..length
    }
}

/// The view of a task for one call of its agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentView {
    pub task: TaskName,
    pub inputs: Arc<Value>,
    pub pending: Option<Arc<Message>>,
    pub history: History,
    /// The actions and observations since the previous step returned (O-053).
    pub since: Arc<Vec<PastAction>>,
    /// The latest message of the user (O-055).
    pub latest_user_message: Option<Arc<Message>>,
    pub plan: Arc<Plan>,
    /// The outputs of the agent's latest finish or rejection; null before.
    pub outputs: Arc<Value>,
    /// The usage of the run so far (O-050: metrics).
    pub spent: Spent,
    /// The number of delegations above it (O-088).
    pub level: u32,
    /// The last error that the agent got (O-051).
    pub last_error: Option<String>,
    pub tools: Arc<Vec<ToolSummary>>,
    pub peers: Arc<Vec<Peer>>,
    pub remaining: Remaining,
    pub iteration: u32,
}
