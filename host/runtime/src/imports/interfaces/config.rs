//! The `config` import: the plugin's settings as the operator wrote them.

use crate::imports::bindings::conclave::plugin::config;
use crate::imports::call::CallState;

impl config::Host for CallState {
    fn get(&mut self) -> wasmtime::Result<String> {
        self.enter()?;
        Ok(self.grantee.config.clone())
    }
}
