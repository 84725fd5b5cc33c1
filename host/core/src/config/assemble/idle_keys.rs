//! Keys of tasks that can have no effect with their agent, as its manifest shows.

use super::Plugins;
use crate::config::idle_keys::{stock_agent, warn};
use crate::config::{Config, Problems};
use crate::types::capability::Capability;

/// The keys that only a prompt of a model contains.
const OF_PROMPTS: [&str; 4] = ["condense", "knowledge", "system", "tool_format"];
/// The stock agent whose answers are texts.
const CHAT: &str = "chat";

/// Adds a warning for each.
pub(super) fn check(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    for (name, task) in &config.tasks {
        // What another author's agent does with its task's texts is not known.
        let (Some(stock), Some(facts)) =
            (stock_agent(config, task), plugins.get(&task.setup.agent))
        else {
            continue;
        };
        let idle: &[&str] =
            if facts.manifest.ask(Capability::Model).is_none() { &OF_PROMPTS } else { &[] };
        for key in idle {
            let path = format!("tasks.{name}.{key}");
            if config.is_written(&path) {
                let what = format!("`{key}` has no effect in the task `{name}`");
                let why = format!("`stock:{stock}` asks no model");
                warn(
                    config,
                    problems,
                    &path,
                    what,
                    &why,
                    "leave the key out, or take another agent",
                );
            }
        }
        let outputs = task.setup.prompt_agent.as_ref().map_or(0, |agent| agent.outputs.len());
        if outputs > 0 && stock == CHAT {
            let path = format!("tasks.{name}.prompt_agent");
            let what = format!("the `outputs` of the prompt agent of `{name}` are not required");
            let why = "`stock:chat` ends with a text, and only `finish` has outputs";
            let help = "write `source = \"stock:micro\"`, or leave `outputs` out of the file";
            warn(config, problems, &path, what, why, help);
        }
    }
}
