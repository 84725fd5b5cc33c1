//! Text in columns of a terminal, cut or wrapped at its displayed width. Characters that could
//! steer a terminal are escaped. This module knows nothing of the columns' contents.

use anstyle::Style;
use conclave_core::types::text::{is_deceptive, is_emoji_joiner};
use unicode_width::UnicodeWidthChar;

use super::paint;

/// The sign for a line end in text that is shown on one line.
const LINE_END: &str = "↵ ";
/// Columns of a tab.
const TAB: &str = "    ";

/// A piece of a line with its own style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StyledText {
    pub(crate) style: Style,
    pub(crate) text: String,
}

impl StyledText {
    pub(crate) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { style, text: text.into() }
    }

    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(Style::new(), text)
    }
}

/// Text cut to a width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FittedText {
    pub(crate) text: String,
    pub(crate) columns: usize,
    /// Whether text was cut off.
    pub(crate) is_cut: bool,
}

/// Joins the parts with blanks, in at most `most` columns. Returns the line and its columns.
pub(crate) fn line(parts: &[StyledText], most: usize) -> (String, usize) {
    let (mut row, mut used) = (String::new(), 0);
    for (index, part) in parts.iter().enumerate() {
        let gap = usize::from(used > 0);
        // The sign for omitted text needs a column too.
        let is_last = index + 1 == parts.len();
        let room = most.saturating_sub(used + gap + usize::from(!is_last) * 2);
        if room == 0 {
            row.push('…');
            return (row, used + 1);
        }
        let piece = cut(&part.text, room);
        if piece.columns == 0 {
            continue;
        }
        row.push_str(&" ".repeat(gap));
        row.push_str(&paint(part.style, &piece.text));
        used += gap + piece.columns;
        if piece.is_cut {
            return (row, used);
        }
    }
    (row, used)
}

/// The parts in exactly `width` columns.
pub(crate) fn cell(parts: &[StyledText], width: usize) -> String {
    let (mut row, used) = line(parts, width);
    row.push_str(&" ".repeat(width.saturating_sub(used)));
    row
}

/// The text in one line of at most `most` columns. Of a long text, only the part that can be shown
/// is examined.
pub(crate) fn cut(text: &str, most: usize) -> FittedText {
    let (mut row, mut used) = (String::new(), 0);
    // The position for the sign, should the text be cut.
    let mut fits = (0, 0);
    let (mut before, mut gap) = (None, "");
    for c in text.trim().chars() {
        if c.is_whitespace() {
            gap = if c == '\n' || gap == LINE_END { LINE_END } else { " " };
            continue;
        }
        if gap == LINE_END {
            used += push(' ', None, &mut row);
        }
        for c in std::mem::take(&mut gap).chars() {
            used += push(c, None, &mut row);
        }
        // The position before this character, where blanks before it still fit.
        if used < most {
            fits = (row.len(), used);
        }
        used += push(c, before, &mut row);
        before = Some(c);
        if used > most || is_flood(&row, most) {
            row.truncate(fits.0);
            let end = row.trim_end().len();
            let blanks = row.len() - end;
            row.truncate(end);
            if most > 0 {
                row.push('…');
            }
            return FittedText {
                text: row,
                columns: (fits.1 - blanks + 1).min(most),
                is_cut: true,
            };
        }
        if used < most {
            fits = (row.len(), used);
        }
    }
    FittedText { text: row, columns: used, is_cut: false }
}

/// The text in lines of at most `most` columns, broken at blanks if possible. Its own line ends
/// stay.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let most = most.max(8);
    text.trim_end().lines().flat_map(|line| wrap_line(line, most)).collect()
}

