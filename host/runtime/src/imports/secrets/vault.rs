//! The values of `[secrets.NAME]`. They are read at the first use, inserted into allowed requests,
//! and scrubbed from responses. `conclave_core::permissions::secret` decides which requests are
//! allowed; `fetch` decides the destination.
//!
//! A sender of requests gets a [`CallSecrets`] from `state.secrets()` and uses it in this order:
//! 1. `let plan = secrets.check(&parts)?` with the request as the guest wrote it. On a refusal,
//!    record it, return it, and send nothing.
//! 2. `plan.redact(&parts)` and `plan.names()` go to the journal; `ask` the room.
//! 3. `let sent = secrets.put_in(&parts, &plan).await?` is the request that is sent. It is never
//!    stored and never shown.
//! 4. On a redirect, `let plan = secrets.check_hop(&mut parts, to)?` with the guest's own parts,
//!    which hold placeholders; then step 3 again.
//! 5. On a response, `scrub_text` for addresses, header values and errors, and `scrub_bytes` for
//!    the whole, decompressed body. This comes before anything is stored, logged or returned to the
//!    guest.
#![cfg_attr(
    not(feature = "fetch"),
    allow(dead_code, reason = "without requests nothing takes a value")
)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use conclave_core::config::KeyRef;
use conclave_core::permissions::grants::Rights;
use conclave_core::permissions::secret::{
    Placeholders, RequestParts, Scrubber, SecretPlan, SecretValue, Seed, check, is_same_origin,
};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::ids::{CallId, RoomId, SecretName};
use sha2::{Digest, Sha256};
use url::Url;

use super::{NoSecrets, SecretSource};
use crate::imports::call::{PluginContext, WorksOn};

