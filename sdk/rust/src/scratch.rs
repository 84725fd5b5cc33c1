//! A small private memory: per task for agents and tools, per room for strategies. What is set is kept with the call's answer, or
//! not at all when the call fails.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::bindings::imports::conclave::plugin::scratch as import;

pub use import::ScratchError;

/// What was set last; none at first. Fails when it does not have the shape of `T`, such as after an update of the plugin.
pub fn get<T: DeserializeOwned>() -> Result<Option<T>> {
    let bytes = import::get();
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Replaces it. Fails when it is larger than the limit; then nothing was changed.
pub fn set<T: Serialize + ?Sized>(value: &T) -> Result<()> {
    Ok(set_bytes(&serde_json::to_vec(value)?)?)
}

/// What was set last, as bytes; empty at first.
pub fn bytes() -> Vec<u8> {
    import::get()
}

/// Replaces it. `too-large`: nothing was changed.
pub fn set_bytes(value: &[u8]) -> Result<(), ScratchError> {
    import::set(value)
}
