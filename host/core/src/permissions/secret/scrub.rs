//! Takes the values of secrets out of what comes back, also where they are encoded: with the
//! escapes of JSON, percent-encoded, as entities of HTML, in hexadecimal or base64, and in one of
//! these within another. Its time grows with the length of the input alone.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use zeroize::Zeroizing;

use super::views::DECODERS;
use crate::types::ids::SecretName;

/// Shorter values would be found everywhere, and what comes back would be shredded.
const VALUE_MIN: usize = 8;
/// Encodings within each other that are taken off.
const DEPTH: u32 = 2;
/// Input that is looked at together, when the secrets are not long.
const WINDOW: usize = 64 << 10;
/// Bytes that one byte of a secret can become, when it is encoded twice.
const GROWTH: usize = 36;

/// The value of a secret. It does not show itself, and its memory is cleared when it is dropped.
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
    /// Takes a value.
    ///
    /// # Errors
    /// When it could not be found again in what comes back.
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

    /// In the config.
    #[must_use]
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// The value, for a request that leaves.
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

/// What stands where a value was: `[secret met_token]`.
#[must_use]
pub fn mask(name: &SecretName) -> String {
    format!("[secret {name}]")
}

/// Finds these values.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    values: Vec<SecretValue>,
}

/// A place in the input, and the value that is there.
struct SecretMatch {
    place: Range<usize>,
    value: usize,
}

impl Scrubber {
    /// Looks for all of these.
    #[must_use]
    pub fn new(values: Vec<SecretValue>) -> Self {
        Self { values }
    }

    /// The same, and this one too; it takes the place of one of its name.
    #[must_use]
    pub fn with(&self, value: SecretValue) -> Self {
        let others = self.values.iter().filter(|known| known.name != value.name).cloned();
        Self { values: others.chain([value.clone()]).collect() }
    }

    /// The value of a secret, for a request that leaves; none when it is not known here.
    #[must_use]
    pub fn value(&self, name: &SecretName) -> Option<&str> {
        self.values.iter().find(|known| known.name == *name).map(SecretValue::reveal)
    }

    /// There is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The first secret whose value is in these bytes, in any encoding.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Option<&SecretName> {
        self.places(bytes).first().map(|found| &self.values[found.value].name)
    }

    /// The bytes without any value; none when there was none in them.
    #[must_use]
    pub fn scrub(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.replace(bytes, mask)
    }

    /// As `scrub`, with something else than the mask in the place of a value.
    #[must_use]
    pub fn replace(&self, bytes: &[u8], other: impl Fn(&SecretName) -> String) -> Option<Vec<u8>> {
        let mut found = self.places(bytes);
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|found| (found.place.start, found.value));
        let mut scrubbed = Vec::with_capacity(bytes.len());
        let mut kept = 0;
        for SecretMatch { place, value } in found {
            if place.start >= kept {
                scrubbed.extend_from_slice(&bytes[kept..place.start]);
                scrubbed.extend_from_slice(other(&self.values[value].name).as_bytes());
            }
            kept = kept.max(place.end);
        }
        scrubbed.extend_from_slice(&bytes[kept..]);
        Some(scrubbed)
    }

    /// The text without any value.
    #[must_use]
    pub fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub(text.as_bytes()) {
            Some(scrubbed) => String::from_utf8_lossy(&scrubbed).into_owned().into(),
            None => text.into(),
        }
    }

    fn places(&self, bytes: &[u8]) -> Vec<SecretMatch> {
        let mut found = Vec::new();
        let longest = self.values.iter().map(|value| value.value.len()).max().unwrap_or_default();
        if longest == 0 {
            return found;
        }
        // A value lies in one window whole, however it is encoded.
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

    /// Looks at the bytes, and at what they say once an encoding is taken off. `origin` is the
    /// place in the input of one in the bytes.
    fn look(
        &self,
        bytes: &[u8],
        origin: &dyn Fn(Range<usize>) -> Range<usize>,
        depth: u32,
        found: &mut Vec<SecretMatch>,
    ) {
        for (index, value) in self.values.iter().enumerate() {
            let places = memchr::memmem::find_iter(bytes, value.value.as_bytes());
            found.extend(
                places.map(|at| SecretMatch {
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
