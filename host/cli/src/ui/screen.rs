//! The one place that writes to the terminal while a run goes on: whole lines, streamed text, the
//! status line, and a prompt in between, so that none of them destroys another. It knows nothing of
//! what is said.

use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::args::OutputArgs;
use crate::ui::output::{self, OutputKind};
use crate::ui::show::{FAINT, foreign, paint};
use crate::ui::stdout;

/// Columns of a terminal whose size is not known.
const COLUMNS: usize = 80;

/// Rows of a terminal whose size is not known.
const ROWS: usize = 24;

/// Columns where stderr is no terminal and nobody says how many there are.
const WIDE: usize = 120;

/// A narrower line than this is none that anybody wants.
const NARROW: usize = 20;

/// Takes away the line that the cursor is on.
const ERASE: &str = "\r\u{1b}[2K";

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// Everything.
    Normal,
    /// What is said, and nothing around it.
    Quiet,
    /// Only questions: the event stream goes to stdout.
    Silent,
}

impl Loudness {
    pub(crate) fn of(output: OutputArgs) -> Self {
        match (output.json, output.quiet) {
            (true, _) => Self::Silent,
            (_, true) => Self::Quiet,
            _ => Self::Normal,
        }
    }
}

/// Stdout and stderr of the program.
#[derive(Debug)]
pub(crate) struct Screen {
    loudness: Loudness,
    /// Both streams are shown on a terminal, so a line can be erased again.
    live: bool,
    /// A status line can be shown: nothing but it has to be erased.
    has_status: bool,
    state: Mutex<ScreenState>,
    /// Raised when something waits to be printed above a line that is being typed.
    wake: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct ScreenState {
    /// A line is being typed; what comes is kept for the editor to print above it.
    editing: bool,
    lines: Vec<String>,
    text: String,
    /// Streamed text has no line end yet.
    open: bool,
    /// A status line is shown.
    status: bool,
    /// How far calls have come: the end of the status line.
    progress: String,
    /// Somebody is being asked: only what is asked is shown until they have answered.
    holds: usize,
    /// What came meanwhile, in its order.
    held: Vec<HeldPiece>,
    /// A line or a text was written.
    has_written: bool,
}

/// What came while only questions are shown.
#[derive(Debug)]
enum HeldPiece {
    Line(String),
    /// Of what is said.
    Text(String),
}

/// Until it is dropped only questions are shown; what else comes is shown then.
#[must_use]
pub(crate) struct ScreenHold(Arc<Screen>);

impl Drop for ScreenHold {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.holds = state.holds.saturating_sub(1);
        if state.holds > 0 {
            return;
        }
        let held = std::mem::take(&mut state.held);
        drop(state);
        for piece in held {
            match piece {
                HeldPiece::Line(line) => self.0.notice(line),
                HeldPiece::Text(text) => self.0.write_later(text),
            }
        }
    }
}

impl Screen {
    pub(crate) fn new(loudness: Loudness) -> Arc<Self> {
        let live = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Arc::new(Self {
            loudness,
            live,
            has_status: live,
            state: Mutex::default(),
            wake: Arc::default(),
        })
    }

    /// The same where nothing is streamed: a status line is shown also when stdout is no terminal.
    pub(crate) fn of_batch(loudness: Loudness) -> Arc<Self> {
        let live = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let has_status = std::io::stderr().is_terminal();
        Arc::new(Self { loudness, live, has_status, state: Mutex::default(), wake: Arc::default() })
    }

    /// Returns whether a line or a text was written here.
    pub(crate) fn has_written(&self) -> bool {
        self.state().has_written
    }

    /// There is a place for a status line.
    pub(crate) fn has_status(&self) -> bool {
        self.has_status
    }

    /// Writes whole lines to stdout where the status line was, which comes again when it is next
    /// shown.
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

    /// A whole line, or several, about what happens. It goes to stderr.
    pub(crate) fn line(&self, text: impl Display) {
        if self.loudness == Loudness::Normal {
            self.show(OutputKind::Live, text);
        }
    }

    /// Only the result is wanted, and errors.
    pub(crate) fn is_quiet(&self) -> bool {
        self.loudness == Loudness::Quiet
    }

    /// The same, also when only the result is wanted: a question, an error.
    pub(crate) fn notice(&self, text: impl Display) {
        self.show(OutputKind::Told, text);
    }

    fn show(&self, kind: OutputKind, text: impl Display) {
        let mut state = self.state();
        if state.holds > 0 {
            state.held.push(HeldPiece::Line(text.to_string()));
            return;
        }
        Self::put(&mut state, kind, &text, &self.wake);
    }

