//! The host: loads the plugins of a config, checks them against it and starts runs. The entry point
//! for embedding programs.

#[cfg(feature = "http-models")]
pub use clients::Probe;
#[cfg(feature = "sqlite")]
pub use control_inbox::ControlInbox;
pub use guarded::GuardedPath;
pub use pins::{Pins, lock_of};
pub use sources::{ComponentTools, MissingStock};

pub mod batch;
mod clients;
#[cfg(feature = "sqlite")]
mod control_inbox;
mod folders;
mod guarded;
mod micro;
mod natives;
pub(crate) mod observers;
mod pins;
pub(crate) mod prepared;
mod prices;
pub mod reload;
mod secrets;
pub mod servers;
pub(crate) mod session;
pub mod simulated_channel;
mod sources;
#[cfg(feature = "sqlite")]
pub mod steering;
mod trust;
#[cfg(feature = "postgres")]
pub mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::config::assemble::{Assembly, assemble};
use conclave_core::config::{
    Config, ConfigProblem, ModelKind, PluginSource, ProblemCode, Problems, Severity,
};
use conclave_core::setup::{PluginSetup, Setup};
use conclave_core::types::ids::{PluginName, RoomId};
use conclave_core::types::message::Blob;
use conclave_models::ModelClient;

use crate::calls::Plugins;
use crate::driver::observing::ObserverBacklog;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::RoomHandle;
use crate::host::prepared::{CallSetups, PluginInfo, Prepared};
use crate::host::reload::{PluginFile, Rebuilt};
use crate::host::servers::ToolServers;
use crate::imports::call::HostServices;
use crate::imports::exec::ProgramLauncher;
use crate::imports::kv::{KvStore, MemoryKv};
use crate::imports::secrets::{NoSecrets, SecretSource};
use crate::native::{self, Routes};
use crate::observe::subscribe::OWN_CLIENT;
#[cfg(feature = "download")]
use crate::plugin::Downloads;
use crate::plugin::sandboxed::{Sandbox, Sandboxes};
use crate::plugin::{Cache, CacheError, Compiler, LoadedPlugin, Loader, PluginComponent};
#[cfg(feature = "registry")]
use crate::plugin::{NoLogins, Registry, RegistryLogins};
use crate::sandbox::engine::{Engine, EngineError, EngineSettings};
use crate::support::blobs::{BlobError, Blobs, MemoryBlobs};

/// The options of a host. The default has no stock or native plugins, only scripted models, no
/// keys, and writes nothing to disk.
pub struct HostOptions {
    /// The settings of the WebAssembly engine, such as the number of its sandboxes.
    pub engine: EngineSettings,
    /// The folder for compiled code; `None` compiles everything anew. Only this host may write
    /// there.
    pub cache: Option<PathBuf>,
    /// The compiler of components from files and URLs, which are untrusted. The components in
    /// `stock` are compiled in this process.
    pub compiler: Compiler,
    /// The components that configs can name as `stock:NAME`.
    pub stock: BTreeMap<String, PluginComponent>,
    /// The native plugins, which configs can name as `native:NAME`. The last of two with one name
    /// wins.
    pub native: Vec<native::Plugin>,
    /// The clients for `[models.NAME]` with `kind = "native"`.
    pub models: BTreeMap<String, Arc<dyn ModelClient>>,
    /// The source of the keys for model servers.
    pub secrets: Arc<dyn SecretSource>,
    /// The store of attachments.
    pub blobs: Arc<dyn Blobs>,
    /// The store of plugins with `grants.kv`, which lasts from run to run.
    pub kv: Arc<dyn KvStore>,
    /// The logins at OCI registries, for components from `oci://…`.
    #[cfg(feature = "registry")]
    pub logins: Arc<dyn RegistryLogins>,
    /// The client for tool servers (`source = { mcp = { … } }`); `None` refuses configs that name
    /// one.
    pub servers: Option<Arc<dyn ToolServers>>,
    /// The launcher of programs, for `grants.exec`; `None` refuses every program.
    pub launcher: Option<ProgramLauncher>,
    /// Paths closed to plugins besides those named in the config, such as the config's own file and
    /// the folders of journals and stores.
    pub guarded: Vec<GuardedPath>,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            engine: EngineSettings::default(),
            cache: None,
            compiler: Compiler::default(),
            stock: BTreeMap::new(),
            native: Vec::new(),
            models: BTreeMap::new(),
            secrets: Arc::new(NoSecrets),
            blobs: Arc::new(MemoryBlobs::default()),
            kv: Arc::new(MemoryKv::default()),
            #[cfg(feature = "registry")]
            logins: Arc::new(NoLogins),
            servers: None,
            launcher: None,
            guarded: Vec::new(),
        }
    }
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HostOptions")
            .field("engine", &self.engine)
            .field("cache", &self.cache)
            .field("compiler", &self.compiler)
            .field("stock", &self.stock.keys())
            .field("native", &self.native)
            .field("models", &self.models.keys())
            .finish_non_exhaustive()
    }
}

