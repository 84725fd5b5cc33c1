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
    let asks = |capability, grant: &dyn Grant| needs_approver(plugin, capability, grant);
    if plugin.grants.any(asks) { Decide::Ask } else { Decide::Allow }
}

/// Whether a grant needs an approver; one that the manifest does not request has no effect. The
/// manifest is searched by name, so it comes last.
fn needs_approver(plugin: &PluginSetup, capability: Capability, grant: &dyn Grant) -> bool {
    grant.needs_approval() && plugin.facts.manifest.ask(capability).is_some()
}

/// The grants that need an approver, in the order in which a reason names them.
fn approvable(plugin: &PluginSetup) -> impl Iterator<Item = &dyn Grant> {
    use Capability::{Delegate, Exec, Fetch, Files, Model, Secrets};
    Capability::beginning_with(&[Files, Fetch, Secrets, Model, Delegate, Exec])
        .filter_map(|capability| Some((capability, plugin.grants.get(capability)?)))
        .filter(|(capability, grant)| needs_approver(plugin, *capability, *grant))
        .map(|(_, grant)| grant)
}

/// The reason in words: `notes may write notes/`.
#[must_use]
pub fn reason(name: &PluginName, plugin: &PluginSetup) -> String {
    if plugin.facts.is_unconfined_server() {
        return format!("{name} is a server outside any sandbox: nobody knows what it can do");
    }
    if plugin.facts.mcp {
        return format!("{name} is a server: within its grants, nobody knows what a tool does");
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
