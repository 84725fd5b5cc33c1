//! `conclave worker` and `conclave workers`.

use std::path::PathBuf;

use clap::Args;
use conclave_runtime::store::StoreAddress;

use super::store::StoreParser;
use super::{Locked, LogArgs, ModelChoice};

#[derive(Debug, Args)]
#[command(
    after_help = "A worker takes runs that `conclave run --detach` begins with the same config, components and version. SIGTERM and Ctrl-C give its runs back.\n\
                  Exit codes: 0 it gave its runs back; others as in `conclave --help`"
)]
pub(crate) struct WorkerArgs {
    /// The configs whose runs it takes [default: conclave.toml]
    #[arg(value_name = "CONFIG")]
    pub(crate) configs: Vec<PathBuf>,
    /// Take up to this many runs at once; a run that only waits for a time or a person is given
    /// back and does not count
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rooms: u32,
    /// The store that the workers share: `postgres://USER@HOST/DATABASE` [default: the first
    /// config's `store`]
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkersArgs {
    /// The store that the workers share: `postgres://USER@HOST/DATABASE` [default: CONCLAVE_STORE]
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}
