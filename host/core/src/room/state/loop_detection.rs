//! Loop detection: finds a task that cycles through the same few messages, or alternates with
//! DO-NOT-KNOW answers (L-062, L-096, L-097). The cost of a message does not depend on how many
//! came before it, and neither does the memory, past a fixed number of distinct messages.
//! `termination::done` ends such a task. `stuck_detection` watches the acts of one agent instead.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::setup::LoopRules;
use crate::types::message::{DO_NOT_KNOW, Message};

/// A message's rank by frequency, the most frequent first, then by first appearance.
type Rank = (Reverse<u64>, u64);
/// The hash of a message.
type Key = (u64, u64);

/// Distinct messages that are counted. The count of the one that was not seen for the longest time
/// is dropped first; if that message comes again, it counts as new. A run ends after 2 000 steps
/// without its user, so the messages of an unattended agent are all counted.
const COUNTED_MAX: usize = 10_000;

/// How often a message was seen, and where. Places are in order of appearance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct MessageCount {
    count: u64,
    /// The place of its first appearance among the distinct messages.
    appeared: u64,
    /// The place of its last appearance among all messages.
    last: u64,
}

impl MessageCount {
    fn rank(self) -> Rank {
        (Reverse(self.count), self.appeared)
    }
}

/// The messages of a task and their counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::room) struct LoopDetector {
    #[serde(with = "super::as_pairs")]
    counts: BTreeMap<Key, MessageCount>,
    #[serde(skip)]
    ranks: BTreeSet<(Rank, Key)>,
    /// Messages by their last appearance, [`DUMMY`] left out.
    #[serde(skip)]
    by_last: BTreeMap<u64, Key>,
    /// Number of distinct messages, dropped ones included.
    distinct: u64,
    total: u64,
    /// The last step that ended with DO-NOT-KNOW.
    unknown_at: Option<u32>,
    alternations: u32,
}

/// Counted from the start, so that the first message has another one to be more frequent than.
const DUMMY: Key = (0, 0);

impl PartialEq for LoopDetector {
    /// The indexes are left out, because they follow from the counts.
    fn eq(&self, other: &Self) -> bool {
        (&self.counts, self.distinct, self.total, self.unknown_at, self.alternations)
            == (&other.counts, other.distinct, other.total, other.unknown_at, other.alternations)
    }
}

impl Default for LoopDetector {
    fn default() -> Self {
        let mut circles = Self {
            counts: BTreeMap::new(),
            ranks: BTreeSet::new(),
            by_last: BTreeMap::new(),
            distinct: 0,
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
    pub(in crate::room) fn saw(&mut self, message: &Message, rules: &LoopRules) {
        if rules.cycle_len == 0 {
            return;
        }
        self.count(key(message));
    }

    /// Counts the answer of a step before it is judged (L-096).
    pub(in crate::room) fn answered(&mut self, message: &Message, step: u32) {
        if message.text().contains(DO_NOT_KNOW) {
            let two_ago = step.checked_sub(2).is_some_and(|ago| self.unknown_at == Some(ago));
            self.alternations = if two_ago { self.alternations + 1 } else { 0 };
            self.unknown_at = Some(step);
        }
    }

    /// Returns how the task loops after this number of steps, if it does.
    pub(in crate::room) fn loops(&mut self, steps: u32, rules: &LoopRules) -> Option<&'static str> {
        let is_due = rules.cycle_len > 0 && steps.is_multiple_of(rules.cycle_len);
        if is_due && self.detect_cycle(rules) {
            return Some("the same messages come again and again");
        }
        (rules.alternation && self.alternations > rules.wait)
            .then_some("every other answer is DO-NOT-KNOW")
    }

    /// Rebuilds the indexes after deserialization; they are not stored.
    fn index(&mut self) {
        if self.ranks.len() != self.counts.len() {
            self.ranks = self.counts.iter().map(|(key, seen)| (seen.rank(), *key)).collect();
            let seen = self.counts.iter().filter(|(key, _)| **key != DUMMY);
            self.by_last = seen.map(|(key, seen)| (seen.last, *key)).collect();
        }
    }

    fn count(&mut self, key: Key) {
        self.index();
        self.total += 1;
        let is_new = !self.counts.contains_key(&key);
        let new = MessageCount { count: 0, appeared: self.distinct, last: self.total };
        self.distinct += u64::from(is_new);
        let seen = self.counts.entry(key).or_insert(new);
        // The indexes are ordered by what changes, so the entry has to move.
        self.ranks.remove(&(seen.rank(), key));
        self.by_last.remove(&seen.last);
        (seen.count, seen.last) = (seen.count + 1, self.total);
        self.ranks.insert((seen.rank(), key));
        if key != DUMMY {
            self.by_last.insert(seen.last, key);
        }
        if self.counts.len() > COUNTED_MAX
            && let Some((_, oldest)) = self.by_last.pop_first()
            && let Some(seen) = self.counts.remove(&oldest)
        {
            self.ranks.remove(&(seen.rank(), oldest));
        }
    }

    /// Whether the most frequent messages dominate, and are the only recent ones (L-097).
    fn detect_cycle(&mut self, rules: &LoopRules) -> bool {
        self.index();
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
            // Dropped messages are distinct ones too, so `common` may be shorter than it was.
            None if self.distinct <= u64::from(rules.cycle_len) => common.len(),
            None => return false,
        };
        let lookback = (dominant as u64).saturating_mul(u64::from(rules.wait));
        let since = self.total.saturating_sub(lookback);
        // Keys are unique on both sides, and few.
        let recent = || self.by_last.range(since + 1..).map(|(_, key)| key).take(most);
        let dominates = |key: &Key| common.iter().take(dominant).any(|(_, common)| common == key);
        recent().count() == dominant && recent().all(dominates)
    }
}

