//! Tools as plugins declare them, and the patterns for them in grants and tasks. The tools of a
//! task are chosen in `toolbox`.

use std::collections::BTreeSet;

use super::{Plugins, authors_problem};
use crate::config::foreign_names::is_tool_name;
use crate::config::invisible_chars::{code_point, in_tool};
use crate::config::usage::tools_line;
use crate::config::{
    Config, ConfigProblem, NAME_MAX, ProblemCode, Problems, TaskConfig, ToolsEntry,
};
use crate::permissions::grants::ToolPattern;
use crate::setup::PluginFacts;
use crate::types::ids::{PluginName, TaskName};
use crate::types::text::is_deceptive;
use crate::types::tool::ToolSpec;
use crate::types::wording::{code, suggest};

/// The limit of a tool's description in bytes: it is part of every prompt of every agent that may
/// call it.
pub(in crate::config) const DESCRIPTION_MAX: usize = 4 << 10;
/// The limit of a tool's input schema in bytes, for the same reason.
const SCHEMA_MAX: usize = 64 << 10;

/// Checks that a plugin's tools have distinct names that a model can write, and descriptions that a
/// person can read.
pub(super) fn check_declared(
    config: &Config,
    plugin: &PluginName,
    facts: &PluginFacts,
    problems: &mut Problems,
) {
    let mut seen = BTreeSet::new();
    for tool in &facts.tools {
        let quoted_name = code(&format!("{plugin}.{}", tool.name));
        if !seen.insert(tool.name.as_str()) {
            problems.push(authors_problem(
                config,
                plugin,
                format!("the plugin `{plugin}` has two tools called {quoted_name}"),
            ));
        }
        for wrong in faults(tool) {
            problems.push(authors_problem(
                config,
                plugin,
                format!("the tool {quoted_name} {wrong}"),
            ));
        }
    }
}

/// Returns why the tool cannot be admitted, each as the end of a sentence about it; empty if it can.
#[must_use]
pub fn faults(tool: &ToolSpec) -> Vec<String> {
    let mut faults = Vec::new();
    if !is_tool_name(&tool.name) {
        faults.push(format!(
            "must have a name of 1 to {NAME_MAX} lower-case ASCII letters, digits and `_`"
        ));
    }
    if tool.description.len() > DESCRIPTION_MAX {
        faults.push(format!(
            "has a description of {} bytes; {DESCRIPTION_MAX} are allowed",
            tool.description.len()
        ));
    }
    if let Some((place, c)) = in_tool(tool) {
        faults.push(format!("has an invisible character in its {place}: {}", code_point(c)));
    }
    match &tool.input_schema {
        serde_json::Value::Object(schema)
            if schema.get("type").is_none_or(|kind| kind == "object") => {}
        _ => faults.push("has an input schema that does not describe an object".to_owned()),
    }
    if tool.title.as_ref().is_some_and(|title| {
        title.is_empty() || title.len() > NAME_MAX || title.chars().any(is_deceptive)
    }) {
        faults
            .push(format!("must have a title of 1 to {NAME_MAX} bytes that can be seen, or none"));
    }
    let examples: usize = tool
        .examples
        .iter()
        .map(|example| {
            example.arguments.to_string().len()
                + example.thought.iter().map(String::len).sum::<usize>()
        })
        .sum();
    if examples > SCHEMA_MAX {
        faults.push(format!("has examples of {examples} bytes; {SCHEMA_MAX} are allowed"));
    }
    let length = tool.input_schema.to_string().len();
    if length > SCHEMA_MAX {
        faults.push(format!("has an input schema of {length} bytes; {SCHEMA_MAX} are allowed"));
    }
    faults
}

/// Reports patterns of grants and tasks that cover no tool, and those of tasks that the agent was
/// not granted.
pub(super) fn check_patterns(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    let admitted = admitted(plugins);
    for (name, plugin) in &config.plugins {
        for (index, pattern) in
            plugin.grants.tools.iter().flat_map(|grant| &grant.names).enumerate()
        {
            problems.0.extend(covers_nothing(
                config,
                plugins,
                &admitted,
                pattern,
                &grant_path(config, name, index),
            ));
        }
    }
    for (name, task) in &config.tasks {
        for (index, entry) in task.tools.iter().flatten().enumerate() {
            let ToolsEntry::Plugins(pattern) = &entry.tool else { continue };
            let path = entry_path(name, index, "tool");
            let problem = covers_nothing(config, plugins, &admitted, pattern, &path);
            problems.0.extend(
                problem.or_else(|| not_granted(config, plugins, task, &admitted, pattern, &path)),
            );
        }
    }
}

