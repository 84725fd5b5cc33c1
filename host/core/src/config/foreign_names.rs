//! Names for the tools of foreign servers. A name is the server's own in our letters; a short hash
//! of the server's name follows where the letters alone would be no name, or would resemble
//! another tool's. Does not choose the tools.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::confusables::skeleton;
use super::names::NAME_MAX;
use crate::types::host_tool::HostTool;

/// The base of a name for a tool whose own name has no letter or digit of ours.
const NAMELESS: &str = "tool";
/// Bytes of the digest in a name, two characters each.
const HASH: usize = 4;

/// A tool's name here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAlias {
    pub name: String,
    /// Whether a hash is part of the name, so that an operator may want to choose another.
    pub is_hashed: bool,
}

/// Whether a plugin's tool can have this name.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(allowed)
}

/// A name for each of a server's tools, by the server's names. `rename` holds the names that the
/// operator chose.
///
/// No two of the names look alike, and none looks like a tool of the host, except those that the
/// operator chose. They depend on the set of the server's names only: not on their order, and not
/// on an earlier start.
#[must_use]
pub fn aliases<'a>(
    plugin: &str,
    names: impl IntoIterator<Item = &'a str>,
    rename: &BTreeMap<String, String>,
) -> BTreeMap<&'a str, ToolAlias> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let mut aliases = BTreeMap::new();
    let host: BTreeSet<String> = HostTool::ALL
        .into_iter()
        .flat_map(|tool| [skeleton(tool.as_str()), skeleton(tool.langroid_name())])
        .collect();
    // The plugin's name is part of every tool's, so one skeleton serves both comparisons.
    let full = |alias: &str| skeleton(&format!("{plugin}.{alias}"));
    let mut skeletons = host;
    for name in &names {
        if let Some(chosen) = rename.get(*name) {
            skeletons.insert(full(chosen));
            aliases.insert(*name, ToolAlias { name: chosen.clone(), is_hashed: false });
        }
    }
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names.iter().filter(|name| !rename.contains_key(**name)) {
        alike.entry(full(&snake_case(name))).or_default().push(name);
    }
    let mut hashed = Vec::new();
    for (skeleton, group) in alike {
        // Of names that look alike, the one that is a name already stays as it is.
        let unchanged = group.iter().position(|name| snake_case(name) == **name);
        let plain = if group.len() == 1 { Some(0) } else { unchanged };
        for (index, name) in group.into_iter().enumerate() {
            let plain_name = snake_case(name);
            let is_name = is_tool_name(&plain_name) && !plain_name.trim_matches('_').is_empty();
            if Some(index) == plain && is_name && skeletons.insert(skeleton.clone()) {
                aliases.insert(name, ToolAlias { name: plain_name, is_hashed: false });
            } else {
                hashed.push(name);
            }
        }
    }
    // Last, because a hash can be repeated with another number and a plain name cannot.
    hashed.sort_unstable();
    for name in hashed {
        let plain = snake_case(name);
        let found = (0_u32..)
            .map(|round| with_hash(&plain, name, round))
            .find(|alias| skeletons.insert(full(alias)));
        let alias = found.expect("there are more rounds than names");
        aliases.insert(name, ToolAlias { name: alias, is_hashed: true });
    }
    aliases
}

/// The letters of `plain`, cut to the length of a name, and a hash of `name`.
#[must_use]
pub fn with_hash(plain: &str, name: &str, round: u32) -> String {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    if round > 0 {
        hasher.update(round.to_le_bytes());
    }
    // Hexadecimal digits stay distinct when `0` is taken for `o` and `1` for `l`.
    let tail: String =
        hasher.finalize().iter().take(HASH).map(|byte| format!("{byte:02x}")).collect();
    let most = NAME_MAX - 1 - tail.len();
    let letters = plain.get(..most).unwrap_or(plain).trim_matches('_');
    let letters = if letters.is_empty() { NAMELESS } else { letters };
    format!("{letters}_{tail}")
}

/// The name in snake case: `getSum` and `get-sum` become `get_sum`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && was_lower {
            snake.push('_');
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
        snake.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    snake
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn aliases_of<'a>(plugin: &str, names: &[&'a str]) -> BTreeMap<&'a str, ToolAlias> {
        aliases(plugin, names.iter().copied(), &BTreeMap::new())
    }

    #[test]
    fn a_name_is_the_servers_in_our_letters() {
        for (theirs, ours) in [
            ("get-sum", "get_sum"),
            ("getSum", "get_sum"),
            ("echo", "echo"),
            ("HTTP", "http"),
            ("a.b/c", "a_b_c"),
            ("a__b", "a__b"),
            ("2fa", "2fa"),
            ("red\u{1b}[31m", "red__31m"),
        ] {
            let expected = ToolAlias { name: ours.to_owned(), is_hashed: false };
            assert_eq!(aliases_of("srv", &[theirs])[theirs], expected, "{theirs:?}");
        }
    }

    #[test]
    fn a_name_without_our_letters_or_too_long_gets_a_hash() {
        let long = "x".repeat(90);
        for (theirs, letters) in
            [("поиск", "tool_"), ("é", "tool_"), ("___", "tool_"), (long.as_str(), &long[..55])]
        {
            let alias = &aliases_of("srv", &[theirs])[theirs];
            assert!(alias.is_hashed && alias.name.starts_with(letters), "{alias:?}");
        }
    }

    #[test]
    fn of_names_that_look_alike_the_unchanged_one_stays() {
        let names = aliases_of("srv", &["GET", "get", "read_l", "read_1", "a.b", "a_b"]);
        for (theirs, is_hashed) in [("get", false), ("GET", true), ("a_b", false), ("a.b", true)] {
            assert_eq!(names[theirs].is_hashed, is_hashed, "{theirs}: {names:?}");
        }
        assert_ne!(names["read_l"].is_hashed, names["read_1"].is_hashed);
        let twins = aliases_of("srv", &["getSum", "get-sum"]);
        assert!(twins.values().all(|alias| alias.is_hashed), "{twins:?}");
    }

    #[test]
    fn no_tool_looks_like_one_of_the_host() {
        let name = &aliases_of("task", &["status"])["status"];
        assert!(name.is_hashed, "`task.status` looks like `task_status`: {name:?}");
    }

    #[test]
    fn a_chosen_name_comes_first() {
        let rename = BTreeMap::from([("GET".to_owned(), "get".to_owned())]);
        let names = aliases("srv", ["get", "GET"], &rename);
        assert_eq!(names["GET"], ToolAlias { name: "get".to_owned(), is_hashed: false });
        assert!(names["get"].is_hashed);
    }

    proptest! {
        #[test]
        fn every_tool_has_a_name_of_its_own_whatever_the_order(
            list in prop::collection::vec("([aAlL1_.é-]{0,4}|[a.]{60,140}|[а-я]{1,3})", 0..20)
        ) {
            let names: Vec<&str> = list.iter().map(String::as_str).collect();
            let forward = aliases_of("srv", &names);
            let backward: Vec<&str> = names.iter().rev().copied().collect();
            prop_assert_eq!(&forward, &aliases_of("srv", &backward));
            let skeletons: BTreeSet<String> =
                forward.values().map(|alias| skeleton(&alias.name)).collect();
            prop_assert_eq!(skeletons.len(), forward.len());
            prop_assert!(forward.values().all(|alias| is_tool_name(&alias.name)), "{:?}", forward);
        }
    }
}