/// Bytes up to which a body is scrubbed on the executor's thread.
const SMALL: usize = 64 << 10;

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

    /// The scrubber of the values read so far.
    pub(crate) fn scrubber(&self) -> Arc<Scrubber> {
        Arc::clone(&self.values.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the missing values of these secrets. From then on, responses are scrubbed of them.
    ///
    /// # Errors
    /// The name of a secret without a usable value, and the reason, in words for the operator.
    async fn read<'a>(
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

/// The secrets as one call may use them.
#[derive(Clone)]
pub(crate) struct CallSecrets {
    plugin: Arc<PluginContext>,
    task: WorksOn,
    placeholders: Placeholders,
}

impl CallSecrets {
    /// The secrets for a call of this plugin.
    pub(crate) fn new(
        plugin: Arc<PluginContext>,
        task: WorksOn,
        room: &RoomId,
        call: CallId,
    ) -> Self {
        let seed = Self::seed(&plugin, room, call);
        Self { plugin, task, placeholders: Placeholders::new(Seed(seed)) }
    }

    /// Uses the placeholders of this seed, which the call had before a restart.
    pub(crate) fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { placeholders: Placeholders::new(Seed(seed)), ..self }
    }

    /// The seed for the placeholders of a call. It is stable as long as this vault exists.
    pub(crate) fn seed(plugin: &PluginContext, room: &RoomId, call: CallId) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"conclave secrets 1\0");
        hash.update(plugin.vault.key);
        // The room's name comes last, so that no two inputs have the same bytes.
        hash.update(call.0.to_le_bytes());
        hash.update(room.as_str().as_bytes());
        hash.finalize().into()
    }

    fn rights(&self) -> Rights<'_> {
        self.plugin.rights_in(&self.task)
    }

    /// Returns the placeholder that the guest writes instead of a secret.
    ///
    /// # Errors
    /// The record for the operator, if the secret was not requested or not granted.
    pub(crate) fn placeholder(&self, name: &str) -> Result<String, Box<DenialRecord>> {
        let name = SecretName::from(name);
        self.rights().require_secret(&name, || self.smallest(&name))?;
        Ok(self.placeholders.of(&name))
    }

    /// The config line that grants the secret, if the config has it.
    fn smallest(&self, name: &SecretName) -> Option<String> {
        let granted =
            self.plugin.setup.grants.secrets.iter().map(|grant| &grant.name).chain([name]);
        let names: Vec<String> = granted.map(|name| format!("{:?}", name.as_str())).collect();
        // A plugin must not lead the operator to create a secret.
        self.plugin.vault.knows(name).then(|| {
            format!("[plugins.{}] grants.secrets = [{}]", self.plugin.name, names.join(", "))
        })
    }

    /// Decides about a request as the guest wrote it. A refused request must not be sent. It has a
    /// placeholder in a forbidden place, or holds a value that the guest must not have.
    ///
    /// # Errors
    /// The record for the operator.
    pub(crate) fn check(&self, parts: &RequestParts) -> Result<SecretPlan, Box<DenialRecord>> {
        let rights = self.rights();
        // First the placeholders, by name and place; then the values that are known so far.
        let plan = check(&rights, &self.placeholders, parts)?;
        let known = self.plugin.vault.scrubber();
        let headers =
            parts.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        let mut written =
            [parts.url.as_str().as_bytes(), parts.body.as_deref().unwrap_or_default()]
                .into_iter()
                .chain(headers);
        match written.find_map(|bytes| known.find(bytes)) {
            Some(name) => {
                let reason = "the request holds the value of a secret, which no plugin should have; a file or a program that it reads may hold it";
                Err(rights.refuse(Capability::Secrets, name.as_str(), Layer::Runtime, reason, None))
            }
            None => Ok(plan),
        }
    }

    /// Points a request to the target of a redirect, and decides about it again. Headers with a
    /// placeholder are dropped for another origin. A value that the server wrote into the new
    /// address becomes its placeholder, so it reaches no other host.
    ///
    /// # Errors
    /// As for `check`; `parts` must not be used afterwards.
    pub(crate) fn check_hop(
        &self,
        parts: &mut RequestParts,
        to: Url,
    ) -> Result<SecretPlan, Box<DenialRecord>> {
        // Before the new URL is set, since the check compares both origins.
        if !is_same_origin(&parts.url, &to) {
            parts.drop_secret_headers();
        }
        parts.url = to;
        if let Some(address) = self
            .plugin
            .vault
            .scrubber()
            .replace(parts.url.as_str().as_bytes(), |name| self.placeholders.of(name))
        {
            let address = Url::parse(&String::from_utf8_lossy(&address)).map_err(|_| {
                let reason = "the server wrote a secret into the address of a redirect, where none may stand";
                self.rights().refuse(Capability::Secrets, "a redirect", Layer::Runtime, reason, None)
            })?;
            parts.url = address;
        }
        self.check(parts)
    }

    /// Returns the request with the values inserted.
    ///
    /// # Errors
    /// The record for the operator, if a value cannot be read or does not fit in its place.
    pub(crate) async fn put_in(
        &self,
        parts: &RequestParts,
        plan: &SecretPlan,
    ) -> Result<RequestParts, Box<DenialRecord>> {
        if plan.is_empty() {
            return Ok(parts.clone());
        }
        let refuse = |name: &SecretName, reason: &str| {
            self.rights().refuse(Capability::Secrets, name.as_str(), Layer::Host, reason, None)
        };
        let read = self.plugin.vault.read(plan.uses().map(|one| &one.name)).await;
        let values = read.map_err(|(name, what)| {
            refuse(&name, &format!("its value could not be read: {what}"))
        })?;
        let put_in = plan.put_in(parts, |name| values.value(name));
        put_in.map_err(|name| {
            refuse(
                &name,
                "its value cannot stand in a header: it has line ends or letters other than ASCII",
            )
        })
    }

    /// A received text with every value scrubbed.
    pub(crate) fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.plugin.vault.scrubber().scrub_text(text)
    }

    /// Returns a received body with every value scrubbed.
    pub(crate) async fn scrub_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let scrubber = self.plugin.vault.scrubber();
        if scrubber.is_empty() {
            return bytes;
        }
        if bytes.len() <= SMALL {
            return scrubber.scrub(&bytes).unwrap_or(bytes);
        }
        let scrubbed =
            tokio::task::spawn_blocking(move || scrubber.scrub(&bytes).unwrap_or(bytes)).await;
        // The executor is shutting down; bytes that were not scrubbed go nowhere.
        scrubbed.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
