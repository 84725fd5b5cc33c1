//! `blobs` and `kv`: in the contract, not offered by this host yet. Linked all the same, because some toolchains import the whole world;
//! every function answers `denied`.

use conclave_core::manifest::Capability;

use crate::bindings::conclave::plugin::{blobs, kv, types};
use crate::sandbox::CallState;

impl CallState {
    /// The refusal of a capability that nobody can grant.
    fn unoffered(&mut self, capability: Capability, target: &str) -> wasmtime::Result<types::Denial> {
        self.enter()?;
        let refused = self.rights().require(capability, target, || None);
        let record = refused.expect_err("the capability is not offered");
        Ok(self.refuse(*record))
    }
}

impl blobs::Host for CallState {
    fn read(&mut self, sha256: String, _: u64, _: u32) -> wasmtime::Result<Result<Vec<u8>, blobs::BlobError>> {
        Ok(Err(blobs::BlobError::Denied(self.unoffered(Capability::Blobs, &sha256)?)))
    }

    fn keep(&mut self, _: Vec<u8>, _: String, name: Option<String>) -> wasmtime::Result<Result<types::Blob, blobs::BlobError>> {
        Ok(Err(blobs::BlobError::Denied(self.unoffered(Capability::Blobs, name.as_deref().unwrap_or_default())?)))
    }
}

impl kv::Host for CallState {
    fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.unoffered(Capability::Kv, &key)?)))
    }

    fn set(&mut self, key: String, _: Vec<u8>) -> wasmtime::Result<Result<(), kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.unoffered(Capability::Kv, &key)?)))
    }

    fn delete(&mut self, key: String) -> wasmtime::Result<Result<(), kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.unoffered(Capability::Kv, &key)?)))
    }

    fn keys(&mut self, prefix: String, _: Option<String>, _: u32) -> wasmtime::Result<Result<Vec<String>, kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.unoffered(Capability::Kv, &prefix)?)))
    }
}
