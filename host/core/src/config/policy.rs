//! `[[policy]]`: which tool calls run, are refused, or wait for an approval.

use super::grants::patterns;
use super::keys::POLICY;
use super::reader::{Item, Reader, Table};
use super::references::References;
use super::units::DURATION_MAX;
use crate::ids::PluginName;
use crate::policy::{Decide, Rule};

pub(crate) fn read_all(reader: &mut Reader, references: &mut References, root: &Table<'_>) -> Vec<Rule> {
    let entries = root.get("policy").and_then(|item| item.list(reader)).unwrap_or_default();
    entries.iter().filter_map(|entry| rule(reader, references, entry)).collect()
}

fn rule(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<Rule> {
    let table = item.table(reader, POLICY)?;
    let tool = table.require(reader, "tool").and_then(|item| {
        let text = item.string(reader)?;
        patterns(reader, references, vec![(item.clone(), text)]).pop()
    });
    let caller = table.get("caller").and_then(|item| {
        let name = item.string(reader)?;
        references.add_plugin(&item, name);
        Some(PluginName::from(name))
    });
    let decide = table.require(reader, "decide").and_then(|item| item.choice(reader));
    let expires = table.get("expires");
    if let Some(item) = expires.as_ref().filter(|_| decide.is_some_and(|decide| decide != "ask")) {
        item.wrong(reader, "is for rules that ask", "leave it out".to_owned());
    }
    let expires_ms = expires.and_then(|item| item.duration(reader, 1, DURATION_MAX));
    let decide = match decide? {
        "allow" => Decide::Allow,
        "ask" => Decide::Ask,
        _ => Decide::Deny,
    };
    let (line, _) = reader.source.position(table.span.start);
    Some(Rule { tool: tool?, caller, decide, expires_ms, source: format!("{}:{line}", reader.source.name()) })
}
