//! `secrets`: placeholders in the place of values. What becomes of one is decided when a request leaves.

use crate::bindings::conclave::plugin::{secrets, types};
use crate::sandbox::CallState;

impl secrets::Host for CallState {
    fn placeholder(&mut self, name: String) -> wasmtime::Result<Result<String, types::Denial>> {
        self.enter()?;
        Ok(self.secrets().placeholder(&name).map_err(|record| self.refuse(*record)))
    }
}
