//! `cargo xtask demo`: builds, runs `conclave run` on an example config and prints the next command
//! to type.

mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::components::{self, NamedComponents, Optimised};
use crate::failure::XtaskFailure;
use crate::files;
use crate::needs;
use crate::phase::{self, CargoBuild, Phases};
use crate::place::Checkout;

const EXAMPLES: &str = "docs/examples";
const QUESTION: &str = "What is a manifest?";
const FOLDER_QUESTION: &str = "What is this about?";
/// The crates that compile components. A demo compiles six small ones once: to build these without
/// optimisation takes two minutes of processor time less, and to compile with them 15 seconds more.
/// The tests, which compile a hundred, have them optimised (Cargo.toml).
const COMPILER: [&str; 5] = [
    "cranelift-assembler-x64",
    "cranelift-codegen",
    "cranelift-frontend",
    "regalloc2",
    "wasmtime-internal-cranelift",
];
/// The folder in which the configs expect them.
const GUESTS: &str = "../../target/conclave/guests/";
const HOSTILE_QUESTION: &str = "How warm is it in Oslo?";

#[derive(Default)]
struct DemoOptions {
    question: Option<String>,
    folder: Option<PathBuf>,
    hostile: bool,
    cluster: bool,
    verbose: bool,
}

pub(crate) fn run(place: &Checkout, arguments: &[String]) -> Result<ExitCode, XtaskFailure> {
    let options = DemoOptions::read(arguments)?;
    needs::check(place)?;
    if options.cluster {
        return cluster::run(place, options.verbose);
    }
    let mut phases = Phases::new(place, 2, options.verbose);
    if !place.conclave().is_file() {
        phases.announce_first_build("demo");
    }
    let config = options.config(place)?;
    let text = files::read(&config)?;
    let names = NamedComponents::of(&text);
    // As the tests' guests are built, which shares the macros with the program.
    components::build_named(place, &mut phases, &names, Optimised::Little)?;
    build_conclave(place, &mut phases, &[])?;

    let mut command = Command::new(place.conclave());
    command
        .arg("run")
        .arg(place.relative(&config))
        .arg(options.question())
        .current_dir(&place.root);
    eprintln!("\nThe config: {}", place.relative(&config));
    eprintln!("$ {} {}\n", place.relative(&place.conclave()), phase::arguments(&command));
    let status = command
        .env_remove("CARGO_MANIFEST_DIR")
        .status()
        .map_err(|error| phase::not_started(&command, &error))?;
    if status.success() {
        eprintln!("\n{}", next(&place.relative(&place.conclave())));
    }
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// One phase: builds the program without what the demo never runs.
fn build_conclave(
    place: &Checkout,
    phases: &mut Phases,
    features: &[&str],
) -> Result<(), XtaskFailure> {
    let mut command = place.cargo(["build", "-p", "conclave-host", "--no-default-features"]);
    command.arg("--features").arg(features.join(","));
    for name in COMPILER {
        command.arg("--config").arg(format!("profile.dev.package.{name}.opt-level=0"));
    }
    phases.build("building the program conclave", vec![CargoBuild { log: "conclave", command }])
}

/// Returns the next commands to type.
fn next(program: &str) -> String {
    let commands = [
        (format!("{program} why"), "what was refused, by which layer, and what would allow it"),
        (
            "cargo xtask install".to_owned(),
            "the program; then `conclave init` in a folder of yours",
        ),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    commands.map(|(command, what)| format!("$ {command:<width$}   # {what}")).join("\n")
}

impl DemoOptions {
    fn read(arguments: &[String]) -> Result<Self, XtaskFailure> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                // cargo's own separator, typed out of habit: `cargo xtask demo -- "question"`.
                "--" => {}
                "--hostile" => options.hostile = true,
                "--cluster" => options.cluster = true,
                "--verbose" | "-v" => options.verbose = true,
                "--folder" => {
                    options.folder =
                        Some(folder(words.next().map(String::as_str).unwrap_or_default())?)
                }
                option if option.starts_with("--folder=") => {
                    options.folder = Some(folder(&option["--folder=".len()..])?)
                }
                option if option.starts_with('-') => {
                    return Err(XtaskFailure::usage(format!(
                        "cargo xtask demo does not know `{option}`; --help lists what it takes"
                    )));
                }
                question if options.question.is_none() => {
                    options.question = Some(question.to_owned())
                }
                more => {
                    return Err(XtaskFailure::usage(format!(
                        "one question at a time: put it in quotes (`{more}` came after the first)"
                    )));
                }
            }
        }
        if options.hostile && options.folder.is_some() {
            return Err(XtaskFailure::usage(
                "--hostile grants no folder to anyone, so it does not go with --folder",
            ));
        }
        let has_other = options.hostile || options.folder.is_some() || options.question.is_some();
        if options.cluster && has_other {
            return Err(XtaskFailure::usage(
                "--cluster has a config and a task of its own: leave the others out",
            ));
        }
        Ok(options)
    }

    fn question(&self) -> &str {
        let default = match (self.hostile, &self.folder) {
            (true, _) => HOSTILE_QUESTION,
            (false, Some(_)) => FOLDER_QUESTION,
            (false, None) => QUESTION,
        };
        self.question.as_deref().unwrap_or(default)
    }

    /// Returns the path of the example. It is copied to the target folder if it grants another
    /// folder, or if cargo builds elsewhere.
    fn config(&self, place: &Checkout) -> Result<PathBuf, XtaskFailure> {
        let examples = place.root.join(EXAMPLES);
        let name = if self.hostile { "hostile.toml" } else { "stranger.toml" };
        let example = examples.join(name);
        if self.folder.is_none() && place.builds_at_home() {
            return Ok(example);
        }
        let text = files::read(&example)?;
        let copy = place.own().join(name);
        files::make_folder(&place.own())?;
        let text = text.replace(GUESTS, &format!("{}/", place.guests().display()));
        files::write(&copy, moved(&text, &examples, self.folder.as_deref()))?;
        Ok(copy)
    }
}

