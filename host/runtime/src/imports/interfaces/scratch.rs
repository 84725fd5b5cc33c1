//! The `scratch` import: data that a plugin keeps between calls. It is returned in the call's
//! report, and the core stores it with the answer.

use crate::imports::bindings::conclave::plugin::scratch;
use crate::imports::call::CallState;

impl scratch::Host for CallState {
    fn get(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.enter()?;
        Ok(self.scratch.clone().unwrap_or_else(|| self.start.scratch.to_vec()))
    }

    fn set(&mut self, value: Vec<u8>) -> wasmtime::Result<Result<(), scratch::ScratchError>> {
        self.enter()?;
        let limit = self.plugin.limits().scratch;
        if value.len() as u64 > limit {
            return Ok(Err(scratch::ScratchError::TooLarge(limit)));
        }
        self.scratch = Some(value);
        Ok(Ok(()))
    }
}
