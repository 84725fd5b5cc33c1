//! The arguments of `mcp`, which serves a config's tools to a client.

use std::path::PathBuf;

use clap::Args;

use super::{CONFIG, Keep, Locked, ModelChoice};

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Serve only the tools of this task's agent
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// Serve only tools that match, such as search.find or 'notes.*'; can be repeated
    #[arg(long = "tools", value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,
    /// Also serve the entry task, as a tool named `ask`
    #[arg(long)]
    pub(crate) entry: bool,
    /// Name tools search_find instead of search.find, for clients that do not accept dots
    #[arg(long)]
    pub(crate) underscores: bool,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Also show log lines of plugins at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Hidden and rejected, because stdout belongs to the client
    #[arg(long, hide = true, id = "json")]
    _json: bool,
}
