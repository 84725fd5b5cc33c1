//! The `progress` import: the progress of a long call. It shares the log's volume.

use crate::imports::bindings::conclave::plugin::progress;
use crate::imports::call::CallState;

impl progress::Host for CallState {
    fn report(
        &mut self,
        completed: u64,
        total: Option<u64>,
        message: String,
    ) -> wasmtime::Result<()> {
        self.enter()?;
        self.book.progress(completed, total, &message);
        Ok(())
    }
}
