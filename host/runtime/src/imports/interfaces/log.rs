//! The `log` import: human-readable lines, which are not journalled.

use crate::imports::bindings::conclave::plugin::{log, types};
use crate::imports::call::CallState;
use crate::observe::subscribe::Level;

impl types::Host for CallState {}

impl log::Host for CallState {
    fn log(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.enter()?;
        let level = match level {
            log::Level::Trace => Level::Trace,
            log::Level::Debug => Level::Debug,
            log::Level::Info => Level::Info,
            log::Level::Warn => Level::Warn,
            log::Level::Error => Level::Error,
        };
        self.book.line(level, &message);
        Ok(())
    }
}
