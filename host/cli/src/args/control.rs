//! The arguments of the commands about a run in another process: `stop`, `pause`, `tell`, `wait`.

use clap::Args;
use conclave_runtime::store::StoreAddress;

use super::store::StoreParser;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the run has ended; 1 it has not ended in time; 2 no such run"
)]
pub(crate) struct StopArgs {
    /// The run, or a prefix of its id
    pub(crate) run: String,
    /// The reason, which the journal records and waiting callers read
    #[arg(long, value_name = "TEXT", default_value = "stopped with `conclave stop`")]
    pub(crate) reason: String,
    /// How many seconds to wait until the run has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: as `conclave run`; 1 also if the time is up; 2 no such run, or nothing continues it"
)]
pub(crate) struct Wait {
    /// The run, or a prefix of its id [default: the newest]
    pub(crate) run: Option<String>,
    /// How many seconds to wait [default: without a limit]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the run is paused; 1 its process did not receive the message; 2 no such run, or it is not in progress"
)]
pub(crate) struct Pause {
    /// The run, or a prefix of its id
    pub(crate) run: String,
    /// The reason, which the journal and `conclave runs` show
    #[arg(long, value_name = "TEXT", default_value = "paused with `conclave pause`")]
    pub(crate) reason: String,
    /// How many seconds to wait until the run's process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the message was received; 1 the run's process did not receive it; 2 no such run or task, or the run is not in progress"
)]
pub(crate) struct Tell {
    /// The run, or a prefix of its id
    pub(crate) run: String,
    /// The message; `-` reads stdin
    pub(crate) text: String,
    /// The task whose agent reads it [default: the entry task]
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// How many seconds to wait until the run's process has received it
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) wait: u64,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    pub(crate) store: Option<StoreAddress>,
}
