//! The arguments of the commands that write a config and add plugins, or try them: `init`, `add`,
//! `grant`, `revoke`, `plugin call`; and those for authors: `plugin new`, `build`, `test`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::program::shell::CONFIG;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The config to write, or the folder for it
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Answer with this model, in place of a script with fixed replies: the address of a Chat
    /// Completions server, and the model's name there, such as http://127.0.0.1:11434/v1#qwen3:8b
    #[arg(long, value_name = "URL#NAME")]
    pub(crate) model: Option<String>,
    /// The folder to grant for reading [default: `docs` beside the config, or else a new folder
    /// `library` with one page]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Allow a folder that is too broad to grant by accident, such as the home folder
    #[arg(long)]
    pub(crate) yes: bool,
    /// Overwrite an existing config, and the script beside it
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// `stock:NAME`, a .wasm file, a plugin's folder, https://…/x.wasm#sha256=…, or
    /// oci://REGISTRY/REPOSITORY:TAG
    pub(crate) source: String,
    /// The plugin's name in the config [default: the name in its manifest]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// Grant this without a question, such as 'files = [{ dir = "docs", at = "/docs", mode = "read"
    /// }]'; can be repeated
    #[arg(long = "grant", value_name = "GRANT")]
    pub(crate) grants: Vec<String>,
    /// Mark the plugin as built by you: a rebuilt component is accepted while its requests and
    /// texts stay the same; implied for a plugin's folder
    #[arg(long)]
    pub(crate) dev: bool,
    /// Ask no questions, and grant only what --grant names; if the plugin requires more, nothing
    /// is written
    #[arg(long)]
    pub(crate) no_questions: bool,
    /// Allow a folder that is too broad to grant by accident, such as the home folder
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The plugin's name in the config; can be omitted if the grant names it, as the line under a
    /// denial does
    pub(crate) plugin: String,
    /// A grant such as 'tools = ["search.find"]', or the line under a denial; `revoke` also takes a
    /// whole capability, such as tools
    pub(crate) grants: Vec<String>,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Grant {
    #[command(flatten)]
    pub(crate) edit: EditArgs,
    /// Allow a folder that is too broad to grant by accident, such as the home folder
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Default, Args)]
#[command(
    after_help = "Exit codes: 0 the tool succeeded; 1 it returned an error; 5 it failed or was stopped\n\nWith --grant 'kv = true', its keys persist from call to call."
)]
pub(crate) struct CallArgs {
    /// `stock:NAME`, a .wasm file, a plugin's folder, https://…/x.wasm#sha256=…, or
    /// oci://REGISTRY/REPOSITORY:TAG
    pub(crate) source: String,
    /// The tool, such as `find`; without it, the tools are listed
    pub(crate) tool: Option<String>,
    /// The arguments, a JSON object; `-` reads stdin, `@FILE` reads a file
    #[arg(value_name = "JSON")]
    pub(crate) arguments: Option<String>,
    /// Grant this for the call, such as 'files = [{ dir = "docs", at = "/docs", mode = "read" }]';
    /// can be repeated
    #[arg(long = "grant", value_name = "GRANT")]
    pub(crate) grants: Vec<String>,
    /// The plugin's settings, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) config: Option<String>,
    /// A limit of the call, such as memory='64 MiB' or cpu='2 s'
    #[arg(long = "limit", value_name = "KEY=VALUE", value_parser = super::run_input::pair)]
    pub(crate) limits: Vec<(String, String)>,
    /// Also show its log lines at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NewPlugin {
    /// The plugin's name: lower-case letters, digits, `-` and `_`
    pub(crate) name: String,
    /// What the plugin does
    #[arg(long, value_name = "KIND", default_value = "tool")]
    pub(crate) kind: NewKind,
    /// The language
    #[arg(long, value_name = "LANG", default_value = "rust")]
    pub(crate) lang: Language,
    /// The folder to write [default: the name]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
    /// Use the SDK of this checkout of Conclave, not the one that is in this program
    #[arg(long, value_name = "PATH")]
    pub(crate) sdk: Option<PathBuf>,
}

