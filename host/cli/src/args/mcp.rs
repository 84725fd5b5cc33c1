//! The arguments of `mcp`, which serves a config's tools to a client.

use std::path::PathBuf;

use clap::Args;

use super::{CONFIG, Keep, Locked, ModelChoice};

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Serve only what this task's agent is offered
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
    /// Serve only the tools that this covers, such as search.find or 'notes.*'; may be given
    /// several times
    #[arg(long = "tools", value_name = "PATTERN")]
    pub(crate) tools: Vec<String>,
    /// Serve the entry task too, as a tool called `ask`
    #[arg(long)]
    pub(crate) ask: bool,
    /// Call the tools search_find instead of search.find, for clients that take no dots
    #[arg(long)]
    pub(crate) underscores: bool,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Refused, and not offered: stdout is the client's
    #[arg(long, hide = true, id = "json")]
    _json: bool,
}
