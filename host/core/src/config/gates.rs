//! `[[gates]]`: the plugins that are asked before a text passes, with their points and time limits
//!

use super::keys::GATES;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::setup::{GatePoint, GateRule};
use crate::types::ids::PluginName;

/// Returns the gates, in the order in which they are asked.
pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
) -> Vec<GateRule> {
    let entries = root.get("gates").and_then(|item| item.list(reader)).unwrap_or_default();
    entries.iter().filter_map(|entry| gate(reader, references, entry)).collect()
}

fn gate(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Option<GateRule> {
    let table = item.table(reader, GATES)?;
    let on = table.require(reader, "on").and_then(|item| item.read::<GatePoint>(reader));
    let plugin = table.require(reader, "plugin").and_then(|item| {
        let name = item.string(reader)?;
        references.add_plugin(&item, name);
        Some(PluginName::from(name))
    });
    let deadline_ms = table.read(reader, "deadline").unwrap_or(GateRule::DEADLINE_MS);
    let fails_open = table.get("on_failure").and_then(|item| item.choice(reader)) == Some("pass");
    // An unreadable gate was reported, so the config is refused.
    Some(GateRule { on: on?, plugin: plugin?, deadline_ms, fails_open })
}
