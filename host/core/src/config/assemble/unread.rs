//! Background results that may find nobody: a task that delegates without waiting, and is done with
//! its first answer. The host then shows the result to the user, but no agent reads it.

use super::Plugins;
use super::toolbox::delegates_of;
use crate::config::{Config, ProblemCode, Problems, TaskConfig, ToolEntry, ToolsEntry};
use crate::types::channel::ChannelKind;
use crate::types::host_tool::HostTool;
use crate::types::ids::TaskName;
use crate::types::wording::code;

/// Adds a warning for each task and worker.
pub(super) fn check(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    // A conversation of `conclave serve` goes on, and its agent reads each result in a turn.
    if config.channels.values().any(|binding| binding.kind == ChannelKind::Web) {
        return;
    }
    for (name, task) in &config.tasks {
        if task.setup.interactive
            || task.setup.background.wait
            || task.setup.background.delivery_strategy.is_some()
        {
            continue;
        }
        for worker in workers(config, task, plugins) {
            let strategy = config.tasks.get(worker.as_str()).map(|it| &it.setup.delivery_strategy);
            if strategy.is_none_or(Option::is_some) {
                continue;
            }
            let what = format!(
                "{} delegates to {}, and no agent reads a result that comes after its answer",
                code(name.as_str()),
                code(worker.as_str())
            );
            let help = format!(
                "write `delivery_strategy = …` in [tasks.{worker}], or `background = {{ wait = true }}` in [tasks.{name}]"
            );
            let problem =
                config.problem(ProblemCode::UnreadResult, &format!("tasks.{name}.tools"), what);
            problems.push(
                problem
                    .because("it has no user who could answer, so it is done with its first answer")
                    .help(help)
                    .as_warning(),
            );
        }
    }
}

/// The tasks that the model may delegate to without waiting for the result.
fn workers(config: &Config, task: &TaskConfig, plugins: &Plugins) -> Vec<TaskName> {
    let delegates =
        |entry: &&ToolEntry| entry.tool == ToolsEntry::Host(HostTool::DelegateTask) && !entry.wait;
    let mut workers: Vec<TaskName> = Vec::new();
    for entry in task.tools.iter().flatten().filter(delegates) {
        match &entry.agent {
            Some(worker) => workers.push(worker.clone()),
            None => workers.extend(
                delegates_of(config, task, plugins).into_iter().map(|(name, _)| name.into()),
            ),
        }
    }
    workers.sort();
    workers.dedup();
    workers
}
