//! Masks secrets in text as `(key)`, in whole texts and in streamed pieces. Does no I/O.

use crate::ApiKey;

/// Replaces a secret.
const MASK: &str = "(key)";

/// Minimum bytes of a secret to be masked; shorter ones match too much.
pub(crate) const SECRET_MIN: usize = 4;

/// Whether letter case matters. Server texts are matched in any case, since hosts are lower-cased;
/// a model's text is matched exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Exact,
    AnyCase,
}

/// The secrets that are long enough to be masked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    keys: Vec<ApiKey>,
}

/// The result of a search at one position.
enum SecretText {
    Nothing,
    /// Overlapping secrets end at this byte.
    Until(usize),
    /// More text is needed to decide.
    Undecided,
}

impl Secrets {
    pub(crate) fn new(keys: impl IntoIterator<Item = ApiKey>) -> Self {
        Self { keys: keys.into_iter().filter(|key| key.reveal().len() >= SECRET_MIN).collect() }
    }

    pub(crate) fn with(&self, key: Option<&ApiKey>) -> Self {
        Self::new(self.keys.iter().chain(key).cloned())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(ApiKey::reveal)
    }

    /// The bytes of the longest secret.
    pub(crate) fn longest(&self) -> usize {
        self.iter().map(str::len).max().unwrap_or_default()
    }

    /// The text with every secret masked.
    pub(crate) fn mask(&self, text: &str, letters: Letters) -> String {
        let mut masked = String::with_capacity(text.len());
        self.read(text, letters, true, &mut masked);
        masked
    }

    /// The first `bytes` of the text, with every secret masked that begins in them.
    pub(crate) fn mask_beginning(&self, text: &str, bytes: usize) -> String {
        let mut end = text.floor_char_boundary(bytes);
        let mut at = 0;
        while at < end {
            match self.at(text.as_bytes(), at, Letters::AnyCase, true) {
                SecretText::Until(until) => {
                    end = end.max(until);
                    at = until;
                }
                SecretText::Nothing | SecretText::Undecided => at += 1,
            }
        }
        self.mask(&text[..end], Letters::AnyCase)
    }

    /// The text without a trailing prefix of a secret, which may have been truncated.
    pub(crate) fn without_begun<'a>(&self, text: &'a str) -> &'a str {
        let is_begun = |tail: &str| {
            tail.len() >= SECRET_MIN
                && self.iter().any(|secret| begins(secret, tail.as_bytes(), Letters::AnyCase))
        };
        let earliest = text.len().saturating_sub(self.longest());
        let start = (earliest..text.len())
            .find(|start| text.is_char_boundary(*start) && is_begun(&text[*start..]));
        &text[..start.unwrap_or(text.len())]
    }

    /// Appends the decided part to `masked`, and returns its length in the source.
    fn read(&self, text: &str, letters: Letters, is_whole: bool, masked: &mut String) -> usize {
        let bytes = text.as_bytes();
        let (mut written, mut at) = (0, 0);
        while at < bytes.len() {
            match self.at(bytes, at, letters, is_whole) {
                SecretText::Nothing => at += 1,
                SecretText::Until(until) => {
                    masked.push_str(&text[written..at]);
                    masked.push_str(MASK);
                    (written, at) = (until, until);
                }
                SecretText::Undecided => break,
            }
        }
        masked.push_str(&text[written..at]);
        at
    }

    fn at(&self, text: &[u8], start: usize, letters: Letters, is_whole: bool) -> SecretText {
        let (mut end, mut at) = (start, start);
        // Another secret may begin within this one and end after it.
        loop {
            for secret in self.iter() {
                if begins_with(&text[at..], secret, letters) {
                    end = end.max(at + secret.len());
                } else if !is_whole && begins(secret, &text[at..], letters) {
                    return SecretText::Undecided;
                }
            }
            at += 1;
            if at >= end {
                return if end == start { SecretText::Nothing } else { SecretText::Until(end) };
            }
        }
    }
}

/// Whether the text begins with the secret.
fn begins_with(text: &[u8], secret: &str, letters: Letters) -> bool {
    text.get(..secret.len()).is_some_and(|text| is_same(text, secret.as_bytes(), letters))
}

