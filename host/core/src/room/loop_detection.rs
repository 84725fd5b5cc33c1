//! Loop detection: finds a task that cycles through the same few messages, or alternates with
//! DO-NOT-KNOW answers (L-062, L-096, L-097). The cost of a message does not depend on how many
//! came before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::setup::LoopRules;
use crate::types::message::{DO_NOT_KNOW, Message};

/// A message's rank by frequency, the most frequent first, then by first appearance.
type Rank = (Reverse<u64>, u64);
/// The hash of a message.
type Key = (u64, u64);

/// The messages of a task and their counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoopDetector {
    /// Count and order of first appearance for each message.
    #[serde(with = "super::scratch::as_pairs")]
    counts: BTreeMap<Key, (u64, u64)>,
    #[serde(skip)]
    ranks: BTreeSet<(Rank, Key)>,
    /// The newest messages, oldest first.
    recent: VecDeque<Key>,
    total: u64,
    /// The last step that ended with DO-NOT-KNOW.
    unknown_at: Option<u32>,
    alternations: u32,
}

/// Counted from the start, so that the first message has another one to be more frequent than.
const DUMMY: Key = (0, 0);

impl PartialEq for LoopDetector {
    /// The ranks are left out, because they follow from the counts.
    fn eq(&self, other: &Self) -> bool {
        (&self.counts, &self.recent, self.total, self.unknown_at, self.alternations)
            == (&other.counts, &other.recent, other.total, other.unknown_at, other.alternations)
    }
}

impl Default for LoopDetector {
    fn default() -> Self {
        let mut circles = Self {
            counts: BTreeMap::new(),
            ranks: BTreeSet::new(),
            recent: VecDeque::new(),
            total: 0,
            unknown_at: None,
            alternations: 0,
        };
        circles.count(DUMMY);
        circles
    }
}

impl LoopDetector {
    /// Counts the pending message after a step that ended with an answer.
    pub(super) fn saw(&mut self, message: &Message, rules: &LoopRules) {
        if rules.cycle_len == 0 {
            return;
        }
        let key = key(message);
        self.count(key);
        self.recent.push_back(key);
        // `is_cycle` looks back at most this far.
        let most = usize::try_from(u64::from(rules.cycle_len) * u64::from(rules.wait))
            .unwrap_or(usize::MAX);
        while self.recent.len() > most {
            self.recent.pop_front();
        }
    }

    /// Counts the answer of a step before it is judged (L-096).
    pub(super) fn answered(&mut self, message: &Message, step: u32) {
        if message.text().contains(DO_NOT_KNOW) {
            let two_ago = step.checked_sub(2).is_some_and(|ago| self.unknown_at == Some(ago));
            self.alternations = if two_ago { self.alternations + 1 } else { 0 };
            self.unknown_at = Some(step);
        }
    }

    /// Returns how the task loops after this number of steps, if it does.
    pub(super) fn loops(&mut self, steps: u32, rules: &LoopRules) -> Option<&'static str> {
        let is_due = rules.cycle_len > 0 && steps.is_multiple_of(rules.cycle_len);
        if is_due && self.is_cycle(rules) {
            return Some("the same messages come again and again");
        }
        (rules.alternation && self.alternations > rules.wait)
            .then_some("every other answer is DO-NOT-KNOW")
    }

    /// Rebuilds the ranks after deserialization; they are not stored.
    fn rank(&mut self) {
        if self.ranks.len() != self.counts.len() {
            self.ranks = self
                .counts
                .iter()
                .map(|(key, (count, first))| ((Reverse(*count), *first), *key))
                .collect();
        }
    }

    fn count(&mut self, key: Key) {
        self.rank();
        self.total += 1;
        let next = self.counts.len() as u64;
        let (count, first) = self.counts.entry(key).or_insert((0, next));
        // The set is ordered by count, so the entry has to move.
        self.ranks.remove(&((Reverse(*count), *first), key));
        *count += 1;
        self.ranks.insert(((Reverse(*count), *first), key));
    }

    /// Returns whether the most frequent messages dominate, and are the only recent ones (L-097).
    fn is_cycle(&mut self, rules: &LoopRules) -> bool {
        self.rank();
        if self.total < u64::from(rules.wait) * u64::from(rules.cycle_len) {
            return false;
        }
        let most = rules.cycle_len as usize + 1;
        let common: Vec<(u64, Key)> =
            self.ranks.iter().take(most).map(|((Reverse(count), _), key)| (*count, *key)).collect();
        let dominates = |pair: &[(u64, Key)]| {
            let [(count, _), (next, _)] = pair else { return false };
            #[allow(clippy::cast_precision_loss, reason = "nobody counts to 2^52 messages")]
            let ratio = *count as f64 / *next as f64;
            ratio > rules.dominance && count - next > u64::from(rules.wait)
        };
        let last = common.windows(2).rposition(dominates);
        let dominant = match last {
            Some(last) => last + 1,
            None if common.len() < most => common.len(),
            None => return false,
        };
        let lookback = dominant.saturating_mul(rules.wait as usize);
        let recent: BTreeSet<Key> = self.recent.iter().rev().take(lookback).copied().collect();
        recent == common.iter().take(dominant).map(|(_, key)| *key).collect()
    }
}

