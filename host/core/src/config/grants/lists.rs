//! Lists of names, alone or in a table with limits.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use crate::config::problem_code::ProblemCode;
use crate::config::reader::{ConfigReader, SpannedValue, Table};
use crate::config::references::References;
use crate::types::wording::code;

/// An entry of a list of names.
pub(super) type Name<'a> = (SpannedValue<'a>, &'a str);

/// Returns the names, each added to the references.
pub(super) fn referenced<'a, T: From<&'a str>>(
    references: &mut References,
    names: Vec<Name<'a>>,
    add: fn(&mut References, &SpannedValue<'_>, &str),
) -> Vec<T> {
    let name = |(item, name): Name<'a>| {
        add(references, &item, name);
        T::from(name)
    };
    names.into_iter().map(name).collect()
}

/// Reads a grant in its short form, a list, or in its long form, a table.
pub(super) fn list_or_table<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
    kind: &'static str,
    list: &str,
) -> Option<(Vec<Name<'a>>, Option<Table<'a>>)> {
    if item.value.is_table() {
        let table = item.table(reader, kind)?;
        let names = table
            .require(reader, list)
            .and_then(|item| names_of(reader, &item, true))
            .unwrap_or_default();
        return Some((names, Some(table)));
    }
    if !item.value.is_array() {
        item.expected(reader, "a list or a table");
        return None;
    }
    Some((names_of(reader, item, true)?, None))
}

/// Returns the strings of a list without duplicates; a grant's list must not be empty.
pub(crate) fn names_of<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
    is_grant: bool,
) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    if entries.is_empty() && is_grant {
        grants_nothing(reader, item);
    }
    let mut names: Vec<Name<'a>> = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in entries {
        let Some(name) = entry.string(reader) else { continue };
        if !seen.insert(name) {
            entry.reject(
                reader,
                ProblemCode::Duplicate,
                &format!("names {} a second time", code(name)),
                "leave it out".to_owned(),
            );
        } else {
            names.push((entry, name));
        }
    }
    Some(names)
}

/// Returns the strings of a list, duplicates included.
pub(crate) fn names_in_order<'a>(
    reader: &mut ConfigReader,
    item: &SpannedValue<'a>,
) -> Option<Vec<Name<'a>>> {
    let entries = item.list(reader)?;
    Some(
        entries
            .into_iter()
            .filter_map(|entry| entry.string(reader).map(|name| (entry, name)))
            .collect(),
    )
}

pub(super) fn grants_nothing(reader: &mut ConfigReader, item: &SpannedValue<'_>) {
    item.wrong(reader, "is an empty list, which grants nothing", "leave it out".to_owned());
}

/// Reads a limit beside the list of a grant; the short form of a grant has none.
pub(super) fn limit<T: DeserializeOwned>(
    reader: &mut ConfigReader,
    limits: &Option<Table<'_>>,
    name: &str,
) -> Option<T> {
    limits.as_ref()?.read(reader, name)
}
