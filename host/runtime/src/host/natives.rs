//! Plugins that the embedding program brings: found by name, and looked at like any other before a config gives them anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use conclave_core::config::{Config, PluginSource, Problems};
use conclave_core::ids::PluginName;
use conclave_core::setup::{PluginFacts, PluginSetup};

use super::Host;
use super::sources::Missing;
use crate::native::{self, Native};
use crate::plugin::{Arguments, schemas};

/// A native plugin that was taken in.
pub(super) struct LoadedNative {
    plugin: native::Plugin,
    pub(super) facts: PluginFacts,
    arguments: Arguments,
}

impl LoadedNative {
    /// # Errors
    /// Why it is refused: what it asks for, or the schema of a tool.
    async fn load(plugin: &native::Plugin) -> Result<Self, String> {
        let facts = plugin.facts()?;
        let schemas = schemas(facts.tools.clone()).await.map_err(|error| error.to_string())?;
        Ok(Self { plugin: plugin.clone(), facts, arguments: Arguments::new(schemas) })
    }

    /// The plugin with what the operator gave it.
    pub(super) fn given(self, name: PluginName, setup: Arc<PluginSetup>) -> Native {
        Native::new(self.plugin, self.arguments, name, setup)
    }
}

impl Host {
    /// The native plugins that a config names.
    pub(super) async fn load_natives(
        &self,
        config: &Config,
        problems: &mut Problems,
        refused: &mut bool,
    ) -> BTreeMap<PluginName, LoadedNative> {
        let mut loaded = BTreeMap::new();
        for (name, plugin) in &config.plugins {
            let PluginSource::Native(source) = &plugin.source else { continue };
            let key = format!("plugins.{name}.source");
            match self.natives.get(source) {
                None => problems.push(self.no_native(source).problem(config, &key)),
                Some(plugin) => match LoadedNative::load(plugin).await {
                    Ok(native) => drop(loaded.insert(name.clone(), native)),
                    Err(what) => {
                        *refused = true;
                        problems.push(config.problem(&key, format!("the plugin `{name}` is refused: {what}")));
                    }
                },
            }
        }
        loaded
    }

    pub(super) fn no_native(&self, name: &str) -> Missing {
        if self.natives.is_empty() {
            let help = "take a component, or run this config in the program that it was written for";
            return Missing::new("this program brings no native plugins", help);
        }
        let known: Vec<&str> = self.natives.keys().map(String::as_str).collect();
        Missing::new(format!("there is no native plugin `{name}`"), format!("these are there: {}", known.join(", ")))
    }
}
