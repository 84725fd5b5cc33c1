//! Key-value stores of plugins: small values that outlive the run, with a separate store for each
//! plugin. The program chooses the storage. Permissions are checked elsewhere; quotas are checked
//! here, because only the store can do so atomically.

#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::permissions::grants::KvGrant;

#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;

pub use conclave_core::permissions::grants::KEY_BYTES;

/// The owner of a store. A plugin only finds its values if all three fields match. A different
/// component under the same name thus starts with an empty store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvOwner {
    /// The folder of the config, with links resolved.
    pub home: String,
    /// The plugin's name in the config.
    pub plugin: String,
    /// The plugin's name in its manifest.
    pub manifest: String,
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The change would exceed this grant; nothing was changed.
    #[error("the store holds up to {} bytes and {} keys", .0.bytes, .0.keys)]
    Full(KvGrant),
    /// The store failed. The text is for the operator's log; the plugin does not get it.
    #[error("{0}")]
    Other(String),
}

/// Storage for plugins' values. Called off the event loop, so it may block on a disk.
pub trait KvStore: Send + Sync + 'static {
    /// Returns the value of a key; `None` if it is absent.
    ///
    /// # Errors
    /// If it cannot be read.
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError>;

    /// Sets a value, unless the owner's keys and values would exceed `most`. Check and change are
    /// atomic.
    ///
    /// # Errors
    /// `Full` if it would exceed the quota; nothing has changed then.
    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError>;

    /// Removes a key, which may be absent.
    ///
    /// # Errors
    /// If it cannot be written.
    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError>;

    /// Returns the first `count` keys with this prefix after `after`, in byte order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn keys(
        &self,
        owner: &KvOwner,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, KvError>;
}

