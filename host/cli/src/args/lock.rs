//! The arguments about pinned plugins: `plugin lock`, `plugin upgrade`, `--locked`.

use std::path::PathBuf;

use clap::Args;

use super::CONFIG;

/// How strictly plugins must match the lock.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Locked {
    /// Refuse every plugin that is not to the byte what conclave.lock says, and every one that it
    /// does not name
    #[arg(long)]
    pub(crate) locked: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is pinned; 5 a plugin is not what was pinned, and stays as it was"
)]
pub(crate) struct LockArgs {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is as pinned or was accepted; 1 you said no; 6 nobody was there to accept it"
)]
pub(crate) struct Upgrade {
    /// The plugins; without a name all that differ
    #[arg(value_name = "NAME")]
    pub(crate) plugins: Vec<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Accept what is shown without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// You build the plugins that are named: each build of them runs while it asks for and says the
    /// same
    #[arg(long, requires = "plugins")]
    pub(crate) dev: bool,
}
