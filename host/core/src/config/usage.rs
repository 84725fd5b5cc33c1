//! Parts of the config without effect: most likely a name was changed in one place only, or a
//! responder left out. Warnings, because such a config may still be under work.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use url::{Host, Url};

use super::{
    Config, ConfigProblem, McpReach, ModelKind, PluginSource, ProblemCode, Problems, ToolsEntry,
    address, idle_keys,
};
use crate::permissions::fetch::AddressKind;
use crate::permissions::grants::ToolPattern;
use crate::setup::{NoTool, ResponderName};
use crate::types::host_tool::HostTool;
use crate::types::ids::{ModelName, PluginName, TaskName};
use crate::types::message::Role;
use crate::types::wording::array;

/// Adds a warning for each plugin, task, model and cost limit that has no effect.
pub(crate) fn check(config: &Config, problems: &mut Problems) {
    let tasks = reached_tasks(config);
    let plugins = used_plugins(config, &tasks);
    for name in config.tasks.keys().filter(|name| !tasks.contains(name)) {
        let what = format!(
            "the task `{name}` never starts: it is not a sub-task, and no agent in use may delegate to it"
        );
        let help = format!(
            "add it to the `subtasks` of a task, or to the `grants.delegate` of an agent, or leave out [tasks.{name}]"
        );
        problems.push(
            config
                .problem(ProblemCode::Unused, &format!("tasks.{name}"), what)
                .help(help)
                .as_warning(),
        );
    }
    for name in config.plugins.keys().filter(|name| !plugins.contains(name)) {
        // Its kinds are known once it is loaded: `assemble` then adds them to the same warning.
        let help = format!("name it in a task, or leave out [plugins.{name}]");
        problems.push(unused(config, name).help(help));
    }
    for name in config.models.keys().filter(|name| !is_granted(config, name)) {
        let what = format!("the model `{name}` is not granted to any plugin");
        let help = format!("write `grants.model = [\"{name}\"]` at the agent that may");
        problems.push(
            config
                .problem(ProblemCode::Unused, &format!("models.{name}"), what)
                .help(help)
                .as_warning(),
        );
    }
    // With a file of prices, `priced` adds these warnings once the file is read.
    if config.prices.is_none() {
        check_costs(config, problems);
    }
    check_keys(config, problems);
    check_responders(config, problems);
    check_policy(config, problems);
    check_networks(config, problems);
    check_offers(config, &tasks, problems);
    check_executors(config, problems);
    idle_keys::check(config, problems);
    super::server::check(config, problems);
}

/// The warning about a plugin without effect.
pub(crate) fn unused(config: &Config, plugin: &PluginName) -> ConfigProblem {
    let what = format!(
        "the plugin `{plugin}` is not used: no task that starts names it, and no agent in use may call its tools"
    );
    let mut problem = config.problem(ProblemCode::Unused, &format!("plugins.{plugin}"), what);
    problem.unused_plugin = Some(plugin.clone());
    problem.as_warning()
}

/// The plugins without effect.
pub(crate) fn unused_plugins(config: &Config) -> Vec<&PluginName> {
    let used = used_plugins(config, &reached_tasks(config));
    config.plugins.keys().filter(|name| !used.contains(name)).collect()
}

/// The agents of reachable tasks, that of the entry task first.
pub(crate) fn agents_at_work(config: &Config) -> Vec<&PluginName> {
    let entry = config.tasks.get(&config.entry).map(|task| &task.setup.agent);
    let others = reached_tasks(config)
        .into_iter()
        .filter_map(|task| config.tasks.get(task))
        .map(|task| &task.setup.agent);
    let mut agents: Vec<&PluginName> = Vec::new();
    for agent in entry.into_iter().chain(others) {
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }
    agents
}

/// The line that grants one more pattern of tools to a plugin. It holds all that the plugin has
/// already, since it takes the place of the line that is there.
pub(crate) fn tools_line(config: &Config, plugin: &PluginName, more: &str) -> String {
    let grant = config.plugins.get(plugin).and_then(|plugin| plugin.grants.tools.as_ref());
    let granted = grant.into_iter().flat_map(|grant| &grant.names);
    let names = array(granted.map(|pattern| pattern.0.as_str()).chain([more]));
    match grant.and_then(|grant| grant.calls) {
        Some(calls) => format!("grants.tools = {{ names = {names}, calls = {calls} }}"),
        None => format!("grants.tools = {names}"),
    }
}

