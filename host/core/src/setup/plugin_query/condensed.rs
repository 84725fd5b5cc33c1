//! The host's check of a condenser's proposal (O-123, O-125). Calls stay with their results, no
//! words are attributed to a user, and the message to answer stays. Does not change the history.

use std::collections::{BTreeMap, BTreeSet};

use super::Condensation;
use crate::types::history::History;
use crate::types::message::{Label, Message, Role, ToolCall};

/// The limit of a summary in bytes.
pub const SUMMARY_MAX: usize = 64 << 10;
/// The replacement for a text that a condenser drops as a whole.
pub const LEFT_OUT: &str = "[left out]";
/// The mark for a cut inside a text.
const CUT: &str = "…";

/// The entries of a history that every condensation keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetainedEntries<'a> {
    /// The sequence number of the message to answer.
    pub pending: Option<u64>,
    /// Calls without a result so far.
    pub open_calls: &'a [ToolCall],
}

/// A checked condensation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condensed {
    /// Indices of the entries to drop.
    pub forget: BTreeSet<usize>,
    /// Shortened entries, with the indices of those that they replace.
    pub masked: Vec<(usize, Message)>,
    pub summary: Option<Summary>,
}

/// The text that replaces the dropped entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its index after the dropped entries are removed (O-123).
    pub place: usize,
    pub text: String,
    /// Whether a dropped entry came from outside; its summary then counts as untrusted too (L-172).
    pub is_untrusted: bool,
}

impl Condensed {
    /// Whether the condensation changes nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.forget.is_empty() && self.masked.is_empty()
    }
}

/// The error in a condensation, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCondensation {
    #[error(
        "it forgets the entries from {start} to {end}, and the history has {entries}: `start` < `end` ≤ {entries} is allowed"
    )]
    Span { start: u64, end: u64, entries: usize },
    #[error("it masks the entry {index}, and the history has {entries}, counted from 0")]
    Place { index: u64, entries: usize },
    #[error(
        "its text for the entry {index} has {bytes} bytes, and the entry itself {most}: a mask only shortens"
    )]
    Longer { index: u64, bytes: usize, most: usize },
    #[error(
        "its text for the entry {index} is neither {LEFT_OUT:?} nor the entry's own beginning or end with an {CUT:?}: a mask cuts, and says \
         nothing itself"
    )]
    OtherWords { index: u64 },
    #[error(
        "its text for the entry {index} begins in the middle of the host's words: they are cut at their end, so that a fence stays one"
    )]
    HostWords { index: u64 },
}

impl Condensation {
    /// Checks the proposal against the history that it is about.
    ///
    /// # Errors
    /// `BadCondensation` if it does not match this history, or adds text of its own; the history
    /// then stays as it is.
    pub fn held_against(
        &self,
        history: &History,
        retained: RetainedEntries<'_>,
    ) -> Result<Condensed, BadCondensation> {
        let entries = history.len();
        let place_of = |place: u64| usize::try_from(place).ok().filter(|place| *place <= entries);
        let mut forget_flags = vec![false; entries];
        for span in &self.forget {
            let bad = || BadCondensation::Span { start: span.start, end: span.end, entries };
            let (start, end) = place_of(span.start)
                .zip(place_of(span.end))
                .filter(|(start, end)| start < end)
                .ok_or_else(bad)?;
            forget_flags[start..end].fill(true);
        }
        let mut groups = Groups::of_history(history);
        let retained_places = places_kept(history, retained);
        // O-125: a call and its results are dropped together or not at all.
        let staying: BTreeSet<usize> =
            retained_places.iter().map(|place| groups.root(*place)).collect();
        let going: BTreeSet<usize> = (0..entries)
            .filter(|place| forget_flags[*place])
            .map(|place| groups.root(place))
            .collect();
        let goes = |root: usize| going.contains(&root) && !staying.contains(&root);
        let forget: BTreeSet<usize> =
            (0..entries).filter(|place| goes(groups.root(*place))).collect();
        let mut masked = BTreeMap::new();
        for mask in &self.mask {
            let place = place_of(mask.index).filter(|place| *place < entries);
            let place = place.ok_or(BadCondensation::Place { index: mask.index, entries })?;
            let Some(entry) = history.get(place) else { continue };
            let shorter = shortened(entry, mask.index, &mask.text)?;
            if !forget.contains(&place) && !retained_places.contains(&place) {
                masked.entry(place).or_insert(shorter);
            }
        }
        let is_untrusted = |place: &usize| {
            history.get(*place).is_some_and(|entry| entry.labels.contains(&Label::Untrusted))
        };
        let text = self.summary.as_deref().map(bounded).filter(|text| !text.trim().is_empty());
        let summary = text.zip(forget.first().copied()).map(|(text, place)| {
            let is_untrusted = forget.iter().any(is_untrusted);
            Summary { place, text, is_untrusted }
        });
        Ok(Condensed { forget, masked: masked.into_iter().collect(), summary })
    }
}

