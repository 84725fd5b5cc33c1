//! `grants` of a plugin: what the operator lets it touch. A grant is a list of names, or a table with that list and limits beside it.

use std::collections::BTreeSet;

use super::limits::count32;
use super::reader::{Item, Reader, Table};
use super::references::References;
use super::wording::{array, code, string, suggest};
use super::{ORCHESTRATION_TOOLS, TERMINAL, names, plugin};
use crate::grant::{DelegateGrant, FileGrant, FileMode, Grants, ModelGrant, RoomsGrant, RouteGrant, ToolPattern, ToolsGrant};
use crate::ids::{ChannelId, ModelName, TaskName};

/// Background tasks of one grant, when the config gives no number.
const AT_ONCE: u32 = 1;
const TOTAL: u32 = 8;
const COUNT_MAX: u64 = i64::MAX as u64;

/// An entry of a list of names.
type Name<'a> = (Item<'a>, &'a str);

/// All grants of a plugin.
pub(crate) fn read(reader: &mut Reader, references: &mut References, folder: &str, item: &Item<'_>) -> Grants {
    let Some(table) = item.table(reader, "plugins.NAME.grants") else { return Grants::default() };
    Grants {
        model: table.get("model").and_then(|item| model(reader, references, &item)),
        tools: table.get("tools").and_then(|item| tools(reader, references, &item)),
        delegate: table.get("delegate").and_then(|item| delegate(reader, references, &item)),
        route: table.get("route").and_then(|item| route(reader, references, &item)),
        files: table.get("files").map(|item| files(reader, folder, &item)).unwrap_or_default(),
        rooms: table.get("rooms").and_then(|item| rooms(reader, &item)),
    }
}