/// Loads plugins and starts runs. Each host has its own engine and shares no state with other hosts
/// of the process.
///
/// Two hosts in one process, each with a plugin of the same name:
/// ```
/// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, native};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = |answer: &'static str| {
///     let desk = native::Plugin::agent("desk", move |_| async move { Ok(native::finish(answer)) });
///     Host::new(HostOptions { native: vec![desk], ..HostOptions::default() })
/// };
/// let (north, south) = (host("It is cold.")?, host("It is warm.")?);
/// let config = Config::parse("desk.toml", "", r#"
///     entry = "desk"
///     [plugins.desk]
///     source = "native:desk"
///     [tasks.desk]
///     agent = "desk"
/// "#)?;
/// let (north, south) = (north.load(&config).await?, south.load(&config).await?);
/// let ask = |desk: &conclave_runtime::Prepared| desk.start(Some("How is it?".to_owned()), RunOptions::default());
/// let (north, south) = tokio::try_join!(ask(&north)?.outcome(), ask(&south)?.outcome())?;
/// assert_eq!(north.content.as_deref(), Some("It is cold."));
/// assert_eq!(south.content.as_deref(), Some("It is warm."));
/// # Ok(())
/// # }
/// ```
pub struct Host {
    loader: Loader,
    stock: BTreeMap<String, PluginComponent>,
    natives: BTreeMap<String, native::Plugin>,
    models: BTreeMap<String, Arc<dyn ModelClient>>,
    secrets: Arc<dyn SecretSource>,
    blobs: Arc<dyn Blobs>,
    kv: Arc<dyn KvStore>,
    servers: Option<Arc<dyn ToolServers>>,
    launcher: Option<Arc<ProgramLauncher>>,
    /// The folder of the cache.
    cache_folder: Option<PathBuf>,
    guarded: Vec<GuardedPath>,
    cache_failure: Option<CacheError>,
    rooms: Arc<RoomRegistry>,
    #[cfg(feature = "download")]
    downloads: Downloads,
    #[cfg(feature = "registry")]
    registry: Registry,
}

impl fmt::Debug for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Host")
            .field("loader", &self.loader)
            .field("native", &self.natives.keys())
            .finish_non_exhaustive()
    }
}

/// A step of loading a config.
#[derive(Clone, Debug)]
pub enum LoadStep {
    /// The component is not in the cache of downloads.
    Downloading {
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The URL of the component.
        from: String,
    },
    /// The compiled code is not in the cache; compiling takes seconds.
    Compiling {
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The size of the component in bytes.
        bytes: u64,
    },
    /// The component is compiled and has listed its tools.
    Loaded {
        /// The plugin's name in the config.
        plugin: PluginName,
        /// The duration of the load, without its download.
        took: Duration,
        /// Whether the compiled code was there before, in the cache or in the program.
        from_cache: bool,
    },
    /// A problem that the operator should know about, and that does not stop the loading.
    Warning {
        /// The plugin's name in the config; `None` for a problem of the host's cache.
        plugin: Option<PluginName>,
        /// The problem, for display.
        message: String,
    },
}

