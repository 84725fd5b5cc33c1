//! The arguments of `batch`, which runs one config on many inputs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use conclave_runtime::batch::OnError;

use super::CONFIG;
use super::{Approvals, Keep, Locked, ModelChoice, TraceChoice};

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// One input a line: text, or a JSON object `{"input": …, "inputs": {…}, "id": …}`; `-` reads
    /// stdin. Empty lines are left out
    pub(crate) file: PathBuf,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// How many runs go on at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// What becomes of a run that fails
    #[arg(long, value_name = "WHAT", default_value = "report")]
    pub(crate) on_error: Policy,
    /// End with the first result; the other runs are cancelled
    #[arg(long)]
    pub(crate) stop_on_first: bool,
    /// Steps that the entry task makes at most, in the place of the config's
    #[arg(long, value_name = "N")]
    pub(crate) turns: Option<u32>,
    /// Write the results to this file as JSON, one object a line, and nothing to stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who is asked for approvals
    #[arg(long, value_name = "WHO", default_value = "ask")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
}

/// `--on-error`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// The first one ends the batch; the other runs are cancelled
    Stop,
    /// It counts as a run without a result, and not for the exit code
    Null,
    /// Its error stands among the results
    Report,
}

impl From<Policy> for OnError {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Stop => Self::Stop,
            Policy::Null => Self::Null,
            Policy::Report => Self::Report,
        }
    }
}
