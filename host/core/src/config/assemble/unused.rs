//! Plugins without effect, with the line that would use them: derived from their exports, and from
//! the agents' requests.

use super::Plugins;
use crate::config::usage::{agents_at_work, tools_line, unused, unused_plugins};
use crate::config::{Config, Problems};
use crate::types::capability::Capability;
use crate::types::ids::PluginName;
use crate::types::plugin_kind::PluginKind;

/// Adds a warning for each.
pub(super) fn check(config: &Config, plugins: &Plugins, problems: &mut Problems) {
    for name in unused_plugins(config) {
        let help =
            format!("{}; or leave out [plugins.{name}]", uses(config, plugins, name).join("; "));
        problems.push(unused(config, name).help(help));
    }
}

/// The lines that would use the plugin, one for each of its kinds.
fn uses(config: &Config, plugins: &Plugins, name: &PluginName) -> Vec<String> {
    let Some(facts) = plugins.get(name) else { return Vec::new() };
    let of_kind = |kind: &PluginKind| match kind {
        PluginKind::Tools => {
            let asks = |agent: &&&PluginName| {
                plugins
                    .get(**agent)
                    .is_some_and(|facts| facts.manifest.ask(Capability::Tools).is_some())
            };
            agents_at_work(config).iter().find(asks).map_or_else(
                || {
                    "give a task an agent that asks for `tools`: none of those at work does"
                        .to_owned()
                },
                |agent| {
                    let line = tools_line(config, agent, &format!("{name}.*"));
                    format!("write `{line}` in [plugins.{agent}]")
                },
            )
        }
        PluginKind::Agent | PluginKind::Responder => {
            format!("write `agent = \"{name}\"` in a task")
        }
        PluginKind::Memory => format!("write `memory = \"{name}\"` in a task"),
        PluginKind::DeliveryStrategy => {
            format!("write `delivery_strategy = \"{name}\"` in a task that is delegated to")
        }
        PluginKind::SecurityAnalyzer => {
            format!("write `confirm = {{ analyzer = \"{name}\" }}` in a task")
        }
        PluginKind::Condenser => format!("write `condense = {{ plugin = \"{name}\" }}` in a task"),
        PluginKind::Judge => format!("write `judge = \"{name}\"` in a task"),
        PluginKind::SimulatedUser => format!("write `simulated_user = \"{name}\"` in a task"),
        PluginKind::Gate => format!("write `plugin = \"{name}\"` in a [[gates]]"),
        PluginKind::Observer => format!("write `plugin = \"{name}\"` in an [[observers]]"),
        PluginKind::Channel => {
            format!("write `kind = \"plugin\"` and `plugin = \"{name}\"` in a [channels.NAME]")
        }
    };
    facts.kinds.iter().map(of_kind).collect()
}
