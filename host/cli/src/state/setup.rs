//! From a config file to a prepared run: reads the environment, finds folders, tells all problems
//! at once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conclave_core::config::{Config, ConfigProblem, ModelConfig, Problems};
use conclave_core::setup::PluginSetup;
use conclave_core::types::ids::{ModelName, PluginName};
use conclave_mcp::source::Servers;
use conclave_runtime::kv::{KvStore, NoKv, Sqlite};
use conclave_runtime::secrets::Sources;
use conclave_runtime::{
    Follow, GuardedPath, Host, HostOptions, LoadStep, Pins, PrepareError, Prepared, lock_of,
};

use crate::args::{self, OutputArgs};
use crate::program::error::CliError;
use crate::program::shell::shell;
use crate::state::journals::RunStorage;
use crate::state::lock_file::LockFile;
use crate::ui::show::{FAINT, NAME, ODD, paint, plural, printable, time};

/// A plugin that takes longer than this to compile is told of; one from the cache is not worth a
/// line.
const WORTH_A_LINE_MS: u128 = 300;
/// Plugins without a lock that are named.
const NAMED: usize = 3;

/// Models that the command line puts in the place of the config's.
pub(crate) type Models = BTreeMap<ModelName, ModelConfig>;

/// Reads the config, loads its plugins, and checks that they fit.
pub(crate) async fn prepare(
    file: &Path,
    models: &Models,
    locked: bool,
    output: OutputArgs,
) -> Result<Prepared, CliError> {
    prepare_and_warn(
        &open_host_in(file)?,
        file,
        models,
        locked,
        output,
        (Warnings::Whole, |_, _| true),
    )
    .await
}

/// The same with a host whose attachments are needed later. The plugins are held to the lock beside
/// the config.
pub(crate) async fn prepare_with(
    host: &Host,
    file: &Path,
    models: &Models,
    locked: bool,
    output: OutputArgs,
) -> Result<Prepared, CliError> {
    prepare_and_warn(host, file, models, locked, output, (Warnings::Counted, |_, _| true)).await
}

/// How warnings about a config are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warnings {
    /// Each, with its remedy.
    Whole,
    /// How many there are, where they would be repeated at each start.
    Counted,
}

fn report_warnings(warnings: &[&ConfigProblem], file: &Path, told: Warnings) {
    let mut err = crate::ui::output::stderr();
    if told == Warnings::Whole {
        for warning in warnings {
            let _ = write!(err, "{warning}");
        }
    } else if !warnings.is_empty() {
        let count = plural(warnings.len() as u64, "warning", "warnings");
        let check = if file == Path::new(args::CONFIG) {
            String::new()
        } else {
            format!(" {}", shell(&file.display().to_string()))
        };
        let _ = writeln!(err, "{}: conclave check{check}", paint(ODD, count));
    }
}

/// The same with only the warnings that still hold for what is prepared, where it is put to another
/// use than a run.
pub(crate) async fn prepare_and_warn(
    host: &Host,
    file: &Path,
    models: &Models,
    locked: bool,
    output: OutputArgs,
    (told, holds): (Warnings, impl Fn(&Prepared, &ConfigProblem) -> bool),
) -> Result<Prepared, CliError> {
    let config = read_config(file, models)?;
    let quiet = output.quiet || output.json;
    let pins = Pins { lock: LockFile::open(file)?.lock, locked };
    let prepared = host.prepare_pinned(&config, &pins, &follow(quiet)).await.map_err(unprepared)?;
    if !output.quiet {
        // What was said of the config alone is said again, with a better remedy, once its plugins
        // are loaded.
        let known = &prepared.warnings().0;
        let of_config = config
            .warnings
            .0
            .iter()
            .filter(|warning| known.iter().all(|better| better.what != warning.what));
        let all: Vec<&ConfigProblem> =
            of_config.chain(known).filter(|warning| holds(&prepared, warning)).collect();
        report_warnings(&all, file, told);
        if let Some(line) = unpinned(&prepared, file) {
            let _ = writeln!(crate::ui::output::stderr(), "{}", paint(FAINT, line));
        }
    }
    Ok(prepared)
}

