//! `conclave.lock`: what each plugin of a config was when the operator let it in: its digest, what
//! it asks for, and every text of its tools. A later difference is a question for the operator, not
//! for the run. Pure: whoever reads and writes the file is elsewhere.

mod admit;
mod diff;
mod parse;
mod render;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::config::PluginSource;
use crate::permissions::manifest::CapabilityRequest;
use crate::setup::{PluginFacts, PluginKind};
use crate::types::ids::PluginName;
use crate::types::tool::ToolSpec;

pub use admit::{Admission, LockRefusal, admit};
pub use diff::{LockChange, PluginPart, diff, is_harmless};
pub use parse::LockError;

/// The format that this host writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The pinned plugins, by their names in the config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lockfile {
    pub plugins: BTreeMap<PluginName, Pinned>,
}

/// A plugin as it was let in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pinned {
    /// As its manifest has it: whose stores it may use rests on it.
    pub name: String,
    /// Of the plugin as a whole; for people.
    pub description: String,
    /// As its manifest had it; for people.
    pub version: String,
    /// Of the component, lower-case hexadecimal; empty when it is none, as with a server of tools.
    pub sha256: String,
    /// The operator builds it: another build is admitted while nothing differs that a person or a
    /// model was shown.
    pub dev: bool,
    pub contract: String,
    pub kinds: BTreeSet<PluginKind>,
    pub asks: BTreeMap<String, CapabilityRequest>,
    /// Its tools as a model sees them, by name.
    pub tools: BTreeMap<String, ToolSpec>,
}

impl Pinned {
    /// What a lock keeps of a plugin.
    #[must_use]
    pub fn of(facts: &PluginFacts) -> Self {
        Self {
            name: facts.manifest.name.clone(),
            description: facts.manifest.description.clone(),
            version: facts.manifest.version.clone(),
            sha256: facts.sha256.clone(),
            dev: false,
            contract: facts.manifest.contract.clone(),
            kinds: facts.kinds.clone(),
            asks: facts.manifest.asks.clone(),
            tools: facts.tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect(),
        }
    }
}

/// Plugins of this source are pinned. What the embedding program brings is part of it.
#[must_use]
pub fn is_pinned(source: &PluginSource) -> bool {
    !matches!(source, PluginSource::Native(_))
}

impl Lockfile {
    /// Takes out the plugins that are not among these, and gives their names.
    pub fn keep_only(&mut self, names: &BTreeSet<PluginName>) -> Vec<PluginName> {
        let gone: Vec<PluginName> =
            self.plugins.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.plugins.remove(name)));
        gone
    }
}
