//! From a config file to a prepared run: reads the environment, finds folders, tells all problems at once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conclave_core::config::{Config, Problems};
use conclave_core::ids::RoomId;
use conclave_runtime::{Follow, Host, HostOptions, LoadStep, PrepareError, Prepared};

use crate::args::Output;
use crate::error::CliError;
use crate::show::{FAINT, NAME, ODD, paint, time};
use crate::stock;

/// A plugin that takes longer than this to compile is told of; one from the cache is not worth a line.
const WORTH_A_LINE_MS: u128 = 300;

/// Reads the config, loads its plugins, and checks that they fit.
pub(crate) async fn prepare(file: &Path, output: Output) -> Result<Prepared, CliError> {
    let config = read_config(file)?;
    let host = open_host()?;
    let quiet = output.quiet || output.json;
    let prepared = host.prepare(&config, &follow(quiet)).await.map_err(|error| match error {
        PrepareError::Config(problems) => config_error(&problems),
        PrepareError::Plugins(problems) => CliError::plugin(with_heading("a plugin cannot be used", &problems)).with_problems(&problems),
    })?;
    if !output.quiet {
        for warning in config.warnings.0.iter().chain(&prepared.warnings().0) {
            let _ = write!(anstream::stderr(), "{warning}");
        }
    }
    Ok(prepared)
}

/// Reads a config file.
pub(crate) fn read_config(file: &Path) -> Result<Config, CliError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let what = format!("{} could not be read: {error}", file.display());
        CliError::usage(what).hint("name a config, such as docs/examples/demo.toml")
    })?;
    let folder = file.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
    Config::parse(&file.display().to_string(), &folder, &text).map_err(|problems| config_error(&problems))
}

fn config_error(problems: &Problems) -> CliError {
    let count = problems.0.len();
    let what = if count == 1 { "the config has a problem".to_owned() } else { format!("the config has {count} problems") };
    CliError::usage(with_heading(&what, problems)).with_problems(problems)
}

fn with_heading(what: &str, problems: &Problems) -> String {
    format!("{what}\n\n{}", problems.to_string().trim_end())
}

/// The host with the plugins that are inside this program, and the cache of compiled code.
pub(crate) fn open_host() -> Result<Host, CliError> {
    let options = HostOptions {
        cache: cache_folder(),
        stock: stock::stock().map(|(name, bytes)| (name.to_owned(), bytes.into())).collect(),
        ..HostOptions::default()
    };
    Host::new(options).map_err(|error| CliError::internal(error.to_string()))
}

/// `$CONCLAVE_CACHE`, else `conclave` in the user's cache folder; none where there is neither, and then nothing is cached.
fn cache_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("CONCLAVE_CACHE")
        .or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("conclave")))
        .or_else(|| named("HOME").map(|home| home.join(".cache").join("conclave")))
}

fn follow(quiet: bool) -> Follow {
    Arc::new(move |step| tell(&step, quiet))
}

fn tell(step: &LoadStep, quiet: bool) {
    let mut err = anstream::stderr();
    match step {
        LoadStep::Compiling { plugin, bytes } if !quiet => {
            let size = crate::show::bytes(*bytes);
            let _ = writeln!(err, "{}", paint(FAINT, format_args!("compiling {plugin} ({size})")));
        }
        LoadStep::Loaded { plugin, took, from_cache: false } if !quiet && took.as_millis() > WORTH_A_LINE_MS => {
            let _ = writeln!(err, "{}", paint(FAINT, format_args!("compiled {plugin} in {}", time(*took))));
        }
        LoadStep::Compiling { .. } | LoadStep::Loaded { .. } => {}
        LoadStep::Warning { plugin, message } => {
            let who = plugin.as_ref().map(|plugin| format!("{}: ", paint(NAME, plugin))).unwrap_or_default();
            let _ = writeln!(err, "{} {who}{message}", paint(ODD, "warning:"));
        }
    }
}

/// Four hexadecimal digits: enough for people to tell runs apart.
pub(crate) fn run_id() -> RoomId {
    let random = RandomState::new().build_hasher().finish();
    RoomId::from(format!("{:04x}", random & 0xffff))
}
