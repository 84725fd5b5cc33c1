//! Loads native plugins and the plugins of tool servers. They are checked like components before
//! they get a grant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::assemble::tool_faults;
use conclave_core::config::{
    Config, ConfigProblem, McpReach, McpSource, PluginSource, ProblemCode, Problems,
};
use conclave_core::setup::{PluginFacts, PluginSetup};
use conclave_core::types::ids::PluginName;

use super::sources::{Missing, no_servers};
use super::{Follow, Host, LoadStep, folders};
use crate::host::servers::{
    self, ServerFailure, ServerLauncher, ServerNote, ServerPlugin, ServerStart,
};
use crate::native::{self, Native};
use crate::plugin::{ArgumentChecker, LoadError, each_schema, schemas};
use crate::support::digest;

/// A native plugin that was loaded.
pub(super) struct LoadedNative {
    plugin: native::Plugin,
    pub(super) facts: PluginFacts,
    arguments: ArgumentChecker,
}

impl LoadedNative {
    /// # Errors
    /// Returns why the plugin is refused: a capability that it requests, or the schema of a tool.
    async fn load(plugin: &native::Plugin) -> Result<Self, String> {
        let facts = plugin.facts()?;
        let schemas = schemas(facts.tools.clone()).await.map_err(|error| error.to_string())?;
        Ok(Self { plugin: plugin.clone(), facts, arguments: ArgumentChecker::new(schemas) })
    }

    /// Does the same for the plugin of a server: a tool that is refused is left out, and named.
    ///
    /// # Errors
    /// Also if no tool is left.
    async fn load_server(plugin: &native::Plugin) -> Result<(Self, Vec<ServerNote>), String> {
        let facts = plugin.facts()?;
        let mut faults = BTreeMap::new();
        for tool in &facts.tools {
            if let [first, ..] = tool_faults(tool).as_slice() {
                faults.insert(tool.name.clone(), format!("it {first}"));
            }
        }
        // The others stay, because the operator cannot change the server.
        let fit = facts.tools.iter().filter(|tool| !faults.contains_key(&tool.name));
        let schemas = each_schema(fit.cloned().collect()).await.map_err(|why| why.to_string())?;
        let mut compiled = Vec::new();
        for schema in schemas {
            match schema {
                Ok(schema) => compiled.push(schema),
                Err(LoadError::Tool { name, problem }) => drop(faults.insert(name, problem)),
                Err(other) => return Err(other.to_string()),
            }
        }
        let unfit: BTreeSet<&str> = faults.keys().map(String::as_str).collect();
        if unfit.len() == facts.tools.len() {
            let first = faults.iter().next();
            let first = first.map(|(tool, why)| format!("; of `{tool}`: {why}"));
            return Err(format!("none of its tools can be used{}", first.unwrap_or_default()));
        }
        let notes = faults.iter().map(|(tool, why)| ServerNote {
            message: format!("the tool `{tool}` is left out: {why}"),
            help: None,
        });
        let plugin = plugin.without_tools(&unfit);
        let facts = plugin.facts()?;
        Ok((Self { plugin, facts, arguments: ArgumentChecker::new(compiled) }, notes.collect()))
    }

    /// The plugin with its grants from the config.
    pub(super) fn with_setup(self, name: PluginName, setup: Arc<PluginSetup>) -> Native {
        Native::new(self.plugin, self.arguments, name, setup)
    }
}

/// The reason why a native plugin cannot be loaded.
enum NativeRefusal {
    Missing(Missing),
    /// This machine cannot confine the program of a server.
    Unconfined(String),
    Other(String),
}

