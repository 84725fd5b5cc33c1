//! Untrusted text for people: characters that a reader could miss are escaped, and words that
//! resemble others are found. The terminal and the pages show texts of others by these rules alone.

use std::fmt::Write as _;

use unicode_security::skeleton;

use crate::types::text::{is_deceptive, is_emoji_joiner};

/// The treatment of runs of blanks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    /// Escaped, for text that a user consents to.
    Escaped,
    /// Unchanged, for text that is only read: code, tables, lists.
    Kept,
}

/// The text with all characters escaped that a reader could miss or misread: control and invisible
/// characters, white space other than single spaces, and endless combining marks. A run of one such
/// character is written once: `\u{a0}×1998`.
#[must_use]
pub fn escaped(text: &str) -> String {
    escape(text, Blanks::Escaped)
}

/// The text escaped like [`escaped`], but keeps its runs of blanks, for text that is only read.
#[must_use]
pub fn readable(text: &str) -> String {
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
#[must_use]
pub fn escape_json(json: &str) -> String {
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
#[must_use]
pub fn is_shown_as_it_is(before: Option<char>, c: char, marks: u32) -> bool {
    !c.is_whitespace() && (!is_deceptive(c) || is_emoji_joiner(before, c)) && marks <= MARKS_MAX
}

/// Combining marks on one letter, at most: more than any script needs.
const MARKS_MAX: u32 = 3;

/// Whether the character has no width of its own and is not a control character.
#[must_use]
pub fn is_combining(c: char) -> bool {
    unicode_width::UnicodeWidthChar::width(c) == Some(0)
}

/// A word of the text that is confusable with ASCII, and the word that it resembles. `None` if
/// there is no such word.
#[must_use]
pub fn look_alike(text: &str) -> Option<(String, String)> {
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
