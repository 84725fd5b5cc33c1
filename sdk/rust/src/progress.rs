//! How far a long call has come, for people who wait. In a native unit test it does nothing.

use crate::bindings::imports::conclave::plugin::progress as import;

/// `done` of `total` units; `total` is none when it is not known.
pub fn report(done: u64, total: impl Into<Option<u64>>, message: &str) {
    if cfg!(target_family = "wasm") {
        import::report(done, total.into(), message);
    }
}
