//! The host: loads what a config names, checks that it fits, starts runs. What an embedder holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conclave_core::assemble::assemble;
use conclave_core::config::{Config, ModelKind, PluginSource, Problem, Problems};
use conclave_core::ids::{ModelName, PluginName};
use conclave_core::setup::PluginFacts;

use crate::engine::{Engine, EngineError, EngineSettings};
use crate::models::{ModelClient, Scripted};
use crate::plugin::{Cache, CacheError, LoadedPlugin, Loader, Origin, read_component};
use crate::prepared::{PluginInfo, Prepared};
use crate::sandbox::{Sandbox, Sandboxes};

/// How a host is set up.
#[derive(Debug, Default)]
pub struct HostOptions {
    pub engine: EngineSettings,
    /// Where compiled code is kept between runs; none: everything is compiled anew. Only this host may write there.
    pub cache: Option<PathBuf>,
    /// Components that configs can name as `stock:NAME`.
    pub stock: BTreeMap<String, Cow<'static, [u8]>>,
}

/// Loads plugins and starts runs. It has an engine of its own; several hosts can live in one process.
#[derive(Debug)]
pub struct Host {
    loader: Loader,
    stock: BTreeMap<String, Cow<'static, [u8]>>,
    cache_failure: Option<CacheError>,
}

/// How far loading has come.
#[derive(Clone, Debug)]
pub enum LoadStep {
    /// Nothing is in the cache for it; this takes a while.
    Compiling {
        plugin: PluginName,
        bytes: u64,
    },
    Loaded {
        plugin: PluginName,
        took: Duration,
        from_cache: bool,
    },
    /// It goes on, but the operator should know.
    Warning {
        plugin: Option<PluginName>,
        message: String,
    },
}

/// Is told how far loading has come.
pub type Follow = Arc<dyn Fn(LoadStep) + Send + Sync>;

/// A config that cannot be run. Each holds all problems, at their places in the config.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// It does not fit its plugins, or names files that are not there.
    #[error("{0}")]
    Config(Problems),
    /// Plugins could not be loaded; what else is wrong is among the problems.
    #[error("{0}")]
    Plugins(Problems),
}

impl Host {
    /// A host with an engine of its own. A cache that cannot be used is told of when plugins are loaded, and done without.
    ///
    /// # Errors
    /// When the engine cannot be set up on this machine.
    pub fn new(options: HostOptions) -> Result<Self, EngineError> {
        let engine = Engine::new(&options.engine)?;
        let (cache, cache_failure) = match options.cache.map(|folder| Cache::open(&folder)).transpose() {
            Ok(cache) => (cache, None),
            Err(failure) => (None, Some(failure)),
        };
        Ok(Self { loader: Loader::new(engine, cache), stock: options.stock, cache_failure })
    }

    /// Loads the plugins of a config and checks that everything fits.
    ///
    /// # Errors
    /// `Plugins` when a component is refused, `Config` when anything else is wrong.
    pub async fn prepare(&self, config: &Config, follow: &Follow) -> Result<Prepared, PrepareError> {
        if let Some(failure) = &self.cache_failure {
            follow(LoadStep::Warning { plugin: None, message: failure.to_string() });
        }
        let mut problems = Problems::default();
        let (loaded, refused) = self.load_all(config, follow, &mut problems).await;
        let models = read_models(config, &mut problems);
        check_folders(config, &mut problems);
        if problems.has_errors() {
            let problems = problems.in_order();
            return Err(if refused { PrepareError::Plugins(problems) } else { PrepareError::Config(problems) });
        }
        let facts: BTreeMap<PluginName, PluginFacts> = loaded.iter().map(|(name, plugin)| (name.clone(), plugin.facts().clone())).collect();
        let assembly = assemble(config, &facts).map_err(PrepareError::Config)?;
        let mut sandboxes = Vec::with_capacity(loaded.len());
        let mut plugins = Vec::with_capacity(loaded.len());
        for (name, plugin) in loaded {
            let setup = Arc::clone(assembly.setup.plugins.get(&name).expect("assemble keeps every plugin of the config"));
            let from_cache = plugin.origin() == Origin::Cache;
            plugins.push(PluginInfo { name: name.clone(), from_cache, size: plugin.inspection().size });
            match Sandbox::new(Arc::new(plugin), name.clone(), setup) {
                Ok(sandbox) => sandboxes.push(sandbox),
                Err(error) => problems.push(config.problem(&format!("plugins.{name}.grants.files"), error.to_string())),
            }
        }
        if problems.has_errors() {
            return Err(PrepareError::Config(problems.in_order()));
        }
        Ok(Prepared {
            setup: Arc::new(assembly.setup),
            calls: Arc::new(Sandboxes::new(sandboxes)),
            plugins,
            models,
            sources: config.source_labels(),
            warnings: assembly.warnings,
        })
    }

