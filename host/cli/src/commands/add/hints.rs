//! The next steps after a plugin was added: grants that it requires, and a task that uses it.

use std::path::Path;

use conclave_core::config::edit::example_of;
use conclave_core::config::{Config, ToolEntry};
use conclave_core::permissions::grants::ToolPattern;
use conclave_core::permissions::manifest::CapabilityRequest;
use conclave_core::types::capability::Capability;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::wording::quoted;
use conclave_runtime::plugin::Inspection;
use serde::Serialize;

use crate::program::shell::{file_option, shell};
use crate::state::source;
use crate::ui::show::{FAINT, ODD, one_line, paint};
use crate::ui::stderr;

/// A next step.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hint {
    #[serde(rename = "message")]
    pub(crate) what: String,
    /// A command to type, or a line to write.
    #[serde(rename = "hint")]
    pub(crate) how: String,
}

pub(super) fn hints(name: &str, found: &Inspection, config: &Config, file: &Path) -> Vec<Hint> {
    let mut hints = missing_grants(name, found, config, file);
    hints.extend(unused(name, found, config, file));
    hints
}

pub(super) fn show(hints: &[Hint], file: &Path) {
    stderr::line("");
    for hint in hints {
        stderr::line(format_args!("{}\n  {}", paint(ODD, &hint.what), hint.how));
    }
    stderr::line(format_args!(
        "{}\n  conclave check {}",
        paint(FAINT, "then"),
        shell(&file.display().to_string())
    ));
}

/// A capability that a plugin requires and does not have. No run starts without it.
pub(super) struct MissingGrant {
    /// The requirement, in a sentence without its end.
    pub(super) what: String,
    /// What the config needs before the grant can be given.
    pub(super) first: Option<&'static str>,
    /// An example of the grant; `None` if this host knows no such capability.
    pub(super) grant: Option<String>,
}

/// Returns a next step for each capability that is required and not granted. The config is invalid
/// without them.
pub(crate) fn missing_grants(
    name: &str,
    found: &Inspection,
    config: &Config,
    file: &Path,
) -> Vec<Hint> {
    let hint = |MissingGrant { what, first, grant }: MissingGrant| {
        let command = grant
            .map(|grant| format!("conclave grant {name} {}{}", shell(&grant), file_option(file)));
        let how = match (first, command) {
            // What this host does not know cannot be granted.
            (_, None) => format!("remove [plugins.{name}]"),
            (Some(first), Some(command)) => format!("{first}, then\n  {command}"),
            (None, Some(command)) => command,
        };
        Hint { what: format!("{what}:"), how }
    };
    missing(name, found, config).map(hint).collect()
}

/// Returns the capabilities that are required and not granted.
pub(super) fn missing(
    name: &str,
    found: &Inspection,
    config: &Config,
) -> impl Iterator<Item = MissingGrant> {
    let plugin = config.plugins.get(name);
    let asks = plugin.into_iter().flat_map(move |plugin| {
        let required = found.manifest.asks.iter().filter(|(_, ask)| !ask.optional);
        required.map(move |(key, _)| (plugin, key))
    });
    asks.filter_map(move |(plugin, key)| match Capability::from_name(key) {
        Some(capability) if plugin.grants.has(capability) => None,
        Some(capability) => Some(missing_grant(name, capability, found, config)),
        None => Some(MissingGrant {
            what: format!("{name} requires `{}`, which this host does not know", one_line(key, 20)),
            first: None,
            grant: None,
        }),
    })
}

fn missing_grant(
    name: &str,
    capability: Capability,
    found: &Inspection,
    config: &Config,
) -> MissingGrant {
    if capability == Capability::Model && config.models.is_empty() {
        return MissingGrant {
            what: format!("{name} requires `model`, and the config has no model"),
            first: Some(
                "write a table [models.default] with `kind = \"openai\"`, `url` and `model`",
            ),
            grant: Some("model = [\"default\"]".to_owned()),
        };
    }
    if capability == Capability::Secrets && config.secrets.is_empty() {
        return MissingGrant {
            what: format!("{name} requires `secrets`, and the config has no secret"),
            first: Some("write a table [secrets.NAME] with `from` and `hosts`"),
            grant: Some("secrets = [\"NAME\"]".to_owned()),
        };
    }
    if capability == Capability::Files {
        let ask = found.manifest.ask(capability);
        let mode = ask.and_then(|ask| ask.detail.get("mode")).and_then(|mode| mode.as_str());
        let mode = if mode == Some("read-write") { "read-write" } else { "read" };
        return MissingGrant {
            what: format!(
                "{name} requires `files`, which is not granted, and no run starts without it; \
                 `dir` is your folder, `at` the path under which the plugin reads it, which its \
                 author documents"
            ),
            first: None,
            // A made-up folder would be pasted as it is.
            grant: Some(format!("files = [{{ dir = \"…\", at = \"…\", mode = \"{mode}\" }}]")),
        };
    }
    MissingGrant {
        what: format!(
            "{name} requires `{capability}`, which is not granted, and no run starts without it"
        ),
        first: None,
        grant: Some(example(capability, found, config)),
    }
}

