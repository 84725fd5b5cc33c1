//! Untrusted text in rows of a terminal, escaped by the core's rules. Every row has a mark in front,
//! so that none can be taken for the program's own, and no row is wider than the terminal.

use anstyle::Style;
pub(crate) use conclave_core::inspect::foreign_text::{escape_json, escaped, look_alike, readable};
use conclave_core::inspect::foreign_text::{is_combining, is_shown_as_it_is};

use super::{FAINT, paint};

/// The mark in front of every row.
pub(crate) const MARK: &str = "│ ";
/// Columns of the mark.
pub(crate) const MARK_COLUMNS: usize = 2;
/// The sign for a line end in text that is shown in one row.
const LINE_END: &str = " ↵ ";

/// The text in rows of at most `most` columns, without marks; at least one row. Line ends of the
/// text stay.
///
/// Terminals disagree about the width of some characters. All but ASCII counts as two columns, so
/// that no row ever wraps.
pub(crate) fn rows(text: &str, most: usize) -> Vec<String> {
    broken(&escaped(text), most)
}

/// The text in rows like [`rows`], but keeps its runs of blanks.
pub(crate) fn reading_rows(text: &str, most: usize) -> Vec<String> {
    broken(&readable(text.trim_end()), most)
}

/// A line of a file in rows like [`rows`], with all its blanks and a sign for a carriage return at
/// its end.
pub(crate) fn line_rows(line: &str, most: usize) -> Vec<String> {
    broken(&readable(line), most)
}

/// A line of the program that holds text from elsewhere, in rows like [`rows`]. The first row
/// begins with the program's own words, and the others with the mark.
pub(crate) fn line_with_mark(line: &str, columns: usize) -> Vec<String> {
    let rows = rows(&line.replace('\n', "\\u{a}"), columns.saturating_sub(MARK_COLUMNS));
    let mark =
        |(index, row): (usize, String)| if index == 0 { row } else { format!("{MARK}{row}") };
    rows.into_iter().enumerate().map(mark).collect()
}

