//! Histories, read in pages, and only those messages that are iterated over: an agent's own, and, for
//! a tool with the `history` grant, the conversation of the task whose agent called it.
//!
//! ```no_run
//! use conclave_sdk::history;
//!
//! let call = history::calling_message()?;
//! let newest: Vec<String> = history::messages()?.rev().take(3).map(|message| message.content).collect();
//! # let _ = (call, newest);
//! # Ok::<(), conclave_sdk::Error>(())
//! ```

use std::collections::VecDeque;

use crate::Result;
use crate::bindings::imports::conclave::plugin::types::Message;
use crate::bindings::tool::conclave::plugin::history as import;
#[cfg(not(target_family = "wasm"))]
use crate::native::history as host;
#[cfg(target_family = "wasm")]
use import as host;

pub use import::HistoryError;

/// Returns the message that carried the call of this tool, with all of its calls.
pub fn calling_message() -> Result<Message, HistoryError> {
    host::calling_message()
}

/// Returns the inputs of the task whose agent called this tool: a JSON object.
pub fn inputs() -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&host::inputs()?)?)
}

/// Returns the newest messages of the agent's history that the grant shows, oldest first.
pub fn messages() -> Result<History<'static>, HistoryError> {
    let length = host::length()?;
    Ok(History::new(length.into(), |start, count| {
        // The refusal was checked by `length`; the window stays the same within a call.
        u32::try_from(start)
            .ok()
            .and_then(|start| host::messages(start, count).ok())
            .unwrap_or_default()
    }))
}

/// Messages per call to the host: enough to make the call's own cost negligible, few enough that
/// reading the last message does not copy a whole conversation.
const PAGE: u32 = 16;

/// An iterator over a history from either end. Reading ten messages costs ten, however long the
/// history is.
///
/// [`View::history`](crate::View::history) returns it.
pub struct History<'a> {
    fetch: Box<dyn Fn(u64, u32) -> Vec<Message> + 'a>,
    /// Indices not yet fetched.
    rest: std::ops::Range<u64>,
    front: VecDeque<Message>,
    back: VecDeque<Message>,
}

impl<'a> History<'a> {
    pub(crate) fn new(length: u64, fetch: impl Fn(u64, u32) -> Vec<Message> + 'a) -> Self {
        Self {
            fetch: Box::new(fetch),
            rest: 0..length,
            front: VecDeque::new(),
            back: VecDeque::new(),
        }
    }

    /// Skips the messages before index `start`, without reading them.
    #[must_use]
    pub fn starting_at(mut self, start: u64) -> Self {
        self.rest.start = start.clamp(self.rest.start, self.rest.end);
        self
    }

    fn fetch_front(&mut self) {
        let count = self.page();
        let messages = (self.fetch)(self.rest.start, count);
        // An empty page before the end means that the host has no more; without this check the loop
        // would never end.
        self.rest.start = if messages.is_empty() {
            self.rest.end
        } else {
            self.rest.start + messages.len() as u64
        };
        self.front.extend(messages);
    }

    /// Fetches a page from the end. The host may return fewer messages than requested, so the page
    /// is fetched until it is full.
    fn fetch_back(&mut self) {
        let start = self.rest.end - u64::from(self.page());
        let mut page = VecDeque::new();
        while start + (page.len() as u64) < self.rest.end {
            let next = start + page.len() as u64;
            let messages = (self.fetch)(next, u32::try_from(self.rest.end - next).unwrap_or(PAGE));
            if messages.is_empty() {
                break;
            }
            page.extend(messages);
        }
        self.rest.end = start;
        self.back = page;
    }

    fn page(&self) -> u32 {
        u32::try_from(self.rest.end - self.rest.start).map_or(PAGE, |remaining| remaining.min(PAGE))
    }
}

impl Iterator for History<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.front.is_empty() && !self.rest.is_empty() {
            self.fetch_front();
        }
        self.front.pop_front().or_else(|| self.back.pop_front())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let buffered = self.front.len() + self.back.len();
        (
            buffered,
            usize::try_from(self.rest.end - self.rest.start).ok().map(|rest| rest + buffered),
        )
    }
}

impl DoubleEndedIterator for History<'_> {
    fn next_back(&mut self) -> Option<Message> {
        if self.back.is_empty() && !self.rest.is_empty() {
            self.fetch_back();
        }
        self.back.pop_back().or_else(|| self.front.pop_back())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::History;
    use crate::Message;
    use crate::bindings::imports::conclave::plugin::types::Role;

    fn message(seq: u64) -> Message {
        Message {
            seq,
            sender: Role::User,
            sender_name: "you".into(),
            recipient: None,
            content: String::new(),
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            attachments: Vec::new(),
            labels: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Returns messages like a host that never returns more than five at once.
    fn stingy(start: u64, count: u32) -> Vec<Message> {
        (start..start + u64::from(count.min(5))).map(message).collect()
    }

    fn seqs(history: impl Iterator<Item = Message>) -> Vec<u64> {
        history.map(|message| message.seq).collect()
    }

    #[test]
    fn both_directions_give_every_message_once() {
        for length in [0, 1, 16, 17, 53] {
            let forward: Vec<_> = (0..length).collect();
            assert_eq!(seqs(History::new(length, stingy)), forward);
            assert_eq!(
                seqs(History::new(length, stingy).rev()),
                forward.into_iter().rev().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn the_two_ends_meet() {
        let mut history = History::new(40, stingy);
        let mut seen = Vec::new();
        while let Some(message) = history.next() {
            seen.push(message.seq);
            seen.extend(history.next_back().map(|message| message.seq));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_message_costs_one_page() {
        let read = Cell::new(0);
        let mut history = History::new(10_000, |start, count| {
            read.set(read.get() + count);
            (start..start + u64::from(count)).map(message).collect()
        });
        assert_eq!(history.next_back().map(|message| message.seq), Some(9_999));
        assert_eq!(read.get(), 16);
    }

    #[test]
    fn skipping_reads_nothing() {
        assert_eq!(seqs(History::new(20, stingy).starting_at(18)), [18, 19]);
    }

    #[test]
    fn a_host_that_gives_nothing_ends_the_history() {
        assert_eq!(seqs(History::new(20, |_, _| Vec::new())), [0; 0]);
        assert_eq!(seqs(History::new(20, |_, _| Vec::new()).rev()), [0; 0]);
    }
}