/// Returns what to say where there is no lock and a plugin did not come with this program. A config
/// that is called by another name, a link or a copy, has no lock either.
fn unpinned(prepared: &Prepared, file: &Path) -> Option<String> {
    if prepared.is_pinned() {
        return None;
    }
    let is_strange = |name: &PluginName, plugin: &PluginSetup| {
        let is_part_of_program = plugin.facts.is_native() && !plugin.facts.mcp;
        !is_part_of_program && prepared.sources().get(name).is_some_and(|source| source != "stock")
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
    let shown = if file == Path::new(args::CONFIG) {
        String::new()
    } else {
        format!(" {}", shell(&file.display().to_string()))
    };
    Some(format!(
        "{first}{more} {are} not pinned: there is no {}; `conclave plugin lock{shown}` pins what is there now",
        printable(&lock)
    ))
}

/// A config that cannot be run, as an error of the command line.
pub(crate) fn unprepared(error: PrepareError) -> CliError {
    match error {
        PrepareError::Config(problems) => config_error(&problems),
        PrepareError::Keys(problems) => {
            CliError::key(with_heading("a key or a secret is not there", &problems))
                .with_problems(&problems)
        }
        PrepareError::Plugins(problems) => {
            CliError::plugin(with_heading("a plugin cannot be used", &problems))
                .with_problems(&problems)
        }
    }
}

/// Reads a config file, with the models of the command line in the place of its own.
pub(crate) fn read_config(file: &Path, models: &Models) -> Result<Config, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| unread(file, &error))?;
    let folder = folder_of(file).to_string_lossy().into_owned();
    Config::parse_with(&file.display().to_string(), &folder, &text, models)
        .map_err(|problems| config_error(&problems))
}

/// A config that could not be read. One of the usual name is missing where none was written yet.
fn unread(file: &Path, error: &std::io::Error) -> CliError {
    let is_usual = file.file_name().is_some_and(|name| name == args::CONFIG);
    let hint = match error.kind() {
        ErrorKind::NotFound if is_usual => "write one with `conclave init`, or name another config",
        _ => "name a config, such as conclave.toml; `conclave init` writes one",
    };
    CliError::usage(format!("{} could not be read: {error}", file.display())).hint(hint)
}

fn config_error(problems: &Problems) -> CliError {
    let count = problems.0.len();
    let what = if count == 1 {
        "the config has a problem".to_owned()
    } else {
        format!("the config has {count} problems")
    };
    CliError::usage(with_heading(&what, problems)).with_problems(problems)
}

fn with_heading(what: &str, problems: &Problems) -> String {
    format!("{what}\n\n{}", problems.to_string().trim_end())
}

/// The host with the plugins that are inside this program, and the cache of compiled code.
pub(crate) fn open_host() -> Result<Host, CliError> {
    open_host_with(host_options())
}

/// The same for a config: what its keys name by a path starts at its folder, and no plugin may be
/// let into its own file.
pub(crate) fn open_host_in(file: &Path) -> Result<Host, CliError> {
    open_host_with(options_in(file))
}

/// The same for runs that are kept: attachments are beside the journals, and no plugin writes
/// there.
pub(crate) fn open_host_keeping(file: &Path, kept: &RunStorage) -> Result<Host, CliError> {
    let mut options = options_in(file);
    if let Some(blobs) = kept.blobs() {
        options.blobs = blobs;
    }
    // A store holds what was said in other runs; a folder of journals was named for this one.
    let secret = kept.store().is_some();
    options.guarded.extend(
        kept.folder()
            .map(|folder| GuardedPath { secret, ..guard("the journals of the run", folder, true) }),
    );
    open_host_with(options)
}

fn options_in(file: &Path) -> HostOptions {
    let secrets = secrets().in_folder(folder_of(file));
    let mut options = HostOptions { secrets: Arc::new(secrets), ..host_options() };
    options.guarded.push(guard("the config", file, false));
    options.guarded.push(guard("the lock of the config", &lock_of(file), false));
    // Behind a link there may be a lock of its own.
    options.guarded.extend(
        file.canonicalize()
            .ok()
            .map(|file| guard("the lock of the config", &lock_of(&file), false)),
    );
    options
}

