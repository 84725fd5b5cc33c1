//! The `kv` import: a store for each plugin that outlives the run. Reads are recorded, and changes
//! are journalled.

use std::sync::Arc;

use conclave_core::permissions::grants::KvGrant;
use conclave_core::types::side_effect::{FailureCause, SideEffect, SideEffectAnswer};

use serde::{Deserialize, Serialize};

use super::journalled::{EffectStart, digest};
use crate::imports::bindings::conclave::plugin::kv;
use crate::imports::call::{CallState, Packed, Recalled};
use crate::imports::convert::denial_out;
use crate::imports::kv::{KvError, KvOwner, KvStore};
use crate::observe::subscribe::Level;

/// Maximum keys of one page.
const KEYS: usize = 1_000;

/// The plugin's error message for an unusable store.
const UNUSABLE: &str = "the store cannot be used";
/// Names of the reads in the journal.
const GET: &str = "kv.get";
const LIST: &str = "kv.keys";

/// A value as it is recorded for a replay.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Got {
    Absent,
    Value(Packed),
    Unusable,
}

fn unusable() -> kv::KvError {
    kv::KvError::Other(UNUSABLE.to_owned())
}

type Work<T> = Result<T, KvError>;

impl CallState {
    /// Checks that the plugin may use its store, with this key.
    fn check_key(&mut self, key: &str) -> Result<KvGrant, kv::KvError> {
        match self.rights().may_store(key) {
            Ok(()) => Ok(self.plugin.setup.grants.kv.unwrap_or_default()),
            Err(record) => Err(kv::KvError::Denied(self.refuse(*record))),
        }
    }

