//! SHA-256 as it is written everywhere in this project.

use sha2::{Digest, Sha256};

/// Lower-case hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