fn folder(path: &str) -> Result<PathBuf, XtaskFailure> {
    if path.is_empty() {
        return Err(XtaskFailure::usage("--folder needs a path"));
    }
    let folder = fs::canonicalize(path)
        .map_err(|error| XtaskFailure::usage(format!("--folder {path}: {error}")))?;
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(XtaskFailure::usage(format!("--folder {path} is a file; name the folder it is in")))
    }
}

/// Returns the config for another place. The folder of its first `dir` is replaced in every grant.
/// Other relative paths, which start at the config's own folder, become absolute.
fn moved(text: &str, examples: &Path, folder: Option<&Path>) -> String {
    let granted = text.lines().find_map(dir).map(str::to_owned);
    let mut moved =
        String::from("# Written by `cargo xtask demo --folder`; overwritten the next time.\n");
    for line in text.lines() {
        let mut line = line.to_owned();
        if let Some((old, folder)) =
            dir(&line).map(str::to_owned).filter(|old| Some(old) == granted.as_ref()).zip(folder)
        {
            line = line.replace(&format!("dir = \"{old}\""), &format!("dir = {}", quoted(folder)));
            line = line.replace("at = \"/docs\"", &format!("at = \"/{}\"", name(folder)));
        } else if !line.trim_start().starts_with('#') {
            line = absolute(&line, examples);
        }
        moved.push_str(&line);
        moved.push('\n');
    }
    moved
}

/// Returns the name of the folder in answers: its own name, without characters that paths of the
/// contract cannot contain.
fn name(folder: &Path) -> String {
    let name =
        folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String =
        name.chars().filter(|c| c.is_alphanumeric() || "-_. ".contains(*c)).collect();
    if plain.trim_matches('.').is_empty() { "folder".to_owned() } else { plain }
}

/// Returns the path in `dir = "PATH"`.
fn dir(line: &str) -> Option<&str> {
    let uncommented = Some(line).filter(|line| !line.trim_start().starts_with('#'))?;
    uncommented.split_once("dir = \"")?.1.split_once('"').map(|(path, _)| path)
}

/// Returns the line with strings that begin with `./` or `../` joined to the folder they start
/// from.
fn absolute(line: &str, start: &Path) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    let mut result = String::new();
    for (number, part) in parts.iter().enumerate() {
        match number % 2 {
            1 if part.starts_with("./") || part.starts_with("../") => {
                result.push_str(&quoted(&plain(&start.join(part))))
            }
            1 => result.push_str(&format!("\"{part}\"")),
            _ => result.push_str(part),
        }
    }
    result
}

/// Returns the path without `..`, because configs are shown.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
        plain
    })
}

/// Returns the path as a TOML string.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('\\', "\\\\").replace('"', "\\\""))
}

/// Replaces this process with the program, whose exit code and signal handling become the
/// command's.
#[cfg(unix)]
pub(crate) fn become_program(mut command: Command) -> Result<ExitCode, XtaskFailure> {
    use std::os::unix::process::CommandExt;
    let error = command.env_remove("CARGO_MANIFEST_DIR").exec();
    Err(phase::not_started(&command, &error))
}

#[cfg(not(unix))]
pub(crate) fn become_program(mut command: Command) -> Result<ExitCode, XtaskFailure> {
    let status = phase::status(&mut command)?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_reads_the_other_folder_and_nothing_else_changes() {
        let text = "# dir = \"../..\" is the repository\na = [{ dir = \"../..\", at = \"/docs\" }]\nsource = \"../../target/x.wasm\"\n[b]\nc = [{ dir = \"../..\" }]\nd = [{ dir = \"./notes\" }] # ok\n";
        let moved =
            moved(text, Path::new("/r/docs/examples"), Some(Path::new("/home/me/my \"notes\"")));
        let lines: Vec<&str> = moved.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "# dir = \"../..\" is the repository",
                "a = [{ dir = \"/home/me/my \\\"notes\\\"\", at = \"/my notes\" }]",
                "source = \"/r/target/x.wasm\"",
                "[b]",
                "c = [{ dir = \"/home/me/my \\\"notes\\\"\" }]",
                "d = [{ dir = \"/r/docs/examples/notes\" }] # ok",
            ]
        );
    }

    #[test]
    fn a_second_question_is_refused_and_a_question_to_a_cluster() {
        for words in [["why", "not"], ["--cluster", "why"], ["--cluster", "--hostile"]] {
            let words = words.map(String::from);
            assert!(DemoOptions::read(&words).is_err_and(|failure| failure.code == 2));
        }
    }
}
