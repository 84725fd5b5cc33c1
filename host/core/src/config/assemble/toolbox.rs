//! A task's toolbox: the plugins' tools that are admitted, granted and left by the task, then those
//! of the host, each under the agent's name for it. Other mentions of tools in the config are
//! checked in `mentions`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::tools::entry_path;
use super::{Plugins, asks};
use crate::config::confusables::pairs;
use crate::config::{Config, ProblemCode, Problems, TaskConfig, ToolEntry, ToolsEntry};
use crate::permissions::grants::ToolPattern;
use crate::setup::is_user;
use crate::tool_calls::toolbox::{DelegateTarget, TaskTool, ToolTarget, Toolbox};
use crate::types::capability::Capability;
use crate::types::delegation::{delegate_tool, worker_tool};
use crate::types::host_tool::HostTool;
use crate::types::ids::TaskName;
use crate::types::tool::ToolSummary;
use crate::types::wording::code;

/// Returns the tools of a task, in order of name, then those of the host.
pub(super) fn of_task(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    plugins: &Plugins,
    admitted: &BTreeSet<String>,
    problems: &mut Problems,
) -> Toolbox {
    let mut tools = of_plugins(config, task, plugins);
    tools.sort_by(|(_, a), (_, b)| a.summary.name.cmp(&b.summary.name));
    let agents = delegates_of(config, task, plugins);
    tools.extend(HostTool::ALL.into_iter().map(|tool| of_host(task, tool, &agents)));
    tools.extend(pinned_delegation_tools(config, task));
    check_names(config, name, &tools, admitted, problems);
    check_delegation(config, name, task, plugins, &tools, problems);
    check_handoff(config, name, task, plugins, &tools, problems);
    tools.into_iter().map(|(_, tool)| tool).collect::<Vec<_>>().into()
}

/// A tool, with the index of its entry in the task's list.
type Placed = (Option<usize>, TaskTool);

/// The plugins' tools that the agent was granted and the task leaves.
fn of_plugins(config: &Config, task: &TaskConfig, plugins: &Plugins) -> Vec<Placed> {
    let asks = plugins
        .get(&task.setup.agent)
        .is_some_and(|facts| facts.manifest.ask(Capability::Tools).is_some());
    let granted = config
        .plugins
        .get(&task.setup.agent)
        .and_then(|agent| agent.grants.tools.as_ref())
        .filter(|_| asks);
    let Some(granted) = granted else { return Vec::new() };
    let mut tools = Vec::new();
    for (plugin, facts) in plugins.iter().filter(|(plugin, _)| config.plugins.contains_key(*plugin))
    {
        for spec in &facts.tools {
            let mut tool = TaskTool::of_plugin(plugin, spec);
            if !granted.names.iter().any(|pattern| pattern.covers(&tool.summary.name)) {
                continue;
            }
            let Some(entries) = &task.tools else {
                tools.push((None, tool));
                continue;
            };
            let Some((index, entry)) = entry_of(entries, &tool.summary.name) else { continue };
            apply(entry, &mut tool);
            tools.push((Some(index), tool));
        }
    }
    tools
}

/// The entry that names the tool; else the first pattern that covers it.
fn entry_of<'a>(entries: &'a [ToolEntry], tool: &str) -> Option<(usize, &'a ToolEntry)> {
    let pattern = |entry: &'a ToolEntry| match &entry.tool {
        ToolsEntry::Plugins(pattern) => Some(pattern),
        ToolsEntry::Host(_) => None,
    };
    let is_named = |pattern: &ToolPattern| pattern.0 == tool;
    let is_covered = |pattern: &ToolPattern| pattern.covers(tool);
    let find = |fits: &dyn Fn(&ToolPattern) -> bool| {
        entries.iter().enumerate().find(|(_, entry)| pattern(entry).is_some_and(fits))
    };
    find(&is_named).or_else(|| find(&is_covered))
}

