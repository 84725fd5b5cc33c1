//! Grants in a config's text: lists that grow and shrink, in each of the forms that a grant has.
//! Decides what is in a list already; `statements` and `entries` know where a list stands and how
//! it is written.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use toml_edit::{Item, Value};

use super::fragment::{BESIDE, GrantText, ListEntry, entry, is_plain, list_key};
use super::statements::Statements;
use super::{ConfigEditError, ConfigText, entries};
use crate::config::names::default_place;
use crate::permissions::grants::ToolPattern;

/// Adds what a fragment grants.
pub(super) fn grant(
    edit: &mut ConfigText,
    plugin: &str,
    grant: &GrantText,
) -> Result<(), ConfigEditError> {
    let path = ["plugins", plugin, "grants", grant.key];
    if !is_there(edit, &path) {
        return edit.set_after(&path, &grant.value, Some("source"));
    }
    if is_plain(grant.key) {
        return if grant.limits.is_empty() { Ok(()) } else { edit.set(&path, &grant.value) };
    }
    add_entries(edit, &path, grant)?;
    if !grant.limits.is_empty() {
        set_limits(edit, &path, grant)?;
    }
    Ok(())
}

/// Takes back what a fragment names; says whether any of it was granted.
pub(super) fn revoke(
    edit: &mut ConfigText,
    plugin: &str,
    grant: &GrantText,
) -> Result<bool, ConfigEditError> {
    let path = ["plugins", plugin, "grants", grant.key];
    if !is_there(edit, &path) {
        return Ok(false);
    }
    if grant.is_whole || is_plain(grant.key) {
        return remove_grant(edit, plugin, &path).map(|()| true);
    }
    if let Some((name, _)) = grant.limits.iter().find(|(name, _)| !BESIDE.contains(&name.as_str()))
    {
        return Err(ConfigEditError::Limit { grant: grant.key.to_owned(), key: name.clone() });
    }
    let entries = granted(edit, &list_path(edit, &path, grant.key))?;
    let meant = Meant::new(grant);
    let (removals, remaining): (Vec<usize>, Vec<usize>) =
        (0..entries.len()).partition(|index| meant.includes(&entries[*index]));
    refuse_wider(grant, remaining.iter().map(|index| &entries[*index]))?;
    if !removals.is_empty() && remaining.is_empty() {
        return remove_grant(edit, plugin, &path).map(|()| true);
    }
    if !removals.is_empty() {
        remove_entries(edit, &path, grant.key, &removals)?;
    }
    let mut is_revoked = !removals.is_empty();
    for key in BESIDE {
        is_revoked |= revoke_beside(edit, &path, grant, key)?;
    }
    Ok(is_revoked)
}

/// Takes private networks or headers back; the last one takes its list along. Returns whether any
/// of them was granted.
fn revoke_beside(
    edit: &mut ConfigText,
    path: &[&str; 4],
    grant: &GrantText,
    key: &str,
) -> Result<bool, ConfigEditError> {
    let Some((_, written)) = grant.limits.iter().find(|(name, _)| name == key) else {
        return Ok(false);
    };
    let path = [path[0], path[1], path[2], path[3], key];
    if !is_there(edit, &path) {
        return Ok(false);
    }
    let meant: Value = written.parse().map_err(|_| ConfigEditError::Form(path.join(".")))?;
    let meant: Vec<&str> =
        meant.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_meant = |entry: &ListEntry| {
        let name = entry.name.as_deref().unwrap_or_default();
        meant.iter().any(|meant| is_same_network(meant, name) || meant.eq_ignore_ascii_case(name))
    };
    let entries = granted(edit, &path)?;
    let removals: Vec<usize> =
        (0..entries.len()).filter(|index| is_meant(&entries[*index])).collect();
    match removals.len() {
        0 => Ok(false),
        count if count == entries.len() => edit.remove(&path).map(|()| true),
        _ => edit.change(&path, |list| entries::remove_all(list, &removals)).map(|()| true),
    }
}

/// `127.0.0.1` and `127.0.0.1/32` are one.
fn is_same_network(one: &str, other: &str) -> bool {
    let network = |text: &str| {
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
    };
    one == other || (network(one).is_some() && network(one) == network(other))
}

