//! The only writer to the terminal during a run: whole lines, streamed text, the status line and
//! prompts, without overwriting each other. This module knows nothing of the contents.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::args::OutputArgs;
#[cfg(feature = "serve")]
use crate::ui::log::{self, LogFields};
use crate::ui::output::{self, OutputKind};
use crate::ui::show::{FAINT, foreign, paint};
use crate::ui::stdout;

/// Columns of a terminal with an unknown size.
const COLUMNS: usize = 80;

/// Rows of a terminal with an unknown size.
const ROWS: usize = 24;

/// Columns without a terminal on stderr and without `COLUMNS`.
const WIDE: usize = 120;

/// Columns of a line, at least. A smaller value of `COLUMNS` is not meant seriously.
const NARROW: usize = 20;

/// The escape sequence that erases the cursor's line.
const ERASE: &str = "\r\u{1b}[2K";

/// The amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Everything.
    Normal,
    /// The agents' text, and nothing around it.
    Quiet,
    /// Only questions, since the event stream goes to stdout.
    Silent,
}

impl Verbosity {
    pub(crate) fn of(output: OutputArgs) -> Self {
        match (output.json, output.quiet) {
            (true, _) => Self::Silent,
            (_, true) => Self::Quiet,
            _ => Self::Normal,
        }
    }
}

/// The program's stdout and stderr.
#[derive(Debug)]
pub(crate) struct Screen {
    loudness: Verbosity,
    /// Whether both streams are terminals, so that a line can be erased again.
    live: bool,
    /// Whether a status line can be shown; nothing else has to be erased for it.
    has_status: bool,
    state: Mutex<ScreenState>,
    /// Set when a line waits to be printed above the one that is being typed.
    wake: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct ScreenState {
    /// Whether a line is being typed. Output is kept for the editor to print above it.
    editing: bool,
    lines: Vec<String>,
    text: String,
    /// Whether streamed text has no line end yet.
    open: bool,
    /// Whether a status line is shown.
    status: bool,
    /// The progress of calls, at the end of the status line.
    progress: String,
    /// The number of questions being asked. Only their text is shown until all are answered.
    holds: usize,
    /// Output that was held back meanwhile, in order.
    pending_output: Vec<HeldPiece>,
    /// Whether a line or a text was written.
    has_written: bool,
}

/// Output that is held back while only questions are shown.
#[derive(Debug)]
enum HeldPiece {
    Line(String),
    /// Streamed text.
    Text(String),
}

/// Shows only questions until it is dropped, and the held output then.
#[must_use]
pub(crate) struct ScreenHold(Arc<Screen>);

impl Drop for ScreenHold {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.holds = state.holds.saturating_sub(1);
        if state.holds > 0 {
            return;
        }
        let pending_output = std::mem::take(&mut state.pending_output);
        // Released first, because `notice` and `write_later` take the lock again.
        drop(state);
        for piece in pending_output {
            match piece {
                HeldPiece::Line(line) => self.0.notice(line),
                HeldPiece::Text(text) => self.0.write_later(text),
            }
        }
    }
}

impl Screen {
    pub(crate) fn new(loudness: Verbosity) -> Arc<Self> {
        let live = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Arc::new(Self {
            loudness,
            live,
            has_status: live,
            state: Mutex::default(),
            wake: Arc::default(),
        })
    }

    /// Creates a screen without streamed text. A status line is shown even if stdout is not a
    /// terminal.
    pub(crate) fn of_batch(loudness: Verbosity) -> Arc<Self> {
        let live = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let has_status = std::io::stderr().is_terminal();
        Arc::new(Self { loudness, live, has_status, state: Mutex::default(), wake: Arc::default() })
    }

    /// Whether a line or a text was written to this screen.
    pub(crate) fn has_written(&self) -> bool {
        self.state().has_written
    }

    /// Whether a status line can be shown.
    pub(crate) fn has_status(&self) -> bool {
        self.has_status
    }

    /// Writes whole lines to stdout in the place of the status line, which reappears with its next
    /// update.
    pub(crate) fn above_status<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        erase_status(&mut state);
        write()
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    pub(crate) fn wake(&self) -> &Arc<AtomicBool> {
        &self.wake
    }

    fn state(&self) -> MutexGuard<'_, ScreenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints one or several whole lines about progress to stderr.
    pub(crate) fn line(&self, text: impl Display) {
        if self.loudness == Verbosity::Normal {
            self.show(OutputKind::Live, text);
        }
    }

