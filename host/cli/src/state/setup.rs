//! Prepares a run from a config file: reads the environment, finds folders, and reports all
//! problems at once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use conclave_core::config::{Config, ConfigProblem, ModelConfig, NAME_MAX, ProblemCode, Problems};
use conclave_core::setup::{GatePoint, PluginSetup};
use conclave_core::types::channel::ChannelKind;
use conclave_core::types::ids::{ModelName, PluginName};
use conclave_runtime::engine::{Engine, EngineError, EngineSettings};
use conclave_runtime::kv::{KvStore, MemoryKv, NoKv, Sqlite};
use conclave_runtime::plugin::LoadError;
use conclave_runtime::secrets::Sources;
#[cfg(feature = "postgres")]
use conclave_runtime::store::PostgresKv;
#[cfg(feature = "postgres")]
use conclave_runtime::store::{Store, StoreAddress};
use conclave_runtime::{
    ComponentTools, Follow, GuardedPath, Host, HostOptions, LoadStep, Pins, PrepareError, Prepared,
    lock_of,
};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::shell::shell;
use crate::state::journals::RunStorage;
use crate::state::lock_file::LockFile;
#[cfg(feature = "registry")]
use crate::state::registry::DockerLogins;
#[cfg(feature = "postgres")]
use crate::state::shared_kv::SharedKv;
use crate::state::source::{LocatedComponent, is_build};
use crate::state::stock::stock;
use crate::state::store_address::store_of;
use crate::ui::show::{NAME, ODD, one_line, paint, plural, printable, show_path, time, unread};
use crate::ui::stderr;
use crate::ui::terminal::is_terminal;

/// Milliseconds of compilation above which a plugin is reported. Plugins from the cache stay below
/// it.
const WORTH_A_LINE_MS: u128 = 300;
/// Plugins without a lock that are listed by name.
const NAMED: usize = 3;

/// Models of the command line that replace the config's.
pub(crate) type Models = BTreeMap<ModelName, ModelConfig>;

/// Loads the plugins of a config and checks that they fit. The warnings are not reported, because
/// they would precede the answer to a question. A command reads its config once, by `read_config`,
/// so that all its parts see the same one.
pub(crate) async fn prepare(
    (file, config): (&Path, &Config),
    output: OutputArgs,
) -> Result<(Prepared, Problems), CliError> {
    load(&open_host_in(file)?, (file, config), false, output).await
}

/// Does the same, and reports the warnings.
pub(crate) async fn prepare_with_warnings(
    (file, config): (&Path, &Config),
    locked: bool,
    output: OutputArgs,
) -> Result<(Prepared, Problems), CliError> {
    let host = open_host_in(file)?;
    let reports = (Warnings::Whole, |_: &Prepared, _: &ConfigProblem| true);
    prepare_and_warn(&host, (file, config), locked, output, reports).await
}

/// Does the same with a host whose attachments are needed later. Plugins must match the lock beside
/// the config.
pub(crate) async fn prepare_with(
    host: &Host,
    (file, config): (&Path, &Config),
    locked: bool,
    output: OutputArgs,
) -> Result<Prepared, CliError> {
    let reports = (Warnings::Counted, |_: &Prepared, _: &ConfigProblem| true);
    Ok(prepare_and_warn(host, (file, config), locked, output, reports).await?.0)
}

/// How warnings about a config are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warnings {
    /// Each one, with its remedy.
    Whole,
    /// Their number only, where they would repeat at each start.
    Counted,
}

/// Reports the warnings about a config on stderr.
pub(crate) fn report_warnings(warnings: &Problems, file: &Path, display: Warnings) {
    if display == Warnings::Whole {
        for warning in &warnings.0 {
            stderr::text(warning);
        }
    } else if !warnings.is_empty() {
        // A server can change its tools between two starts, so these are news.
        let is_news = |warning: &&ConfigProblem| warning.code == ProblemCode::ForeignTool;
        for warning in warnings.0.iter().filter(is_news) {
            stderr::warning(&warning.what);
        }
        let all = warnings.0.len() as u64;
        let count = format!("{} about the config", plural(all, "warning", "warnings"));
        let them = if all == 1 { "it" } else { "them" };
        let check = if file == Path::new(args::CONFIG) {
            String::new()
        } else {
            format!(" {}", shell(&file.display().to_string()))
        };
        stderr::line(format_args!("{}; `conclave check{check}` shows {them}", paint(ODD, count)));
    }
}

