//! The `kv` import: a store for each plugin that outlives the run. Reads are recorded, and changes
//! are journalled.

use std::sync::Arc;

use conclave_core::permissions::grants::KvGrant;
use conclave_core::types::side_effect::{FailureCause, SideEffect, SideEffectAnswer};

use serde::{Deserialize, Serialize};

use crate::imports::bindings::plugin::kv;
use crate::imports::call::{Packed, Recalled, digest};
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
type Answer<T> = Result<T, kv::KvError>;

import_view! {
    /// The `kv` import of a call.
    KvImport
}

impl KvImport<'_> {
    /// Checks that the plugin may use its store, with this key.
    fn check_key(&mut self, key: &str) -> Answer<KvGrant> {
        self.core
            .rights()
            .may_store(key)
            .map_err(|record| kv::KvError::Denied(self.core.refuse(*record)))?;
        Ok(self.core.plugin.setup.grants.kv.unwrap_or_default())
    }

    /// Runs work on the store, off the event loop.
    async fn in_store<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&dyn KvStore, &KvOwner) -> Work<T> + Send + 'static,
    ) -> Work<T> {
        let (store, owner) =
            (Arc::clone(&self.core.plugin.services.kv), self.core.plugin.kv_owner());
        let result = self.core.off_loop(move || work(store.as_ref(), &owner)).await;
        result.unwrap_or_else(|| Err(KvError::Other("the store broke off".to_owned())))
    }

    /// Converts an error for the plugin.
    fn kv_error(&self, error: KvError) -> kv::KvError {
        match error {
            KvError::Full(most) => kv::KvError::QuotaExceeded(most.bytes),
            // The store's own text can contain host paths, so it goes to the operator's log.
            KvError::Other(text) => {
                self.core.book.host_line(Level::Error, &format!("kv: {text}"));
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
    ) -> Answer<()> {
        let (ordinal, before) = self.core.begin(side_effect).await.map_err(kv::KvError::Denied)?;
        if let Some(answer) = before {
            return Self::key_changed_before(answer);
        }
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
        self.core.end(ordinal, answer).await;
        result.map_err(|error| self.kv_error(error))
    }

    /// Returns the recorded outcome of a change.
    fn key_changed_before(answer: SideEffectAnswer) -> Answer<()> {
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

    async fn kv_get(&mut self, key: String) -> Answer<Option<Vec<u8>>> {
        self.check_key(&key)?;
        let limit = self.core.plugin.limits().read;
        if self.core.read.get() >= limit {
            return Err(kv::KvError::Other(format!(
                "the call has read the {limit} bytes that it may"
            )));
        }
        let value = match self.core.replay.recall::<Got>(GET, &key) {
            Recalled::Before(Got::Value(packed)) => {
                Some(self.core.replay.unpack(packed).ok_or_else(unusable)?)
            }
            Recalled::Before(Got::Absent) => None,
            Recalled::Before(Got::Unusable) | Recalled::Lost => return Err(unusable()),
            Recalled::Now => {
                let of = key.clone();
                let value = self.in_store(move |store, owner| store.get(owner, &of)).await;
                let (got, size) = match &value {
                    Ok(Some(value)) => {
                        let (packed, size) = self.core.replay.pack(value);
                        (Got::Value(packed), size)
                    }
                    Ok(None) => (Got::Absent, 0),
                    Err(_) => (Got::Unusable, 0),
                };
                self.core.replay.keep(GET, &key, &got, size);
                value.map_err(|error| self.kv_error(error))?
            }
        };
        self.core.read.add(value.as_ref().map_or(0, Vec::len) as u64);
        Ok(value)
    }

    async fn kv_set(&mut self, key: String, value: Vec<u8>) -> Answer<()> {
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

    async fn kv_delete(&mut self, key: String) -> Answer<()> {
        self.check_key(&key)?;
        let side_effect = SideEffect::DeleteKey { key: key.clone() };
        self.change(side_effect, 0, move |store, owner| store.delete(owner, &key)).await
    }

    async fn kv_keys(
        &mut self,
        prefix: String,
        after: Option<String>,
        count: u32,
    ) -> Answer<Vec<String>> {
        self.check_key(&prefix)?;
        let count = usize::try_from(count).unwrap_or(KEYS).min(KEYS);
        let target = format!("{prefix} after {after:?}, {count}");
        match self.core.replay.recall::<Option<Vec<String>>>(LIST, &target) {
            Recalled::Before(keys) => return keys.ok_or_else(unusable),
            Recalled::Lost => return Err(unusable()),
            Recalled::Now => {}
        }
        let listed = self
            .in_store(move |store, owner| store.keys(owner, &prefix, after.as_deref(), count))
            .await;
        let size = listed.as_ref().map_or(0, |keys| keys.iter().map(|key| key.len() + 4).sum());
        self.core.replay.keep(LIST, &target, &listed.as_ref().ok(), size);
        listed.map_err(|error| self.kv_error(error))
    }
}

impl kv::Host for KvImport<'_> {
    async fn get(&mut self, key: String) -> wasmtime::Result<Answer<Option<Vec<u8>>>> {
        self.core.enter()?;
        Ok(self.kv_get(key).await)
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> wasmtime::Result<Answer<()>> {
        self.core.enter()?;
        Ok(self.kv_set(key, value).await)
    }

    async fn delete(&mut self, key: String) -> wasmtime::Result<Answer<()>> {
        self.core.enter()?;
        Ok(self.kv_delete(key).await)
    }

    async fn keys(
        &mut self,
        prefix: String,
        after: Option<String>,
        count: u32,
    ) -> wasmtime::Result<Answer<Vec<String>>> {
        self.core.enter()?;
        Ok(self.kv_keys(prefix, after, count).await)
    }
}
