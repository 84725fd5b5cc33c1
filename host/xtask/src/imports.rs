//! Checks that imports between the folders of a crate point down. The order of the folders is that
//! of the crate's root, the lowest first. The modules of some folders have an order too.

use std::collections::BTreeMap;

use crate::failure::XtaskFailure;
use crate::rust_text::{Token, tokens};
use crate::sources::Sources;

/// The roots of the crates whose folders have an order, and the folders, declared in a block of the
/// root, whose modules have one. `""` is the crate itself.
const ORDERED: [(&str, &str, &str); 4] = [
    ("host/core/src", "lib.rs", ""),
    ("host/runtime/src", "lib.rs", ""),
    ("host/runtime/src", "lib.rs", "imports"),
    ("host/cli/src", "main.rs", ""),
];

/// Fails with the imports that point from a folder to one that its crate lists later.
pub(crate) fn imports_point_down(sources: &Sources<'_>) -> Result<(), XtaskFailure> {
    let mut wrong = Vec::new();
    for (folder, root, block) in ORDERED {
        let root = format!("{folder}/{root}");
        let text = sources.place.read(&root)?;
        let order = modules(&text, block);
        let prefix: Vec<&str> = ["crate", block].into_iter().filter(|it| !it.is_empty()).collect();
        let folder = format!("{folder}/{block}");
        let folder = folder.trim_end_matches('/');
        for file in sources.product(&[folder]).filter(|file| file.path != root) {
            let inside = file.path[folder.len()..].trim_start_matches('/');
            let own = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
            for Token { text, line } in upward(&order, &prefix, own, &file.product_tokens()) {
                wrong.push(format!("    {}:{line}: `{}::{text}`", file.path, prefix.join("::")));
            }
        }
    }
    XtaskFailure::unless_empty(
        &wrong.join("\n"),
        "These imports point up: the crate's root lists the folders from the lowest to the highest, \
         and a folder knows only those above it in that list. Move what both need into the lower \
         folder.",
    )
}

/// The modules that a crate's root declares, with their place in the list: the top-level ones, or
/// those in the block of a folder.
fn modules<'a>(root: &'a str, block: &str) -> BTreeMap<&'a str, usize> {
    let mut open = Vec::new();
    let mut order = BTreeMap::new();
    let mut module = "";
    for pair in tokens(root).windows(2) {
        match pair[0].text {
            "{" => open.push(module),
            "}" => drop(open.pop()),
            "mod" => {
                module = pair[1].text;
                let is_listed = if block.is_empty() { open.is_empty() } else { open == [block] };
                if is_listed {
                    order.insert(module, order.len());
                }
            }
            _ => {}
        }
    }
    order
}

/// The names in a file of module `own` of modules that are listed later.
fn upward<'a>(
    order: &BTreeMap<&str, usize>,
    prefix: &[&str],
    own: &str,
    tokens: &[Token<'a>],
) -> Vec<Token<'a>> {
    let Some(own) = order.get(own) else { return Vec::new() };
    let is_higher = |token: &Token<'_>| order.get(token.text).is_some_and(|place| place > own);
    let path: Vec<&str> = prefix.iter().flat_map(|name| [name, "::"]).collect();
    let paths = tokens.windows(path.len()).zip(path.len()..);
    let targets = paths
        .filter(|(found, _)| found.iter().map(|token| token.text).eq(path.iter().copied()))
        .flat_map(|(_, at)| first_names(&tokens[at..]));
    targets.filter(is_higher).collect()
}

/// The first name behind `crate::`, or the first ones of a group in braces.
fn first_names<'a>(rest: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in rest.iter().enumerate() {
        let is_first = at == 0 || matches!(rest[at - 1].text, "{" | ",");
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth < 2 && is_first => names.push(*token),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_text::product_of;

    const ROOT: &str = "//! Docs.\npub use other as trajectory;\n\npub mod types {\n    pub mod ids;\n}\npub mod setup;\nmod room;\n";

    fn names(text: &str, own: &str) -> Vec<String> {
        let tokens = product_of(&tokens(text));
        let names = upward(&modules(ROOT, ""), &["crate"], own, &tokens);
        names.iter().map(|name| format!("{} {}", name.line, name.text)).collect()
    }

    #[test]
    fn the_order_is_that_of_the_root() {
        let order = modules(ROOT, "");
        assert_eq!(order.len(), 3);
        assert!(order["types"] < order["setup"] && order["setup"] < order["room"]);
    }

    #[test]
    fn what_points_up_is_found_with_its_line() {
        assert_eq!(
            names("use crate::types::ids::A;\n\nuse crate::room::Room;\n", "setup"),
            ["3 room"]
        );
        assert_eq!(names("let it = crate::setup::Setup::default();\n", "types"), ["1 setup"]);
        assert_eq!(names("use crate::{types::ids, room};\n", "setup"), ["1 room"]);
        assert_eq!(
            names("use crate::{\n    types::{ids, setup},\n    room::Room,\n};\n", "setup"),
            ["3 room"]
        );
    }

    #[test]
    fn the_modules_of_a_folder_have_the_order_of_its_block() {
        let root = "mod low;\n/// Folders.\npub mod folder {\n    mod first;\n    #[cfg(test)]\n    pub(crate) mod second;\n}\nmod high;\n";
        let order = modules(root, "folder");
        assert_eq!(order.keys().collect::<Vec<_>>(), [&"first", &"second"]);
        let found = |own, text| upward(&order, &["crate", "folder"], own, &tokens(text)).len();
        assert_eq!(found("first", "use crate::folder::second::A;\n"), 1);
        assert_eq!(found("second", "use crate::folder::first::A;\nuse crate::high::B;\n"), 0);
    }

    #[test]
    fn what_points_down_or_stays_or_is_only_said_is_fine() {
        assert!(names("use crate::types::ids::A;\nuse crate::room::frame;\n", "room").is_empty());
        assert!(names("// see crate::room\n", "types").is_empty());
        assert!(
            names(
                "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::room::Room;\n}\n",
                "types"
            )
            .is_empty()
        );
    }
}
