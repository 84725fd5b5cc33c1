//! Writing to stdout. A reader that has gone away (`| head`) is no error; a full disk is.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::LazyLock;

use anstyle::Style;
use tokio::sync::watch;

use crate::error::CliError;
use crate::screen::columns;
use crate::show::foreign;

/// The reader has gone away.
static GONE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Ends when nobody reads what is written any more.
pub(crate) async fn is_gone() {
    // The sender is there for as long as the program.
    let _ = GONE.subscribe().wait_for(|gone| *gone).await;
}

/// Nobody reads what is written.
pub(crate) fn has_gone() -> bool {
    *GONE.borrow()
}

/// Writes text as it is.
///
/// # Errors
/// When it could not be written and the reader is still there.
pub(crate) fn write(text: &str) -> Result<(), CliError> {
    check(std::io::stdout().lock().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()))
}

/// The same, with a line end.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), CliError> {
    write(&format!("{text}\n"))
}

/// A line with styles, which are taken out where colors are off.
///
/// # Errors
/// As [`write`].
pub(crate) fn styled(text: impl std::fmt::Display) -> Result<(), CliError> {
    let mut out = anstream::stdout();
    check(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Returns a plugin's text as it is for a pipe, and in rows with a mark for a terminal, which it could steer.
pub(crate) fn safe(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    anstream::adapter::strip_str(&foreign::block(text, Style::new(), 0, columns())).to_string()
}

/// What is left of a result of writing to stdout.
pub(crate) fn check(written: std::io::Result<()>) -> Result<(), CliError> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::internal(format!("stdout could not be written: {error}"))),
        Err(_) => {
            GONE.send_replace(true);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
