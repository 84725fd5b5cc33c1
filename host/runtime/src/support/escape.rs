//! Text of plugins, models and servers as it is shown: in logs, errors and refusals.

use std::borrow::Cow;
use std::fmt::Write;

use conclave_core::types::text::{cut_chars, is_deceptive};

/// Escapes control characters and those that hide or reorder text, so that they cannot affect a
/// terminal.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_steering) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_steering(c) {
            // Writing to a `String` does not fail.
            let _ = write!(escaped, "{}", c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

/// The first `most` characters, escaped; `…` marks an omission.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    harmless(&cut_chars(text, most)).into_owned()
}

/// Whether a character must be escaped. A tab is harmless in a log.
fn is_steering(c: char) -> bool {
    is_deceptive(c) && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_reading_directions_are_shown_not_obeyed() {
        assert_eq!(harmless("\u{1b}[31mred\n"), "\\u{1b}[31mred\\n");
        assert_eq!(harmless("abc\u{202e}txt.exe"), "abc\\u{202e}txt.exe");
        assert_eq!(harmless("é — 文\t."), "é — 文\t.");
    }

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        assert_eq!(excerpt("äöü", 2), "äö…");
        assert_eq!(excerpt("äöü", 3), "äöü");
    }
}
