//! `[[gates]]`: the plugins that are asked before a text passes, with their points and time limits
//!

use super::keys::GATES;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::setup::{GatePoint, GateRule};
use crate::types::ids::PluginName;

/// The default time limit in milliseconds.
const DEADLINE_MS: u64 = 1_000;
/// The maximum time limit in milliseconds: a sender would not wait longer for a message to pass.
const LONGEST_MS: u64 = 60_000;

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
    let on =
        table.require(reader, "on").and_then(|item| item.choice(reader)).map(|point| match point {
            "inbound" => GatePoint::Inbound,
            "delegate" => GatePoint::Delegate,
            _ => GatePoint::Deliver,
        });
    let plugin = table.require(reader, "plugin").and_then(|item| {
        let name = item.string(reader)?;
        references.add_plugin(&item, name);
        Some(PluginName::from(name))
    });
    let deadline = table.get("deadline").map(|item| item.duration(reader, 1, LONGEST_MS));
    let fails_open = table.get("on_failure").and_then(|item| item.choice(reader)) == Some("pass");
    // An unreadable gate was reported, so the config is refused.
    Some(GateRule {
        on: on?,
        plugin: plugin?,
        deadline_ms: deadline.flatten().unwrap_or(DEADLINE_MS),
        fails_open,
    })
}
