//! Results that were cut for an agent (L-120), and the tool `read_result`, by which it reads on. The
//! tool is offered once a result of the task was cut. It returns what the task's own tools have
//! answered, so it needs no grant; pages are as long as the limit that cut the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Dialogue;
use super::state::rounds::CallOutcome;
use crate::tool_calls::toolbox::{TaskTool, ToolTarget};
use crate::tool_calls::truncate;
use crate::types::host_tool::HostTool;
use crate::types::ids::FrameId;
use crate::types::message::{Label, ToolCall};

/// Bytes of the results that a task can read on in. Those of earlier messages are dropped first.
const HELD_MAX: usize = 4 << 20;
/// Bytes of a page.
const PAGE_MAX: usize = 64 << 10;

/// The results of a task that were cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CutResults {
    /// Number of results that were cut so far; the newest one has this number.
    count: u64,
    results: BTreeMap<u64, CutResult>,
}

/// A result before it was cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CutResult {
    text: Arc<str>,
    /// Number of the message with its call.
    seq: u64,
    /// Bytes of a page.
    page: usize,
    /// True if it derives from external text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    untrusted: bool,
}

/// The cut of a result.
pub(super) struct ResultCut<'a> {
    pub(super) tool: &'a str,
    /// Bytes that remain.
    pub(super) limit: usize,
    /// Number of the message with its call.
    pub(super) seq: u64,
    pub(super) untrusted: bool,
}

impl CutResults {
    pub(super) fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The bytes of the results.
    pub(super) fn weight(&self) -> usize {
        self.results.values().map(|result| result.text.len()).sum()
    }

    /// Drops the results; their numbers are not used again.
    pub(super) fn clear(&mut self) {
        self.results.clear();
    }

    /// Adds a result, and returns its number; `None` if there is no room for it.
    fn add(&mut self, result: CutResult) -> Option<u64> {
        let mut weight = self.weight();
        let fits = |weight: usize| weight + result.text.len() <= HELD_MAX;
        // The agent has yet to read the notices of this message's other results.
        let older: Vec<u64> = self
            .results
            .iter()
            .filter(|(_, older)| older.seq != result.seq)
            .map(|(number, _)| *number)
            .collect();
        for number in older {
            if fits(weight) {
                break;
            }
            weight -= self.results.remove(&number).map_or(0, |older| older.text.len());
        }
        if !fits(weight) {
            return None;
        }
        self.count += 1;
        self.results.insert(self.count, result);
        Some(self.count)
    }

    /// Returns a page and a line about its place.
    fn page(&self, number: u64, offset: usize) -> Result<(String, bool), String> {
        let Some(result) = self.results.get(&number) else {
            let known: Vec<String> = self.results.keys().map(u64::to_string).collect();
            return Err(match known.as_slice() {
                [] => format!("there is no cut result {number}; call its tool again"),
                known => format!("there is no cut result {number}; there are {}", known.join(", ")),
            });
        };
        let (text, length) = (&result.text, result.text.len());
        if offset >= length {
            return Err(format!("result {number} has {length} bytes, so none from {offset} on"));
        }
        let start = text.floor_char_boundary(offset);
        // A page has at least one character, or it would never end.
        let mut end = text.floor_char_boundary(start.saturating_add(result.page));
        if end == start {
            end = text.ceil_char_boundary(start + 1);
        }
        let place = format!("Bytes {start} to {end} of {length} of result {number}");
        let line = match end == length {
            true => format!("[{place}: its end.]"),
            false => format!("[{place}; {}]", reads_on(number, end)),
        };
        let page = text.get(start..end).unwrap_or_default();
        Ok((format!("{page}\n{line}"), result.untrusted))
    }
}

/// Returns how an agent reads on from an offset.
fn reads_on(number: u64, offset: usize) -> String {
    let tool = HostTool::ReadResult.as_str();
    format!("{tool} {{\"result\": {number}, \"offset\": {offset}}} reads on.")
}

