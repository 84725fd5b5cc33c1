//! The tool of `conclave plugin new` in each language, which `cargo xtask bench` compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::components;
use crate::failure::XtaskFailure;
use crate::files;
use crate::phase::{self, Phases};
use crate::place::{Checkout, digest, files_below};
use crate::servers;

/// The component's name in the bench, the language, and options of `conclave plugin build`.
const TOOLS: [(&str, &str, &[&str]); 4] = [
    ("rust", "rust", &[]),
    ("python", "python", &[]),
    ("quickjs", "js", &["--engine", "quickjs"]),
    ("starlingmonkey", "js", &["--engine", "starlingmonkey"]),
];
const PLUGIN: &str = "words";
/// What the tools are made of.
const INPUTS: [&str; 4] = ["sdk", "wit", "host/trajectory/src", "host/cli/src/commands/new"];

/// Three phases, left out if the components are current. Without pip or npm there are no
/// components, and a printed line has the reason; the bench then skips their rows.
pub(crate) fn build(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    let out = place.languages();
    let recorded = place.own().join("languages-inputs");
    let files = INPUTS.iter().flat_map(|folder| files_below(&place.root.join(folder), ""));
    // What Python and npm leave there.
    let is_left =
        |path: &PathBuf| path.iter().any(|part| part == "__pycache__" || part == "node_modules");
    let digest = digest(place, files.filter(|path| !is_left(path)))?;
    let exists = |(name, ..): &(&str, &str, &[&str])| component(&out, name).is_file();
    if TOOLS.iter().all(exists) && fs::read_to_string(&recorded).is_ok_and(|it| it == digest) {
        return Ok(());
    }
    let _ = fs::remove_dir_all(&out);
    let Some(python) = servers::languages(place, phases)? else { return Ok(()) };
    components::build_conclave(place, phases, false)?;
    files::make_folder(&out)?;
    let mut is_whole = true;
    phases.check("building one tool in each language", || {
        for (name, language, options) in TOOLS {
            if let Err(failure) = build_one(place, &python, name, language, options) {
                eprintln!("\n      {name} is left out: {}", failure.text.trim());
                is_whole = false;
            }
        }
        Ok(())
    })?;
    if is_whole {
        files::write(&recorded, digest)?;
    }
    Ok(())
}

fn component(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.wasm"))
}

fn build_one(
    place: &Checkout,
    python: &Path,
    name: &str,
    language: &str,
    options: &[&str],
) -> Result<(), XtaskFailure> {
    let folder = place.own().join("words").join(name);
    let _ = fs::remove_dir_all(&folder);
    files::make_folder(&folder)?;
    let conclave = |at: &Path, words: &[&str]| {
        let mut command = Command::new(place.conclave());
        command.args(["plugin"]).args(words).arg("--quiet").current_dir(at);
        // As the tests of languages, which share the build tools.
        command.env("CONCLAVE_CACHE", tools(python)).env("PYTHON", python);
        command
    };
    let node = servers::node(python)?;
    let log = format!("words-{name}");
    phase::to_log(place, &log, conclave(&folder, &["new", PLUGIN, "--lang", language]))?;
    let folder = folder.join(PLUGIN);
    let mut build = conclave(&folder, &["build"]);
    build.args(options).env("NODE", node);
    phase::to_log(place, &log, build)?;
    let built = match language {
        "rust" => folder.join("target/wasm32-wasip2/release"),
        _ => folder.join("build"),
    };
    let (built, file) = (component(&built, PLUGIN), component(&place.languages(), name));
    files::copy(&built, &file)?;
    Ok(())
}

/// Returns the folder of build tools in the environment of a Python.
fn tools(python: &Path) -> PathBuf {
    python.ancestors().nth(2).unwrap_or(python).join("tools")
}
