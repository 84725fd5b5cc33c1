//! The tools that build a plugin in Python or JavaScript, in pinned versions: a private folder in
//! the cache, installed at the first build. After that a build needs no network.

mod dependencies;
mod inputs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::args::{Engine, Language, OutputArgs};
use crate::program::error::CliError;
use crate::state::project::Project;
use crate::state::{sdk, setup};
use crate::ui::show::{one_line, show_path, time, unread, unwritten};
use crate::ui::stderr;

/// The folder of the SDK in a plugin's folder, as `conclave plugin new` writes it.
pub(crate) const SDK: &str = "conclave-sdk";
/// The folder of the JavaScript SDK with the pins of its tools, and the lock in it.
const JS_TOOLCHAIN: &str = "sdk/js/toolchain";
const JS_LOCK: &str = "package-lock.json";
/// Options of npm. No script of a package runs. Its default pauses between retries let an
/// installation without a network wait for minutes.
const NPM: [&str; 6] = [
    "--loglevel=error",
    "--no-audit",
    "--no-fund",
    "--ignore-scripts",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=4000",
];
/// Keeps Python from looking for modules in the current folder, which may be anybody's.
const SAFE_PATH: (&str, &str) = ("PYTHONSAFEPATH", "1");
/// The folder of what a component is made of, in that of its build.
const SOURCES: &str = "sources";
/// Says that an installation is complete.
const COMPLETE: &str = "complete";

/// The installed tools of a language.
pub(crate) struct Toolchain {
    language: Language,
    /// The interpreter that runs the SDK's own commands.
    interpreter: PathBuf,
    /// The installed packages.
    folder: PathBuf,
    /// The root of the SDK: `wit`, and `sdk/python` or `sdk/js`.
    sdk: PathBuf,
}

/// The part of the JavaScript SDK's package.json with packages that only one engine needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsToolchain {
    config: JsEngines,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsEngines {
    starlingmonkey: Vec<String>,
}

/// The answer of the SDK's command `prepare`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Prepared {
    /// The program that makes the component, and its arguments.
    pub(crate) command: Vec<String>,
    /// The component that it makes.
    pub(crate) component: PathBuf,
    /// Problems that do not stop the build.
    pub(crate) warnings: Vec<String>,
    /// Variables of the environment in which the command runs.
    env: BTreeMap<String, String>,
    /// Problems that do stop it, one sentence each.
    errors: Vec<String>,
    /// The only problem that does, and its remedy.
    error: Option<String>,
    hint: Option<String>,
}

impl Toolchain {
    /// Finds the tools for a project, and installs them if this is the first build.
    ///
    /// # Errors
    /// If the interpreter is missing or too old, or the packages cannot be installed.
    pub(crate) fn of(
        project: &Project,
        engine: Engine,
        output: OutputArgs,
    ) -> Result<Self, CliError> {
        let language = project.language;
        let cache = setup::cache_folder().ok_or_else(|| {
            CliError::usage("there is no folder for the build tools")
                .hint("set CONCLAVE_CACHE to a folder of yours")
        })?;
        let folder = cache.join("toolchains");
        let sdk = match project.folder.join(SDK) {
            own if own.is_dir() => std::path::absolute(&own).unwrap_or(own),
            _ => written_sdk(language, &folder)?,
        };
        let interpreter = interpreter(language)?.program;
        let pins = pins(language, &sdk)?;
        // The larger engine needs more packages. All that is installed is named, so a project with
        // other pins has a folder of its own.
        let lock = match language {
            Language::Python => String::new(),
            Language::Js | Language::Rust => read(&sdk.join(JS_TOOLCHAIN).join(JS_LOCK))?,
        };
        let identity = format!("{pins}{lock}{}{}", interpreter.display(), engine.as_str());
        let name = format!("{}-{}", language.as_str(), short_digest(&identity));
        let folder = folder.join(name);
        install(language, &interpreter, &pins, engine, &sdk, &folder, output)?;
        let interpreter = match language {
            Language::Python => folder.join("bin").join("python"),
            Language::Js | Language::Rust => interpreter,
        };
        Ok(Self { language, interpreter, folder, sdk })
    }

