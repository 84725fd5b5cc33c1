//! `conclave.lock`: the state of each plugin when the operator admitted it: its digest, its
//! requests, and every text of its tools. A later difference needs a decision by the operator, not
//! by the run. Pure: the file is read and written elsewhere.

mod admit;
mod diff;
mod parse;
mod render;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, PluginSource, PublicKey};
use crate::permissions::manifest::CapabilityRequest;
use crate::setup::PluginFacts;
use crate::types::ids::PluginName;
use crate::types::oci::OciReference;
use crate::types::plugin_kind::PluginKind;
use crate::types::tool::ToolSpec;

pub use admit::{Admission, LockRefusal, admit};
pub use diff::{LockChange, PluginPart, diff, is_harmless, signer_change};
pub use parse::LockError;

/// The format that this host writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The pinned plugins, by their names in the config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lockfile {
    pub plugins: BTreeMap<PluginName, Pinned>,
}

/// A plugin as it was admitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pinned {
    /// The name in its manifest, which decides on its stores.
    pub name: String,
    /// The description of the plugin as a whole, for people.
    pub description: String,
    /// The version in its manifest, for people.
    pub version: String,
    /// The digest of the component, in lower-case hexadecimal; empty for a plugin without one, such
    /// as a tool server.
    pub sha256: String,
    /// The artifact that the component came from, with the digest of its manifest; `None` if it did
    /// not come from a registry.
    pub artifact: Option<OciReference>,
    /// The keys that had signed it. A run does not compare them: what needs signatures is for
    /// `[trust]` to say.
    pub signers: BTreeSet<PublicKey>,
    /// Whether the operator builds it. Its bytes are then not pinned: any build is admitted while
    /// all texts for people and models stay equal, and none where only pinned plugins are.
    pub dev: bool,
    pub contract: String,
    pub kinds: BTreeSet<PluginKind>,
    pub asks: BTreeMap<String, CapabilityRequest>,
    /// Its tools as a model sees them, by name.
    pub tools: BTreeMap<String, ToolSpec>,
}

impl Pinned {
    /// The entry of a plugin that these keys signed.
    #[must_use]
    pub fn signed_by(signers: BTreeSet<PublicKey>, facts: &PluginFacts) -> Self {
        Self { signers, ..Self::of(facts) }
    }

    /// The entry of a plugin without its signers.
    #[must_use]
    pub fn of(facts: &PluginFacts) -> Self {
        Self {
            signers: BTreeSet::new(),
            name: facts.manifest.name.clone(),
            description: facts.manifest.description.clone(),
            version: facts.manifest.version.clone(),
            sha256: facts.sha256.clone(),
            artifact: facts.provenance.artifact.clone(),
            dev: false,
            contract: facts.manifest.contract.clone(),
            kinds: facts.kinds.clone(),
            asks: facts.manifest.asks.clone(),
            tools: facts.tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect(),
        }
    }
}

/// Whether plugins of this source are pinned. Those of the embedding program are part of it, and
/// are not.
#[must_use]
pub fn is_pinned(source: &PluginSource) -> bool {
    !matches!(source, PluginSource::Native(_))
}

impl Lockfile {
    /// Resolves the tags in a config's sources to the pinned digests. A tag that is not pinned, or
    /// was pinned under another name, stays unresolved.
    pub fn resolve_tags(&self, config: &mut Config) {
        for (name, plugin) in &mut config.plugins {
            let PluginSource::Oci { reference, .. } = &mut plugin.source else { continue };
            let pinned = self.plugins.get(name).and_then(|pinned| pinned.artifact.as_ref());
            if let Some(pinned) = pinned
                && reference.digest().is_none()
                && reference.has_same_name(pinned)
            {
                *reference = pinned.clone();
            }
        }
    }

    /// Removes the plugins that are not among these, and returns their names.
    pub fn keep_only(&mut self, names: &BTreeSet<PluginName>) -> Vec<PluginName> {
        let removed_names: Vec<PluginName> =
            self.plugins.keys().filter(|name| !names.contains(*name)).cloned().collect();
        removed_names.iter().for_each(|name| drop(self.plugins.remove(name)));
        removed_names
    }
}
