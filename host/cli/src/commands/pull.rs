//! `conclave plugin pull REFERENCE`: writes a component of an OCI registry to a file. Runs nothing
//! of it, and need not be a plugin.

use std::path::{Path, PathBuf};

use conclave_core::types::limits::COMPONENT_BYTES;
use conclave_runtime::durable_file::{self, FileAccess};
use conclave_runtime::plugin::signature_file;
use serde_json::json;

use crate::args::{OutputArgs, Pull};
use crate::commands::sign::write_beside;
use crate::program::error::CliError;
use crate::program::exit;
use crate::state::registry::{reference, registry};
use crate::ui::show::{bytes, show_path, unwritten};
use crate::ui::{stderr, stdout};

pub(crate) async fn pull(args: &Pull, output: OutputArgs) -> Result<u8, CliError> {
    let reference = reference(&args.reference)?;
    let file = args.output.clone().unwrap_or_else(|| file_name(reference.repository()));
    let registry = registry();
    let artifact = registry.artifact(&reference, || {}).await?;
    // After the lookup: a reference that does not exist is the first problem to know.
    check_free(&file, args.force)?;
    check_free(&signature_file(&file), args.force)?;
    let component = registry.component(&artifact, COMPONENT_BYTES, || {}).await?;
    // Without --force not even a file that appeared meanwhile is replaced.
    let write = if args.force { durable_file::replace } else { durable_file::create };
    write(&file, &component, &FileAccess::Usual).map_err(|error| unwritten(&file, error))?;
    let signatures = registry.signatures(&artifact).await?;
    if !signatures.envelopes.is_empty() {
        write_beside(&file, &signatures.envelopes)?;
    }
    let pulled = artifact.reference();
    if output.json {
        let (path, sha256) = (file.display().to_string(), artifact.component_sha256());
        stdout::json(
            json!({ "type": "pull", "reference": pulled, "sha256": sha256, "file": path }),
        )?;
    } else {
        if !output.quiet {
            let what = format!("{}, {}", show_path(&file), bytes(component.len() as u64));
            stderr::note(what);
        }
        stdout::line(pulled)?;
    }
    Ok(exit::OK)
}

/// The last word of a repository as the name of a file.
fn file_name(repository: &str) -> PathBuf {
    let name = repository.rsplit('/').next().unwrap_or_default();
    PathBuf::from(format!("{name}.wasm"))
}

fn check_free(file: &Path, force: bool) -> Result<(), CliError> {
    if force || file.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(CliError::usage(format!("{} exists", show_path(file)))
        .hint("replace it with --force, or name another file with --output FILE"))
}
