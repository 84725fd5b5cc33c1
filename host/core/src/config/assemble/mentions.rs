//! Names of tools in a task's rules: each must be in its toolbox, under the agent's name for it.
//! Does not interpret the rules.

use super::toolbox::own_name;
use crate::config::{Config, ProblemCode, Problems, TaskConfig};
use crate::setup::{NoTool, ReturnType};
use crate::tool_calls::sequence::Expected;
use crate::tool_calls::toolbox::{TaskTool, ToolTarget, Toolbox};
use crate::types::ids::TaskName;
use crate::types::wording::{code, nearest, suggest};

/// Reports each name that matches no tool of the task.
pub(super) fn check(
    config: &Config,
    name: &TaskName,
    task: &TaskConfig,
    toolbox: &Toolbox,
    problems: &mut Problems,
) {
    let mut need = |key: &str,
                    tool: &str,
                    may_have_it: &dyn Fn(&TaskTool) -> bool,
                    lacking: &str| {
        if toolbox.iter().any(may_have_it) {
            return;
        }
        let path = format!("tasks.{name}.{key}");
        let what = format!("{} names the tool {}, which {lacking}", code(key), code(tool));
        problems.push(
            config.problem(ProblemCode::UnknownTool, &path, what).maybe_help(meant(toolbox, tool)),
        );
    };
    let absent = "the task does not have";
    if let Some(force) = &task.setup.force_tool {
        let is_known = toolbox.get(force).is_some();
        need(
            "force_tool",
            force,
            &|tool| tool.offered && tool.summary.name == *force,
            if is_known { "is not offered" } else { absent },
        );
    }
    if let Some(ReturnType::Tool(tool_name)) = &task.setup.returns {
        need("returns.tool", tool_name, &|tool| tool.summary.name == *tool_name, absent);
    }
    // A Langroid task may name unknown tools: the call is left to others, the sequence never
    // matches.
    if task.setup.as_langroid {
        return;
    }
    if let NoTool::Call(call) = &task.setup.no_tool {
        need("on_no_tool_call.tool", &call.name, &|tool| tool.summary.name == call.name, absent);
    }
    for (index, sequence) in task.setup.done_sequences.iter().enumerate() {
        for event in sequence.events() {
            let Expected::SpecificTool(tool_name) = event else { continue };
            // L-092: its title is accepted too.
            let has_it = |tool: &TaskTool| {
                tool.summary.name == *tool_name || tool.title.as_ref() == Some(tool_name)
            };
            need(&format!("done_sequences[{index}]"), tool_name, &has_it, absent);
        }
    }
}

/// Reports each tool that a file of the task requires and its agent is not offered. A file cannot
/// grant tools; only the operator can.
pub(super) fn check_wanted(task: &TaskConfig, toolbox: &Toolbox, problems: &mut Problems) {
    for requirement in &task.wanted_tools {
        let has_it = |tool: &TaskTool| {
            tool.offered
                && (tool.summary.name == requirement.name || own_name(tool) == requirement.name)
        };
        if !toolbox.iter().any(has_it) {
            problems.push(requirement.missing.clone());
        }
    }
}

/// The tool that was most likely meant: the same one under its name here, or one with a similar
/// name.
fn meant(toolbox: &Toolbox, written: &str) -> Option<String> {
    if let Some(tool) = toolbox.get(written) {
        return Some(format!(
            "add {} to the task's `tools`, or leave out `use = false`",
            code(&tool.summary.name)
        ));
    }
    let is_same = |tool: &&TaskTool| match &tool.target {
        ToolTarget::Host(host) => host.as_str() == written || host.langroid_name() == written,
        ToolTarget::Plugin { .. } => own_name(tool) == written,
    };
    if let Some(tool) = toolbox.iter().find(is_same) {
        return Some(format!("write {}: that is its name here", code(&tool.summary.name)));
    }
    let names =
        toolbox.iter().flat_map(|tool| [Some(&tool.summary.name), tool.title.as_ref()]).flatten();
    if let Some(near) = nearest(written, names.map(String::as_str)) {
        return Some(format!("did you mean {}?", code(near)));
    }
    // The host has too many tools to list; only offered ones are likely to be meant.
    let candidates = toolbox
        .iter()
        .filter(|tool| tool.offered || matches!(tool.target, ToolTarget::Plugin { .. }));
    let candidates: Vec<&str> = candidates.map(|tool| tool.summary.name.as_str()).collect();
    suggest(written, &candidates, "tools here")
}
