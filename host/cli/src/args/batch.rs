//! The arguments of `batch`, which runs one config on many inputs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use conclave_runtime::batch::OnError;

use super::CONFIG;
use super::{Approvals, Keep, Locked, ModelChoice, TraceChoice};

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// A file with one input per line: text, or a JSON object `{"input": …, "inputs": {…}, "id":
    /// …}`; `-` reads stdin. Empty lines are skipped
    pub(crate) file: PathBuf,
    /// The config
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// The number of runs at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// How to treat a run that fails
    #[arg(long, value_name = "WHAT", default_value = "report")]
    pub(crate) on_error: OnErrorChoice,
    /// Stop at the first result, and cancel the other runs
    #[arg(long)]
    pub(crate) stop_on_first: bool,
    /// The most steps of the entry task, instead of the config's limit
    #[arg(long, value_name = "N")]
    pub(crate) turns: Option<u32>,
    /// Write the results to this file as JSON, one object per line, and nothing to stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: Keep,
    /// Who decides on calls that need an approval
    #[arg(long, value_name = "WHO", default_value = "prompt")]
    pub(crate) approvals: Approvals,
    #[command(flatten)]
    pub(crate) trace: TraceChoice,
}

/// `--on-error`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnErrorChoice {
    /// End the batch, and cancel the other runs
    Stop,
    /// Count it as a run without a result; the exit code ignores it
    Null,
    /// Put its error among the results
    Report,
}

impl From<OnErrorChoice> for OnError {
    fn from(policy: OnErrorChoice) -> Self {
        match policy {
            OnErrorChoice::Stop => Self::Stop,
            OnErrorChoice::Null => Self::Null,
            OnErrorChoice::Report => Self::Report,
        }
    }
}
