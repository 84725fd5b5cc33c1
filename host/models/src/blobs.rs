//! Access to the bytes of attachments, for clients that can show them to a model. The runtime
//! stores them.

use std::sync::Arc;

/// Bytes up to which the text of an attachment is part of a prompt. Of a longer one a model reads the
/// name and the size.
pub const PROMPT_TEXT_MAX: usize = 64 << 10;

/// Reads attachments.
pub trait BlobSource: Send + Sync + 'static {
    /// The bytes with this digest, in lower-case hexadecimal; `None` if they are not stored (any
    /// more).
    fn read(&self, sha256: &str) -> Option<Arc<[u8]>>;
}

/// A source without attachments; the model is informed that they are unavailable.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl BlobSource for NoBlobs {
    fn read(&self, _sha256: &str) -> Option<Arc<[u8]>> {
        None
    }
}
