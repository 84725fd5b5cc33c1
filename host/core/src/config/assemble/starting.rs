//! Which tasks have a way to start background tasks: the others need no part of the run's limit of
//! tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::toolbox::may_start_tasks;
use super::{Config, Plugins};
use crate::setup::TaskSetup;
use crate::tool_calls::toolbox::ToolTarget;
use crate::types::host_tool::HostTool;
use crate::types::ids::TaskName;

/// Marks the tasks without a way to start background tasks, if a limit of tasks is set.
pub(super) fn mark(
    config: &Config,
    plugins: &Plugins,
    tasks: &mut BTreeMap<TaskName, Arc<TaskSetup>>,
) {
    if config.limits.tasks.is_none() && config.limits.tasks_at_once.is_none() {
        return;
    }
    let idle: Vec<TaskName> = tasks
        .keys()
        .filter(|name| !starts_tasks(config, plugins, tasks, name, &mut BTreeSet::new()))
        .cloned()
        .collect();
    for name in idle {
        if let Some(setup) = tasks.get_mut(&name) {
            Arc::make_mut(setup).starts_no_tasks = true;
        }
    }
}

/// Whether a room that begins with this task can start background tasks: the task itself, its
/// sub-tasks, and those that it may hand the conversation to.
fn starts_tasks<'a>(
    config: &'a Config,
    plugins: &Plugins,
    tasks: &'a BTreeMap<TaskName, Arc<TaskSetup>>,
    name: &'a TaskName,
    seen: &mut BTreeSet<&'a TaskName>,
) -> bool {
    if !seen.insert(name) {
        return false;
    }
    let (Some(setup), Some(task)) = (tasks.get(name), config.tasks.get(name)) else {
        return false;
    };
    let offers = |host_tool: HostTool| {
        setup.toolbox.iter().any(|tool| tool.offered && tool.target == ToolTarget::Host(host_tool))
    };
    // An agent can also delegate by an action, without the tool. A written list of tools without it
    // says that this task does not.
    let has_tool = task.tools.is_none() || offers(HostTool::DelegateTask);
    let is_routed = setup.toolbox.iter().any(|tool| match &tool.target {
        ToolTarget::Plugin { plugin, .. } => {
            config.plugins.get(plugin).and_then(|plugin| plugin.grants.route.as_ref()).is_some_and(
                |route| route.names.iter().any(|name| name == HostTool::DelegateTask.as_str()),
            )
        }
        ToolTarget::Host(_) => false,
    });
    if (has_tool || is_routed) && may_start_tasks(config, task, plugins) {
        return true;
    }
    let successors: Vec<&TaskName> = match &setup.handoff {
        _ if !offers(HostTool::HandoffConversation) => Vec::new(),
        Some(table) => {
            tasks.keys().filter(|name| table.iter().any(|to| to == name.as_str())).collect()
        }
        None => tasks.keys().collect(),
    };
    setup
        .subtasks
        .iter()
        .chain(successors)
        .any(|next| starts_tasks(config, plugins, tasks, next, seen))
}