/// Warns about executors whose tools the agent may not call.
fn check_executors(config: &Config, problems: &mut Problems) {
    for (name, task) in &config.tasks {
        let granted =
            config.plugins.get(&task.setup.agent).and_then(|agent| agent.grants.tools.as_ref());
        let granted: Vec<&ToolPattern> =
            granted.into_iter().flat_map(|grant| &grant.names).collect();
        for (index, executor) in task.setup.action_plugins.iter().enumerate() {
            let is_of = |pattern: &&ToolPattern| {
                pattern.0.split_once('.').is_none_or(|(plugin, _)| plugin == executor.as_str())
            };
            if config.plugins.contains_key(executor) && !granted.iter().any(is_of) {
                let agent = &task.setup.agent;
                let what = format!(
                    "the plugin `{executor}` carries out no action: `{agent}` may call none of its tools"
                );
                let line = tools_line(config, agent, &format!("{executor}.*"));
                let help = format!(
                    "write `{line}` in [plugins.{agent}], or remove the plugin from `action_plugins`"
                );
                problems.push(
                    config
                        .problem(
                            ProblemCode::NoEffect,
                            &format!("tasks.{name}.action_plugins[{index}]"),
                            what,
                        )
                        .help(help)
                        .as_warning(),
                );
            }
        }
    }
}

/// Reports models of a task that its agent may not ask. Each one must be granted: a fallback is no
/// way around a grant.
pub(super) fn check_models(config: &Config, problems: &mut Problems) {
    for (name, task) in &config.tasks {
        let agent = &task.setup.agent;
        let Some(plugin) = config.plugins.get(agent) else { continue };
        let granted = || plugin.grants.model.iter().flat_map(|grant| &grant.names);
        for model in &task.setup.models {
            let (what, help) = if !granted().any(|name| name == model) {
                let all: Vec<&str> = granted().chain([model]).map(ModelName::as_str).collect();
                (
                    format!("the agent `{agent}` may not ask the model `{model}`"),
                    format!("write `grants.model = {}` in [plugins.{agent}]", array(&all)),
                )
            } else if task.setup.scope.model.as_ref().is_some_and(|models| !models.contains(model))
            {
                (
                    format!("the `scope` of the task `{name}` leaves out the model `{model}`"),
                    format!("add `{model}` to `scope.model`, or remove it from `model`"),
                )
            } else {
                continue;
            };
            problems.push(
                config
                    .problem(ProblemCode::NotGranted, &format!("tasks.{name}.model"), what)
                    .help(help),
            );
        }
    }
}

/// Warns about a rule after one that decides all of its calls.
fn check_policy(config: &Config, problems: &mut Problems) {
    for (index, rule) in config.policy.iter().enumerate() {
        let Some(earlier) = config.policy[..index].iter().find(|earlier| earlier.hides(rule))
        else {
            continue;
        };
        let what = format!(
            "the rule at {} never applies: the rule at {} decides all of its calls",
            rule.source, earlier.source
        );
        let help = "the first rule that matches wins: put the narrower one first, or remove it";
        problems.push(
            config
                .problem(ProblemCode::NoEffect, &format!("policy[{index}]"), what)
                .help(help)
                .as_warning(),
        );
    }
}

/// Warns about addresses that can never be reached, and about `private` networks that cover
/// everything.
fn check_networks(config: &Config, problems: &mut Problems) {
    for (name, plugin) in &config.plugins {
        let Some(grant) = &plugin.grants.fetch else { continue };
        let place = format!("plugins.{name}.grants.fetch");
        if let Some(network) = grant.private.iter().find(|network| network.prefix_len() == 0) {
            let what = format!(
                "`private` has {network}: {name} may reach every private address, this machine's own among them"
            );
            let help = "name the one address or network that is meant, such as `10.1.2.0/24`";
            problems.push(
                config
                    .problem(ProblemCode::Insecure, &format!("{place}.private"), what)
                    .help(help)
                    .as_warning(),
            );
        }
        for rule in &grant.rules {
            let Some((address, kind)) = inside(rule.url.as_str()) else { continue };
            // A name may resolve to the other loopback address, which may be granted.
            let is_name = rule.url.as_str().contains("localhost");
            if grant.may_connect(address).is_err() && (!is_name || grant.private.is_empty()) {
                let what = format!(
                    "`{}` cannot be reached: {address} is a {kind} address",
                    rule.url.as_str()
                );
                let help = format!(
                    "add `private = [\"{address}\"]` beside `urls`, if that is meant; or leave it out"
                );
                problems.push(
                    config.problem(ProblemCode::NoEffect, &place, what).help(help).as_warning(),
                );
            }
        }
    }
}