impl Host {
    /// Loads the native plugins of a config and the plugins of its tool servers.
    pub(super) async fn load_natives(
        &self,
        config: &Config,
        follow: &Follow,
        problems: &mut Problems,
        refused: &mut bool,
    ) -> BTreeMap<PluginName, LoadedNative> {
        let mut loaded = BTreeMap::new();
        // A program would reach the folders before they are checked.
        let has_bad_folders = !self.folder_problems(config).0.is_empty();
        for (name, plugin) in &config.plugins {
            let key = format!("plugins.{name}.source");
            let found = match &plugin.source {
                PluginSource::Native(source) => match self.natives.get(source) {
                    None => Err(NativeRefusal::Missing(self.no_native(source))),
                    Some(plugin) => LoadedNative::load(plugin).await.map_err(NativeRefusal::Other),
                },
                PluginSource::Mcp(source) if source.confined().is_some() && has_bad_folders => {
                    continue;
                }
                PluginSource::Mcp(source) => {
                    let server = self.load_server(name, source, config, follow).await;
                    server.map(|(native, notes)| {
                        for note in notes {
                            problems.push(warning(config, name, &key, note));
                        }
                        native
                    })
                }
                PluginSource::Stock(_)
                | PluginSource::File(_)
                | PluginSource::Url { .. }
                | PluginSource::Oci { .. } => {
                    continue;
                }
            };
            match found {
                Ok(native) => drop(loaded.insert(name.clone(), native)),
                Err(NativeRefusal::Missing(missing)) => {
                    problems.push(missing.problem(config, &key))
                }
                Err(NativeRefusal::Unconfined(what)) => {
                    *refused = true;
                    let what = format!("the plugin `{name}` is refused: {what}");
                    let help = "run it on Linux 5.13 or newer with user namespaces, Landlock and seccomp; or write `unconfined = true` in its `source.mcp`, and it runs as you, with your files and your network";
                    let problem = config.problem(ProblemCode::NotConfined, &key, what);
                    problems.push(problem.help(help));
                }
                Err(NativeRefusal::Other(what)) => {
                    *refused = true;
                    problems.push(config.problem(
                        ProblemCode::PluginRefused,
                        &key,
                        format!("the plugin `{name}` is refused: {what}"),
                    ));
                }
            }
        }
        loaded
    }

    /// Loads the plugin of a tool server.
    async fn load_server(
        &self,
        name: &PluginName,
        source: &McpSource,
        config: &Config,
        follow: &Follow,
    ) -> Result<(LoadedNative, Vec<ServerNote>), NativeRefusal> {
        let plugin_config = &config.plugins[name];
        let Some(servers) = &self.servers else { return Err(NativeRefusal::Missing(no_servers())) };
        // The warning comes before the server starts, because it runs outside the sandbox.
        if source.is_unconfined() {
            let message = format!(
                "{}: this program runs UNCONFINED, outside the sandbox, as you; no grant holds it back",
                source.label
            );
            follow(LoadStep::Warning { plugin: Some(name.clone()), message });
        }
        let launcher = source.confined().map(|limits| {
            let around = folders::surroundings(config, self.cache_folder.as_deref(), &self.guarded);
            ServerLauncher::new(self.launcher.clone(), name, plugin_config, limits, around)
        });
        let start = ServerStart {
            plugin: name.clone(),
            source: source.clone(),
            limits: plugin_config.limits.clone(),
            launcher: launcher.clone(),
            secrets: Arc::clone(&self.secrets),
            blobs: Arc::clone(&self.blobs),
        };
        let connected = servers.connect(start).await.map_err(|failure| match failure {
            ServerFailure::Unconfined(_) => NativeRefusal::Unconfined(failure.to_string()),
            ServerFailure::Other(why) => NativeRefusal::Other(why),
        })?;
        let ServerPlugin { plugin, mut notes } = connected;
        let loaded = LoadedNative::load_server(&plugin).await.map_err(NativeRefusal::Other)?;
        let (mut native, unfit) = loaded;
        notes.extend(unfit);
        native.facts.mcp = true;
        native.facts.server = way_to(source);
        if let Some(launcher) = launcher {
            native.facts.confinement = Some(launcher.reach());
            native.facts.manifest.asks.extend(servers::requests());
        }
        Ok((native, notes))
    }

    pub(super) fn no_native(&self, name: &str) -> Missing {
        if self.natives.is_empty() {
            let help =
                "take a component, or run this config in the program that it was written for";
            return Missing::new("this program brings no native plugins", help);
        }
        let known: Vec<&str> = self.natives.keys().map(String::as_str).collect();
        Missing::new(
            format!("there is no native plugin `{name}`"),
            format!("these are there: {}", known.join(", ")),
        )
    }
}

/// The warning for a remark on a server's tools.
fn warning(config: &Config, name: &PluginName, key: &str, note: ServerNote) -> ConfigProblem {
    let what = format!("`{name}`: {}", note.message);
    let problem = config.problem(ProblemCode::ForeignTool, key, what).as_warning();
    match note.help {
        Some(help) => problem.help(help),
        None => problem,
    }
}

/// A digest of the way to a tool server. Keys are left out: another key leads to the same server.
fn way_to(source: &McpSource) -> String {
    let way = match &source.reach {
        McpReach::Program { command, env, keys: _, cwd, confined: _ } => {
            let folder = Path::new(&cwd.path).canonicalize().unwrap_or_default();
            format!("{command:?} {env:?} {}", folder.display())
        }
        McpReach::Address { url, key: _ } => url.clone(),
    };
    digest::sha256(way.as_bytes())
}
