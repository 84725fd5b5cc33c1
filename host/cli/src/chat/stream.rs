//! Streamed text on its way to the screen. Pieces may be cut anywhere; what could steer a terminal is escaped one character at a time,
//! so no cut lets anything through.

use conclave_core::text::{is_deceptive, joins_pictures};

/// Makes the pieces of one answer printable.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Escape what steers a terminal; what goes to a pipe stays as it is.
    escapes: bool,
    /// White space that is printed once more text follows: an answer neither begins nor ends with empty lines.
    held: String,
    begun: bool,
    said: String,
    /// The character that came last, whatever became of it.
    before: Option<char>,
}

impl Stream {
    pub(crate) fn new(escapes: bool) -> Self {
        Self { escapes, held: String::new(), begun: false, said: String::new(), before: None }
    }

    /// The part of the piece that can be printed now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.said.push_str(piece);
        let mut shown = String::with_capacity(piece.len());
        for c in piece.chars() {
            match c {
                '\n' | ' ' | '\t' if self.begun => self.held.push(c),
                '\n' | ' ' | '\t' => {}
                // Half of another system's line end; alone it would let a line overwrite itself.
                '\r' if self.escapes => {}
                _ => {
                    self.begun = true;
                    shown.push_str(&std::mem::take(&mut self.held));
                    self.show(c, &mut shown);
                }
            }
            self.before = Some(c);
        }
        shown
    }

    fn show(&self, c: char, shown: &mut String) {
        if self.escapes && is_deceptive(c) && !joins_pictures(self.before, c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }

    /// Nothing was printed of it.
    pub(crate) fn is_empty(&self) -> bool {
        !self.begun
    }

    /// It said this already, give or take the white space around it.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.begun && self.said.trim() == text.trim()
    }

    /// All of it, as it came.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }
}

#[cfg(test)]
mod tests {
    use super::Stream;

    fn whole(pieces: &[&str]) -> String {
        let mut stream = Stream::new(true);
        pieces.iter().map(|piece| stream.push(piece)).collect()
    }

    #[test]
    fn a_cut_anywhere_prints_the_same() {
        let text = "\u{1f469}\u{200d}\u{1f4bb} a\u{1b}[2J\u{1b}]0;title\u{7} b\u{202e}c\r\nd é 漢 \u{9b}31m\n\n  e";
        let expected = whole(&[text]);
        for (cut, _) in text.char_indices() {
            let (before, after) = text.split_at(cut);
            assert_eq!(whole(&[before, after]), expected, "cut at {cut}");
        }
        let one_by_one: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(whole(&one_by_one.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn no_piece_steers_the_terminal() {
        let shown = whole(&["\u{1b}", "[2", "J", "\u{202e}x\r", "y\u{8}"]);
        assert_eq!(shown, "\\u{1b}[2J\\u{202e}xy\\u{8}");
    }

    #[test]
    fn empty_lines_around_an_answer_are_left_out() {
        assert_eq!(whole(&["\n\n", "  one", " \n", "\n", "two", "\n", "\n "]), "one \n\ntwo");
    }

    #[test]
    fn what_goes_to_a_pipe_stays_as_it_is() {
        let mut stream = Stream::new(false);
        assert_eq!(stream.push("a\u{1b}[1mb"), "a\u{1b}[1mb");
    }

    #[test]
    fn a_completion_that_was_streamed_is_known_again() {
        let mut stream = Stream::new(true);
        assert!(stream.is_empty() && !stream.has_said(""));
        stream.push("\nhello ");
        stream.push("you\n");
        assert!(stream.has_said("hello you") && !stream.has_said("hello"));
        assert_eq!(stream.said(), "\nhello you\n");
    }
}