/// Does the same, and reports only the warnings that apply to this use of the config, if it is not
/// a run.
pub(crate) async fn prepare_and_warn(
    host: &Host,
    (file, config): (&Path, &Config),
    locked: bool,
    output: OutputArgs,
    (display, holds): (Warnings, impl Fn(&Prepared, &ConfigProblem) -> bool),
) -> Result<(Prepared, Problems), CliError> {
    let (prepared, Problems(all)) = load(host, (file, config), locked, output).await?;
    let warnings = Problems(all.into_iter().filter(|warning| holds(&prepared, warning)).collect());
    if !output.quiet {
        report_warnings(&warnings, file, display);
        if let Some(line) = unpinned(&prepared, file) {
            stderr::note(line);
        }
    }
    Ok((prepared, warnings))
}

/// Loads the plugins of a config. Returns all warnings.
pub(crate) async fn load(
    host: &Host,
    (file, config): (&Path, &Config),
    locked: bool,
    output: OutputArgs,
) -> Result<(Prepared, Problems), CliError> {
    let quiet = output.result_only();
    let pins = Pins { lock: LockFile::open(file)?.lock, locked };
    let prepared = host.prepare_pinned(config, &pins, &follow(quiet)).await.map_err(unprepared)?;
    // Warnings about the config alone are repeated once its plugins are loaded, with better
    // remedies.
    let known = &prepared.warnings().0;
    let of_config = config
        .warnings
        .0
        .iter()
        .filter(|warning| known.iter().all(|better| better.what != warning.what));
    let warnings = of_config.chain(known).cloned().chain(unserved(config));
    let warnings = Problems(warnings.collect());
    Ok((prepared, warnings))
}

/// A warning for each channel that no command of this program serves, and for each gate of inbound
/// messages if none can come in.
fn unserved(config: &Config) -> impl Iterator<Item = ConfigProblem> {
    let channels = config.channels.iter().filter_map(|(channel, binding)| {
        let help = match binding.kind {
            _ if is_terminal(channel) => return None,
            ChannelKind::Web | ChannelKind::Webhook | ChannelKind::Plugin => return None,
            ChannelKind::Voice if binding.simulate_ms.is_some() => return None,
            ChannelKind::Voice => {
                "write `simulate = \"300 ms\"` to read it at the terminal, or run this config in a program that speaks"
            }
            ChannelKind::Text | ChannelKind::Agent | ChannelKind::Other => {
                "send to `terminal`, or serve `kind = \"web\"` with `conclave serve`, or run this config in a program that serves it"
            }
        };
        let path = format!("channels.{channel}.kind");
        let what = format!("no command of `conclave` serves the channel `{channel}`");
        let why = "what is sent there waits in the inbox of its task";
        let problem = config.problem(ProblemCode::NoEffect, &path, what);
        Some(problem.as_warning().because(why).help(help))
    });
    let takes =
        |kind| matches!(kind, ChannelKind::Web | ChannelKind::Webhook | ChannelKind::Plugin);
    let mut bindings = config.channels.values();
    let is_served = bindings.any(|binding| takes(binding.kind) && binding.access.may_write());
    let gates = config.gates.iter().enumerate();
    let gates = gates.filter(move |(_, gate)| gate.on == GatePoint::Inbound && !is_served);
    channels.chain(gates.map(|(index, gate)| {
        let what = format!("the gate `{}` on \"inbound\" checks nothing", gate.plugin);
        let why = "only `conclave serve` takes messages of channels, and no channel of kind `web`, `webhook` or `plugin` may send some";
        let help = "add [channels.web] with `kind = \"web\"`, or run this config in a program that serves a channel";
        let problem = config.problem(ProblemCode::NoEffect, &format!("gates[{index}].on"), what);
        problem.as_warning().because(why).help(help)
    }))
}

