//! Queued writing to stdout and stderr. One thread writes the queue in order, so that a slow
//! reader, such as a paused terminal or a full pipe, blocks nothing else. Output is never dropped,
//! except for live lines: a limited number of them waits, and the count of omitted ones is shown.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ui::log::{self, LogFields};
use crate::ui::screen::columns;
use crate::ui::show::amounts::thousands;
use crate::ui::show::columns::wrap_styled;
use crate::ui::show::{FAINT, paint};
use crate::ui::stdout;

/// Live lines that wait, at most.
const MOST_LIVE: usize = 1_000;
/// Other texts for stderr that wait, at most: more than a run prints.
const MOST_TOLD: usize = 20_000;
/// Bytes that a pipe accepts in one write. After each piece, waiting threads know that the reader
/// is alive.
const PIECE: usize = 4_096;
/// Time that the end of the program waits for a pipe without a reader, once only lines on stderr
/// are left.
const GRACE: Duration = Duration::from_secs(3);
/// Columns of a config's line on a terminal, at least. On a narrower one it is broken like others.
const EXCERPT: usize = 20;

/// The kind of a text, which decides its stream and whether it may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// A line on stderr about progress. Dropped if too many wait.
    Live,
    /// On stderr: a question, an error, the end of a run.
    Told,
    /// On stdout, never dropped.
    Said,
}

/// Set before a run: from then on no writer waits for a reader.
static IS_QUEUED: AtomicBool = AtomicBool::new(false);

static QUEUE: LazyLock<OutputQueue> = LazyLock::new(OutputQueue::default);

#[derive(Default)]
struct OutputQueue {
    state: Mutex<OutputState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    items: VecDeque<(OutputKind, String)>,
    /// The number of items of each kind.
    waiting: [usize; 3],
    /// The kind of the item that is being written.
    writing: Option<OutputKind>,
    /// Live lines that were dropped since the last one that was not.
    left_out: u64,
    /// The number of pieces written.
    pieces: u64,
    /// The value of `pieces` when the wait for a reader was given up.
    given_up: Option<u64>,
    has_thread: bool,
}

/// Starts queueing, before a run. Until then everything is written at once.
pub(crate) fn begin() {
    IS_QUEUED.store(true, Ordering::SeqCst);
}

/// Queues a text, which contains its own line end.
pub(crate) fn push(kind: OutputKind, text: String) {
    push_with(kind, text, &LogFields::default());
}

/// Does the same with what the text is about.
pub(crate) fn push_with(kind: OutputKind, text: String, fields: &LogFields) {
    let text = match kind {
        OutputKind::Said => text,
        OutputKind::Live | OutputKind::Told => log::formatted(laid_out(text), fields),
    };
    if !IS_QUEUED.load(Ordering::SeqCst) {
        return write_all(kind, &text, || {});
    }
    let mut state = QUEUE.state();
    if !state.has_thread {
        let thread =
            std::thread::Builder::new().name("conclave-output".to_owned()).spawn(|| QUEUE.write());
        // Without a thread the text is written here, after the lock is released.
        if thread.is_err() {
            drop(state);
            return write_all(kind, &text, || {});
        }
        state.has_thread = true;
    }
    state.push(kind, text);
    drop(state);
    QUEUE.changed.notify_all();
}

/// Returns lines for stderr broken at words, where a terminal would break them anywhere. Text for a
/// pipe and lines that move the cursor are returned unchanged.
pub(crate) fn laid_out(text: String) -> String {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stderr().is_terminal());
    if !*IS_TERMINAL || text.contains('\r') {
        return text;
    }
    let most = columns();
    let mut lines = text.split_inclusive('\n').peekable();
    let mut broken = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        let Some(content) = line.strip_suffix('\n') else {
            broken.push_str(line);
            continue;
        };
        let excerpt =
            lines.peek().and_then(|marks| fitted_excerpt(content, marks.trim_end(), most));
        if let Some(excerpt) = excerpt {
            broken.push_str(&excerpt);
            lines.next();
        } else {
            broken.push_str(&wrap_styled(content, most).join("\n"));
            broken.push('\n');
        }
    }
    broken
}

