//! A map from texts to values that returns the entries whose key is a prefix of a text.

use std::collections::BTreeMap;

/// A map in the order of its keys, each with a link to the longest other key that begins it.
///
/// The longest key that is a prefix of a text is the text's predecessor among the keys, or is
/// reached from it by links: every key between the two begins with it as well. All shorter ones
/// follow by links.
#[derive(Debug)]
pub(super) struct PrefixTable<T> {
    entries: Vec<PrefixEntry<T>>,
}

#[derive(Debug)]
struct PrefixEntry<T> {
    key: String,
    /// The index of the longest other key that is a prefix of this one.
    shorter: Option<usize>,
    value: T,
}

impl<T> PrefixTable<T> {
    /// The values of all keys that are prefixes of `start` followed by `rest`, those of longer keys
    /// first. Allocates nothing. The text has two parts so that a path can be looked up with a
    /// slash in front.
    pub(super) fn prefixes_of(&self, start: &str, rest: &str) -> impl Iterator<Item = &T> {
        let is_not_after = |entry: &PrefixEntry<T>| match entry.key.strip_prefix(start) {
            Some(key) => key <= rest,
            None => entry.key.as_str() < start,
        };
        let is_prefix = move |entry: &&PrefixEntry<T>| match entry.key.strip_prefix(start) {
            Some(key) => rest.starts_with(key),
            None => start.starts_with(&entry.key),
        };
        let predecessor = self.entries.partition_point(is_not_after).checked_sub(1);
        self.chain(predecessor).filter(is_prefix).map(|entry| &entry.value)
    }

    /// The entry of this index, and the entries of all keys that are prefixes of its key.
    fn chain(&self, index: Option<usize>) -> impl Iterator<Item = &PrefixEntry<T>> {
        let entry = |index: Option<usize>| index.and_then(|index| self.entries.get(index));
        std::iter::successors(entry(index), move |longer| entry(longer.shorter))
    }
}

impl<T> From<BTreeMap<String, T>> for PrefixTable<T> {
    fn from(values: BTreeMap<String, T>) -> Self {
        let mut table = Self { entries: Vec::with_capacity(values.len()) };
        for (key, value) in values {
            let mut shorter = table.entries.len().checked_sub(1);
            while let Some(entry) = shorter.and_then(|index| table.entries.get(index))
                && !key.starts_with(&entry.key)
            {
                shorter = entry.shorter;
            }
            table.entries.push(PrefixEntry { key, shorter, value });
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_prefixes_of_a_text_are_found_the_longest_first(
            keys in proptest::collection::btree_set("[/ab]{0,5}", 0..12),
            text in "[/ab]{0,6}",
            start in prop_oneof![Just(""), Just("/"), Just("/a")],
        ) {
            let own = |key: &String| (key.clone(), key.clone());
            let values: BTreeMap<_, _> = keys.iter().map(own).collect();
            let table = PrefixTable::from(values);
            let full_text = format!("{start}{text}");
            let found: Vec<&String> = table.prefixes_of(start, &text).collect();
            let expected: Vec<&String> =
                keys.iter().rev().filter(|key| full_text.starts_with(key.as_str())).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
