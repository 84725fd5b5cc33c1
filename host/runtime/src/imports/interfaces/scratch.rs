//! The `scratch` import: data that a plugin keeps between calls. It is returned in the call's
//! report, and the core stores it with the answer.

use crate::imports::bindings::plugin::scratch;

import_view! {
    /// The `scratch` import of a call.
    ScratchImport { scratch: Option<Vec<u8>> }
}

impl scratch::Host for ScratchImport<'_> {
    fn get(&mut self) -> wasmtime::Result<Vec<u8>> {
        self.core.enter()?;
        Ok(self.scratch.clone().unwrap_or_else(|| self.core.start.scratch.to_vec()))
    }

    fn set(&mut self, value: Vec<u8>) -> wasmtime::Result<Result<(), scratch::ScratchError>> {
        self.core.enter()?;
        let limit = self.core.plugin.limits().scratch;
        if value.len() as u64 > limit {
            return Ok(Err(scratch::ScratchError::TooLarge(limit)));
        }
        *self.scratch = Some(value);
        Ok(Ok(()))
    }
}
