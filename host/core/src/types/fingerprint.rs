//! Fingerprints of actions and results: sixteen bytes to compare two values without storing them.
//! Stable across versions of this host, because journals hold them.

use std::io;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256.
pub type Fingerprint = [u64; 2];

/// Returns the fingerprint of a value's JSON, without an intermediate copy.
#[must_use]
pub fn fingerprint<T: Serialize + ?Sized>(value: &T) -> Fingerprint {
    let mut hashing = Hashing { hash: Sha256::new(), part: [0; PART], len: 0 };
    // A value that cannot be JSON (a map with keys other than text) counts up to the error.
    let _ = serde_json::to_writer(&mut hashing, value);
    let digest = hashing.finalize();
    let half = |range: std::ops::Range<usize>| {
        digest[range].iter().fold(0, |half, byte| half << 8 | u64::from(*byte))
    };
    [half(0..8), half(8..16)]
}

/// The bytes hashed at once. JSON is written in pieces of a few bytes, and hashing each would cost
/// more than the hash.
const PART: usize = 512;

struct Hashing {
    hash: Sha256,
    part: [u8; PART],
    len: usize,
}

impl Hashing {
    fn finalize(mut self) -> impl std::ops::Deref<Target = [u8]> {
        self.hash.update(&self.part[..self.len]);
        self.hash.finalize()
    }
}

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > PART - self.len {
            self.hash.update(&self.part[..self.len]);
            self.len = 0;
        }
        match self.part.get_mut(self.len..self.len + bytes.len()) {
            Some(free) => {
                free.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.hash.update(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fingerprint;

    #[test]
    fn it_tells_values_apart_and_never_changes() {
        assert_eq!(
            fingerprint(&json!({ "a": 1, "b": [2] })),
            fingerprint(&json!({ "b": [2], "a": 1 }))
        );
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_ne!(fingerprint(&json!(null)), fingerprint(&json!("null")));
        // SHA-256 of `"a"` with its quotes; fixed here because later hosts read the journals of
        // today.
        assert_eq!(fingerprint("a"), [0xac8d_8342_bbb2_362d, 0x13f0_a559_a362_1bb4]);
    }
}