/// Returns a line of a config with the marks below it, cut to the columns around the marks: broken
/// at words, the marks would point at another row. `None` for any other two lines, and if they fit.
fn fitted_excerpt(source: &str, marks: &str, most: usize) -> Option<String> {
    const BAR: &str = " | ";
    let (number, source) = source.split_once(BAR)?;
    let (margin, marks) = marks.split_once(BAR)?;
    let start = marks.find('^')?;
    let is_marks = marks.bytes().all(|byte| matches!(byte, b' ' | b'^'));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_marks || !is_number || !margin.trim().is_empty() {
        return None;
    }
    let room = most.checked_sub(number.len() + BAR.len()).filter(|room| *room > EXCERPT)?;
    let chars: Vec<char> = source.chars().collect();
    let long = chars.len().max(marks.len());
    if long <= room {
        return None;
    }
    // The marks, with what is before them if there is room for it.
    let from = marks.len().min(start + room / 2).saturating_sub(room - 1).min(start);
    let from = if from > 0 { (from + 1).min(start) } else { 0 };
    let before = if from > 0 { "…" } else { "" };
    let length = room - before.chars().count();
    let is_cut = chars.len() > from + length;
    let length = if is_cut { length - 1 } else { length };
    let text: String = chars.iter().skip(from).take(length).collect();
    let after = if is_cut { "…" } else { "" };
    let marks: String = marks.chars().skip(from).take(length).collect();
    let blank = " ".repeat(before.chars().count());
    Some(format!("{number}{BAR}{before}{text}{after}\n{margin}{BAR}{blank}{marks}\n"))
}

/// Waits until everything is written. An unread pipe on stderr is given up after [`GRACE`]; stdout
/// and a terminal are not.
pub(crate) fn drain() {
    QUEUE.drain();
}

/// Whether any text waits to be written.
pub(crate) fn is_behind() -> bool {
    QUEUE.state().is_behind()
}

/// A writer to stderr through the queue. Flushing it waits until everything is written.
pub(crate) fn stderr() -> Stderr {
    Stderr(Vec::new())
}

impl OutputQueue {
    fn state(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of the writing thread, which runs until the program ends.
    fn write(&self) {
        let mut state = self.state();
        loop {
            let Some((kind, text)) = state.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            // Released while writing, so that a slow reader does not block `push`.
            drop(state);
            write_all(kind, &text, || {
                self.state().pieces += 1;
                self.changed.notify_all();
            });
            state = self.state();
            state.writing = None;
            self.changed.notify_all();
        }
    }

    fn drain(&self) {
        let is_terminal = std::io::stderr().is_terminal();
        let mut state = self.state();
        state.show_left_out();
        self.changed.notify_all();
        while state.is_behind() {
            let before = state.pieces;
            // Once given up, a reader that has taken nothing since is not waited for again.
            if state.given_up == Some(before) && !state.must_wait() {
                return;
            }
            let (after, waited) =
                self.changed.wait_timeout(state, GRACE).unwrap_or_else(PoisonError::into_inner);
            state = after;
            if waited.timed_out() && state.pieces == before && !is_terminal && !state.must_wait() {
                state.given_up = Some(before);
                return;
            }
        }
    }
}

impl OutputState {
    fn push(&mut self, kind: OutputKind, text: String) {
        let most = match kind {
            // A lower limit after a drop, so that a slow reader does not get lines and counts in
            // turn.
            OutputKind::Live if self.left_out > 0 => MOST_LIVE / 2,
            OutputKind::Live => MOST_LIVE,
            OutputKind::Told => MOST_TOLD,
            OutputKind::Said => usize::MAX,
        };
        if self.waiting[kind as usize] >= most {
            self.left_out += text.lines().count() as u64;
            return;
        }
        if kind == OutputKind::Live {
            self.show_left_out();
        }
        self.put(kind, text);
    }

    fn put(&mut self, kind: OutputKind, text: String) {
        self.waiting[kind as usize] += 1;
        self.items.push_back((kind, text));
    }

    /// Queues a note with the number of dropped lines, in their place.
    fn show_left_out(&mut self) {
        let lines = match std::mem::take(&mut self.left_out) {
            0 => return,
            1 => "… 1 line not shown".to_owned(),
            lines => format!("… {} lines not shown", thousands(lines)),
        };
        let text = format!("{}\n", paint(FAINT, lines));
        self.put(OutputKind::Told, log::formatted(text, &LogFields::of("lines-left-out")));
    }

    fn take(&mut self) -> Option<(OutputKind, String)> {
        let (kind, text) = self.items.pop_front()?;
        self.waiting[kind as usize] -= 1;
        self.writing = Some(kind);
        Some((kind, text))
    }

    fn is_behind(&self) -> bool {
        self.writing.is_some() || !self.items.is_empty()
    }

