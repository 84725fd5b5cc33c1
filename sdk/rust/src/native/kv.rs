//! Keys in memory.

use super::{denied, fake};
use crate::kv::KvError;

fn keys_of<T>(
    key: &str,
    work: impl FnOnce(&mut std::collections::BTreeMap<String, Vec<u8>>) -> T,
) -> Result<T, KvError> {
    fake(|fake| fake.kv.as_mut().map(work)).ok_or_else(|| KvError::Denied(denied("kv", key)))
}

pub(crate) fn get(key: &str) -> Result<Option<Vec<u8>>, KvError> {
    keys_of(key, |keys| keys.get(key).cloned())
}

pub(crate) fn set(key: &str, value: &[u8]) -> Result<(), KvError> {
    keys_of(key, |keys| drop(keys.insert(key.to_owned(), value.to_vec())))
}

/// Removes a key; succeeds if it is absent.
pub fn delete(key: &str) -> Result<(), KvError> {
    keys_of(key, |keys| drop(keys.remove(key)))
}

pub(crate) fn keys(prefix: &str, after: Option<&str>, count: u32) -> Result<Vec<String>, KvError> {
    keys_of(prefix, |keys| {
        let is_next = |key: &&String| {
            key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
        };
        keys.keys().filter(is_next).take(count as usize).cloned().collect()
    })
}