impl Dialogue<'_> {
    /// Returns a tool's result, cut to the limit of the tool (L-120).
    pub(super) fn cut_result(
        &mut self,
        id: FrameId,
        tool: &str,
        content: String,
        untrusted: bool,
    ) -> String {
        let limit = self.frames.task_of(self.cx, id).and_then(|(frame, task)| {
            let tokens = self.histories.toolbox(self.cx, &frame.task).get(tool)?.result_tokens?;
            Some((tokens, task.bytes_per_token))
        });
        let Some((tokens, bytes)) = limit else { return content };
        let limit = tokens.saturating_mul(u64::from(bytes.max(1)));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if content.len() <= limit {
            return content;
        }
        let mut shortened = truncate::shortened(&content, tokens, bytes);
        let seq = self.frames.round(id).map_or(0, |round| round.message.seq);
        if let Some(hint) =
            self.hold_result(id, content, &ResultCut { tool, limit, seq, untrusted })
        {
            shortened = format!("{shortened}\n{hint}");
        }
        shortened
    }

    /// Holds a result that is being cut, and offers the tool that reads on in it. Returns the line
    /// for the agent; `None` if it cannot read on.
    pub(super) fn hold_result(
        &mut self,
        id: FrameId,
        text: String,
        cut: &ResultCut<'_>,
    ) -> Option<String> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        // A page says itself how to read on, so it is held no second time.
        if !task.rules().offers_cut_results || cut.tool == HostTool::ReadResult.as_str() {
            return None;
        }
        let task = frame.task.clone();
        let toolbox = self.histories.toolbox(self.cx, &task);
        let read_tool = TaskTool::of_host(HostTool::ReadResult);
        match toolbox.get(&read_tool.summary.name).map(|tool| &tool.target) {
            // The operator has given this name to another tool.
            Some(ToolTarget::Plugin { .. }) => return None,
            Some(ToolTarget::Host(_)) => {}
            None => {
                let offered = TaskTool { offered: true, handled: true, ..read_tool };
                let toolbox = Arc::new(toolbox.with([offered]));
                self.histories.memory(self.cx, &task).toolbox = Some(toolbox);
            }
        }
        let start = text.floor_char_boundary(cut.limit);
        let result = CutResult {
            text: text.into(),
            seq: cut.seq,
            page: cut.limit.clamp(1, PAGE_MAX),
            untrusted: cut.untrusted,
        };
        let number = self.histories.memory(self.cx, &task).cut_results.add(result)?;
        Some(format!("[{}]", reads_on(number, start)))
    }

    /// Answers a call of `read_result`.
    pub(super) fn read_result(&mut self, id: FrameId, call: &ToolCall) -> CallOutcome {
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
            return CallOutcome::default();
        };
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_u64);
        let number = argument("result").unwrap_or_default();
        let offset = usize::try_from(argument("offset").unwrap_or_default()).unwrap_or(usize::MAX);
        match self.histories.memory(self.cx, &task).cut_results.page(number, offset) {
            Ok((page, untrusted)) => {
                let mut message = self.frames.host_message(self.cx, id, page);
                message.labels.extend(untrusted.then_some(Label::Untrusted));
                CallOutcome { message: Some(Box::new(message)), is_error: false, is_result: true }
            }
            Err(text) => self.frames.error_outcome(self.cx, id, text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str, seq: u64, page: usize) -> CutResult {
        CutResult { text: text.into(), seq, page, untrusted: false }
    }

    #[test]
    fn pages_join_to_the_whole_at_any_size_of_page() {
        let text = "a€b𝄞cäöü".repeat(50);
        for page in [1, 2, 3, 7, 64, 10_000] {
            let mut results = CutResults::default();
            let number = results.add(result(&text, 1, page)).expect("there is room");
            let (mut joined, mut offset) = (String::new(), 0);
            while offset < text.len() {
                let (page_text, _) = results.page(number, offset).expect("a page");
                let (part, line) = page_text.rsplit_once('\n').expect("a line about it");
                assert!(!part.is_empty(), "{page}: {line}");
                assert_eq!(line.contains("its end"), offset + part.len() == text.len(), "{line}");
                joined += part;
                offset += part.len();
            }
            assert_eq!(joined, text, "pages of {page}");
            assert!(results.page(number, offset).is_err_and(|text| text.contains("bytes")));
        }
    }

    #[test]
    fn results_of_earlier_messages_make_room_and_those_of_the_same_message_do_not() {
        let mut results = CutResults::default();
        let half = "x".repeat(HELD_MAX / 2);
        let [first, second] = [1, 2].map(|seq| results.add(result(&half, seq, 9)));
        assert_eq!((first, second), (Some(1), Some(2)));
        assert_eq!(results.add(result(&half, 3, 9)), Some(3), "the oldest is dropped");
        assert!(results.page(1, 0).is_err_and(|text| text.contains("there are 2, 3")));
        assert_eq!(results.add(result(&half, 3, 9)), Some(4), "and the next one");
        assert_eq!(results.add(result(&half, 3, 9)), None);
        assert!(results.page(3, 0).is_ok() && results.page(4, 0).is_ok());
        assert!(results.weight() <= HELD_MAX);
    }
}
