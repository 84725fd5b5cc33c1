//! The `secrets` import: placeholders for values. They are resolved when a request is sent.

use crate::imports::bindings::plugin::{secrets, types};
use crate::imports::call::{Packed, Recalled};

const PLACEHOLDER: &str = "secrets.placeholder";

import_view! {
    /// The `secrets` import of a call.
    SecretsImport
}

impl SecretsImport<'_> {
    /// Restores the seed of the placeholders in a replay, because the vault of a restarted host has
    /// another key.
    fn settle_seed(&mut self) {
        let seed = match self.core.replay.recall::<Packed>(PLACEHOLDER, "") {
            Recalled::Before(packed) => {
                self.core.replay.unpack(packed).and_then(|seed| seed.try_into().ok())
            }
            Recalled::Now => {
                let seed = self.core.secrets_seed();
                let (packed, size) = self.core.replay.pack(&seed);
                self.core.replay.keep(PLACEHOLDER, "", &packed, size);
                Some(seed)
            }
            Recalled::Lost => None,
        };
        if let Some(seed) = seed {
            self.core.replay.set_seed(seed);
        }
    }
}

impl secrets::Host for SecretsImport<'_> {
    fn placeholder(&mut self, name: String) -> wasmtime::Result<Result<String, types::Denial>> {
        self.core.enter()?;
        self.settle_seed();
        Ok(self.core.secrets().placeholder(&name).map_err(|record| self.core.refuse(*record)))
    }
}