/// An example of a grant, with names from this config if it has any.
fn example(capability: Capability, found: &Inspection, config: &Config) -> String {
    let ask = found.manifest.ask(capability).filter(|_| capability == Capability::Route);
    let tools = ask.map(CapabilityRequest::host_tools).unwrap_or_default();
    if !tools.is_empty() {
        let names: Vec<String> = tools.into_iter().map(quoted).collect();
        return format!("{capability} = [{}]", names.join(", "));
    }
    let name = match capability {
        Capability::Model => config.models.keys().next().map(ToString::to_string),
        Capability::Delegate | Capability::Route => {
            config.tasks.keys().find(|task| **task != config.entry).map(ToString::to_string)
        }
        Capability::Secrets => config.secrets.keys().next().map(ToString::to_string),
        _ => None,
    };
    let usual = || {
        example_of(capability).map_or_else(|| format!("{capability} = [\"NAME\"]"), str::to_owned)
    };
    name.map_or_else(usual, |name| format!("{capability} = [{}]", quoted(&name)))
}

/// Returns which task could use a plugin that no task uses, and how.
fn unused(name: &str, found: &Inspection, config: &Config, file: &Path) -> Option<Hint> {
    let is = |kind: PluginKind| found.kinds.contains(&kind);
    if is(PluginKind::Tools) {
        return if is_callable(name, config) { None } else { Some(callers(name, config, file)) };
    }
    if is(PluginKind::DeliveryStrategy) {
        let task = config
            .plugins
            .values()
            .filter_map(|plugin| plugin.grants.delegate.as_ref())
            .find_map(|grant| grant.tasks.first());
        let place = task.map_or_else(
            || "the task that runs in the background".to_owned(),
            |task| format!("[tasks.{task}]"),
        );
        return Some(Hint {
            what: format!("no task uses {name} yet; it delivers results of background tasks:"),
            how: format!("in {place} write `delivery_strategy = {name:?}`"),
        });
    }
    // What is an agent too has its place in a task.
    let uses = [
        (
            PluginKind::Observer,
            "it observes runs",
            format!("`[[observers]]` with `plugin = {name:?}`"),
        ),
        (
            PluginKind::Gate,
            "it is a gate",
            format!("`[[gates]]` with `on = \"deliver\"` and `plugin = {name:?}`"),
        ),
        (PluginKind::Judge, "it judges answers", format!("in a task `judge = {name:?}`")),
        (
            PluginKind::SimulatedUser,
            "it is a simulated user",
            format!("in a task `simulated_user = {name:?}`"),
        ),
        (
            PluginKind::Condenser,
            "it condenses histories",
            format!("in a task `condense = {{ plugin = {name:?} }}`"),
        ),
        (
            PluginKind::SecurityAnalyzer,
            "it rates actions",
            format!("in a task `confirm = {{ policy = \"risky\", analyzer = {name:?} }}`"),
        ),
        (PluginKind::Memory, "it is a memory", format!("in a task `memory = {name:?}`")),
    ];
    let kind = uses.into_iter().find(|(kind, ..)| is(*kind) && !is(PluginKind::Agent));
    if let Some((_, what, how)) = kind {
        let what = format!("nothing uses {name} yet; {what}:");
        return Some(Hint { what, how: format!("write {how}") });
    }
    Some(Hint {
        what: format!("no task uses {name} yet; it is an agent:"),
        how: format!("write a task `[tasks.{}]` with `agent = {name:?}`", free_task(name, config)),
    })
}

fn free_task(name: &str, config: &Config) -> String {
    if config.tasks.contains_key(name) { format!("{name}-task") } else { name.to_owned() }
}