    /// The plugins that could be loaded, and whether one was refused.
    async fn load_all(&self, config: &Config, follow: &Follow, problems: &mut Problems) -> (BTreeMap<PluginName, LoadedPlugin>, bool) {
        let (mut loaded, mut refused) = (BTreeMap::new(), false);
        for (name, plugin) in &config.plugins {
            let key = format!("plugins.{name}.source");
            let bytes = match self.component(&plugin.source) {
                Ok(bytes) => bytes,
                Err(missing) => {
                    problems.push(missing.problem(config, &key));
                    continue;
                }
            };
            let (told, who, size) = (Arc::clone(follow), name.clone(), bytes.len() as u64);
            let compiling = move || told(LoadStep::Compiling { plugin: who, bytes: size });
            match self.loader.load(bytes, &plugin.limits, compiling).await {
                Ok(plugin) => {
                    for note in plugin.notes() {
                        follow(LoadStep::Warning { plugin: Some(name.clone()), message: note.clone() });
                    }
                    let from_cache = plugin.origin() == Origin::Cache;
                    follow(LoadStep::Loaded { plugin: name.clone(), took: plugin.took(), from_cache });
                    loaded.insert(name.clone(), plugin);
                }
                Err(error) => {
                    refused = true;
                    problems.push(config.problem(&key, format!("the plugin `{name}` is refused: {error}")));
                }
            }
        }
        (loaded, refused)
    }

    fn component(&self, source: &PluginSource) -> Result<Vec<u8>, Missing> {
        match source {
            PluginSource::Stock(name) => match self.stock.get(name) {
                Some(bytes) => Ok(bytes.to_vec()),
                None if self.stock.is_empty() => {
                    Err(Missing::new("this program was built without stock plugins", "build it with `cargo xtask build`"))
                }
                None => {
                    let known: Vec<&str> = self.stock.keys().map(String::as_str).collect();
                    Err(Missing::new(format!("there is no stock plugin `{name}`"), format!("these are there: {}", known.join(", "))))
                }
            },
            PluginSource::File(path) => read_component(Path::new(&path.path)).map_err(|error| {
                let what = format!("{} could not be read: {error}", path.path);
                Missing::new(what, "build the component, or correct the path; it starts at the folder of the config")
            }),
        }
    }
}

/// A component that is not where the config says.
struct Missing {
    what: String,
    help: String,
}

impl Missing {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }

    fn problem(self, config: &Config, key: &str) -> Problem {
        config.problem(key, self.what).help(self.help)
    }
}

fn read_models(config: &Config, problems: &mut Problems) -> HashMap<ModelName, Arc<dyn ModelClient>> {
    let mut models: HashMap<ModelName, Arc<dyn ModelClient>> = HashMap::new();
    for (name, model) in &config.models {
        let ModelKind::Scripted { replies } = &model.kind;
        let script = std::fs::read_to_string(&replies.path).map_err(|error| format!("{} could not be read: {error}", replies.path));
        let client = script.and_then(|script| Scripted::parse(&script).map_err(|error| format!("{}: {error}", replies.path)));
        match client {
            Ok(client) => drop(models.insert(name.clone(), Arc::new(client))),
            Err(what) => problems.push(config.problem(&format!("models.{name}.replies"), what)),
        }
    }
    models
}

/// Folders are opened once the config is known to fit; that they are there is said together with everything else.
fn check_folders(config: &Config, problems: &mut Problems) {
    for (name, plugin) in &config.plugins {
        for (index, grant) in plugin.grants.files.iter().enumerate() {
            if !Path::new(&grant.dir).is_dir() {
                let what = format!("there is no folder {}", grant.dir);
                let problem = config.problem(&format!("plugins.{name}.grants.files[{index}]"), what);
                problems.push(problem.help("make it, or correct the path; it starts at the folder of the config"));
            }
        }
    }
}
