//! Writing to stdout. A reader that has gone away (`| head`) is no error; a full disk is.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

use anstyle::Style;
use tokio::sync::watch;

use crate::program::error::CliError;
use crate::ui::output::{self, OutputKind};
use crate::ui::screen::columns;
use crate::ui::show::columns::wrap_hanging;
use crate::ui::show::foreign;

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

/// The first failure of what was queued.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Queues text as it is: whoever reads it holds up nothing but it.
///
/// # Errors
/// When something that was queued before could not be written and the reader is still there.
pub(crate) fn queue(text: String) -> Result<(), CliError> {
    output::push(OutputKind::Said, text);
    failed()
}

/// Queues JSON as [`json`] writes it.
pub(crate) fn queue_json(text: impl std::fmt::Display) -> Result<(), CliError> {
    queue(format!("{}\n", foreign::escape_json(&text.to_string())))
}

/// Queues a line with styles, which are taken out where colors are off.
pub(crate) fn queue_styled(text: impl std::fmt::Display) -> Result<(), CliError> {
    let text = text.to_string();
    match anstream::AutoStream::choice(&std::io::stdout()) {
        anstream::ColorChoice::Never => queue(format!("{}\n", anstream::adapter::strip_str(&text))),
        _ => queue(format!("{text}\n")),
    }
}

/// Waits until what was queued is written.
///
/// # Errors
/// As [`queue`].
pub(crate) fn drain() -> Result<(), CliError> {
    output::drain();
    failed()
}

/// Takes what came of writing something that was queued.
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

/// Writes text as it is, behind all that was queued.
///
/// # Errors
/// When it could not be written and the reader is still there.
pub(crate) fn write(text: &str) -> Result<(), CliError> {
    drain()?;
    check(
        std::io::stdout()
            .lock()
            .write_all(text.as_bytes())
            .and_then(|()| std::io::stdout().flush()),
    )
}

/// The same, with a line end.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), CliError> {
    write(&format!("{text}\n"))
}

/// Writes JSON with a line end. Characters that could steer a terminal or deceive a reader are
/// escaped as `\uXXXX`, for a pipe as for a terminal: a parser reads the same values.
///
/// # Errors
/// As [`write`].
pub(crate) fn json(text: impl std::fmt::Display) -> Result<(), CliError> {
    line(foreign::escape_json(&text.to_string()))
}

/// Writes a line with styles, which are taken out where colors are off. A terminal gets it broken
/// at words.
///
/// # Errors
/// As [`write`].
pub(crate) fn styled(text: impl std::fmt::Display) -> Result<(), CliError> {
    hanging(0, text)
}

/// Writes a line as [`styled`] does. On a terminal its further rows begin at column `indent`; with
/// 0, where the first row begins.
///
/// # Errors
/// As [`write`].
pub(crate) fn hanging(indent: usize, text: impl std::fmt::Display) -> Result<(), CliError> {
    let mut text = text.to_string();
    if std::io::stdout().is_terminal() {
        let rows = text.lines().flat_map(|line| wrap_hanging(line, indent, columns()));
        text = rows.collect::<Vec<_>>().join("\n");
    }
    unbroken(text)
}

/// Returns a plugin's text as it is for a pipe, and in rows with a mark for a terminal, which it
/// could steer.
pub(crate) fn safe(text: &str) -> String {
    if !std::io::stdout().is_terminal() {
        return text.to_owned();
    }
    anstream::adapter::strip_str(&foreign::block(text, Style::new(), 0, columns())).to_string()
}

/// Writes a line with styles that holds a command: in one piece, so that it can be copied.
///
/// # Errors
/// As [`write`].
pub(crate) fn unbroken(text: impl std::fmt::Display) -> Result<(), CliError> {
    drain()?;
    let mut out = anstream::stdout();
    check(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// What is left of a result of writing to stdout.
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