/// Returns the hash of a message: sender, recipient, names of its calls, and text (L-008).
fn key(message: &Message) -> Key {
    let mut hash = MessageHasher::default();
    hash.text(message.sender.as_str());
    hash.text(&message.sender_name);
    hash.text(message.recipient.as_deref().unwrap_or_default());
    message.tool_calls.iter().for_each(|call| hash.text(&call.name));
    hash.text(message.text());
    // Results are not part of the text, but they distinguish messages.
    message.tool_results.iter().for_each(|result| hash.text(&result.content));
    (hash.one, hash.other)
}

/// Two hashes of 64 bits, eight bytes at a time. They are equal on every machine. Resistance to
/// deliberate collisions is not needed here.
#[derive(Default)]
struct MessageHasher {
    one: u64,
    other: u64,
}

impl MessageHasher {
    /// Adds a text with its length, so that two texts do not equal one.
    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn word(&mut self, word: u64) {
        self.one = (self.one.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        self.other = (self.other.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::message::Entity;

    fn circles(texts: &[&str], rules: &LoopRules) -> Option<u32> {
        let mut circles = LoopDetector::default();
        for (step, text) in texts.iter().enumerate() {
            let mut message = Message::new(step as u64, Entity::Llm, "a");
            message.content = Some((*text).to_owned());
            circles.answered(&message, step as u32);
            circles.saw(&message, rules);
            let read_back =
                serde_json::from_str(&serde_json::to_string(&circles).unwrap()).unwrap();
            circles = read_back;
            if circles.loops(step as u32 + 1, rules).is_some() {
                return Some(step as u32 + 1);
            }
        }
        None
    }

    #[test]
    fn a_cycle_is_found_once_it_came_round_often_enough_and_no_sooner() {
        let rules = LoopRules { cycle_len: 4, ..LoopRules::default() };
        let cycle: Vec<&str> = ["a", "b", "c"].into_iter().cycle().take(100).collect();
        let different: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let different: Vec<&str> = different.iter().map(String::as_str).collect();
        let led_to: Vec<&str> =
            different.iter().take(7).copied().chain(cycle.iter().copied()).collect();
        assert_eq!(circles(&cycle, &rules), Some(24));
        assert_eq!(circles(&different, &rules), None);
        assert_eq!(circles(&led_to, &rules), Some(28));
        assert_eq!(circles(&cycle, &LoopRules { cycle_len: 0, ..rules }), None);
        assert_eq!(
            circles(&cycle, &LoopRules { cycle_len: 2, ..rules }),
            None,
            "the cycle is longer than is looked for"
        );
    }

    #[test]
    fn answers_that_nobody_knows_anything_are_a_loop_unless_that_is_switched_off() {
        let texts: Vec<String> = (0..40)
            .map(|n| if n % 2 == 0 { n.to_string() } else { "DO-NOT-KNOW".to_owned() })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let rules = LoopRules { cycle_len: 0, wait: 2, ..LoopRules::default() };
        assert_eq!(circles(&texts, &rules), Some(8));
        assert_eq!(circles(&texts, &LoopRules { alternation: false, ..rules }), None);
    }
}
