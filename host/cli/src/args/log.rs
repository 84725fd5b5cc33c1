//! The format of the log, of commands that run for long without a terminal.

use clap::{Args, ValueEnum};

/// The format of lines on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object in each line.
    Json,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LogArgs {
    /// The format of lines on stderr: text for people, or one JSON object a line with time, level,
    /// event, run, principal, config and request
    #[arg(long = "log", value_name = "FORMAT", default_value = "text")]
    pub(crate) format: LogFormat,
}
