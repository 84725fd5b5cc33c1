//! The `secrets` import: placeholders for values. They are resolved when a request is sent.

use crate::imports::bindings::conclave::plugin::{secrets, types};
use crate::imports::call::{CallState, Packed, Recalled};
use crate::imports::secrets::vault::CallSecrets;

const PLACEHOLDER: &str = "secrets.placeholder";

impl CallState {
    /// Restores the seed of the placeholders in a replay, because the vault of a restarted host has
    /// another key.
    fn settle_seed(&mut self) {
        let seed = match self.replay.recall::<Packed>(PLACEHOLDER, "") {
            Recalled::Before(packed) => {
                self.replay.unpack(packed).and_then(|seed| seed.try_into().ok())
            }
            Recalled::Now => {
                let own = || CallSecrets::seed(&self.plugin, &self.start.room, self.start.call);
                let seed = self.replay.seed().unwrap_or_else(own);
                let (packed, size) = self.replay.pack(&seed);
                self.replay.keep(PLACEHOLDER, "", &packed, size);
                Some(seed)
            }
            Recalled::Lost => None,
        };
        if let Some(seed) = seed {
            self.replay.set_seed(seed);
        }
    }
}

impl secrets::Host for CallState {
    fn placeholder(&mut self, name: String) -> wasmtime::Result<Result<String, types::Denial>> {
        self.enter()?;
        self.settle_seed();
        Ok(self.secrets().placeholder(&name).map_err(|record| self.refuse(*record)))
    }
}
