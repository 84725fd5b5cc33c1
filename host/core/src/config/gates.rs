//! `[[gates]]`: the plugins that are asked before a text passes, with their points and time limits
//!

use super::keys::GATES;
use super::policy::tool_pattern;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::permissions::grants::ToolPattern;
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
    let tools = match table.get("tools") {
        Some(item) => tools(reader, references, &item, on),
        None => Some(Vec::new()),
    };
    // An unreadable gate was reported, so the config is refused.
    Some(GateRule { on: on?, plugin: plugin?, deadline_ms, fails_open, tools: tools? })
}

/// Reads the tools whose calls or results a gate checks; `None` after a problem.
fn tools(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
    on: Option<GatePoint>,
) -> Option<Vec<ToolPattern>> {
    if let Some(on) = on.filter(|on| !on.is_of_tools()) {
        let what = format!("is for `tool-call` and `tool-result`, and not for `{}`", on.as_str());
        item.reject(reader, ProblemCode::Conflict, &what, "leave it out".to_owned());
        return None;
    }
    let entries = item.list(reader)?;
    if entries.is_empty() {
        let help = "leave it out for all tools".to_owned();
        item.reject(reader, ProblemCode::OutOfRange, "must name a tool", help);
        return None;
    }
    let patterns: Vec<Option<ToolPattern>> = entries
        .iter()
        .map(|entry| {
            let text = entry.string(reader)?;
            tool_pattern(reader, references, entry, (text, "gates"))
        })
        .collect();
    patterns.into_iter().collect()
}