/// The grant, and what stood around nothing but it.
fn remove_grant(
    edit: &mut ConfigText,
    plugin: &str,
    path: &[&str; 4],
) -> Result<(), ConfigEditError> {
    edit.remove(path)?;
    let grants = ["plugins", plugin, "grants"];
    let is_empty =
        |item: &Item| item.as_inline_table().is_some_and(toml_edit::InlineTable::is_empty);
    let empty = edit.statements().is_some_and(|config| config.find(&grants).is_some_and(is_empty));
    if empty { edit.remove(&grants) } else { Ok(()) }
}

fn is_there(edit: &ConfigText, path: &[&str]) -> bool {
    edit.statements().is_some_and(|config| config.find(path).is_some())
}

/// The path of a grant's list: the grant itself, or a key of its table.
fn list_path<'a>(edit: &ConfigText, path: &[&'a str], key: &str) -> Vec<&'a str> {
    let is_table = |config: Statements<'_>| config.find(path).is_some_and(Item::is_table_like);
    let list = list_key(key).filter(|_| edit.statements().is_some_and(is_table));
    path.iter().copied().chain(list).collect()
}

/// What is in the list now.
fn granted(edit: &ConfigText, list: &[&str]) -> Result<Vec<ListEntry>, ConfigEditError> {
    let found = edit.statements().and_then(|config| match config.find(list)? {
        Item::Value(Value::Array(array)) => {
            array.iter().map(|value| entry(config.text, value)).collect()
        }
        Item::ArrayOfTables(tables) => {
            let text = |table: &toml_edit::Table, name: &str| {
                table.get(name).and_then(Item::as_str).map(str::to_owned)
            };
            let entry = |table| ListEntry {
                text: on_one_line(config.text, table),
                name: text(table, "at"),
                dir: text(table, "dir"),
            };
            Some(tables.iter().map(entry).collect())
        }
        _ => None,
    });
    found.ok_or_else(|| ConfigEditError::Form(list.join(".")))
}

fn add_entries(
    edit: &mut ConfigText,
    path: &[&str; 4],
    grant: &GrantText,
) -> Result<(), ConfigEditError> {
    // Each entry has a place in the list that no other can have.
    let list = list_path(edit, path, grant.key);
    let mut all = granted(edit, &list)?;
    let mut identities: Vec<_> = all.iter().map(|entry| place_in_list(grant.key, entry)).collect();
    let count = all.len();
    let mut replaced = BTreeSet::new();
    for new in &grant.entries {
        let place = place_in_list(grant.key, new);
        match identities.iter().position(|other| other.is_some() && *other == place) {
            Some(index) if is_equal(grant.key, new, &all[index]) => {}
            Some(index) => {
                all[index] = new.clone();
                replaced.insert(index);
            }
            None => {
                all.push(new.clone());
                identities.push(place);
            }
        }
    }
    if all.len() == count && replaced.is_empty() {
        return Ok(());
    }
    edit.change(&list, |list| {
        for index in replaced.range(..count) {
            let old = list.as_array_mut()?.get_mut(*index)?;
            entries::replace(old, all[*index].text.parse().ok()?)?;
        }
        all[count..].iter().try_for_each(|entry| entries::push(list, entry.text.parse().ok()?))
    })
}

fn remove_entries(
    edit: &mut ConfigText,
    path: &[&str; 4],
    key: &str,
    indexes: &[usize],
) -> Result<(), ConfigEditError> {
    let list = list_path(edit, path, key);
    let tables = edit.statements().and_then(|config| config.remove_tables(&list, indexes));
    match tables {
        Some(_) => edit.replace(path, tables),
        None => edit.change(&list, |list| entries::remove_all(list, indexes)),
    }
}

