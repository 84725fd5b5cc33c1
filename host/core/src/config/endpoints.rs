//! Channels that the host serves itself: `kind = "webhook"`, requests over HTTP in both directions,
//! and `kind = "plugin"`, where a plugin speaks the protocol of the other side. Their secrets are
//! named and never read here.

use std::collections::BTreeSet;

use ipnet::IpNet;
use url::Url;

use super::grants::fetch::networks;
use super::keys::CHANNEL_SECRET;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::references::References;
use super::{KeyRef, model};
use crate::permissions::fetch::{is_inside, target};
use crate::types::channel::{Binding, ChannelKind};
use crate::types::ids::PluginName;
use crate::types::wording::code;

/// The keys of channels that the host serves itself, with the kinds that have them.
const KEYS: [(&str, &[ChannelKind]); 9] = [
    ("url", &[ChannelKind::Webhook]),
    ("sender", &[ChannelKind::Webhook]),
    ("private", &[ChannelKind::Webhook]),
    ("plugin", &[ChannelKind::Plugin]),
    ("senders", &[ChannelKind::Plugin]),
    ("secret", &[ChannelKind::Webhook, ChannelKind::Plugin]),
    ("attempts", &[ChannelKind::Webhook, ChannelKind::Plugin]),
    ("timeout", &[ChannelKind::Webhook, ChannelKind::Plugin]),
    ("deduplicates", &[ChannelKind::Webhook, ChannelKind::Plugin]),
];

/// How the host reaches people of a channel that it serves itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelEndpoint {
    pub peer: ChannelPeer,
    /// The source of the secret that the other side shares. A webhook's signs the messages of both
    /// directions; a plugin's verifies those that come in. `None` if no message comes in.
    pub secret: Option<KeyRef>,
    /// The number of attempts at one message.
    pub attempts: u32,
    /// The time limit of all attempts at one message together, in milliseconds.
    pub timeout_ms: u64,
    /// Whether the receiver drops a repeated message by its id, so that one with an unknown outcome
    /// is sent again.
    pub deduplicates: bool,
}

/// The other side of a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelPeer {
    /// A program that receives webhooks, and sends some.
    Webhook {
        /// The receiver; `None` for a channel that receives no messages.
        url: Option<Url>,
        /// The sender of messages that come in; empty for the channel's name.
        sender: String,
        /// The private addresses and networks that it may connect to.
        private: Vec<IpNet>,
    },
    /// A service whose protocol a plugin speaks.
    Plugin {
        plugin: PluginName,
        /// The people who may speak, by their ids in the service.
        senders: Senders,
    },
}

/// People of a service who may speak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders(BTreeSet<String>);

impl Senders {
    /// The entry that stands for everyone.
    const EVERYONE: &str = "*";

    /// Whether the sender may speak.
    #[must_use]
    pub fn admit(&self, sender: &str) -> bool {
        self.0.contains(Self::EVERYONE) || self.0.contains(sender)
    }
}

impl ChannelEndpoint {
    pub(crate) const ATTEMPTS: u32 = 5;
    pub(crate) const TIMEOUT_MS: u64 = 60_000;
    /// Messages a second that such a channel may send if its config names no rate.
    const RATE: u32 = 5;
    /// The highest rate: in the ten minutes in which a signature is valid, fewer messages than a room
    /// remembers keys of.
    const RATE_MAX: u32 = 16;
}

