//! `conclave plugin embed FILE.wasm MANIFEST.toml`: for components from toolchains without support
//! for manifests.

use std::path::Path;

use conclave_core::permissions::manifest::Manifest;
use conclave_runtime::durable_file::{self, FileAccess};
use conclave_runtime::plugin::{embed as put_in, read_component};

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::program::exit;
use crate::ui::show::{show_path, unread, unwritten};

pub(crate) fn embed(file: &Path, manifest: &Path, output: OutputArgs) -> Result<u8, CliError> {
    let component = read_component(file).map_err(|error| unread(file, error))?;
    let text = std::fs::read_to_string(manifest).map_err(|error| unread(manifest, error))?;
    let read = Manifest::from_toml(&show_path(manifest), &text)
        .map_err(|error| CliError::usage(error.to_string()))?;
    let with_manifest = put_in(&component, &read)
        .map_err(|error| CliError::plugin(format!("{}: {error}", show_path(file))))?;
    // Replaced as a whole, since the component that was read is in the same file.
    let written = durable_file::replace(file, &with_manifest, &FileAccess::Usual);
    written.map_err(|error| unwritten(file, error))?;
    if !output.quiet {
        eprintln!(
            "embedded the manifest of {1} {2} into {0}",
            show_path(file),
            read.name,
            read.version
        );
    }
    Ok(exit::OK)
}
