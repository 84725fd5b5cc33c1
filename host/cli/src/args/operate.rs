//! The arguments of the commands that write a config and add plugins, or try them: `init`, `add`,
//! `grant`, `revoke`, `plugin call`.

use std::path::PathBuf;

use clap::Args;

use crate::program::shell::CONFIG;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The config to write, or the folder for it
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Answer with a model: the address of a Chat Completions server and the model's name there,
    /// such as http://127.0.0.1:11434/v1#qwen3:8b
    #[arg(long, value_name = "URL#NAME")]
    pub(crate) model: Option<String>,
    /// The folder that may be read; without it `docs` beside the config, else a new folder
    /// `library` with a page in it
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Grant also a folder that holds more than anybody would mean to grant, such as the home
    /// folder
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write over a config that is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// `stock:NAME`, a .wasm file, the folder of a plugin's crate, or https://…/x.wasm#sha256=…
    pub(crate) source: String,
    /// What the config calls it; without it the name in its manifest
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Grant this, without asking; such as 'files = [{ dir = "docs", at = "/docs", mode = "read"
    /// }]'
    #[arg(long = "grant", value_name = "GRANT")]
    pub(crate) grants: Vec<String>,
    /// You build it: each build of it runs while it asks for and says the same; what is added as a
    /// crate's folder is so by itself
    #[arg(long)]
    pub(crate) dev: bool,
    /// Ask nothing: grant what --grant says, and no more
    #[arg(long)]
    pub(crate) no_questions: bool,
    /// Grant also a folder that holds more than anybody would mean to grant, such as the home
    /// folder
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The plugin's name in the config; may be left out when a grant names it, as the line of a
    /// denial does
    pub(crate) plugin: String,
    /// Such as 'tools = ["search.find"]', or the line that a denial proposes; to revoke, also a
    /// bare name such as tools
    pub(crate) grants: Vec<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Grant {
    #[command(flatten)]
    pub(crate) edit: EditArgs,
    /// Grant also a folder that holds more than anybody would mean to grant, such as the home
    /// folder
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it answered; 1 it says that it could not; 5 it had to be stopped\n\nWith --grant 'kv = true' its store is kept from call to call."
)]
pub(crate) struct CallArgs {
    /// `stock:NAME`, a .wasm file, the folder of a plugin's crate, or https://…/x.wasm#sha256=…
    pub(crate) source: String,
    /// The tool, such as `find`; without it the tools that there are
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object; `-` reads them from stdin, `@FILE` from a file
    #[arg(value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Grant this for the call, such as 'files = [{ dir = "docs", at = "/docs", mode = "read" }]'
    #[arg(long = "grant", value_name = "GRANT")]
    pub(crate) grants: Vec<String>,
    /// The plugin's settings, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) config: Option<String>,
    /// A limit of the call, such as memory='64 MiB' or cpu='2 s'
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    pub(crate) limits: Vec<String>,
    /// Show its log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}