    /// Whether text for stdout is queued or being written, and its reader is still there.
    fn must_wait(&self) -> bool {
        (self.writing == Some(OutputKind::Said) || self.waiting[OutputKind::Said as usize] > 0)
            && !stdout::has_gone()
    }
}

fn write_all(kind: OutputKind, text: &str, wrote: impl Fn()) {
    if kind == OutputKind::Said {
        let mut out = std::io::stdout();
        for piece in text.as_bytes().chunks(PIECE) {
            stdout::note(out.write_all(piece).and_then(|()| out.flush()));
            wrote();
        }
        return;
    }
    let mut err = anstream::stderr();
    // Styles are removed here: the stream would write each text between two styles by itself.
    let stripped = (err.current_choice() == anstream::ColorChoice::Never)
        .then(|| anstream::adapter::strip_str(text).to_string());
    for piece in stripped.as_deref().unwrap_or(text).as_bytes().chunks(PIECE) {
        // A closed stderr must not stop a run.
        let _ = err.write_all(piece).and_then(|()| err.flush());
        wrote();
    }
}

/// The writer that [`stderr`] returns. It queues its text line by line, and the rest when it is
/// dropped.
#[derive(Debug)]
pub(crate) struct Stderr(Vec<u8>);

impl Stderr {
    fn hand_over(&mut self) {
        if !self.0.is_empty() {
            push(
                OutputKind::Told,
                String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned(),
            );
        }
    }
}

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if bytes.ends_with(b"\n") {
            self.hand_over();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.hand_over();
        drain();
        Ok(())
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_config_is_cut_around_the_marks_and_other_lines_are_not() {
        let source = "6 | grants.fles = [{ dir = \"a/long/folder/name\", at = \"/docs\" }]";
        let excerpt = |marks: &str, most| fitted_excerpt(source, marks, most);
        assert_eq!(excerpt("  |        ^^^^", 80), None, "it fits");
        assert_eq!(
            excerpt("  |        ^^^^", 40).as_deref(),
            Some("6 | grants.fles = [{ dir = \"a/long/fold…\n  |        ^^^^\n")
        );
        let end = format!("  | {}^^^^^^^", " ".repeat(50));
        let cut = excerpt(&end, 40).expect("it is cut");
        let rows: Vec<&str> = cut.lines().collect();
        let marked: String = rows[0].chars().skip(rows[1].find('^').unwrap_or(0)).take(7).collect();
        assert_eq!(marked, "\"/docs\"", "{cut}");
        assert!(rows[0].starts_with("6 | …") && rows.iter().all(|row| row.chars().count() <= 40));
        for other in ["  ^^^^", "  | no marks", "x |  ^^^^"] {
            assert_eq!(excerpt(other, 40), None, "{other}");
        }
    }

    fn texts(state: &OutputState) -> Vec<String> {
        state.items.iter().map(|(_, text)| anstream::adapter::strip_str(text).to_string()).collect()
    }

    #[test]
    fn unread_live_lines_are_dropped_and_counted_and_others_are_kept() {
        let mut state = OutputState::default();
        for line in 0..MOST_LIVE + 1_234 {
            state.push(OutputKind::Live, format!("{line}\n"));
        }
        state.push(OutputKind::Said, "answer\n".to_owned());
        state.push(OutputKind::Told, "TIMEOUT\n".to_owned());
        assert_eq!((state.items.len(), state.left_out), (MOST_LIVE + 2, 1_234));
        // A reader that has caught up a little does not get a count for each line.
        state.take();
        state.push(OutputKind::Live, "left out too\n".to_owned());
        assert_eq!(state.left_out, 1_235);
        while state.waiting[OutputKind::Live as usize] >= MOST_LIVE / 2 {
            state.take();
        }
        state.push(OutputKind::Live, "shown\n".to_owned());
        assert_eq!(
            texts(&state)[state.items.len() - 4..],
            ["answer\n", "TIMEOUT\n", "… 1 235 lines not shown\n", "shown\n"]
        );
    }

    #[test]
    fn drain_waits_for_queued_output() {
        let mut state = OutputState::default();
        state.push(OutputKind::Live, "line\n".to_owned());
        assert!(state.is_behind() && !state.must_wait());
        state.push(OutputKind::Said, "answer\n".to_owned());
        assert!(state.must_wait());
        state.take();
        state.take();
        assert!(state.must_wait(), "it is being written");
        state.writing = None;
        assert!(!state.is_behind());
    }
}
