//! The storage of notes: a key-value store, and in tests a map.

use conclave_sdk::kv::{self, KvError};

/// A store of keys and values.
pub(crate) trait Store {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError>;
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), KvError>;
    fn delete(&mut self, key: &str) -> Result<(), KvError>;
    /// Returns the keys with this prefix, in byte order, starting after `after`. Empty at the end.
    fn keys(&self, prefix: &str, after: &str, count: u32) -> Result<Vec<String>, KvError>;
}

/// The key-value store that the operator granted.
pub(crate) struct Granted;

impl Store for Granted {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        kv::get(key)
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), KvError> {
        kv::set(key, value)
    }

    fn delete(&mut self, key: &str) -> Result<(), KvError> {
        kv::delete(key)
    }

    fn keys(&self, prefix: &str, after: &str, count: u32) -> Result<Vec<String>, KvError> {
        kv::keys(prefix, Some(after), count)
    }
}
