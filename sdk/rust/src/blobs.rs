//! Attachments. A call can read those of the messages that it was lent, and those that it kept
//! itself; a digest alone opens nothing.
//!
//! ```no_run
//! use conclave_sdk::{Outcome, blobs};
//!
//! let chart = blobs::keep(b"<svg/>", "image/svg+xml", Some("chart.svg"))?;
//! let outcome = Outcome::text("Here is the chart.").with_attachment(chart);
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use crate::bindings::imports::conclave::plugin::blobs as import;
use crate::{Blob, Result};

pub use import::BlobError;

/// Bytes per call to the host.
const PAGE: u32 = 128 * 1024;

/// At most `length` bytes from `offset`; empty past the end, and maybe fewer before it.
pub fn read(sha256: &str, offset: u64, length: u32) -> Result<Vec<u8>, BlobError> {
    import::read(sha256, offset, length)
}

/// The whole attachment.
pub fn read_all(blob: &Blob) -> Result<Vec<u8>, BlobError> {
    let mut bytes = Vec::new();
    loop {
        let page = import::read(&blob.sha256, bytes.len() as u64, PAGE)?;
        if page.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(page);
    }
}

/// Keeps bytes, and gives what refers to them: to be put into an outcome or a reply. Keeping the
/// same bytes again gives the same blob.
pub fn keep(
    bytes: impl AsRef<[u8]>,
    media_type: &str,
    name: Option<&str>,
) -> Result<Blob, BlobError> {
    import::keep(bytes.as_ref(), media_type, name)
}
