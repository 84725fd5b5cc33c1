//! Values of plugins in a database that several machines share. The config may have another path on
//! each machine, so the values belong to the name of its folder.

use conclave_core::permissions::grants::KvGrant;
use conclave_runtime::kv::{KvError, KvOwner, KvStore};

/// A store whose owners are named by the last part of their folder.
pub(crate) struct SharedKv<K>(pub(crate) K);

/// The owner by which every machine finds the same values.
fn shared(owner: &KvOwner) -> KvOwner {
    let name = owner.home.rsplit(['/', '\\']).find(|part| !part.is_empty());
    KvOwner { home: name.unwrap_or_default().to_owned(), ..owner.clone() }
}

impl<K: KvStore> KvStore for SharedKv<K> {
    fn get(&self, owner: &KvOwner, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        self.0.get(&shared(owner), key)
    }

    fn set(&self, owner: &KvOwner, key: &str, value: &[u8], most: KvGrant) -> Result<(), KvError> {
        self.0.set(&shared(owner), key, value, most)
    }

    fn delete(&self, owner: &KvOwner, key: &str) -> Result<(), KvError> {
        self.0.delete(&shared(owner), key)
    }

    fn keys(
        &self,
        owner: &KvOwner,
        prefix: &str,
        after: Option<&str>,
        count: usize,
    ) -> Result<Vec<String>, KvError> {
        self.0.keys(&shared(owner), prefix, after, count)
    }
}

#[cfg(test)]
mod tests {
    use conclave_runtime::kv::MemoryKv;

    use super::*;

    fn owner(home: &str, plugin: &str) -> KvOwner {
        let (home, plugin) = (home.to_owned(), plugin.to_owned());
        KvOwner { home, plugin, manifest: "notes".to_owned() }
    }

    #[test]
    fn a_folder_of_the_same_name_elsewhere_has_the_same_values() {
        let kv = SharedKv(MemoryKv::default());
        let most = KvGrant { bytes: 100, keys: 10 };
        kv.set(&owner("/srv/desk", "notes"), "a", b"1", most).unwrap();
        let of_other = owner("/home/ada/desk/", "notes");
        assert_eq!(kv.get(&of_other, "a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(kv.keys(&of_other, "", None, 10).unwrap(), ["a"]);
        for other in [owner("/srv/shop", "notes"), owner("/srv/desk", "diary"), owner("/", "notes")]
        {
            assert_eq!(kv.get(&other, "a").unwrap(), None, "{other:?}");
        }
        kv.delete(&of_other, "a").unwrap();
        assert_eq!(kv.get(&owner("/srv/desk", "notes"), "a").unwrap(), None);
    }
}
