//! The provider at which people of a server log in, as the config names it.

use std::path::Path;

use conclave_core::config::Config;
use conclave_server::People;

use crate::program::error::CliError;

/// Adds the people of the config's provider, if it has one.
#[cfg(feature = "oidc")]
pub(super) fn with_provider(
    people: People,
    config: &Config,
    file: &Path,
) -> Result<People, CliError> {
    let Some(oidc) = &config.server.oidc else { return Ok(people) };
    let secrets = std::sync::Arc::new(crate::state::setup::secrets_of(file));
    let provider = conclave_server::Oidc::new(oidc.clone(), secrets).map_err(|error| {
        CliError::usage(format!("nobody could log in by [server.oidc]: {error}")).hint(
            "`client_secret` names a variable, a file or a program, as `{ env = \"OIDC_SECRET\" }`",
        )
    })?;
    Ok(people.with_oidc(provider))
}

/// Refuses a config with a provider.
#[cfg(not(feature = "oidc"))]
pub(super) fn with_provider(
    people: People,
    config: &Config,
    _file: &Path,
) -> Result<People, CliError> {
    match config.server.oidc {
        None => Ok(people),
        Some(_) => Err(CliError::left_out("oidc")),
    }
}
