//! What a server wrote, made fit to be told to the operator: without keys, without characters that deceive, and short. Such text is
//! untrusted, and a server may send back what it was sent.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use conclave_core::text::is_deceptive;

use crate::Key;

/// Characters of a server's text that are told.
const LENGTH: usize = 300;

/// Told in the place of a text that repeats the key so that it cannot be taken out.
const WITHHELD: &str = "(what it says is withheld: it repeats the key)";

/// Shorter secrets are not looked for: they would be found everywhere.
const SECRET_MIN: usize = 4;

/// Knows the secrets that must not be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quoter {
    secrets: Vec<Key>,
}

impl Quoter {
    pub(crate) fn new(secrets: impl IntoIterator<Item = Key>) -> Self {
        let mut secrets: Vec<Key> = secrets.into_iter().filter(|secret| secret.reveal().len() >= SECRET_MIN).collect();
        // The longest first: one secret may hold another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        Self { secrets }
    }

    pub(crate) fn with(&self, secret: Option<&Key>) -> Self {
        Self::new(self.secrets.iter().chain(secret).cloned())
    }

    /// The text in one line: secrets as `(key)`, cut after 300 characters. Nothing of it when it holds a secret in another form.
    pub(crate) fn quote(&self, text: &str) -> String {
        let scrubbed = self.scrub(text);
        // Once more after the cleaning, which may have put a secret together that was broken by a character that does not show.
        let clean = self.scrub(&printable(&scrubbed));
        if self.is_disguised_in(&clean) {
            return WITHHELD.to_owned();
        }
        match clean.char_indices().nth(LENGTH) {
            Some((end, _)) => format!("{}…", &clean[..end]),
            None => clean,
        }
    }

    /// A secret is in it as base64, percent-encoded, or with escapes of JSON.
    fn is_disguised_in(&self, text: &str) -> bool {
        let decoded = [without_percents(text), without_escapes(text)];
        self.secrets.iter().map(Key::reveal).any(|secret| {
            let encoded = [BASE64_STANDARD_NO_PAD.encode(secret), BASE64_URL_SAFE_NO_PAD.encode(secret)];
            decoded.iter().any(|text| text.contains(secret)) || encoded.iter().any(|encoded| text.contains(encoded.as_str()))
        })
    }

    fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "(key)"))
    }
}

/// With `%2D` as `-`; what is no such thing stays.
fn without_percents(text: &str) -> String {
    decoded(text, "%", 2)
}

/// With `\u002d` as `-`, and without other backslashes.
fn without_escapes(text: &str) -> String {
    decoded(text, "\\u", 4).replace('\\', "")
}

/// Each mark that is followed by so many hexadecimal digits is replaced by the character of that number.
fn decoded(text: &str, mark: &str, digits: usize) -> String {
    let mut parts = text.split(mark);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let character = part.get(..digits).and_then(|number| u32::from_str_radix(number, 16).ok()).and_then(char::from_u32);
        match character {
            Some(character) => {
                whole.push(character);
                whole.push_str(&part[digits..]);
            }
            None => {
                whole.push_str(mark);
                whole.push_str(part);
            }
        }
    }
    whole
}

/// The text without what deceives; white space, also line breaks, as single spaces.
fn printable(text: &str) -> String {
    let shown: String = text.chars().filter(|c| c.is_whitespace() || !is_deceptive(*c)).collect();
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::Quoter;
    use crate::Key;

    fn quote(text: &str) -> String {
        Quoter::new([Key::new("sk-12345".to_owned()), Key::new("sk-12345-long".to_owned()), Key::new("e".to_owned())]).quote(text)
    }

    #[test]
    fn keys_are_taken_out_also_when_broken() {
        assert_eq!(quote("bad key sk-12345-long, sk-12345."), "bad key (key), (key).");
        assert_eq!(quote("bad sk-1\u{200b}2\u{7}345 key"), "bad (key) key");
    }

    #[test]
    fn a_key_in_another_form_takes_the_whole_text_with_it() {
        for disguised in ["bad sk%2D12345", "bad %73k-12345", "bad sk\\u002d12345", "bad sk\\-12345", "bad c2stMTIzNDU"] {
            assert_eq!(quote(disguised), super::WITHHELD, "{disguised}");
        }
        assert_eq!(quote("100% of \\users %zz \\u12"), "100% of \\users %zz \\u12");
    }

    #[test]
    fn what_deceives_is_left_out_and_the_text_is_one_line() {
        assert_eq!(quote("a\u{1b}[31m\nb\u{202e}\t c\r\n"), "a[31m b c");
    }

    #[test]
    fn a_long_text_is_cut_after_the_key_was_taken_out() {
        let told = quote(&format!("{}sk-12345{}", "é".repeat(296), "x".repeat(50)));
        assert_eq!(told, format!("{}(key…", "é".repeat(296)));
    }
}
