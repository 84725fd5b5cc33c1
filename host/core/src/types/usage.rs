//! The usage of runs and plugins, in the units of limits and budgets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::ids::PluginName;

/// The usage of one plugin's grants that hold for the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub tool_calls: u64,
    pub model_calls: u64,
    pub model_tokens: u64,
    pub model_cost: u64,
    pub background: u32,
    pub messages_sent: u64,
    /// Requests of `fetch`.
    #[serde(default)]
    pub requests: u64,
    /// Programs of `exec`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub programs: u64,
    /// Host names that these requests resolved, each once in a room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub host_names: u64,
    /// Wakes of a delivery strategy; counted for each room alone.
    pub wakes: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Used {
    /// The usage since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            tool_calls: self.tool_calls.saturating_sub(earlier.tool_calls),
            model_calls: self.model_calls.saturating_sub(earlier.model_calls),
            model_tokens: self.model_tokens.saturating_sub(earlier.model_tokens),
            model_cost: self.model_cost.saturating_sub(earlier.model_cost),
            background: self.background.saturating_sub(earlier.background),
            messages_sent: self.messages_sent.saturating_sub(earlier.messages_sent),
            requests: self.requests.saturating_sub(earlier.requests),
            programs: self.programs.saturating_sub(earlier.programs),
            host_names: self.host_names.saturating_sub(earlier.host_names),
            wakes: 0,
        }
    }

    /// Adds the other usage to this one.
    pub fn add(&mut self, more: Self) {
        self.tool_calls = self.tool_calls.saturating_add(more.tool_calls);
        self.model_calls = self.model_calls.saturating_add(more.model_calls);
        self.model_tokens = self.model_tokens.saturating_add(more.model_tokens);
        self.model_cost = self.model_cost.saturating_add(more.model_cost);
        self.background = self.background.saturating_add(more.background);
        self.messages_sent = self.messages_sent.saturating_add(more.messages_sent);
        self.requests = self.requests.saturating_add(more.requests);
        self.programs = self.programs.saturating_add(more.programs);
        self.host_names = self.host_names.saturating_add(more.host_names);
    }
}

/// The usage of each plugin that used anything.
pub type UsedByPlugin = BTreeMap<PluginName, Used>;

/// The usage of a run or a background task. Its limits are in [`RunLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub turns: u64,
    pub tokens: u64,
    pub cost_micro_usd: u64,
    /// Requests to models.
    #[serde(default)]
    pub model_calls: u64,
    /// Calls of plugins' tools.
    #[serde(default)]
    pub tool_calls: u64,
    /// Milliseconds of CPU time of plugins, in whole ticks of each call.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Background tasks that were started.
    #[serde(default)]
    pub tasks: u64,
}

impl Spent {
    /// The sum. Amounts come from child rooms and providers, so additions saturate instead of
    /// overflowing.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        self.with(more, u64::saturating_add)
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        self.with(less, u64::saturating_sub)
    }

    fn with(self, other: Self, each: fn(u64, u64) -> u64) -> Self {
        Self {
            turns: each(self.turns, other.turns),
            tokens: each(self.tokens, other.tokens),
            cost_micro_usd: each(self.cost_micro_usd, other.cost_micro_usd),
            model_calls: each(self.model_calls, other.model_calls),
            tool_calls: each(self.tool_calls, other.tool_calls),
            cpu_ms: each(self.cpu_ms, other.cpu_ms),
            tasks: each(self.tasks, other.tasks),
        }
    }
}
