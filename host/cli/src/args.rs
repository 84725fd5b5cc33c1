//! The command line: its syntax, without the implementation of the commands. The comments on
//! commands and options are their help texts.

mod audit;
mod batch;
mod control;
mod groups;
mod lock;
mod log;
mod mcp;
mod model;
mod plugins;
mod run_input;
#[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "read by `conclave serve` only"))]
mod serve;
mod server;
mod storage;
mod store;
mod stored_runs;
mod target;
mod trace;
mod trajectory;
mod trust;
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::program::exit;

pub(crate) use crate::program::shell::CONFIG;
pub(crate) use audit::{Can, WhyArgs};
pub(crate) use batch::BatchArgs;
pub(crate) use control::{Pause, StopArgs, Tell, Wait};
pub(crate) use lock::{LockArgs, Locked, Upgrade};
pub(crate) use log::{LogArgs, LogFormat};
pub(crate) use mcp::Mcp;
pub(crate) use model::ModelChoice;
pub(crate) use plugins::{
    Add, BuildPlugin, CallArgs, EditArgs, Engine, Grant, Init, InspectPlugin, Language, NewKind,
    NewPlugin, Pull, Push, Sign, TestPlugin, WatchPlugin,
};
pub(crate) use run_input::RunInputArgs;
pub(crate) use serve::{CheckedServer, Serve};
#[cfg(feature = "serve")]
pub(crate) use serve::{ConfigArgument, is_config_name};
pub(crate) use server::ServerCommand;
#[cfg(feature = "serve")]
pub(crate) use server::{TokenAdd, TokenCommand, TokenRevoke};
pub(crate) use storage::{
    Answer, Approvals, Approve, Keep, Questions, Refuse, Resume, choice_of, word_of,
};
pub(crate) use stored_runs::{
    ApprovalList, Audit, AuditCommand, Diff, Runs, Show, StoreCommand, TasksArgs,
};
pub(crate) use target::TargetArgs;
pub(crate) use trace::{Detail, TraceChoice};
pub(crate) use trajectory::{Trajectory, TrajectoryExport, TrajectoryReplay, TrajectoryShow};
pub(crate) use trust::{TrustAdd, TrustCommand, TrustList, TrustRemove};
pub(crate) use worker::{WorkerArgs, WorkersArgs};

/// Runs agents and tools that you do not trust: each is a WebAssembly component that can access
/// only what you grant.
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
    /// Write JSON to stdout, one object per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only the result and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Disable colors (as NO_COLOR does; colors are off unless the output is a terminal)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

