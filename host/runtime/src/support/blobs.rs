//! Attachments: bytes that messages refer to by digest. The core only sees references; model
//! clients read the bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::types::text::show_size;

pub use conclave_core::types::message::Blob;
pub use conclave_models::{BlobSource, BlobsUnavailable};

/// Default limit of [`MemoryBlobs`] in bytes.
const BYTES: usize = 64 << 20;

/// Storage for attachments; read through [`BlobSource`].
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// use conclave_runtime::blobs::{
///     Blob, BlobError, BlobSource, Blobs, BlobsUnavailable, describe,
/// };
/// use conclave_runtime::{Host, HostOptions};
///
/// /// Keeps everything; a real one would write files.
/// #[derive(Default)]
/// struct Hoard(Mutex<HashMap<String, Arc<[u8]>>>);
///
/// impl BlobSource for Hoard {
///     fn read(&self, sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
///         Ok(self.0.lock().unwrap().get(sha256).cloned())
///     }
/// }
///
/// impl Blobs for Hoard {
///     fn keep(&self, bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
///         let blob = describe(bytes, media_type, name)?;
///         self.0.lock().unwrap().insert(blob.sha256.clone(), bytes.into());
///         Ok(blob)
///     }
/// }
///
/// let host = Host::new(HostOptions { blobs: Arc::new(Hoard::default()), ..HostOptions::default() })?;
/// let picture = host.keep_blob(b"\x89PNG", "image/png", Some("chart.png"))?;
/// // It goes with a message as `RunInput { attachments: vec![picture], .. }`.
/// assert_eq!(host.blobs().read(&picture.sha256)?.as_deref(), Some(&b"\x89PNG"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Blobs: BlobSource {
    /// Stores bytes and returns a reference. The same bytes can be stored twice.
    ///
    /// # Errors
    /// If they are too large, the media type is invalid, or they cannot be stored.
    fn keep(&self, bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError>;
}

/// Why bytes cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// There are more bytes than the store takes for one blob.
    #[error("it has {}; up to {} are kept", show_size(*.length), show_size(*.limit))]
    TooLarge {
        /// The number of bytes.
        length: u64,
        /// The maximum number of bytes.
        limit: u64,
    },
    /// The media type does not have the form `type/subtype`.
    #[error("{0:?} is no media type, such as image/png")]
    MediaType(String),
    /// The store failed; the text is its reason.
    #[error("it could not be kept: {0}")]
    Other(String),
}

/// Returns the reference to these bytes without storing them.
///
/// # Errors
/// `MediaType` if it does not have the form `type/subtype`.
pub fn describe(bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let is_media_type = media_type.len() <= 127
        && media_type.split_once('/').is_some_and(|(kind, rest)| is_word(kind) && is_word(rest));
    if !is_media_type {
        return Err(BlobError::MediaType(media_type.chars().take(127).collect()));
    }
    Ok(Blob {
        sha256: crate::support::digest::sha256(bytes),
        media_type: media_type.to_owned(),
        length: bytes.len() as u64,
        name: name.map(str::to_owned),
    })
}

/// Keeps attachments in memory. Above its limit it drops the oldest; a model is then informed that
/// they are unavailable.
#[derive(Debug)]
pub struct MemoryBlobs {
    limit: usize,
    stored: Mutex<StoredBlob>,
}

#[derive(Debug, Default)]
struct StoredBlob {
    blobs: HashMap<String, Arc<[u8]>>,
    /// Digests, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Default for MemoryBlobs {
    fn default() -> Self {
        Self::new(BYTES)
    }
}

impl MemoryBlobs {
    /// Returns a store with a limit in bytes for all blobs.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, stored: Mutex::default() }
    }
}

impl BlobSource for MemoryBlobs {
    fn read(&self, sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(stored.blobs.get(sha256).cloned())
    }
}

impl Blobs for MemoryBlobs {
    fn keep(&self, bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
        if bytes.len() > self.limit {
            return Err(BlobError::TooLarge {
                length: bytes.len() as u64,
                limit: self.limit as u64,
            });
        }
        let blob = describe(bytes, media_type, name)?;
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.blobs.insert(blob.sha256.clone(), bytes.into()).is_some() {
            // Moved to the end, since it is about to be used again.
            stored.order.retain(|sha256| *sha256 != blob.sha256);
        } else {
            stored.bytes += bytes.len();
        }
        stored.order.push_back(blob.sha256.clone());
        while stored.bytes > self.limit {
            let Some(oldest) = stored.order.pop_front() else { break };
            stored.bytes -= stored.blobs.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
        Ok(blob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_what_is_used_again_is_new() {
        let blobs = MemoryBlobs::new(8);
        let keep = |bytes: &[u8]| blobs.keep(bytes, "text/plain", None).unwrap().sha256;
        let (first, second) = (keep(b"aaaa"), keep(b"bbbb"));
        assert_eq!(keep(b"aaaa"), first);
        let third = keep(b"cc");
        assert!(blobs.read(&second).unwrap().is_none());
        assert_eq!(blobs.read(&first).unwrap().as_deref(), Some(&b"aaaa"[..]));
        assert_eq!(blobs.read(&third).unwrap().as_deref(), Some(&b"cc"[..]));
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let blobs = MemoryBlobs::new(1 << 10);
        let refused = |length: usize, media_type: &str| {
            blobs.keep(&vec![0; length], media_type, None).unwrap_err().to_string()
        };
        assert_eq!(refused(1025, "image/png"), "it has 1025 B; up to 1 KiB are kept");
        for media_type in
            ["", "image", "/", "image/", "image/png; a=b", "image/\"png", &"a/".repeat(100)]
        {
            assert!(refused(1, media_type).contains("no media type"), "{media_type}");
        }
    }
}
