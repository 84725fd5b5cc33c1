//! Checks that no type of the core has grown past what a reader can hold: a type that does
//! everything is several types, whatever the number of files that its methods are in.

use std::collections::BTreeMap;

use crate::failure::XtaskFailure;
use crate::rust_text::{Token, attribute, item_length};
use crate::sources::Sources;

const CORE: &str = "host/core/src";
/// Methods of one type, those of traits not counted.
const MAX_METHODS: usize = 100;

/// Fails with the types of the core that have too many methods.
pub(crate) fn types_stay_small(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut counts = BTreeMap::new();
    for file in sources.product(&[CORE]) {
        count_methods(&file.product_tokens(), &mut counts);
    }
    let large = counts.iter().filter(|(_, methods)| **methods > MAX_METHODS);
    let large = large.map(|(name, methods)| format!("    {name} has {methods} methods\n"));
    XtaskFailure::unless_empty(
        &large.collect::<String>(),
        format_args!(
            "A type of the core has at most {MAX_METHODS}. Look for the part that owns some of its data, \
             and give that part a type of its own."
        ),
    )
}

/// Adds the methods of a file to the counts of their types. Two types of one name count together,
/// because names are unique in the core.
fn count_methods<'a>(tokens: &[Token<'a>], counts: &mut BTreeMap<&'a str, usize>) {
    let mut rest = tokens;
    while !rest.is_empty() {
        let (mut item, below) = rest.split_at(item_length(rest).max(1));
        while let Some((_, inside)) = attribute(item) {
            item = inside;
        }
        if let Some(name) = inherent(item) {
            *counts.entry(name).or_default() += methods(item);
        }
        rest = below;
    }
}

/// The type of an `impl` block that is not of a trait; `None` for any other item.
fn inherent<'a>(item: &[Token<'a>]) -> Option<&'a str> {
    let (start, block) = item.split_first()?;
    let mut depth = 0_usize;
    let mut name = None;
    for token in block.iter().take_while(|_| start.text == "impl") {
        match token.text {
            "<" => depth += 1,
            ">" => depth -= 1,
            "for" if depth == 0 => return None,
            "{" | "where" => break,
            // The last name of a path.
            word if depth == 0 && token.is_word() => name = Some(word),
            _ => {}
        }
    }
    name
}

/// The functions of a block, without those inside of them.
fn methods(block: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    let mut count = 0;
    for pair in block.windows(2) {
        match pair[0].text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "fn" if depth == 1 && pair[1].is_word() => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text::tokens;

    fn counted(text: &str) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        count_methods(&tokens(text), &mut counts);
        counts
    }

    #[test]
    fn methods_of_all_blocks_count_together() {
        let text = "impl Room {\n    pub fn a(&self) {\n    }\n\n    fn b() {\n    }\n}\n\n\
                    impl<'r> Room<'r> {\n    pub(in crate::room) const fn c() {\n        fn inner() {}\n    }\n}\n";
        assert_eq!(counted(text), BTreeMap::from([("Room", 3)]));
    }

    #[test]
    fn traits_and_functions_do_not_count() {
        let text = "impl Display for Room {\n    fn fmt(&self) {\n    }\n}\n\nfn free() {\n}\n\
                    impl<T> From<T> for Room {\n    fn from(of: T) {\n    }\n}\n";
        assert!(counted(text).is_empty());
    }
}
