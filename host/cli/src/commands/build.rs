//! `conclave plugin build [FOLDER]`: builds a plugin's crate with cargo, and inspects the component.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use conclave_runtime::plugin::{LoadError, inspect as inspect_bytes, read_component};

use crate::args::{BuildPlugin, InspectPlugin, OutputArgs};
use crate::commands::{embed, inspect};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::source;
use crate::ui::show::show_path;
use crate::ui::stdout;

/// The manifest of a plugin beside its crate's.
const MANIFEST: &str = "conclave-plugin.toml";

pub(crate) async fn build(args: &BuildPlugin, output: OutputArgs) -> Result<u8, CliError> {
    let folder = args.folder.as_path();
    let component = source::release_build(folder)?;
    cargo(folder, output)?;
    embed_missing(folder, output)?;
    let source = component.display().to_string();
    if output.quiet && !output.json {
        stdout::line(show_path(&component))?;
        return Ok(exit::OK);
    }
    inspect::inspect(&InspectPlugin { source, no_tools: false }, output).await
}

/// Embeds the manifest into a component that lacks it. `export!` does so at compile time; a
/// component whose exports are written by hand may lack it.
pub(crate) fn embed_missing(folder: &Path, output: OutputArgs) -> Result<(), CliError> {
    let component = source::release_build(folder)?;
    let bytes = read_component(&component).map_err(|error| {
        let what = format!("cargo made no component {}: {error}", show_path(&component));
        CliError::plugin(what)
            .hint("write `crate-type = [\"cdylib\"]` under [lib] in its Cargo.toml")
    })?;
    let manifest = folder.join(MANIFEST);
    if matches!(inspect_bytes(&bytes), Err(LoadError::NoManifest)) && manifest.is_file() {
        embed::embed(&component, &manifest, output)?;
    }
    Ok(())
}

/// Runs cargo, whose output is for the user.
pub(crate) fn cargo(folder: &Path, output: OutputArgs) -> Result<(), CliError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--target", source::TARGET, "--target-dir"])
        .arg(whole.join("target"))
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
