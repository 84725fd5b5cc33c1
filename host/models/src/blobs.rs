//! The bytes of attachments, for clients that can show them to a model. Where they are kept is the
//! runtime's to know.

use std::sync::Arc;

/// Finds attachments.
pub trait BlobSource: Send + Sync + 'static {
    /// The bytes with this digest, in lower-case hexadecimal; none when they are not kept (any
    /// more).
    fn read(&self, sha256: &str) -> Option<Arc<[u8]>>;
}

/// Keeps nothing: the model is told that the attachment cannot be shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl BlobSource for NoBlobs {
    fn read(&self, _sha256: &str) -> Option<Arc<[u8]>> {
        None
    }
}
