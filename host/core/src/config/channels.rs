//! `[channels.NAME]`: the channels of this config's rooms, with the access of each. `terminal`
//! exists by default; a table of that name changes it.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::TERMINAL;
use super::endpoints::{self, ChannelEndpoint};
use super::grants::names_of;
use super::keys::ValueShape::{Choice, Duration, Either, Flag, Table as Inner, Whole};
use super::keys::{CHANNEL_SECRET, CHANNELS, ConfigKey, TEXT, TEXTS, key};
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use crate::types::channel::{Binding, ChannelKind, Visibility};
use crate::types::ids::ChannelId;
use crate::types::wording::{array, code};

#[rustfmt::skip]
pub(super) const KEYS: &[ConfigKey] = &[
    key(CHANNELS, "kind", Choice(&["text", "web", "voice", "agent", "webhook", "plugin"]), r#"kind = "voice""#, "`text` (a terminal or other text), `web`, `voice`, `agent` (a remote agent), or `webhook` and `plugin`, which the host serves itself. A remote agent gets no messages, and its messages reach an agent of the room only if they address it.").otherwise("required, except for `terminal`"),
    key(CHANNELS, "access", Choice(&["read-write", "read-only", "write-only", "none"]), r#"access = "read-only""#, "Whether the channel receives messages, and whether it may send them.").word("read-write"),
    key(CHANNELS, "visibility", Either(&[Choice(&["all", "none", "people", "agents"]), TEXTS]), r#"visibility = ["desk"]"#, "Who gets its messages: `all`, `none`, `people` (channels that lead to people), `agents`, or a list of channels and tasks.").word("all"),
    key(CHANNELS, "muted", Flag, "muted = true", "Whether the channel receives no messages. It may still send them.").flag(false),
    key(CHANNELS, "rate", Whole { least: 1, most: 1_000_000 }, "rate = 5", "The maximum number of messages that it may send in one second."),
    key(CHANNELS, "simulate", Duration { least: 1, most: 60_000 }, r#"simulate = "40 ms""#, "For `voice` without a client program: the simulated speaking time for one word, during which the channel is busy."),
    key(CHANNELS, "plugin", TEXT, r#"plugin = "slack""#, "For `plugin`: the channel plugin. Only this entry lets it read messages of rooms and bring some.").otherwise("required for `plugin`"),
    key(CHANNELS, "senders", TEXTS, r#"senders = ["U024BE7LH"]"#, "For `plugin`: the people who may speak, by their ids in the service; `*` stands for everyone.").otherwise("required for a `plugin` that sends messages"),
    key(CHANNELS, "url", TEXT, r#"url = "https://hooks.example.org/conclave""#, "For `webhook`: the URL to which its messages are sent.").otherwise("required for a webhook that receives messages"),
    key(CHANNELS, "secret", Inner(CHANNEL_SECRET), r#"secret = { env = "HOOK_SECRET" }"#, "For `webhook`: the source of the secret with which messages are signed in both directions, `whsec_` and 24 to 64 bytes in base64. For `plugin`: the secret with which the plugin has the host verify what comes in.").otherwise("required for `webhook`, and for a `plugin` that sends messages"),
    key(CHANNELS, "sender", TEXT, r#"sender = "monitoring""#, "For `webhook`: the sender of the messages that come in.").otherwise("the channel's name"),
    key(CHANNELS, "private", TEXTS, r#"private = ["127.0.0.1"]"#, "For `webhook`: the private addresses and networks to which the host may connect."),
    key(CHANNELS, "attempts", Whole { least: 1, most: 20 }, "attempts = 3", "For `webhook` and `plugin`: the maximum number of attempts at one message. The pauses between them grow from a second to half a minute.").count(ChannelEndpoint::ATTEMPTS as u64),
    key(CHANNELS, "timeout", Duration { least: 100, most: 3_600_000 }, r#"timeout = "5 min""#, "For `webhook` and `plugin`: the time limit of all attempts at one message together.").time(ChannelEndpoint::TIMEOUT_MS),
    key(CHANNELS, "deduplicates", Flag, "deduplicates = true", "For `webhook` and `plugin`: whether the receiver drops a repeated message by its id. Only then is a message with an unknown outcome sent again.").flag(false),
    key(CHANNEL_SECRET, "env", TEXT, r#"env = "HOOK_SECRET""#, "An environment variable."),
    key(CHANNEL_SECRET, "file", TEXT, r#"file = "hook.secret""#, "A file, from the config's folder; its first line is the secret."),
    key(CHANNEL_SECRET, "command", TEXTS, r#"command = ["pass", "show", "hook"]"#, "A program and its arguments; the first line of its output is the secret."),
];

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
        let endpoint = endpoints::read(reader, references, folder, &table, &mut binding);
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

/// Reads a word, or a list of channels and tasks (R-004).
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
