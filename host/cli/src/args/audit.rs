//! The arguments of `why` and `can`.

use std::path::PathBuf;

use clap::Args;
use conclave_runtime::store::StoreAddress;

use super::CONFIG;
use super::store::StoreParser;

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The address of an event, such as 3f2a91c0:17, or a run, to list its denials and approvals; a
    /// prefix of the run is enough [default: the newest run]
    pub(crate) event: Option<String>,
    /// The folder of journals, if the run had --journal
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// The store of the run, if it had --store: a folder, or `postgres://…`
    #[arg(long, value_name = "STORE", value_parser = StoreParser, conflicts_with = "journal")]
    pub(crate) store: Option<StoreAddress>,
    /// The config in which the deciding lines are shown [default: the config that the run was
    /// started with]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 allowed; 1 denied; 6 needs an approval; 2 and 5 as in `conclave --help`"
)]
pub(crate) struct Can {
    /// The plugin's name in the config
    pub(crate) plugin: String,
    /// model, tools, delegate, route, files, fetch, kv, secrets, channels or history
    pub(crate) capability: String,
    /// A model, a tool (PLUGIN.TOOL), a task, a recipient, a path as the plugin sees it, a URL, a
    /// secret or a channel; without it, the capability as a whole
    pub(crate) target: Option<String>,
    /// For files: check writing instead of reading
    #[arg(long)]
    pub(crate) write: bool,
    /// For fetch: the method [default: GET]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// For fetch: a header of the request; can be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) header: Vec<String>,
    /// For secrets: the host that it is sent to
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// For tools: the arguments of the call, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Check for this task [default: any task whose agent is the plugin]
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}
