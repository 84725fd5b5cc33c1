//! Checks that imports between the folders of a crate point down. The order of the folders is that
//! of the crate's root, the lowest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::failure::XtaskFailure;
use crate::place::{Checkout, files_below};

/// The roots of the crates whose folders have an order.
const ORDERED: [&str; 3] =
    ["host/core/src/lib.rs", "host/runtime/src/lib.rs", "host/cli/src/main.rs"];

/// Fails with the imports that point from a folder to one that its crate lists later.
pub(crate) fn imports_point_down(place: &Checkout) -> Result<(), XtaskFailure> {
    let mut wrong = Vec::new();
    for root in ORDERED {
        let root = place.root.join(root);
        let order = modules(&text_of(&root)?);
        let folder = root.parent().unwrap_or(&root);
        for file in files_below(folder, ".rs").iter().filter(|file| **file != root) {
            let inside = file.strip_prefix(folder).unwrap_or(file);
            if is_test(inside) {
                continue;
            }
            let text = text_of(file)?;
            for (line, target) in upward(&order, &top_of(inside), &text) {
                wrong.push(format!("    {}:{line}: `crate::{target}`", place.relative(file)));
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(XtaskFailure::new(format!(
        "\n{}\n\nThese imports point up: the crate's root lists the folders from the lowest to the highest, \
         and a folder knows only those above it in that list. Move what both need into the lower folder.",
        wrong.join("\n")
    )))
}

fn text_of(path: &Path) -> Result<String, XtaskFailure> {
    fs::read_to_string(path)
        .map_err(|error| XtaskFailure::new(format!("{}: {error}", path.display())))
}

/// Returns the top-level modules that a crate's root declares, with their place in the list.
fn modules(root: &str) -> BTreeMap<String, usize> {
    let names = root.lines().filter(|line| !line.starts_with([' ', '\t'])).filter_map(|line| {
        let rest = line.strip_prefix("pub ").unwrap_or(line);
        let rest = rest.strip_prefix("pub(crate) ").unwrap_or(rest).strip_prefix("mod ")?;
        Some(rest.trim_end_matches([' ', ';', '{']).to_owned())
    });
    names.enumerate().map(|(place, name)| (name, place)).collect()
}

/// Returns the top-level module that a file belongs to.
fn top_of(inside: &Path) -> String {
    let first =
        inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

fn is_test(inside: &Path) -> bool {
    inside.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
}

/// Returns the lines of a file of module `own` that name a module listed later, with its name.
fn upward(order: &BTreeMap<String, usize>, own: &str, text: &str) -> Vec<(usize, String)> {
    let Some(own) = order.get(own) else { return Vec::new() };
    let mut found = Vec::new();
    // The tests at the end of a file may import everything.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    for (number, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap_or(line);
        for target in targets(line) {
            if order.get(&target).is_some_and(|place| place > own) {
                found.push((number + 1, target));
            }
        }
    }
    found
}

/// Returns the modules behind each `crate::` of a line.
fn targets(line: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in line.match_indices("crate::") {
        // `$crate::` of a macro is a path too; `conclave_crate::` would be another name.
        if line[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &line[at + "crate::".len()..];
        let group = rest.strip_prefix('{').map(|group| group.split('}').next().unwrap_or(group));
        let paths: Vec<&str> = group.map_or_else(|| vec![rest], |group| group.split(',').collect());
        names.extend(
            paths.into_iter().map(|path| first_name(path.trim())).filter(|name| !name.is_empty()),
        );
    }
    names
}

fn first_name(path: &str) -> String {
    path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! Docs.\npub use other as trajectory;\n\npub mod types {\n    pub mod ids;\n}\npub mod setup;\nmod room;\n";

    fn names(text: &str, own: &str) -> Vec<String> {
        upward(&modules(ROOT), own, text)
            .into_iter()
            .map(|(line, name)| format!("{line} {name}"))
            .collect()
    }

    #[test]
    fn the_order_is_that_of_the_root() {
        let order = modules(ROOT);
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
