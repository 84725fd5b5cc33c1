//! A small private memory: per task for agents and tools, per room for strategies. What is set is
//! kept with the call's answer, or not at all when the call fails. In a native unit test it is a
//! memory of the test's thread, empty at first.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::bindings::imports::conclave::plugin::scratch as import;

pub use import::ScratchError;

#[cfg(not(target_family = "wasm"))]
const NATIVE_LIMIT: usize = 64 * 1024;

/// What was set last; none at first. Fails when it does not have the shape of `T`, such as after an
/// update of the plugin.
pub fn get<T: DeserializeOwned>() -> Result<Option<T>> {
    let bytes = bytes();
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
    #[cfg(target_family = "wasm")]
    return import::get();
    #[cfg(not(target_family = "wasm"))]
    crate::native::scratch()
}

/// Replaces it. `too-large`: nothing was changed.
pub fn set_bytes(value: &[u8]) -> Result<(), ScratchError> {
    #[cfg(target_family = "wasm")]
    return import::set(value);
    #[cfg(not(target_family = "wasm"))]
    {
        // As much as a host gives that was not told otherwise: what does not fit there shall not
        // fit here.
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