/// The entries that may be neither dropped nor masked: the newest, the user's newest, the message
/// to answer, calls without a result.
fn places_kept(history: &History, retained: RetainedEntries<'_>) -> BTreeSet<usize> {
    let newest = |is_it: &dyn Fn(&Message) -> bool| {
        (0..history.len()).rev().find(|place| history.get(*place).is_some_and(|entry| is_it(entry)))
    };
    let is_open = |call: &ToolCall| retained.open_calls.iter().any(|open| open.id == call.id);
    let with_open_calls =
        |entry: &Message| entry.sender == Role::Llm && entry.tool_calls.iter().any(is_open);
    let retained_places = [
        history.len().checked_sub(1),
        newest(&|entry| entry.sender == Role::User && entry.tool_results.is_empty()),
        retained.pending.and_then(|seq| newest(&|entry| entry.seq == seq)),
        newest(&with_open_calls),
    ];
    retained_places.into_iter().flatten().collect()
}

/// Returns the entry with this text in place of its own; its calls, and the ids of its results,
/// stay.
fn shortened(entry: &Message, index: u64, text: &str) -> Result<Message, BadCondensation> {
    let own: Vec<&str> = entry
        .content
        .iter()
        .chain(entry.tool_results.iter().map(|result| &result.content))
        .map(String::as_str)
        .collect();
    let most = own.iter().map(|own| own.len()).max().unwrap_or_default();
    if text.len() > most {
        return Err(BadCondensation::Longer { index, bytes: text.len(), most });
    }
    let shortens =
        |own: &str| own.len() >= text.len() && (text == LEFT_OUT || is_cut_of(text, own));
    if !own.iter().any(|own| shortens(own)) {
        return Err(BadCondensation::OtherWords { index });
    }
    // A fence in the text would lose its first lines and no longer mark its content as data.
    if is_of_host(entry) && text != LEFT_OUT && !text.ends_with(CUT) {
        return Err(BadCondensation::HostWords { index });
    }
    let mut shorter = entry.clone();
    shorter.content.iter_mut().filter(|own| shortens(own)).for_each(|own| text.clone_into(own));
    for result in shorter.tool_results.iter_mut().filter(|result| shortens(&result.content)) {
        text.clone_into(&mut result.content);
        result.value = None;
    }
    shorter.attachments.clear();
    shorter.value = None;
    Ok(shorter)
}

/// Whether `text` is the beginning and the end of `own` with a mark between, where either may be
/// empty.
fn is_cut_of(text: &str, own: &str) -> bool {
    let same = |(one, other): &(u8, u8)| one == other;
    let head = text.bytes().zip(own.bytes()).take_while(same).count();
    let tail = text.bytes().rev().zip(own.bytes().rev()).take_while(same).count();
    // The two together are no longer than `own`, because `text` is not.
    text.match_indices(CUT).any(|(at, _)| at <= head && text.len() - at - CUT.len() <= tail)
}

/// Whether a model reads the entry as the host's own words, which may hold a fence.
fn is_of_host(entry: &Message) -> bool {
    matches!(entry.sender, Role::Agent | Role::System)
        && entry.tool_results.is_empty()
        && !entry.labels.contains(&Label::Tool)
}

/// The text, cut to the limit if necessary.
fn bounded(text: &str) -> String {
    if text.len() <= SUMMARY_MAX {
        return text.to_owned();
    }
    format!("{}{CUT}", &text[..text.floor_char_boundary(SUMMARY_MAX - CUT.len())])
}

/// Groups of entries that belong together: a call and its results. Each entry has the place of an
/// earlier one of its group, or its own (a union-find forest).
struct Groups(Vec<usize>);

impl Groups {
    fn of_history(history: &History) -> Self {
        let mut groups = Self((0..history.len()).collect());
        // Ids are unique within one message only, so a result belongs to the newest message with
        // its id.
        let (mut newest_call, mut messages_with_work) = (BTreeMap::new(), BTreeMap::new());
        for (place, entry) in history.iter().enumerate() {
            for result in &entry.tool_results {
                if let Some(call) = newest_call.get(result.call_id.as_str()) {
                    groups.join(*call, place);
                }
            }
            if entry.sender == Role::Agent
                && let Some(request) =
                    entry.parent.and_then(|parent| messages_with_work.get(&parent))
            {
                // The host's answer to an action, or to a call that stands in a text.
                groups.join(*request, place);
            }
            if entry.sender == Role::Llm {
                newest_call.extend(entry.tool_calls.iter().map(|call| (call.id.as_str(), place)));
                if entry.has_work_for_host() || !entry.tools.is_empty() {
                    messages_with_work.insert(entry.seq, place);
                }
            }
        }
        groups
    }

    fn root(&mut self, place: usize) -> usize {
        let mut at = place;
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests;
