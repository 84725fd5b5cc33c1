//! `limits` of a plugin and `[limits.run]`. Every limit that is accepted here is enforced.

use super::reader::{ConfigReader, SpannedValue, Table};
use crate::types::limits::{
    ARGUMENTS_MAX, AT_ONCE_MAX, COMPILE_MEMORY_MAX, COMPILE_MS_MAX, COMPONENT_BYTES, HANDLES_MAX,
    HOST_CALLS_MAX, INSTANCES_MAX, LIST_MAX, MEMORY_MAX, PluginLimits, READ_MAX, RunLimits,
    TABLE_ELEMENTS_MAX, TICK_MS, WhenUsedUp,
};
use crate::types::units::DURATION_MAX;

/// Bytes of a page: no component runs in less.
const MEMORY_MIN: u64 = 64 << 10;
/// The largest integer of TOML.
const COUNT_MAX: u64 = i64::MAX as u64;

/// Returns the limits of a plugin, with defaults for missing keys.
pub(crate) fn read_plugin(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> PluginLimits {
    let mut limits = PluginLimits::default();
    let Some(table) = item.table(reader, "plugins.NAME.limits") else { return limits };
    set(&table, "memory", &mut limits.memory, |item| item.size(reader, MEMORY_MIN, MEMORY_MAX));
    set(&table, "cpu", &mut limits.cpu_ms, |item| item.duration(reader, TICK_MS, DURATION_MAX));
    set(&table, "wall", &mut limits.wall_ms, |item| item.duration(reader, 1, DURATION_MAX));
    // Everything that a plugin returns or stores was in its memory before.
    set(&table, "output", &mut limits.output, |item| item.size(reader, 1, MEMORY_MAX));
    set(&table, "log", &mut limits.log, |item| item.size(reader, 1, MEMORY_MAX));
    set(&table, "scratch", &mut limits.scratch, |item| item.size(reader, 1, MEMORY_MAX));
    set(&table, "blobs", &mut limits.blobs, |item| item.size(reader, 1, MEMORY_MAX));
    set(&table, "read", &mut limits.read, |item| item.size(reader, 1, READ_MAX));
    set(&table, "host_calls", &mut limits.host_calls, |item| item.count(reader, HOST_CALLS_MAX));
    set(&table, "handles", &mut limits.handles, |item| count_to(reader, item, HANDLES_MAX));
    set(&table, "at_once", &mut limits.at_once, |item| count_to(reader, item, AT_ONCE_MAX));
    set(&table, "table_elements", &mut limits.table_elements, |item| {
        count_to(reader, item, TABLE_ELEMENTS_MAX)
    });
    set(&table, "instances", &mut limits.instances, |item| count_to(reader, item, INSTANCES_MAX));
    set(&table, "arguments", &mut limits.arguments, |item| item.size(reader, 1, ARGUMENTS_MAX));
    set(&table, "list", &mut limits.list, |item| count_to(reader, item, LIST_MAX));
    set(&table, "component", &mut limits.component, |item| item.size(reader, 1, COMPONENT_BYTES));
    set(&table, "compile_time", &mut limits.compile_ms, |item| {
        item.duration(reader, 1, COMPILE_MS_MAX)
    });
    set(&table, "compile_memory", &mut limits.compile_memory, |item| {
        item.size(reader, 1, COMPILE_MEMORY_MAX)
    });
    limits
}

/// Returns the limits of the whole run, with defaults for missing keys.
pub(crate) fn read_run(reader: &mut ConfigReader, root: &Table<'_>) -> RunLimits {
    let mut limits = RunLimits::default();
    let Some(section) = root.get("limits").and_then(|item| item.table(reader, "limits")) else {
        return limits;
    };
    let Some(table) = section.get("run").and_then(|item| item.table(reader, "limits.run")) else {
        return limits;
    };
    set(&table, "wall", &mut limits.wall_ms, |item| {
        item.duration(reader, 1, DURATION_MAX).map(Some)
    });
    set(&table, "turns", &mut limits.turns, |item| item.count(reader, COUNT_MAX).map(Some));
    set(&table, "task_turns", &mut limits.task_turns, |item| count32(reader, item).map(Some));
    set(&table, "tokens", &mut limits.tokens, |item| item.count(reader, COUNT_MAX).map(Some));
    set(&table, "cost_usd", &mut limits.cost_micro_usd, |item| item.spending(reader).map(Some));
    set(&table, "model_calls", &mut limits.model_calls, |item| {
        item.count(reader, COUNT_MAX).map(Some)
    });
    set(&table, "tool_calls", &mut limits.tool_calls, |item| {
        item.count(reader, COUNT_MAX).map(Some)
    });
    set(&table, "history", &mut limits.history, |item| item.size(reader, 1, COUNT_MAX).map(Some));
    set(&table, "cpu", &mut limits.cpu_ms, |item| {
        item.duration(reader, TICK_MS, DURATION_MAX).map(Some)
    });
    set(&table, "tasks", &mut limits.tasks, |item| item.count(reader, COUNT_MAX).map(Some));
    set(&table, "tasks_at_once", &mut limits.tasks_at_once, |item| count32(reader, item).map(Some));
    set(&table, "when_used_up", &mut limits.when_used_up, |item| when_used_up(reader, item));
    // 0 is allowed here: background tasks then start none of their own.
    set(&table, "depth", &mut limits.depth, |item| {
        item.whole(reader, 0, u64::from(u32::MAX)).and_then(|depth| u32::try_from(depth).ok())
    });
    limits
}

fn when_used_up(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<WhenUsedUp> {
    Some(if item.choice(reader)? == "ask" { WhenUsedUp::Ask } else { WhenUsedUp::End })
}

/// Reads a count of 32 bits.
pub(crate) fn count32(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<u32> {
    count_to(reader, item, u32::MAX)
}

fn count_to(reader: &mut ConfigReader, item: &SpannedValue<'_>, most: u32) -> Option<u32> {
    item.count(reader, u64::from(most)).and_then(|count| u32::try_from(count).ok())
}

fn set<T>(
    table: &Table<'_>,
    name: &str,
    limit: &mut T,
    mut read: impl FnMut(&SpannedValue<'_>) -> Option<T>,
) {
    if let Some(value) = table.get(name).and_then(|item| read(&item)) {
        *limit = value;
    }
}
