//! Programs of the operator's machine, outside the sandbox. The operator grants whole commands, such as
//! `/usr/bin/git log *`; the host journals each run, and the kernel confines the program.
//!
//! ```no_run
//! use conclave_sdk::exec::Command;
//!
//! let output = Command::new("git").args(["log", "main"]).directory("/workspace").run()?;
//! if output.is_success() {
//!     println!("{}", output.stdout());
//! }
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use std::borrow::Cow;
use std::time::Duration;

use crate::bindings::tool::conclave::plugin::exec as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::exec as host;
use crate::{Error, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use host::commands;
pub use import::Ending;

/// A program to run, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    directory: Option<String>,
    input: Vec<u8>,
    timeout: Option<Duration>,
}

impl Command {
    /// Returns a command without arguments. `program` is a granted path, or its last component.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: None,
            input: Vec::new(),
            timeout: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets the working directory: a path in a granted folder, such as `/workspace`. Without it, the
    /// program runs in an empty folder, which is removed when it ends.
    #[must_use]
    pub fn directory(mut self, path: impl Into<String>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Sets the standard input, which is empty otherwise.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets a time limit below that of the grant.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Runs the program and waits for its end. What it left running is stopped.
    ///
    /// # Errors
    /// `Denied` if the command or its directory is not granted, or the kernel cannot confine the
    /// program; nothing was started. `InvalidArguments` if the directory does not exist, `Other` if
    /// the program cannot be started.
    pub fn run(self) -> Result<Output> {
        let timeout = self.timeout.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
        let output = host::run(&import::Command {
            program: self.program,
            arguments: self.arguments,
            directory: self.directory,
            input: self.input,
            timeout_ms: timeout,
            extra: Vec::new(),
        });
        let import::Output { ending, stdout, stderr, dropped } =
            output.map_err(|error| match error {
                import::ExecError::Denied(denial) => Error::Denied(denial),
                import::ExecError::InvalidCommand(text) => Error::InvalidArguments(text),
                import::ExecError::Other(text) => Error::Other(text),
            })?;
        Ok(Output { ending, stdout_bytes: stdout, stderr_bytes: stderr, dropped })
    }
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub ending: Ending,
    /// The standard output.
    pub stdout_bytes: Vec<u8>,
    /// The standard error.
    pub stderr_bytes: Vec<u8>,
    /// Bytes of output beyond the grant's limit, which were dropped.
    pub dropped: u64,
}

impl Output {
    /// Whether the program exited with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self.ending, Ending::ExitCode(0))
    }

    /// The standard output as text; invalid UTF-8 is replaced.
    #[must_use]
    pub fn stdout(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout_bytes)
    }

    /// The standard error as text; invalid UTF-8 is replaced.
    #[must_use]
    pub fn stderr(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr_bytes)
    }
}
