//! The progress of a long call, for waiting users. In a native unit test it does nothing.

use crate::bindings::imports::conclave::plugin::progress as import;

/// Reports `done` of `total` units; `total` is `None` if not known.
pub fn report(done: u64, total: impl Into<Option<u64>>, message: &str) {
    if cfg!(target_family = "wasm") {
        import::report(done, total.into(), message);
    }
}
