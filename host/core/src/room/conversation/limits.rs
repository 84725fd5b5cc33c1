//! Rate limits of channels (R-135), and the keys of earlier messages (R-006). Both depend on
//! journalled numbers only, so a replay counts the same.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::types::fingerprint::{Fingerprint, Fingerprinter};
use crate::types::ids::{ChannelId, Millis};
use crate::types::request::Inbound;

/// Keys that a room remembers of each channel; a message repeated after so many others of its
/// channel counts as new.
const KEYS_MAX: usize = 10_000;
/// Tokens that a message costs. A rate of one message a second adds one token each millisecond.
const MESSAGE: u64 = 1_000;

/// A token bucket: it holds the messages of one second, and fills with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bucket {
    #[serde(rename = "left")]
    tokens: u64,
    at: Millis,
    /// True if the last message exceeded the rate, and that was reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_empty: bool,
}

impl Bucket {
    pub(super) fn full(rate: u32, now: Millis) -> Self {
        Self { tokens: capacity(rate), at: now, is_empty: false }
    }

    /// Takes one message from the bucket. Returns false if it is empty.
    pub(super) fn take(&mut self, rate: u32, now: Millis) -> bool {
        let filled = now.since(self.at).saturating_mul(u64::from(rate));
        self.tokens = self.tokens.saturating_add(filled).min(capacity(rate));
        self.at = now;
        let rest = self.tokens.checked_sub(MESSAGE);
        self.tokens = rest.unwrap_or(self.tokens);
        rest.is_some()
    }
}

fn capacity(rate: u32) -> u64 {
    u64::from(rate).saturating_mul(MESSAGE)
}

/// Numbers of messages by their key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SeenKeys {
    numbers: BTreeMap<String, u64>,
    /// What the messages say, also those that are at the gates.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    contents: BTreeMap<String, Fingerprint>,
    /// The keys of each channel, oldest first. One that sends much must not make the room forget
    /// those of another.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    orders: BTreeMap<ChannelId, VecDeque<String>>,
    /// Keys of a snapshot that does not say whose they are, oldest first.
    order: VecDeque<String>,
}

impl SeenKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.contents.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    /// Whether another message has this message's key. A message that was seen before this host
    /// noted contents counts as the same.
    pub(super) fn has_other(&self, key: &str, inbound: &Inbound) -> bool {
        self.contents.get(key).is_some_and(|known| *known != content(inbound))
    }

    /// Notes what a message with a key says.
    pub(super) fn note(&mut self, key: String, inbound: &Inbound) {
        self.contents.insert(key, content(inbound));
    }

    /// Forgets a message that was not accepted.
    pub(super) fn forget(&mut self, key: &str) {
        // The contents of an accepted message stay, for those that repeat its key.
        if !self.numbers.contains_key(key) {
            self.contents.remove(key);
        }
    }

    pub(super) fn insert(&mut self, channel: &ChannelId, key: String, number: u64) {
        // A known key has its place in the order; a second one would drop it too early.
        if self.numbers.insert(key.clone(), number).is_some() {
            return;
        }
        let order = self.orders.entry(channel.clone()).or_default();
        order.push_back(key);
        let is_over = order.len() + self.order.len() > KEYS_MAX;
        if is_over && let Some(oldest) = self.order.pop_front().or_else(|| order.pop_front()) {
            self.numbers.remove(&oldest);
            self.contents.remove(&oldest);
        }
    }
}

/// A fingerprint of all that a repeated message has in common with the first. A depth of automatic
/// answers and the sender's name can differ.
fn content(inbound: &Inbound) -> Fingerprint {
    Fingerprinter::of("inbound").text(&inbound.text).finish_with_json(&(
        &inbound.channel,
        &inbound.attachments,
        &inbound.to,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_as_many_as_the_rate_and_fills_with_time() {
        let mut bucket = Bucket::full(2, Millis(0));
        let takes: Vec<bool> = [0, 0, 0, 499, 500, 501, 1_000, 9_000, 9_000, 9_000]
            .map(|at| bucket.take(2, Millis(at)))
            .into();
        assert_eq!(takes, [true, true, false, false, true, false, true, true, true, false]);
    }

    #[test]
    fn a_rate_that_was_lowered_holds_at_once() {
        let mut bucket = Bucket::full(100, Millis(0));
        assert!(bucket.take(1, Millis(0)));
        assert!(!bucket.take(1, Millis(0)));
    }

    #[test]
    fn the_oldest_key_is_forgotten_first() {
        let mut seen = SeenKeys::default();
        let (web, hook) = (ChannelId::from("web"), ChannelId::from("hook"));
        seen.insert(&web, "w".to_owned(), 7);
        (0..=KEYS_MAX as u64).for_each(|number| seen.insert(&hook, format!("k{number}"), number));
        assert_eq!((seen.get("k0"), seen.get("k1")), (None, Some(1)));
        assert_eq!((seen.get("w"), seen.numbers.len()), (Some(7), KEYS_MAX + 1), "another channel");
    }

    #[test]
    fn the_keys_of_an_older_snapshot_are_forgotten_before_those_of_a_channel() {
        let old = r#"{"numbers":{"a":0,"b":1},"order":["a","b"]}"#;
        let mut seen: SeenKeys = serde_json::from_str(old).unwrap();
        let web = ChannelId::from("web");
        (2..=KEYS_MAX as u64).for_each(|number| seen.insert(&web, format!("k{number}"), number));
        assert_eq!((seen.get("a"), seen.get("b"), seen.get("k2")), (None, Some(1), Some(2)));
    }
}
