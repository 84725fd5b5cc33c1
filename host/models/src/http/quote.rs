//! Server text made safe for the operator: short, and without keys and deceptive characters. The
//! text is untrusted, and a server may echo what it received.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use conclave_core::types::text::{cut_chars, is_deceptive};

use super::secrets::{Letters, Secrets};
use crate::ApiKey;

/// Maximum characters of a server's text.
const LENGTH: usize = 300;

/// Replaces a text that contains the key in a form that cannot be masked.
const WITHHELD: &str = "(what it says is withheld: it repeats the key)";

/// Bytes of the longest encoding of one byte of a secret, JSON's `\\u002d`.
const LONGEST_FORM: usize = 6;

/// Maximum characters of an id or a name.
const NAME_LENGTH: usize = 200;

/// Removes secrets from server text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quoter {
    secrets: Secrets,
}

impl Quoter {
    pub(crate) fn new(secrets: impl IntoIterator<Item = ApiKey>) -> Self {
        Self { secrets: Secrets::new(secrets) }
    }

    pub(crate) fn with(&self, secret: Option<&ApiKey>) -> Self {
        Self { secrets: self.secrets.with(secret) }
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The text on one line, with secrets as `(key)`, truncated at 300 characters. The whole text
    /// is withheld if it contains a secret in another encoding.
    pub(crate) fn quote(&self, text: &str) -> String {
        let clean = self.clean(text);
        if self.is_disguised_in(&clean) {
            return WITHHELD.to_owned();
        }
        // The source of the text may have been truncated within a secret.
        let clean = self.secrets.without_begun(&clean);
        cut_chars(clean, LENGTH).into_owned()
    }

    /// Returns how many bytes are needed to truncate a text after `bytes`. They cover every secret
    /// that begins before the cut, in any encoding.
    pub(crate) fn window(&self, bytes: usize) -> usize {
        self.secrets.longest().saturating_mul(LONGEST_FORM).saturating_add(bytes)
    }

    /// The first `bytes` of a text, which still has to be quoted. `text` is the whole, or a
    /// [`window`](Self::window) of it.
    pub(crate) fn beginning(&self, text: &[u8], bytes: usize) -> String {
        let text = String::from_utf8_lossy(text);
        if text.len() <= bytes {
            return text.into_owned();
        }
        if self.is_disguised_in(&self.clean(&text)) {
            return WITHHELD.to_owned();
        }
        self.secrets.mask_beginning(&text, bytes)
    }

    /// A name for the operator: like [`quote`](Self::quote), with the limit of a name.
    pub(crate) fn name(&self, name: &str) -> String {
        let clean = self.clean(name);
        if self.is_disguised_in(&clean) {
            WITHHELD.to_owned()
        } else {
            clean.chars().take(NAME_LENGTH).collect()
        }
    }

    /// A name from an answer, truncated and without deceptive characters.
    pub(crate) fn plain_name(&self, name: &str) -> String {
        let plain: String = self.mask(name).chars().filter(|c| !is_deceptive(*c)).collect();
        // Again, because the removed characters may have split a secret.
        self.mask(&plain).chars().take(NAME_LENGTH).collect()
    }

    /// A model's text with exact occurrences of secrets masked, otherwise unchanged.
    pub(crate) fn mask(&self, text: &str) -> String {
        self.secrets.mask(text, Letters::Exact)
    }

    fn clean(&self, text: &str) -> String {
        let masked = self.secrets.mask(text, Letters::AnyCase);
        // Again after the cleaning: invisible characters may have split a secret.
        self.secrets.mask(&printable(&masked), Letters::AnyCase)
    }

    /// Whether the text contains a secret as base64, percent-encoded, or with JSON escapes.
    fn is_disguised_in(&self, text: &str) -> bool {
        let decoded =
            [without_percents(text), without_escapes(text)].map(|text| text.to_ascii_lowercase());
        let text = text.to_ascii_lowercase();
        self.secrets.iter().any(|secret| {
            let encoded =
                [BASE64_STANDARD_NO_PAD.encode(secret), BASE64_URL_SAFE_NO_PAD.encode(secret)];
            let secret = secret.to_ascii_lowercase();
            decoded.iter().any(|text| text.contains(&secret))
                || encoded.iter().any(|encoded| text.contains(&encoded.to_ascii_lowercase()))
        })
    }
}

/// Decodes `%2D` as `-`; leaves everything else.
fn without_percents(text: &str) -> String {
    decoded(text, "%", 2)
}

/// Decodes `\u002d` as `-` and removes other backslashes.
fn without_escapes(text: &str) -> String {
    decoded(text, "\\u", 4).replace('\\', "")
}

/// Replaces each `mark` with so many hexadecimal `digits` by the character of that number.
fn decoded(text: &str, mark: &str, digits: usize) -> String {
    let mut parts = text.split(mark);
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let character = part
            .get(..digits)
            .and_then(|number| u32::from_str_radix(number, 16).ok())
            .and_then(char::from_u32);
        match character {
            Some(character) => {
                decoded.push(character);
                decoded.push_str(&part[digits..]);
            }
            None => {
                decoded.push_str(mark);
                decoded.push_str(part);
            }
        }
    }
    decoded
}

