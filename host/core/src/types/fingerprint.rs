//! Fingerprints of actions and results: sixteen bytes to compare two values without storing them.
//! Stable across versions of this host, because snapshots hold them.

use std::hash::Hasher as _;
use std::io;

use serde::Serialize;
use serde_json::Value;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// A SipHash-1-3 of 128 bits.
pub type Fingerprint = [u64; 2];

/// Hashes a sequence of values. Each is preceded by its kind and length, so that no two sequences
/// are written alike. The key is fixed, so collisions can be built. One can only end the task that
/// acts on such values as a loop, so the hash needs no secret.
#[derive(Debug)]
pub struct Fingerprinter(SipHasher13);

impl Fingerprinter {
    /// Returns a fingerprinter of values of this kind.
    #[must_use]
    pub fn of(kind: &str) -> Self {
        Self(SipHasher13::new()).text(kind)
    }

    /// Adds a text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.add_text(text);
        self
    }

    /// Adds a JSON value; `None` differs from `null`.
    #[must_use]
    pub fn value(mut self, value: Option<&Value>) -> Self {
        match value {
            Some(value) => self.add(value),
            None => self.0.write_u8(0),
        }
        self
    }

    /// Returns the fingerprint of all values and of a last one, which is hashed as its JSON. That
    /// takes longer than [`value`](Self::value).
    #[must_use]
    pub fn finish_with_json<T: Serialize + ?Sized>(mut self, value: &T) -> Fingerprint {
        // A value that cannot be JSON (a map with keys other than text) counts up to the error.
        let _ = serde_json::to_writer(HashingWriter(&mut self.0), value);
        self.finish()
    }

    /// The fingerprint.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        let hash = self.0.finish128();
        [hash.h1, hash.h2]
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.write_u8(1),
            Value::Bool(value) => self.0.write(&[2, u8::from(*value)]),
            Value::Number(number) => {
                let (kind, bits) = match (number.as_u64(), number.as_i64(), number.as_f64()) {
                    (Some(positive), ..) => (3, positive),
                    (None, Some(negative), _) => (4, negative.cast_unsigned()),
                    (None, None, float) => (5, float.unwrap_or_default().to_bits()),
                };
                self.0.write_u8(kind);
                self.0.write(&bits.to_le_bytes());
            }
            Value::String(text) => self.add_text(text),
            Value::Array(items) => {
                self.begin(7, items.len());
                items.iter().for_each(|item| self.add(item));
            }
            Value::Object(fields) => {
                self.begin(8, fields.len());
                for (name, field) in fields {
                    self.add_text(name);
                    self.add(field);
                }
            }
        }
    }

    fn add_text(&mut self, text: &str) {
        self.begin(6, text.len());
        self.0.write(text.as_bytes());
    }

    /// Writes the kind and the length of what follows.
    fn begin(&mut self, kind: u8, length: usize) {
        self.0.write_u8(kind);
        self.0.write(&(length as u64).to_le_bytes());
    }
}

struct HashingWriter<'a>(&'a mut SipHasher13);

impl io::Write for HashingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Fingerprint, Fingerprinter};

    fn of(value: &Value) -> Fingerprint {
        Fingerprinter::of("test").value(Some(value)).finish()
    }

    #[test]
    fn values_that_differ_have_different_fingerprints() {
        let values = [
            json!(null),
            json!("null"),
            json!(false),
            json!(0),
            json!(0.0),
            json!(-1),
            json!(u64::MAX),
            json!(""),
            json!([]),
            json!({}),
            json!([[], []]),
            json!([[[]]]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({ "a": "b" }),
            json!(["a", "b"]),
            json!({ "a": { "b": 1 } }),
            json!({ "a": {}, "b": 1 }),
        ];
        let mut seen: Vec<Fingerprint> = values.iter().map(of).collect();
        seen.push(Fingerprinter::of("test").value(None).finish());
        seen.push(Fingerprinter::of("other").value(Some(&json!(null))).finish());
        seen.push(Fingerprinter::of("te").text("st").finish());
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn equal_values_have_one_fingerprint_that_never_changes() {
        assert_eq!(of(&json!({ "a": 1, "b": [2] })), of(&json!({ "b": [2], "a": 1 })));
        let mixed =
            Fingerprinter::of("says").text("hello").value(Some(&json!({ "a": [1, -1, 0.5] })));
        // Fixed here because later hosts read the snapshots of today.
        assert_eq!(
            mixed.finish_with_json(&Some("user")),
            [8_514_694_248_847_906_221, 15_131_349_698_752_191_779]
        );
    }
}
