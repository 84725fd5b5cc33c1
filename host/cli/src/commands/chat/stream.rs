//! Streamed text on its way to the screen. A piece may end anywhere. On a terminal, pieces become
//! rows with a mark, and everything that could steer it is escaped across piece boundaries.

use crate::ui::show::foreign::Flow;

/// Makes the pieces of one answer printable.
#[derive(Debug)]
pub(crate) struct PieceStream {
    /// The row layout for a terminal; `None` leaves text for a pipe unchanged.
    flow: Option<Flow>,
    /// White space that is printed only when more text follows: an answer neither begins nor ends
    /// with empty lines.
    pending_space: String,
    has_text: bool,
    text: String,
}

impl PieceStream {
    /// Creates a stream for a terminal with this many columns, or for a pipe.
    pub(crate) fn new(columns: Option<usize>) -> Self {
        Self {
            flow: columns.map(Flow::new),
            pending_space: String::new(),
            has_text: false,
            text: String::new(),
        }
    }

    /// Returns the part of the text so far that can be printed now.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        let mut printable = String::with_capacity(piece.len());
        for c in piece.chars() {
            match c {
                '\n' | ' ' | '\t' if self.has_text => self.pending_space.push(c),
                '\n' | ' ' | '\t' => {}
                _ => {
                    self.has_text = true;
                    for space in std::mem::take(&mut self.pending_space).chars() {
                        self.show(space, &mut printable);
                    }
                    self.show(c, &mut printable);
                }
            }
        }
        printable
    }

    /// Records that other output has ended the row.
    pub(crate) fn row_ended(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.row_ended();
        }
    }

    /// Returns the rest of the last word, which was held back.
    pub(crate) fn finish(&mut self) -> String {
        let mut printable = String::new();
        if let Some(flow) = &mut self.flow {
            flow.finish(&mut printable);
        }
        printable
    }

    fn show(&mut self, c: char, printable: &mut String) {
        match &mut self.flow {
            Some(flow) => flow.push(c, printable),
            None => printable.push(c),
        }
    }

    /// Whether nothing was printed yet.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_text
    }

    /// Whether the stream already showed this text, ignoring surrounding white space.
    pub(crate) fn has_said(&self, text: &str) -> bool {
        self.has_text && self.text.trim() == text.trim()
    }

    /// The whole text as it arrived.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::PieceStream;

    fn print(pieces: &[&str]) -> String {
        let mut stream = PieceStream::new(Some(40));
        let printable: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        printable + &stream.finish()
    }

    #[test]
    fn a_cut_anywhere_prints_the_same() {
        let text = "\u{1f469}\u{200d}\u{1f4bb} a\u{1b}[2J\u{1b}]0;title\u{7} b\u{202e}c\r\nd é 漢 \u{9b}31m\n\n  e, and more than one row";
        let expected = print(&[text]);
        for (cut, _) in text.char_indices() {
            let (before, after) = text.split_at(cut);
            assert_eq!(print(&[before, after]), expected, "cut at {cut}");
        }
        let one_by_one: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(print(&one_by_one.iter().map(String::as_str).collect::<Vec<_>>()), expected);
        assert!(expected.lines().all(|row| row.starts_with("│ ")), "{expected}");
    }

    #[test]
    fn streamed_text_cannot_control_the_terminal() {
        let printable = print(&["\u{1b}", "[2", "J", "\u{202e}x\r", "y\u{8}"]);
        assert_eq!(printable, "│ \\u{1b}[2J\\u{202e}xy\\u{8}");
    }

    #[test]
    fn empty_lines_around_an_answer_are_left_out() {
        assert_eq!(print(&["\n\n", "  one", " \n", "\n", "two", "\n", "\n "]), "│ one \n│ \n│ two");
    }

    /// H2 of the second hostile pass: a line of the program ended the row, and the rest stood at
    /// its left edge.
    #[test]
    fn text_after_an_interruption_is_marked() {
        let mut stream = PieceStream::new(Some(80));
        assert_eq!(stream.push("Done. It"), "│ Done. ");
        stream.row_ended();
        assert_eq!(stream.push(" now"), "│ It ");
        stream.row_ended();
        assert_eq!(stream.finish(), "│ now");
    }

    #[test]
    fn streamed_text_to_a_pipe_is_unchanged() {
        let mut stream = PieceStream::new(None);
        assert_eq!(stream.push("a\u{1b}[1mb"), "a\u{1b}[1mb");
    }

    #[test]
    fn a_streamed_completion_is_not_printed_twice() {
        let mut stream = PieceStream::new(Some(80));
        assert!(stream.is_empty() && !stream.has_said(""));
        stream.push("\nhello ");
        stream.push("you\n");
        assert!(stream.has_said("hello you") && !stream.has_said("hello"));
        assert_eq!(stream.text(), "\nhello you\n");
    }
}