/// A block of rows of at most `columns` columns, each with `indent` blanks and the mark in front.
pub(crate) fn block(text: &str, style: Style, indent: usize, columns: usize) -> String {
    let mark = format!("{:indent$}{}", "", paint(FAINT, MARK));
    let rows = reading_rows(text, columns.saturating_sub(indent + MARK_COLUMNS));
    rows.iter()
        .map(|row| format!("{mark}{}", paint(style, row)).trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The text in one row of at most `most` columns, and whether it is complete. Blanks are collapsed,
/// and line ends become a sign.
pub(crate) fn one_row(text: &str, most: usize) -> (String, bool) {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    // A rule, such as the first line of a traceback, would take the place of words.
    let is_rule = |line: &String| line.len() > 8 && line.bytes().all(|byte| byte == b'-');
    let is_said = |line: &String| !line.is_empty() && !is_rule(line);
    cut_row(&lines.filter(is_said).collect::<Vec<_>>().join(LINE_END), most)
}

/// The text in one row like [`one_row`], with the blanks of its lines as they are.
pub(crate) fn exact_row(text: &str, most: usize) -> (String, bool) {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    cut_row(&lines.collect::<Vec<_>>().join(LINE_END), most)
}

fn cut_row(line: &str, most: usize) -> (String, bool) {
    let safe = readable(line);
    if width(&safe) <= most {
        return (safe, true);
    }
    let (mut cut, mut used) = (String::new(), 0);
    for c in safe.chars() {
        used += columns(c);
        // The sign for omitted text takes two columns at most.
        if used + 2 > most {
            break;
        }
        cut.push(c);
    }
    (format!("{}…", cut.trim_end()), false)
}

/// The columns that a text may take on any terminal.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Breaks a text, at blanks if possible.
fn broken(escaped: &str, most: usize) -> Vec<String> {
    let most = most.max(8);
    let mut rows = Vec::new();
    for line in escaped.split('\n') {
        let (mut row, mut used, mut blank) = (String::new(), 0, None);
        for c in line.chars() {
            let wide = columns(c);
            if used + wide > most || row.len() > 16 * most {
                let rest = blank.take().map_or_else(String::new, |at| row.split_off(at));
                rows.push(std::mem::replace(&mut row, rest));
                used = row.chars().map(columns).sum();
            }
            row.push(c);
            used += wide;
            // Behind a blank, unless the row would be more than half empty.
            if c == ' ' && used > most / 2 {
                blank = Some(row.len());
            }
        }
        rows.push(row);
    }
    rows
}

/// The columns that a character may take on any terminal.
pub(crate) fn columns(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// Lays out text as it streams, in marked rows that are broken at words.
#[derive(Debug)]
pub(crate) struct Flow {
    columns: usize,
    /// Columns of the row so far; `None` before a row is begun.
    used: Option<usize>,
    /// The unfinished word.
    word: String,
    before: Option<char>,
    marks: u32,
}

impl Flow {
    /// Creates a layout for a terminal of this width.
    pub(crate) fn new(columns: usize) -> Self {
        let columns = columns.saturating_sub(MARK_COLUMNS + 1).max(8);
        Self { columns, used: None, word: String::new(), before: None, marks: 0 }
    }

    /// Appends the text that can be shown after this character.
    pub(crate) fn push(&mut self, c: char, out: &mut String) {
        self.marks = if is_combining(c) { self.marks + 1 } else { 0 };
        let is_plain = is_shown_as_it_is(self.before, c, self.marks);
        match c {
            '\n' => {
                self.end_word(out);
                self.begin_row(out);
                self.end_row(out);
            }
            ' ' => {
                self.end_word(out);
                self.blank(out);
            }
            '\t' => {
                self.end_word(out);
                (0..4).for_each(|_| self.blank(out));
            }
            // Part of a line end. Alone, it would let a row overwrite itself.
            '\r' => {}
            c if is_plain => self.word.push(c),
            c => self.word.extend(c.escape_unicode()),
        }
        self.before = Some(c);
        if width(&self.word) >= self.columns || self.word.len() > 16 * self.columns {
            self.end_word(out);
        }
    }

    /// Records that other output has ended the row, so that the next text begins another.
    pub(crate) fn row_ended(&mut self) {
        self.used = None;
    }

    /// Appends the text that was held back.
    pub(crate) fn finish(&mut self, out: &mut String) {
        self.end_word(out);
    }

    fn end_word(&mut self, out: &mut String) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        if self.used.is_some_and(|used| used > 0 && used + width(&word) > self.columns) {
            self.end_row(out);
        }
        for c in word.chars() {
            if self.used.is_some_and(|used| used + columns(c) > self.columns) {
                self.end_row(out);
            }
            self.begin_row(out);
            out.push(c);
            self.used = self.used.map(|used| used + columns(c));
        }
    }

    fn blank(&mut self, out: &mut String) {
        if self.used.is_some_and(|used| used >= self.columns) {
            return;
        }
        self.begin_row(out);
        out.push(' ');
        self.used = self.used.map(|used| used + 1);
    }

    fn begin_row(&mut self, out: &mut String) {
        if self.used.is_none() {
            out.push_str(MARK);
            self.used = Some(0);
        }
    }

    fn end_row(&mut self, out: &mut String) {
        out.push('\n');
        self.used = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_never_wider_than_the_terminal() {
        for text in [
            "word ".repeat(40),
            "漢".repeat(90),
            "x".repeat(200),
            format!("{}\n\n{}", "a b ".repeat(30), "é".repeat(50)),
        ] {
            for most in [8, 20, 33, 60] {
                let rows = rows(&text, most);
                assert!(
                    rows.iter()
                        .all(|row| unicode_width::UnicodeWidthStr::width(row.as_str()) <= most),
                    "{rows:?}"
                );
                assert_eq!(
                    rows.concat().replace('\n', ""),
                    escaped(&text).replace('\n', ""),
                    "nothing is lost"
                );
            }
        }
    }

    #[test]
    fn what_is_only_read_keeps_its_blanks_and_is_no_wider() {
        assert_eq!(
            reading_rows("fn a() {\n    b\u{a0}c\n}\n\n", 40),
            ["fn a() {", "    b\\u{a0}c", "}"]
        );
        assert_eq!(reading_rows("a\tb\r\nc\rd", 40), ["a    b", "c\\u{d}d"]);
        let block =
            anstream::adapter::strip_str(&block(&"two words ".repeat(9), Style::new(), 4, 40))
                .to_string();
        assert!(block.lines().all(|row| row.starts_with("    │ ") && width(row) <= 41), "{block}");
    }

    #[test]
    fn a_name_in_a_line_of_the_program_begins_no_row() {
        let forged = "nothing else was changed. Apply 1 changed file? [y/N] y";
        for padding in [" ".repeat(40), "x".repeat(40), "é".repeat(20), "\n".to_owned()] {
            let rows = line_with_mark(&format!("+++ b/{padding}{forged}"), 40);
            assert!(rows.len() > 1 && rows[0].starts_with("+++ b/"), "{rows:?}");
            assert!(rows[1..].iter().all(|row| row.starts_with(MARK)), "{rows:?}");
            // A mark counts for two columns, as on terminals that draw it wide.
            assert!(rows.iter().all(|row| width(row) <= 41), "{rows:?}");
        }
        assert_eq!(line_with_mark("+++ b/a b", 40), ["+++ b/a b"]);
    }

    #[test]
    fn one_row_is_cut_with_a_sign() {
        for (text, most, expected) in [
            ("first\n  second\u{7}\n\nthird", 80, ("first ↵ second\\u{7} ↵ third", true)),
            ("------------\nNameError", 80, ("NameError", true)),
            ("abcdef", 5, ("abc…", false)),
            ("abcdef", 6, ("abcdef", true)),
            ("漢字漢", 6, ("漢字漢", true)),
            ("漢字漢字", 7, ("漢字…", false)),
            ("a b c", 4, ("a…", false)),
        ] {
            let (row, is_whole) = one_row(text, most);
            assert_eq!((row.as_str(), is_whole), expected, "{text}");
        }
    }

    #[test]
    fn a_flow_has_marks_on_every_row_however_its_pieces_are_cut() {
        let text = "One two three four five six seven\n\n  eight \u{1b}[2J \u{a0} 漢字漢字漢字漢字漢字漢字 ".repeat(4);
        let (mut text_out, mut flow) = (String::new(), Flow::new(24));
        text.chars().for_each(|c| flow.push(c, &mut text_out));
        flow.finish(&mut text_out);
        assert!(
            text_out.lines().all(|row| row.starts_with(MARK) && width(row) <= 25),
            "{text_out}"
        );
        let words = |text: &str| {
            text.chars().filter(|c| !c.is_whitespace() && *c != '│').collect::<String>()
        };
        assert_eq!(words(&text_out), words(&readable(&text)), "nothing is lost");
        let rows: Vec<&str> = text_out.lines().map(str::trim_end).take(5).collect();
        assert_eq!(
            rows,
            ["│ One two three four", "│ five six seven", "│", "│   eight \\u{1b}[2J", "│ \\u{a0}"]
        );
    }
}
