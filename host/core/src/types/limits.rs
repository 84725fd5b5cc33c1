//! The limits of plugins and runs. Every limit here is enforced, and a guest in `tests/guests`
//! exceeds it.

use serde::{Deserialize, Serialize};

use crate::types::usage::Spent;

/// Limits of one plugin; those of a call start anew with each call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginLimits {
    /// Bytes of all memories together.
    pub memory: u64,
    /// Milliseconds of CPU time in one call, counted in ticks of ten.
    pub cpu_ms: u64,
    /// Milliseconds of one call, waiting included.
    pub wall_ms: u64,
    /// Bytes that the plugin sends to the host in one host call or answer.
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
    /// Bytes of all attachments that one call stores.
    pub blobs: u64,
    /// Concurrent calls into this plugin.
    pub at_once: u32,
    /// Elements of all tables together.
    pub table_elements: u32,
    /// Core instances: componentize-py needs more than ten.
    pub instances: u32,
    /// Bytes of the JSON text of a tool's arguments.
    pub arguments: u64,
    /// Elements of one list that the plugin sends to the host.
    pub list: u32,
    /// Bytes of the component: componentize-py makes about 20 MB.
    pub component: u64,
    /// Milliseconds for compiling the component.
    pub compile_ms: u64,
    /// Bytes of memory for compiling, in a separate process.
    pub compile_memory: u64,
}

/// The maximum of `table_elements`: the size of a table in the pool.
pub const TABLE_ELEMENTS_MAX: u32 = 100_000;
/// The maximum of `instances`.
pub const INSTANCES_MAX: u32 = 120;
/// The number of memories in a component.
pub const MEMORIES: usize = 4;
/// The number of tables in a component.
pub const TABLES: usize = 60;
/// The maximum of `component`, in bytes.
pub const COMPONENT_BYTES: u64 = 64 << 20;
/// The maximum of `arguments`.
pub const ARGUMENTS_MAX: u64 = 64 << 20;
/// The maximum of `list`.
pub const LIST_MAX: u32 = 1_000_000;
/// The maximum of `compile_time`, in milliseconds.
pub const COMPILE_MS_MAX: u64 = 60 * 60 * 1_000;
/// The maximum of `compile_memory`.
pub const COMPILE_MEMORY_MAX: u64 = 64 << 30;
/// The maximum of `host_calls`.
pub const HOST_CALLS_MAX: u64 = 1_000_000_000;
/// The maximum of `handles`.
pub const HANDLES_MAX: u32 = 1_000_000;
/// The maximum of `at_once`.
pub const AT_ONCE_MAX: u32 = 100_000;
/// The maximum of `read`.
pub const READ_MAX: u64 = 1 << 40;
/// The minimum of `memory`, a page: no component runs in less.
pub const MEMORY_MIN: u64 = 64 << 10;
/// The maximum of `memory`: the size of a slot in the pool.
pub const MEMORY_MAX: u64 = 1 << 30;
/// Milliseconds of one CPU tick.
pub const TICK_MS: u64 = 10;

impl PluginLimits {
    /// The limits of a plugin whose config sets none.
    pub const DEFAULT: Self = Self {
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
    };
}

impl Default for PluginLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The default limit of tool calls in a run: ten for each of its steps.
const TOOL_CALLS: u64 = 1_000;
/// The default limit of a room in bytes: some hundred times the largest context window of a model.
const HISTORY: u64 = 64 << 20;

/// Hard limits of a whole run, background tasks included. `None` stands for no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLimits {
    /// Steps of agents.
    pub turns: Option<u64>,
    /// Milliseconds from the first message.
    pub wall_ms: Option<u64>,
    /// Tokens of all models, input and output.
    pub tokens: Option<u64>,
    /// Micro-US-dollars of all models with a known price.
    pub cost_micro_usd: Option<u64>,
    /// Requests to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_calls: Option<u64>,
    /// Calls of plugins' tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Bytes of messages, calls and results that a room holds in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<u64>,
    /// Milliseconds of CPU time of all plugins together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Background tasks in total, nested ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Concurrent background tasks, nested ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_at_once: Option<u32>,
    /// Nesting levels of background tasks.
    pub depth: u32,
    /// Steps of any one activation of a task, those of all responders (L-050f: the global
    /// max_turns).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_turns: Option<u32>,
    /// The consequence of a limit that is used up.
    #[serde(default, skip_serializing_if = "WhenUsedUp::is_end")]
    pub when_used_up: WhenUsedUp,
}

/// The consequence of a limit that is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUsedUp {
    /// The run ends.
    #[default]
    End,
    /// An approver may raise the limit; the run ends if no approver is available.
    Ask,
}

impl WhenUsedUp {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_end(&self) -> bool {
        *self == Self::End
    }
}

impl RunLimits {
    /// The limits as usage, for a room that can no longer report its own.
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

impl RunLimits {
    /// The limits of a run whose config sets none.
    pub const DEFAULT: Self = Self {
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
    };
}

impl Default for RunLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
