//! A piece of config that says what to grant: `tools = ["search.find"]`, also with `grants.` before
//! it, and in the form in which a denial proposes it, `[plugins.desk] grants.tools =
//! ["search.find"]`. Knows the names of grants; what may stand in them is the reader's business.

use std::fmt;

use toml_edit::{Document, Item, TableLike, Value};

use crate::config::ConfigKey;
use crate::config::depth::too_deep;
use crate::config::keys::{GRANTS, of_table};
use crate::types::wording::{code, nearest};

/// What is to be granted or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The plugin that the text names; most name none.
    pub plugin: Option<String>,
    /// In the order in which they are written; at least one.
    pub grants: Vec<GrantText>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantText {
    /// The capability: `tools`.
    pub key: &'static str,
    /// The value as it was written.
    pub value: String,
    /// The whole grant is meant: the text is the bare name of it.
    pub(super) is_whole: bool,
    pub(super) entries: Vec<ListEntry>,
    /// Limits beside the list, as they were written.
    pub(super) limits: Vec<(String, String)>,
}

/// An entry of a list: a name, or a directory and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListEntry {
    /// As it was written.
    pub(super) text: String,
    /// A name; for files the place, none when nothing says it.
    pub(super) name: Option<String>,
    /// Of files.
    pub(super) dir: Option<String>,
}

/// A text that grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    #[error("{} is no grant; write one such as `tools = [\"search.find\"]`, in quotes for the shell", code(.text))]
    NoGrant { text: String },
    #[error("{} is not valid TOML: {problem}\nhelp: write a grant such as `tools = [\"search.find\"]`, in quotes for the shell", code(.text))]
    NotToml { text: String, problem: String },
    #[error("{} is no grant; {help}", code(.key))]
    UnknownGrant { key: String, help: String },
    /// A table of limits says nothing of what they are for.
    #[error("{} needs {}, the list that the limits are for; write {}", code(.key), code(.list), code(.example))]
    NoList { key: &'static str, list: &'static str, example: String },
    #[error("{} has another form; write {}", code(.key), code(.example))]
    Form { key: &'static str, example: &'static str },
}

impl Fragment {
    /// Parses a grant.
    ///
    /// # Errors
    /// `NotToml` and `NoGrant` for a text of another form, `UnknownGrant` for an unknown capability,
    /// `NoList` for limits without their list, `Form` for a value of another form.
    pub fn parse(text: &str) -> Result<Self, FragmentError> {
        Self::read(text, false)
    }

    fn read(text: &str, is_revoked: bool) -> Result<Self, FragmentError> {
        let no_grant = || FragmentError::NoGrant { text: text.to_owned() };
        let lines = on_lines(text);
        if too_deep(&lines).is_some() {
            return Err(no_grant());
        }
        let document = Document::parse(lines.as_str()).map_err(|error| FragmentError::NotToml {
            text: text.to_owned(),
            problem: error.message().replace('\n', ", "),
        })?;
        let mut table: &dyn TableLike = document.as_table();
        let mut plugin = None;
        if let Some(("plugins", plugins)) = only(table) {
            let (name, below) = plugins.as_table_like().and_then(only).ok_or_else(no_grant)?;
            plugin = Some(name.to_owned());
            table = below.as_table_like().ok_or_else(no_grant)?;
        }
        if let Some(("grants", grants)) = only(table) {
            table = grants.as_table_like().ok_or_else(no_grant)?;
        }
        let grants = table
            .iter()
            .map(|(key, item)| grant(&lines, key, item, is_revoked))
            .collect::<Result<Vec<_>, _>>()?;
        if grants.is_empty() { Err(no_grant()) } else { Ok(Self { plugin, grants }) }
    }

    /// Reads what is to be taken back: the same, or the bare name of a grant for all of it.
    ///
    /// # Errors
    /// As `parse`.
    pub fn parse_revoked(text: &str) -> Result<Self, FragmentError> {
        let name = text.trim().trim_start_matches("grants.");
        if name.is_empty()
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        {
            return Self::read(text, true);
        }
        let grant = GrantText {
            key: known(name)?.name,
            value: String::new(),
            is_whole: true,
            entries: Vec::new(),
            limits: Vec::new(),
        };
        Ok(Self { plugin: None, grants: vec![grant] })
    }
}

impl fmt::Display for Fragment {
    /// Without the plugin: `tools = ["search.find"]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, grant) in self.grants.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(out, "{between}{}", grant.key)?;
            if !grant.is_whole {
                write!(out, " = {}", grant.value)?;
            }
        }
        Ok(())
    }
}

/// A header that its first line goes on behind gets a line of its own, as TOML wants it.
fn on_lines(text: &str) -> String {
    let text = text.trim();
    match text.find(']').filter(|_| text.starts_with('[')) {
        Some(end) => format!("{}\n{}", &text[..=end], &text[end + 1..]),
        None => text.to_owned(),
    }
}

fn only(table: &dyn TableLike) -> Option<(&str, &Item)> {
    let mut entries = table.iter();
    entries.next().filter(|_| entries.next().is_none())
}