/// The callback for the steps of loading.
pub type Follow = Arc<dyn Fn(LoadStep) + Send + Sync>;

/// The reason why a config cannot be run. Each variant holds all problems with their places in the
/// config.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The config does not fit its plugins, or names files that do not exist.
    #[error("{0}")]
    Config(Problems),
    /// Only keys of models or secrets are missing.
    #[error("{0}")]
    Keys(Problems),
    /// Plugins could not be loaded; the list holds all other problems too.
    #[error("{0}")]
    Plugins(Problems),
}

impl From<PrepareError> for Problems {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Config(problems)
            | PrepareError::Keys(problems)
            | PrepareError::Plugins(problems) => problems,
        }
    }
}

impl Host {
    /// Returns a host with its own engine. A cache that cannot be opened is skipped, and loading
    /// reports it as a warning.
    ///
    /// # Errors
    /// Fails when the engine cannot be set up on this machine.
    pub fn new(options: HostOptions) -> Result<Self, EngineError> {
        let engine = Engine::new(&options.engine)?;
        Ok(Self::with_engine(engine, options))
    }

    /// Returns a host with an engine that was made before, such as on another thread. The settings
    /// in `options.engine` are not used.
    #[must_use]
    pub fn with_engine(engine: Engine, options: HostOptions) -> Self {
        let HostOptions {
            engine: _,
            cache,
            compiler,
            stock,
            native,
            models,
            secrets,
            blobs,
            kv,
            #[cfg(feature = "registry")]
            logins,
            servers,
            launcher,
            guarded,
        } = options;
        #[cfg(feature = "download")]
        let components = cache.as_ref().map(|folder| folder.join("components"));
        let cache_folder = cache.clone();
        let (cache, cache_failure) = match cache.map(|folder| Cache::open(&folder)).transpose() {
            Ok(cache) => (cache, None),
            Err(failure) => (None, Some(failure)),
        };
        let natives = native.into_iter().map(|plugin| (plugin.name().to_owned(), plugin)).collect();
        Self {
            loader: Loader::new(engine, cache).with_compiler(compiler),
            stock,
            natives,
            models,
            secrets,
            blobs,
            kv,
            cache_folder,
            servers,
            launcher: launcher.map(Arc::new),
            guarded,
            cache_failure,
            rooms: Arc::default(),
            #[cfg(feature = "registry")]
            registry: Registry::new(logins, components.clone()),
            #[cfg(feature = "download")]
            downloads: Downloads::new(components),
        }
    }