fn guard(what: &str, path: &Path, whole: bool) -> GuardedPath {
    GuardedPath { what: what.to_owned(), path: path.to_owned(), secret: false, whole }
}

/// Keys come from where the config says, the environment among it.
fn secrets() -> Sources {
    Sources::new(|name| std::env::var(name).ok())
}

/// What the paths of a config start at; empty for the current folder.
fn folder_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// A host with options of its own.
pub(crate) fn open_host_with(options: HostOptions) -> Result<Host, CliError> {
    Host::new(options).map_err(|error| CliError::internal(error.to_string()))
}

/// What every host of this program has.
pub(crate) fn host_options() -> HostOptions {
    HostOptions {
        cache: cache_folder(),
        stock: conclave_stock::stock(),
        compiler: crate::program::compile::compiler(),
        secrets: Arc::new(secrets()),
        servers: Some(Arc::new(servers())),
        kv: kv(),
        guarded: state(),
        ..HostOptions::default()
    }
}

/// Servers of tools that others wrote. Of this process's environment they get `PATH` and `HOME`.
fn servers() -> Servers {
    Servers::new(|name| std::env::var(name).ok())
}

/// `kv.sqlite` in the state folder: what plugins keep from run to run. Nothing is made before one
/// of them keeps something.
fn kv() -> Arc<dyn KvStore> {
    match crate::state::state_folder::state_folder() {
        Some(folder) => Arc::new(Sqlite::new(folder.join("kv.sqlite"))),
        None => {
            Arc::new(NoKv("nobody knows where to keep it: set HOME or CONCLAVE_STATE".to_owned()))
        }
    }
}

/// The state folder is the host's own: what was said in other runs, what other plugins keep.
fn state() -> Vec<GuardedPath> {
    let what = "the journals and stores of other runs".to_owned();
    let kept = crate::state::state_folder::state_folder().map(|path| GuardedPath {
        what,
        path,
        secret: true,
        whole: true,
    });
    // Programs are looked for there, also those that a config starts for a key or as a server.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute() && folder.is_dir());
    let programs = programs.map(|path| GuardedPath {
        what: "programs of the PATH".to_owned(),
        path,
        secret: false,
        whole: true,
    });
    kept.into_iter().chain(programs).collect()
}

/// `$CONCLAVE_CACHE`, else `conclave` in the user's cache folder; none where there is neither, and
/// then nothing is cached.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let named =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("CONCLAVE_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("conclave")))
        .or_else(|| named("HOME").map(|home| home.join(".cache").join("conclave")))
}

/// Tells of plugins that take a while to load, and of what is odd about them.
pub(crate) fn follow(quiet: bool) -> Follow {
    Arc::new(move |step| tell(&step, quiet))
}

fn tell(step: &LoadStep, quiet: bool) {
    let mut err = crate::ui::output::stderr();
    match step {
        LoadStep::Downloading { plugin, from } if !quiet => {
            let _ =
                writeln!(err, "{}", paint(FAINT, format_args!("downloading {plugin} from {from}")));
        }
        LoadStep::Compiling { plugin, bytes } if !quiet => {
            let size = crate::ui::show::bytes(*bytes);
            let _ = writeln!(err, "{}", paint(FAINT, format_args!("compiling {plugin} ({size})")));
        }
        LoadStep::Loaded { plugin, took, from_cache: false }
            if !quiet && took.as_millis() > WORTH_A_LINE_MS =>
        {
            let _ = writeln!(
                err,
                "{}",
                paint(FAINT, format_args!("compiled {plugin} in {}", time(*took)))
            );
        }
        LoadStep::Downloading { .. } | LoadStep::Compiling { .. } | LoadStep::Loaded { .. } => {}
        LoadStep::Warning { plugin, message } => {
            let who = plugin
                .as_ref()
                .map(|plugin| format!("{}: ", paint(NAME, plugin)))
                .unwrap_or_default();
            let _ = writeln!(err, "{} {who}{message}", paint(ODD, "warning:"));
        }
    }
}