    /// Writes what the component is made of into `out`, and returns the command that makes it.
    /// Installs the packages that a Python project depends on.
    ///
    /// # Errors
    /// If the plugin's own code fails, or needs what a component cannot have.
    pub(crate) fn prepare(
        &self,
        app: &Path,
        out: &Path,
        engine: Engine,
        output: OutputArgs,
    ) -> Result<Prepared, CliError> {
        let mut command = self.sdk_command("prepare");
        command.arg(app);
        match self.language {
            Language::Python => {
                if let Some(folder) = self.dependencies(app, out, output)? {
                    command.arg("--dependencies").arg(folder);
                }
            }
            Language::Js | Language::Rust => {
                command.arg("--toolchain").arg(&self.folder).args(["--engine", engine.as_str()]);
            }
        }
        let component = out.join("plugin.wasm");
        command.arg("--wit").arg(self.sdk.join("wit")).arg("--out").arg(out.join(SOURCES));
        let mut prepared: Prepared = answer(command, app)?;
        prepared.errors.extend(prepared.error.take());
        if !prepared.errors.is_empty() {
            let problems = prepared.errors.join("\n  ");
            let what = format!("{} cannot be built: {problems}", show_path(app));
            return Err(with_hint(CliError::plugin(what), prepared.hint));
        }
        if self.language == Language::Python {
            if let Some(program) = prepared.command.first_mut() {
                *program = self.folder.join("bin/componentize-py").display().to_string();
            }
            prepared.command.extend(["-o".to_owned(), component.display().to_string()]);
            prepared.component = component;
        }
        Ok(prepared)
    }