/// Limits stand beside the list in the table form; a grant in the short form gets it.
fn set_limits(
    edit: &mut ConfigText,
    path: &[&str; 4],
    grant: &GrantText,
) -> Result<(), ConfigEditError> {
    let list =
        list_key(grant.key).ok_or_else(|| ConfigEditError::NoTableForm(grant.key.to_owned()))?;
    let short = edit.statements().and_then(|tree| {
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
fn place_of(entry: &ListEntry) -> Option<String> {
    match (&entry.dir, &entry.name) {
        (_, Some(name)) if entry.dir.is_some() => Some(name.clone()),
        (None, Some(name)) => default_place(name),
        _ => None,
    }
}

/// The folder of an entry, however it is written: `./docs`, `docs/` and `docs` are one.
fn dir_of(entry: &ListEntry) -> Option<String> {
    entry.dir.as_deref().or(entry.name.as_deref()).map(normalized)
}

/// A path without `.`, doubled slashes and what `..` takes back.
fn normalized(dir: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in dir.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let root = if dir.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// What no two entries of a list can share.
fn place_in_list(key: &str, entry: &ListEntry) -> Option<String> {
    if key == "files" { place_of(entry) } else { entry.name.clone() }
}

fn is_equal(key: &str, new: &ListEntry, old: &ListEntry) -> bool {
    match key {
        "files" => dir_of(new) == dir_of(old) && is_used_alike(&new.text, &old.text),
        // The same address with other methods is another grant.
        "fetch" => new.text == old.text,
        _ => true,
    }
}

/// The same mode, and each quota that the new one names is that of the old one.
fn is_used_alike(new: &str, old: &str) -> bool {
    let (new, old) = (entry_fields(new), entry_fields(old));
    let mode = |table: &toml::Table| {
        table.get("mode").and_then(toml::Value::as_str).unwrap_or("read").to_owned()
    };
    mode(&new) == mode(&old)
        && ["bytes", "files"]
            .iter()
            .all(|key| new.get(*key).is_none_or(|quota| old.get(*key) == Some(quota)))
}

/// What an entry says besides its name; nothing when it is only that.
fn entry_fields(entry: &str) -> toml::Table {
    let parsed = toml::from_str::<toml::Table>(&format!("entry = {entry}")).ok();
    parsed.and_then(|mut table| table.remove("entry")?.as_table().cloned()).unwrap_or_default()
}

fn on_one_line(text: &str, table: &toml_edit::Table) -> String {
    let pairs =
        table.iter().filter_map(|(key, item)| Some(format!("{key} = {}", &text[item.span()?])));
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

/// What is to be taken back.
struct Meant<'a> {
    grant: &'a GrantText,
    names: BTreeSet<&'a str>,
    /// Of tools: whatever they cover is meant.
    patterns: Vec<ToolPattern>,
}

impl<'a> Meant<'a> {
    fn new(grant: &'a GrantText) -> Self {
        let names: BTreeSet<&str> =
            grant.entries.iter().filter_map(|entry| entry.name.as_deref()).collect();
        let is_pattern = |name: &&&str| grant.key == "tools" && name.ends_with('*');
        let patterns =
            names.iter().filter(is_pattern).map(|name| ToolPattern((*name).to_owned())).collect();
        Self { grant, names, patterns }
    }

    fn includes(&self, old: &ListEntry) -> bool {
        if self.grant.key == "files" {
            return self.grant.entries.iter().any(|target| is_meant_folder(target, old));
        }
        let Some(name) = old.name.as_deref() else { return false };
        self.names.contains(name) || self.patterns.iter().any(|pattern| pattern.covers(name))
    }
}

/// A directory may be named by itself, by its place, or by both.
fn is_meant_folder(target: &ListEntry, old: &ListEntry) -> bool {
    match (&target.dir, &target.name) {
        (Some(dir), Some(_)) => {
            Some(normalized(dir)) == dir_of(old) && place_of(target) == place_of(old)
        }
        (Some(dir), None) => Some(normalized(dir)) == dir_of(old),
        (None, Some(name)) => {
            Some(normalized(name)) == dir_of(old) || Some(name) == place_of(old).as_ref()
        }
        (None, None) => false,
    }
}

/// A tool that an entry which stays would go on granting is not taken back.
fn refuse_wider<'a>(
    grant: &GrantText,
    remaining: impl Iterator<Item = &'a ListEntry>,
) -> Result<(), ConfigEditError> {
    if grant.key != "tools" {
        return Ok(());
    }
    let patterns: BTreeSet<&str> = remaining
        .filter_map(|entry| entry.name.as_deref())
        .filter(|name| name.ends_with('*'))
        .collect();
    let patterns: Vec<ToolPattern> =
        patterns.into_iter().map(|name| ToolPattern(name.to_owned())).collect();
    for entry in grant.entries.iter().filter_map(|entry| entry.name.as_ref()) {
        if let Some(wider) = patterns.iter().find(|pattern| pattern.covers(entry)) {
            return Err(ConfigEditError::Wider { entry: entry.clone(), wider: wider.0.clone() });
        }
    }
    Ok(())
}
