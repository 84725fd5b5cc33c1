//! Writing to stdout. A reader that has gone away (`| head`) is not an error; a full disk is.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

use anstyle::Style;
use serde_json::Value;
use tokio::sync::watch;

use crate::args::OutputArgs;
use crate::program::error::CliError;
use crate::ui::output::{self, OutputKind};
use crate::ui::screen::columns;
use crate::ui::show::columns::wrap_hanging;
use crate::ui::show::foreign;

/// Set once the reader has gone away.
static GONE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Resolves once the reader of stdout has gone away.
pub(crate) async fn is_gone() {
    // The sender is static, so it is never dropped.
    let _ = GONE.subscribe().wait_for(|is_closed| *is_closed).await;
}

/// Whether the reader of stdout has gone away.
pub(crate) fn has_gone() -> bool {
    *GONE.borrow()
}

/// The first failure to write queued text.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Queues text unchanged. A slow reader does not block the caller.
///
/// # Errors
/// If an earlier text could not be written and the reader is still there.
pub(crate) fn queue(text: String) -> Result<(), CliError> {
    output::push(OutputKind::Said, text);
    failed()
}

/// Queues JSON in the form of [`json`].
pub(crate) fn queue_json(text: impl std::fmt::Display) -> Result<(), CliError> {
    queue(format!("{}\n", foreign::escape_json(&text.to_string())))
}

/// Queues a line with styles, which are stripped if colors are off.
pub(crate) fn queue_styled(text: impl std::fmt::Display) -> Result<(), CliError> {
    let text = text.to_string();
    match anstream::AutoStream::choice(&std::io::stdout()) {
        anstream::ColorChoice::Never => queue(format!("{}\n", anstream::adapter::strip_str(&text))),
        _ => queue(format!("{text}\n")),
    }
}

/// Waits until the queue is written.
///
/// # Errors
/// Like [`queue`].
pub(crate) fn drain() -> Result<(), CliError> {
    output::drain();
    failed()
}

/// Records the result of writing queued text.
pub(crate) fn note(written: std::io::Result<()>) {
    if let Err(error) = check(written) {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
    }
}

fn failed() -> Result<(), CliError> {
    match FAILED.lock().unwrap_or_else(PoisonError::into_inner).clone() {
        Some(what) => Err(CliError::internal(what)),
        None => Ok(()),
    }
}

/// Writes text unchanged, behind all queued text.
///
/// # Errors
/// If the text could not be written and the reader is still there.
pub(crate) fn write(text: &str) -> Result<(), CliError> {
    drain()?;
    check(
        std::io::stdout()
            .lock()
            .write_all(text.as_bytes())
            .and_then(|()| std::io::stdout().flush()),
    )
}

/// Writes text with a line end.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), CliError> {
    write(&format!("{text}\n"))
}

/// Writes JSON with a line end. Characters that could steer a terminal or deceive a reader are
/// always escaped as `\uXXXX`; a parser reads the same values.
///
/// # Errors
/// Like [`write`].
pub(crate) fn json(text: impl std::fmt::Display) -> Result<(), CliError> {
    line(foreign::escape_json(&text.to_string()))
}

/// Writes a line with styles, which are stripped if colors are off. For a terminal it is broken at
/// words.
///
/// # Errors
/// Like [`write`].
pub(crate) fn styled(text: impl std::fmt::Display) -> Result<(), CliError> {
    hanging(0, text)
}

/// Writes a line like [`styled`]. On a terminal, further rows begin at column `indent`, or with the
/// first row if it is 0.
///
/// # Errors
/// Like [`write`].
pub(crate) fn hanging(indent: usize, text: impl std::fmt::Display) -> Result<(), CliError> {
    unbroken(hung(indent, text.to_string()))
}

/// The text as [`hanging`] writes it.
pub(crate) fn hung(indent: usize, text: String) -> String {
    if !std::io::stdout().is_terminal() {
        return text;
    }
    let rows = text.lines().flat_map(|line| wrap_hanging(line, indent, columns()));
    rows.collect::<Vec<_>>().join("\n")
}

/// Writes the result of a command: as JSON, or as a line of text unless `--quiet`.
///
/// # Errors
/// Like [`write`].
pub(crate) fn report(
    output: OutputArgs,
    json_value: Value,
    text: impl std::fmt::Display,
) -> Result<(), CliError> {
    match (output.json, output.quiet) {
        (true, _) => json(json_value),
        (false, true) => Ok(()),
        (false, false) => styled(text),
    }
}

/// A plugin's text unchanged for a pipe, and in marked rows for a terminal, which the text could
/// steer.
pub(crate) fn safe(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    anstream::adapter::strip_str(&foreign::block(text, Style::new(), 0, columns())).to_string()
}

/// Writes a line with styles that contains a command. It is never broken, so that it can be copied.
///
/// # Errors
/// Like [`write`].
pub(crate) fn unbroken(text: impl std::fmt::Display) -> Result<(), CliError> {
    drain()?;
    let mut out = anstream::stdout();
    check(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// Returns the error of a write to stdout, if the program must report it.
pub(crate) fn check(written: std::io::Result<()>) -> Result<(), CliError> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::internal(format!("stdout could not be written: {error}")))
        }
        Err(_) => {
            GONE.send_replace(true);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