    fn sdk_command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.interpreter);
        match self.language {
            Language::Python => command
                .env("PYTHONPATH", self.sdk.join("sdk/python"))
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .args(["-m", "conclave_sdk", what]),
            Language::Js | Language::Rust => {
                command.arg(self.sdk.join("sdk/js/bin/conclave-sdk.js")).arg(what)
            }
        };
        command
    }

    /// Makes the component of what `prepare` wrote into `out`, unless the last build had the same
    /// sources: the tools start an interpreter with random seeds, and two builds differ in bytes.
    ///
    /// # Errors
    /// If the tool fails; its output is for the author.
    pub(crate) fn make(
        &self,
        prepared: &Prepared,
        out: &Path,
        output: OutputArgs,
    ) -> Result<(), CliError> {
        let unread = |error: std::io::Error| {
            CliError::internal(format!("the build in {} failed: {error}", show_path(out)))
        };
        let built = out.join("built");
        let inputs = inputs::digest(prepared, &out.join(SOURCES)).map_err(unread)?;
        if prepared.component.is_file()
            && std::fs::read_to_string(&built).is_ok_and(|before| before == inputs)
        {
            step(output, "the sources are those of the last build");
            return Ok(());
        }
        // Absent until the component is whole.
        match std::fs::remove_file(&built) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unread(error)),
            _ => {}
        }
        let Some((program, arguments)) = prepared.command.split_first() else {
            return Err(CliError::internal("the SDK named no command".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(&prepared.env);
        let began = Instant::now();
        step(output, "building the component …");
        run(command, || {
            CliError::plugin("the component was not built".to_owned())
                .hint("the output above says why")
        })?;
        step(output, &format!("built in {}", time(began.elapsed())));
        std::fs::write(built, inputs).map_err(unread)
    }
}

fn step(output: OutputArgs, what: &str) {
    if !output.result_only() {
        stderr::note(what);
    }
}

fn with_hint(error: CliError, hint: Option<String>) -> CliError {
    match hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Runs a program, whose output is shown if it fails.
fn run(mut command: Command, failed: impl FnOnce() -> CliError) -> Result<(), CliError> {
    let ran = output_of(&mut command)?;
    if ran.status.success() {
        return Ok(());
    }
    show_output(&ran);
    Err(failed())
}

fn output_of(command: &mut Command) -> Result<Output, CliError> {
    let ran = command.stdin(Stdio::null()).env(SAFE_PATH.0, SAFE_PATH.1).output();
    ran.map_err(|error| unstarted(Path::new(command.get_program()), &error))
}

fn show_output(ran: &Output) {
    let mut err = crate::ui::output::stderr();
    let _ = err.write_all(&ran.stdout);
    let _ = err.write_all(&ran.stderr);
}

/// Runs a command of the SDK, which prints one JSON object. What the plugin's code prints while it
/// is loaded is for its author.
fn answer<T: DeserializeOwned>(mut command: Command, file: &Path) -> Result<T, CliError> {
    let ran = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .env(SAFE_PATH.0, SAFE_PATH.1)
        .output()
        .map_err(|error| unstarted(Path::new(command.get_program()), &error))?;
    serde_json::from_slice(&ran.stdout).map_err(|_| {
        let _ = crate::ui::output::stderr().write_all(&ran.stdout);
        CliError::plugin(format!("{} could not be loaded", show_path(file)))
            .hint("the output above says why")
    })
}

fn unstarted(program: &Path, error: &std::io::Error) -> CliError {
    CliError::usage(format!("{} cannot be run: {error}", show_path(program)))
}

/// An interpreter that is new enough to build plugins.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) program: PathBuf,
    /// Such as `3.12.3`, as it says itself.
    pub(crate) version: String,
}

/// Returns the interpreter of a language, if it is new enough.
///
/// # Errors
/// If it cannot be run, or is too old.
pub(crate) fn interpreter(language: Language) -> Result<Interpreter, CliError> {
    let (variable, name, question, needed, how) = match language {
        Language::Python => (
            "PYTHON",
            "python3",
            "import platform; print(platform.python_version())",
            (3, 11),
            "install Python 3.11 or newer with its module venv, or name one: PYTHON=/path/to/python3",
        ),
        Language::Js | Language::Rust => (
            "NODE",
            "node",
            "console.log(process.versions.node)",
            (22, 0),
            "install Node 22 or newer, or name one: NODE=/path/to/node",
        ),
    };
    let program = std::env::var_os(variable)
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| OsString::from(name));
    let flag = if language == Language::Python { "-c" } else { "-e" };
    let ran = Command::new(&program)
        .args([flag, question])
        .env(SAFE_PATH.0, SAFE_PATH.1)
        .stdin(Stdio::null())
        .output();
    let program_name = one_line(&program.to_string_lossy(), 200);
    let ran = ran.map_err(|error| {
        CliError::usage(format!("{program_name} cannot be run: {error}")).hint(how)
    })?;
    let version = one_line(String::from_utf8_lossy(&ran.stdout).trim(), 40);
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= needed => {
            Ok(Interpreter { program: PathBuf::from(program), version })
        }
        _ => {
            let what =
                format!("{program_name} is version {version}, which is too old to build plugins");
            Err(CliError::usage(what).hint(how))
        }
    }
}

/// Returns the packages and their versions, as the SDK pins them.
fn pins(language: Language, sdk: &Path) -> Result<String, CliError> {
    let file = sdk.join(match language {
        Language::Python => "sdk/python/conclave_sdk/_build/toolchain.txt",
        Language::Js | Language::Rust => "sdk/js/toolchain/package.json",
    });
    read(&file)
}

/// Reads a file of an SDK.
fn read(file: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(file).map_err(|error| {
        unread(file, error)
            .hint("the SDK in this folder is not whole; write a new one with `conclave plugin new`")
    })
}

