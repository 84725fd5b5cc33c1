//! `[[observers]]`: the plugins that receive the events of a run, with their filters and limits.

use std::collections::BTreeSet;

use super::ProblemCode;
use super::keys::OBSERVERS;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::setup::ObserverRule;
use crate::types::ids::PluginName;

/// Returns the observers in their order. A plugin stands in one entry at most: its room and its
/// cursor go by its name.
pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    root: &Table<'_>,
) -> Vec<ObserverRule> {
    let entries = root.get("observers").and_then(|item| item.list(reader)).unwrap_or_default();
    let mut rules: Vec<ObserverRule> = Vec::new();
    for entry in &entries {
        let Some((item, rule)) = observer(reader, references, entry) else { continue };
        if rules.iter().any(|earlier| earlier.plugin == rule.plugin) {
            let help = "write all its `events` into one [[observers]]".to_owned();
            item.reject(reader, ProblemCode::InvalidValue, "is an observer already", help);
            continue;
        }
        rules.push(rule);
    }
    rules
}

fn observer<'a>(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'a>,
) -> Option<(SpannedValue<'a>, ObserverRule)> {
    let table = item.table(reader, OBSERVERS)?;
    let plugin = table.require(reader, "plugin").and_then(|item| {
        let name = item.string(reader)?;
        references.add_plugin(&item, name);
        Some((item, PluginName::from(name)))
    });
    // An unknown kind is an error of its own, and leaves the list that was read without it.
    let events = table.get("events").and_then(|item| {
        let is_empty = item.list(reader)?.is_empty();
        let kinds: Vec<String> = item.read(reader)?;
        if is_empty {
            let help = "leave it out for all kinds".to_owned();
            item.reject(reader, ProblemCode::InvalidValue, "names no kind", help);
        }
        Some(kinds.into_iter().collect::<BTreeSet<String>>())
    });
    let (mut queue, mut deadline_ms, mut attempts) =
        (ObserverRule::QUEUE, ObserverRule::DEADLINE_MS, ObserverRule::ATTEMPTS);
    table.set(reader, "queue", &mut queue);
    table.set(reader, "deadline", &mut deadline_ms);
    table.set(reader, "attempts", &mut attempts);
    let (item, plugin) = plugin?;
    Some((item, ObserverRule { plugin, events, queue, deadline_ms, attempts }))
}