/// The warning about a missing lock, if a plugin did not come with this program. A config under
/// another name, such as a link or a copy, has no lock either.
fn unpinned(prepared: &Prepared, file: &Path) -> Option<String> {
    if prepared.is_pinned() {
        return None;
    }
    let is_strange = |name: &PluginName, plugin: &PluginSetup| {
        let is_part_of_program = plugin.facts.is_native() && !plugin.facts.mcp;
        // An author builds a plugin anew before each run.
        let folder = file.parent().unwrap_or(Path::new(""));
        let is_other = |source: &String| source != "stock" && !is_build(&folder.join(source));
        !is_part_of_program && prepared.sources().get(name).is_some_and(is_other)
    };
    let plugins = prepared.setup().plugins.iter();
    let names: Vec<&str> = plugins
        .filter(|(name, plugin)| is_strange(name, plugin))
        .map(|(name, _)| name.as_str())
        .collect();
    let (first, are) = match names.as_slice() {
        [] => return None,
        [only] => ((*only).to_owned(), "is"),
        names => (names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "), "are"),
    };
    let more = names
        .len()
        .checked_sub(NAMED + 1)
        .map(|more| format!(" and {} more", more + 1))
        .unwrap_or_default();
    let lock = lock_of(file);
    let lock = lock.file_name().unwrap_or_default().to_string_lossy();
    let argument = if file == Path::new(args::CONFIG) {
        String::new()
    } else {
        format!(" {}", shell(&file.display().to_string()))
    };
    Some(format!(
        "{first}{more} {are} not pinned: {} does not exist; `conclave plugin lock{argument}` pins the plugins as they are now",
        printable(&lock)
    ))
}

/// The command line's error for a config that cannot be run.
pub(crate) fn unprepared(error: PrepareError) -> CliError {
    match error {
        PrepareError::Config(problems) => CliError::config(&problems),
        PrepareError::Keys(problems) => {
            CliError::key(with_heading("a key or a secret is missing", &problems))
                .with_problems(&problems)
                .hint(
                    "set it where the config looks for it, or name another source there: a variable (`env`), a `file` or a `command`",
                )
        }
        PrepareError::Plugins(problems) => {
            CliError::plugin(with_heading("a plugin cannot be used", &problems))
                .with_problems(&problems)
        }
    }
}

/// Reads a config file, with its models replaced by those of the command line.
pub(crate) fn read_config(file: &Path, models: &Models) -> Result<Config, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| config_unread(file, &error))?;
    let folder = folder_of(file).to_string_lossy().into_owned();
    let config = Config::parse_with(&show_path(file), &folder, &text, models)
        .map_err(|problems| CliError::config(&problems))?;
    store_of(&config)?;
    Ok(config)
}

/// The error for a config that could not be read. If the default file is missing, the hint says how
/// to create it.
fn config_unread(file: &Path, error: &std::io::Error) -> CliError {
    let is_usual = file.file_name().is_some_and(|name| name == args::CONFIG);
    let hint = match error.kind() {
        ErrorKind::NotFound if is_usual => {
            "write a config with `conclave init`, or name another one"
        }
        _ => "name a config, such as conclave.toml; `conclave init` writes one",
    };
    unread(file, error).hint(hint)
}

fn with_heading(what: &str, problems: &Problems) -> String {
    format!("{what}\n\n{}", problems.to_string().trim_end())
}

/// Opens a host with the built-in plugins, and the cache of compiled code.
pub(crate) fn open_host() -> Result<Host, CliError> {
    open_host_with(host_options())
}

/// Opens the host of a config. Paths in it are relative to its folder, and no plugin may be granted
/// the config file itself.
pub(crate) fn open_host_in(file: &Path) -> Result<Host, CliError> {
    open_host_with(options_in(file))
}

/// Opens the host of a config whose plugins get keys of their own, which are gone afterwards.
pub(crate) fn open_host_apart(file: &Path) -> Result<Host, CliError> {
    open_host_with(HostOptions { kv: Arc::new(MemoryKv::default()), ..options_in(file) })
}