fn wrap_line(line: &str, most: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    let (mut before, mut blank) = (None, None);
    for c in line.chars() {
        let from = row.len();
        if c == '\t' {
            row.push_str(TAB);
            used += TAB.len();
        } else {
            used += push(c, before, &mut row);
        }
        before = Some(c);
        if (used > most || is_flood(&row, most)) && from > 0 {
            let rest = row.split_off(blank.take().unwrap_or(from));
            rows.push(row.trim_end().to_owned());
            row = rest.trim_start().to_owned();
            used = row.chars().map(columns).sum();
        }
        if c == ' ' {
            blank = Some(row.len()).filter(|at| *at > 0);
        }
    }
    rows.push(row.trim_end().to_owned());
    rows
}

/// A line of the program's own, with its styles, in rows of at most `most` columns, broken at
/// blanks. Further rows are aligned with the first one, or indented slightly more.
pub(crate) fn wrap_styled(line: &str, most: usize) -> Vec<String> {
    wrap_hanging(line, 0, most)
}

/// A line in rows like [`wrap_styled`]. Further rows begin at column `hang`, such as behind a
/// label, or with the first row if it is 0.
pub(crate) fn wrap_hanging(line: &str, hang: usize, most: usize) -> Vec<String> {
    let blanks = line.len() - line.trim_start_matches(' ').len();
    let indent = if hang > 0 { hang.min(most / 2) } else { blanks.max(2).min(most / 3) };
    let indent = " ".repeat(indent);
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    // The position behind the last blank, in bytes and in columns.
    let (mut blank, mut is_style) = (None, false);
    for c in line.chars() {
        if is_style || c == '\u{1b}' {
            is_style = c != 'm';
            row.push(c);
            continue;
        }
        if c == ' ' && used >= most {
            rows.push(std::mem::replace(&mut row, indent.clone()).trim_end().to_owned());
            (used, blank) = (indent.len(), None);
            continue;
        }
        if used + columns(c) > most && used > indent.len() {
            let (at, before) = blank.take().unwrap_or((row.len(), used));
            let rest = row.split_off(at);
            rows.push(row.trim_end().to_owned());
            row = format!("{indent}{rest}");
            used = indent.len() + used - before;
        }
        row.push(c);
        used += columns(c);
        if c == ' ' && used > indent.len().max(blanks) {
            blank = Some((row.len(), used));
        }
    }
    if rows.is_empty() || !row.trim().is_empty() {
        rows.push(row);
    }
    rows
}

/// The columns of a text that is shown unchanged.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Appends a character in printable form. Returns its columns.
fn push(c: char, before: Option<char>, row: &mut String) -> usize {
    if is_deceptive(c) && !is_emoji_joiner(before, c) {
        let from = row.len();
        row.extend(c.escape_unicode());
        return row.len() - from;
    }
    row.push(c);
    columns(c)
}

fn columns(c: char) -> usize {
    match c {
        // The sign before it may then be shown as an emoji, which is wider.
        '\u{fe0f}' => 1,
        // Accents, and the joiner of pictures, which no terminal gives a column.
        '\u{300}'..='\u{36f}' | '\u{200d}' => 0,
        // Terminals disagree about other characters without a width. The largest count is safe: a
        // row that is wider than it was counted would begin a row of its own.
        c => c.width().map_or(1, |width| if width == 0 { 2 } else { width }),
    }
}