/// The literal address in a URL pattern, if it is not public.
fn inside(pattern: &str) -> Option<(IpAddr, AddressKind)> {
    let address = match Url::parse(pattern.trim_end_matches('*')).ok()?.host()? {
        Host::Ipv4(address) => IpAddr::V4(address),
        Host::Ipv6(address) => IpAddr::V6(address),
        Host::Domain("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Host::Domain(_) => return None,
    };
    AddressKind::of(address).map(|kind| (address, kind))
}

/// Warns about tools that an agent may call and none of its tasks offers.
fn check_offers(config: &Config, tasks: &BTreeSet<&TaskName>, problems: &mut Problems) {
    for (name, plugin) in &config.plugins {
        let own: Vec<_> = tasks
            .iter()
            .filter_map(|task| config.tasks.get(*task))
            .filter(|task| task.setup.agent == *name)
            .collect();
        // A list without a plugin's tools hides them from the model on purpose; without a list all
        // are offered.
        let lists: Option<Vec<_>> = own.iter().map(|task| task.tools.as_ref()).collect();
        let Some(lists) = lists.filter(|lists| !lists.is_empty()) else { continue };
        for pattern in plugin
            .grants
            .tools
            .iter()
            .flat_map(|grant| &grant.names)
            .filter(|pattern| pattern.0 != "*")
        {
            let is_offered = |tool: &str| {
                tool == "*"
                    || tool == pattern.0
                    || pattern.covers(tool)
                    || ToolPattern(tool.to_owned()).covers(&pattern.0)
            };
            if lists.iter().any(|tools| tools.iter().any(|entry| is_offered(entry.tool.as_str()))) {
                continue;
            }
            let what =
                format!("`{}` is granted to `{name}`, but no task of it offers it", pattern.0);
            let help =
                format!("add \"{}\" to the `tools` of the task, or take the grant back", pattern.0);
            problems.push(
                config
                    .problem(ProblemCode::NoEffect, &format!("plugins.{name}.grants.tools"), what)
                    .help(help)
                    .as_warning(),
            );
        }
    }
}

/// Warns about a missing responder `agent`. It handles messages without a call (L-125); without it,
/// and without another end, the task stalls.
fn check_responders(config: &Config, problems: &mut Problems) {
    for (name, task) in &config.tasks {
        let is_carried_out = task.setup.responders.contains(&Role::Agent)
            || !task.setup.responders.contains(&Role::Llm);
        if is_carried_out || task.setup.no_tool == NoTool::Nothing {
            continue;
        }
        let goes_on = !task.setup.subtasks.is_empty()
            || (task.setup.interactive && task.setup.responders.contains(&Role::User));
        let ends = task.setup.turns.is_some()
            || task.setup.done_if_response.contains(&ResponderName::Role(Role::Llm))
            || !task.setup.done_sequences.is_empty();
        let stalls = !goes_on && !ends && !task.setup.text_rules.signals;
        let is_written = config.is_written(&format!("tasks.{name}.on_no_tool_call"));
        let (why, ends_it) = match (stalls, is_written) {
            (true, _) => (
                "no responder answers a message without a tool call, and the task stalls",
                " and `done_if_response = [\"llm\"]`",
            ),
            (false, true) => {
                ("the key decides about a message without a tool call, and has no effect here", "")
            }
            (false, false) => continue,
        };
        let what = format!(
            "`on_no_tool_call` needs the responder `agent`, which does not take part in the task `{name}`"
        );
        let help = format!(
            "add \"agent\" to `responders`, or write `on_no_tool_call = \"nothing\"`{ends_it}"
        );
        problems.push(
            config
                .problem(ProblemCode::NoEffect, &format!("tasks.{name}.responders"), what)
                .because(why)
                .help(help)
                .as_warning(),
        );
    }
}

/// Warns about a key that is sent unencrypted over a network.
fn check_keys(config: &Config, problems: &mut Problems) {
    for (name, model) in &config.models {
        let ModelKind::Server(server) = &model.kind else { continue };
        let next = server.proxy.as_deref().unwrap_or(&server.url);
        if server.key.is_some() && server.url.starts_with("http://") && !address::is_loopback(next)
        {
            let what = format!("the key of the model `{name}` crosses the network unencrypted");
            let help = "write `https://` in its `url` if the server supports it";
            problems.push(
                config
                    .problem(ProblemCode::Insecure, &format!("models.{name}.url"), what)
                    .help(help)
                    .as_warning(),
            );
        }
    }
    for (name, plugin) in &config.plugins {
        let PluginSource::Mcp(source) = &plugin.source else { continue };
        let McpReach::Address { url, key: Some(_) } = &source.reach else { continue };
        if url.starts_with("http://") && !address::is_loopback(url) {
            let what = format!("the key of the server `{name}` crosses the network unencrypted");
            let help = "write `https://` in its `url` if the server supports it";
            problems.push(
                config
                    .problem(ProblemCode::Insecure, &format!("plugins.{name}.source.mcp.url"), what)
                    .help(help)
                    .as_warning(),
            );
        }
    }
}

/// Warns about a limit in dollars without effect, because no price is known.
pub(super) fn check_costs(config: &Config, problems: &mut Problems) {
    let unpriced = |name: &&ModelName| {
        config.models.get(*name).is_some_and(|model| model.prices.input_price.is_none())
    };
    let run = config
        .limits
        .cost_micro_usd
        .map(|_| ("limits.run.cost_usd".to_owned(), config.models.keys().find(unpriced)));
    let grants = config.plugins.iter().filter_map(|(name, plugin)| {
        let grant = plugin.grants.model.as_ref().filter(|grant| grant.cost_micro_usd.is_some())?;
        Some((format!("plugins.{name}.grants.model.cost_usd"), grant.names.iter().find(unpriced)))
    });
    for (path, model) in run.into_iter().chain(grants) {
        let Some(model) = model else { continue };
        let what = format!("`cost_usd` does not limit the model `{model}`: its price is unknown");
        let help = format!(
            "write `input_price` and `output_price` in [models.{model}], name it in the file of `prices`, or limit `tokens`"
        );
        problems.push(config.problem(ProblemCode::NoEffect, &path, what).help(help).as_warning());
    }
}

/// The entry task, and all tasks that it reaches through sub-tasks and background tasks.
fn reached_tasks(config: &Config) -> BTreeSet<&TaskName> {
    let mut reached = BTreeSet::new();
    let mut next = vec![&config.entry];
    while let Some(name) = next.pop() {
        let Some((name, task)) = config.tasks.get_key_value(name) else { continue };
        if !reached.insert(name) {
            continue;
        }
        next.extend(&task.setup.subtasks);
        let agent = config.plugins.get(&task.setup.agent);
        next.extend(
            agent
                .and_then(|agent| agent.grants.delegate.as_ref())
                .into_iter()
                .flat_map(|grant| &grant.tasks),
        );
        let hands_over = task
            .tools
            .iter()
            .flatten()
            .any(|entry| entry.tool == ToolsEntry::Host(HostTool::HandoffConversation));
        if let Some(route) =
            agent.and_then(|agent| agent.grants.route.as_ref()).filter(|_| hands_over)
        {
            let is_named = |task: &&TaskName| {
                route.names.iter().any(|name| name.eq_ignore_ascii_case(task.as_str()))
            };
            next.extend(config.tasks.keys().filter(is_named));
        }
    }
    reached
}

/// Returns agents and strategies of those tasks, and the plugins whose tools the agents may call.
fn used_plugins<'a>(config: &'a Config, tasks: &BTreeSet<&TaskName>) -> BTreeSet<&'a PluginName> {
    let (mut used, mut agents) = (BTreeSet::new(), BTreeSet::new());
    for task in tasks.iter().filter_map(|name| config.tasks.get(*name)) {
        used.extend(
            task.setup
                .delivery_strategy
                .iter()
                .chain(&task.setup.background.delivery_strategy)
                .chain(&task.setup.action_plugins)
                .chain(&task.setup.memory)
                .chain(&task.setup.judge)
                .chain(&task.setup.simulated_user)
                .chain(&task.setup.confirm.analyzer),
        );
        used.extend(task.setup.condense.iter().map(|condense| &condense.plugin));
        agents.insert(&task.setup.agent);
    }
    used.extend(config.gates.iter().map(|gate| &gate.plugin));
    used.extend(config.observers.iter().map(|observer| &observer.plugin));
    used.extend(config.channels.values().filter_map(|channel| channel.plugin.as_ref()));
    // Once for each agent, because many tasks may share one.
    for agent in agents {
        used.insert(agent);
        let chosen = config.plugins.get(agent).and_then(|agent| agent.grants.delegate.as_ref());
        used.extend(chosen.into_iter().flat_map(|grant| &grant.delivery_strategies));
        let granted = config.plugins.get(agent).and_then(|agent| agent.grants.tools.as_ref());
        for pattern in granted.into_iter().flat_map(|grant| &grant.names) {
            let plugin = pattern.0.split_once('.').map(|(plugin, _)| plugin);
            match plugin {
                Some(plugin) => {
                    used.extend(config.plugins.get_key_value(plugin).map(|(name, _)| name))
                }
                None => used.extend(config.plugins.keys()),
            }
        }
    }
    used
}