    /// Does the same as [`Screen::line`] with what the line is about.
    #[cfg(feature = "serve")]
    pub(crate) fn log_line(&self, fields: &LogFields, text: impl Display) {
        if self.loudness == Verbosity::Normal {
            self.log(OutputKind::Live, fields, text);
        }
    }

    /// Does the same as [`Screen::notice`] with what the line is about.
    #[cfg(feature = "serve")]
    pub(crate) fn log_notice(&self, fields: &LogFields, text: impl Display) {
        self.log(OutputKind::Told, fields, text);
    }

    #[cfg(feature = "serve")]
    fn log(&self, kind: OutputKind, fields: &LogFields, text: impl Display) {
        match log::is_json() {
            true => output::push_with(kind, format!("{text}\n"), fields),
            false => self.show(kind, text),
        }
    }

    /// Prints whole lines to stderr that an agent says to the user before the result. With
    /// `--json` they are events.
    pub(crate) fn agent_text(&self, text: impl Display) {
        match self.loudness {
            Verbosity::Normal => self.show(OutputKind::Live, text),
            Verbosity::Quiet => self.show(OutputKind::Told, text),
            Verbosity::Silent => {}
        }
    }

    /// Whether only the result and errors are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.loudness == Verbosity::Quiet
    }

    /// Prints whole lines to stderr even if only the result is wanted: a question, an error.
    pub(crate) fn notice(&self, text: impl Display) {
        self.show(OutputKind::Told, text);
    }

    fn show(&self, kind: OutputKind, text: impl Display) {
        let mut state = self.state();
        if state.holds > 0 {
            state.pending_output.push(HeldPiece::Line(text.to_string()));
            return;
        }
        Self::put(&mut state, kind, &text, &self.wake);
    }

    /// Holds back everything but questions.
    pub(crate) fn hold(self: &Arc<Self>) -> ScreenHold {
        self.state().holds += 1;
        ScreenHold(Arc::clone(self))
    }

    /// Prints a question, which is never held back.
    pub(crate) fn question(&self, text: impl Display) {
        Self::put(&mut self.state(), OutputKind::Told, &text, &self.wake);
    }

    fn put(state: &mut ScreenState, kind: OutputKind, text: &impl Display, wake: &AtomicBool) {
        state.has_written = true;
        if state.editing {
            state.lines.extend(output::laid_out(text.to_string()).lines().map(str::to_owned));
            wake.store(true, Ordering::SeqCst);
            return;
        }
        make_room(state);
        output::push(kind, format!("{text}\n"));
    }

    /// Writes a piece of streamed text to stdout as it arrives.
    pub(crate) fn say(&self, piece: &str) {
        if self.loudness == Verbosity::Silent || piece.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.holds > 0 {
            match state.pending_output.last_mut() {
                Some(HeldPiece::Text(text)) => text.push_str(piece),
                _ => state.pending_output.push(HeldPiece::Text(piece.to_owned())),
            }
        } else if state.editing {
            state.text.push_str(piece);
        } else {
            write_text(&mut state, piece);
        }
    }

    /// Whether the next streamed text continues a row.
    pub(crate) fn is_text_open(&self) -> bool {
        let state = self.state();
        let is_open = |text: &str| !text.is_empty() && !text.ends_with('\n');
        match state.pending_output.last() {
            Some(HeldPiece::Text(text)) if state.holds > 0 => is_open(text),
            _ if state.holds > 0 => false,
            _ if state.editing => is_open(&state.text),
            _ => state.open,
        }
    }

    /// Ends the streamed text.
    pub(crate) fn end_text(&self) {
        let mut state = self.state();
        let ScreenState { holds, pending_output, editing, text, .. } = &mut *state;
        let buffer = match pending_output.last_mut() {
            Some(HeldPiece::Text(text)) if *holds > 0 => Some(text),
            _ if *editing && *holds == 0 => Some(text),
            _ => None,
        };
        match buffer {
            Some(text) if !text.is_empty() && !text.ends_with('\n') => text.push('\n'),
            None if *holds == 0 => close_text(&mut state),
            _ => {}
        }
    }

    /// Shows a faint status line, which is erased again. Does nothing while text is streamed or a
    /// line is typed.
    pub(crate) fn status(&self, text: &str) {
        let mut state = self.state();
        let progress = state.progress.clone();
        let dot = if text.is_empty() || progress.is_empty() { "" } else { " · " };
        self.draw_status(&mut state, &format!("{text}{dot}{progress}"));
    }

    /// Shows the progress of calls, and keeps showing it behind each status. An empty text removes
    /// it.
    pub(crate) fn set_progress(&self, progress: &str) {
        let mut state = self.state();
        if state.progress == progress {
            return;
        }
        progress.clone_into(&mut state.progress);
        if progress.is_empty() {
            erase_status(&mut state);
        } else {
            self.draw_status(&mut state, progress);
        }
    }

    fn draw_status(&self, state: &mut ScreenState, text: &str) {
        let has_no_place = state.editing || state.open || state.holds > 0;
        // With a slow reader the update is skipped, since the next one is newer.
        if !self.has_status
            || self.loudness != Verbosity::Normal
            || has_no_place
            || output::is_behind()
        {
            return;
        }
        let text = foreign::one_row(text, columns().saturating_sub(1)).0;
        output::push(OutputKind::Told, format!("{ERASE}{}", paint(FAINT, text)));
        state.status = true;
    }

    /// Erases the status line.
    pub(crate) fn clear_status(&self) {
        erase_status(&mut self.state());
    }

    /// Begins to edit a line: from here on output waits for [`Screen::take_lines`].
    pub(crate) fn begin_edit(&self) {
        let mut state = self.state();
        make_room(&mut state);
        state.editing = true;
        drop(state);
        // The editor writes directly, from the cursor's position.
        output::drain();
    }

    /// Takes the lines to print above the one that is being typed.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lines)
    }

    /// Ends editing, and prints the output that waited.
    pub(crate) fn end_edit(&self) {
        let mut state = self.state();
        state.editing = false;
        for line in std::mem::take(&mut state.lines) {
            output::push(OutputKind::Told, format!("{line}\n"));
        }
        // Released first, because `write_kept` takes the lock again.
        drop(state);
        self.write_kept();
    }

    /// Shows the text that was streamed while a line was typed.
    fn write_kept(&self) {
        let mut state = self.state();
        if state.holds == 0 && !state.text.is_empty() {
            let text = std::mem::take(&mut state.text);
            write_text(&mut state, &text);
        }
    }

    /// Shows the text that was streamed while only questions were shown. If a line is being typed,
    /// it appears above that.
    fn write_later(&self, text: String) {
        let mut state = self.state();
        if state.editing {
            state.lines.extend(text.lines().map(str::to_owned));
            self.wake.store(true, Ordering::SeqCst);
            return;
        }
        // The held text began a row of its own.
        close_text(&mut state);
        write_text(&mut state, &text);
    }
}