fn covers_nothing(
    config: &Config,
    plugins: &Plugins,
    admitted: &BTreeSet<String>,
    pattern: &ToolPattern,
    path: &str,
) -> Option<ConfigProblem> {
    if admitted.iter().any(|tool| pattern.covers(tool)) || !is_loaded(config, plugins, pattern) {
        return None;
    }
    let plugin = pattern.0.split_once('.').map(|(plugin, _)| plugin);
    let here: Vec<&str> = admitted
        .iter()
        .map(String::as_str)
        .filter(|tool| plugin.is_none_or(|plugin| plugin_of(tool) == plugin))
        .collect();
    let all: Vec<&str> = admitted.iter().map(String::as_str).collect();
    let help = match (plugin, here.is_empty()) {
        (Some(plugin), true) => suggest(&pattern.0, &all, "tools here")
            .map(|help| format!("`{plugin}` has no tools; {help}")),
        _ => suggest(&pattern.0, &here, "its tools are"),
    };
    let problem = config.problem(
        ProblemCode::UnknownTool,
        path,
        format!("{} covers no tool", code(&pattern.0)),
    );
    Some(problem.help(help.unwrap_or_else(|| "no plugin here has tools".to_owned())))
}

/// Whether the plugins of a pattern are loaded. A missing plugin has its own problem.
fn is_loaded(config: &Config, plugins: &Plugins, pattern: &ToolPattern) -> bool {
    match pattern.0.split_once('.') {
        Some((plugin, _)) => plugins.contains_key(plugin),
        None => config.plugins.keys().all(|name| plugins.contains_key(name)),
    }
}

/// Reports patterns of a task outside its agent's grant: a task may only narrow.
fn not_granted(
    config: &Config,
    plugins: &Plugins,
    task: &TaskConfig,
    admitted: &BTreeSet<String>,
    pattern: &ToolPattern,
    path: &str,
) -> Option<ConfigProblem> {
    let granted =
        config.plugins.get(&task.setup.agent).and_then(|agent| agent.grants.tools.as_ref());
    let is_granted = |tool: &str| {
        granted.is_some_and(|grant| grant.names.iter().any(|pattern| pattern.covers(tool)))
    };
    if admitted.iter().any(|tool| pattern.covers(tool) && is_granted(tool))
        || !is_loaded(config, plugins, pattern)
    {
        return None;
    }
    let what = format!(
        "a task may only narrow what its agent was granted: `{}` may not call {}",
        task.setup.agent,
        code(&pattern.0)
    );
    let line = tools_line(config, &task.setup.agent, &pattern.0);
    Some(
        config
            .problem(ProblemCode::NotGranted, path, what)
            .help(format!("in [plugins.{}] write `{line}`", task.setup.agent)),
    )
}

/// Every tool of every loaded plugin, as `plugin.tool`.
pub(super) fn admitted(plugins: &Plugins) -> BTreeSet<String> {
    plugins
        .iter()
        .flat_map(|(plugin, facts)| {
            facts.tools.iter().map(move |tool| format!("{plugin}.{}", tool.name))
        })
        .collect()
}

fn plugin_of(tool: &str) -> &str {
    tool.split_once('.').map_or(tool, |(plugin, _)| plugin)
}

/// The path of the grant's pattern, in its short or its long form.
fn grant_path(config: &Config, plugin: &PluginName, index: usize) -> String {
    let grant = format!("plugins.{plugin}.grants.tools");
    let long = format!("{grant}.names[{index}]");
    if config.is_written(&long) { long } else { format!("{grant}[{index}]") }
}

/// The path of a key in an entry of a task's list; for an entry that is only a name, that of the
/// entry.
pub(super) fn entry_path(task: &TaskName, index: usize, key: &str) -> String {
    format!("tasks.{task}.tools[{index}].{key}")
}
