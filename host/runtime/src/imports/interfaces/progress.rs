//! The `progress` import: the progress of a long call. It shares the log's volume.

use crate::imports::bindings::plugin::progress;

import_view! {
    /// The `progress` import of a call.
    ProgressImport
}

impl progress::Host for ProgressImport<'_> {
    fn report(
        &mut self,
        completed: u64,
        total: Option<u64>,
        message: String,
    ) -> wasmtime::Result<()> {
        self.core.enter()?;
        self.core.book.progress(completed, total, &message);
        Ok(())
    }
}
