//! The state of an acting agent: its plan, its outputs and its background commands.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::action::Observation;
use crate::types::ids::{FrameId, PluginName};
use crate::types::plan::Plan;

/// The state of an acting agent, apart from its messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Acting {
    /// The agent's plan (O-057).
    #[serde(default)]
    pub plan: Arc<Plan>,
    /// The outputs of its last finish or reject action (O-022, O-023); null before.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub outputs: Value,
    /// The last error in its observations (O-051).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Its background commands by id (O-094).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<i64, Job>,
    /// Output of its background commands since its last step (O-054).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<UnreadOutput>,
}

impl Acting {
    /// Whether there is nothing to serialize.
    pub(in crate::room) fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

/// A background command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Job {
    pub command: String,
    pub plugin: PluginName,
    pub every_ms: u64,
    /// Consecutive polls without output.
    pub idle: u32,
    /// Consecutive failed polls.
    pub faults: u32,
    /// True if its output comes from outside.
    pub untrusted: bool,
}

/// Output of a background command since the agent's last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct UnreadOutput {
    pub command_id: i64,
    pub observation: Observation,
    pub untrusted: bool,
    /// True if the command is still running.
    pub goes_on: bool,
}

/// The purpose of an executor call outside a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::room) enum JobCall {
    Poll {
        frame: FrameId,
        command_id: i64,
    },
    /// Kills a command that no call waits for.
    Kill {
        command_id: i64,
    },
}
