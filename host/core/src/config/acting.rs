//! The part of `[tasks.NAME]` for acting agents: executors, consent, stuck detection, condensing,
//! the file of a prompt agent, and knowledge files.

use toml::de::DeValue;

use super::ConfigPath;
use super::grants::names_in_order;
use super::keys::{CONDENSE, CONFIRM, STUCK};
use super::plugin::path;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::task::plugin_name;
use crate::setup::CondenseRules;
use crate::types::confirm::{ConfirmPolicy, ConfirmRules};
use crate::types::ids::PluginName;
use crate::types::risk::Risk;
use crate::types::stuck_rules::StuckRules;

/// `action_plugins`: in this order, each once.
pub(super) fn executors(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
) -> Vec<PluginName> {
    let names = table
        .get("action_plugins")
        .and_then(|item| names_in_order(reader, &item))
        .unwrap_or_default();
    names.iter().for_each(|(item, name)| references.add_plugin(item, name));
    names.into_iter().map(|(_, name)| PluginName::from(name)).collect()
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
            let analyzer =
                table.get("analyzer").and_then(|item| plugin_name(reader, references, &item));
            let (threshold, unknown) = (table.get("threshold"), table.get("unknown"));
            let from = table.read(reader, "threshold").unwrap_or(Risk::High);
            let of_unknown = table.read(reader, "unknown").unwrap_or(true);
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
            let policy = policy.unwrap_or_default();
            require_analyzer(reader, &item, policy, table.get("analyzer").is_some());
            ConfirmRules { policy, analyzer }
        }
        _ => {
            item.expected(reader, "\"never\", \"always\", \"risky\" or { policy = \"…\" }");
            ConfirmRules::default()
        }
    }
}

/// Reports a policy that would ask about nothing: without an analyzer no action has a known risk.
fn require_analyzer(
    reader: &mut ConfigReader,
    item: &SpannedValue<'_>,
    policy: ConfirmPolicy,
    has_analyzer: bool,
) {
    if has_analyzer || !matches!(policy, ConfirmPolicy::Risky { unknown: false, .. }) {
        return;
    }
    let what = "needs an `analyzer`: without one no risk is known, and no action would wait";
    let help =
        "write `analyzer = \"NAME\"` with a plugin that rates risks, or `confirm = \"never\"`";
    item.reject(reader, ProblemCode::MissingKey, what, help.to_owned());
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
        table.require(reader, "plugin").and_then(|item| plugin_name(reader, references, &item));
    let over = table.read(reader, "max_entries").unwrap_or(CondenseRules::OVER);
    Some(CondenseRules { plugin: plugin?, over })
}

/// `stuck_detection`: `false`, or a table (O-098…O-101).
pub(super) fn stuck(reader: &mut ConfigReader, table: &Table<'_>, as_langroid: bool) -> StuckRules {
    let mut rules = StuckRules { on: !as_langroid, ..StuckRules::DEFAULT };
    let Some(item) = table.get("stuck_detection") else { return rules };
    if let DeValue::Boolean(on) = item.value {
        return StuckRules { on: *on, ..rules };
    }
    let Some(table) = item.table(reader, STUCK) else { return rules };
    table.set(reader, "repeats", &mut rules.repeats);
    table.set(reader, "errors", &mut rules.errors);
    table.set(reader, "alternations", &mut rules.alternations);
    table.set(reader, "messages", &mut rules.messages);
    table.set(reader, "recovery", &mut rules.recovery);
    rules.on = true;
    rules
}

/// `prompt_agent`: its file.
pub(super) fn micro(
    reader: &mut ConfigReader,
    table: &Table<'_>,
    folder: &str,
) -> Option<ConfigPath> {
    let item = table.get("prompt_agent")?;
    if let Some(system) = table.get("system") {
        let what = "and `prompt_agent` both say what the agent's prompt is";
        system.reject(
            reader,
            ProblemCode::Conflict,
            what,
            "leave one of them out: the prompt of a prompt agent stands in its file".to_owned(),
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
