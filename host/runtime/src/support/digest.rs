//! SHA-256 in the format of this project.

use sha2::{Digest, Sha256};

/// The digest in lower-case hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
