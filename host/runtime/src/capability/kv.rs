//! `kv`: a store of the plugin's own, kept from run to run.

use conclave_core::manifest::Capability;

use crate::bindings::conclave::plugin::kv;
use crate::sandbox::CallState;

impl kv::Host for CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.not_yet(Capability::Kv, &key)?)))
    }

    async fn set(&mut self, key: String, _: Vec<u8>) -> wasmtime::Result<Result<(), kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.not_yet(Capability::Kv, &key)?)))
    }

    async fn delete(&mut self, key: String) -> wasmtime::Result<Result<(), kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.not_yet(Capability::Kv, &key)?)))
    }

    async fn keys(&mut self, prefix: String, _: Option<String>, _: u32) -> wasmtime::Result<Result<Vec<String>, kv::KvError>> {
        Ok(Err(kv::KvError::Denied(self.not_yet(Capability::Kv, &prefix)?)))
    }
}
