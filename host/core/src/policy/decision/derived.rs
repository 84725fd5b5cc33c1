//! The decision for a tool without a rule. It is derived from the plugin's grants and its manifest,
//! never from its own description. Reading is allowed; writing, sending, spending, using a secret
//! or starting work needs an approver.

use crate::permissions::grants::{AccessRequest, FileGrant, FileMode, Grant, folder};
use crate::permissions::policy_rules::Decide;
use crate::setup::PluginSetup;
use crate::types::capability::Capability;
use crate::types::ids::PluginName;

/// The decision for every tool of a plugin. Allocates nothing.
#[must_use]
pub fn derived(plugin: &PluginSetup) -> Decide {
    if plugin.facts.mcp {
        return Decide::Ask;
    }
    if plugin.facts.is_native() {
        return Decide::Allow;
    }
    if approvable(plugin).next().is_some() { Decide::Ask } else { Decide::Allow }
}

/// The grants that need an approver, of those that the manifest requests; a capability that a run
/// can be harmed by comes first.
fn approvable(plugin: &PluginSetup) -> impl Iterator<Item = &dyn Grant> {
    use Capability::{Delegate, Exec, Fetch, Files, Model, Secrets};
    Capability::beginning_with(&[Files, Fetch, Secrets, Model, Delegate, Exec]).filter_map(
        |capability| {
            let grant = plugin.grants.get(capability).filter(|grant| grant.needs_approval())?;
            // Last, because the manifest is searched by name.
            plugin.facts.manifest.ask(capability).map(|_| grant)
        },
    )
}

/// The reason in words: `notes may write notes/`.
#[must_use]
pub fn reason(name: &PluginName, plugin: &PluginSetup) -> String {
    if plugin.facts.mcp {
        return format!("{name} is a server outside any sandbox: nobody knows what it can do");
    }
    if plugin.facts.is_native() {
        return format!("{name} is part of the program");
    }
    let request = AccessRequest::new(plugin.rights(name));
    let may: Vec<String> = approvable(plugin).map(|grant| grant.texts(&request).effect).collect();
    match may.split_last() {
        None => {
            let is_overlay = |grant: &&FileGrant| grant.mode == FileMode::Overlay;
            let overlays = plugin.grants.files.iter().filter(is_overlay).map(folder);
            let overlays: Vec<String> = overlays.collect();
            match overlays.is_empty() || plugin.facts.manifest.ask(Capability::Files).is_none() {
                true => format!("{name} can only read"),
                false => format!(
                    "{name} writes only into an overlay of {}, which you apply or drop",
                    overlays.join(", ")
                ),
            }
        }
        Some((only, [])) => format!("{name} may {only}"),
        Some((last, others)) => format!("{name} may {} and {last}", others.join(", ")),
    }
}
