//! Untrusted text, made safe and short for users and models.

use conclave_core::types::text::is_deceptive;

/// The text on one line, truncated and without deceptive characters.
pub(crate) fn display(text: &str, most: usize) -> String {
    let harmless: String = text.chars().map(|c| if is_deceptive(c) { ' ' } else { c }).collect();
    let mut line: String = harmless.trim().chars().take(most).collect();
    if harmless.trim().chars().count() > most {
        line.push('…');
    }
    line
}

/// The longest prefix of at most so many bytes that ends between two characters.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes { text } else { &text[..text.floor_char_boundary(bytes)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_are_short_and_harmless() {
        assert_eq!(display("\u{1b}[31mred\u{202e}\nline ", 100), "[31mred  line");
        assert_eq!(display("abcdef", 3), "abc…");
        assert_eq!((cut("aé", 2), cut("aé", 3)), ("a", "aé"));
    }
}
