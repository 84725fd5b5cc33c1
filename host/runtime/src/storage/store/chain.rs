//! The audit chain: each line's hash is over the line before it, so that none can be changed, taken
//! out or moved without all after it changing too. The exact bytes are in
//! docs/reference/journal-format.md.

use sha2::{Digest, Sha256};

use super::record::Hash;

/// The newest line; number 0 and zeros before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainHead {
    pub(super) number: u64,
    pub(super) hash: Hash,
}

impl ChainHead {
    /// The line after this one.
    #[must_use]
    pub(super) fn next(self, room: &str, seq: u64, at: u64, record: &Hash) -> Self {
        let number = self.number + 1;
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(number.to_be_bytes());
        hash.update((room.len() as u64).to_be_bytes());
        hash.update(room.as_bytes());
        hash.update(seq.to_be_bytes());
        hash.update(at.to_be_bytes());
        hash.update(record);
        Self { number, hash: hash.finalize().into() }
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
