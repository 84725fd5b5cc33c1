//! `conclave plugin embed FILE.wasm MANIFEST.toml`: for components from toolchains that know nothing of manifests.

use std::path::Path;

use conclave_core::manifest::Manifest;
use conclave_runtime::plugin::{embed as put_in, read_component};

use crate::args::Output;
use crate::error::CliError;
use crate::exit;

pub(crate) fn embed(file: &Path, manifest: &Path, output: Output) -> Result<u8, CliError> {
    let unread = |path: &Path, error: &std::io::Error| CliError::usage(format!("{} could not be read: {error}", path.display()));
    let component = read_component(file).map_err(|error| unread(file, &error))?;
    let text = std::fs::read_to_string(manifest).map_err(|error| unread(manifest, &error))?;
    let read = Manifest::from_toml(&text).map_err(|error| CliError::usage(format!("{}: {error}", manifest.display())))?;
    let whole = put_in(&component, &read).map_err(|error| CliError::plugin(format!("{}: {error}", file.display())))?;
    // Written beside it and moved over it: a crash leaves the old file or the new one.
    let beside = file.with_extension("wasm.new");
    let written = std::fs::write(&beside, &whole).and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| CliError::internal(format!("{} could not be written: {error}", file.display())))?;
    if !output.quiet {
        eprintln!("{} now says that it is {} {}", file.display(), read.name, read.version);
    }
    Ok(exit::OK)
}