/// Reads the endpoint of a channel, and completes its binding; `None` if a program serves it.
pub(super) fn read(
    reader: &mut ConfigReader,
    references: &mut References,
    folder: &str,
    table: &Table<'_>,
    binding: &mut Binding,
) -> Option<ChannelEndpoint> {
    for (key, kinds) in KEYS {
        let Some(item) = table.get(key).filter(|_| !kinds.contains(&binding.kind)) else {
            continue;
        };
        let kinds: Vec<String> = kinds.iter().map(|kind| code(kind.as_str())).collect();
        let what = format!("is for a channel of kind {}", kinds.join(" or "));
        item.reject(reader, ProblemCode::Conflict, &what, "leave it out".to_owned());
    }
    if let Some(item) = table.get("rate")
        && matches!(binding.kind, ChannelKind::Webhook | ChannelKind::Plugin)
        && binding.rate.is_some_and(|rate| rate > ChannelEndpoint::RATE_MAX)
    {
        let most = ChannelEndpoint::RATE_MAX;
        item.wrong(reader, &format!("is more than {most}, the most of this kind"), None);
    }
    let peer = match binding.kind {
        ChannelKind::Webhook => Some(webhook(reader, table, binding)),
        ChannelKind::Plugin => plugin(reader, references, table, binding),
        _ => return None,
    };
    // A webhook signs outgoing messages with the secret. A plugin signs with secrets of its grants.
    let needs_secret = binding.kind == ChannelKind::Webhook || binding.access.may_write();
    let item = match needs_secret {
        true => table.require(reader, "secret"),
        false => table.get("secret"),
    };
    let secret = item.and_then(|item| model::key(reader, folder, &item, CHANNEL_SECRET));
    let (mut attempts, mut timeout_ms) = (ChannelEndpoint::ATTEMPTS, ChannelEndpoint::TIMEOUT_MS);
    let mut deduplicates = false;
    table.set(reader, "attempts", &mut attempts);
    table.set(reader, "timeout", &mut timeout_ms);
    table.set(reader, "deduplicates", &mut deduplicates);
    binding.sends_once = !deduplicates;
    binding.rate = binding.rate.or(Some(ChannelEndpoint::RATE));
    if needs_secret && secret.is_none() {
        return None;
    }
    Some(ChannelEndpoint { peer: peer?, secret, attempts, timeout_ms, deduplicates })
}

fn webhook(reader: &mut ConfigReader, table: &Table<'_>, binding: &mut Binding) -> ChannelPeer {
    let url = match table.get("url") {
        None if binding.access.may_read() => {
            let help = "write `url = \"https://…\"`, or `access = \"write-only\"` for a channel \
                        that sends messages and receives none";
            let what = format!("`url` is missing {}", table.place.within());
            reader.absence(&table.span, what, help.to_owned());
            None
        }
        item => item.and_then(|item| receiver(reader, &item)),
    };
    let private = table.get("private").map(|item| networks(reader, &item)).unwrap_or_default();
    let sender = table.get("sender").and_then(|item| sender_name(reader, &item));
    // The path is left out: it is often a secret.
    binding.reached_at = url.as_ref().map(|url| url.origin().ascii_serialization());
    ChannelPeer::Webhook { url, sender: sender.unwrap_or_default(), private }
}

fn plugin(
    reader: &mut ConfigReader,
    references: &mut References,
    table: &Table<'_>,
    binding: &mut Binding,
) -> Option<ChannelPeer> {
    let plugin = table.require(reader, "plugin").and_then(|item| {
        let name = item.string(reader)?;
        references.add_plugin(&item, name);
        Some(PluginName::from(name))
    });
    let senders = match table.get("senders") {
        None if binding.access.may_write() => {
            let help = "name the people who may speak, by their ids in the service, or write \
                        `senders = [\"*\"]` for everyone there";
            let what = format!("`senders` is missing {}", table.place.within());
            reader.absence(&table.span, what, help.to_owned());
            None
        }
        item => item.and_then(|item| item.read::<BTreeSet<String>>(reader)),
    };
    binding.plugin.clone_from(&plugin);
    Some(ChannelPeer::Plugin { plugin: plugin?, senders: Senders(senders.unwrap_or_default()) })
}

