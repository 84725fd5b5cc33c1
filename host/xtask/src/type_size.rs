//! Checks that no type of the core has grown past what a reader can hold: a type that does
//! everything is several types, whatever the number of files that its methods are in.

use std::collections::BTreeMap;
use std::fs;

use crate::failure::XtaskFailure;
use crate::place::{Checkout, files_below};

const CORE: &str = "host/core/src";
/// Methods of one type, those of traits not counted.
const MAX_METHODS: usize = 100;

/// Fails with the types of the core that have too many methods.
pub(crate) fn types_stay_small(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut counts = BTreeMap::new();
    for file in files_below(&place.root.join(CORE), ".rs") {
        let text = fs::read_to_string(&file)
            .map_err(|error| XtaskFailure::new(format!("{}: {error}", file.display())))?;
        count_methods(&text, &mut counts);
    }
    let large: Vec<String> = counts
        .iter()
        .filter(|(_, methods)| **methods > MAX_METHODS)
        .map(|(name, methods)| format!("    {name} has {methods} methods"))
        .collect();
    if large.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{}\n\nA type of the core has at most {MAX_METHODS}. Look for the part that owns some of its data, \
         and give that part a type of its own.",
        large.join("\n")
    )))
}

/// Adds the methods of a formatted file to the counts of their types. Two types of one name count
/// together, because names are unique in the core.
fn count_methods(text: &str, counts: &mut BTreeMap<String, usize>) {
    let mut owner = None;
    for line in text.lines() {
        if line.starts_with("impl") {
            owner = inherent(line);
        } else if line == "}" {
            owner = None;
        } else if let Some(name) = owner.as_ref().filter(|_| is_method(line)) {
            *counts.entry(String::clone(name)).or_default() += 1;
        }
    }
}

/// Returns the type of an `impl` block that is not of a trait.
fn inherent(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?.strip_suffix('{')?.trim();
    // Parameters of the block itself, as in `impl<'a> View<'a>`.
    let rest = match rest.strip_prefix('<') {
        Some(rest) => rest.split_once("> ")?.1,
        None => rest,
    };
    if rest.contains(" for ") {
        return None;
    }
    let name = rest.split(['<', ' ']).next().unwrap_or(rest);
    Some(name.rsplit("::").next().unwrap_or(name).to_owned())
}

/// Returns whether a line begins a method of a block at the margin.
fn is_method(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' ')) else {
        return false;
    };
    let mut words = rest.split(' ').skip_while(|word| {
        word.starts_with("pub")
            || matches!(*word, "const" | "async" | "unsafe" | "in")
            || word.ends_with(')')
    });
    words.next() == Some("fn")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        count_methods(text, &mut counts);
        counts
    }

    #[test]
    fn methods_of_all_blocks_count_together() {
        let text = "impl Room {\n    pub fn a(&self) {\n    }\n\n    fn b() {\n    }\n}\n\n\
                    impl<'r> Room<'r> {\n    pub(in crate::room) const fn c() {\n        fn inner() {}\n    }\n}\n";
        assert_eq!(counted(text), BTreeMap::from([("Room".to_owned(), 3)]));
    }

    #[test]
    fn traits_and_functions_do_not_count() {
        let text = "impl Display for Room {\n    fn fmt(&self) {\n    }\n}\n\nfn free() {\n}\n\
                    impl<T> From<T> for Room {\n    fn from(of: T) {\n    }\n}\n";
        assert!(counted(text).is_empty());
    }
}