fn model(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<ModelGrant> {
    let (names, limits) = list_or_table(reader, item, "plugins.NAME.grants.model", "names")?;
    names.iter().for_each(|(item, name)| references.add_model(item, name));
    Some(ModelGrant {
        names: names.into_iter().map(|(_, name)| ModelName::from(name)).collect(),
        tokens: limit(&limits, "tokens", |item| item.count(reader, COUNT_MAX)),
        cost_micro_usd: limit(&limits, "cost_usd", |item| item.spending(reader)),
        calls: limit(&limits, "calls", |item| item.count(reader, COUNT_MAX)),
    })
}

fn tools(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<ToolsGrant> {
    let (names, limits) = list_or_table(reader, item, "plugins.NAME.grants.tools", "names")?;
    let names = patterns(reader, references, names);
    Some(ToolsGrant { names, calls: limit(&limits, "calls", |item| item.count(reader, COUNT_MAX)) })
}

/// Patterns of tools, each of the right form.
pub(crate) fn patterns(reader: &mut Reader, references: &mut References, names: Vec<Name<'_>>) -> Vec<ToolPattern> {
    let mut patterns = Vec::new();
    for (item, name) in names {
        if ToolPattern::is_well_formed(name) {
            references.add_pattern(&item, name);
            patterns.push(ToolPattern(name.to_owned()));
        } else if ORCHESTRATION_TOOLS.contains(&name) {
            item.wrong(reader, &format!("names {}, a tool of the host", code(name)), format!("write `grants.route = {}`", array([name])));
        } else {
            let help = names::check_name(name).ok().map(|()| format!("for all tools of a plugin write {}", string(&format!("{name}.*"))));
            item.wrong(reader, &format!("must be `plugin.tool`, `plugin.*` or `*`, not {}", code(name)), help);
        }
    }
    patterns
}

fn delegate(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<DelegateGrant> {
    let (names, limits) = list_or_table(reader, item, "plugins.NAME.grants.delegate", "tasks")?;
    names.iter().for_each(|(item, name)| references.add_task(item, name));
    let at_once = limit(&limits, "at_once", |item| count32(reader, item)).unwrap_or(AT_ONCE);
    let total = limit(&limits, "total", |item| count32(reader, item)).unwrap_or(TOTAL.max(at_once));
    if let Some(item) = limits.as_ref().and_then(|table| table.get("at_once")).filter(|_| at_once > total) {
        item.wrong(reader, &format!("is more than `total`, which is {total}"), None);
    }
    Some(DelegateGrant { tasks: names.into_iter().map(|(_, name)| TaskName::from(name)).collect(), at_once, total })
}

fn route(reader: &mut Reader, references: &mut References, item: &Item<'_>) -> Option<RouteGrant> {
    let names = names_of(reader, item, true)?;
    names.iter().for_each(|(item, name)| references.add_address(item, name));
    Some(RouteGrant { names: names.into_iter().map(|(_, name)| name.to_owned()).collect() })
}

fn rooms(reader: &mut Reader, item: &Item<'_>) -> Option<RoomsGrant> {
    let (names, limits) = list_or_table(reader, item, "plugins.NAME.grants.rooms", "channels")?;
    for (item, name) in names.iter().filter(|(_, name)| *name != TERMINAL) {
        item.wrong(reader, &format!("names the channel {}, which there is not", code(name)), suggest(name, &[TERMINAL], "channels"));
    }
    Some(RoomsGrant {
        channels: names.into_iter().map(|(_, name)| ChannelId::from(name)).collect(),
        messages: limit(&limits, "messages", |item| item.count(reader, COUNT_MAX)),
    })
}

fn files(reader: &mut Reader, folder: &str, item: &Item<'_>) -> Vec<FileGrant> {
    let entries = item.list(reader).unwrap_or_default();
    if entries.is_empty() && item.value.is_array() {
        grants_nothing(reader, item);
    }
    let mut grants: Vec<FileGrant> = Vec::new();
    for entry in &entries {
        let grant = if entry.value.is_str() { short_file(reader, folder, entry) } else { long_file(reader, folder, entry) };
        let Some(grant) = grant else { continue };
        if grants.iter().any(|other| other.at == grant.at) {
            let help = "give each directory a place of its own: `at = \"/other\"`".to_owned();
            entry.wrong(reader, &format!("puts a second directory at {}", code(&grant.at)), help);
        }
        grants.push(grant);
    }
    grants
}

/// `"docs"`: the directory at its own name, to be read.
fn short_file(reader: &mut Reader, folder: &str, item: &Item<'_>) -> Option<FileGrant> {
    let dir = plugin::path(reader, item, folder)?;
    let Some(at) = names::default_place(&dir.shown) else {
        let line = format!("{{ dir = {}, at = \"/folder\", mode = \"read\" }}", string(&dir.shown));
        item.wrong(reader, &format!("does not say what {} is called for the plugin", code(&dir.shown)), format!("write {}", code(&line)));
        return None;
    };
    Some(FileGrant { dir: dir.path, shown: dir.shown, at, mode: FileMode::Read })
}

fn long_file(reader: &mut Reader, folder: &str, item: &Item<'_>) -> Option<FileGrant> {
    if !item.value.is_table() {
        item.expected(reader, "a directory's name or a table");
        return None;
    }
    let table = item.table(reader, "plugins.NAME.grants.files[]")?;
    if let Some(item) = table.get("mode") {
        match item.value.as_str() {
            Some("read-write") => reader.unavailable(&item.span, "mode = \"read-write\"", "write `mode = \"read\"`".to_owned()),
            _ => drop(item.choice(reader)),
        }
    }
    let dir = table.require(reader, "dir").and_then(|item| plugin::path(reader, &item, folder));
    let at = table.require(reader, "at").and_then(|item| place(reader, &item));
    let (dir, at) = (dir?, at?);
    Some(FileGrant { dir: dir.path, shown: dir.shown, at, mode: FileMode::Read })
}

fn place(reader: &mut Reader, item: &Item<'_>) -> Option<String> {
    let at = item.string(reader)?;
    match names::check_place(at) {
        Ok(()) => Some(at.to_owned()),
        Err(error) => {
            let proposed = names::default_place(at).unwrap_or_else(|| "/folder".to_owned());
            item.wrong(reader, &format!("must be `/` and one name: {} {error}", code(at)), format!("write `at = {}`", string(&proposed)));
            None
        }
    }
}

/// A grant in its short form, a list, or in its long form, a table.
fn list_or_table<'a>(reader: &mut Reader, item: &Item<'a>, kind: &'static str, list: &str) -> Option<(Vec<Name<'a>>, Option<Table<'a>>)> {
    if item.value.is_table() {
        let table = item.table(reader, kind)?;
        let names = table.require(reader, list).and_then(|item| names_of(reader, &item, true)).unwrap_or_default();
        return Some((names, Some(table)));
    }
    if !item.value.is_array() {
        item.expected(reader, "a list or a table");
        return None;
    }
    Some((names_of(reader, item, true)?, None))
}

/// The strings of a list, each once; a grant's list must have some.
pub(crate) fn names_of<'a>(reader: &mut Reader, item: &Item<'a>, is_grant: bool) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    if entries.is_empty() && is_grant {
        grants_nothing(reader, item);
    }
    let mut names: Vec<Name<'a>> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries {
        let Some(name) = entry.string(reader) else { continue };
        if !seen.insert(name) {
            entry.wrong(reader, &format!("names {} a second time", code(name)), "leave it out".to_owned());
        } else {
            names.push((entry, name));
        }
    }
    Some(names)
}

/// The strings of a list, as often as they stand there.
pub(crate) fn names_in_order<'a>(reader: &mut Reader, item: &Item<'a>) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    Some(entries.into_iter().filter_map(|entry| entry.string(reader).map(|name| (entry, name))).collect())
}

fn grants_nothing(reader: &mut Reader, item: &Item<'_>) {
    item.wrong(reader, "is an empty list, which grants nothing", "leave it out".to_owned());
}

fn limit<T>(limits: &Option<Table<'_>>, name: &str, read: impl FnOnce(&Item<'_>) -> Option<T>) -> Option<T> {
    limits.as_ref()?.get(name).and_then(|item| read(&item))
}