fn is_granted(config: &Config, model: &ModelName) -> bool {
    config
        .plugins
        .values()
        .filter_map(|plugin| plugin.grants.model.as_ref())
        .any(|grant| grant.names.contains(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the warnings at the first plugin's lines.
    fn warnings(plugin: &str, task: &str) -> Vec<ProblemCode> {
        let text = format!(
            "entry = \"t\"\n[plugins.a]\nsource = \"a.wasm\"\n{plugin}\n[plugins.b]\nsource = \"b.wasm\"\n[tasks.t]\nagent = \"a\"\n{task}\n"
        );
        let config =
            Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let at_plugin = config.warnings.0.iter().filter(|warning| warning.line == 4);
        at_plugin.map(|warning| warning.code).collect()
    }

    #[test]
    fn unreachable_addresses_and_open_networks_are_warnings() {
        let found = |urls: &str, private: &str| {
            warnings(&format!("grants.fetch = {{ urls = [{urls:?}]{private} }}"), "")
        };
        for (urls, private) in [
            ("http://127.0.0.1:8080/*", ""),
            ("http://10.1.2.3/*", ", private = [\"127.0.0.1\"]"),
            ("http://[::1]/x", ""),
            ("http://localhost/*", ""),
        ] {
            assert_eq!(found(urls, private), [ProblemCode::NoEffect], "{urls}");
        }
        for (urls, private) in [
            ("http://127.0.0.1:8080/*", ", private = [\"127.0.0.0/8\"]"),
            ("http://localhost/*", ", private = [\"::1\"]"),
            ("https://a.example/*", ""),
            ("https://a.example/*", ", private = [\"10.0.0.0/8\"]"),
        ] {
            assert_eq!(found(urls, private), [], "{urls}");
        }
        let open = found("https://a.example/*", ", private = [\"0.0.0.0/0\"]");
        assert_eq!(open, [ProblemCode::Insecure]);
    }

    #[test]
    fn the_line_that_grants_more_tools_keeps_those_that_are_granted() {
        let config = |grant: &str| {
            let text = format!(
                "entry = \"t\"\n[plugins.a]\nsource = \"a.wasm\"\n{grant}\n\
                 [plugins.b]\nsource = \"b.wasm\"\n[plugins.c]\nsource = \"c.wasm\"\n\
                 [tasks.t]\nagent = \"a\"\naction_plugins = [\"c\"]\n"
            );
            Config::parse("c.toml", "", &text).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let of = |config: &Config| {
            let help = config.warnings.0.iter().filter_map(|warning| warning.remedy.clone());
            help.filter(|help| help.contains("grants.tools")).collect::<Vec<_>>()
        };
        for (grant, line) in [
            ("", r#"grants.tools = ["c.*"]"#),
            (r#"grants.tools = ["b.*"]"#, r#"grants.tools = ["b.*", "c.*"]"#),
            (
                r#"grants.tools = { names = ["b.x"], calls = 3 }"#,
                r#"grants.tools = { names = ["b.x", "c.*"], calls = 3 }"#,
            ),
        ] {
            let before = config(grant);
            let help = of(&before);
            assert!(help.iter().any(|help| help.contains(line)), "{line}: {help:?}");
            // The same check has nothing more to say, and what was granted still is.
            let after = config(line);
            assert_eq!(of(&after), Vec::<String>::new(), "{line}");
            let names = |config: &Config| {
                let grant = config.plugins["a"].grants.tools.clone();
                grant.map(|grant| grant.names).unwrap_or_default()
            };
            assert!(names(&before).iter().all(|name| names(&after).contains(name)), "{line}");
        }
    }

    #[test]
    fn granted_tools_that_no_task_offers_are_warnings() {
        let found = |tools: &str| warnings("grants.tools = [\"b.*\"]", tools);
        assert_eq!(found("tools = [\"done\"]"), [ProblemCode::NoEffect]);
        for offered in ["", "tools = [\"b.x\"]", "tools = [\"b.*\", \"done\"]", "tools = [\"*\"]"] {
            assert_eq!(found(offered), [], "{offered}");
        }
    }
}
