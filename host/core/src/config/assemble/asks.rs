//! The manifest's requests against the config's grants. A request is a ceiling and grants nothing;
//! a grant beyond it has no effect.

use super::Plugins;
use crate::config::{Config, ProblemCode, Problems};
use crate::permissions::fetch::UrlPattern;
use crate::permissions::grants::kind_of;
use crate::permissions::manifest::CapabilityRequest;
use crate::setup::PluginFacts;
use crate::types::capability::Capability;
use crate::types::ids::{PluginName, TaskName};
use crate::types::plugin_kind::PluginKind;
use crate::types::wording::{array, code};

/// The number of characters shown of an author's reason, which is untrusted text.
const WHY_SHOWN: usize = 200;

/// Reports required requests without a grant, requests that this host does not offer, and grants
/// without a request.
pub(super) fn check(
    config: &Config,
    plugin: &PluginName,
    facts: &PluginFacts,
    plugins: &Plugins,
    problems: &mut Problems,
) {
    let Some(grants) = config.plugins.get(plugin).map(|plugin| &plugin.grants) else { return };
    let place = format!("plugins.{plugin}.grants");
    for (name, ask) in facts.manifest.asks.iter().filter(|(_, ask)| !ask.optional) {
        let (what, help) = match Capability::from_name(name) {
            None => {
                (format!("`{plugin}` needs {}, which this host does not know", code(name)), None)
            }
            Some(capability) if grants.has(capability) => continue,
            Some(capability) => {
                let line = smallest(config, plugin, capability, plugins);
                (
                    format!("`{plugin}` needs `{capability}`, which is not granted"),
                    Some(format!("in [plugins.{plugin}] write `{line}`{}", note(capability))),
                )
            }
        };
        let help = help.unwrap_or_else(|| {
            format!("leave [plugins.{plugin}] out, or take a version that works without")
        });
        let cause = match Capability::from_name(name) {
            Some(_) => ProblemCode::MissingGrant,
            None => ProblemCode::UnsupportedCapability,
        };
        problems.push(config.problem(cause, &place, what).because(reason(ask)).help(help));
    }
    for capability in Capability::ALL {
        if !capability.is_own()
            && grants.has(capability)
            && facts.manifest.ask(capability).is_none()
        {
            let what = format!(
                "this grant has no effect: the manifest of `{plugin}` does not ask for `{capability}`"
            );
            problems.push(
                config
                    .problem(ProblemCode::NoEffect, &format!("{place}.{capability}"), what)
                    .help("leave it out; or its author must ask for it, with an `[asks]` table and a `why` in the manifest")
                    .as_warning(),
            );
        }
    }
}

/// The plugin's reason, in its author's words.
fn reason(ask: &CapabilityRequest) -> String {
    match ask.why.trim() {
        "" => "its author gave no reason".to_owned(),
        why => format!("its author says: {}", why.chars().take(WHY_SHOWN).collect::<String>()),
    }
}

/// The smallest line that grants a capability, with names of this config where they can be guessed.
pub(super) fn smallest(
    config: &Config,
    plugin: &PluginName,
    capability: Capability,
    plugins: &Plugins,
) -> String {
    let first = |name: Option<&str>| array([name.unwrap_or("…")]);
    match capability {
        Capability::Model => format!(
            "grants.model = {}",
            first(config.models.keys().next().map(|name| name.as_str()).or(Some("default")))
        ),
        Capability::Tools => {
            let source = plugins
                .iter()
                .find(|(name, facts)| *name != plugin && facts.kinds.contains(&PluginKind::Tools));
            format!(
                "grants.tools = {}",
                first(source.map(|(name, _)| format!("{name}.*")).as_deref())
            )
        }
        Capability::Delegate => {
            format!("grants.delegate = {}", first(free_task(config, plugin).map(TaskName::as_str)))
        }
        Capability::Route => {
            let ask = plugins.get(plugin).and_then(|facts| facts.manifest.ask(capability));
            let tools = ask.map(CapabilityRequest::host_tools).unwrap_or_default();
            if !tools.is_empty() {
                return format!("grants.route = {}", array(tools));
            }
            let subtask = config
                .tasks
                .values()
                .filter(|task| task.setup.agent == *plugin)
                .find_map(|task| task.setup.subtasks.first());
            format!("grants.route = {}", first(Some(subtask.map_or("user", |name| name.as_str()))))
        }
        Capability::Files => {
            r#"grants.files = [{ dir = "…", at = "/folder", mode = "read" }]"#.to_owned()
        }
        Capability::Exec => r#"grants.exec = ["/usr/bin/…"]"#.to_owned(),
        Capability::Secrets => {
            let known = config.secrets.keys().next().map(|name| name.as_str());
            format!("grants.secrets = {}", first(known.or(Some("NAME"))))
        }
        Capability::Fetch => {
            let ask = plugins.get(plugin).and_then(|facts| facts.manifest.ask(capability));
            let urls = ask.and_then(|ask| ask.detail.get("urls")?.as_array());
            let urls: Vec<&str> = urls
                .into_iter()
                .flatten()
                .filter_map(|url| url.as_str())
                .filter(|url| UrlPattern::parse(url).is_ok())
                .collect();
            let urls = if urls.is_empty() { vec!["https://api.example.org/v1/*"] } else { urls };
            format!("grants.fetch = {}", array(urls))
        }
        Capability::Channels | Capability::Kv | Capability::History => {
            let question = kind_of(capability).and_then(|kind| (kind.question)());
            format!("grants.{capability} = {}", question.map_or("true", |(_, value)| value))
        }
        // Every plugin has these without a grant.
        Capability::Log
        | Capability::Progress
        | Capability::Config
        | Capability::Scratch
        | Capability::Blobs => format!("grants.{capability} = true"),
    }
}

/// Returns what the operator must know to complete the line of [`smallest`].
fn note(capability: Capability) -> &'static str {
    match capability {
        Capability::Files => "; `at` is the path that the plugin reads, which its author documents",
        Capability::Fetch => ", with the addresses that it may send requests to",
        Capability::Secrets => ", with the name of a secret in [secrets]",
        _ => "",
    }
}

/// A task of another agent that is not a sub-task: most likely the one to run in the background.
fn free_task<'a>(config: &'a Config, plugin: &PluginName) -> Option<&'a TaskName> {
    let is_subtask =
        |name: &TaskName| config.tasks.values().any(|task| task.setup.subtasks.contains(name));
    let mut tasks = config.tasks.iter();
    tasks
        .find(|(name, task)| {
            task.setup.agent != *plugin && **name != config.entry && !is_subtask(name)
        })
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::edit::{Fragment, capability_of};

    #[test]
    fn the_smallest_line_of_each_capability_is_a_grant_of_it() {
        let text = "entry = \"t\"\n[plugins.p]\nsource = \"p.wasm\"\n[tasks.t]\nagent = \"p\"\n";
        let config =
            Config::parse("c.toml", "", text).unwrap_or_else(|problems| panic!("{problems}"));
        for capability in Capability::ALL.into_iter().filter(|capability| !capability.is_own()) {
            let line = smallest(&config, &"p".into(), capability, &Plugins::new());
            let fragment = line.strip_prefix("grants.").unwrap_or(&line);
            let fragment =
                Fragment::parse(fragment).unwrap_or_else(|error| panic!("{line}: {error}"));
            let grants: Vec<_> = fragment.grants.iter().map(capability_of).collect();
            assert_eq!(grants, [Some(capability)], "{line}");
        }
    }
}
