//! `kv`: a key-value store of the plugin's own.

use serde::{Deserialize, Serialize};

use super::{
    AccessRequest, Capability, Destination, Grant, GrantTexts, Layer, Refused, Rights, TaskScope,
};
use crate::permissions::overlap::smaller_of;
use crate::types::text::show_size;

/// Maximum bytes of a key of a plugin's own store.
pub const KEY_BYTES: usize = 512;

/// The grant of a key-value store of the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvGrant {
    /// The limit in bytes of all keys and values together.
    pub bytes: u64,
    pub keys: u64,
}

impl KvGrant {
    /// The quota of a grant that sets none.
    pub const DEFAULT: Self = Self { bytes: 1 << 20, keys: 1_000 };
}

impl Default for KvGrant {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Rights<'_> {
    /// Allows the plugin's own store, for this key.
    ///
    /// # Errors
    /// The record, if the store is not requested, not granted, or excluded by the task, or if the
    /// key is too long.
    pub fn may_store(&self, key: &str) -> Result<(), Refused> {
        self.require(Capability::Kv, key, || Some(self.line(Capability::Kv, true)))?;
        self.check_scope(Capability::Kv, key, |scope| scope.kv != Some(false))?;
        if key.len() > KEY_BYTES {
            let reason = "a key has 512 bytes at most";
            return Err(self.refuse(Capability::Kv, key, Layer::Runtime, reason, None));
        }
        Ok(())
    }
}

impl Grant for KvGrant {
    fn decide(request: &AccessRequest<'_>) -> Result<(), Refused> {
        request.rights.may_store(request.target)
    }

    fn remains(scope: &TaskScope, _writes: bool) -> Option<bool> {
        Some(scope.kv != Some(false))
    }

    fn question() -> Option<(&'static str, &'static str)> {
        Some(("May it store keys across runs (1 MiB)?", "true"))
    }

    fn narrowed_by(&self, today: &Self) -> Option<Self> {
        Some(smaller_of!(self, today: bytes keys;;))
    }

    fn needs_approval(&self) -> bool {
        // It is the plugin's own store.
        false
    }

    fn destinations(&self) -> Vec<Destination<'_>> {
        Vec::new()
    }

    fn texts(&self, _request: &AccessRequest<'_>) -> GrantTexts {
        let size = show_size(self.bytes);
        GrantTexts {
            summary: vec![format!("keep {size} of its own")],
            granted: format!("{size} in {} keys", self.keys),
            ..GrantTexts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::grants::Grants;
    use crate::permissions::manifest::{CapabilityRequest, Manifest};

    #[test]
    fn a_key_that_is_too_long_is_refused_by_the_host() {
        let asks = [("kv".to_owned(), CapabilityRequest::default())];
        let manifest = Manifest { asks: asks.into(), ..Manifest::default() };
        let grants = Grants { kv: Some(KvGrant::default()), ..Grants::default() };
        let rights =
            Rights { plugin: "desk", manifest: &manifest, grants: &grants, narrowed: None };
        assert!(rights.may_store(&"k".repeat(KEY_BYTES)).is_ok());
        let record = rights.may_store(&"k".repeat(KEY_BYTES + 1)).expect_err("it is too long");
        assert_eq!((record.layer, record.suggestion), (Layer::Runtime, None));
    }
}
