//! Lines from stdin without an editor: from a pipe, or from a terminal whose output is redirected.
//! Writes no escape codes.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use super::{SEEN, Stops, UserQuestion, UserReply, drop_typed, hang_up};
use crate::ui::screen::Screen;

/// The line that a program writes to stop the agent.
const STOP: &str = "/stop";

/// Reads lines.
pub(super) struct LineReader {
    screen: Arc<Screen>,
    shows_prompt: bool,
    /// Lines that are read as they arrive.
    ahead: Option<Receiver<String>>,
}

impl LineReader {
    pub(super) fn new(screen: Arc<Screen>, shows_prompt: bool, stops: Option<Stops>) -> Self {
        Self { screen, shows_prompt, ahead: stops.map(read_ahead) }
    }

    /// Reads a message or a line. A backslash at the end of a line continues it with the next.
    pub(super) fn read(&mut self, question: &UserQuestion) -> UserReply {
        self.screen.clear_status();
        if !question.text.is_empty() {
            self.screen.question(&question.text);
        }
        if self.shows_prompt {
            let mut err = crate::ui::output::stderr();
            let _ = write!(err, "{}", question.prompt);
            let _ = err.flush();
        }
        if question.is_sudden && self.shows_prompt {
            std::thread::sleep(SEEN);
            drop_typed();
        }
        match &self.ahead {
            Some(ahead) => ahead.recv().map_or(UserReply::End, UserReply::Line),
            None => read_message(&mut std::io::stdin().lock()),
        }
    }
}

fn read_ahead(stops: Stops) -> Receiver<String> {
    let (sender, lines) = channel();
    let reading = move || {
        while let UserReply::Line(line) = read_message(&mut std::io::stdin().lock()) {
            if line.trim() == STOP {
                stops();
            } else if sender.send(line).is_err() {
                return;
            }
        }
    };
    // If the thread fails to start, its end of the channel is dropped, which reads as the end of
    // the input.
    let _ = std::thread::Builder::new().name("conclave-lines".to_owned()).spawn(reading);
    lines
}

fn read_message(input: &mut impl BufRead) -> UserReply {
    let mut message = String::new();
    loop {
        let mut line = Vec::new();
        // A line that is not UTF-8 is read lossily, since ending the conversation for it would be
        // worse.
        let read = input.read_until(b'\n', &mut line).unwrap_or_else(|_| {
            hang_up::note_failed_read();
            0
        });
        if read == 0 {
            return if message.is_empty() { UserReply::End } else { UserReply::Line(message) };
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(part) => {
                message.push_str(part);
                message.push('\n');
            }
            None => {
                message.push_str(line);
                return UserReply::Line(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{UserReply, read_message};

    #[test]
    fn a_trailing_backslash_joins_the_next_line() {
        let mut input = "one\\\ntwo\r\n\nlast".as_bytes();
        assert_eq!(read_message(&mut input), UserReply::Line("one\ntwo".into()));
        assert_eq!(read_message(&mut input), UserReply::Line(String::new()));
        assert_eq!(read_message(&mut input), UserReply::Line("last".into()));
        assert_eq!(read_message(&mut input), UserReply::End);
    }

    #[test]
    fn invalid_utf8_does_not_end_the_input() {
        let mut input: &[u8] = b"a\xff\nb\n";
        assert_eq!(read_message(&mut input), UserReply::Line("a\u{fffd}".into()));
        assert_eq!(read_message(&mut input), UserReply::Line("b".into()));
    }
}