impl OutputArgs {
    /// Whether nothing is printed beside the result.
    pub(crate) fn result_only(self) -> bool {
        self.json || self.quiet
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the entry task of a config on a message. The answer goes to stdout, everything else to
    /// stderr
    Run(RunArgs),
    /// Talk with the entry task of a config in the terminal
    Chat(Chat),
    /// Run the entry task of a config on every line of a file. Results go to stdout in the order of
    /// the lines
    Batch(BatchArgs),
    /// Take runs that were begun with --detach from a store that hosts share, and bring them to
    /// their end; without a terminal, on any number of machines
    Worker(WorkerArgs),
    /// List the hosts of a shared store, with the runs that they have in progress
    Workers(WorkersArgs),
    /// Resume runs that were interrupted by a crash, a kill or a power cut. Recorded answers are
    /// reused, not requested again. A run that is paused in another terminal continues there
    Resume(Resume),
    /// Stop a run that is running in another terminal, or end an interrupted one
    Stop(StopArgs),
    /// Wait for the end of a run in another terminal or on another machine, and print its answer
    Wait(Wait),
    /// Pause a run in another terminal: no new work starts until `conclave resume RUN`
    Pause(Pause),
    /// Send a message to a run in another terminal: its agent reads it in its next step
    Tell(Tell),
    /// Approve a pending tool call, from another terminal or after a restart
    Approve(Approve),
    /// Refuse a pending tool call
    Refuse(Refuse),
    /// Answer a question of a task, from another terminal or after a restart; list the questions
    /// that wait
    Answer(Answer),
    /// List stored runs, newest first
    Runs(Runs),
    /// Show the timeline of a run: steps, calls, tokens, cost, memory, denials, approvals
    Show(Show),
    /// Show the changes of a run in overlays of its folders; apply or drop them
    Diff(Diff),
    /// List the background tasks of a run, with their state and the delivery of their results;
    /// cancel one, or send it a message
    Tasks(TasksArgs),
    /// List the tool calls that wait for an approval
    Approvals(ApprovalList),
    /// List grants, denials, approvals and side effects of all stored runs; verify the hash chain
    /// of the records
    Audit(Audit),
    /// Maintain the store of runs
    #[command(subcommand)]
    Store(StoreCommand),
    /// Check a config and its plugins without running a task, and show the permissions of each
    /// plugin
    Check(CheckArgs),
    /// Write a commented config that runs as it is
    Init(Init),
    /// Add a component to a config, with the grants that you confirm
    Add(Add),
    /// Add grants to a plugin
    Grant(Grant),
    /// Remove grants from a plugin
    Revoke(EditArgs),
    /// Name the keys whose signatures of components count
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Explain a denial or an approval in a run: the decision of each layer, and the smallest grant
    /// that would allow it
    Why(WhyArgs),
    /// Check whether a plugin may do something, and which layer denies it; nothing is run
    Can(Can),
    /// Write, build, test, inspect and publish plugins, call their tools, and pin them
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Show, export and replay agents' logs in the formats of OpenHands
    #[command(subcommand)]
    Trajectory(Trajectory),
    /// Serve the tools of a config, or of one component, to clients of the Model Context Protocol
    Mcp(Mcp),
    /// Serve a channel of a config to browsers: a page with persistent conversations
    Serve(Serve),
    /// Manage the people who may use `conclave serve`
    #[command(subcommand)]
    Server(ServerCommand),
    /// Check this machine, and whether the model servers of a config answer
    Doctor(Doctor),
    /// Print the JSON Schema of conclave.toml
    Schema,
    /// Print the completions for a shell
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
    /// Whether the command runs tasks. Their limits hold even if the output is not read.
    pub(crate) fn runs(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Chat(_)
                | Self::Batch(_)
                | Self::Resume(_)
                | Self::Mcp(_)
                | Self::Serve(_)
                | Self::Worker(_)
                | Self::Trajectory(_)
        )
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) input: RunInputArgs,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Attach an image or a text file to the message; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Use rebuilt components from the next call on, and run again when a file changes after the
    /// end
    #[arg(long)]
    pub(crate) watch: bool,
    /// Only begin the run: a worker of the store runs it (`conclave worker`). Approvals and
    /// questions wait for `conclave approve` and `conclave answer`
    #[arg(long, conflicts_with_all = ["watch", "journal", "no_journal", "room", "answers"])]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who decides on calls that need an approval
    #[arg(long, value_name = "WHO", default_value = "prompt")]
    pub(crate) approvals: Approvals,
    /// Who answers the questions of tasks
    #[arg(long, value_name = "WHO", default_value = "prompt")]
    pub(crate) questions: Questions,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Also show log lines of plugins at the levels debug and trace
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
    /// Attach an image or a text file to the first message; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Use rebuilt components from the next call on
    #[arg(long)]
    pub(crate) watch: bool,
    /// Neither read nor write the history of typed messages
    #[arg(long)]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
    /// Also show log lines of plugins at the levels debug and trace
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
    /// Also show every limit
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Also check the model servers of this config
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: CheckedServer,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Write a new plugin in Rust, Python or JavaScript, which builds, passes its tests and runs as
    /// it is
    New(NewPlugin),
    /// Build a plugin's component, and inspect it. What a build runs is not in a sandbox: the build
    /// scripts and macros of a crate, app.py, and app.js
    Build(BuildPlugin),
    /// Play the cases of a plugin to its component, in sandboxes: calls, runs and scripts.
    /// The cases name the grants, and their configs can start programs outside of any sandbox: read
    /// those of a stranger first
    Test(TestPlugin),
    /// Build a plugin and run its cases, again after each change of its files
    Watch(WatchPlugin),
    /// Show what a component is, the capabilities that it asks for, its tools and its imports. Runs
    /// nothing of it but its list of tools, with nothing granted
    Inspect(InspectPlugin),
    /// Call one tool of a component once, and show its result, log, resource use and denials
    Call(CallArgs),
    /// Pin the plugins of a config in its lock: component, requested capabilities, and texts that
    /// models read
    Lock(LockArgs),
    /// Show the plugins that differ from the lock, and accept them
    Upgrade(Upgrade),
    /// Publish a component in an OCI registry, in the layout of `wkg`. Prints its reference with the
    /// digest
    Push(Push),
    /// Write a component of an OCI registry to a file. Prints its reference with the digest
    Pull(Pull),
    /// Sign a component: beside its file (FILE.sig), or in its registry
    Sign(Sign),
    /// Make a key to sign components with. Writes the secret key to FILE, and prints the public key
    Keygen {
        /// The file to write, which must not exist
        file: PathBuf,
    },
    /// Embed a manifest into a component that was built without one
    Embed {
        /// The component, a .wasm file; changed in place
        file: PathBuf,
        /// The manifest, a conclave-plugin.toml
        manifest: PathBuf,
    },
}
