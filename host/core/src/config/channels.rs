//! `[channels.NAME]`: the channels of this config's rooms, with the access of each. `terminal`
//! exists by default; a table of that name changes it.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::TERMINAL;
use super::endpoints::{self, ChannelEndpoint};
use super::grants::names_of;
use super::keys::CHANNELS;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::types::channel::{Binding, ChannelKind, Visibility};
use crate::types::ids::ChannelId;
use crate::types::wording::{array, code};

/// The words of `visibility`, which are no valid channel names.
const WORDS: [&str; 4] = ["all", "none", "people", "agents"];

/// The endpoints of the channels that the host serves itself.
pub(super) type Endpoints = BTreeMap<ChannelId, ChannelEndpoint>;

/// Returns all channels, the terminal included.
pub(crate) fn read_all(
    reader: &mut ConfigReader,
    references: &mut References,
    folder: &str,
    root: &Table<'_>,
) -> (BTreeMap<ChannelId, Binding>, Endpoints) {
    let mut endpoints = Endpoints::new();
    let mut channels =
        BTreeMap::from([(ChannelId::from(TERMINAL), Binding::of(ChannelKind::Text))]);
    for (name, span, table) in root.named_tables(reader, "channels", CHANNELS) {
        super::plugin::check_name(reader, "channels", name, &span);
        if WORDS.contains(&name) {
            let what = format!(
                "{} cannot be the name of a channel: it is a word of `visibility`",
                code(name)
            );
            reader.error(
                ProblemCode::InvalidName,
                &span,
                what,
                format!("call it {}", code(&format!("{name}-1"))),
            );
        }
        let table = table.checked(reader);
        let mut binding = read(reader, references, &table, name == TERMINAL);
        let endpoint = endpoints::read(reader, folder, &table, &mut binding);
        endpoints.extend(endpoint.map(|endpoint| (ChannelId::from(name), endpoint)));
        channels.insert(ChannelId::from(name), binding);
    }
    (channels, endpoints)
}

fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    is_terminal: bool,
) -> Binding {
    // The terminal's kind is known without the key.
    let kind = if is_terminal { table.get("kind") } else { table.require(reader, "kind") };
    let kind = kind.map(|item| item.read::<ChannelKind>(reader));
    let mut binding = Binding::of(kind.flatten().unwrap_or_default());
    table.set(reader, "access", &mut binding.access);
    if let Some(item) = table.get("visibility") {
        binding.visibility = visibility(reader, references, &item);
    }
    table.set(reader, "muted", &mut binding.muted);
    table.set(reader, "rate", &mut binding.rate);
    table.set(reader, "simulate", &mut binding.simulate_ms);
    // An unreadable kind was reported, and allows no conclusion about the other keys.
    let is_other = kind.is_none_or(|kind| kind.is_some_and(|kind| kind != ChannelKind::Voice));
    if let Some(item) = table.get("simulate").filter(|_| is_other) {
        item.reject(
            reader,
            ProblemCode::Conflict,
            "is for a voice",
            "write `kind = \"voice\"`, or leave it out".to_owned(),
        );
    }
    binding
}

/// Reads a word, or a list of channels and tasks.
fn visibility(
    reader: &mut ConfigReader,
    references: &mut References,
    item: &SpannedValue<'_>,
) -> Visibility {
    match item.value {
        DeValue::String(word) if !WORDS.contains(&word.as_ref()) => {
            let names: Vec<&str> =
                word.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            let words = WORDS.map(code).join(", ");
            let list = (!names.is_empty()).then(|| {
                format!("; for channels and tasks by name write `visibility = {}`", array(names))
            });
            let help = format!("it can be {words}{}", list.unwrap_or_default());
            item.wrong(reader, &format!("cannot be {}", code(word)), help);
            Visibility::All
        }
        DeValue::String(word) => Visibility::parse(word),
        DeValue::Array(_) => {
            let names = names_of(reader, item, false).unwrap_or_default();
            if names.is_empty() && item.is_empty_list() {
                item.wrong(
                    reader,
                    "is an empty list, so its messages reach no one",
                    "write `visibility = \"none\"`".to_owned(),
                );
            }
            names.iter().for_each(|(item, name)| references.add_audience(item, name));
            Visibility::Only(
                names.into_iter().map(|(_, name)| ChannelId::from(name)).collect::<BTreeSet<_>>(),
            )
        }
        _ => {
            item.expected(reader, "a word or a list of names");
            Visibility::All
        }
    }
}