/// Opens the host of runs that are stored. Attachments are beside the journals, and no plugin may
/// write there.
pub(crate) fn open_host_keeping(
    file: &Path,
    storage: &RunStorage,
    engine: EngineStart,
) -> Result<Host, CliError> {
    Ok(Host::with_engine(engine.started()?, options_keeping(file, storage)))
}

/// Does the same with plugins of the program's own.
#[cfg(feature = "mcp")]
pub(crate) fn open_host_keeping_with(
    native: Vec<conclave_runtime::native::Plugin>,
    file: &Path,
    storage: &RunStorage,
    engine: EngineStart,
) -> Result<Host, CliError> {
    let options = HostOptions { native, ..options_keeping(file, storage) };
    Ok(Host::with_engine(engine.started()?, options))
}

/// Opens a host for each of several configs. They share the engine, and so its limits of this
/// process.
#[cfg(feature = "serve")]
pub(crate) fn open_hosts_keeping<'a>(
    configs: impl Iterator<Item = (&'a Path, &'a RunStorage)>,
    engine: EngineStart,
) -> Result<Vec<Host>, CliError> {
    let engine = engine.started()?;
    let open = |(file, storage)| Host::with_engine(engine.clone(), options_keeping(file, storage));
    Ok(configs.map(open).collect())
}

fn options_keeping(file: &Path, storage: &RunStorage) -> HostOptions {
    let mut options = options_in(file);
    if let Some(blobs) = storage.blobs() {
        options.blobs = blobs;
    }
    #[cfg(feature = "postgres")]
    if let Some(StoreAddress::Postgres(database)) = storage.store().map(Store::address) {
        options.kv = Arc::new(SharedKv(PostgresKv::new(database.clone())));
    }
    // A store holds the contents of other runs, while a folder of journals was named for this run.
    let secret = storage.store().is_some();
    options.guarded.extend(
        storage
            .folder()
            .map(|folder| GuardedPath { secret, ..guard("the journals of the run", folder, true) }),
    );
    options
}

/// An engine that starts on its own thread, while the store is opened: both take about as long.
pub(crate) struct EngineStart(Option<JoinHandle<Result<Engine, EngineError>>>);

impl EngineStart {
    pub(crate) fn begin() -> Self {
        let thread = std::thread::Builder::new().name("engine".to_owned());
        Self(thread.spawn(start_engine).ok())
    }

    /// Waits for the engine.
    fn started(self) -> Result<Engine, CliError> {
        let joined =
            |thread: JoinHandle<_>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // Without a thread it starts here.
        let engine = self.0.map_or_else(start_engine, joined);
        engine.map_err(|error| CliError::internal(error.to_string()))
    }
}

fn start_engine() -> Result<Engine, EngineError> {
    Engine::new(&EngineSettings::default())
}

fn options_in(file: &Path) -> HostOptions {
    let secrets = secrets_of(file);
    let mut options = HostOptions { secrets: Arc::new(secrets), ..host_options() };
    options.guarded.push(guard("the config", file, false));
    options.guarded.push(guard("the lock of the config", &lock_of(file), false));
    // The target of a link may have a lock of its own.
    options.guarded.extend(
        file.canonicalize()
            .ok()
            .map(|file| guard("the lock of the config", &lock_of(&file), false)),
    );
    options
}

fn guard(what: &str, path: &Path, is_folder: bool) -> GuardedPath {
    GuardedPath { what: what.to_owned(), path: path.to_owned(), secret: false, is_folder }
}

/// The sources of the keys that this config names.
pub(crate) fn secrets_of(file: &Path) -> Sources {
    secrets().in_folder(folder_of(file))
}

/// The sources of keys that a config may name, including the environment.
fn secrets() -> Sources {
    Sources::new(|name| std::env::var(name).ok())
}

/// The folder to which a config's paths are relative. Empty for the current folder.
fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// Opens a host with these options.
pub(crate) fn open_host_with(options: HostOptions) -> Result<Host, CliError> {
    Host::new(options).map_err(|error| CliError::internal(error.to_string()))
}

