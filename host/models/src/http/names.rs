//! Tool names on the wire. Providers accept at most 64 letters, digits, `_` and `-`; ours are
//! `plugin.tool`. Wire names are unique within a request, and the names in the answer are mapped
//! back.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use conclave_core::types::completion::{Prompt, PromptPiece, ToolChoice};
use conclave_core::types::message::ToolCall;

const LENGTH: usize = 64;

/// The mapping in both directions, for one request.
#[derive(Debug, Default)]
pub(crate) struct ToolNames<'a> {
    wire: HashMap<&'a str, String>,
    ours: HashMap<String, &'a str>,
    /// The ids of earlier calls.
    ids: HashSet<&'a str>,
}

impl<'a> ToolNames<'a> {
    /// Maps all names of the prompt. Offered tools come first, so that their wire names do not
    /// depend on the history.
    pub(crate) fn of(prompt: &'a Prompt) -> Self {
        let mut names = Self::default();
        prompt.tools.iter().for_each(|tool| names.add(&tool.name));
        if let ToolChoice::Named { name } = &prompt.tool_choice {
            names.add(name);
        }
        for piece in &prompt.pieces {
            match piece {
                PromptPiece::System { .. } => {}
                PromptPiece::History { messages, start, end } => {
                    let messages = (*start..*end).filter_map(|index| messages.get(index));
                    messages
                        .flat_map(|message| &message.tool_calls)
                        .for_each(|call| names.add_call(call));
                }
                PromptPiece::Draft { draft } => {
                    draft.tool_calls.iter().for_each(|call| names.add_call(call))
                }
            }
        }
        names
    }

    /// The provider's name of a tool.
    pub(crate) fn wire<'b>(&'b self, name: &'b str) -> &'b str {
        self.wire.get(name).map_or(name, String::as_str)
    }

    /// The host's name of a tool; `None` if it was never sent, which the room handles.
    pub(crate) fn known(&self, wire: &str) -> Option<&str> {
        self.ours.get(wire).copied()
    }

    /// Whether a call of the prompt has this id.
    pub(crate) fn has_call(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    fn add_call(&mut self, call: &'a ToolCall) {
        self.ids.insert(&call.id);
        self.add(&call.name);
    }

    fn add(&mut self, name: &'a str) {
        if self.wire.contains_key(name) {
            return;
        }
        let plain = plain(name);
        let mut wire = if plain.is_empty() || plain.len() > LENGTH {
            tailed(&plain, name, 0)
        } else {
            plain.clone()
        };
        let mut round = 1;
        while self.ours.contains_key(&wire) {
            wire = tailed(&plain, name, round);
            round += 1;
        }
        self.ours.insert(wire.clone(), name);
        self.wire.insert(name, wire);
    }
}

fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len() + 1);
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => plain.push(c),
            '.' => plain.push_str("__"),
            _ => plain.push('_'),
        }
    }
    plain
}

/// A truncated name with a hash, which distinguishes equal prefixes.
fn tailed(plain: &str, name: &str, round: u32) -> String {
    let mut hasher = DefaultHasher::new();
    (name, round).hash(&mut hasher);
    let tail = format!("_{:08x}", hasher.finish() & 0xffff_ffff);
    format!("{}{tail}", &plain[..plain.len().min(LENGTH - tail.len())])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::{LENGTH, ToolNames};

    fn names<'a>(list: &[&'a str]) -> ToolNames<'a> {
        let mut names = ToolNames::default();
        list.iter().for_each(|name| names.add(name));
        names
    }

    #[test]
    fn a_dot_is_two_underscores_and_comes_back() {
        let names = names(&["search.find", "finish"]);
        assert_eq!((names.wire("search.find"), names.wire("finish")), ("search__find", "finish"));
        assert_eq!(
            (names.known("search__find"), names.known("finish")),
            (Some("search.find"), Some("finish"))
        );
    }

    #[test]
    fn a_name_that_was_never_sent_is_not_known() {
        assert_eq!(names(&["a.b"]).known("a.c"), None);
    }

    #[test]
    fn names_that_would_be_the_same_are_told_apart() {
        let names = names(&["a.b", "a__b", "a_.b"]);
        assert_eq!(names.wire("a.b"), "a__b");
        assert_ne!(names.wire("a__b"), "a__b");
        assert_eq!(names.known(names.wire("a__b")), Some("a__b"));
    }

    proptest! {
        #[test]
        fn every_name_has_its_own_that_providers_take(list in prop::collection::vec("([ab._é-]{0,6}|[a.]{60,90})", 0..20)) {
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let names = names(&list);
            let wires: HashSet<&str> = list.iter().map(|name| names.wire(name)).collect();
            prop_assert_eq!(wires.len(), list.iter().collect::<HashSet<_>>().len());
            for name in list {
                let wire = names.wire(name);
                prop_assert!((1..=LENGTH).contains(&wire.len()), "{}", wire);
                prop_assert!(wire.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{}", wire);
                prop_assert_eq!(names.known(wire), Some(name));
            }
        }
    }
}
