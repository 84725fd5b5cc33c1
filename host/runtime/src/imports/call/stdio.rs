//! A guest's standard output and error. Every line goes to the plugin's log, except the output of a
//! program, which is its result. The end of standard error is kept, because only it contains a
//! panic message with file and line.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncWrite, Sink, sink};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::log::LogBook;
use crate::observe::subscribe::Level;

/// Bytes of standard error that are kept.
const KEPT: usize = 64 << 10;
/// The words in the first line of a panic of Rust.
const PANIC: &str = " panicked at ";
/// Maximum bytes of one write.
const PERMIT: usize = 64 << 10;
/// Bytes above which a line is split.
const LINE: usize = 4 << 10;

/// One of the two streams; clones share its contents.
#[derive(Clone)]
pub(crate) struct GuestStream(Arc<StreamState>);

struct StreamState {
    book: Arc<LogBook>,
    level: Level,
    /// The bytes of a result that are kept; `None` for a log.
    most: Option<usize>,
    text: Mutex<StreamText>,
}

#[derive(Default)]
struct StreamText {
    /// The newest bytes, at most `KEPT`; of a result the first ones.
    end: Vec<u8>,
    /// Bytes of a result beyond those that are kept.
    more: usize,
    /// A line without its end so far.
    line: Vec<u8>,
    /// The beginning of the newest panic, which a long message moves out of `end`.
    panic: Option<Vec<u8>>,
}

impl GuestStream {
    pub(crate) fn new(book: Arc<LogBook>, level: Level) -> Self {
        Self(Arc::new(StreamState { book, level, most: None, text: Mutex::default() }))
    }

    /// The output of a program, of which the first `most` bytes are its result.
    pub(crate) fn capture(book: Arc<LogBook>, most: usize) -> Self {
        let (level, text) = (Level::Info, Mutex::default());
        Self(Arc::new(StreamState { book, level, most: Some(most), text }))
    }

    /// Returns what was kept, with a mark if there was more.
    pub(crate) fn text(&self) -> String {
        let text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        let mut output = String::from_utf8_lossy(&text.end).into_owned();
        if text.more > 0 {
            output += &format!("\n[{} more bytes]", text.more);
        }
        output
    }

    /// Logs an unfinished line, and returns the newest text.
    pub(crate) fn finish(&self) -> String {
        let mut text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        let line = std::mem::take(&mut text.line);
        if !line.is_empty() {
            text.note_panic(&line);
            self.log(&line);
        }
        let end = String::from_utf8_lossy(&text.end);
        match &text.panic {
            Some(panic) if !end.contains(PANIC) => String::from_utf8_lossy(panic).into_owned(),
            _ => end.into_owned(),
        }
    }

    fn take(&self, bytes: &[u8]) {
        let mut text = self.0.text.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = self.0.most {
            let length = bytes.len().min(most.saturating_sub(text.end.len()));
            text.end.extend_from_slice(&bytes[..length]);
            text.more = text.more.saturating_add(bytes.len() - length);
            return;
        }
        let newest = &bytes[bytes.len().saturating_sub(KEPT)..];
        let surplus = (text.end.len() + newest.len()).saturating_sub(KEPT);
        text.end.drain(..surplus);
        text.end.extend_from_slice(newest);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_complete = piece.ends_with(b"\n");
            text.line.extend_from_slice(piece.strip_suffix(b"\n").unwrap_or(piece));
            if is_complete || text.line.len() >= LINE {
                let line = std::mem::take(&mut text.line);
                text.note_panic(&line);
                self.log(&line);
            }
        }
    }

    fn log(&self, line: &[u8]) {
        // Panic messages begin with an empty line.
        if !line.is_empty() {
            self.0.book.line(self.0.level, &String::from_utf8_lossy(line));
        }
    }
}