/// Whether the text is a proper prefix of the secret.
fn begins(secret: &str, text: &[u8], letters: Letters) -> bool {
    text.len() < secret.len() && is_same(&secret.as_bytes()[..text.len()], text, letters)
}

fn is_same(one: &[u8], other: &[u8], letters: Letters) -> bool {
    match letters {
        Letters::Exact => one == other,
        Letters::AnyCase => one.eq_ignore_ascii_case(other),
    }
}

/// Masks streamed text. Only a possible prefix of a secret is held back.
#[derive(Debug)]
pub(crate) struct Masking {
    secrets: Secrets,
    pending: String,
}

impl Masking {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, pending: String::new() }
    }

    /// Returns the text that is decided so far, possibly empty.
    pub(crate) fn handle_text(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let mut masked = String::with_capacity(self.pending.len());
        let decided = self.secrets.read(&self.pending, Letters::Exact, false, &mut masked);
        self.pending.drain(..decided);
        masked
    }

    /// Returns the rest at the end of the text.
    pub(crate) fn finish(&mut self) -> String {
        self.secrets.mask(&std::mem::take(&mut self.pending), Letters::Exact)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Letters, Masking, Secrets};
    use crate::ApiKey;

    fn secrets(keys: &[&str]) -> Secrets {
        Secrets::new(keys.iter().map(|key| ApiKey::new((*key).to_owned())))
    }

    #[test]
    fn secrets_that_overlap_are_masked_together() {
        let secrets = secrets(&["sk-12345", "sk-12345-long", "45-xyz", "e"]);
        assert_eq!(
            secrets.mask("a sk-12345-long, sk-12345-xyz sk-12345.", Letters::Exact),
            "a (key), (key) (key)."
        );
        assert_eq!(secrets.mask("SK-12345", Letters::Exact), "SK-12345");
        assert_eq!(secrets.mask("SK-12345", Letters::AnyCase), "(key)");
    }

    #[test]
    fn a_cut_is_made_after_the_secret_that_it_would_go_through() {
        let secrets = secrets(&["sk-12345"]);
        for cut in 3..10 {
            assert_eq!(
                secrets.mask_beginning("ab sk-12345 c", cut),
                if cut == 3 { "ab " } else { "ab (key)" }
            );
        }
        assert_eq!(secrets.without_begun("said sk-1"), "said ");
        assert_eq!(secrets.without_begun("said SK-1234"), "said ");
        assert_eq!(secrets.without_begun("said sk-"), "said sk-");
    }

    #[test]
    fn only_the_possible_beginning_of_a_secret_is_held_back() {
        let mut masking = Masking::new(secrets(&["sk-12345"]));
        assert_eq!(masking.handle_text("ask"), "a");
        assert_eq!(masking.handle_text("s"), "sk");
        assert_eq!(masking.handle_text("k-1234"), "");
        assert_eq!(masking.handle_text("5é"), "(key)é");
        assert_eq!(masking.handle_text("hello sk-"), "hello ");
        assert_eq!((masking.finish(), masking.finish()), ("sk-".to_owned(), String::new()));
    }

    proptest! {
        #[test]
        fn text_cut_anywhere_is_masked_as_the_whole(
            parts in prop::collection::vec(
                prop_oneof![Just("sk-abab-é9"), Just("abab"), Just("sk-"), Just("ab"), Just("é"), Just("-"), Just("xyz"), Just("SK-")], 0..24,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text = parts.concat();
            let keys = ["sk-abab-é9", "abab", "b-é9"];
            let secrets = secrets(&keys);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut masking = Masking::new(secrets.clone());
            let mut masked: String = cuts.windows(2).map(|pair| masking.handle_text(&text[pair[0]..pair[1]])).collect();
            masked += &masking.finish();
            prop_assert!(keys.iter().all(|key| !masked.contains(key)), "{}", masked);
            prop_assert_eq!(&masked, &secrets.mask(&text, Letters::Exact));
            if keys.iter().all(|key| !text.contains(key)) {
                prop_assert_eq!(masked, text);
            } else {
                // Everything else arrives unchanged.
                let mut rest = text.as_str();
                for plain in masked.split("(key)") {
                    let at = rest.find(plain);
                    prop_assert!(at.is_some(), "{} of {}", plain, masked);
                    rest = &rest[at.unwrap_or_default() + plain.len()..];
                }
            }
        }
    }
}
