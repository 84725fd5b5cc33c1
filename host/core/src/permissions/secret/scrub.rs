//! Removes the values of secrets from responses, also in encodings: JSON escapes, percent-encoding,
//! HTML entities, hexadecimal, base64, and one of these within another. Takes linear time in the
//! length of the input.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use zeroize::Zeroizing;

use super::views::DECODERS;
use crate::types::ids::SecretName;

/// Shorter values would match everywhere, and responses would become unreadable.
const VALUE_MIN: usize = 8;
/// The levels of nested encodings that are decoded.
const DEPTH: u32 = 2;
/// The size of an input window in bytes, unless the secrets are long.
const WINDOW: usize = 64 << 10;
/// The maximum growth of one byte of a secret that is encoded twice.
const GROWTH: usize = 36;

/// The value of a secret. `Debug` hides it, and its memory is cleared when it is dropped.
#[derive(Clone)]
pub struct SecretValue {
    name: SecretName,
    value: Zeroizing<String>,
}

/// A value that cannot be protected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error(
        "the secret {0} has fewer than {VALUE_MIN} bytes: what repeats it could not be told from other text. Take a longer one."
    )]
    TooShort(SecretName),
    #[error("the secret {0} is a part of the words that stand for secrets. Take another one.")]
    InMask(SecretName),
}

impl SecretValue {
    /// Creates a value.
    ///
    /// # Errors
    /// `ValueError` if the value could not be found again in a response.
    pub fn new(name: SecretName, value: String) -> Result<Self, ValueError> {
        let value = Zeroizing::new(value);
        if value.len() < VALUE_MIN {
            return Err(ValueError::TooShort(name));
        }
        if mask(&name).contains(value.as_str()) {
            return Err(ValueError::InMask(name));
        }
        Ok(Self { name, value })
    }

    /// Its name in the config.
    #[must_use]
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The value, for a request that is sent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SecretValue({}, …)", self.name)
    }
}

/// The mask of a value: `[secret met_token]`.
#[must_use]
pub fn mask(name: &SecretName) -> String {
    format!("[secret {name}]")
}

/// Finds the values of secrets in bytes.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    values: Vec<SecretValue>,
}

/// A range of the input with the value found there.
struct SecretMatch {
    place: Range<usize>,
    value: usize,
}

impl Scrubber {
    /// Returns a scrubber for these values.
    #[must_use]
    pub fn new(values: Vec<SecretValue>) -> Self {
        Self { values }
    }

    /// Returns a scrubber with one more value, which replaces one of the same name.
    #[must_use]
    pub fn with(&self, value: SecretValue) -> Self {
        let others = self.values.iter().filter(|known| known.name != value.name).cloned();
        Self { values: others.chain([value.clone()]).collect() }
    }

    /// The value of a secret, for a request that is sent; `None` if it is unknown here.
    #[must_use]
    pub fn value(&self, name: &SecretName) -> Option<&str> {
        self.values.iter().find(|known| known.name == *name).map(SecretValue::reveal)
    }

    /// Whether there are no values to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The first secret whose value is in these bytes, in any encoding.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<&SecretName> {
        self.matches(bytes).first().map(|found| &self.values[found.value].name)
    }

    /// The bytes with values masked; `None` if they hold none.
    #[must_use]
    pub fn scrub(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.replace(bytes, mask)
    }

    /// The bytes with values replaced by `other`, as [`scrub`](Self::scrub).
    #[must_use]
    pub fn replace(&self, bytes: &[u8], other: impl Fn(&SecretName) -> String) -> Option<Vec<u8>> {
        let mut found = self.matches(bytes);
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|found| (found.place.start, found.value));
        let mut scrubbed = Vec::with_capacity(bytes.len());
        let mut cursor = 0;
        for SecretMatch { place, value } in found {
            // One text can match in several encodings. An overlapping match needs no second mask,
            // but its end still counts.
            if place.start >= cursor {
                scrubbed.extend_from_slice(&bytes[cursor..place.start]);
                scrubbed.extend_from_slice(other(&self.values[value].name).as_bytes());
            }
            cursor = cursor.max(place.end);
        }
        scrubbed.extend_from_slice(&bytes[cursor..]);
        Some(scrubbed)
    }

    /// The text with values masked.
    #[must_use]
    pub fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub(text.as_bytes()) {
            Some(scrubbed) => String::from_utf8_lossy(&scrubbed).into_owned().into(),
            None => text.into(),
        }
    }

    fn matches(&self, bytes: &[u8]) -> Vec<SecretMatch> {
        let mut found = Vec::new();
        let longest = self.values.iter().map(|value| value.value.len()).max().unwrap_or_default();
        if longest == 0 {
            return found;
        }
        // Windows overlap, so that every encoded value is inside one window as a whole.
        let overlap = longest * GROWTH;
        let window = WINDOW.max(overlap * 4);
        let mut start = 0;
        loop {
            let end = bytes.len().min(start + window);
            self.look(
                &bytes[start..end],
                &|place| start + place.start..start + place.end,
                DEPTH,
                &mut found,
            );
            if end == bytes.len() {
                return found;
            }
            start = end - overlap;
        }
    }

    /// Searches the bytes and their decoded forms. `origin` maps a range of the bytes to the input.
    fn look(
        &self,
        bytes: &[u8],
        origin: &dyn Fn(Range<usize>) -> Range<usize>,
        depth: u32,
        found: &mut Vec<SecretMatch>,
    ) {
        for (index, value) in self.values.iter().enumerate() {
            let offsets = memchr::memmem::find_iter(bytes, value.value.as_bytes());
            found.extend(
                offsets.map(|at| SecretMatch {
                    place: origin(at..at + value.value.len()),
                    value: index,
                }),
            );
        }
        if depth == 0 {
            return;
        }
        for view in DECODERS.iter().filter_map(|decoder| decoder(bytes)) {
            let within = |place: Range<usize>| {
                let (start, end) = (view.from[place.start].0, view.from[place.end - 1].1);
                origin(start as usize..end as usize)
            };
            self.look(&view.bytes, &within, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests;