/// The size of a key and its value in bytes.
fn weight(key: &str, value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// Whether a change fits the quota. A change that shrinks a value always fits.
fn fits(now: KvGrant, old: Option<u64>, new: u64, most: KvGrant) -> bool {
    let KvGrant { bytes, keys } = after(now, old, Some(new));
    old.is_some_and(|old| new <= old) || (bytes <= most.bytes && keys <= most.keys)
}

/// The totals after a change of one key; `new` is `None` for a removal.
fn after(now: KvGrant, old: Option<u64>, new: Option<u64>) -> KvGrant {
    KvGrant {
        bytes: now.bytes.saturating_sub(old.unwrap_or(0)).saturating_add(new.unwrap_or(0)),
        keys: (now.keys + u64::from(new.is_some())).saturating_sub(u64::from(old.is_some())),
    }
}

/// Keeps values in memory while the program runs.
#[derive(Debug, Default)]
pub struct MemoryKv(Mutex<BTreeMap<KvOwner, Values>>);

#[derive(Debug)]
struct Values {
    values: BTreeMap<String, Vec<u8>>,
    used: KvGrant,
}

impl Default for Values {
    fn default() -> Self {
        Self { values: BTreeMap::new(), used: KvGrant { bytes: 0, keys: 0 } }
    }
}

impl MemoryKv {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<KvOwner, Values>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KvStore for MemoryKv {
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        Ok(self.lock().get(owner).and_then(|stored| stored.values.get(key).cloned()))
    }

    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError> {
        // Held for check and change, which must be atomic.
        let mut all = self.lock();
        let stored = all.entry(owner.clone()).or_default();
        let (old, new) =
            (stored.values.get(key).map(|value| weight(key, value)), weight(key, value));
        if !fits(stored.used, old, new, most) {
            return Err(KvError::Full(most));
        }
        stored.used = after(stored.used, old, Some(new));
        stored.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError> {
        if let Some(stored) = self.lock().get_mut(owner)
            && let Some(value) = stored.values.remove(key)
        {
            stored.used = after(stored.used, Some(weight(key, &value)), None);
        }
        Ok(())
    }

    fn keys(
        &self,
        owner: &KvOwner,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, KvError> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let all = self.lock();
        let Some(stored) = all.get(owner) else { return Ok(Vec::new()) };
        let found = stored
            .values
            .range::<str, _>((from, Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix));
        Ok(found.take(count).cloned().collect())
    }
}

/// Keeps nothing, and says why: for a program that finds no place for a store.
#[derive(Clone, Debug)]
pub struct NoKv(pub String);

impl NoKv {
    fn refuse<T>(&self) -> Result<T, KvError> {
        Err(KvError::Other(self.0.clone()))
    }
}

impl KvStore for NoKv {
    fn get(&self, _: &KvOwner, _: &str) -> Result<Option<Vec<u8>>, KvError> {
        self.refuse()
    }

    fn set(&self, _: &KvOwner, _: &str, _: &[u8], _: KvGrant) -> Result<(), KvError> {
        self.refuse()
    }

    fn delete(&self, _: &KvOwner, _: &str) -> Result<(), KvError> {
        self.refuse()
    }

    fn keys(
        &self,
        _: &KvOwner,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<String>, KvError> {
        self.refuse()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn owner(plugin: &str, manifest: &str) -> KvOwner {
        KvOwner {
            home: "/home/me".to_owned(),
            plugin: plugin.to_owned(),
            manifest: manifest.to_owned(),
        }
    }

    /// Checks the behaviour that every store must have.
    pub(crate) fn behaves(store: &dyn KvStore) {
        let (own, most) = (owner("notes", "notes"), KvGrant { bytes: 40, keys: 3 });
        let get = |owner: &KvOwner, key: &str| store.get(owner, key).unwrap();
        let keys = |prefix: &str, after, count| store.keys(&own, prefix, after, count).unwrap();
        assert_eq!(get(&own, "a"), None);
        store.set(&own, "a", b"", most).unwrap();
        store.set(&own, "b/\u{10ffff}", b"\0\xff", most).unwrap();
        store.set(&own, "b/1", b"one", most).unwrap();
        assert_eq!((get(&own, "a"), get(&own, "b/1")), (Some(Vec::new()), Some(b"one".to_vec())));
        assert_eq!(get(&own, "b/\u{10ffff}"), Some(b"\0\xff".to_vec()));
        // Pages are in byte order and within the prefix.
        assert_eq!(keys("", None, 10), ["a", "b/1", "b/\u{10ffff}"]);
        assert_eq!(keys("b/", None, 1), ["b/1"]);
        assert_eq!(keys("b/", Some("b/1"), 10), ["b/\u{10ffff}"]);
        assert_eq!(keys("b/", Some("a"), 10), ["b/1", "b/\u{10ffff}"]);
        assert_eq!(keys("b", Some("c"), 10), [""; 0]);
        assert_eq!(
            (keys("", None, 0), keys("%", None, 9), keys("_", None, 9)),
            (vec![], vec![], vec![])
        );
        // Another owner has another store.
        for other in [
            owner("notes", "thief"),
            owner("thief", "notes"),
            KvOwner { home: "/".to_owned(), ..own.clone() },
        ] {
            assert_eq!(
                (get(&other, "b/1"), store.keys(&other, "", None, 9).unwrap()),
                (None, vec![])
            );
            store.delete(&other, "b/1").unwrap();
        }
        // A fourth key, and one byte too many. Nothing was changed, and a smaller value always
        // fits.
        assert!(
            matches!(store.set(&own, "c", b"", most), Err(KvError::Full(full)) if full == most)
        );
        assert!(matches!(store.set(&own, "b/1", &[0; 40], most), Err(KvError::Full(_))));
        assert_eq!(get(&own, "b/1"), Some(b"one".to_vec()));
        store.set(&own, "b/1", &[7; 28], most).unwrap();
        assert!(matches!(store.set(&own, "b/1", &[7; 29], most), Err(KvError::Full(_))));
        store.set(&own, "b/1", b"1", KvGrant { bytes: 1, keys: 1 }).unwrap();
        store.delete(&own, "b/1").unwrap();
        store.delete(&own, "b/1").unwrap();
        store.set(&own, "c", b"", most).unwrap();
        assert_eq!(keys("", None, 10), ["a", "b/\u{10ffff}", "c"]);
    }

    #[test]
    fn the_store_in_memory_behaves() {
        behaves(&MemoryKv::default());
    }

    #[test]
    fn a_program_without_a_place_says_so() {
        let store = NoKv("set HOME".to_owned());
        assert_eq!(store.get(&owner("a", "a"), "k").unwrap_err().to_string(), "set HOME");
    }
}