    /// The engine, which counts live sandboxes and waiting calls.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.loader.engine()
    }

    /// Stops every run of this host, as [`RoomHandle::stop`] stops one. Returns the number of
    /// stopped rooms.
    pub fn stop_all(&self, reason: &str) -> usize {
        self.rooms.stop(reason)
    }

    /// Waits until the observers of all runs took the events so far, and after a run until their
    /// rooms are closed too. Returns what is left after `at_most`, or was left because an observer
    /// was stopped. With a store these events are in the journals:
    /// [`Prepared::deliver_missed`] delivers them later, and so does a resumption of the run.
    ///
    /// A run's outcome does not wait for its observers. A program that ends calls this first.
    pub async fn drain_observers(&self, at_most: Duration) -> Vec<ObserverBacklog> {
        let queues = self.rooms.take_observers();
        let all = async {
            for queue in &queues {
                queue.idle().await;
            }
        };
        // An elapsed time shows in the backlogs.
        let _ = tokio::time::timeout(at_most, all).await;
        queues.iter().filter_map(|queue| queue.backlog()).collect()
    }

    /// A handle to an active room, of a run or of a background task; `None` if the room is not
    /// active in this host.
    #[must_use]
    pub fn handle(&self, room: &RoomId) -> Option<RoomHandle> {
        self.rooms.handle(room)
    }

    /// Stores bytes that belong to a message. The returned blob goes into
    /// [`RunOptions::attachments`](crate::RunOptions::attachments).
    ///
    /// # Errors
    /// As [`Blobs::keep`].
    pub fn keep_blob(
        &self,
        bytes: &[u8],
        media_type: &str,
        name: Option<&str>,
    ) -> Result<Blob, BlobError> {
        self.blobs.keep(bytes, media_type, name)
    }

    /// The store of attachments.
    #[must_use]
    pub fn blobs(&self) -> &Arc<dyn Blobs> {
        &self.blobs
    }

    fn check_folders(&self, config: &Config, problems: &mut Problems) {
        let launcher = self.launcher.as_ref().map(|launcher| launcher.folder.as_path());
        folders::check(config, self.cache_folder.as_deref(), &self.guarded, launcher, problems);
    }

    /// The problems of the folders that a config grants: missing ones, and those that hold paths
    /// closed to plugins. Warnings are left out. It loads nothing.
    #[must_use]
    pub fn folder_problems(&self, config: &Config) -> Problems {
        let mut problems = Problems::default();
        self.check_folders(config, &mut problems);
        problems.0.retain(|problem| problem.severity == Severity::Error);
        problems
    }

    /// Does the same as [`prepare`](Self::prepare), without progress reports.
    ///
    /// # Errors
    /// As `prepare`.
    pub async fn load(&self, config: &Config) -> Result<Prepared, PrepareError> {
        self.prepare(config, &(Arc::new(|_| {}) as Follow)).await
    }

    /// Loads the plugins of a config and checks that everything fits. It reads no key and calls no
    /// model.
    ///
    /// # Errors
    /// `Plugins` if a plugin is refused, `Keys` if only keys or secrets are missing, else `Config`.
    pub async fn prepare(
        &self,
        config: &Config,
        follow: &Follow,
    ) -> Result<Prepared, PrepareError> {
        self.prepare_pinned(config, &Pins::default(), follow).await
    }

    /// Does the same as [`prepare`](Self::prepare) with pinned plugins: models get the texts of the
    /// lock, and no others.
    ///
    /// # Errors
    /// As `prepare`; `Plugins` also if a plugin differs from the lock.
    pub async fn prepare_pinned(
        &self,
        config: &Config,
        pins: &Pins,
        follow: &Follow,
    ) -> Result<Prepared, PrepareError> {
        // The host works without a cache, so a failure to open it is only a warning.
        if let Some(failure) = &self.cache_failure {
            follow(LoadStep::Warning { plugin: None, message: failure.to_string() });
        }
        let mut problems = Problems::default();
        let priced = prices::read(config, &mut problems);
        let config = priced.as_ref().unwrap_or(config);
        let with_micro_agents = micro::read(config, &mut problems);
        let config = with_micro_agents.as_ref().unwrap_or(config);
        let resolved = pins.resolve_tags(config);
        let config = resolved.as_ref().unwrap_or(config);
        // The steps below collect problems instead of returning early, so that all of a config are
        // reported at once.
        let (loaded, mut refused) =
            self.load_all(config, OpenTags::Refuse(pins), follow, &mut problems).await;
        let natives = self.load_natives(config, follow, &mut problems, &mut refused).await;
        let (models, keyless) = self.clients(config, &mut problems);
        let (vault, missing) = self.vault(config, &mut problems);
        let components = loaded.iter().map(|(name, plugin)| (name, plugin.facts()));
        refused |= pins.hold(
            config,
            components.chain(natives.iter().map(|(name, native)| (name, &native.facts))),
            &mut problems,
        );
        self.check_folders(config, &mut problems);
        if problems.has_errors() {
            return Err(refusal(problems.in_order(), refused, keyless + missing));
        }
        let components = loaded.iter().map(|(name, plugin)| (name.clone(), plugin.facts().clone()));
        let facts = components
            .chain(natives.iter().map(|(name, native)| (name.clone(), native.facts.clone())))
            .collect();
        let Assembly { mut setup, mut warnings } =
            assemble(config, &facts).map_err(PrepareError::Config)?;
        warnings.0.append(&mut problems.0);
        complete(config, &mut setup);
        let setup_of = |name: &PluginName| {
            Arc::clone(setup.plugins.get(name).expect("assemble keeps every plugin of the config"))
        };
        let services = self.services(config);
        let mut sandboxes = Vec::with_capacity(loaded.len());
        let mut plugins = Vec::with_capacity(config.plugins.len());
        for (name, plugin) in loaded {
            let (from_cache, size) = (plugin.origin().is_ready(), plugin.inspection().size);
            plugins.push(PluginInfo { name: name.clone(), from_cache, size, is_native: false });
            // Opens the granted folders, which may have changed since the check above.
            match Sandbox::new(Arc::new(plugin), name.clone(), setup_of(&name)) {
                Ok(sandbox) => {
                    sandboxes.push(sandbox.with_services(services.clone()).with_secrets(&vault))
                }
                Err(error) => problems.push(config.problem(
                    ProblemCode::UnreadableFile,
                    &format!("plugins.{name}.grants.files"),
                    error.to_string(),
                )),
            }
        }
        if problems.has_errors() {
            return Err(PrepareError::Config(problems.in_order()));
        }
        let sandboxes = Sandboxes::new(sandboxes);
        let rebuilt = Rebuilt {
            loader: self.loader.clone(),
            sandboxes: sandboxes.clone(),
            sources: plugin_files(config, setup_of),
            pins: Arc::new(pins.clone()),
            config: Arc::new(config.clone()),
        };
        let mut calls: Arc<dyn Plugins> = Arc::new(sandboxes);
        // Only then, because each call pays for the routing.
        if !natives.is_empty() {
            plugins.extend(natives.keys().map(|name| PluginInfo {
                name: name.clone(),
                from_cache: false,
                size: 0,
                is_native: true,
            }));
            // `Prepared::plugins` returns them ordered by name.
            plugins.sort_by(|one, other| one.name.cmp(&other.name));
            let ready = natives
                .into_iter()
                .map(|(name, native)| native.with_setup(name.clone(), setup_of(&name)));
            calls = Arc::new(Routes::new(ready, calls));
        }
        let (setup, models, sources) = (Arc::new(setup), Arc::new(models), config.source_labels());
        Ok(Prepared {
            setup,
            calls,
            plugins,
            models,
            sources,
            warnings,
            rebuilt,
            turn_wall: None,
            call_setups: CallSetups::default(),
            rooms: Arc::clone(&self.rooms),
            endpoints: self.endpoints(config),
        })
    }

    /// Returns what the plugins of a config can use.
    fn services(&self, config: &Config) -> HostServices {
        let home = folders::home(config).to_string_lossy().into();
        let launcher = self.launcher.clone();
        HostServices { kv: Arc::clone(&self.kv), blobs: Arc::clone(&self.blobs), launcher, home }
    }

    /// Returns the plugins that could be loaded, and whether one was refused.
    async fn load_all(
        &self,
        config: &Config,
        open_tags: OpenTags<'_>,
        follow: &Follow,
        problems: &mut Problems,
    ) -> (BTreeMap<PluginName, LoadedPlugin>, bool) {
        let (mut loaded, mut refused) = (BTreeMap::new(), false);
        for (name, plugin) in config.plugins.iter().filter(|(_, plugin)| {
            !matches!(plugin.source, PluginSource::Native(_) | PluginSource::Mcp(_))
        }) {
            if let OpenTags::Refuse(pins) = open_tags
                && plugin.source.is_open_tag()
            {
                refused = true;
                problems.push(pins.open_tag(config, name, &plugin.source));
                continue;
            }
            let key = format!("plugins.{name}.source");
            let (report, who) = (Arc::clone(follow), name.clone());
            let from = plugin.source.label().to_owned();
            let limit = plugin.limits.component;
            let found = match self
                .component(&plugin.source, limit, move || {
                    report(LoadStep::Downloading { plugin: who, from })
                })
                .await
            {
                Ok(found) => found,
                Err(missing) => {
                    // An absent component is a problem of the config; a different one is a refused
                    // plugin.
                    refused |= missing.is_other;
                    problems.push(missing.problem(config, &key));
                    continue;
                }
            };
            let signatures = match self.check_trust(config, name, &found).await {
                Ok(signatures) => signatures,
                Err(problem) => {
                    refused = true;
                    problems.push(problem);
                    continue;
                }
            };
            let provenance = signatures.provenance(found.reference());
            let component = found.component;
            let (report, who, size) = (Arc::clone(follow), name.clone(), component.size());
            let compiling = move || report(LoadStep::Compiling { plugin: who, bytes: size });
            // Stock components belong to this program, so they need no separate compiler.
            let loader = if matches!(plugin.source, PluginSource::Stock(_)) {
                self.loader.in_process()
            } else {
                self.loader.clone()
            };
            match loader.load(component, &plugin.limits, &plugin.config, compiling).await {
                Ok(plugin) => {
                    let plugin = plugin.with_provenance(provenance);
                    for note in plugin.notes() {
                        follow(LoadStep::Warning {
                            plugin: Some(name.clone()),
                            message: note.clone(),
                        });
                    }
                    let from_cache = plugin.origin().is_ready();
                    follow(LoadStep::Loaded {
                        plugin: name.clone(),
                        took: plugin.took(),
                        from_cache,
                    });
                    loaded.insert(name.clone(), plugin);
                }
                Err(error) => {
                    refused = true;
                    problems.push(config.problem(
                        ProblemCode::PluginRefused,
                        &key,
                        format!("the plugin `{name}` is refused: {error}"),
                    ));
                }
            }
        }
        (loaded, refused)
    }
}

