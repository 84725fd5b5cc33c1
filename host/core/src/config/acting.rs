//! The part of `[tasks.NAME]` for acting agents: executors, consent, stuck detection, condensing,
//! the file of a prompt agent, and knowledge files.

use toml::de::DeValue;

use super::grants::names_in_order;
use super::keys::{CONDENSE, CONFIRM, STUCK};
use super::plugin::path;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::task::flag;
use super::{Compat, ConfigPath};
use crate::setup::CondenseRules;
use crate::types::confirm::{ConfirmPolicy, ConfirmRules};
use crate::types::ids::PluginName;
use crate::types::risk::Risk;
use crate::types::stuck_rules::{Recovery, StuckRules};
use crate::types::units::DURATION_MAX;

/// The minimum of `action_timeout`: no action completes in less.
const SHORTEST_MS: u64 = 10;
/// The maximum of history entries before condensing.
const MOST_OVER: u64 = 1_000_000;
/// The maximum of repetitions: more of the same adds no information.
const MOST_REPEATS: u64 = 100;

/// `executors`: in this order, each once.
pub(super) fn executors(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Vec<PluginName> {
    let names =
        table.get("executors").and_then(|item| names_in_order(reader, &item)).unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_plugin(item, name));
    names.into_iter().map(|(_, name)| PluginName::from(name)).collect()
}

/// `action_timeout`, in milliseconds.
pub(super) fn action_timeout(reader: &mut ConfigReader, table: &Table<'_>) -> Option<u64> {
    table.get("action_timeout").and_then(|item| item.duration(reader, SHORTEST_MS, DURATION_MAX))
}

/// `confirm`: `"always"`, or a table (O-111).
pub(super) fn confirm(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> ConfirmRules {
    let Some(item) = table.get("confirm") else { return ConfirmRules::default() };
    match item.value {
        DeValue::String(_) => {
            ConfirmRules { policy: policy(reader, &item, Risk::High, true), analyzer: None }
        }
        DeValue::Table(_) => {
            let Some(table) = item.table(reader, CONFIRM) else { return ConfirmRules::default() };
            let analyzer = plugin(reader, references, &table, "analyzer");
            let (threshold, unknown) = (table.get("threshold"), table.get("unknown"));
            let from = match threshold.as_ref().and_then(|item| item.choice(reader)) {
                Some("low") => Risk::Low,
                Some("medium") => Risk::Medium,
                _ => Risk::High,
            };
            let of_unknown = flag(reader, &table, "unknown", true);
            let policy =
                table.require(reader, "policy").map(|item| policy(reader, &item, from, of_unknown));
            let is_other =
                policy.is_some_and(|policy| !matches!(policy, ConfirmPolicy::Risky { .. }));
            for item in [threshold, unknown].into_iter().flatten().filter(|_| is_other) {
                item.reject(
                    reader,
                    ProblemCode::Conflict,
                    "goes with `policy = \"risky\"` only",
                    "leave it out, or write `policy = \"risky\"`".to_owned(),
                );
            }
            ConfirmRules { policy: policy.unwrap_or_default(), analyzer }
        }
        _ => {
            item.expected(reader, "\"never\", \"always\", \"risky\" or { policy = \"…\" }");
            ConfirmRules::default()
        }
    }
}

fn policy(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    threshold: Risk,
    unknown: bool,
) -> ConfirmPolicy {
    match item.choice(reader) {
        Some("always") => ConfirmPolicy::Always,
        Some("risky") => ConfirmPolicy::Risky { threshold, unknown },
        _ => ConfirmPolicy::Never,
    }
}

/// `condense`.
pub(super) fn condense(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Option<CondenseRules> {
    let table = table.get("condense")?.table(reader, CONDENSE)?;
    let plugin =
        table.require(reader, "plugin").and_then(|_| plugin(reader, references, &table, "plugin"));
    let over = table
        .get("over")
        .and_then(|item| item.whole(reader, 4, MOST_OVER))
        .unwrap_or(CondenseRules::OVER);
    Some(CondenseRules { plugin: plugin?, over })
}

/// `stuck`: `false`, or a table (O-098…O-101).
pub(super) fn stuck(reader: &mut ConfigReader, table: &Table<'_>, compat: Compat) -> StuckRules {
    let mut rules = StuckRules { on: compat == Compat::Conclave, ..StuckRules::default() };
    let Some(item) = table.get("stuck") else { return rules };
    if let DeValue::Boolean(on) = item.value {
        return StuckRules { on: *on, ..rules };
    }
    let Some(table) = item.table(reader, STUCK) else { return rules };
    let mut count = |name: &str, usual: u32| {
        let count = table.get(name).and_then(|item| item.whole(reader, 2, MOST_REPEATS));
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(usual)
    };
    rules.repeats = count("repeats", rules.repeats);
    rules.errors = count("errors", rules.errors);
    rules.alternations = count("alternations", rules.alternations);
    rules.messages = count("messages", rules.messages);
    rules.on = true;
    rules.recovery = match table.get("recovery").and_then(|item| item.choice(reader)) {
        Some("stop") => Recovery::Stop,
        Some("restart") => Recovery::Restart,
        _ => Recovery::Ask,
    };
    rules
}

/// `memory`.
pub(super) fn memory(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Option<PluginName> {
    plugin(reader, references, table, "memory")
}

/// `micro`: the file of a micro-agent.
pub(super) fn micro(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    folder: &str,
) -> Option<ConfigPath> {
    let item = table.get("micro")?;
    if let Some(system) = table.get("system") {
        let what = "and `micro` both say what the agent's prompt is";
        system.reject(
            reader,
            ProblemCode::Conflict,
            what,
            "leave one of them out: the prompt of a micro-agent stands in its file".to_owned(),
        );
    }
    path(reader, &item, folder)
}

/// `knowledge`: files that the agent reads when a user's message contains one of their triggers.
pub(super) fn knowledge(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    folder: &str,
) -> Vec<ConfigPath> {
    let Some(item) = table.get("knowledge") else { return Vec::new() };
    let names = names_in_order(reader, &item).unwrap_or_default();
    let mut files: Vec<ConfigPath> = Vec::with_capacity(names.len());
    for (item, _) in names {
        let Some(file) = path(reader, &item, folder) else { continue };
        if files.iter().any(|other| other.path == file.path) {
            item.reject(
                reader,
                ProblemCode::Duplicate,
                "names a file that stands in the list already",
                "leave one of them out".to_owned(),
            );
        } else {
            files.push(file);
        }
    }
    files
}

fn plugin(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    name: &str,
) -> Option<PluginName> {
    let item = table.get(name)?;
    let name = item.string(reader)?;
    references.add_plugin(&item, name);
    Some(PluginName::from(name))
}
