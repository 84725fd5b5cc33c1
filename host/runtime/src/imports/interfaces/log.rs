//! The `log` import: human-readable lines, which are not journalled.

use crate::imports::bindings::plugin::{log, types};
use crate::observe::subscribe::Level;

import_view! {
    /// The `log` import of a call.
    LogImport
}

impl types::Host for LogImport<'_> {}

impl log::Host for LogImport<'_> {
    fn log(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.core.enter()?;
        let level = match level {
            log::Level::Trace => Level::Trace,
            log::Level::Debug => Level::Debug,
            log::Level::Info => Level::Info,
            log::Level::Warn => Level::Warn,
            log::Level::Error => Level::Error,
        };
        self.core.book.line(level, &message);
        Ok(())
    }
}
