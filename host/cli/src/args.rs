//! The command line. What people type, nothing of what it does.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::exit;

/// Runs agents and tools you do not trust: every one is a WebAssembly component that can touch only what you granted.
#[derive(Debug, Parser)]
#[command(name = "conclave", version, propagate_version = true, after_help = exit::TABLE)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How things are told.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Output {
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
    /// Run the entry task of a config on a message. The answer goes to stdout, everything else to stderr
    Run(Run),
    /// Check a config and its plugins without running anything, and show who may do what
    Check(Check),
    /// Look at plugins
    #[command(subcommand)]
    Plugin(Plugin),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The config, such as conclave.toml
    pub(crate) file: PathBuf,
    /// What the entry task is asked; `-` reads it from stdin
    pub(crate) message: Option<String>,
    /// Keep the journal of every room as JSON lines in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) journal: Option<PathBuf>,
    /// Show plugins' log lines of level debug and trace too
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The config, such as conclave.toml
    pub(crate) file: PathBuf,
    /// Show every limit too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Plugin {
    /// Say what a component is, what it asks for and what it imports, without running it
    Inspect {
        /// The component, a .wasm file
        file: PathBuf,
    },
    /// Put a manifest into a component that was built without one
    Embed {
        /// The component, a .wasm file; it is changed
        file: PathBuf,
        /// The manifest, a conclave-plugin.toml
        manifest: PathBuf,
    },
}
