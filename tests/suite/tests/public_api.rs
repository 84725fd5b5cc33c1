//! The public APIs of the crates for embedders and plugin authors, as lists of signatures in
//! `tests/data/corpus/api`. Parses the sources in rustfmt's layout, because no stable compiler
//! lists them. Covers the `pub` items of every public or re-exported module, and public methods.

use std::fs;
use std::path::{Path, PathBuf};

use crate::outputs::compare;

#[test]
fn the_public_api_is_as_it_was_recorded() {
    for (name, folder) in
        [("runtime", "host/runtime"), ("models", "host/models"), ("sdk", "sdk/rust")]
    {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        let mut lines = Vec::new();
        let library = root.join("src/lib.rs");
        let text = fs::read_to_string(&library)
            .unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        let exports: Vec<String> =
            items(&text).into_iter().filter(|item| item.starts_with("pub use ")).collect();
        module(&library, "", true, &exports, &mut lines);
        assert!(lines.len() > 50, "{name}: {lines:?}");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        compare(&format!("api/{name}.txt"), &text);
    }
}

/// Adds the items of a module and its submodules; of a module that is not reached, only the methods
/// of types, which may be public elsewhere. `exports` are the `pub use` of the crate's root.
fn module(file: &Path, path: &str, is_reached: bool, exports: &[String], lines: &mut Vec<String>) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let items = items(&text);
    let is_listed = |item: &str| if is_reached { is_public(item) } else { is_public_method(item) };
    let mut own: Vec<String> =
        items.iter().filter(|item| is_listed(item)).map(|item| format!("{path}: {item}")).collect();
    own.sort();
    lines.extend(own);
    for item in &items {
        let Some(name) =
            item.strip_suffix(';').and_then(|item| item.rsplit_once("mod ")).map(|(_, name)| name)
        else {
            continue;
        };
        let from = [format!("pub use {name}::"), format!("pub use self::{name}::")];
        let from_root = format!("pub use {}::{name}::", path.trim_start_matches("::"));
        let is_reached = item.starts_with("pub mod ")
            || items.iter().any(|item| from.iter().any(|from| item.starts_with(from.as_str())))
            || exports.iter().any(|export| export.starts_with(&from_root));
        if let Some(file) = file_of(file, name) {
            module(&file, &format!("{path}::{name}"), is_reached, exports, lines);
        }
    }
}

fn file_of(parent: &Path, name: &str) -> Option<PathBuf> {
    let folder = match parent.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod") => parent.parent()?.to_owned(),
        _ => parent.with_extension(""),
    };
    [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]
        .into_iter()
        .find(|file| file.exists())
}

/// Modules are listed by their items.
fn is_public(item: &str) -> bool {
    (item.starts_with("pub ") && !item.starts_with("pub mod ")) || item.starts_with("impl")
}

fn is_public_method(item: &str) -> bool {
    item.starts_with("impl") && item.contains(" | pub ")
}

/// Returns the items of a file: public ones with their fields, variants and methods, and all
/// modules. Omits tests, comments, attributes and bodies.
fn items(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut lines = text.lines().filter(|line| !is_dropped(line)).peekable();
    while let Some(line) = lines.next() {
        if line == "mod tests {" {
            break;
        }
        if line.starts_with(char::is_whitespace) || line.starts_with('}') || line.is_empty() {
            continue;
        }
        let head = whole(line, &mut lines);
        if !head.ends_with('{') {
            items.push(head);
            continue;
        }
        let head = head.trim_end_matches('{').trim_end().to_owned();
        let is_trait_impl = head.starts_with("impl") && head.contains(" for ");
        let is_member = |line: &str| match head.split([' ', '<']).take(2).collect::<Vec<_>>()[..] {
            ["pub", "enum"] => line.starts_with(char::is_uppercase),
            ["pub", "trait"] => {
                ["fn ", "async fn ", "type ", "const "].iter().any(|start| line.starts_with(start))
            }
            ["pub", "struct"] => line.starts_with("pub ") && !line.starts_with("pub("),
            ["impl", ..] => line.starts_with("pub ") && !is_trait_impl,
            _ => false,
        };
        if !head.starts_with("impl") || is_trait_impl {
            items.push(head.clone());
        }
        while let Some(line) = lines.next_if(|line| !line.starts_with('}')) {
            // Members have four spaces; deeper lines belong to a body, or to a member that was read
            // completely.
            if let Some(line) = line.strip_prefix("    ").filter(|line| is_member(line)) {
                let member = whole(line, &mut lines);
                items.push(format!("{head} | {}", member.trim_end_matches(['{', ' ', ','])));
            }
        }
    }
    items
}

fn is_dropped(line: &str) -> bool {
    ["//", "#[", "#!["].iter().any(|start| line.trim_start().starts_with(start))
}

/// Returns the item that begins with this line, in one line: a signature to its end or its body, a
/// field, a variant.
fn whole<'t>(
    line: &'t str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'t str>>,
) -> String {
    let mut whole = line.trim().to_owned();
    let is_list = whole.starts_with("pub use ");
    let is_variant = line.starts_with(char::is_uppercase);
    // `pub name: Type,`
    let is_field = whole
        .strip_prefix("pub ")
        .and_then(|field| field.split_once(": "))
        .is_some_and(|(name, _)| !name.contains(['(', ' ']));
    loop {
        let is_open = count(&whole, &['(', '[']) > count(&whole, &[')', ']']);
        let is_cut = (is_list || is_variant) && count(&whole, &['{']) > count(&whole, &['}']);
        let ends =
            whole.ends_with([';', '{', '}']) || ((is_field || is_variant) && whole.ends_with(','));
        if ends && !is_open && !is_cut {
            break;
        }
        let Some(next) = lines.next() else { break };
        whole.push(' ');
        whole.push_str(next.trim());
    }
    let spaced = [
        ("( ", "("),
        (" )", ")"),
        (",)", ")"),
        (", )", ")"),
        ("< ", "<"),
        (",>", ">"),
        (" .", "."),
        (", }", " }"),
    ];
    spaced.iter().fold(whole, |whole, (from, to)| whole.replace(from, to))
}

fn count(text: &str, of: &[char]) -> usize {
    text.matches(of).count()
}