/// Whether a line has too many characters without a width, such as endless accents.
fn is_flood(row: &str, most: usize) -> bool {
    row.len() > 64 + 16 * most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_its_width_with_a_mark() {
        let cases = [
            ("abcdef", 4, "abc…", 4),
            ("abcd", 4, "abcd", 4),
            ("ab cd", 4, "ab…", 3),
            ("漢字漢字", 6, "漢字…", 5),
            ("漢字漢", 6, "漢字漢", 6),
            ("a\u{301}b\u{301}c", 2, "a\u{301}…", 2),
            // Terminals show these in two columns, though Unicode gives them none.
            ("a\u{302e}b", 4, "a\u{302e}b", 4),
            ("a\u{302e}b", 3, "a…", 2),
            ("  two  blanks\t here ", 80, "two blanks here", 15),
            ("one\n\n two\r\nthree", 80, "one ↵ two ↵ three", 17),
            ("x\u{1b}[2Jy\u{202e}", 80, "x\\u{1b}[2Jy\\u{202e}", 19),
            ("x\u{1b}[2J", 4, "x…", 2),
            ("", 4, "", 0),
            ("a", 0, "", 0),
        ];
        for (text, most, expected, columns) in cases {
            let cut = cut(text, most);
            assert_eq!((cut.text.as_str(), cut.columns), (expected, columns), "{text:?} in {most}");
        }
    }

    #[test]
    fn text_is_wrapped_at_blanks_and_words_that_are_too_long_are_broken() {
        assert_eq!(wrap("one two three\n\n  four\n", 9), ["one two", "three", "", "  four"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("漢字漢字漢", 8), ["漢字漢字", "漢"]);
        assert_eq!(wrap("a\u{1b}b", 80), ["a\\u{1b}b"]);
        assert!(wrap("\n", 80).is_empty());
    }

    #[test]
    fn no_row_is_wider_than_it_may_be_and_nothing_is_lost() {
        let text = "Ein längerer Satz\u{7}, 漢字 und \u{1f469}\u{200d}\u{1f4bb} ohne_ein_einziges_Leerzeichen_darin.".repeat(20);
        for most in 8..60 {
            let rows = wrap(&text, most);
            assert!(rows.iter().all(|row| width(row) <= most), "{most}");
            let unbroken =
                |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(
                unbroken(&rows.concat()),
                unbroken(&super::super::printable(&text)),
                "{most}"
            );
            assert!(width(&cut(&text, most).text) <= most);
        }
    }

    #[test]
    fn a_styled_line_is_broken_at_words_and_hangs() {
        let plain = |line: &str, most| -> Vec<String> {
            wrap_styled(line, most)
                .iter()
                .map(|row| anstream::adapter::strip_str(row).to_string())
                .collect()
        };
        assert_eq!(plain("help: one two three", 12), ["help: one", "  two three"]);
        assert_eq!(plain("    one two three four", 12), ["    one two", "    three", "    four"]);
        assert_eq!(
            plain(&format!("{} four", paint(super::super::BAD, "one two three")), 8),
            ["one two", "  three", "  four"]
        );
        assert_eq!(plain("abcdefghijkl", 8), ["abcdefgh", "  ijkl"]);
        assert_eq!(plain("short", 80), ["short"]);
        assert_eq!(plain("one two ", 7), ["one two"]);
        let hanging = |line: &str, hang, most| -> Vec<String> {
            let rows = wrap_hanging(line, hang, most);
            rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
        };
        let label = format!("{}   one two three", paint(super::super::GOOD, "ok"));
        assert_eq!(hanging(&label, 5, 15), ["ok   one two", "     three"]);
        let line = format!(
            "  {} and more of it, {}",
            "word ".repeat(30),
            paint(super::super::FAINT, "conclave why ".repeat(9))
        );
        for most in 20..90 {
            assert!(plain(&line, most).iter().all(|row| width(row) <= most), "{most}");
        }
    }

    #[test]
    fn accents_without_end_are_cut() {
        let flood = format!("a{}", "\u{301}".repeat(1_000_000));
        assert!(cut(&flood, 80).text.len() < 2_000);
        assert!(wrap(&flood, 80).iter().all(|row| row.len() < 2_000));
    }

    #[test]
    fn parts_share_a_line() {
        let parts = [StyledText::plain("[find]"), StyledText::plain("a long text")];
        assert_eq!(line(&parts, 80), ("[find] a long text".to_owned(), 18));
        assert_eq!(line(&parts, 12), ("[find] a lo…".to_owned(), 12));
        assert_eq!(line(&parts, 8), ("[find] …".to_owned(), 8));
        assert_eq!(cell(&parts, 20), "[find] a long text  ");
    }
}
