//! The values of `[secrets.NAME]`. They are read at the first use, inserted into allowed requests,
//! and scrubbed from responses. `conclave_core::permissions::secret` decides which requests are
//! allowed; `fetch` decides the destination.
#![cfg_attr(
    not(feature = "fetch"),
    allow(dead_code, reason = "without requests nothing takes a value")
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use conclave_core::config::KeyRef;
use conclave_core::permissions::secret::{Scrubber, SecretValue};
use conclave_core::types::ids::{CallId, RoomId, SecretName};
use sha2::{Digest, Sha256};

use super::{NoSecrets, SecretSource};

/// The secrets of a config. A value is read when the first request needs it. It stays in memory
/// until the vault is dropped, and is then cleared. A changed value takes effect at the next start.
pub(crate) struct Vault {
    source: Arc<dyn SecretSource>,
    from: BTreeMap<SecretName, KeyRef>,
    /// A random key, so that no plugin can compute the placeholders of another call.
    key: [u8; 32],
    /// Serialises reads, so that a program is asked for its value once.
    reading: tokio::sync::Mutex<()>,
    values: RwLock<Arc<Scrubber>>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vault").field("secrets", &self.from.keys()).finish_non_exhaustive()
    }
}

impl Vault {
    /// Returns the vault of these secrets, each with its source.
    ///
    /// # Errors
    /// If the system gives no randomness, in words for the operator.
    pub(crate) fn new(
        source: Arc<dyn SecretSource>,
        from: BTreeMap<SecretName, KeyRef>,
    ) -> Result<Self, String> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)
            .map_err(|error| format!("placeholders for secrets cannot be made: {error}"))?;
        Ok(Self { key, from, ..Self::none(source) })
    }

    /// A vault without secrets, whose key is never used.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::new(Self::none(Arc::new(NoSecrets)))
    }

    fn none(source: Arc<dyn SecretSource>) -> Self {
        Self {
            source,
            from: BTreeMap::new(),
            key: [0; 32],
            reading: tokio::sync::Mutex::default(),
            values: RwLock::default(),
        }
    }

    /// Whether the config has a secret of this name.
    pub(crate) fn knows(&self, name: &SecretName) -> bool {
        self.from.contains_key(name)
    }

    /// The seed for the placeholders of a call. It is stable as long as this vault exists.
    pub(in crate::imports) fn seed(&self, room: &RoomId, call: CallId) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"conclave secrets 1\0");
        hash.update(self.key);
        // The room's name comes last, so that no two inputs have the same bytes.
        hash.update(call.0.to_le_bytes());
        hash.update(room.as_str().as_bytes());
        hash.finalize().into()
    }

    /// The scrubber of the values read so far.
    pub(crate) fn scrubber(&self) -> Arc<Scrubber> {
        Arc::clone(&self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the missing values of these secrets. From then on, responses are scrubbed of them.
    ///
    /// # Errors
    /// The name of a secret without a usable value, and the reason, in words for the operator.
    pub(crate) async fn read<'a>(
        &self,
        names: impl Iterator<Item = &'a SecretName>,
    ) -> Result<Arc<Scrubber>, (SecretName, String)> {
        for name in names {
            if self.scrubber().value(name).is_some() {
                continue;
            }
            let _turn = self.reading.lock().await;
            // Checked again: another task may have read the value while this one waited for the
            // lock.
            let known = self.scrubber();
            if known.value(name).is_some() {
                continue;
            }
            let failed = |what: String| (name.clone(), what);
            let from = self
                .from
                .get(name)
                .ok_or_else(|| failed("the config has no such secret".to_owned()))?;
            let key = self.source.secret(from).await.map_err(failed)?;
            let value = SecretValue::new(name.clone(), key.reveal().to_owned())
                .map_err(|error| failed(error.to_string()))?;
            *self.values.write().unwrap_or_else(PoisonError::into_inner) =
                Arc::new(known.with(value));
        }
        Ok(self.scrubber())
    }
}
