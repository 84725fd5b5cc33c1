//! Access to the bytes of attachments, for clients that can show them to a model. The runtime
//! stores them.

use std::sync::Arc;

/// Bytes up to which the text of an attachment is part of a prompt. Of a longer one a model reads the
/// name and the size.
pub const PROMPT_TEXT_MAX: usize = 64 << 10;

/// Reads attachments.
pub trait BlobSource: Send + Sync + 'static {
    /// Returns the bytes with this digest, in lower-case hexadecimal; `None` if they are not stored
    /// (any more). It may wait for a disk or a server, so an async task calls it on a thread that
    /// may block.
    ///
    /// # Errors
    /// If the storage cannot be reached, so that it is unknown whether the bytes are stored.
    fn read(&self, sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable>;
}

/// Why attachments cannot be read at present; the text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the attachments cannot be read now: {0}")]
pub struct BlobsUnavailable(pub String);

/// A source without attachments; the model is informed that they are unavailable.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl BlobSource for NoBlobs {
    fn read(&self, _sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
        Ok(None)
    }
}
