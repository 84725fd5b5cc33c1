//! Laws of the values that plugins store from run to run.

use std::sync::Arc;

use conclave_core::permissions::grants::KvGrant;
use conclave_runtime::kv::{KvError, KvOwner, KvStore};

use crate::{LawFailure, LawResult, TestedStore, ensure, ensure_equal};

const WRITERS: u64 = 8;
const WIDE: KvGrant = KvGrant { bytes: 1 << 20, keys: 1_000 };

fn kv_of(store: &dyn TestedStore) -> LawResult<Arc<dyn KvStore>> {
    store.kv().ok_or(LawFailure::NotTried("it has no values of plugins"))
}

fn owner(home: &str, plugin: &str, manifest: &str) -> KvOwner {
    let [home, plugin, manifest] = [home, plugin, manifest].map(str::to_owned);
    KvOwner { home, plugin, manifest }
}

/// A value is read by every host as it was set last, until it is deleted.
pub fn a_value_is_read_until_it_is_deleted(store: &dyn TestedStore) -> LawResult {
    let (first, second) = (kv_of(store)?, kv_of(store)?);
    let owner = owner("/work", "notes", "notes");
    for value in [&b"one"[..], b"", b"\0two\xff"] {
        first.set(&owner, "key", value, WIDE)?;
        ensure_equal("the value", &second.get(&owner, "key")?.as_deref(), &Some(value))?;
    }
    second.delete(&owner, "key")?;
    second.delete(&owner, "key")?;
    ensure_equal("the deleted value", &first.get(&owner, "key")?, &None)
}

/// Of many writers exactly as many succeed as the quota has space for; what shrinks always fits, and
/// what is deleted makes space.
pub fn the_quota_is_exact_when_many_write_at_once(store: &dyn TestedStore) -> LawResult {
    let owner = owner("/work", "notes", "notes");
    // Each key has 4 bytes and its value 6: by the bytes 23 fit, by the keys 20.
    for (plugin, most, space) in [
        ("bytes", KvGrant { bytes: 235, keys: 1_000 }, 23),
        ("keys", KvGrant { bytes: 1 << 20, keys: 20 }, 20),
    ] {
        let owner = KvOwner { plugin: plugin.to_owned(), ..owner.clone() };
        let write = |writer: u64| -> LawResult<u64> {
            let (kv, mut written) = (kv_of(store)?, 0);
            for number in 0..8 {
                match kv.set(&owner, &format!("{writer}-{number:02}"), b"sixsix", most) {
                    Ok(()) => written += 1,
                    Err(KvError::Full(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(written)
        };
        let written: LawResult<Vec<u64>> = std::thread::scope(|scope| {
            let write = &write;
            let start = |writer| scope.spawn(move || write(writer));
            let writers: Vec<_> = (0..WRITERS).map(start).collect();
            let panicked = |_| Err(LawFailure::Broken("a writer panicked".to_owned()));
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(panicked)).collect()
        });
        ensure_equal("the number of values that fit", &written?.iter().sum::<u64>(), &space)?;
        let kv = kv_of(store)?;
        let keys = kv.keys(&owner, "", None, 1_000)?;
        ensure_equal("the number of keys", &(keys.len() as u64), &space)?;
        kv.set(&owner, &keys[0], b"five5", most)?;
        kv.set(&owner, &keys[0], b"six666", most)?;
        let full = kv.set(&owner, "fresh", b"sixsix", most);
        ensure(matches!(full, Err(KvError::Full(_))), || "it is not full any more".to_owned())?;
        kv.delete(&owner, &keys[1])?;
        kv.set(&owner, "more", b"sixsix", most)?;
        // A grant that became smaller forbids growth alone.
        let least = KvGrant { bytes: 1, keys: 1 };
        kv.set(&owner, &keys[0], b"less", least)?;
        let full = kv.set(&owner, &keys[0], b"longer than before", least);
        ensure(matches!(full, Err(KvError::Full(_))), || "the quota was exceeded".to_owned())?;
        ensure_equal("the value", &kv.get(&owner, &keys[0])?.as_deref(), &Some(&b"less"[..]))?;
    }
    Ok(())
}

/// Keys are listed in the order of their bytes, by their prefix and from any key on.
pub fn keys_are_listed_in_the_order_of_their_bytes(store: &dyn TestedStore) -> LawResult {
    let kv = kv_of(store)?;
    let owner = owner("/work", "notes", "notes");
    let mut keys: Vec<String> = [
        "a",
        "B",
        "b",
        "a\0",
        "a\0b",
        "a/b",
        "a%",
        "a_",
        "aé",
        "ä",
        "\u{10000}",
        "\u{ffff}",
        "Z",
        "",
        " ",
        "a'b",
        "a\\b",
        "~",
    ]
    .map(str::to_owned)
    .to_vec();
    for key in &keys {
        kv.set(&owner, key, key.as_bytes(), WIDE)?;
    }
    keys.sort();
    ensure_equal("all keys", &kv.keys(&owner, "", None, 100)?, &keys)?;
    for prefix in ["a", "a\0", "a%", "\u{ffff}", "x"] {
        let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
        let found = kv.keys(&owner, prefix, None, 100)?;
        ensure_equal(&format!("the keys with {prefix:?}"), &found, &expected)?;
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = kv.keys(&owner, "", after.as_deref(), 5)?;
        ensure(page.len() <= 5, || format!("{} keys, and 5 were asked for", page.len()))?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page);
    }
    ensure_equal("all keys, page by page", &found, &keys)?;
    for key in &keys {
        let value = kv.get(&owner, key)?;
        ensure_equal("the value", &value.as_deref(), &Some(key.as_bytes()))?;
    }
    Ok(())
}

/// An owner finds its own values only; an owner is all three of its names.
pub fn owners_do_not_see_each_other(store: &dyn TestedStore) -> LawResult {
    let kv = kv_of(store)?;
    let owners = [
        owner("/work", "notes", "notes"),
        owner("/work", "notes", "other"),
        owner("/work", "other", "notes"),
        owner("/else", "notes", "notes"),
        owner("/worknotes", "", "notes"),
    ];
    for (number, owner) in owners.iter().enumerate() {
        kv.set(owner, "key", number.to_string().as_bytes(), KvGrant { bytes: 4, keys: 1 })?;
    }
    kv.delete(&owners[0], "key")?;
    for (number, owner) in owners.iter().enumerate() {
        let expected = (number > 0).then(|| number.to_string().into_bytes());
        ensure_equal("the value", &kv.get(owner, "key")?, &expected)?;
    }
    Ok(())
}