/// A tool of the host as it is listed. By default it is carried out if Langroid does so, and not
/// offered (L-105).
fn of_host(task: &TaskConfig, host: HostTool, agents: &[(&str, Option<&str>)]) -> Placed {
    let is_it = |entry: &ToolEntry, host_tool: HostTool| {
        entry.tool == ToolsEntry::Host(host_tool) && entry.agent.is_none()
    };
    let entry = |host_tool: HostTool| {
        task.tools.iter().flatten().enumerate().find(|(_, entry)| is_it(entry, host_tool))
    };
    let mut tool = TaskTool::of_host(host);
    if task.setup.as_langroid {
        host.langroid_name().clone_into(&mut tool.summary.name);
    }
    let placed = entry(host).map(|(index, entry)| {
        apply(entry, &mut tool);
        index
    });
    if host == HostTool::DelegateTask {
        let ToolSummary { description, input_schema, .. } = delegate_tool(agents);
        (tool.summary.description, tool.summary.input_schema) = (description, input_schema);
        let waits = entry(host).is_some_and(|(_, entry)| entry.wait);
        tool.worker = waits.then_some(DelegateTarget { agent: None, wait: true });
    }
    // An agent that must name its recipient is asked if it forgot to (L-148).
    if matches!(host, HostTool::RecipientMessage | HostTool::AddRecipient)
        && let Some((_, recipient_message)) = entry(HostTool::RecipientMessage)
    {
        if placed.is_none() {
            tool.handled = recipient_message.handled;
        }
        let default = recipient_message
            .default_recipient
            .as_deref()
            .filter(|_| host == HostTool::RecipientMessage);
        restrict(&mut tool.summary.input_schema, &recipient_message.recipients, default);
    }
    (placed, tool)
}

/// The tasks that a task's agent may delegate to, each with its description
///
pub(super) fn delegates_of<'a>(
    config: &'a Config,
    task: &TaskConfig,
    plugins: &Plugins,
) -> Vec<(&'a str, Option<&'a str>)> {
    let asks = plugins
        .get(&task.setup.agent)
        .is_some_and(|facts| facts.manifest.ask(Capability::Delegate).is_some());
    let granted = config
        .plugins
        .get(&task.setup.agent)
        .and_then(|agent| agent.grants.delegate.as_ref())
        .filter(|_| asks);
    let is_in_scope = |name: &&TaskName| {
        task.setup.scope.delegate.as_ref().is_none_or(|scope| scope.contains(name))
    };
    let names = granted.into_iter().flat_map(|grant| &grant.tasks).filter(is_in_scope);
    let non_blank = |text: &'a str| Some(text).filter(|text| !text.trim().is_empty());
    names
        .map(|name| {
            (
                name.as_str(),
                config.tasks.get(name).and_then(|task| non_blank(&task.setup.description)),
            )
        })
        .collect()
}

/// Whether a task's agent may start any background task.
pub(super) fn may_start_tasks(config: &Config, task: &TaskConfig, plugins: &Plugins) -> bool {
    !delegates_of(config, task, plugins).is_empty()
}

/// The tools of the entries that pin `delegate_task` to one worker.
fn pinned_delegation_tools(config: &Config, task: &TaskConfig) -> Vec<Placed> {
    let tool = |(index, entry): (usize, &ToolEntry)| {
        let agent = entry
            .agent
            .clone()
            .filter(|_| entry.tool == ToolsEntry::Host(HostTool::DelegateTask))?;
        let description = config.tasks.get(&agent).map(|task| task.setup.description.as_str());
        let name = entry.alias.as_deref().unwrap_or(HostTool::DelegateTask.as_str());
        let waits = entry.wait || task.setup.background.wait;
        let mut tool = TaskTool::of_host(HostTool::DelegateTask);
        tool.summary = worker_tool(name, agent.as_str(), description, waits);
        apply(entry, &mut tool);
        tool.worker = Some(DelegateTarget { agent: Some(agent), wait: entry.wait });
        Some((Some(index), tool))
    };
    task.tools.iter().flatten().enumerate().filter_map(tool).collect()
}

