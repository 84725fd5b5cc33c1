//! A small private memory: per task for agents and tools, per room for strategies. Changes are
//! stored with the call's answer, and lost if the call fails. Calls of a tool plugin whose manifest
//! has `[asks.scratch]` take turns, so that each reads what the one before it stored. In a native
//! unit test it belongs to the test's thread, and is empty at first.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::bindings::imports::conclave::plugin::scratch as import;

pub use import::ScratchError;

#[cfg(not(target_family = "wasm"))]
const NATIVE_LIMIT: usize = 64 * 1024;

/// Returns the stored value, or `None` at first. Fails if it does not have the shape of `T`, such
/// as after an update of the plugin.
pub fn get<T: DeserializeOwned>() -> Result<Option<T>> {
    let bytes = bytes();
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Replaces the value. If it exceeds the limit, fails and changes nothing.
pub fn set<T: Serialize + ?Sized>(value: &T) -> Result<()> {
    Ok(set_bytes(&serde_json::to_vec(value)?)?)
}

/// The stored bytes, empty at first.
pub fn bytes() -> Vec<u8> {
    #[cfg(target_family = "wasm")]
    return import::get();
    #[cfg(not(target_family = "wasm"))]
    crate::native::scratch()
}

/// Replaces the bytes. On `too-large`, nothing was changed.
pub fn set_bytes(value: &[u8]) -> Result<(), ScratchError> {
    #[cfg(target_family = "wasm")]
    return import::set(value);
    #[cfg(not(target_family = "wasm"))]
    {
        // The default limit of a host, so that a native test fails where the host would.
        if value.len() > NATIVE_LIMIT {
            return Err(ScratchError::TooLarge(NATIVE_LIMIT as u64));
        }
        crate::native::set_scratch(value.to_vec());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{get, set};

    #[test]
    fn a_native_test_has_a_scratch_of_its_own() {
        assert_eq!(get::<u32>(), Ok(None));
        set(&7).expect("there is room");
        assert_eq!(get::<u32>(), Ok(Some(7)));
        let other = std::thread::spawn(|| get::<u32>().ok().flatten()).join();
        assert_eq!(other.ok(), Some(None), "another test's thread does not see it");
        assert!(get::<String>().is_err(), "a number is no text");
    }
}