/// Installs the packages into the folder, unless they are there. Two builds at once install once.
fn install(
    language: Language,
    interpreter: &Path,
    pins: &str,
    engine: Engine,
    sdk: &Path,
    folder: &Path,
    output: OutputArgs,
) -> Result<(), CliError> {
    if folder.join(COMPLETE).is_file() {
        return Ok(());
    }
    let unwritten = |error: std::io::Error| unwritten(folder, error);
    let above = folder.parent().unwrap_or(folder);
    std::fs::create_dir_all(above).map_err(unwritten)?;
    let lock = File::create(above.join("lock")).map_err(unwritten)?;
    lock.lock().map_err(unwritten)?;
    if folder.join(COMPLETE).is_file() {
        return Ok(());
    }
    // What an interrupted installation left is not known to be whole.
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(unwritten)?;
    }
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    let began = Instant::now();
    step(output, &format!("installing the build tools into {}, once …", show_path(folder)));
    let commands = match language {
        Language::Python => {
            std::fs::write(folder.join("toolchain.txt"), pins).map_err(unwritten)?;
            let mut venv = Command::new(interpreter);
            venv.args(["-m", "venv"]).arg(folder);
            let mut pip = Command::new(folder.join("bin").join("python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(folder.join("toolchain.txt"));
            vec![venv, pip]
        }
        Language::Js | Language::Rust => {
            for name in ["package.json", JS_LOCK] {
                let from = sdk.join(JS_TOOLCHAIN).join(name);
                std::fs::copy(from, folder.join(name)).map_err(unwritten)?;
            }
            let npm = |command: &str, more: &[String]| {
                let mut npm = npm(interpreter);
                npm.arg(command).args(NPM).args(more);
                npm.current_dir(folder);
                npm
            };
            let mut commands = vec![npm("ci", &[])];
            if engine == Engine::Starlingmonkey {
                let pins: JsToolchain = serde_json::from_str(pins).unwrap_or_default();
                let unsaved = ["--no-save".to_owned()].into_iter();
                commands.push(npm(
                    "install",
                    &unsaved.chain(pins.config.starlingmonkey).collect::<Vec<_>>(),
                ));
            }
            commands
        }
    };
    for command in commands {
        run(command, || {
            let what = format!("the build tools for {} could not be installed", language.as_str());
            CliError::usage(what).hint("the output above says why; the first installation needs a network, and later builds do not")
        })?;
    }
    std::fs::write(folder.join(COMPLETE), "").map_err(unwritten)?;
    step(output, &format!("installed in {}", time(began.elapsed())));
    Ok(())
}

/// The npm that came with the given node, or that of the PATH. It is started by that node: the
/// script's own first line could name another.
fn npm(node: &Path) -> Command {
    let question = ["-p", "process.execPath"];
    let ran = Command::new(node).args(question).stdin(Stdio::null()).output();
    let path = ran.map(|ran| String::from_utf8_lossy(&ran.stdout).trim().to_owned());
    let root =
        path.ok().map(PathBuf::from).and_then(|path| Some(path.parent()?.parent()?.to_owned()));
    let script = root.map(|root| root.join("lib/node_modules/npm/bin/npm-cli.js"));
    match script.filter(|script| script.is_file()) {
        Some(script) => {
            let mut command = Command::new(node);
            command.arg(script);
            command
        }
        None => Command::new("npm"),
    }
}

/// Writes the SDK of this program into the cache, for a folder without one.
fn written_sdk(language: Language, toolchains: &Path) -> Result<PathBuf, CliError> {
    let mut identity = String::new();
    for (name, text) in sdk::files(language) {
        identity += &format!("{name}\0{}\0{text}", text.len());
    }
    let folder = toolchains.join(format!("sdk-{}", short_digest(&identity)));
    if folder.join(COMPLETE).is_file() {
        return Ok(folder);
    }
    let unwritten = |error: std::io::Error| unwritten(&folder, error);
    for (name, text) in sdk::files(language) {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(&folder)).map_err(unwritten)?;
        std::fs::write(&file, text).map_err(unwritten)?;
    }
    std::fs::write(folder.join(COMPLETE), "").map_err(unwritten)?;
    Ok(folder)
}

/// The first 16 digits of the SHA-256 of a text.
fn short_digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