/// The columns of the terminal.
pub(crate) fn columns() -> usize {
    size().0
}

/// The columns of a line on stderr: those of the terminal, or else `COLUMNS`.
pub(crate) fn total_columns() -> usize {
    if std::io::stderr().is_terminal() {
        return columns();
    }
    let env_columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    env_columns.filter(|columns| *columns >= NARROW).unwrap_or(WIDE)
}

/// Returns the columns and rows that the terminal reports.
#[cfg(unix)]
fn reported_size() -> std::io::Result<(u16, u16)> {
    // Stderr first: questions are shown there, and it need not be the controlling terminal, which
    // crossterm asks.
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) => Ok((size.ws_col, size.ws_row)),
        Err(_) => crossterm::terminal::size(),
    }
}

/// Returns the columns and rows that the terminal reports.
#[cfg(not(unix))]
fn reported_size() -> std::io::Result<(u16, u16)> {
    crossterm::terminal::size()
}

/// The columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (columns, rows) = reported_size().unwrap_or_default();
    // A terminal that says 0 does not know.
    let columns = if columns == 0 { COLUMNS } else { usize::from(columns).max(20) };
    (columns, if rows == 0 { ROWS } else { usize::from(rows) })
}

fn write_text(state: &mut ScreenState, text: &str) {
    erase_status(state);
    state.has_written = true;
    // A failure is reported when the program writes its result.
    let _ = stdout::queue(text.to_owned());
    state.open = !text.ends_with('\n');
}

fn close_text(state: &mut ScreenState) {
    if state.open {
        let _ = stdout::queue("\n".to_owned());
        state.open = false;
    }
}

fn erase_status(state: &mut ScreenState) {
    if state.status {
        output::push(OutputKind::Told, ERASE.to_owned());
        state.status = false;
    }
}

/// Ends the current row, so that output on stderr begins on a new one.
fn make_room(state: &mut ScreenState) {
    erase_status(state);
    close_text(state);
}