fn is_callable(name: &str, config: &Config) -> bool {
    let granted = config
        .plugins
        .values()
        .filter_map(|plugin| plugin.grants.tools.as_ref())
        .flat_map(|grant| &grant.names);
    let mut patterns = granted.map(|ToolPattern(pattern)| pattern.as_str());
    patterns.any(|pattern| pattern == "*" || pattern.split('.').next() == Some(name))
}

/// The agents that could call the plugin's tools. Agents that call tools already come first.
fn callers(name: &str, config: &Config, file: &Path) -> Hint {
    let mut tasks: Vec<_> = config.tasks.iter().collect();
    let calls = |plugin: &str| {
        config.plugins.get(plugin).is_some_and(|plugin| plugin.grants.tools.is_some())
    };
    let asks = |plugin: &str| {
        let found = config.plugins.get(plugin).and_then(|plugin| source::look_up(&plugin.source));
        found.is_none_or(|found| found.manifest.ask(Capability::Tools).is_some())
    };
    // Agents that call tools already come first, then agents that could be granted tools at all.
    tasks.sort_by_cached_key(|(_, task)| {
        let agent = task.setup.agent.as_str();
        (!calls(agent), !asks(agent))
    });
    let Some((name_of_task, task)) = tasks.first() else {
        return Hint {
            what: "no agent may call its tools yet, because the config has no task:".to_owned(),
            how: "`conclave init` writes a config with a task".to_owned(),
        };
    };
    let agent = &task.setup.agent;
    let mut how = format!(
        "conclave grant {agent} {}{}",
        shell(&format!("tools = [\"{name}.*\"]")),
        file_option(file)
    );
    if let Some(tools) = &task.tools {
        let mut names: Vec<String> = tools.iter().map(written).collect();
        names.push(format!("\"{name}.*\""));
        how.push_str(&format!(
            "\n  in [tasks.{name_of_task}] write `tools = [{}]`",
            names.join(", ")
        ));
    }
    Hint {
        what: format!(
            "no agent may call its tools yet; {agent}, the agent of task {name_of_task}, could:"
        ),
        how,
    }
}

/// An entry of a task's `tools` in the config's syntax, with all its keys.
fn written(entry: &ToolEntry) -> String {
    let flag =
        |key: &str, value: bool, usual: bool| (value != usual).then(|| format!("{key} = {value}"));
    let text = |key: &str, text: &Option<String>| {
        text.as_ref().map(|text| format!("{key} = {}", quoted(text)))
    };
    let count = |key: &str, count: Option<u64>| count.map(|count| format!("{key} = {count}"));
    let recipients: Vec<String> = entry.recipients.iter().map(|name| quoted(name)).collect();
    let more = [
        text("as", &entry.alias),
        flag("use", entry.offered, true),
        flag("handle", entry.handled, true),
        flag("final", entry.is_final, false),
        text("title", &entry.title),
        count("result_tokens", entry.result_tokens),
        count("retained_tokens", entry.retained_tokens),
        (!recipients.is_empty()).then(|| format!("recipients = [{}]", recipients.join(", "))),
        text("default_recipient", &entry.default_recipient),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    let tool = quoted(entry.tool.as_str());
    if more.is_empty() { tool } else { format!("{{ tool = {tool}, {} }}", more.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_entry_is_written_with_all_its_keys() {
        let tools = r#"["a.one", { tool = "a.two", as = "two", use = false, final = true, title = "it \"is\"", result_tokens = 9, retained_tokens = 3 }, { tool = "recipient_message", handle = false, recipients = ["x", "User"], default_recipient = "x" }, "a.*", "done"]"#;
        let config = |tools: &str| {
            let text = format!(
                "entry = \"t\"\n[plugins.a]\nsource = \"a.wasm\"\n[tasks.x]\nagent = \"a\"\n[tasks.t]\nagent = \"a\"\nsubtasks = [\"x\"]\ntools = {tools}\n"
            );
            let config =
                Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
            config.tasks["t"].tools.clone().expect("they are listed")
        };
        let entries = config(tools);
        let round_trip =
            format!("[{}]", entries.iter().map(written).collect::<Vec<_>>().join(", "));
        assert_eq!(config(&round_trip), entries, "{round_trip}");
        assert!(
            round_trip.starts_with("[\"a.one\", {") && round_trip.ends_with("\"a.*\", \"done\"]"),
            "{round_trip}"
        );
    }
}
