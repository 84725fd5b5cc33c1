//! Channels that the host serves itself: `kind = "webhook"`, requests over HTTP in both directions.
//! Their secrets are named and never read here.

use ipnet::IpNet;
use url::Url;

use super::grants::fetch::networks;
use super::keys::CHANNEL_SECRET;
use super::problem_code::ProblemCode;
use super::reader::{ConfigReader, SpannedValue, Table};
use super::{KeyRef, model};
use crate::permissions::fetch::{is_inside, target};
use crate::types::channel::{Binding, ChannelKind};

/// The keys that only a webhook has.
const KEYS: [&str; 7] =
    ["url", "secret", "sender", "private", "attempts", "timeout", "deduplicates"];

/// How the host reaches the program at the other end of a channel of kind `webhook`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelEndpoint {
    /// The receiver; `None` for a channel that receives no messages.
    pub url: Option<Url>,
    /// The source of the secret with which messages are signed in both directions.
    pub secret: KeyRef,
    /// The sender of messages that come in; empty for the channel's name.
    pub sender: String,
    /// The private addresses and networks that it may connect to.
    pub private: Vec<IpNet>,
    /// The number of attempts at one message.
    pub attempts: u32,
    /// The time limit of all attempts at one message together, in milliseconds.
    pub timeout_ms: u64,
    /// Whether the receiver drops a repeated message by its id, so that one with an unknown outcome
    /// is sent again.
    pub deduplicates: bool,
}

impl ChannelEndpoint {
    pub(crate) const ATTEMPTS: u32 = 5;
    pub(crate) const TIMEOUT_MS: u64 = 60_000;
    /// Messages a second that a webhook may send if its config names no rate.
    const RATE: u32 = 5;
    /// The highest rate of a webhook: in the ten minutes in which a signature is valid, fewer
    /// messages than a room remembers keys of.
    const RATE_MAX: u32 = 16;
}

/// Reads the endpoint of a channel, and completes its binding; `None` if a program serves it.
pub(super) fn read(
    reader: &mut ConfigReader,
    folder: &str,
    table: &Table<'_>,
    binding: &mut Binding,
) -> Option<ChannelEndpoint> {
    if binding.kind != ChannelKind::Webhook {
        for item in KEYS.iter().filter_map(|key| table.get(key)) {
            let what = "is for a channel of kind `webhook`";
            item.reject(reader, ProblemCode::Conflict, what, "leave it out".to_owned());
        }
        return None;
    }
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
    let secret = table.require(reader, "secret");
    let secret = secret.and_then(|item| model::key(reader, folder, &item, CHANNEL_SECRET));
    if let Some(item) = table.get("rate")
        && binding.rate.is_some_and(|rate| rate > ChannelEndpoint::RATE_MAX)
    {
        let what = format!("is more than {}, the most of a webhook", ChannelEndpoint::RATE_MAX);
        item.wrong(reader, &what, None);
    }
    let (mut attempts, mut timeout_ms) = (ChannelEndpoint::ATTEMPTS, ChannelEndpoint::TIMEOUT_MS);
    let mut deduplicates = false;
    table.set(reader, "attempts", &mut attempts);
    table.set(reader, "timeout", &mut timeout_ms);
    table.set(reader, "deduplicates", &mut deduplicates);
    let private = table.get("private").map(|item| networks(reader, &item)).unwrap_or_default();
    let sender = table.get("sender").and_then(|item| sender_name(reader, &item));
    // The path is left out: it is often a secret.
    binding.reached_at = url.as_ref().map(|url| url.origin().ascii_serialization());
    binding.sends_once = !deduplicates;
    binding.rate = binding.rate.or(Some(ChannelEndpoint::RATE));
    let sender = sender.unwrap_or_default();
    Some(ChannelEndpoint {
        url,
        secret: secret?,
        sender,
        private,
        attempts,
        timeout_ms,
        deduplicates,
    })
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
            "entry = \"desk\"\n[plugins.chat]\nsource = \"stock:chat\"\n[tasks.desk]\n\
             agent = \"chat\"\n[channels.hook]\n{lines}"
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
            (both("kind = \"text\"\n", "attempts = 2"), "of kind `webhook`"),
        ] {
            let problems = parse(&lines).expect_err(&lines);
            assert!(problems.contains(says), "{lines}\n{problems}");
        }
    }
}
