//! Grants in a config's text: lists that grow and shrink, in each of the forms that a grant has. Decides what is in a list already; where
//! a list stands and how it is written is the business of `place` and `sequence`.

use toml_edit::{Item, Value};

use super::fragment::{Entry, GrantText, entry, list_key};
use super::place::{Tree, brackets};
use super::scan::{Splice, apply};
use super::{ConfigText, EditError};
use crate::config::names::default_place;
use crate::grant::ToolPattern;

/// Adds what a fragment grants.
pub(super) fn grant(edit: &mut ConfigText, plugin: &str, grant: &GrantText) -> Result<(), EditError> {
    let path = ["plugins", plugin, "grants", grant.key];
    if !is_there(edit, &path) {
        return edit.set_after(&path, &grant.value, Some("source"));
    }
    for entry in &grant.entries {
        add_entry(edit, &path, grant.key, entry)?;
    }
    if !grant.limits.is_empty() {
        set_limits(edit, &path, grant)?;
    }
    Ok(())
}

/// Takes back what a fragment names.
pub(super) fn revoke(edit: &mut ConfigText, plugin: &str, grant: &GrantText) -> Result<(), EditError> {
    let path = ["plugins", plugin, "grants", grant.key];
    if !is_there(edit, &path) {
        return Ok(());
    }
    if grant.is_whole {
        return remove_grant(edit, plugin, &path);
    }
    for wanted in &grant.entries {
        let entries = entries(edit, &path, grant.key)?;
        let Some(index) = entries.iter().position(|entry| is_meant(grant.key, wanted, entry)) else {
            refuse_wider(grant.key, wanted, &entries)?;
            continue;
        };
        if entries.len() == 1 {
            return remove_grant(edit, plugin, &path);
        }
        remove_entry(edit, &path, grant.key, index)?;
    }
    Ok(())
}

/// The grant, and what stood around nothing but it.
fn remove_grant(edit: &mut ConfigText, plugin: &str, path: &[&str; 4]) -> Result<(), EditError> {
    edit.remove(path)?;
    let grants = ["plugins", plugin, "grants"];
    let is_empty = |item: &Item| item.as_inline_table().is_some_and(toml_edit::InlineTable::is_empty);
    let empty = edit.tree().is_some_and(|tree| tree.find(&grants).is_some_and(is_empty));
    if empty { edit.remove(&grants) } else { Ok(()) }
}

fn is_there(edit: &ConfigText, path: &[&str]) -> bool {
    edit.tree().is_some_and(|tree| tree.find(path).is_some())
}

