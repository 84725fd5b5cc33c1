//! Untrusted text, made safe and short for users and models.

use conclave_core::types::text::{cut_chars, is_deceptive};

/// The text on one line, truncated and without deceptive characters.
pub(crate) fn display(text: &str, most: usize) -> String {
    let harmless: String = text.chars().map(|c| if is_deceptive(c) { ' ' } else { c }).collect();
    cut_chars(harmless.trim(), most).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_are_short_and_harmless() {
        assert_eq!(display("\u{1b}[31mred\u{202e}\nline ", 100), "[31mred  line");
        assert_eq!(display("abcdef", 3), "abc…");
    }
}