    /// Holds back all but questions.
    pub(crate) fn hold(self: &Arc<Self>) -> ScreenHold {
        self.state().holds += 1;
        ScreenHold(Arc::clone(self))
    }

    /// What is asked. It is shown whatever else is held back.
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

    /// A piece of what is said. It goes to stdout as it comes.
    pub(crate) fn say(&self, piece: &str) {
        if self.loudness == Loudness::Silent || piece.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.holds > 0 {
            match state.held.last_mut() {
                Some(HeldPiece::Text(text)) => text.push_str(piece),
                _ => state.held.push(HeldPiece::Text(piece.to_owned())),
            }
        } else if state.editing {
            state.text.push_str(piece);
        } else {
            write_text(&mut state, piece);
        }
    }

    /// Returns whether what is said next goes on in a row of what was said before.
    pub(crate) fn is_text_open(&self) -> bool {
        let state = self.state();
        let is_open = |text: &str| !text.is_empty() && !text.ends_with('\n');
        match state.held.last() {
            Some(HeldPiece::Text(text)) if state.holds > 0 => is_open(text),
            _ if state.holds > 0 => false,
            _ if state.editing => is_open(&state.text),
            _ => state.open,
        }
    }

    /// What was said has an end.
    pub(crate) fn end_text(&self) {
        let mut state = self.state();
        let ScreenState { holds, held, editing, text, .. } = &mut *state;
        let kept = match held.last_mut() {
            Some(HeldPiece::Text(text)) if *holds > 0 => Some(text),
            _ if *editing && *holds == 0 => Some(text),
            _ => None,
        };
        match kept {
            Some(text) if !text.is_empty() && !text.ends_with('\n') => text.push('\n'),
            None if *holds == 0 => close_text(&mut state),
            _ => {}
        }
    }

    /// Shows what is going on in one faint line that is erased again. Does nothing where text is
    /// being streamed or a line is typed.
    pub(crate) fn status(&self, text: &str) {
        let mut state = self.state();
        let progress = state.progress.clone();
        let dot = if text.is_empty() || progress.is_empty() { "" } else { " · " };
        self.draw_status(&mut state, &format!("{text}{dot}{progress}"));
    }

    /// Shows how far calls have come, and goes on showing it behind each status. Empty: there is
    /// nothing to show.
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
        // The next one is newer: what nobody reads yet is not added to.
        if !self.has_status
            || self.loudness != Loudness::Normal
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

    /// A line is going to be typed: from here on output waits for [`Screen::take_lines`].
    pub(crate) fn begin_edit(&self) {
        let mut state = self.state();
        make_room(&mut state);
        state.editing = true;
        drop(state);
        // The editor writes by itself, from where the cursor stands.
        output::drain();
    }

    /// What is to be printed above the line that is typed.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lines)
    }

    /// The line has been typed: what waited is printed.
    pub(crate) fn end_edit(&self) {
        let mut state = self.state();
        state.editing = false;
        for line in std::mem::take(&mut state.lines) {
            output::push(OutputKind::Told, format!("{line}\n"));
        }
        drop(state);
        self.write_kept();
    }

    /// Shows what was said while a line was typed.
    fn write_kept(&self) {
        let mut state = self.state();
        if state.holds == 0 && !state.text.is_empty() {
            let text = std::mem::take(&mut state.text);
            write_text(&mut state, &text);
        }
    }

    /// Shows what was said while only questions were: above the line that is typed, where one is.
    fn write_later(&self, text: String) {
        let mut state = self.state();
        if state.editing {
            state.lines.extend(text.lines().map(str::to_owned));
            self.wake.store(true, Ordering::SeqCst);
            return;
        }
        // It began a row of its own.
        close_text(&mut state);
        write_text(&mut state, &text);
    }
}

/// Returns how wide the terminal is.
pub(crate) fn columns() -> usize {
    size().0
}

/// Returns how wide a line on stderr may be: that of the terminal, else what `COLUMNS` says.
pub(crate) fn total_columns() -> usize {
    if std::io::stderr().is_terminal() {
        return columns();
    }
    let named = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    named.filter(|columns| *columns >= NARROW).unwrap_or(WIDE)
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

/// Returns the columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (columns, rows) = reported_size().unwrap_or_default();
    // A terminal that says 0 does not know.
    let columns = if columns == 0 { COLUMNS } else { usize::from(columns).max(20) };
    (columns, if rows == 0 { ROWS } else { usize::from(rows) })
}

fn write_text(state: &mut ScreenState, text: &str) {
    erase_status(state);
    state.has_written = true;
    // What cannot be written is found out when the program writes its result.
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

/// A line of its own for what comes on stderr.
fn make_room(state: &mut ScreenState) {
    erase_status(state);
    close_text(state);
}
