//! What comes from elsewhere: components from URLs and from OCI registries, with the logins that
//! `docker login` stored, and their signatures.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use conclave_core::config::{Config, PluginSource, PublicKey};
use conclave_core::types::limits::COMPONENT_BYTES;
use conclave_core::types::oci::OciReference;
use conclave_core::types::wording::quoted;
use conclave_runtime::plugin::{
    Downloads, Envelope, Login, Registry, RegistryError, RegistryLogins, Subject, fetch, inspect,
    signature_file, signatures_beside, signers,
};
use docker_credential::{CredentialRetrievalError as Unread, DockerCredential, get_credential};

use crate::program::error::CliError;
use crate::state::setup::components_folder;
use crate::state::source::{ComponentPlace, LocatedComponent};
use crate::ui::show::{one_line, show_path};

/// The logins in the user's `config.json` of Docker, and of the credential helpers that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DockerLogins;

impl RegistryLogins for DockerLogins {
    fn login(&self, registry: &str) -> Result<Option<Login>, String> {
        match get_credential(registry) {
            Ok(DockerCredential::UsernamePassword(user, password)) => {
                Ok(Some(Login { user, password }))
            }
            Ok(DockerCredential::IdentityToken(_)) => {
                Err("an identity token is stored, which Conclave cannot use; log in with an access token as the password".to_owned())
            }
            Err(Unread::NoCredentialConfigured | Unread::ConfigNotFound | Unread::ConfigReadError) => {
                Ok(None)
            }
            // Only the helper's name: what it prints may hold the secret.
            Err(Unread::HelperFailure { helper, .. }) => {
                Err(format!("the credential helper {helper} failed"))
            }
            Err(other) => Err(other.to_string()),
        }
    }
}

/// The client, which shares the folder of downloads with runs.
pub(crate) fn registry() -> Registry {
    Registry::new(Arc::new(DockerLogins), components_folder())
}

/// The error for people.
impl From<RegistryError> for CliError {
    fn from(error: RegistryError) -> Self {
        Self::plugin(error.to_string()).hint(error.help())
    }
}

/// Downloads a component whose digest is named. `command_for` returns the command to type with one.
///
/// # Errors
/// If it has no digest, or another one, or cannot be downloaded.
pub(crate) async fn download(
    source: &str,
    command_for: impl Fn(&str) -> String,
) -> Result<(ComponentPlace, Vec<u8>), CliError> {
    // Parsed as a config, so that its rules for addresses apply.
    let text = format!(
        "entry = \"t\"\n[plugins.p]\nsource = {}\n[tasks.t]\nagent = \"p\"\n",
        quoted(source)
    );
    let config = match Config::parse("SOURCE", "", &text) {
        Ok(config) => config,
        Err(_) if !source.contains('#') => return Err(without_digest(source, command_for).await),
        Err(problems) => {
            let what = problems
                .0
                .first()
                .map(|problem| problem.what.replace("`source`", "the source"))
                .unwrap_or_default();
            return Err(CliError::usage(what)
                .hint("append the component's SHA-256: https://…/x.wasm#sha256=…"));
        }
    };
    let Some(PluginSource::Url { url, sha256 }) =
        config.plugins.into_values().next().map(|plugin| plugin.source)
    else {
        return Err(CliError::usage(format!(
            "{} is not the URL of a component",
            one_line(source, 200)
        )));
    };
    // The host's own download cache, so that the component is fetched once.
    let downloads = Downloads::new(components_folder());
    let fetched = downloads.component(&url, &sha256, || {}).await;
    let bytes = fetched.map_err(|error| CliError::plugin(error.to_string()))?;
    Ok((ComponentPlace::Url(source.to_owned()), bytes))
}

/// Pulls a component.
///
/// # Errors
/// If the reference is none, or the registry refuses.
pub(crate) async fn pull(source: &str) -> Result<(ComponentPlace, Vec<u8>), CliError> {
    let reference = reference(source)?;
    let registry = registry();
    let artifact = registry.artifact(&reference, || {}).await?;
    let bytes = registry.component(&artifact, COMPONENT_BYTES, || {}).await?;
    let artifact = artifact.reference().clone();
    Ok((ComponentPlace::Registry { reference: source.to_owned(), artifact }, bytes))
}

/// Returns the keys that signed a component: in the file beside it, or in its registry. Whether
/// they are trusted is for the config to say.
///
/// # Errors
/// If the signatures cannot be read.
pub(crate) async fn signers_of(found: &LocatedComponent) -> Result<BTreeSet<PublicKey>, CliError> {
    match &found.place {
        ComponentPlace::File(file) => {
            let subject = Subject::File { sha256: &found.inspection.sha256 };
            Ok(signers(&envelopes_beside(file)?, subject))
        }
        ComponentPlace::Registry { artifact, .. } => signers_of_artifact(artifact).await,
        ComponentPlace::Stock(_) | ComponentPlace::Url(_) => Ok(BTreeSet::new()),
    }
}

/// Returns the keys that signed an artifact, by its registry.
///
/// # Errors
/// If the signatures cannot be read.
pub(crate) async fn signers_of_artifact(
    reference: &OciReference,
) -> Result<BTreeSet<PublicKey>, CliError> {
    let registry = registry();
    let artifact = registry.artifact(reference, || {}).await?;
    let signatures = registry.signatures(&artifact).await?;
    Ok(signers(&signatures.envelopes, Subject::Artifact(&artifact)))
}

/// Returns the signatures in the file beside a component; none if there is no such file.
///
/// # Errors
/// If the file is there and cannot be read.
pub(crate) fn envelopes_beside(component: &Path) -> Result<Vec<Envelope>, CliError> {
    signatures_beside(component).map_err(|error| {
        let file = show_path(signature_file(component));
        CliError::usage(format!("{file} could not be read: {error}"))
    })
}

/// Parses a reference as typed.
pub(crate) fn reference(text: &str) -> Result<OciReference, CliError> {
    text.parse().map_err(|error| {
        let what = format!("{} is no artifact of a registry: {error}", one_line(text, 200));
        CliError::usage(what).hint(
            "write registry, repository, and tag or digest: oci://registry.example/team/notes:1.2.0",
        )
    })
}

/// Returns the error for an address without a digest, since its server could send anything. The
/// error contains the present digest, to compare with the author's.
async fn without_digest(url: &str, command_for: impl Fn(&str) -> String) -> CliError {
    let what =
        "a URL needs the component's digest, because the server could send another component later";
    match fetch(url).await.ok().and_then(|bytes| inspect(&bytes).ok()) {
        Some(found) => CliError::usage(what).hint(format!(
            "the component there is now {} {}; if its author publishes the same digest, run\n  {}",
            found.manifest.name,
            found.manifest.version,
            command_for(&format!("{url}#sha256={}", found.sha256))
        )),
        None => CliError::usage(what).hint("append it: https://…/x.wasm#sha256=…"),
    }
}
