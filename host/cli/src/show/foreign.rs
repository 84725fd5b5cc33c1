//! Text that the program did not write, in rows of a terminal: no row of it can be taken for one of the program's. Every row carries a
//! mark, no row is wider than the terminal, and what a reader could miss is escaped.

use std::fmt::Write as _;

use conclave_core::text::{is_deceptive, joins_pictures};
use unicode_security::skeleton;

/// Stands in front of every row.
pub(crate) const MARK: &str = "│ ";

/// Returns the text in rows of at most `most` columns, without marks; at least one row. Line ends of the text stay.
///
/// Terminals differ on how wide some characters are, so everything but ASCII is taken to be two columns wide: a row never wraps.
pub(crate) fn rows(text: &str, most: usize) -> Vec<String> {
    let most = most.max(8);
    let mut rows = Vec::new();
    for line in escaped(text).split('\n') {
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

/// Returns how many columns a character may take on any terminal.
fn columns(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// Returns the text with everything escaped that a reader could miss or misread: what steers a terminal or hides itself, white space other
/// than single spaces, and characters that stand on top of others without end. A run of one such character is written once: `\u{a0}×1998`.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let (mut before, mut marks) = (None, 0);
    while let Some(c) = chars.next() {
        marks = if is_combining(c) { marks + 1 } else { 0 };
        let is_plain = c == '\n'
            || (c == ' ' && chars.peek() != Some(&' '))
            || (!c.is_whitespace() && (!is_deceptive(c) || joins_pictures(before, c)) && marks <= MARKS_MAX);
        before = Some(c);
        if is_plain {
            shown.push(c);
            continue;
        }
        let mut run = 1_u64;
        while chars.next_if_eq(&c).is_some() {
            run += 1;
        }
        shown.extend(c.escape_unicode());
        if run > 1 {
            let _ = write!(shown, "×{run}");
        }
    }
    shown
}

/// Marks that may stand on one letter: more than any script needs.
const MARKS_MAX: u32 = 3;

/// Takes no column of its own, and is no control character.
fn is_combining(c: char) -> bool {
    unicode_width::UnicodeWidthChar::width(c) == Some(0)
}

/// Returns a word of the text that looks like ASCII and is not, with what it looks like; none when there is no such word.
pub(crate) fn look_alike(text: &str) -> Option<(String, String)> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '(' | ')' | '{' | '}' | '[' | ']'));
    words.filter(|word| !word.is_ascii()).find_map(|word| {
        let seen = looks(word);
        let is_mixed = word.chars().any(|c| c.is_ascii_alphabetic()) && has_look_alike_letter(word);
        (seen.is_ascii() || is_mixed).then(|| (word.to_owned(), seen))
    })
}

/// The word with each letter that is not ASCII as the one that it looks like.
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

/// A letter of the word that is not ASCII looks like one that is.
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
        assert!(escaped(&tower).chars().filter(|c| *c == '\u{301}').count() <= 3, "{}", escaped(&tower));
    }

    #[test]
    fn rows_are_never_wider_than_the_terminal() {
        for text in ["word ".repeat(40), "漢".repeat(90), "x".repeat(200), format!("{}\n\n{}", "a b ".repeat(30), "é".repeat(50))] {
            for most in [8, 20, 33, 60] {
                let rows = rows(&text, most);
                assert!(rows.iter().all(|row| unicode_width::UnicodeWidthStr::width(row.as_str()) <= most), "{rows:?}");
                assert_eq!(rows.concat().replace('\n', ""), escaped(&text).replace('\n', ""), "nothing is lost");
            }
        }
    }

    #[test]
    fn words_that_look_like_others_are_found() {
        for (text, seen) in [
            ("/notes/\u{441}\u{43e}\u{440}\u{443}.md", "/notes/copy.md"),
            ("\u{251}dmin", "admin"),
            ("..\u{2215}..\u{2215}etc", "../../etc"),
            ("\u{2024}\u{2024}", ".."),
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
