//! Placeholders for secrets in a request: `conclave-secret-` and forty hexadecimal digits, valid
//! for one call.

use sha2::{Digest, Sha256};

use crate::permissions::grants::SecretGrant;
use crate::types::ids::SecretName;

/// The prefix of every placeholder.
pub(super) const PREFIX: &str = "conclave-secret-";
const DIGITS: usize = 40;
/// The length of a placeholder in bytes.
pub(super) const LENGTH: usize = PREFIX.len() + DIGITS;

/// The seed of one call's placeholders. It is hidden from guests, so none can forge the placeholder
/// of another call.
#[derive(Clone, Copy)]
pub struct Seed(pub [u8; 32]);

/// The placeholders of one call.
#[derive(Clone, Copy)]
pub struct Placeholders {
    seed: Seed,
}

impl Placeholders {
    /// The placeholders of a seed.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { seed }
    }

    /// The placeholder of a secret.
    #[must_use]
    pub fn of(&self, name: &SecretName) -> String {
        let mut hash = Sha256::new();
        hash.update(b"conclave placeholder 1\0");
        hash.update(self.seed.0);
        hash.update(name.as_str().as_bytes());
        let digits = hash.finalize().iter().take(DIGITS / 2).fold(
            String::with_capacity(DIGITS),
            |mut digits, byte| {
                for digit in [byte >> 4, byte & 15] {
                    digits.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
                }
                digits
            },
        );
        format!("{PREFIX}{digits}")
    }

    /// The granted secret that a placeholder stands for; `None` if it belongs to another call, or
    /// is forged.
    pub(super) fn secret<'a>(
        &self,
        placeholder: &[u8],
        granted: &'a [SecretGrant],
    ) -> Option<&'a SecretGrant> {
        granted.iter().find(|grant| self.of(&grant.name).as_bytes() == placeholder)
    }
}

/// The positions of placeholders of any call.
pub(super) fn find(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let is_whole = |at: &usize| {
        let digits = bytes.get(at + PREFIX.len()..at + LENGTH);
        digits.is_some_and(|digits| {
            digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    memchr::memmem::find_iter(bytes, PREFIX).filter(is_whole)
}

/// The bytes with each placeholder replaced.
pub(super) fn replace<'a>(
    bytes: &'a [u8],
    mut other: impl FnMut(&'a [u8]) -> Option<Vec<u8>>,
) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut cursor = 0;
    for at in find(bytes) {
        let placeholder = &bytes[at..at + LENGTH];
        replaced.extend_from_slice(&bytes[cursor..at]);
        replaced.extend(other(placeholder).unwrap_or_else(|| placeholder.to_vec()));
        cursor = at + LENGTH;
    }
    replaced.extend_from_slice(&bytes[cursor..]);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_of_one_call_and_one_secret() {
        let (one, other) = (Placeholders::new(Seed([1; 32])), Placeholders::new(Seed([2; 32])));
        let (met, git) = (SecretName::from("met_token"), SecretName::from("git"));
        assert_eq!(one.of(&met), one.of(&met));
        assert_ne!(one.of(&met), one.of(&git));
        assert_ne!(one.of(&met), other.of(&met));
        assert_eq!(one.of(&met).len(), LENGTH);
    }

    #[test]
    fn only_whole_placeholders_are_found() {
        let placeholder = Placeholders::new(Seed([1; 32])).of(&SecretName::from("met_token"));
        let text =
            format!("{PREFIX} {} {PREFIX}{placeholder}{placeholder}", &placeholder[..LENGTH - 1]);
        assert_eq!(find(text.as_bytes()).count(), 2);
        assert_eq!(find(&placeholder.as_bytes()[..LENGTH - 1]).count(), 0);
        let replaced = replace(text.as_bytes(), |_| Some(b"!".to_vec()));
        assert!(String::from_utf8_lossy(&replaced).ends_with(&format!("{PREFIX}!!")));
    }
}
