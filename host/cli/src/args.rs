//! The command line: its syntax, without the implementation of the commands. The comments on
//! commands and options are their help texts.

mod audit;
mod batch;
mod groups;
mod keep;
mod lock;
mod look;
mod mcp;
mod model;
mod operate;
mod say;
mod target;
mod trace;
mod trajectory;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::program::exit;

pub(crate) use crate::program::shell::CONFIG;
pub(crate) use audit::{Can, WhyArgs};
pub(crate) use batch::BatchArgs;
pub(crate) use keep::{Approvals, Approve, Keep, Refuse, Resume};
pub(crate) use lock::{LockArgs, Locked, Upgrade};
pub(crate) use look::{ApprovalList, Audit, AuditCommand, Runs, Show, StoreCommand, TasksArgs};
pub(crate) use mcp::Mcp;
pub(crate) use model::ModelChoice;
pub(crate) use operate::{Add, CallArgs, EditArgs, Grant, Init};
pub(crate) use say::{Pause, StopArgs, Tell};
pub(crate) use target::TargetArgs;
pub(crate) use trace::{Detail, TraceChoice};
pub(crate) use trajectory::{Trajectory, TrajectoryExport, TrajectoryReplay, TrajectoryShow};

/// Runs agents and tools you do not trust: every one is a WebAssembly component that can touch only
/// what you granted.
#[derive(Debug, Parser)]
#[command(name = "conclave", version, propagate_version = true, after_help = exit::TABLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How output is written.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Machine-readable: JSON, one object a line, on stdout
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Only the result and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// No colors (also with the environment variable NO_COLOR, and when the output is no terminal)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the entry task of a config on a message. The answer goes to stdout, everything else to
    /// stderr
    Run(RunArgs),
    /// Talk with the entry task of a config in the terminal
    Chat(Chat),
    /// Run the entry task of a config on every line of a file. The results go to stdout, in the
    /// order of the lines
    Batch(BatchArgs),
    /// Resume runs that were interrupted by a crash, a kill or a power cut: what was answered is
    /// not asked again. A run that is paused in another terminal goes on there
    Resume(Resume),
    /// End a run: one that runs in another terminal, or an interrupted one
    Stop(StopArgs),
    /// Pause a run in another terminal: nothing new begins in it until `conclave
    /// resume RUN`
    Pause(Pause),
    /// Say something to a run that is at work in another terminal: its agent reads it in its next
    /// step
    Tell(Tell),
    /// Let a call run that waits for an approval, from another terminal or after a restart
    Approve(Approve),
    /// Refuse a call that waits for an approval
    Refuse(Refuse),
    /// List stored runs, newest first
    Runs(Runs),
    /// Show what happened in a run and when: steps, calls, tokens, cost, memory, refusals,
    /// approvals
    Show(Show),
    /// List the background tasks of a run: how each stands, and whether its result was delivered;
    /// cancel one, or say something to it
    Tasks(TasksArgs),
    /// List the calls that wait for an approval
    Approvals(ApprovalList),
    /// Show what was allowed, refused, approved and sent out, over all stored runs; hold it
    /// against its chain of hashes
    Audit(Audit),
    /// Maintain the store of runs
    #[command(subcommand)]
    Store(StoreCommand),
    /// Check a config and its plugins without running anything, and show who may do what
    Check(CheckArgs),
    /// Write a commented config that runs
    Init(Init),
    /// Look into a component, and let it into a config with the grants that you confirm
    Add(Add),
    /// Let a plugin touch more
    Grant(Grant),
    /// Take back from what a plugin may touch
    Revoke(EditArgs),
    /// Say why something was refused or approved in a run: every layer, and the smallest grant
    Why(WhyArgs),
    /// Say whether a plugin may do something, and which layer says no; runs nothing
    Can(Can),
    /// Look at plugins, and try their tools
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Show logs in the forms of OpenHands, export a run as one, replay one
    #[command(subcommand)]
    Trajectory(Trajectory),
    /// Serve the tools of a config to a client that speaks the Model Context Protocol, on stdin and
    /// stdout
    Mcp(Mcp),
    /// Look at what this machine can do, and whether the model servers of a config answer
    Doctor(Doctor),
    /// Print the JSON Schema of conclave.toml
    Schema,
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command
    Man {
        /// The folder to write them to
        folder: PathBuf,
    },
}

impl Command {
    /// Returns whether the command runs tasks. Their limits hold even if the output is not read.
    pub(crate) fn runs(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Chat(_)
                | Self::Batch(_)
                | Self::Resume(_)
                | Self::Mcp(_)
                | Self::Trajectory(_)
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// An image or a text that goes with the message; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Take components that are built anew while the run goes on, and begin again when something
    /// has changed after it
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who is asked for approvals
    #[arg(long, value_name = "WHO", default_value = "ask")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// An image or a text that goes with the first message; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Take components that are built anew while the conversation goes on
    #[arg(long)]
    pub(crate) watch: bool,
    /// Do not remember what is typed, and do not offer what was typed before
    #[arg(long)]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Show every limit too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// A config whose model servers are asked
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Say what a component is, what it asks for and what it imports, without running it
    Inspect {
        /// `stock:NAME`, a .wasm file, the folder of a plugin's crate, or https://…/x.wasm#sha256=…
        source: String,
    },
    /// Call one tool of a component once, and show what it gives, says, uses up and is refused
    Call(CallArgs),
    /// Pin the plugins of a config as they are now: what each is, asks for, and tells models
    Lock(LockArgs),
    /// Show what differs from the lock, and accept it
    Upgrade(Upgrade),
    /// Put a manifest into a component that was built without one
    Embed {
        /// The component, a .wasm file; it is changed
        file: PathBuf,
        /// The manifest, a conclave-plugin.toml
        manifest: PathBuf,
    },
}
