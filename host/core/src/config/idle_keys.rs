//! Keys that are written and can have no effect, because of what else the config says. A table of
//! keys with their conditions; what depends on a plugin's manifest is checked in `assemble`.

use super::{Config, PluginSource, ProblemCode, Problems, TaskConfig, ToolsEntry};
use crate::types::channel::{ChannelAccess, ChannelKind};
use crate::types::completion::ToolFormat;
use crate::types::confirm::ConfirmPolicy;
use crate::types::host_tool::HostTool;
use crate::types::ids::TaskName;

/// The stock agent that recalls.
const RECALLING: &str = "micro";

/// Keys of a task without effect where `is_idle` holds.
struct IdleKeys {
    keys: &'static [&'static str],
    is_idle: fn(&Config, &TaskName, &TaskConfig) -> bool,
    why: &'static str,
    help: &'static str,
}

const OF_TASKS: &[IdleKeys] = &[
    IdleKeys {
        keys: &[
            "delivery_strategy",
            "deadline",
            "on_close",
            "structured_retries",
            "result_delivery",
            "budget",
        ],
        is_idle: |config, name, _| !is_delegated(config, name),
        why: "the key is about a background task, and no agent may delegate to this one",
        help: "add the task to `grants.delegate` of an agent, or leave the key out",
    },
    IdleKeys {
        keys: &["background"],
        is_idle: |config, _, task| {
            let agent = config.plugins.get(&task.setup.agent);
            agent.is_some_and(|agent| agent.grants.delegate.is_none())
        },
        why: "its agent may start no background task",
        help: "grant it tasks, as `grants.delegate = [\"digest\"]`, or leave the key out",
    },
    IdleKeys {
        keys: &["handoff"],
        is_idle: |_, _, task| !offers(task, HostTool::HandoffConversation),
        why: "the task does not offer `handoff_conversation`",
        help: "add \"handoff_conversation\" to its `tools`, or leave the key out",
    },
    IdleKeys {
        keys: &["overflow"],
        is_idle: |config, _, task| has_no_context(config, task),
        why: "no model of its agent has a `context`, so no history is cut",
        help: "write `context` in [models.NAME], or leave the key out",
    },
    IdleKeys {
        keys: &["only_user_quits_root"],
        is_idle: |_, _, task| !task.setup.interactive,
        why: "the key is about interactive tasks",
        help: "write `interactive = true`, or leave the key out",
    },
    IdleKeys {
        keys: &["respond_tools_only", "restart_as_subtask"],
        is_idle: |config, name, _| !is_subtask(config, name),
        why: "the key is about a sub-task, and this task is none",
        help: "name the task in the `subtasks` of another one, or leave the key out",
    },
    IdleKeys {
        keys: &["erase_substeps"],
        is_idle: |_, _, task| task.setup.subtasks.is_empty(),
        why: "the task has no sub-tasks",
        help: "name them in `subtasks`, or leave the key out",
    },
    IdleKeys {
        keys: &["allow_multiple_tools", "force_tool"],
        is_idle: |_, _, task| task.setup.tool_format == ToolFormat::Off,
        why: "with `tool_format = \"off\"` no model writes tool calls",
        help: "choose another `tool_format`, or leave the key out",
    },
    IdleKeys {
        keys: &["confirm.analyzer"],
        is_idle: |_, _, task| task.setup.confirm.policy == ConfirmPolicy::Never,
        why: "with `policy = \"never\"` nothing is rated",
        help: "write `policy = \"risky\"`, or leave `confirm` out",
    },
    IdleKeys {
        keys: &["confirm.unknown"],
        is_idle: |_, _, task| task.setup.confirm.analyzer.is_some(),
        why: "the analyzer rates every action, and one that it cannot rate counts as high",
        help: "leave the key out, or leave `analyzer` out",
    },
    IdleKeys {
        keys: &["memory"],
        is_idle: |config, _, task| {
            stock_agent(config, task).is_some_and(|agent| agent != RECALLING)
        },
        why: "the agent never recalls: of the stock agents only `stock:micro` does",
        help: "give the task an agent that recalls, or offer the memory's tools, if it has any",
    },
];

/// Adds a warning for each.
pub(super) fn check(config: &Config, problems: &mut Problems) {
    for (name, task) in &config.tasks {
        for idle in OF_TASKS {
            let written = |key: &&&str| config.is_written(&format!("tasks.{name}.{key}"));
            let mut keys = idle.keys.iter().filter(written).peekable();
            if keys.peek().is_none() || !(idle.is_idle)(config, name, task) {
                continue;
            }
            for key in keys {
                let what = format!("`{key}` has no effect in the task `{name}`");
                warn(config, problems, &format!("tasks.{name}.{key}"), what, idle.why, idle.help);
            }
        }
    }
    for (name, task) in &config.tasks {
        let confirm = &task.setup.confirm;
        if matches!(confirm.policy, ConfirmPolicy::Risky { .. }) && confirm.analyzer.is_none() {
            let what = format!(
                "\"risky\" asks about every action of the task `{name}`, as \"always\" does"
            );
            let why = "without an `analyzer` no risk is known";
            let help = "write `analyzer = \"NAME\"` with a plugin that rates risks, or \"always\"";
            warn(config, problems, &format!("tasks.{name}.confirm"), what, why, help);
        }
    }
    for (channel, binding) in &config.channels {
        if binding.kind == ChannelKind::Web && binding.access == ChannelAccess::None {
            let what = format!("the channel `{channel}` reaches nobody");
            let why = "with `access = \"none\"` it neither gets nor sends messages";
            let help = "write another `access`, or leave the channel out";
            warn(config, problems, &format!("channels.{channel}.access"), what, why, help);
        }
    }
}

pub(super) fn warn(
    config: &Config,
    problems: &mut Problems,
    path: &str,
    what: String,
    why: &str,
    help: &str,
) {
    let problem = config.problem(ProblemCode::NoEffect, path, what);
    problems.push(problem.because(why).help(help).as_warning());
}

fn is_delegated(config: &Config, task: &TaskName) -> bool {
    let grants = config.plugins.values().filter_map(|plugin| plugin.grants.delegate.as_ref());
    grants.flat_map(|grant| &grant.tasks).any(|name| name == task)
}

fn is_subtask(config: &Config, task: &TaskName) -> bool {
    config.tasks.values().any(|other| other.setup.subtasks.contains(task))
}

fn offers(task: &TaskConfig, tool: HostTool) -> bool {
    task.tools.iter().flatten().any(|entry| entry.tool == ToolsEntry::Host(tool))
}

/// Whether the agent has models, and none of them has a `context`.
fn has_no_context(config: &Config, task: &TaskConfig) -> bool {
    let grant = config.plugins.get(&task.setup.agent).and_then(|agent| agent.grants.model.as_ref());
    let mut models = grant.into_iter().flat_map(|grant| &grant.names).peekable();
    models.peek().is_some()
        && models.all(|model| {
            config.models.get(model).is_some_and(|model| model.prices.context.is_none())
        })
}

/// The name of the stock plugin that is the task's agent.
pub(super) fn stock_agent<'a>(config: &'a Config, task: &TaskConfig) -> Option<&'a str> {
    match &config.plugins.get(&task.setup.agent)?.source {
        PluginSource::Stock(name) => Some(name.as_str()),
        _ => None,
    }
}
