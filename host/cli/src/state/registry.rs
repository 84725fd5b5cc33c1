//! The client for OCI registries, with the logins that `docker login` stored.

use std::sync::Arc;

use conclave_runtime::plugin::{Login, Registry, RegistryError, RegistryLogins};
use docker_credential::{CredentialRetrievalError as Unread, DockerCredential, get_credential};

use crate::program::error::CliError;
use crate::state::setup::components_folder;

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

/// Returns the client, which shares the folder of downloads with runs.
pub(crate) fn registry() -> Registry {
    Registry::new(Arc::new(DockerLogins), components_folder())
}

/// Returns the error for people.
pub(crate) fn failed(error: &RegistryError) -> CliError {
    CliError::plugin(error.to_string()).hint(error.help())
}