/// The hash of a message: sender, recipient, names of its calls, and text (L-008).
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
    use crate::types::message::Role;

    fn circles(texts: &[&str], rules: &LoopRules) -> Option<u32> {
        let mut circles = LoopDetector::default();
        for (step, text) in texts.iter().enumerate() {
            let mut message = Message::new(step as u64, Role::Llm, "a");
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

    /// The rule as the reference states it, with every message counted and stored.
    fn reference(messages: &[Key], rules: &LoopRules) -> bool {
        let (wait, cycle_len) = (rules.wait as usize, rules.cycle_len as usize);
        let mut counts: Vec<(Key, u64)> = vec![(DUMMY, 1)];
        for key in messages {
            match counts.iter_mut().find(|(of, _)| of == key) {
                Some((_, count)) => *count += 1,
                None => counts.push((*key, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts.truncate(cycle_len + 1);
        let dominates = |pair: &[(Key, u64)]| {
            let (count, next) = (pair[0].1, pair[1].1);
            count as f64 > rules.dominance * next as f64 && count - next > wait as u64
        };
        let last = match counts.windows(2).rposition(dominates) {
            Some(last) => last,
            None if counts.len() <= cycle_len => counts.len() - 1,
            None => return false,
        };
        let recent = &messages[messages.len().saturating_sub(wait * (last + 1))..];
        messages.len() + 1 >= wait * cycle_len
            && recent.iter().collect::<BTreeSet<_>>()
                == counts.iter().take(last + 1).map(|(key, _)| key).collect()
    }

    #[test]
    fn the_result_is_that_of_the_reference_rule() {
        let mut random = 1_u64;
        let mut found = 0;
        for case in 0..600 {
            let rules =
                LoopRules { cycle_len: 1 + case % 5, wait: 1 + case % 3, ..LoopRules::DEFAULT };
            let (mut circles, mut messages) = (LoopDetector::default(), Vec::new());
            for place in 0..60 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // A few messages among many others at first, then among ever fewer.
                let others =
                    if place < u64::from(case) % 40 { 20 } else { 1 + u64::from(case) % 6 };
                let key = (1 + (random >> 33) % others, 0);
                messages.push(key);
                circles.count(key);
                let is_cycle = circles.detect_cycle(&rules);
                assert_eq!(is_cycle, reference(&messages, &rules), "{rules:?}: {messages:?}");
                found += u32::from(is_cycle);
            }
        }
        assert!(found > 1_000, "{found} loops");
    }

    #[test]
    fn the_memory_is_bounded_and_a_loop_is_found_after_any_number_of_messages() {
        let rules = LoopRules::default();
        let mut circles = LoopDetector::default();
        let count = |circles: &mut LoopDetector, number: u64| {
            circles.count((number, 1));
            circles.detect_cycle(&rules)
        };
        for number in 0..3 * COUNTED_MAX as u64 {
            assert!(!count(&mut circles, number), "no two are equal");
        }
        assert_eq!(circles.counts.len(), COUNTED_MAX);
        assert_eq!(circles.ranks.len(), COUNTED_MAX);
        assert_eq!(circles.by_last.len(), COUNTED_MAX - 1, "the dummy is never dropped");
        assert!(circles.counts.contains_key(&DUMMY));
        let text = serde_json::to_string(&circles).unwrap();
        let mut read_back: LoopDetector = serde_json::from_str(&text).unwrap();
        for circles in [&mut circles, &mut read_back] {
            // Three in turn, until each was seen more than `wait` times more than any other.
            let found = (0..100).position(|number| count(circles, number % 3));
            assert_eq!(found, Some(20));
        }
        assert_eq!(circles, read_back);
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