/// The options that every host of this program has.
pub(crate) fn host_options() -> HostOptions {
    HostOptions {
        cache: cache_folder(),
        stock: stock(),
        compiler: crate::program::compile::compiler(),
        #[cfg(feature = "exec")]
        launcher: Some(crate::program::exec::launcher()),
        secrets: Arc::new(secrets()),
        servers: crate::program::mcp_servers::client(),
        #[cfg(feature = "registry")]
        logins: Arc::new(DockerLogins),
        kv: kv(),
        guarded: state(),
        ..HostOptions::default()
    }
}

/// `kv.sqlite` in the state folder, the plugins' key-value store. It is created at the first write.
fn kv() -> Arc<dyn KvStore> {
    match crate::state::state_folder::state_folder() {
        Some(folder) => Arc::new(Sqlite::new(folder.join("kv.sqlite"))),
        None => Arc::new(NoKv("no state folder is known: set HOME or CONCLAVE_STATE".to_owned())),
    }
}

/// The state folder as guarded: it holds other runs' contents and other plugins' stores.
fn state() -> Vec<GuardedPath> {
    let what = "the journals and stores of other runs".to_owned();
    let state_folder = crate::state::state_folder::state_folder().map(|path| GuardedPath {
        what,
        path,
        secret: true,
        is_folder: true,
    });
    // Programs are looked up there, including those that a config starts for a key or as a server.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute() && folder.is_dir());
    let programs = programs.map(|path| GuardedPath {
        what: "programs of the PATH".to_owned(),
        path,
        secret: false,
        is_folder: true,
    });
    state_folder.into_iter().chain(programs).collect()
}

/// `$CONCLAVE_CACHE`, or else `conclave` in the user's cache folder. `None` if neither is known,
/// and nothing is cached then.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let env_path =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    env_path("CONCLAVE_CACHE")
        .or_else(|| env_path("XDG_CACHE_HOME").map(|folder| folder.join("conclave")))
        .or_else(|| env_path("HOME").map(|home| home.join(".cache").join("conclave")))
}

/// The folder of downloaded components. `None` if nothing is cached.
#[cfg(feature = "registry")]
pub(crate) fn components_folder() -> Option<PathBuf> {
    cache_folder().map(|folder| folder.join("components"))
}

/// Returns the tools of a component, with nothing granted. Reports its compilation, which may take
/// a minute.
///
/// # Errors
/// Why the component is refused.
pub(crate) async fn tools_of(
    host: &Host,
    found: &LocatedComponent,
    follow: &Follow,
) -> Result<ComponentTools, LoadError> {
    let plugin = PluginName::from(one_line(&found.name(), NAME_MAX));
    let (follow, bytes) = (Arc::clone(follow), found.component.size());
    let compiling = move || follow(LoadStep::Compiling { plugin, bytes });
    host.tools_of(found.component.clone(), compiling).await
}

/// A callback that reports slow compilations and warnings about plugins.
pub(crate) fn follow(quiet: bool) -> Follow {
    Arc::new(move |step| tell(&step, quiet))
}

fn tell(step: &LoadStep, quiet: bool) {
    match step {
        LoadStep::Downloading { plugin, from } if !quiet => {
            stderr::note(format_args!("downloading {plugin} from {from}"));
        }
        LoadStep::Compiling { plugin, bytes } if !quiet => {
            let size = crate::ui::show::bytes(*bytes);
            stderr::note(format_args!("compiling {plugin} ({size})"));
        }
        LoadStep::Loaded { plugin, took, from_cache: false }
            if !quiet && took.as_millis() > WORTH_A_LINE_MS =>
        {
            stderr::note(format_args!("compiled {plugin} in {}", time(*took)));
        }
        LoadStep::Downloading { .. } | LoadStep::Compiling { .. } | LoadStep::Loaded { .. } => {}
        LoadStep::Warning { plugin, message } => {
            let who = plugin
                .as_ref()
                .map(|plugin| format!("{}: ", paint(NAME, plugin)))
                .unwrap_or_default();
            stderr::warning(format_args!("{who}{message}"));
        }
    }
}
