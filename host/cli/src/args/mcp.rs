//! The arguments of `mcp`, which serves a config's tools to a client.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{CONFIG, Keep, Locked, ModelChoice};

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// The config; or a component without one: a .wasm file, a plugin's folder, stock:NAME, or
    /// oci://REGISTRY/REPOSITORY:TAG
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Grant this to the component: read:./docs@/docs, write:./out@/out, fetch:https://host/path/*,
    /// exec:'git log *', or a grant as in a config; can be repeated
    #[arg(long, value_name = "GRANT")]
    pub(crate) allow: Vec<String>,
    /// A limit of the component's calls, such as memory='64 MiB' or cpu='2 s'
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = super::run_input::pair)]
    pub(crate) limits: Vec<(String, String)>,
    /// The component's settings, a JSON object
    #[arg(long = "settings", value_name = "JSON")]
    pub(crate) settings: Option<String>,
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
    /// Serve this task's prompt file as a prompt; can be repeated
    #[arg(long = "prompt", value_name = "TASK")]
    pub(crate) prompts: Vec<String>,
    /// Let clients read a file, such as notes://plan=plan.md, or with {name} in both parts files of
    /// a folder; paths start at the config's folder; can be repeated
    #[arg(long = "resource", value_name = "URI=PATH")]
    pub(crate) resources: Vec<String>,
    /// Let clients read the journals and results of this program's calls
    #[arg(long)]
    pub(crate) runs: bool,
    /// Ask the person at the client for required arguments that a call of these tools lacks; can be
    /// repeated
    #[arg(long = "ask-arguments", value_name = "PATTERN")]
    pub(crate) asked_arguments: Vec<String>,
    /// Serve clients of this machine over HTTP, at such as 127.0.0.1:8080, instead of one on stdin
    /// and stdout; port 0 for any free one
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,
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
