//! Attachments in the store. They are readable at once, and committed no later than the first
//! record that refers to them.

use std::sync::Arc;

use super::StoreWriter;
use super::queue::WriterTask;
use crate::storage::store::{read, record};
use crate::support::blobs::{Blob, BlobError, BlobSource, Blobs, BlobsUnavailable, describe};

/// The maximum size of an attachment in bytes.
pub(super) const ATTACHMENT_BYTES: usize = 16 << 20;

pub(super) struct StoreBlobs(pub(super) Arc<StoreWriter>);

impl BlobSource for StoreBlobs {
    fn read(&self, sha256: &str) -> Result<Option<Arc<[u8]>>, BlobsUnavailable> {
        let uncommitted = self.0.shared.uncommitted().get(sha256).cloned();
        if uncommitted.is_some() {
            return Ok(uncommitted);
        }
        // If the attachment was committed after the check, it is in the tables.
        let name = sha256.to_owned();
        let read = self.0.read_now(move |tables| read::attachment(tables, &name));
        read.map_err(|error| BlobsUnavailable(error.to_string()))
    }
}

impl Blobs for StoreBlobs {
    fn keep(&self, bytes: &[u8], media_type: &str, name: Option<&str>) -> Result<Blob, BlobError> {
        if bytes.len() > ATTACHMENT_BYTES {
            return Err(BlobError::TooLarge {
                length: bytes.len() as u64,
                limit: ATTACHMENT_BYTES as u64,
            });
        }
        let blob = describe(bytes, media_type, name)?;
        let part = record::StoredBytes { sha256: blob.sha256.clone(), bytes: bytes.into() };
        self.0.shared.uncommitted().insert(part.sha256.clone(), Arc::clone(&part.bytes));
        self.0
            .shared
            .queue
            .push_when_free(WriterTask::Blob(part))
            .map_err(|cause| BlobError::Other(cause.text))?;
        Ok(blob)
    }
}