/// The grant of that name.
fn known(name: &str) -> Result<&'static ConfigKey, FragmentError> {
    let keys = || of_table(GRANTS);
    if let Some(key) = keys().find(|key| key.name == name) {
        return Ok(key);
    }
    let help = match nearest(name, keys().map(|key| key.name)) {
        Some(near) => format!("did you mean {}?", code(near)),
        None => format!(
            "these are there: {}",
            keys().map(|key| code(key.name)).collect::<Vec<_>>().join(", ")
        ),
    };
    Err(FragmentError::UnknownGrant { key: name.to_owned(), help })
}

/// Lists beside the list of a `fetch` grant: private networks and headers.
pub(super) const BESIDE: [&str; 2] = ["private", "headers"];

/// Whether the grant is `true` or a table of limits, and no list.
pub(super) fn is_plain(grant: &str) -> bool {
    matches!(grant, "kv" | "history")
}

/// The key of the list within the table form of a grant; none where there is no table form.
pub(super) fn list_key(grant: &str) -> Option<&'static str> {
    match grant {
        "tools" | "model" | "channels" => Some("names"),
        "delegate" => Some("tasks"),
        "fetch" => Some("urls"),
        "exec" => Some("commands"),
        _ => None,
    }
}

fn grant(text: &str, key: &str, item: &Item, is_revoked: bool) -> Result<GrantText, FragmentError> {
    let key = known(key)?;
    let form = || FragmentError::Form { key: key.name, example: key.example };
    let written = |value: &Value| value.span().map(|span| text[span].to_owned()).ok_or_else(form);
    let value = item.as_value().ok_or_else(form)?;
    if is_plain(key.name) {
        return plain(key, value, written);
    }
    let mut limits = Vec::new();
    let entries = match (value, list_key(key.name)) {
        (Value::Array(entries), _) => entries,
        (Value::InlineTable(table), Some(list)) => {
            for (name, limit) in table.iter().filter(|(name, _)| *name != list) {
                limits.push((name.to_owned(), written(limit)?));
            }
            // Networks and headers can be taken back without an address, not granted so.
            if is_revoked
                && key.name == "fetch"
                && table.get(list).is_none()
                && BESIDE.iter().any(|name| table.contains_key(name))
            {
                return Ok(GrantText {
                    key: key.name,
                    value: written(value)?,
                    is_whole: false,
                    entries: Vec::new(),
                    limits,
                });
            }
            match table.get(list) {
                Some(entries) => entries.as_array().ok_or_else(form)?,
                None => return Err(no_list(key, list)),
            }
        }
        _ => return Err(form()),
    };
    let entries = entries
        .iter()
        .map(|value| entry(text, value))
        .collect::<Option<Vec<_>>>()
        .filter(|entries| !entries.is_empty());
    let mut entries = entries.ok_or_else(form)?;
    if let Some(index) = limits.iter().position(|(name, _)| name == "methods") {
        // Beside a list that holds others too they would be for all of them.
        let (_, methods) = limits.remove(index);
        entries.iter_mut().for_each(|entry| with_methods(entry, &methods));
    }
    Ok(GrantText { key: key.name, value: written(value)?, is_whole: false, entries, limits })
}

fn no_list(key: &'static ConfigKey, list: &'static str) -> FragmentError {
    let short = key.example.split_once('=').map_or(key.example, |(_, value)| value.trim());
    FragmentError::NoList {
        key: key.name,
        list,
        example: format!("{} = {{ {list} = {short}, … }}", key.name),
    }
}

/// `true`, or a table of limits; there is no list.
fn plain(
    key: &'static ConfigKey,
    value: &Value,
    written: impl Fn(&Value) -> Result<String, FragmentError>,
) -> Result<GrantText, FragmentError> {
    let limits = match value {
        Value::Boolean(granted) if *granted.value() => Vec::new(),
        Value::InlineTable(table) => table
            .iter()
            .map(|(name, limit)| Ok((name.to_owned(), written(limit)?)))
            .collect::<Result<Vec<_>, FragmentError>>()?,
        _ => return Err(FragmentError::Form { key: key.name, example: key.example }),
    };
    Ok(GrantText {
        key: key.name,
        value: written(value)?,
        is_whole: false,
        entries: Vec::new(),
        limits,
    })
}

/// The methods of a whole table, written beside the one address.
fn with_methods(entry: &mut ListEntry, methods: &str) {
    let is_plain = entry.text.starts_with(['"', '\'']);
    if is_plain {
        entry.text = format!("{{ url = {}, methods = {methods} }}", entry.text);
    }
}

/// An entry as it stands in a text; none when it is neither text nor table.
pub(super) fn entry(text: &str, value: &Value) -> Option<ListEntry> {
    let written = text[value.span()?].to_owned();
    let string = |name: &str| value.as_inline_table()?.get(name)?.as_str().map(str::to_owned);
    match value {
        Value::String(name) => {
            let name = name.value();
            Some(ListEntry { text: written, name: Some(name.clone()), dir: None })
        }
        Value::InlineTable(_) => Some(ListEntry {
            text: written,
            name: string("at").or_else(|| string("url")),
            dir: string("dir"),
        }),
        _ => None,
    }
}
