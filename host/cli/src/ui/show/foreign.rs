//! Untrusted text in rows of a terminal. Every row has a mark in front, so that none can be taken
//! for the program's own. No row is wider than the terminal, and characters that a reader could
//! miss are escaped.

use std::fmt::Write as _;

use anstyle::Style;
use conclave_core::types::text::{is_deceptive, is_emoji_joiner};
use unicode_security::skeleton;

use super::{FAINT, paint};

/// The mark in front of every row.
pub(crate) const MARK: &str = "│ ";
/// Columns of the mark.
pub(crate) const MARK_COLUMNS: usize = 2;
/// The sign for a line end in text that is shown in one row.
const LINE_END: &str = " ↵ ";

/// The treatment of runs of blanks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    /// Escaped, for text that a user consents to.
    Escaped,
    /// Unchanged, for text that is only read: code, tables, lists.
    Kept,
}

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

/// The text with all characters escaped that a reader could miss or misread: control and invisible
/// characters, white space other than single spaces, and endless combining marks. A run of one such
/// character is written once: `\u{a0}×1998`.
pub(crate) fn escaped(text: &str) -> String {
    escape(text, Blanks::Escaped)
}

/// The text escaped like [`escaped`], but keeps its runs of blanks, for text that is only read.
pub(crate) fn readable(text: &str) -> String {
    escape(text, Blanks::Kept)
}

fn escape(text: &str, blanks: Blanks) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let (mut before, mut marks) = (None, 0);
    while let Some(c) = chars.next() {
        marks = if is_combining(c) { marks + 1 } else { 0 };
        let is_plain = match c {
            '\n' => true,
            ' ' => blanks == Blanks::Kept || chars.peek() != Some(&' '),
            '\t' if blanks == Blanks::Kept => {
                escaped.push_str("    ");
                continue;
            }
            // A carriage return before a line feed is part of a line end.
            '\r' if blanks == Blanks::Kept && chars.peek() == Some(&'\n') => continue,
            c => is_shown_as_it_is(before, c, marks),
        };
        before = Some(c);
        if is_plain {
            escaped.push(c);
            continue;
        }
        let mut run = 1_u64;
        while chars.next_if_eq(&c).is_some() {
            run += 1;
        }
        escaped.extend(c.escape_unicode());
        if run > 1 {
            let _ = write!(escaped, "×{run}");
        }
    }
    escaped
}

