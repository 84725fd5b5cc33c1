//! What an agent may see of its task: a snapshot that is cheap to take and read lazily. Not how a
//! plugin reads it.

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

/// What is left of each budget; none where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    pub turns: Option<u32>,
    pub tokens: Option<u64>,
    pub cost_micro_usd: Option<u64>,
    pub wall_ms: Option<u64>,
    pub model_calls: Option<u64>,
    pub tool_calls: Option<u64>,
}

/// The task as one call of its agent may see it.
#[derive(Clone, Debug)]
pub struct AgentView {
    pub task: TaskName,
    pub inputs: Arc<Value>,
    pub pending: Option<Arc<Message>>,
    pub history: History,
    /// What came since the previous step returned (O-053).
    pub since: Arc<Vec<PastAction>>,
    /// The latest thing that the user asked for (O-055).
    pub intent: Option<Arc<Message>>,
    pub plan: Arc<Plan>,
    /// What the agent gave when it last finished or rejected; null before.
    pub outputs: Arc<Value>,
    /// What the run has used up so far (O-050: metrics).
    pub spent: Spent,
    /// How many delegations are above it (O-088).
    pub level: u32,
    /// The last error that it was told of (O-051).
    pub last_error: Option<String>,
    pub tools: Arc<Vec<ToolSummary>>,
    pub peers: Arc<Vec<Peer>>,
    pub remaining: Remaining,
    pub iteration: u32,
}
