//! The store that a command uses: that of `--store`, or of the config, or of the environment; and
//! the password of its database. The library reads neither the environment nor files of the user.

#[cfg(feature = "postgres")]
mod pgpass;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Once;

use conclave_core::config::{Config, ProblemCode, Problems};
use conclave_runtime::store::{AddressError, StoreAddress};

use crate::args::Keep;
use crate::program::error::CliError;
use crate::ui::stderr;

/// The store of a command for which neither `--store` nor a config names one.
const VARIABLE: &str = "CONCLAVE_STORE";

/// Returns the named store of a command without a config; `None` for those of the state folder.
///
/// # Errors
/// If the variable is no address.
pub(crate) fn named_store(option: Option<&StoreAddress>) -> Result<Option<StoreAddress>, CliError> {
    match option {
        Some(address) => Ok(Some(on_command_line(address))),
        None => Ok(from_environment()?.map(with_password)),
    }
}

/// Returns the storage options of a command, with the named store of its runs.
///
/// # Errors
/// If the config's value or the variable is no address.
pub(crate) fn with_named_store(keep: &Keep, config: &Config) -> Result<Keep, CliError> {
    if keep.journal.is_some() || keep.no_journal {
        return Ok(keep.clone());
    }
    let store = match (&keep.store, store_of(config)?) {
        (Some(address), _) => Some(on_command_line(address)),
        (None, Some(address)) => Some(with_password(address)),
        (None, None) => named_store(None)?,
    };
    Ok(Keep { store, ..keep.clone() })
}

/// Returns the store that the config names.
///
/// # Errors
/// If it is no address, or one that this program was built without.
pub(crate) fn store_of(config: &Config) -> Result<Option<StoreAddress>, CliError> {
    let Some(text) = &config.store else { return Ok(None) };
    text.parse().map(Some).map_err(|error: AddressError| {
        let what = format!("`store` cannot be used: {error}");
        let problem = config.problem(ProblemCode::InvalidValue, "store", what);
        CliError::config(&Problems(vec![problem]))
    })
}

fn from_environment() -> Result<Option<StoreAddress>, CliError> {
    let Some(value) = variable(VARIABLE) else { return Ok(None) };
    let Some(text) = value.to_str() else { return Ok(Some(PathBuf::from(value).into())) };
    text.parse().map(Some).map_err(|error| CliError::usage(format!("{VARIABLE}: {error}")))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The address of the command line, with its password. Every user of the machine can read the
/// arguments of a process, so a password among them is reported.
fn on_command_line(address: &StoreAddress) -> StoreAddress {
    static WARNED: Once = Once::new();
    if let StoreAddress::Postgres(database) = address
        && database.has_password()
    {
        WARNED.call_once(|| {
            stderr::warning(format_args!(
                "other users of this machine can see the password in --store; set PGPASSWORD, or \
                 write it into ~/.pgpass, and pass --store {address}"
            ));
        });
    }
    with_password(address.clone())
}

/// The address with the password of the environment or the password file, unless it has one.
#[cfg(feature = "postgres")]
fn with_password(address: StoreAddress) -> StoreAddress {
    match address {
        StoreAddress::Postgres(database) if !database.has_password() => {
            StoreAddress::Postgres(match pgpass::password_of(&database, variable) {
                Some(password) => database.with_password(&password),
                None => database,
            })
        }
        other => other,
    }
}

#[cfg(not(feature = "postgres"))]
fn with_password(address: StoreAddress) -> StoreAddress {
    address
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_password_of_the_address_takes_precedence_and_is_not_shown() {
        let address = "postgres://ada:hunter2@db/runs".parse::<StoreAddress>().unwrap();
        let resolved = with_password(address.clone());
        assert_eq!(resolved, address);
        assert_eq!(resolved.to_string(), "postgres://ada@db/runs");
    }
}