/// The text without deceptive characters, and with white space and line breaks as single spaces.
fn printable(text: &str) -> String {
    let plain: String = text.chars().filter(|c| c.is_whitespace() || !is_deceptive(*c)).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::Quoter;
    use crate::ApiKey;

    fn quote(text: &str) -> String {
        Quoter::new([
            ApiKey::new("sk-12345".to_owned()),
            ApiKey::new("sk-12345-long".to_owned()),
            ApiKey::new("e".to_owned()),
        ])
        .quote(text)
    }

    #[test]
    fn keys_are_taken_out_also_when_broken() {
        assert_eq!(quote("bad key sk-12345-long, sk-12345."), "bad key (key), (key).");
        assert_eq!(quote("bad sk-1\u{200b}2\u{7}345 key"), "bad (key) key");
    }

    #[test]
    fn a_key_in_another_form_takes_the_whole_text_with_it() {
        for disguised in [
            "bad sk%2D12345",
            "bad %73k-12345",
            "bad sk\\u002d12345",
            "bad sk\\-12345",
            "bad c2stMTIzNDU",
        ] {
            assert_eq!(quote(disguised), super::WITHHELD, "{disguised}");
        }
        assert_eq!(quote("100% of \\users %zz \\u12"), "100% of \\users %zz \\u12");
    }

    #[test]
    fn what_deceives_is_left_out_and_the_text_is_one_line() {
        assert_eq!(quote("a\u{1b}[31m\nb\u{202e}\t c\r\n"), "a[31m b c");
    }

    #[test]
    fn letters_of_another_size_hide_no_key() {
        assert_eq!(quote("points to SK-12345-LONG.example"), "points to (key).example");
        assert_eq!(quote("bad SK%2D12345"), super::WITHHELD);
        assert_eq!(quote("bad C2STMTIZNDU"), super::WITHHELD);
    }

    #[test]
    fn a_key_at_a_cut_does_not_survive_in_part() {
        let quoter = Quoter::new([ApiKey::new("sk-12345-long".to_owned())]);
        for form in [
            "sk-12345-long",
            "sk-1\u{200b}2345-long",
            "c2stMTIzNDUtbG9uZw",
            "%73%6b%2d%31%32%33%34%35%2d%6c%6f%6e%67",
        ] {
            for spaces in 380..=400 {
                let text = format!("<{}{form}{}", " ".repeat(spaces), "z".repeat(500));
                let window = &text.as_bytes()[..quoter.window(400)];
                let quoted = quoter.quote(&quoter.beginning(window, 400));
                assert!(
                    !quoted.contains("sk-1")
                        && !quoted.contains("c2st")
                        && !quoted.contains("%73%6b"),
                    "{quoted}"
                );
            }
        }
    }

    #[test]
    fn a_long_text_is_cut_after_the_key_was_taken_out() {
        let quoted = quote(&format!("{}sk-12345{}", "é".repeat(296), "x".repeat(50)));
        assert_eq!(quoted, format!("{}(key…", "é".repeat(296)));
    }
}
