//! Why a command stopped, in the words that the person at the terminal will read.

use std::fmt::Display;
use std::io;
use std::path::Path;

/// Text for stderr and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct XtaskFailure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl XtaskFailure {
    pub(crate) fn new(text: impl Display) -> Self {
        Self { text: text.to_string(), code: 1 }
    }

    /// The command line makes no sense: exit code 2.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self { text: text.to_string(), code: 2 }
    }

    /// `cannot ACTION PATH: ERROR`.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {action} {}: {error}", path.display()))
    }
}
