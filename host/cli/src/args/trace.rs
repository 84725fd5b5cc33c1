//! `--trace`: a line for each step of each task, instead of the usual lines.

use clap::{Args, ValueEnum};

use super::OutputArgs;
use crate::program::error::CliError;

/// The choice of `--trace`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct TraceChoice {
    /// Show each step on stderr in one line: task, responder, sender, recipient, tools and content
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "short")]
    trace: Option<Detail>,
}

/// The amount of a step that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Detail {
    /// One line, cut at the terminal's width
    Short,
    /// The whole content, on separate lines
    Full,
}

impl TraceChoice {
    /// Returns the choice. `None` if no trace was requested.
    ///
    /// # Errors
    /// If only the result is wanted as well.
    pub(crate) fn detail(self, output: OutputArgs) -> Result<Option<Detail>, CliError> {
        if self.trace.is_some() && output.quiet {
            return Err(CliError::usage("--trace and --quiet exclude each other")
                .hint("leave out one of them"));
        }
        Ok(self.trace)
    }
}
