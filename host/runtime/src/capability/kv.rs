//! `kv`: a store of the plugin's own, kept from run to run. Reads are recorded reads, changes are journalled.

use std::sync::Arc;

use conclave_core::grant::{KvGrant, Layer};
use conclave_core::manifest::Capability;
use conclave_core::side_effect::{SideEffect, SideEffectAnswer};

use super::journalled::digest;
use crate::bindings::conclave::plugin::kv;
use crate::kv::{KEY_BYTES, KvError, KvOwner, KvStore};
use crate::sandbox::CallState;
use crate::subscribe::Level;

/// Keys that one call gives at most.
const KEYS: usize = 1_000;

type Work<T> = Result<T, KvError>;

impl CallState {
    /// The plugin may use its store, and this may be a key of it.
    fn may_keep(&mut self, key: &str) -> Result<KvGrant, kv::KvError> {
        let record = match self.rights().may_keep(key) {
            Ok(()) if key.len() > KEY_BYTES => {
                self.rights().refuse(Capability::Kv, key, Layer::Runtime, "a key has 512 bytes at most", None)
            }
            Ok(()) => return Ok(self.grantee.setup.grants.kv.unwrap_or_default()),
            Err(record) => record,
        };
        Err(kv::KvError::Denied(self.refuse(*record)))
    }

    /// Works on the store, off the event loop.
    async fn in_store<T: Send + 'static>(&mut self, work: impl FnOnce(&dyn KvStore, &KvOwner) -> Work<T> + Send + 'static) -> Work<T> {
        let (store, owner) = (Arc::clone(&self.grantee.stores.kv), self.grantee.kv_owner());
        let done = self.off_loop(move || work(store.as_ref(), &owner)).await;
        done.unwrap_or_else(|| Err(KvError::Other("the store broke off".to_owned())))
    }

    /// What the plugin is told; the words of a store can name places on the host, so they go to the operator.
    fn kv_error(&self, error: KvError) -> kv::KvError {
        match error {
            KvError::Full(most) => kv::KvError::QuotaExceeded(most.bytes),
            KvError::Other(text) => {
                self.book.line(Level::Error, &format!("kv: {text}"));
                kv::KvError::Other("the store cannot be used".to_owned())
            }
        }
    }

    /// A change: asked for, made, and its end kept.
    async fn change(
        &mut self,
        side_effect: SideEffect,
        length: u64,
        work: impl FnOnce(&dyn KvStore, &KvOwner) -> Work<()> + Send + 'static,
    ) -> Result<(), kv::KvError> {
        let ordinal = self.begin(side_effect).await.map_err(kv::KvError::Denied)?;
        let done = self.in_store(work).await;
        let answer = match &done {
            Ok(()) => SideEffectAnswer::Done { length },
            Err(KvError::Full(most)) => SideEffectAnswer::Failed { message: KvError::Full(*most).to_string() },
            Err(KvError::Other(_)) => SideEffectAnswer::Failed { message: "the store cannot be used".to_owned() },
        };
        self.end(ordinal, answer).await;
        done.map_err(|error| self.kv_error(error))
    }

    async fn kv_get(&mut self, key: String) -> Result<Option<Vec<u8>>, kv::KvError> {
        self.may_keep(&key)?;
        let limit = self.grantee.limits().read;
        if self.read.get() >= limit {
            return Err(kv::KvError::Other(format!("the call has read the {limit} bytes that it may")));
        }
        let value = self.in_store(move |store, owner| store.get(owner, &key)).await.map_err(|error| self.kv_error(error))?;
        self.read.add(value.as_ref().map_or(0, Vec::len) as u64);
        Ok(value)
    }

    async fn kv_set(&mut self, key: String, value: Vec<u8>) -> Result<(), kv::KvError> {
        let most = self.may_keep(&key)?;
        let length = value.len() as u64;
        // What can never fit is not journalled.
        if length.saturating_add(key.len() as u64) > most.bytes {
            return Err(kv::KvError::QuotaExceeded(most.bytes));
        }
        let side_effect = SideEffect::SetKey { key: key.clone(), value: digest(&value) };
        self.change(side_effect, length, move |store, owner| store.set(owner, &key, &value, most)).await
    }

    async fn kv_delete(&mut self, key: String) -> Result<(), kv::KvError> {
        self.may_keep(&key)?;
        let side_effect = SideEffect::DeleteKey { key: key.clone() };
        self.change(side_effect, 0, move |store, owner| store.delete(owner, &key)).await
    }

    async fn kv_keys(&mut self, prefix: String, after: Option<String>, count: u32) -> Result<Vec<String>, kv::KvError> {
        self.may_keep(&prefix)?;
        let count = usize::try_from(count).unwrap_or(KEYS).min(KEYS);
        let listed = self.in_store(move |store, owner| store.keys(owner, &prefix, after.as_deref(), count)).await;
        listed.map_err(|error| self.kv_error(error))
    }
}

impl kv::Host for CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, kv::KvError>> {
        self.enter()?;
        Ok(self.kv_get(key).await)
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Result<(), kv::KvError>> {
        self.enter()?;
        Ok(self.kv_set(key, value).await)
    }

    async fn delete(&mut self, key: String) -> wasmtime::Result<Result<(), kv::KvError>> {
        self.enter()?;
        Ok(self.kv_delete(key).await)
    }

    async fn keys(&mut self, prefix: String, after: Option<String>, count: u32) -> wasmtime::Result<Result<Vec<String>, kv::KvError>> {
        self.enter()?;
        Ok(self.kv_keys(prefix, after, count).await)
    }
}
