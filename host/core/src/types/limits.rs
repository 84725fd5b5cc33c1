//! What a plugin and a run may use up at most. Every limit here is enforced, and has a guest in
//! `tests/guests` that exceeds it.

use serde::{Deserialize, Serialize};

use crate::types::usage::Spent;

/// Limits on one plugin; those of a call start anew with each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    /// Bytes of attachments that one call keeps, all together.
    pub blobs: u64,
    /// Calls into this plugin under way at once.
    pub at_once: u32,
    /// Elements of all tables together.
    pub table_elements: u32,
    /// Core instances: componentize-py needs more than ten.
    pub instances: u32,
    /// Bytes of the JSON text of a tool's arguments.
    pub arguments: u64,
    /// Elements of one list that crosses from the plugin to the host.
    pub list: u32,
    /// Bytes of the component: componentize-py makes about 20 MB.
    pub component: u64,
    /// Milliseconds that compiling the component takes at most.
    pub compile_ms: u64,
    /// Bytes of memory that compiling takes at most, in a process of its own.
    pub compile_memory: u64,
}

/// The most that `table_elements` can be set to: what a table of the pool can hold.
pub const TABLE_ELEMENTS_MAX: u32 = 100_000;
/// The most that `instances` can be set to.
pub const INSTANCES_MAX: u32 = 120;
/// Memories in a component.
pub const MEMORIES: usize = 4;
/// Tables in a component.
pub const TABLES: usize = 60;
/// Bytes of a component; the most that `component` can be set to.
pub const COMPONENT_BYTES: u64 = 64 << 20;
/// The most that `arguments` can be set to.
pub const ARGUMENTS_MAX: u64 = 64 << 20;
/// The most that `list` can be set to.
pub const LIST_MAX: u32 = 1_000_000;
/// The most that `compile_time` can be set to, in milliseconds.
pub const COMPILE_MS_MAX: u64 = 60 * 60 * 1_000;
/// The most that `compile_memory` can be set to.
pub const COMPILE_MEMORY_MAX: u64 = 64 << 30;
/// The most that `host_calls` can be set to.
pub const HOST_CALLS_MAX: u64 = 1_000_000_000;
/// The most that `handles` can be set to.
pub const HANDLES_MAX: u32 = 1_000_000;
/// The most that `at_once` can be set to.
pub const AT_ONCE_MAX: u32 = 100_000;
/// The most that `read` can be set to.
pub const READ_MAX: u64 = 1 << 40;
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
            blobs: 16 << 20,
            at_once: 32,
            table_elements: 20_000,
            instances: 60,
            arguments: 1 << 20,
            list: 10_000,
            component: COMPONENT_BYTES,
            compile_ms: 300_000,
            compile_memory: 2 << 30,
        }
    }
}

/// Calls of tools of a run whose config says nothing: ten for each of its steps.
const TOOL_CALLS: u64 = 1_000;
/// Bytes that a room holds when the config says nothing: some hundred times the largest context
/// window of a model.
const HISTORY: u64 = 64 << 20;

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
    /// Requests to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Calls of plugins' tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Bytes that a room holds in memory of messages, calls and their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<u64>,
    /// Milliseconds of computing of all plugins together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Background tasks that are started, those of background tasks included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Background tasks under way at once, those of background tasks included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_at_once: Option<u32>,
    /// Background tasks within background tasks.
    pub depth: u32,
    /// Steps of any one activation of a task, all seats counted (L-050f: the global max_turns).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_turns: Option<u32>,
    /// What becomes of a run that has used one of them up.
    #[serde(default, skip_serializing_if = "WhenUsedUp::is_end")]
    pub when_used_up: WhenUsedUp,
}

/// What becomes of a run that has used up one of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUsedUp {
    /// It ends.
    #[default]
    End,
    /// An approver is asked for more; it ends when there is none.
    Ask,
}

impl WhenUsedUp {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_end(&self) -> bool {
        *self == Self::End
    }
}

impl RunLimits {
    /// All of it, as what was spent: of a room that nobody can ask any more.
    #[must_use]
    pub fn as_spent(&self) -> Spent {
        Spent {
            turns: self.turns.unwrap_or_default(),
            tokens: self.tokens.unwrap_or_default(),
            cost_micro_usd: self.cost_micro_usd.unwrap_or_default(),
            model_calls: self.model_calls.unwrap_or_default(),
            tool_calls: self.tool_calls.unwrap_or_default(),
            cpu_ms: self.cpu_ms.unwrap_or_default(),
            tasks: self.tasks.unwrap_or_default(),
        }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            turns: Some(100),
            wall_ms: Some(10 * 60 * 1000),
            tokens: None,
            cost_micro_usd: None,
            model_calls: None,
            tool_calls: Some(TOOL_CALLS),
            history: Some(HISTORY),
            cpu_ms: None,
            tasks: None,
            tasks_at_once: None,
            depth: 3,
            task_turns: None,
            when_used_up: WhenUsedUp::End,
        }
    }
}
