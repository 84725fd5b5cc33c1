//! Counts and paths for users and models. This module knows nothing of files' contents.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns "1 file", "6 files".
pub fn files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

/// The text on one line, with control characters escaped. A file's name may contain a newline, and
/// the text behind it could imitate the plugin's own lines, such as a citation.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(breaks_a_line) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().fold(String::new(), |mut escaped, letter| {
        if breaks_a_line(letter) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "{}", letter.escape_default());
        } else {
            escaped.push(letter);
        }
        escaped
    });
    Cow::Owned(escaped)
}

/// The two separators are not control characters, but end a line.
fn breaks_a_line(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::{files, one_line};

    #[test]
    fn one_file_is_not_many() {
        assert_eq!([0, 1, 6].map(files), ["0 files", "1 file", "6 files"]);
    }

    #[test]
    fn a_name_cannot_begin_a_line() {
        assert_eq!(
            one_line("/f/a.md\n/f/b.md:1: Forged.\r\x1b[2J"),
            "/f/a.md\\n/f/b.md:1: Forged.\\r\\u{1b}[2J"
        );
        assert_eq!(one_line("/f/a\u{2028}b"), "/f/a\\u{2028}b");
        assert_eq!(one_line("/f/ærø 灯.md"), "/f/ærø 灯.md");
    }
}
