//! `conclave plugin sign SOURCE --key FILE` and `conclave plugin keygen FILE`: signatures of
//! components by their authors or reviewers.

use std::io::ErrorKind;
use std::path::Path;

use conclave_runtime::durable_file::{self, FileAccess};
use conclave_runtime::plugin::{Envelope, Package, SigningKey, Statement, signature_file};
use serde_json::json;

use crate::args::{OutputArgs, Sign};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::state::registry::{envelopes_beside, registry};
use crate::state::source::{self, ComponentPlace};
use crate::ui::show::{show_path, unwritten};
use crate::ui::{stderr, stdout};

pub(crate) async fn sign(args: &Sign, output: OutputArgs) -> Result<u8, CliError> {
    let key = read_key(&args.key)?;
    let command_for = |source: &str| {
        format!(
            "conclave plugin sign {} --key {}",
            shell(source),
            shell(&args.key.display().to_string())
        )
    };
    let found = source::find(&args.source, command_for).await?;
    let signed = match &found.place {
        ComponentPlace::File(file) => {
            let package = Package::new(found.bytes()?, &found.inspection);
            append(file, key.sign(&Statement::of_package(&package)))?;
            show_path(signature_file(file))
        }
        ComponentPlace::Registry { artifact, .. } => {
            let registry = registry();
            let artifact = registry.artifact(artifact, || {}).await?;
            let envelope = key.sign(&Statement::of_artifact(&artifact));
            registry.push_signature(&artifact, &envelope).await?;
            artifact.reference().to_string()
        }
        ComponentPlace::Stock(_) | ComponentPlace::Url(_) => {
            let what = format!("{} cannot carry a signature", found.place.label());
            return Err(CliError::usage(what)
                .hint("sign a .wasm file, or an artifact of a registry: oci://…"));
        }
    };
    if output.json {
        let sha256 = &found.inspection.sha256;
        stdout::json(
            json!({ "type": "sign", "signed": signed, "sha256": sha256, "key": key.public().to_string() }),
        )?;
    } else if !output.quiet {
        stderr::note(format_args!("{signed}: signed by {}", key.public()));
    }
    Ok(exit::OK)
}

/// Adds a signature to the file beside a component.
fn append(component: &Path, envelope: Envelope) -> Result<(), CliError> {
    let mut envelopes = envelopes_beside(component)?;
    if envelopes.contains(&envelope) {
        return Ok(());
    }
    envelopes.push(envelope);
    write_beside(component, &envelopes)
}

/// Replaces the file with the signatures of a component.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_beside(component: &Path, envelopes: &[Envelope]) -> Result<(), CliError> {
    let file = signature_file(component);
    let lines: String = envelopes.iter().map(|envelope| envelope.to_json() + "\n").collect();
    durable_file::replace(&file, lines.as_bytes(), &FileAccess::Usual)
        .map_err(|error| unwritten(&file, error))
}

/// Reads a secret key.
///
/// # Errors
/// If the file holds none. The error does not show its content.
pub(crate) fn read_key(file: &Path) -> Result<SigningKey, CliError> {
    let hint = "make one with `conclave plugin keygen FILE`";
    let text = std::fs::read_to_string(file).map_err(|error| {
        CliError::usage(format!("the key {} could not be read: {error}", show_path(file)))
            .hint(hint)
    })?;
    text.parse().map_err(|error| {
        CliError::usage(format!("{} holds no key: {error}", show_path(file))).hint(hint)
    })
}

pub(crate) fn keygen(file: &Path, output: OutputArgs) -> Result<u8, CliError> {
    let key = SigningKey::generate()
        .map_err(|error| CliError::internal(format!("there is no randomness: {error}")))?;
    let secret = key.to_secret() + "\n";
    durable_file::create(file, secret.as_bytes(), &FileAccess::Private).map_err(|error| {
        let what = format!("{} could not be written: {error}", show_path(file));
        match error.kind() {
            // An overwritten private key is lost.
            ErrorKind::AlreadyExists => CliError::usage(what).hint("name a new file"),
            _ => CliError::internal(what),
        }
    })?;
    let public = key.public().to_string();
    if output.json {
        stdout::json(
            json!({ "type": "key", "public": public, "file": file.display().to_string() }),
        )?;
    } else {
        if !output.quiet {
            let what = format!("{}: the secret key; keep it to yourself", show_path(file));
            stderr::note(what);
        }
        stdout::line(public)?;
    }
    Ok(exit::OK)
}