/// Applies the operator's options to a tool; the smaller of two limits wins.
fn apply(entry: &ToolEntry, tool: &mut TaskTool) {
    let smaller = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
    if let Some(alias) = &entry.alias {
        tool.summary.name.clone_from(alias);
    }
    tool.offered = entry.offered;
    tool.handled = entry.handled;
    tool.is_final |= entry.is_final;
    tool.title = entry.title.clone().or_else(|| tool.title.take());
    tool.result_tokens = smaller(entry.result_tokens, tool.result_tokens);
    tool.retained_tokens = smaller(entry.retained_tokens, tool.retained_tokens);
}

/// Restricts the schema to these recipients, with a default if the argument is optional.
fn restrict(schema: &mut Value, recipients: &[String], default: Option<&str>) {
    let Some(property) =
        schema.pointer_mut("/properties/intended_recipient").and_then(Value::as_object_mut)
    else {
        return;
    };
    if !recipients.is_empty() {
        property.insert("enum".to_owned(), json!(recipients));
    }
    if let Some(default) = default {
        property.insert("default".to_owned(), json!(default));
        let required = schema.get_mut("required").and_then(Value::as_array_mut);
        required
            .into_iter()
            .for_each(|required| required.retain(|name| name != "intended_recipient"));
    }
}

/// Reports names of several tools, and names that belong to another plugin's tool.
fn check_names(
    config: &Config,
    task: &TaskName,
    tools: &[Placed],
    admitted: &BTreeSet<String>,
    problems: &mut Problems,
) {
    let mut seen: BTreeMap<&str, (Option<usize>, String)> = BTreeMap::new();
    for (index, tool) in tools {
        let (name, own) = (tool.summary.name.as_str(), own_name(tool));
        let place = |index: Option<usize>| {
            index.map_or_else(|| format!("tasks.{task}"), |index| entry_path(task, index, "as"))
        };
        match seen.get(name) {
            Some((other_index, other)) => {
                let what = format!(
                    "{} and {} would both go by the name {}",
                    code(other),
                    code(&own),
                    code(name)
                );
                let place = place(index.or(*other_index));
                problems.push(
                    config
                        .problem(ProblemCode::Duplicate, &place, what)
                        .help("give one of them another name with `as`"),
                );
            }
            None if name != own && admitted.contains(name) => {
                let what =
                    format!("{} would go by the name of another tool, {}", code(&own), code(name));
                problems.push(
                    config
                        .problem(ProblemCode::Duplicate, &place(*index), what)
                        .help("choose another name"),
                );
            }
            None => drop(seen.insert(name, (*index, own))),
        }
    }
    for (earlier, name) in pairs(tools.iter().map(|(_, tool)| tool.summary.name.as_str())) {
        let place = |name: &str| seen.get(name).and_then(|(index, _)| *index);
        let at = place(name)
            .or_else(|| place(earlier))
            .map_or_else(|| format!("tasks.{task}"), |index| entry_path(task, index, "tool"));
        let own = |name: &str| seen.get(name).map_or(name, |(_, own)| own.as_str()).to_owned();
        let what = format!(
            "a model would take the tools {} and {} of the task `{task}` for each other",
            code(earlier),
            code(name)
        );
        let (own, plugin) =
            (own(name), own(name).split_once('.').map(|(plugin, _)| plugin.to_owned()));
        let rename = plugin
            .map(|plugin| format!("call the plugin something else than `{plugin}`, or "))
            .unwrap_or_default();
        let help = format!(
            "{rename}give the tool a name of its own: `tools = [{{ tool = \"{own}\", as = \"NAME\" }}]`"
        );
        problems.push(
            config
                .problem(ProblemCode::SimilarNames, &at, what)
                .because("their names look alike at a glance")
                .help(help),
        );
    }
}

/// The tool's name outside this task.
pub(super) fn own_name(tool: &TaskTool) -> String {
    match &tool.target {
        ToolTarget::Plugin { plugin, tool } => format!("{plugin}.{tool}"),
        ToolTarget::Host(tool) => tool.as_str().to_owned(),
    }
}

