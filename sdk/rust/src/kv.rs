//! A private store of keys and values that outlives a run. The operator grants it with a quota, and
//! no other plugin can read it.
//!
//! ```no_run
//! use conclave_sdk::kv;
//!
//! let visits: u32 = kv::get_json("visits")?.unwrap_or(0);
//! kv::set_json("visits", &(visits + 1))?;
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::imports::conclave::plugin::kv as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::kv as host;
use crate::{Error, Result};
#[cfg(target_family = "wasm")]
use import as host;

pub use host::delete;
pub use import::KvError;

/// Keys per call to the host.
const PAGE: u32 = 256;

/// Returns the value of a key, or `None` if it is absent.
pub fn get(key: &str) -> Result<Option<Vec<u8>>, KvError> {
    host::get(key)
}

/// Returns the value of a key as text, or `None` if it is absent. Fails if it is not UTF-8.
pub fn get_text(key: &str) -> Result<Option<String>> {
    let text = get(key)?.map(String::from_utf8).transpose();
    text.map_err(|_| Error::Other(format!("kv: the value of {key} is not text in UTF-8")))
}

/// Replaces a value. On `quota-exceeded`, nothing was changed.
pub fn set(key: &str, value: impl AsRef<[u8]>) -> Result<(), KvError> {
    host::set(key, value.as_ref())
}

/// Returns at most `count` keys with this prefix, in byte order, starting after `after`. Possibly
/// fewer, and empty only at the end.
pub fn keys(prefix: &str, after: Option<&str>, count: u32) -> Result<Vec<String>, KvError> {
    host::keys(prefix, after, count)
}

/// Returns all keys with this prefix, in byte order.
pub fn all_keys(prefix: &str) -> Result<Vec<String>, KvError> {
    let mut keys: Vec<String> = Vec::new();
    loop {
        let page = host::keys(prefix, keys.last().map(String::as_str), PAGE)?;
        if page.is_empty() {
            return Ok(keys);
        }
        keys.extend(page);
    }
}

/// Returns the value of a key as a `T`, or `None` if it is absent. Fails if it does not have that
/// shape, such as after an update of the plugin.
pub fn get_json<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    match get(key)? {
        Some(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        None => Ok(None),
    }
}

/// Replaces a value with this one, as JSON.
pub fn set_json<T: Serialize + ?Sized>(key: &str, value: &T) -> Result<()> {
    Ok(set(key, serde_json::to_vec(value)?)?)
}
