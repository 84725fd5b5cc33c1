//! `conclave plugin build [FOLDER]`: builds a plugin of its sources, and inspects the component.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use conclave_runtime::durable_file::{self, FileAccess};
use conclave_runtime::plugin::{
    LoadError, embed as put_in, inspect as inspect_bytes, read_component,
};

use crate::args::{BuildPlugin, Engine, InspectPlugin, Language, OutputArgs};
use crate::commands::{embed, inspect};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::project::{MANIFEST, Project};
use crate::state::source;
use crate::state::toolchain::Toolchain;
use crate::ui::show::{show_path, unwritten};
use crate::ui::{stderr, stdout};

pub(crate) async fn build(args: &BuildPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let project = Project::open(&args.folder)?;
    let component = project.component()?;
    make(&project, args.engine, output)?;
    let source = component.display().to_string();
    if output.quiet && !output.json {
        stdout::line(show_path(&component))?;
        return Ok(exit::OK);
    }
    inspect::inspect(&InspectPlugin { source, no_tools: false }, output).await
}

/// Builds the component of a project, with its manifest.
pub(crate) fn make(project: &Project, engine: Engine, output: OutputArgs) -> Result<(), CliError> {
    match project.language {
        Language::Rust => {
            cargo(&project.folder, output)?;
            embed_missing(project, output)
        }
        Language::Python | Language::Js => script(project, engine, output),
    }
}

/// Embeds the manifest into a component that lacks it. `export!` does so at compile time; a
/// component whose exports are written by hand may lack it.
fn embed_missing(project: &Project, output: OutputArgs) -> Result<(), CliError> {
    let component = project.component()?;
    let bytes = read_component(&component).map_err(|error| {
        let what = format!("cargo made no component {}: {error}", show_path(&component));
        CliError::plugin(what)
            .hint("write `crate-type = [\"cdylib\"]` under [lib] in its Cargo.toml")
    })?;
    let manifest = project.folder.join(MANIFEST);
    let lacks_one = match inspect_bytes(&bytes) {
        Ok(found) => !found.has_manifest,
        Err(error) => matches!(error, LoadError::NoManifest),
    };
    if lacks_one && manifest.is_file() {
        embed::embed(&component, &manifest, output)?;
    }
    Ok(())
}

/// Builds a plugin in Python or JavaScript with its private tools.
fn script(project: &Project, engine: Engine, output: OutputArgs) -> Result<(), CliError> {
    let manifest = project.manifest()?;
    let app = project.app()?;
    let component = project.component()?;
    let unwritten = |error: std::io::Error| unwritten(&component, error);
    let tools = Toolchain::of(project, engine, output)?;
    let made_in = component.with_extension("made");
    // It has copies of the files beside the plugin's code.
    std::fs::create_dir_all(durable_file::folder_of(&made_in)).map_err(unwritten)?;
    durable_file::make_folders(&made_in, 0o700).map_err(unwritten)?;
    // Two builds of one folder would delete each other's files.
    let lock = File::create(made_in.join("lock")).map_err(unwritten)?;
    if lock.try_lock().is_err() {
        if !output.result_only() {
            let what = "waiting for another build of this folder …";
            stderr::note(what);
        }
        lock.lock().map_err(unwritten)?;
    }
    let prepared = tools.prepare(&app, &made_in, engine, output)?;
    if !output.quiet {
        for warning in &prepared.warnings {
            stderr::warning(warning);
        }
    }
    tools.make(&prepared, &made_in, output)?;
    let bytes = read_component(&prepared.component).map_err(|error| {
        CliError::plugin(format!("{} was not made: {error}", show_path(&prepared.component)))
    })?;
    let with_manifest = put_in(&bytes, &manifest)
        .map_err(|error| CliError::plugin(format!("{}: {error}", show_path(&component))))?;
    // Replaced at the end, so that an interrupted build leaves the previous component.
    durable_file::replace(&component, &with_manifest, &FileAccess::Usual).map_err(unwritten)
}

/// Runs cargo, whose output is for the user.
fn cargo(folder: &Path, output: OutputArgs) -> Result<(), CliError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let absolute_folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--target", source::TARGET, "--target-dir"])
        .arg(absolute_folder.join("target"))
        .args(output.quiet.then_some("--quiet"))
        // There cargo finds the toolchain and the settings of the crate.
        .current_dir(folder)
        .stdin(Stdio::null())
        // The result of this command is on stdout, and cargo writes to stderr.
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            Err(CliError::plugin(format!("{} was not built", show_path(folder))).hint(format!(
                "cargo has said why; if it lacks the target: rustup target add {}",
                source::TARGET
            )))
        }
        Err(error) => Err(CliError::usage(format!("cargo cannot be run: {error}"))
            .hint(format!("install Rust, and then: rustup target add {}", shell(source::TARGET)))),
    }
}