/// Reports an offered `delegate_task` whose calls would always be refused.
fn check_delegation(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    plugins: &Plugins,
    tools: &[Placed],
    problems: &mut Problems,
) {
    let agent = &task.setup.agent;
    let may_delegate =
        config.plugins.get(agent).is_none_or(|plugin| plugin.grants.delegate.is_some());
    let delegates =
        |tool: &TaskTool| tool.offered && tool.target == ToolTarget::Host(HostTool::DelegateTask);
    check_workers(config, name, task, plugins, tools, problems);
    let Some((Some(index), _)) =
        tools.iter().find(|(_, tool)| delegates(tool)).filter(|_| !may_delegate)
    else {
        return;
    };
    let what = format!(
        "the task offers `delegate_task`, and {} may not start any task",
        code(agent.as_str())
    );
    let line = asks::smallest(config, agent, Capability::Delegate, plugins);
    problems.push(
        config
            .problem(ProblemCode::NotGranted, &entry_path(name, *index, "tool"), what)
            .help(format!("in [plugins.{agent}] write `{line}`")),
    );
}

/// Reports workers that the agent may not start.
fn check_workers(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    plugins: &Plugins,
    tools: &[Placed],
    problems: &mut Problems,
) {
    let may_start = delegates_of(config, task, plugins);
    // Without any grant, one problem at the first tool is enough.
    if may_start.is_empty() {
        return;
    }
    for (index, tool) in tools {
        let Some((index, agent)) =
            index.zip(tool.worker.as_ref().and_then(|worker| worker.agent.as_ref()))
        else {
            continue;
        };
        if may_start.iter().any(|(name, _)| *name == agent.as_str()) {
            continue;
        }
        let what = format!(
            "the tool {} is for {}, which {} may not start",
            code(&tool.summary.name),
            code(agent.as_str()),
            code(task.setup.agent.as_str())
        );
        let names: Vec<String> = may_start
            .iter()
            .map(|(name, _)| format!("{name:?}"))
            .chain([format!("{:?}", agent.as_str())])
            .collect();
        let help = format!(
            "in [plugins.{}] write `grants.delegate = [{}]`",
            task.setup.agent,
            names.join(", ")
        );
        problems.push(
            config
                .problem(ProblemCode::NotGranted, &entry_path(name, index, "task"), what)
                .help(help),
        );
    }
}

/// Reports an offered handoff tool without a possible target.
fn check_handoff(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    plugins: &Plugins,
    tools: &[Placed],
    problems: &mut Problems,
) {
    let offered = |tool: &TaskTool| {
        tool.offered && tool.target == ToolTarget::Host(HostTool::HandoffConversation)
    };
    let Some((Some(index), _)) = tools.iter().find(|(_, tool)| offered(tool)) else { return };
    let Some(table) = &task.setup.handoff else { return };
    let asks = plugins
        .get(&task.setup.agent)
        .is_some_and(|facts| facts.manifest.ask(Capability::Route).is_some());
    let granted = config
        .plugins
        .get(&task.setup.agent)
        .and_then(|agent| agent.grants.route.as_ref())
        .filter(|_| asks);
    let may_route = |to: &str| {
        granted.is_some_and(|grant| grant.names.iter().any(|name| name.eq_ignore_ascii_case(to)))
    };
    if table.iter().any(|to| is_user(to) || may_route(to)) {
        return;
    }
    let what = format!(
        "the task offers `handoff_conversation`, and {} may hand the conversation to nobody",
        code(task.setup.agent.as_str())
    );
    let help = match table.first() {
        Some(to) if asks => {
            format!("in [plugins.{}] write `grants.route = [\"{to}\"]`", task.setup.agent)
        }
        Some(to) => {
            format!("take an agent that asks for `route`, or leave {} out of `handoff`", code(to))
        }
        None => "name a task, or `user`, in `handoff`, or leave it out".to_owned(),
    };
    problems.push(
        config.problem(ProblemCode::NotGranted, &entry_path(name, *index, "tool"), what).help(help),
    );
}
