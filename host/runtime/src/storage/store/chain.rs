//! The audit chain: each line's hash covers the line before it, so changing, removing or moving a
//! line changes all later hashes. The exact bytes are in docs/reference/journal-format.md.

use sha2::{Digest, Sha256};

use super::record::Hash;

/// The newest line of the chain; number 0 and a zero hash before the first.
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

/// The hash that stands for a record in the line that notes a removal: retention has removed the
/// records of a run up to this line of a chain.
#[cfg(feature = "postgres")]
pub(super) fn removal_hash(run: &str, chain: u64, last: u64, at: u64) -> Hash {
    Sha256::digest(format!("removed {chain} {last} {at} {run}")).into()
}

/// The hash in lower-case hexadecimal.
pub(super) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
