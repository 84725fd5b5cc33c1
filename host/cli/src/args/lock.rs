//! The arguments about pinned plugins: `plugin lock`, `plugin upgrade`, `--locked`.

use std::path::PathBuf;

use clap::Args;

use super::CONFIG;

/// How strictly plugins must match the lock.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Locked {
    /// Reject plugins that conclave.lock does not list or marks as built by you, or whose component
    /// differs from it in any byte
    #[arg(long)]
    pub(crate) locked: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all plugins are pinned; 5 a plugin differs from its pin, which is left as it was"
)]
pub(crate) struct LockArgs {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all plugins are as pinned or were accepted; 1 you did not accept; 6 no user was there to accept"
)]
pub(crate) struct Upgrade {
    /// The plugins [default: all that differ]
    #[arg(value_name = "NAME")]
    pub(crate) plugins: Vec<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Accept the differences without a confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Mark these plugins as built by you: a rebuilt component is accepted while its requests and
    /// texts stay the same
    #[arg(long, requires = "plugins")]
    pub(crate) dev: bool,
    /// Pin these plugins in this build: they are no longer marked as built by you
    #[arg(long, requires = "plugins", conflicts_with = "dev")]
    pub(crate) pin: bool,
}
