//! Shared logic of the stock condensers: the places where a history may be cut, and the entries
//! that may go. Pure but for `read`, so that four plugins share it and its tests need no host.

use std::collections::BTreeMap;
use std::ops::Range;

use conclave_sdk::condenser::{Condensation, Reason};
use conclave_sdk::{Message, Role, View};

/// The share of entries, in percent, that a condensation must remove to be worth the loss of the
/// model's cache (O-125).
const LEAST_PROGRESS: usize = 10;

/// The speaker of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The host itself, such as a system message or a notice.
    System,
    /// A user or a caller.
    User,
    /// The agent.
    Agent,
    /// The host on behalf of the agent: results of calls, observations.
    Results,
}

/// An entry of a history, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The speaker.
    pub kind: EntryKind,
    /// The id and name of each call that it makes.
    pub calls: Vec<(String, String)>,
    /// The ids of the calls that it answers.
    pub results: Vec<String>,
    /// Characters of its text, including its results.
    pub chars: usize,
}

impl From<&Message> for Entry {
    fn from(message: &Message) -> Self {
        let kind = match message.sender {
            _ if !message.tool_results.is_empty() => EntryKind::Results,
            Role::Llm => EntryKind::Agent,
            Role::Agent => EntryKind::Results,
            Role::User => EntryKind::User,
            Role::System => EntryKind::System,
        };
        let told =
            message.tool_results.iter().map(|result| result.content.chars().count()).sum::<usize>();
        Self {
            kind,
            calls: message
                .tool_calls
                .iter()
                .map(|call| (call.id.clone(), call.name.clone()))
                .collect(),
            results: message.tool_results.iter().map(|result| result.call_id.clone()).collect(),
            chars: told.max(message.content.chars().count()),
        }
    }
}

/// Whether entries must go whatever the settings are: a prompt did not fit, or the agent asked for
/// it.
pub fn is_needed(why: Reason) -> bool {
    why != Reason::Size
}

/// A condensation that leaves out these entries.
pub fn forgetting(gone: impl IntoIterator<Item = Range<usize>>) -> Condensation {
    gone.into_iter().fold(Condensation::nothing(), |all, range| {
        all.forget(range.start as u64..range.end as u64)
    })
}

/// A history, with the places where it must not be cut.
#[derive(Debug)]
pub struct History {
    entries: Vec<Entry>,
    /// For each place, whether a call is before it and its result behind it.
    within: Vec<bool>,
}

impl History {
    /// Reads the agent's whole history, without its texts.
    pub fn read(view: &View) -> Self {
        Self::new(view.history().map(|message| Entry::from(&message)).collect())
    }

    /// Creates a history, and finds the calls whose results are in later entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        let mut within = vec![false; entries.len() + 1];
        let mut called: BTreeMap<&str, usize> = BTreeMap::new();
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            for caller in entry.results.iter().filter_map(|id| called.get(id.as_str())) {
                last.insert(*caller, index);
            }
            // Ids may repeat; a result belongs to the latest call.
            called.extend(entry.calls.iter().map(|(id, _)| (id.as_str(), index)));
        }
        let mut reach = 0;
        for (place, flag) in within.iter_mut().enumerate() {
            *flag = place <= reach && place > 0;
            reach = reach.max(last.get(&place).copied().unwrap_or(0));
        }
        Self { entries, within }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first place from `place` on that separates no call from its result.
    pub fn cut_from(&self, place: usize) -> usize {
        (place..self.len()).find(|place| !self.within[*place]).unwrap_or(self.len())
    }

    /// The last place up to `place` that separates no call from its result.
    pub fn cut_until(&self, place: usize) -> usize {
        (0..=place.min(self.len())).rev().find(|place| !self.within[*place]).unwrap_or(0)
    }

    /// All entries but the first and the newest ones, with calls and their results together. `None`
    /// if nothing is left to go.
    pub fn between(&self, first: usize, newest: usize) -> Option<Range<usize>> {
        let start = self.cut_from(first.min(self.len()));
        let end = self.cut_until(self.len().saturating_sub(newest));
        (start < end).then_some(start..end)
    }

    /// The entries that go if the first `first` and at most `newest` stay, half of all by default
    /// (O-125). If something must go and the settings would keep everything, half of the
    /// unprotected entries go.
    pub fn recent(
        &self,
        first: usize,
        newest: Option<usize>,
        needed: bool,
    ) -> Option<Range<usize>> {
        // The newest entry is the message that waits for an answer.
        let usual = newest.unwrap_or_else(|| (self.len() / 2).saturating_sub(first)).max(1);
        if let Some(range) = self.between(first, usual) {
            return Some(range);
        }
        let first = first.min(self.len() / 2);
        if needed { self.between(first, (self.len() - first).div_ceil(2)) } else { None }
    }

    /// Whether removing this many entries is worth it.
    pub fn is_progress(&self, gone: usize) -> bool {
        gone > 0 && gone * 100 >= self.len() * LEAST_PROGRESS
    }

    /// All entries but system messages at the start, the first user message with its recalled
    /// memories, and the newest half (O-124). The result of a call that goes is removed too.
    pub fn window(&self) -> Vec<Range<usize>> {
        let mut kept = vec![false; self.len()];
        let heads = self.entries.iter().take_while(|entry| entry.kind == EntryKind::System).count();
        kept[..heads].fill(true);
        if let Some(asked) = self.entries.iter().position(|entry| entry.kind == EntryKind::User) {
            kept[asked] = true;
            kept[self.recalled(asked + 1)].fill(true);
        }
        let half = self.len() - self.len() / 2;
        let newest = match self.cut_from(half) {
            end if end == self.len() => self.cut_until(half),
            cut => cut,
        };
        kept[newest..].fill(true);
        gaps(&kept)
    }

    /// The memory lookup at that place, with its result.
    fn recalled(&self, place: usize) -> Range<usize> {
        let recalls = |entry: &Entry| {
            !entry.calls.is_empty() && entry.calls.iter().all(|(_, name)| is_recall(name))
        };
        if self.entries.get(place).is_some_and(recalls) {
            place..self.cut_from(place + 1)
        } else {
            place..place
        }
    }

    /// The entries of results that are longer than `longer_than` and stand before the newest
    /// `window` entries.
    pub fn old_results(&self, window: usize, longer_than: usize) -> Vec<usize> {
        let old = self.entries.iter().take(self.len().saturating_sub(window)).enumerate();
        old.filter(|(_, entry)| entry.kind == EntryKind::Results && entry.chars > longer_than)
            .map(|(index, _)| index)
            .collect()
    }
}

fn is_recall(name: &str) -> bool {
    matches!(name.rsplit('.').next(), Some("recall" | "memories"))
}

fn gaps(kept: &[bool]) -> Vec<Range<usize>> {
    let mut gaps: Vec<Range<usize>> = Vec::new();
    for index in kept.iter().enumerate().filter(|(_, kept)| !**kept).map(|(index, _)| index) {
        match gaps.last_mut() {
            Some(gap) if gap.end == index => gap.end += 1,
            _ => gaps.push(index..index + 1),
        }
    }
    gaps
}

#[cfg(test)]
mod tests;
