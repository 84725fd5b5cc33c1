//! What a plugin and a run may use up at most. Every limit here is enforced, and has a guest in `tests/guests` that exceeds it.

use serde::{Deserialize, Serialize};

/// Limits on one plugin; those of a call start anew with each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginLimits {
    /// Bytes of all memories together.
    pub memory: u64,
    /// Milliseconds of computing in one call; counted in ticks of ten.
    pub cpu_ms: u64,
    /// Milliseconds that one call takes at most, waiting included.
    pub wall_ms: u64,
    /// Bytes that cross from the plugin to the host in one host call or answer.
    pub output: u64,
    /// Bytes of log lines and progress in one call.
    pub log: u64,
    /// Calls of host functions in one call.
    pub host_calls: u64,
    /// Host resources held at once.
    pub handles: u32,
    /// Bytes read from files in one call.
    pub read: u64,
    /// Bytes of scratch.
    pub scratch: u64,
    /// Calls into this plugin under way at once.
    pub at_once: u32,
}

/// Elements of all tables of a component together.
pub const TABLE_ELEMENTS: usize = 20_000;
/// Core instances in a component: componentize-py needs more than ten.
pub const CORE_INSTANCES: usize = 60;
/// Memories in a component.
pub const MEMORIES: usize = 4;
/// Tables in a component.
pub const TABLES: usize = 60;
/// Bytes of a component: componentize-py makes about 20 MB.
pub const COMPONENT_BYTES: u64 = 64 << 20;
/// The most that `memory` can be set to: what a slot of the pool can hold.
pub const MEMORY_MAX: u64 = 1 << 30;
/// Milliseconds of one CPU tick.
pub const TICK_MS: u64 = 10;

impl Default for PluginLimits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            cpu_ms: 1_000,
            wall_ms: 30_000,
            output: 1 << 20,
            log: 64 << 10,
            host_calls: 100_000,
            handles: 256,
            read: 64 << 20,
            scratch: 64 << 10,
            at_once: 32,
        }
    }
}

/// Hard stops for a whole run, background tasks included. None: no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Steps of agents.
    pub turns: Option<u64>,
    /// Milliseconds from the first message.
    pub wall_ms: Option<u64>,
    /// Tokens of all models, input and output.
    pub tokens: Option<u64>,
    /// Micro-US-dollars of all models whose price is known.
    pub cost_micro_usd: Option<u64>,
    /// Background tasks within background tasks.
    pub depth: u32,
    /// Steps of any one activation of a task, all seats counted (L-050f: the global max_turns).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_turns: Option<u32>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { turns: Some(100), wall_ms: Some(10 * 60 * 1000), tokens: None, cost_micro_usd: None, depth: 3, task_turns: None }
    }
}
