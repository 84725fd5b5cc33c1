//! The secrets of one call. `conclave_core::permissions::secret` decides which requests are allowed;
//! `fetch` decides the destination.
//!
//! A sender of requests gets a [`CallSecrets`] from `core.secrets()` and uses it in this order:
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
use std::sync::Arc;

use conclave_core::permissions::grants::Rights;
use conclave_core::permissions::secret::{
    Placeholders, RequestParts, SecretPlan, Seed, check, is_same_origin,
};
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::{DenialRecord, Layer};
use conclave_core::types::ids::SecretName;
use url::Url;

use super::plugin_context::{PluginContext, WorksOn};

/// Bytes up to which a body is scrubbed on the executor's thread.
const SMALL: usize = 64 << 10;

/// The secrets as one call may use them.
#[derive(Clone)]
pub(crate) struct CallSecrets {
    plugin: Arc<PluginContext>,
    task: WorksOn,
    placeholders: Placeholders,
}

impl CallSecrets {
    /// The secrets for a call of this plugin.
    pub(crate) fn new(plugin: Arc<PluginContext>, task: WorksOn, seed: [u8; 32]) -> Self {
        Self { plugin, task, placeholders: Placeholders::new(Seed(seed)) }
    }

    pub(crate) fn plugin(&self) -> &PluginContext {
        &self.plugin
    }

    pub(crate) fn rights(&self) -> Rights<'_> {
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
