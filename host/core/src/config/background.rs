//! The part of `[tasks.NAME]` for background work: how its agent delegates (`background`), and its
//! limits when it runs as a background task itself (`budget`).

use super::grants::names_of;
use super::keys::{BACKGROUND, BUDGET};
use super::reader::{ConfigReader, Table};
use super::references::References;
use super::task::plugin_name;
use crate::setup::TaskBudget;
use crate::types::delegation::BackgroundRules;
use crate::types::ids::{ChannelId, TaskName};

/// `background`: shared channels, waiting calls, the cache of results, the part of the conversation
/// for workers, the task to notify and the strategy.
pub(super) fn rules(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> BackgroundRules {
    let mut rules = BackgroundRules::default();
    let table = table.get("background").and_then(|item| item.table(reader, BACKGROUND));
    let Some(table) = table else { return rules };
    let share = channels(reader, references, Some(&table), "channels");
    rules.share = share.iter().map(ToString::to_string).collect();
    table.set(reader, "wait", &mut rules.wait);
    table.set(reader, "cache", &mut rules.cache_ms);
    table.set(reader, "conversation", &mut rules.conversation);
    if let Some(item) = table.get("notify")
        && let Some(name) = item.string(reader)
    {
        references.add_task(&item, name);
        rules.notify = Some(TaskName::from(name));
    }
    rules.delivery_strategy =
        table.get("delivery_strategy").and_then(|item| plugin_name(reader, references, &item));
    rules
}

/// `budget`: the limits in the background.
pub(super) fn budget(reader: &mut ConfigReader, table: &Table<'_>) -> TaskBudget {
    let Some(table) = table.get("budget").and_then(|item| item.table(reader, BUDGET)) else {
        return TaskBudget::default();
    };
    TaskBudget {
        turns: table.read(reader, "turns"),
        tokens: table.read(reader, "tokens"),
        model_calls: table.read(reader, "model_calls"),
        tool_calls: table.read(reader, "tool_calls"),
        cost_micro_usd: table.read(reader, "cost_usd"),
        cpu_ms: table.read(reader, "cpu"),
        tasks: table.read(reader, "tasks"),
    }
}

/// Returns the channels under this key; empty if it is not given.
pub(super) fn channels(
    reader: &mut ConfigReader,
    references: &mut References,
    table: Option<&Table<'_>>,
    key: &str,
) -> Vec<ChannelId> {
    let names = table
        .and_then(|table| table.get(key))
        .and_then(|item| names_of(reader, &item, false))
        .unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_channel(item, name));
    names.into_iter().map(|(_, name)| ChannelId::from(name)).collect()
}