impl StreamText {
    fn note_panic(&mut self, line: &[u8]) {
        if String::from_utf8_lossy(line).contains(PANIC) {
            self.panic = Some(Vec::new());
        }
        if let Some(panic) = self.panic.as_mut().filter(|panic| panic.len() < LINE) {
            panic.extend_from_slice(line);
            panic.push(b'\n');
        }
    }
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// Only WASI 0.3 calls this, and it is not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        let nowhere: Sink = sink();
        Box::new(nowhere)
    }
}

#[async_trait]
impl Pollable for GuestStream {
    // Always ready: the log drops what is too much, and no guest waits for it.
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

/// A panic message with file and line from the end of standard error, or its last line. `None` if
/// it is empty.
pub(crate) fn panic_message(stderr: &str) -> Option<String> {
    if let Some((_, panic)) = stderr.rsplit_once(PANIC) {
        // Rust: `src/lib.rs:3:5:`, a line break, the message, and a note.
        let panic = panic.split("\nnote: ").next().unwrap_or(panic).trim_end();
        return Some(match panic.split_once(":\n") {
            Some((place, message)) => format!("it panicked at {place}: {message}"),
            None => format!("it panicked at {panic}"),
        });
    }
    // Other languages end a traceback with the error itself.
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(format!("it stopped itself; its last words were: {}", last.trim()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use conclave_core::types::denial::DenialRecord;
    use conclave_core::types::ids::CallId;

    use super::*;
    use crate::calls::Observer;

    #[derive(Default)]
    struct Lines(Lock<Vec<String>>);

    impl Observer for Lines {
        fn log(&self, _: CallId, _: Level, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
        fn progress(&self, _: CallId, _: u64, _: Option<u64>, _: &str) {}
        fn denied(&self, _: CallId, _: &DenialRecord) {}
    }

    fn output() -> (Arc<Lines>, GuestStream) {
        let lines = Arc::new(Lines::default());
        let book = LogBook::new(CallId(1), lines.clone(), 1 << 20);
        (lines, GuestStream::new(Arc::new(book), Level::Info))
    }

    #[test]
    fn a_panic_is_recognised_whatever_the_length_of_its_message() {
        let (_, output) = output();
        output.take(b"\nthread 'main' panicked at src/lib.rs:3:5:\n");
        output.take(&b"a lot ".repeat(KEPT / 3));
        output.take(b"\nnote: run with `RUST_BACKTRACE=1` environment variable\n");
        let message = panic_message(&output.finish()).expect("there is one");
        assert!(
            message.starts_with("it panicked at src/lib.rs:3:5: a lot a lot"),
            "{:.200}",
            message
        );
    }

    #[test]
    fn lines_are_logged_when_they_end() {
        let (lines, output) = output();
        output.take(b"one\ntw");
        output.take(b"o\n\nthree");
        assert_eq!(*lines.0.lock().unwrap(), ["one", "two"]);
        assert_eq!(output.finish(), "one\ntwo\n\nthree");
        assert_eq!(*lines.0.lock().unwrap(), ["one", "two", "three"]);
    }

    #[test]
    fn only_the_newest_text_is_kept() {
        let (_, output) = output();
        output.take(&vec![b'a'; KEPT]);
        output.take(b"end");
        let newest = output.finish();
        assert_eq!(newest.len(), KEPT);
        assert!(newest.ends_with("aend"));
    }

    #[test]
    fn a_rust_panic_is_read_with_its_place() {
        let stderr = "\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\nlost the\nplot\nnote: run with `RUST_BACKTRACE=1`";
        assert_eq!(panic_message(stderr).unwrap(), "it panicked at src/lib.rs:3:5: lost the\nplot");
    }

    #[test]
    fn other_languages_are_quoted_by_their_last_line() {
        let words =
            panic_message("Traceback:\n  File \"app.py\", line 3\nValueError: no\n\n").unwrap();
        assert_eq!(words, "it stopped itself; its last words were: ValueError: no");
        assert_eq!(panic_message(""), None);
    }
}