    /// Runs work on the store, off the event loop.
    async fn in_store<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&dyn KvStore, &KvOwner) -> Work<T> + Send + 'static,
    ) -> Work<T> {
        let (store, owner) = (Arc::clone(&self.plugin.services.kv), self.plugin.kv_owner());
        let result = self.off_loop(move || work(store.as_ref(), &owner)).await;
        result.unwrap_or_else(|| Err(KvError::Other("the store broke off".to_owned())))
    }

    /// Converts an error for the plugin.
    fn kv_error(&self, error: KvError) -> kv::KvError {
        match error {
            KvError::Full(most) => kv::KvError::QuotaExceeded(most.bytes),
            // The store's own text can contain host paths, so it goes to the operator's log.
            KvError::Other(text) => {
                self.book.host_line(Level::Error, &format!("kv: {text}"));
                unusable()
            }
        }
    }

    /// Makes a change as a journalled side effect.
    async fn change(
        &mut self,
        side_effect: SideEffect,
        length: u64,
        work: impl FnOnce(&dyn KvStore, &KvOwner) -> Work<()> + Send + 'static,
    ) -> Result<(), kv::KvError> {
        let ordinal = match self.begin(side_effect).await.map_err(kv::KvError::Denied)? {
            EffectStart::Now(ordinal) => ordinal,
            EffectStart::Before(_, answer) => return Self::key_changed_before(answer),
        };
        let result = self.in_store(work).await;
        // The journal gets no text of the store, which may contain host paths.
        let answer = match &result {
            Ok(()) => SideEffectAnswer::Done { length },
            Err(KvError::Full(most)) => {
                let cause = FailureCause::Quota { limit: most.bytes };
                SideEffectAnswer::Failed { cause, message: KvError::Full(*most).to_string() }
            }
            Err(KvError::Other(_)) => SideEffectAnswer::Failed {
                cause: FailureCause::Unavailable,
                message: UNUSABLE.to_owned(),
            },
        };
        self.end(ordinal, answer).await;
        result.map_err(|error| self.kv_error(error))
    }

    /// Returns the recorded outcome of a change.
    fn key_changed_before(answer: SideEffectAnswer) -> Result<(), kv::KvError> {
        match answer {
            SideEffectAnswer::Failed { cause: FailureCause::Quota { limit }, .. } => {
                Err(kv::KvError::QuotaExceeded(limit))
            }
            SideEffectAnswer::Failed { cause: FailureCause::Unavailable, .. } => Err(unusable()),
            SideEffectAnswer::Failed { message, .. } => Err(kv::KvError::Other(message)),
            SideEffectAnswer::Denied { denial } => Err(kv::KvError::Denied(denial_out(&denial))),
            SideEffectAnswer::Done { .. }
            | SideEffectAnswer::Fetched { .. }
            | SideEffectAnswer::Ran { .. } => Ok(()),
        }
    }

    async fn kv_get(&mut self, key: String) -> Result<Option<Vec<u8>>, kv::KvError> {
        self.check_key(&key)?;
        let limit = self.plugin.limits().read;
        if self.read.get() >= limit {
            return Err(kv::KvError::Other(format!(
                "the call has read the {limit} bytes that it may"
            )));
        }
        let value = match self.replay.recall::<Got>(GET, &key) {
            Recalled::Before(Got::Value(packed)) => {
                Some(self.replay.unpack(packed).ok_or_else(unusable)?)
            }
            Recalled::Before(Got::Absent) => None,
            Recalled::Before(Got::Unusable) | Recalled::Lost => return Err(unusable()),
            Recalled::Now => {
                let of = key.clone();
                let value = self.in_store(move |store, owner| store.get(owner, &of)).await;
                let (got, size) = match &value {
                    Ok(Some(value)) => {
                        let (packed, size) = self.replay.pack(value);
                        (Got::Value(packed), size)
                    }
                    Ok(None) => (Got::Absent, 0),
                    Err(_) => (Got::Unusable, 0),
                };
                self.replay.keep(GET, &key, &got, size);
                value.map_err(|error| self.kv_error(error))?
            }
        };
        self.read.add(value.as_ref().map_or(0, Vec::len) as u64);
        Ok(value)
    }

    async fn kv_set(&mut self, key: String, value: Vec<u8>) -> Result<(), kv::KvError> {
        let most = self.check_key(&key)?;
        let length = value.len() as u64;
        // A change that can never fit is not journalled.
        if length.saturating_add(key.len() as u64) > most.bytes {
            return Err(kv::KvError::QuotaExceeded(most.bytes));
        }
        let side_effect = SideEffect::SetKey { key: key.clone(), value: digest(&value) };
        self.change(side_effect, length, move |store, owner| store.set(owner, &key, &value, most))
            .await
    }

    async fn kv_delete(&mut self, key: String) -> Result<(), kv::KvError> {
        self.check_key(&key)?;
        let side_effect = SideEffect::DeleteKey { key: key.clone() };
        self.change(side_effect, 0, move |store, owner| store.delete(owner, &key)).await
    }

    async fn kv_keys(
        &mut self,
        prefix: String,
        after: Option<String>,
        count: u32,
    ) -> Result<Vec<String>, kv::KvError> {
        self.check_key(&prefix)?;
        let count = usize::try_from(count).unwrap_or(KEYS).min(KEYS);
        let target = format!("{prefix} after {after:?}, {count}");
        match self.replay.recall::<Option<Vec<String>>>(LIST, &target) {
            Recalled::Before(keys) => return keys.ok_or_else(unusable),
            Recalled::Lost => return Err(unusable()),
            Recalled::Now => {}
        }
        let listed = self
            .in_store(move |store, owner| store.keys(owner, &prefix, after.as_deref(), count))
            .await;
        let size = listed.as_ref().map_or(0, |keys| keys.iter().map(|key| key.len() + 4).sum());
        self.replay.keep(LIST, &target, &listed.as_ref().ok(), size);
        listed.map_err(|error| self.kv_error(error))
    }
}

impl kv::Host for CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<Vec<u8>>, kv::KvError>> {
        self.enter()?;
        Ok(self.kv_get(key).await)
    }

    async fn set(
        &mut self,
        key: String,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), kv::KvError>> {
        self.enter()?;
        Ok(self.kv_set(key, value).await)
    }

    async fn delete(&mut self, key: String) -> wasmtime::Result<Result<(), kv::KvError>> {
        self.enter()?;
        Ok(self.kv_delete(key).await)
    }

    async fn keys(
        &mut self,
        prefix: String,
        after: Option<String>,
        count: u32,
    ) -> wasmtime::Result<Result<Vec<String>, kv::KvError>> {
        self.enter()?;
        Ok(self.kv_keys(prefix, after, count).await)
    }
}
