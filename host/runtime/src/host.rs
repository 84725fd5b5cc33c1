//! The host: loads what a config names, checks that it fits, starts runs. What an embedder holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conclave_core::assemble::assemble;
use conclave_core::config::{Config, ModelKind, PluginSource, Problems};
use conclave_core::ids::{ModelName, PluginName};
use conclave_core::setup::{PluginFacts, Setup};

use crate::components::{Component, Components};
use crate::engine::{Engine, EngineError, EngineSettings};
use crate::models::{ModelClient, Scripted};
use crate::plugin::{Cache, Loaded, Loader};
use crate::prepared::Prepared;

/// How a host is set up.
#[derive(Debug, Default)]
pub struct HostOptions {
    pub engine: EngineSettings,
    /// Where compiled code is kept between runs; none: everything is compiled anew. Only this host may write there.
    pub cache: Option<PathBuf>,
    /// Components that configs can name as `stock:NAME`.
    pub stock: BTreeMap<String, Cow<'static, [u8]>>,
}

/// Loads plugins and starts runs. One engine; several hosts can live in one process.
#[derive(Debug)]
pub struct Host {
    loader: Loader,
    stock: BTreeMap<String, Cow<'static, [u8]>>,
}

/// How far loading has come.
#[derive(Clone, Debug)]
pub enum LoadStep {
    /// Nothing is in the cache for it; this takes a while.
    Compiling { plugin: PluginName, bytes: u64 },
    Loaded { plugin: PluginName, took: Duration, from_cache: bool },
    /// It goes on, but somebody should know.
    Warning { plugin: PluginName, message: String },
}

/// A config that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It does not fit its plugins.
    #[error("{0}")]
    Config(Problems),
    /// Plugins, or files that the config names, could not be loaded.
    #[error("{0}")]
    Plugins(Problems),
}

impl Host {
    /// A host with an engine of its own.
    ///
    /// # Errors
    /// When the engine cannot be set up on this machine.
    pub fn new(options: HostOptions) -> Result<Self, EngineError> {
        let engine = Engine::new(&options.engine)?;
        let cache = options.cache.map(Cache::in_folder);
        Ok(Self { loader: Loader::new(engine, cache), stock: options.stock })
    }

    /// Loads the plugins of a config and checks that everything fits. `follow` is told how far it has come.
    ///
    /// # Errors
    /// All problems at once, at their places in the config: `Plugins` when a file cannot be loaded, `Config` when what was loaded does
    /// not fit.
    pub async fn prepare(&self, config: &Config, follow: &(dyn Fn(LoadStep) + Send + Sync)) -> Result<Prepared, PrepareError> {
        let mut problems = Problems::default();
        let mut loaded = BTreeMap::new();
        for (name, plugin) in &config.plugins {
            let key = format!("plugins.{name}.source");
            match self.component(&plugin.source) {
                Ok(bytes) => match self.load(name, &bytes, config, follow).await {
                    Ok(plugin) => drop(loaded.insert(name.clone(), plugin)),
                    Err(reason) => problems.push(config.problem(&key, format!("the plugin `{name}` was refused: {reason}"))),
                },
                Err(problem) => problems.push(match problem.1 {
                    Some(help) => config.problem(&key, problem.0).help(help),
                    None => config.problem(&key, problem.0),
                }),
            }
        }
        let models = read_models(config, &mut problems);
        let roots = open_roots(config, &mut problems);
        if problems.has_errors() {
            return Err(PrepareError::Plugins(problems.in_order()));
        }
        let facts: BTreeMap<PluginName, PluginFacts> = loaded.iter().map(|(name, plugin)| (name.clone(), plugin.facts().clone())).collect();
        let assembly = assemble(config, &facts).map_err(PrepareError::Config)?;
        let setup = Arc::new(assembly.setup);
        let components = components(&setup, loaded, roots);
        Ok(Prepared::new(setup, components, models, config.source_labels(), assembly.warnings))
    }

    /// The bytes of a component, or what is wrong and what helps.
    fn component(&self, source: &PluginSource) -> Result<Cow<'_, [u8]>, (String, Option<String>)> {
        match source {
            PluginSource::Stock(name) => match self.stock.get(name) {
                Some(bytes) => Ok(Cow::Borrowed(&**bytes)),
                None if self.stock.is_empty() => {
                    Err(("this program was built without stock plugins".to_owned(), Some("build it with `cargo xtask build`".to_owned())))
                }
                None => {
                    let known: Vec<&str> = self.stock.keys().map(String::as_str).collect();
                    Err((format!("there is no stock plugin `{name}`"), Some(format!("these are there: {}", known.join(", ")))))
                }
            },
            PluginSource::File(path) => match std::fs::read(&path.path) {
                Ok(bytes) => Ok(Cow::Owned(bytes)),
                Err(error) => {
                    let help = (error.kind() == std::io::ErrorKind::NotFound).then(|| "build the component, or correct the path; it starts at the config's folder".to_owned());
                    Err((format!("{} could not be read: {error}", path.path), help))
                }
            },
        }
    }

    async fn load(&self, name: &PluginName, bytes: &[u8], config: &Config, follow: &(dyn Fn(LoadStep) + Send + Sync)) -> Result<Arc<Loaded>, String> {
        let started = Instant::now();
        let limits = &config.plugins.get(name.as_str()).expect("the caller walks over the config's plugins").limits;
        let compiling = || follow(LoadStep::Compiling { plugin: name.clone(), bytes: bytes.len() as u64 });
        let loaded = self.loader.load(bytes, limits, &compiling).await.map_err(|error| error.to_string())?;
        for message in loaded.warnings() {
            follow(LoadStep::Warning { plugin: name.clone(), message: message.clone() });
        }
        follow(LoadStep::Loaded { plugin: name.clone(), took: started.elapsed(), from_cache: loaded.from_cache() });
        Ok(Arc::new(loaded))
    }
}
