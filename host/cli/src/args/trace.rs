//! `--trace`: a line for each step of each task, instead of the usual lines.

use clap::{Args, ValueEnum};

use super::OutputArgs;
use crate::program::error::CliError;

/// The choice of `--trace`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct TraceChoice {
    /// Show each step on stderr, as one line: its task, who answered, from whom to whom, tools and
    /// content. `--trace=full` shows all of it
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "short")]
    trace: Option<Detail>,
}

/// The amount of a step that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Detail {
    /// A line, cut at the end of the terminal's
    Short,
    /// The whole content, in lines of its own
    Full,
}

impl TraceChoice {
    /// Returns the choice. `None` if no trace was requested.
    ///
    /// # Errors
    /// If only the result is wanted as well.
    pub(crate) fn detail(self, output: OutputArgs) -> Result<Option<Detail>, CliError> {
        if self.trace.is_some() && output.quiet {
            return Err(CliError::usage(
                "--trace shows every step, and --quiet nothing but the result",
            )
            .hint("leave one of them out"));
        }
        Ok(self.trace)
    }
}
