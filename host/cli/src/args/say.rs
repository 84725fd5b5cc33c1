//! The arguments of the commands that send a message to a run in another process: `stop`, `pause`,
//! `tell`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it has ended; 1 it was told to end and still goes on; 2 there is no such run"
)]
pub(crate) struct StopArgs {
    /// The run, or its first digits
    pub(crate) run: String,
    /// Why: its journal says so, and whoever waits for it reads it
    #[arg(long, value_name = "TEXT", default_value = "stopped with `conclave stop`")]
    pub(crate) reason: String,
    /// How many seconds to wait until it has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it is paused; 1 its process did not receive it; 2 there is no such run, or it does not go on"
)]
pub(crate) struct Pause {
    /// The run, or its first digits
    pub(crate) run: String,
    /// Why: its journal says so, and whoever looks at it reads it
    #[arg(long, value_name = "TEXT", default_value = "paused with `conclave pause`")]
    pub(crate) reason: String,
    /// How many seconds to wait until its process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it was told; 1 its process did not receive it; 2 there is no such run or task, or it does not go on"
)]
pub(crate) struct Tell {
    /// The run, or its first digits
    pub(crate) run: String,
    /// What to say; `-` reads it from stdin
    pub(crate) text: String,
    /// The task whose agent is to read it; without it the entry task's
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// How many seconds to wait until its process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store that the run is kept in with --store
    #[arg(long, value_name = "FOLDER")]
    pub(crate) store: Option<PathBuf>,
}
