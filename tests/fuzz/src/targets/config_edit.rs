//! A config and edits of it. The input is a config, a line `=====`, and one edit per line: `grant
//! PLUGIN TOML`, `revoke PLUGIN TOML`, `add NAME SOURCE`, `set PATH TOML`, `remove PATH`.

use conclave_core::config::edit::{ConfigEditError, ConfigText, Fragment};
use toml::Value;

use super::config::stand_in;

/// The maximum number of edits, because each parses the whole text.
const EDITS: usize = 4;

pub(super) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (before, edits) =
        text.split_once("\n=====\n").unwrap_or((&text, "grant a route = [\"user\"]"));
    match ConfigText::open("conclave.toml", "/srv/desk", before) {
        Err(ConfigEditError::Unreadable(problems)) => {
            assert!(problems.has_errors(), "unreadable without a reason");
            stand_in(before, &problems);
        }
        Err(error) => panic!("opening gives no other error: {error}"),
        Ok(opened) => {
            assert!(
                toml::from_str::<toml::Table>(before).is_ok()
                    || before.contains('\r')
                    || before.starts_with('\u{feff}'),
                "it was opened"
            );
            edits.lines().take(EDITS).for_each(|line| edit(&opened, before, line));
        }
    }
}

fn edit(opened: &ConfigText, before: &str, line: &str) {
    let mut edit = opened.clone();
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
    let path: Vec<&str> = first.split('.').collect();
    let (outcome, about): (Result<(), ConfigEditError>, Vec<&str>) = match word {
        "grant" => match Fragment::parse(second) {
            Ok(fragment) => {
                let outcome = edit.grant(first, &fragment);
                if outcome.is_ok() {
                    granted_twice(&edit, first, &fragment);
                    comments_stay(before, edit.text());
                }
                (outcome, vec!["plugins", first])
            }
            Err(_) => return,
        },
        "revoke" => match Fragment::parse_revoked(second) {
            Ok(fragment) => {
                let outcome = edit.revoke(first, &fragment);
                if outcome.is_err() {
                    assert_eq!(edit.text(), before, "a refused revocation changes nothing");
                } else {
                    let again = edit.clone().revoke(first, &fragment);
                    assert!(
                        again.is_err(),
                        "what was taken back is still granted:\n{}",
                        edit.text()
                    );
                }
                (outcome, vec!["plugins", first])
            }
            Err(_) => return,
        },
        "add" => {
            let outcome = edit.add_plugin(first, second, &["Added.".to_owned()]);
            if outcome.is_ok() {
                assert!(edit.plugins().iter().any(|name| name == first), "it was added");
                comments_stay(before, edit.text());
            }
            (outcome, vec!["plugins", first])
        }
        "set" => (edit.set(&path, second), path.clone()),
        "remove" => (edit.remove(&path), path.clone()),
        _ => return,
    };
    if outcome.is_err() {
        return;
    }
    let after = edit.text().to_owned();
    match edit.finish() {
        Ok(edited) => {
            assert_eq!(edited.text, after);
            assert_eq!(
                edited.changes.is_empty(),
                before.lines().eq(after.lines()),
                "changes are told"
            );
            same_elsewhere(before, &after, &about);
        }
        Err(ConfigEditError::Wrong(problems)) => stand_in(&after, &problems),
        Err(ConfigEditError::Form(_)) => {}
        Err(error) => panic!("finishing gives no other error: {error}"),
    }
}

fn granted_twice(edit: &ConfigText, plugin: &str, fragment: &Fragment) {
    let mut again = edit.clone();
    if again.grant(plugin, fragment).is_ok() {
        assert_eq!(again.text(), edit.text(), "granting again changes nothing");
    }
}

/// Lines that are only comments keep their order in the edit.
fn comments_stay(before: &str, after: &str) {
    let mut lines = after.lines().map(str::trim);
    for comment in before.lines().map(str::trim).filter(|line| line.starts_with('#')) {
        assert!(lines.any(|line| line == comment), "the comment {comment:?} is gone:\n{after}");
    }
}

/// Checks with an independent TOML parser that all other values stay the same.
fn same_elsewhere(before: &str, after: &str, about: &[&str]) {
    let read = |text: &str| {
        let mut root = Value::Table(toml::from_str(text).ok()?);
        remove(&mut root, about);
        Some(format!("{root:?}"))
    };
    if let (Some(before), Some(after)) = (read(before), read(after)) {
        assert_eq!(before, after, "something else was changed");
    }
}

/// Removes the value at this path, and tables that are then empty.
fn remove(value: &mut Value, path: &[&str]) {
    let (Some(table), Some((first, rest))) = (value.as_table_mut(), path.split_first()) else {
        return;
    };
    if rest.is_empty() {
        table.remove(*first);
    } else if let Some(inner) = table.get_mut(*first) {
        remove(inner, rest);
        let is_empty = match inner {
            Value::Table(inner) => inner.is_empty(),
            Value::Array(inner) => inner.is_empty(),
            _ => false,
        };
        if is_empty {
            table.remove(*first);
        }
    }
}
