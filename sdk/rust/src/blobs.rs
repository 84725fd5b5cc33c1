//! Attachments. A call can read those of the messages in its view, and those that it stored itself.
//! A digest alone grants no access.
//!
//! ```no_run
//! use conclave_sdk::{Outcome, blobs};
//!
//! let chart = blobs::put(b"<svg/>", "image/svg+xml", Some("chart.svg"))?;
//! let outcome = Outcome::text("Here is the chart.").with_attachment(chart);
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use crate::bindings::imports::conclave::plugin::blobs as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::blobs as host;
use crate::{Blob, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use import::BlobError;

/// Bytes per call to the host.
const PAGE: u32 = 128 * 1024;

/// Returns at most `length` bytes from `offset`. Empty past the end; possibly fewer before it.
pub fn read(sha256: &str, offset: u64, length: u32) -> Result<Vec<u8>, BlobError> {
    host::read(sha256, offset, length)
}

/// Returns the whole attachment.
pub fn read_all(blob: &Blob) -> Result<Vec<u8>, BlobError> {
    let mut bytes = Vec::new();
    loop {
        let page = host::read(&blob.sha256, bytes.len() as u64, PAGE)?;
        if page.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(page);
    }
}

/// Stores bytes, and returns a blob for an outcome or a reply. The same bytes give the same blob
/// again.
pub fn put(
    bytes: impl AsRef<[u8]>,
    media_type: &str,
    name: Option<&str>,
) -> Result<Blob, BlobError> {
    host::put(bytes.as_ref(), media_type, name)
}
