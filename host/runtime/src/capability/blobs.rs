//! `blobs`: attachments that a call can reach, and those that it keeps.

use conclave_core::manifest::Capability;

use crate::bindings::conclave::plugin::{blobs, types};
use crate::sandbox::CallState;

impl blobs::Host for CallState {
    fn read(&mut self, sha256: String, _: u64, _: u32) -> wasmtime::Result<Result<Vec<u8>, blobs::BlobError>> {
        Ok(Err(blobs::BlobError::Denied(self.not_yet(Capability::Blobs, &sha256)?)))
    }

    fn keep(&mut self, _: Vec<u8>, _: String, name: Option<String>) -> wasmtime::Result<Result<types::Blob, blobs::BlobError>> {
        Ok(Err(blobs::BlobError::Denied(self.not_yet(Capability::Blobs, name.as_deref().unwrap_or_default())?)))
    }
}
