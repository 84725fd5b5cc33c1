//! The arguments of `why` and `can`.

use std::path::PathBuf;

use clap::Args;

use super::CONFIG;

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The address of an event, such as 3f2a91c0:17; of a run alone: all that was refused and
    /// approved in it; nothing: the newest run. The first digits of a run are enough
    pub(crate) event: Option<String>,
    /// Where the journals are, when the run had --journal
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// The store that the run is kept in, when it had --store
    #[arg(long, value_name = "FOLDER", conflicts_with = "journal")]
    pub(crate) store: Option<PathBuf>,
    /// The config of the run, for the lines that decided; without it the one that the run was
    /// started with
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 yes, 1 no, 6 you would be asked, 2 and 5 as ever")]
pub(crate) struct Can {
    /// The plugin's name in the config
    pub(crate) plugin: String,
    /// model, tools, delegate, route, files, fetch, kv, secrets or channels
    pub(crate) capability: String,
    /// A model, a tool (PLUGIN.TOOL), a task, whom to address, a path as the plugin sees it, an
    /// address, a secret or a channel; nothing: the capability as such
    pub(crate) target: Option<String>,
    /// Of a path: to write it
    #[arg(long)]
    pub(crate) write: bool,
    /// Of an address: the method
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// Of an address: a header that is sent along; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) header: Vec<String>,
    /// Of a secret: the host that it is sent to
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Of a tool: the arguments that it is called with, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// On behalf of this task; without it of any task that the plugin is the agent of
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}
