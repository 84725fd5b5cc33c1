//! The part of `[tasks.NAME]` for background work: how its agent delegates (`background`), and how
//! it runs as a background task itself (`deadline`, `on_close`, `structured`).

use super::grants::names_of;
use super::keys::{BACKGROUND, BUDGET};
use super::reader::{ConfigReader, Table};
use super::references::References;
use super::task::flag;
use crate::setup::TaskBudget;
use crate::types::delegation::{BackgroundRules, CONVERSATION_MAX, OnClose};
use crate::types::ids::ChannelId;
use crate::types::limits::TICK_MS;
use crate::types::units::DURATION_MAX;

/// The minimum of `deadline`: a shorter one ends before any work.
const SHORTEST_MS: u64 = 10;
/// The maximum of re-prompts: an agent that has not returned a result by then never will.
const MOST_RETRIES: u64 = 100;
const COUNT_MAX: u64 = i64::MAX as u64;

/// `background`: shared channels, waiting calls, the cache of results, the part of the conversation
/// for workers.
pub(super) fn rules(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> BackgroundRules {
    let Some(table) = table.get("background").and_then(|item| item.table(reader, BACKGROUND))
    else {
        return BackgroundRules::default();
    };
    let conversation =
        table.get("conversation").and_then(|item| item.whole(reader, 0, CONVERSATION_MAX.into()));
    BackgroundRules {
        share: channels(reader, references, Some(&table), "share")
            .iter()
            .map(ToString::to_string)
            .collect(),
        wait: flag(reader, &table, "wait", false),
        cache_ms: table.get("cache").and_then(|item| item.duration(reader, 1, DURATION_MAX)),
        conversation: conversation.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
    }
}

/// `deadline`, in milliseconds.
pub(super) fn deadline(reader: &mut ConfigReader, table: &Table<'_>) -> Option<u64> {
    table.get("deadline").and_then(|item| item.duration(reader, SHORTEST_MS, DURATION_MAX))
}

/// `on_close`.
pub(super) fn on_close(reader: &mut ConfigReader, table: &Table<'_>) -> OnClose {
    match table.get("on_close").and_then(|item| item.choice(reader)) {
        Some("detach") => OnClose::Detach,
        Some("finish-silently") => OnClose::FinishSilently,
        _ => OnClose::Cascade,
    }
}

/// `structured`: the number of re-prompts for a result in the required form.
pub(super) fn structured(reader: &mut ConfigReader, table: &Table<'_>) -> Option<u32> {
    let retries = table.get("structured").and_then(|item| item.whole(reader, 0, MOST_RETRIES))?;
    u32::try_from(retries).ok()
}

/// `budget`: the limits in the background.
pub(super) fn budget(reader: &mut ConfigReader, table: &Table<'_>) -> TaskBudget {
    let Some(table) = table.get("budget").and_then(|item| item.table(reader, BUDGET)) else {
        return TaskBudget::default();
    };
    let mut count = |key: &str| table.get(key).and_then(|item| item.count(reader, COUNT_MAX));
    let (turns, tokens) = (count("turns"), count("tokens"));
    let (model_calls, tool_calls) = (count("model_calls"), count("tool_calls"));
    TaskBudget {
        turns,
        tokens,
        model_calls,
        tool_calls,
        cost_micro_usd: table.get("cost_usd").and_then(|item| item.spending(reader)),
        cpu_ms: table.get("cpu").and_then(|item| item.duration(reader, TICK_MS, DURATION_MAX)),
        tasks: table.get("tasks").and_then(|item| item.whole(reader, 0, COUNT_MAX)),
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