/// Where the list of a grant is: the grant itself, or a key of its table.
fn list_path<'a>(tree: &Tree<'_>, path: &[&'a str], key: &str) -> Vec<&'a str> {
    let mut path = path.to_vec();
    if tree.find(&path).is_some_and(|item| item.is_table_like()) {
        path.extend(list_key(key));
    }
    path
}

/// What is in the list now.
fn entries(edit: &ConfigText, path: &[&str], key: &str) -> Result<Vec<Entry>, EditError> {
    let found = edit.tree().and_then(|tree| {
        let path = list_path(&tree, path, key);
        match tree.find(&path)? {
            Item::Value(Value::Array(array)) => array.iter().map(|value| entry(edit.text(), value)).collect(),
            Item::ArrayOfTables(tables) => {
                let text = |table: &toml_edit::Table, name: &str| table.get(name).and_then(Item::as_str).map(str::to_owned);
                Some(tables.iter().map(|table| Entry { text: String::new(), name: text(table, "at"), dir: text(table, "dir") }).collect())
            }
            _ => None,
        }
    });
    found.ok_or_else(|| EditError::Form(path.join(".")))
}

fn add_entry(edit: &mut ConfigText, path: &[&str; 4], key: &str, new: &Entry) -> Result<(), EditError> {
    let old = entries(edit, path, key)?;
    let place = old.iter().position(|entry| is_same_place(key, new, entry));
    if place.is_some_and(|index| is_equal(key, new, &old[index])) {
        return Ok(());
    }
    let edited = edit.tree().map(|tree| {
        let path = list_path(&tree, path, key);
        match tree.find(&path)? {
            Item::Value(Value::Array(array)) => {
                let sequence = brackets(array)?;
                let splices = match place {
                    Some(index) => vec![Splice::replace(sequence.entries[index].clone(), &new.text)],
                    None => sequence.add(edit.text(), &new.text),
                };
                Some(apply(edit.text(), splices))
            }
            _ => None,
        }
    });
    edit.replace(&path.join("."), edited)
}

fn remove_entry(edit: &mut ConfigText, path: &[&str; 4], key: &str, index: usize) -> Result<(), EditError> {
    let edited = edit.tree().map(|tree| {
        let path = list_path(&tree, path, key);
        match tree.find(&path)? {
            Item::Value(Value::Array(array)) => Some(apply(edit.text(), brackets(array)?.remove(edit.text(), index))),
            Item::ArrayOfTables(_) => tree.remove_table(&path, index),
            _ => None,
        }
    });
    edit.replace(&path.join("."), edited)
}

/// Limits stand beside the list in the table form; a grant in the short form gets it.
fn set_limits(edit: &mut ConfigText, path: &[&str; 4], grant: &GrantText) -> Result<(), EditError> {
    let list = list_key(grant.key).ok_or_else(|| EditError::NoTableForm(grant.key.to_owned()))?;
    let short = edit.tree().and_then(|tree| {
        let array = tree.find(path)?.as_array()?;
        Some(format!("{{ {list} = {} }}", &edit.text()[array.span()?]))
    });
    if let Some(table) = short {
        edit.set(path, &table)?;
    }
    for (name, value) in &grant.limits {
        let mut path = path.to_vec();
        path.push(name);
        edit.set(&path, value)?;
    }
    Ok(())
}

/// The place of a directory; the last part of its path when nothing says it.
fn place_of(entry: &Entry) -> Option<String> {
    match (&entry.dir, &entry.name) {
        (_, Some(name)) if entry.dir.is_some() => Some(name.clone()),
        (None, Some(name)) => default_place(name),
        _ => None,
    }
}

fn dir_of(entry: &Entry) -> Option<&str> {
    entry.dir.as_deref().or(entry.name.as_deref())
}

/// The entries cannot stand side by side.
fn is_same_place(key: &str, new: &Entry, old: &Entry) -> bool {
    if key == "files" { place_of(new).is_some() && place_of(new) == place_of(old) } else { new.name == old.name }
}

fn is_equal(key: &str, new: &Entry, old: &Entry) -> bool {
    key != "files" || dir_of(new) == dir_of(old)
}

/// What is to be taken back is this entry. A directory may be named by itself, by its place, or by both.
fn is_meant(key: &str, wanted: &Entry, old: &Entry) -> bool {
    if key != "files" {
        return wanted.name == old.name;
    }
    match (&wanted.dir, &wanted.name) {
        (Some(dir), Some(_)) => Some(dir.as_str()) == dir_of(old) && place_of(wanted) == place_of(old),
        (Some(dir), None) => Some(dir.as_str()) == dir_of(old),
        (None, Some(name)) => Some(name.as_str()) == dir_of(old) || Some(name) == place_of(old).as_ref(),
        (None, None) => false,
    }
}

fn refuse_wider(key: &str, wanted: &Entry, entries: &[Entry]) -> Result<(), EditError> {
    let Some(name) = wanted.name.as_ref().filter(|_| key == "tools") else { return Ok(()) };
    let wider = entries.iter().filter_map(|entry| entry.name.clone()).find(|pattern| ToolPattern(pattern.clone()).covers(name));
    wider.map_or(Ok(()), |wider| Err(EditError::Wider { entry: name.clone(), wider }))
}
