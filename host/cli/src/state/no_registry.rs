//! In place of `registry.rs` in a program without the feature `registry`: refuses what needs a
//! download, a registry or a signature.

use std::collections::BTreeSet;

use conclave_core::config::PublicKey;
use conclave_core::types::oci::OciReference;

use crate::program::error::CliError;
use crate::state::source::{ComponentPlace, LocatedComponent};

const FEATURE: &str = "registry";

pub(crate) async fn download(
    _source: &str,
    _command_for: impl Fn(&str) -> String,
) -> Result<(ComponentPlace, Vec<u8>), CliError> {
    Err(CliError::left_out(FEATURE))
}

pub(crate) async fn pull(_source: &str) -> Result<(ComponentPlace, Vec<u8>), CliError> {
    Err(CliError::left_out(FEATURE))
}

/// Returns no key: this program verifies no signature.
pub(crate) async fn signers_of(_: &LocatedComponent) -> Result<BTreeSet<PublicKey>, CliError> {
    Ok(BTreeSet::new())
}

/// Returns no key, as above.
pub(crate) async fn signers_of_artifact(_: &OciReference) -> Result<BTreeSet<PublicKey>, CliError> {
    Ok(BTreeSet::new())
}