/// Reads the URL to which messages are sent.
fn receiver(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<Url> {
    match target(item.string(reader)?) {
        Ok(url) if url.scheme() == "http" && !is_inside(&url) => {
            let what = "must begin with `https://`: others on the way could read the messages";
            item.wrong(reader, what, None);
            None
        }
        Ok(url) => Some(url),
        Err(problem) => {
            item.wrong(reader, &format!("cannot be used: {problem}"), None);
            None
        }
    }
}

/// Reads a name that is shown to people and models.
fn sender_name(reader: &mut ConfigReader, item: &SpannedValue<'_>) -> Option<String> {
    let text = item.string(reader)?;
    if text.trim().is_empty() || text.len() > 64 || text.chars().any(char::is_control) {
        item.wrong(reader, "must be a name of 1 to 64 bytes in one line", None);
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::types::ids::ChannelId;

    fn parse(lines: &str) -> Result<Config, String> {
        let text = format!(
            "entry = \"desk\"\n[plugins.chat]\nsource = \"stock:chat\"\n[plugins.slack]\n\
             source = \"slack.wasm\"\n[tasks.desk]\nagent = \"chat\"\n[channels.hook]\n{lines}"
        );
        Config::parse("conclave.toml", "", &text).map_err(|problems| problems.to_string())
    }

    const HOOK: &str = "kind = \"webhook\"\nurl = \"https://hooks.example.org/T0/s3cr3t\"\n\
                        secret = { env = \"HOOK\" }\n";

    #[test]
    fn an_endpoint_completes_the_binding_and_its_path_is_no_destination() {
        let config = parse(HOOK).expect("it is valid");
        let hook = ChannelId::from("hook");
        let binding = &config.channels[&hook];
        assert_eq!((binding.rate, binding.sends_once), (Some(5), true));
        assert_eq!(binding.reached_at.as_deref(), Some("https://hooks.example.org"));
        assert_eq!(config.endpoints[&hook].attempts, ChannelEndpoint::ATTEMPTS);
        let config = parse(&format!("{HOOK}deduplicates = true\nrate = 2\n")).expect("it is valid");
        let binding = &config.channels[&hook];
        assert_eq!((binding.rate, binding.sends_once), (Some(2), false));
        let silent = "kind = \"webhook\"\naccess = \"write-only\"\nsecret = { env = \"HOOK\" }\n";
        assert!(parse(silent).is_ok(), "a channel that receives nothing needs no url");
    }

    const SLACK: &str = "kind = \"plugin\"\nplugin = \"slack\"\nsenders = [\"U1\"]\n\
                         secret = { env = \"SLACK\" }\n";

    #[test]
    fn a_channel_of_a_plugin_names_who_may_speak_unless_nobody_may() {
        let config = parse(SLACK).expect("it is valid");
        let hook = ChannelId::from("hook");
        let binding = &config.channels[&hook];
        assert_eq!(binding.plugin.as_ref().map(PluginName::as_str), Some("slack"));
        assert!(binding.sends_once && binding.reached_at.is_none() && binding.rate == Some(5));
        let admits = |config: &Config, sender: &str| match &config.endpoints[&hook].peer {
            ChannelPeer::Plugin { senders, .. } => senders.admit(sender),
            peer => panic!("{peer:?}"),
        };
        assert!(admits(&config, "U1") && !admits(&config, "U2") && !admits(&config, "*"));
        let all = parse(&SLACK.replace("U1", "*")).expect("it is valid");
        assert!(admits(&all, "U2"));
        let silent = "kind = \"plugin\"\nplugin = \"slack\"\naccess = \"read-only\"\n";
        assert!(!admits(&parse(silent).expect("nothing comes in"), "U1"));
    }

    #[test]
    fn what_would_leak_inject_or_have_no_effect_is_refused() {
        let both = |of: &str, line: &str| format!("{of}{line}\n");
        let without = |of: &str, key: &str| {
            of.lines()
                .filter(|line| !line.starts_with(key))
                .fold(String::new(), |text, line| text + line + "\n")
        };
        for (lines, says) in [
            (HOOK.replace("https", "http"), "must begin with `https://`"),
            (HOOK.replace("https://", "https://ada:pw@"), "user name or a password"),
            (HOOK.replace("{ env = \"HOOK\" }", "\"whsec_x\""), "plain text"),
            (without(HOOK, "url"), "`url` is missing"),
            (without(HOOK, "secret"), "`secret` is missing"),
            (both(HOOK, "rate = 17"), "more than 16"),
            (both(HOOK, "sender = \"a\\nb\""), "in one line"),
            (both("kind = \"text\"\n", "attempts = 2"), "of kind `webhook` or `plugin`"),
            (both(HOOK, "plugin = \"slack\""), "of kind `plugin`"),
            (both(SLACK, "url = \"https://a.example\""), "of kind `webhook`"),
            (without(SLACK, "senders"), "`senders` is missing"),
            (without(SLACK, "secret"), "`secret` is missing"),
            (without(SLACK, "plugin"), "`plugin` is missing"),
            (SLACK.replace("\"slack\"", "\"slacker\""), "slacker"),
        ] {
            let problems = parse(&lines).expect_err(&lines);
            assert!(problems.contains(says), "{lines}\n{problems}");
        }
    }
}