/// `--lang`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Smallest and fastest
    Rust,
    /// Needs Python 3.11 or newer to build
    Python,
    /// JavaScript or TypeScript; needs Node 22 or newer to build
    Js,
}

impl Language {
    pub(crate) const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::Js];

    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Js => "js",
        }
    }

    /// The folder of its SDK in the repository.
    pub(crate) fn sdk(self) -> &'static str {
        match self {
            Self::Rust => "sdk/rust",
            Self::Python => "sdk/python",
            Self::Js => "sdk/js",
        }
    }

    /// The file that describes a project of the language.
    pub(crate) fn project_file(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Python => "pyproject.toml",
            Self::Js => "package.json",
        }
    }
}

/// `--kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewKind {
    /// Functions that a model calls
    Tool,
    /// Takes the turns of a task
    Agent,
    /// Takes the turns of a task, and answers some messages before the model is asked
    Responder,
    /// Decides when results of background tasks are reported
    Strategy,
    /// Allows, changes or blocks texts
    Gate,
    /// Decides which answers count, and which end a task
    Judge,
    /// Answers in the place of the user
    SimulatedUser,
    /// Receives the events of runs
    Observer,
    /// Carries messages to people elsewhere, and theirs back
    Channel,
    /// Shortens histories
    Condenser,
    /// Answers recalls
    Memory,
    /// Rates the risk of actions
    Analyzer,
}

impl NewKind {
    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Agent => "agent",
            Self::Responder => "responder",
            Self::Strategy => "strategy",
            Self::Gate => "gate",
            Self::Judge => "judge",
            Self::SimulatedUser => "simulated-user",
            Self::Observer => "observer",
            Self::Channel => "channel",
            Self::Condenser => "condenser",
            Self::Memory => "memory",
            Self::Analyzer => "analyzer",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InspectPlugin {
    /// `stock:NAME`, a .wasm file, a plugin's folder, https://…/x.wasm#sha256=…, or
    /// oci://REGISTRY/REPOSITORY:TAG
    pub(crate) source: String,
    /// Do not list its tools: nothing of the component is compiled or run
    #[arg(long)]
    pub(crate) no_tools: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 it is published; 1 you did not confirm that it replaces what the tag names; 6 no user was there to confirm"
)]
pub(crate) struct Push {
    /// `stock:NAME`, a .wasm file, or a plugin's folder
    pub(crate) source: String,
    /// Where to push it: oci://REGISTRY/REPOSITORY:TAG
    pub(crate) reference: String,
    /// Also sign it with the secret key in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
    /// Replace what the tag names, without a confirmation
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Sign {
    /// A .wasm file, a plugin's folder, or oci://REGISTRY/REPOSITORY, with a tag or a
    /// digest
    pub(crate) source: String,
    /// The file of the secret key, which `conclave plugin keygen` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// oci://REGISTRY/REPOSITORY, with a tag or a digest (@sha256:…)
    pub(crate) reference: String,
    /// The file to write [default: the last word of the repository, with .wasm]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BuildPlugin {
    /// The folder of the plugin's sources
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// The JavaScript engine in the component
    #[arg(long, value_name = "ENGINE", default_value = "quickjs")]
    pub(crate) engine: Engine,
}

/// `--engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Small, and quick to start
    #[default]
    Quickjs,
    /// The engine of Firefox, with more of the web's globals
    Starlingmonkey,
}

impl Engine {
    /// The word on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Quickjs => "quickjs",
            Self::Starlingmonkey => "starlingmonkey",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct WatchPlugin {
    /// The plugin's folder
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// When every case has passed, also run the plugin's conclave.toml with this message
    #[arg(long = "run", value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Play cases that grant files outside of the plugin's folder, or start programs outside of any
    /// sandbox
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 every case passed; 1 a case failed; 5 the component was rejected"
)]
pub(crate) struct TestPlugin {
    /// The plugin's folder, which was built
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// The cases [default: cases.json in that folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) cases: Option<PathBuf>,
    /// Only the cases whose names contain this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Play cases that grant files outside of the plugin's folder, or start programs outside of any
    /// sandbox
    #[arg(long)]
    pub(crate) yes: bool,
}
