//! `secrets`: placeholders in the place of values.

use conclave_core::manifest::Capability;

use crate::bindings::conclave::plugin::{secrets, types};
use crate::sandbox::CallState;

impl secrets::Host for CallState {
    fn placeholder(&mut self, name: String) -> wasmtime::Result<Result<String, types::Denial>> {
        Ok(Err(self.not_yet(Capability::Secrets, &name)?))
    }
}