/// Returns JSON text with the characters that [`readable`] escapes as `\uXXXX`. A parser reads the
/// same values, since JSON has none of them outside of strings.
pub(crate) fn escape_json(json: &str) -> String {
    let (mut escaped, mut before, mut marks) = (String::with_capacity(json.len()), None, 0);
    for c in json.chars() {
        marks = if is_combining(c) { marks + 1 } else { 0 };
        let is_layout = matches!(c, ' ' | '\n' | '\t' | '\r');
        let is_plain = is_layout || is_shown_as_it_is(before, c, marks);
        before = Some(c);
        if is_plain {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

/// Whether a character other than a blank can be shown. `marks` is the number of characters without
/// a width in a row, including this one.
fn is_shown_as_it_is(before: Option<char>, c: char, marks: u32) -> bool {
    !c.is_whitespace() && (!is_deceptive(c) || is_emoji_joiner(before, c)) && marks <= MARKS_MAX
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

/// Combining marks on one letter, at most: more than any script needs.
const MARKS_MAX: u32 = 3;

/// Whether the character has no width of its own and is not a control character.
fn is_combining(c: char) -> bool {
    unicode_width::UnicodeWidthChar::width(c) == Some(0)
}

/// A word of the text that is confusable with ASCII, and the word that it resembles. `None` if
/// there is no such word.
pub(crate) fn look_alike(text: &str) -> Option<(String, String)> {
    let words = text.split(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '(' | ')' | '{' | '}' | '[' | ']')
    });
    // Escaped characters cannot be confused with others.
    let is_shown = |word: &&str| !word.is_ascii() && !word.chars().any(is_deceptive);
    words.filter(is_shown).find_map(|word| {
        let seen = looks(word);
        let is_mixed = word.chars().any(|c| c.is_ascii_alphabetic()) && has_look_alike_letter(word);
        (seen.is_ascii() || is_mixed).then(|| (word.to_owned(), seen))
    })
}

/// The word with each letter that is not ASCII replaced by the ASCII letter that it resembles.
fn looks(word: &str) -> String {
    let mut of_one = [0; 4];
    word.chars().fold(String::new(), |mut seen, c| {
        if c.is_ascii() {
            seen.push(c);
        } else {
            seen.extend(skeleton(c.encode_utf8(&mut of_one)));
        }
        seen
    })
}

/// Whether a letter of the word that is not ASCII resembles one that is.
fn has_look_alike_letter(word: &str) -> bool {
    let mut of_one = [0; 4];
    word.chars().any(|c| !c.is_ascii() && looks(c.encode_utf8(&mut of_one)).is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_could_miss_is_escaped() {
        let cases = [
            ("a b", "a b"),
            ("a  b", "a\\u{20}×2b"),
            ("a\u{a0}b", "a\\u{a0}b"),
            ("\u{a0}\u{a0}\u{a0}", "\\u{a0}×3"),
            ("\u{3000}\t", "\\u{3000}\\u{9}"),
            ("x\u{1b}[2J\u{202e}", "x\\u{1b}[2J\\u{202e}"),
            ("one\ntwo", "one\ntwo"),
            ("e\u{301}", "e\u{301}"),
            ("Zürich 漢字", "Zürich 漢字"),
        ];
        for (text, expected) in cases {
            assert_eq!(escaped(text), expected, "{text:?}");
        }
        let tower = format!("a{}", "\u{301}".repeat(40));
        assert!(
            escaped(&tower).chars().filter(|c| *c == '\u{301}').count() <= 3,
            "{}",
            escaped(&tower)
        );
    }

    #[test]
    fn json_holds_no_character_that_deceives_and_reads_back() {
        let value = serde_json::json!({
            "osc \u{9d}0;x\u{9c}": "\u{9b}2J\u{202e}abc\u{2066}\u{7f}\u{1b}[2J",
            "plain": "Zürich  漢字 \u{1f469}\u{200d}\u{1f4bb}\n\ttab",
            "beyond": "\u{e0041}\u{f0000}\u{a0}\u{2028}",
            "marks": format!("a{}", "\u{301}".repeat(9)),
        });
        for text in [value.to_string(), format!("{value:#}")] {
            let escaped = escape_json(&text);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
            let joined = |c| matches!(c, '\u{200d}' | '\u{fe0f}' | '\n');
            assert!(!escaped.chars().any(|c| is_deceptive(c) && !joined(c)), "{escaped}");
            assert!(escaped.contains("\\u009b2J\\u202eabc") && escaped.contains("\\udb40\\udc41"));
            assert!(escaped.contains("Zürich  漢字 \u{1f469}\u{200d}\u{1f4bb}"), "{escaped}");
            assert_eq!(escaped.matches('\u{301}').count(), 3);
        }
    }

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
        assert_eq!(words(&text_out), words(&escape(&text, Blanks::Kept)), "nothing is lost");
        let rows: Vec<&str> = text_out.lines().map(str::trim_end).take(5).collect();
        assert_eq!(
            rows,
            ["│ One two three four", "│ five six seven", "│", "│   eight \\u{1b}[2J", "│ \\u{a0}"]
        );
    }

    #[test]
    fn words_that_look_like_others_are_found() {
        for (text, seen) in [
            ("/notes/\u{441}\u{43e}\u{440}\u{443}.md", "/notes/copy.md"),
            ("\u{251}dmin", "admin"),
            ("..\u{2215}..\u{2215}etc", "../../etc"),
            ("\u{2024}\u{2024}", ".."),
            ("a\u{ff0f}b", "a/b"),
            ("\u{fb01}le", "file"),
        ] {
            let (_, found) = look_alike(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found, seen, "{text}");
        }
        assert!(look_alike("p\u{430}ypal").is_some());
        for text in ["Zürich", "naïve café", "日本語", "привет", "plain", "größe"] {
            assert_eq!(look_alike(text), None, "{text}");
        }
    }
}
