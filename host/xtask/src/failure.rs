//! The reason why a command stopped, as text for the terminal.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// The text for stderr with its exit code.
#[derive(Debug)]
pub(crate) struct XtaskFailure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl XtaskFailure {
    pub(crate) fn new(text: impl Display) -> Self {
        Self { text: text.to_string(), code: 1 }
    }

    /// Returns the failure for invalid arguments, with exit code 2.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self { text: text.to_string(), code: 2 }
    }

    /// Fails with a list of problems and what helps, unless there are none.
    pub(crate) fn unless_empty(problems: &str, remedy: impl Display) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Self::new(format!("\n{}\n\n{remedy}", problems.trim_end())))
    }

    /// Returns the failure `cannot ACTION PATH: ERROR`.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {action} {}: {error}", path.display()))
    }
}
