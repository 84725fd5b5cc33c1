//! The decision for a tool without a rule. It is derived from the plugin's grants and its manifest,
//! never from its own description. Reading is allowed; writing, sending, spending, using a secret
//! or starting work needs an approver.

use crate::permissions::fetch::HostPattern;
use crate::permissions::grant::folder;
use crate::permissions::grant::{FileGrant, FileMode, Grants};
use crate::permissions::manifest::Manifest;
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
    let manifest = &plugin.facts.manifest;
    // Destructured without `..`, so that a new grant does not compile before it is judged here.
    // `tools`: each call that a tool's answer requests is checked against the rules itself.
    // `route`: steers only the calling task. `kv`: the plugin's own store. `history`: only reads.
    // `files` with an overlay: a person reads the changes before they reach the folder.
    let Grants {
        model,
        tools: _,
        delegate,
        route: _,
        files,
        channels,
        fetch,
        kv: _,
        secrets,
        history: _,
        exec,
    } = &plugin.grants;
    let asks = |capability: Capability| manifest.ask(capability).is_some();
    let reaches = (model.is_some() && asks(Capability::Model))
        || (delegate.is_some() && asks(Capability::Delegate))
        || (files.iter().any(|grant| grant.mode == FileMode::ReadWrite) && asks(Capability::Files))
        || (channels.is_some() && asks(Capability::Channels))
        || (fetch.is_some() && asks(Capability::Fetch))
        || (!secrets.is_empty() && asks(Capability::Secrets))
        || (exec.is_some() && asks(Capability::Exec));
    if reaches { Decide::Ask } else { Decide::Allow }
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
    let may = reach(&plugin.facts.manifest, &plugin.grants);
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

/// Every capability that makes the host ask.
fn reach(manifest: &Manifest, grants: &Grants) -> Vec<String> {
    let asks = |capability: Capability| manifest.ask(capability).is_some();
    let list = |names: Vec<&str>| names.join(", ");
    let mut may = Vec::new();
    let dirs: Vec<String> =
        grants.files.iter().filter(|grant| grant.mode == FileMode::ReadWrite).map(folder).collect();
    if !dirs.is_empty() && asks(Capability::Files) {
        may.push(format!("write {}", dirs.join(", ")));
    }
    if let Some(fetch) = grants.fetch.as_ref().filter(|_| asks(Capability::Fetch)) {
        let urls: Vec<String> = fetch.rules.iter().map(|rule| rule.url.to_string()).collect();
        may.push(format!("send to {}", urls.join(", ")));
    }
    if !grants.secrets.is_empty() && asks(Capability::Secrets) {
        let bound = |hosts: &[HostPattern]| list(hosts.iter().map(HostPattern::as_str).collect());
        let secrets: Vec<String> = grants
            .secrets
            .iter()
            .map(|secret| format!("{} (for {})", secret.name, bound(&secret.hosts)))
            .collect();
        may.push(format!("use the secret {}", secrets.join(", ")));
    }
    if let Some(model) = grants.model.as_ref().filter(|_| asks(Capability::Model)) {
        may.push(format!(
            "spend on the model {}",
            list(model.names.iter().map(|name| name.as_str()).collect())
        ));
    }
    if let Some(delegate) = grants.delegate.as_ref().filter(|_| asks(Capability::Delegate)) {
        may.push(format!(
            "delegate to {}",
            list(delegate.tasks.iter().map(|name| name.as_str()).collect())
        ));
    }
    if let Some(grant) = grants.exec.as_ref().filter(|_| asks(Capability::Exec)) {
        let commands = grant.commands.iter().map(|pattern| pattern.as_str()).collect();
        may.push(format!("run {}, outside the sandbox", list(commands)));
    }
    if let Some(grant) = grants.channels.as_ref().filter(|_| asks(Capability::Channels)) {
        may.push(format!(
            "speak on {}",
            list(grant.channels.iter().map(|channel| channel.as_str()).collect())
        ));
    }
    may
}