/// The treatment of tags that no lock pins.
#[derive(Clone, Copy, Debug)]
enum OpenTags<'a> {
    /// Asks the registry, for a new lock.
    Resolve,
    /// Loads nothing that this lock does not pin: a tag can name another component tomorrow.
    Refuse(&'a Pins),
}

/// The refusal of a config with these errors, of which so many are missing keys and secrets. A
/// refused plugin takes precedence; `Keys` requires that every error is a missing one.
fn refusal(problems: Problems, is_of_plugin: bool, missing: usize) -> PrepareError {
    let is_error = |problem: &&ConfigProblem| problem.severity == Severity::Error;
    let errors = problems.0.iter().filter(is_error).count();
    match is_of_plugin {
        true => PrepareError::Plugins(problems),
        false if errors == missing => PrepareError::Keys(problems),
        false => PrepareError::Config(problems),
    }
}

/// Adds what only the machine and the embedding program know: where the granted folders are, and the
/// models that the program answers itself.
fn complete(config: &Config, setup: &mut Setup) {
    folders::resolve(setup);
    for (name, model) in config.models.iter().filter(|(_, model)| model.kind == ModelKind::Native) {
        let mut prices = model.prices.clone();
        prices.reached_at = Some(OWN_CLIENT.to_owned());
        setup.models.insert(name.clone(), prices);
    }
}

/// The plugins that are files, which a reload reads again.
fn plugin_files(
    config: &Config,
    setup_of: impl Fn(&PluginName) -> Arc<PluginSetup>,
) -> BTreeMap<PluginName, PluginFile> {
    let files = config.plugins.iter().filter_map(|(name, plugin)| match &plugin.source {
        PluginSource::File(path) => Some((
            name.clone(),
            PluginFile {
                path: PathBuf::from(&path.path),
                source: plugin.source.clone(),
                setup: setup_of(name),
            },
        )),
        PluginSource::Stock(_)
        | PluginSource::Native(_)
        | PluginSource::Url { .. }
        | PluginSource::Oci { .. }
        | PluginSource::Mcp(_) => None,
    });
    files.collect()
}
