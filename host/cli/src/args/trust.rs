//! The arguments of `conclave trust`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::CONFIG;

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Trust a key, under a name of your own for it
    Add(TrustAdd),
    /// List the trusted keys
    List(TrustList),
    /// Trust a key no longer
    Remove(TrustRemove),
}

#[derive(Debug, Args)]
pub(crate) struct TrustAdd {
    /// The name for the key, such as that of its owner
    pub(crate) name: String,
    /// The public key, `ed25519:` and 64 hexadecimal digits, as its owner states it
    pub(crate) key: String,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TrustList {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TrustRemove {
    /// The name of the key
    pub(crate) name: String,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}
