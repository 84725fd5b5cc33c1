//! The state of a task's agent between activations: its history, open native calls, its current
//! toolbox, a text that waits for a recipient. Links between messages are here too, so that a
//! rewind drops what followed from them.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condensing::Condensing;
use super::context_window::{Lost, tokens_of};
use super::cut_results::CutResults;
use super::knowledge::newest_said;
use super::prompts::SystemTexts;
use super::state::responder::Responder;
use super::{Dialogue, Room, RoomContext};
use crate::setup::TaskRules;
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::tool_calls::truncate::BYTES_PER_TOKEN;
use crate::types::history::History;
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, Role, ToolCall, ToolResult};

/// The state of a task's agent between activations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentHistory {
    history: History,
    /// Tokens of the whole history. A running total, so that no step has to count.
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    bytes_per_token: u32,
    /// Bytes of the whole history; also a running total.
    #[serde(default)]
    weight: u64,
    /// Native calls of its last answer without a result (L-122).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) open_calls: Vec<ToolCall>,
    /// A text that waits for a recipient, and its labels (L-148); used by this agent only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stash: Option<(String, Vec<Label>)>,
    /// The toolbox, once it differs from the setup's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) toolbox: Option<Arc<Toolbox>>,
    /// True if the last responder called was the user (L-052); runs do not reset it (L-050c).
    #[serde(default)]
    pub(super) human_tried: bool,
    /// The message that was pending when its last activation ended, if it outlives activations or
    /// the run ended with the turns that were requested (L-051a).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left_pending: Option<Arc<Message>>,
    /// The responder of `left_pending`, if the next run continues with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left_by: Option<Responder>,
    #[serde(default, skip_serializing_if = "Condensing::is_idle")]
    pub(super) condensing: Condensing,
    /// Results that were cut, which the agent may read on in.
    #[serde(default, skip_serializing_if = "CutResults::is_new")]
    pub(super) cut_results: CutResults,
    /// Background commands of tools that were under way when the agent last heard of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) commands: BTreeSet<(PluginName, i64)>,
}

impl AgentHistory {
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// The tokens of the whole history.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The bytes of the whole history.
    pub(super) fn weight(&self) -> u64 {
        self.weight.saturating_add(self.cut_results.weight() as u64)
    }

    /// Appends an entry, and returns its place.
    pub(super) fn push(&mut self, message: &Arc<Message>) -> usize {
        let before = self.history.len();
        self.history.push(message);
        if self.history.len() > before {
            self.tokens = self.tokens.saturating_add(tokens_of(message, self.bytes_per_token));
            self.weight = self.weight.saturating_add(weight_of(message));
        }
        self.history.len().saturating_sub(1)
    }

    /// Replaces the entry at a place; does nothing past the end.
    pub(super) fn set(&mut self, place: usize, message: Arc<Message>) {
        let Some(before) = self.history.get(place) else { return };
        let (before, weight) = (tokens_of(before, self.bytes_per_token), weight_of(before));
        self.weight = self.weight.saturating_sub(weight).saturating_add(weight_of(&message));
        self.tokens = self
            .tokens
            .saturating_sub(before)
            .saturating_add(tokens_of(&message, self.bytes_per_token));
        self.history.set(place, message);
    }

    /// Removes the entries from `start` on, and returns them, oldest first.
    pub(super) fn split_off(&mut self, start: usize) -> Vec<Arc<Message>> {
        let dropped = self.history.split_off(start);
        let tokens = dropped.iter().fold(0_u64, |sum, message| {
            sum.saturating_add(tokens_of(message, self.bytes_per_token))
        });
        let weight =
            dropped.iter().fold(0_u64, |sum, message| sum.saturating_add(weight_of(message)));
        let is_empty = self.history.is_empty();
        self.tokens = if is_empty { 0 } else { self.tokens.saturating_sub(tokens) };
        self.weight = if is_empty { 0 } else { self.weight.saturating_sub(weight) };
        dropped
    }

    /// Recounts the totals with this number of bytes per token.
    fn count(&mut self, bytes_per_token: u32) {
        self.bytes_per_token = bytes_per_token;
        self.tokens = self
            .history
            .iter()
            .fold(0_u64, |sum, message| sum.saturating_add(tokens_of(message, bytes_per_token)));
        self.weight =
            self.history.iter().fold(0_u64, |sum, message| sum.saturating_add(weight_of(message)));
    }
}

/// Bytes that any message costs. A constant rather than the size of a type, so that the end of a
/// run does not depend on the compiler.
const MESSAGE: u64 = 256;

/// The bytes that it costs to hold a message.
fn weight_of(message: &Message) -> u64 {
    (message.weight() as u64).saturating_add(MESSAGE)
}

/// The links of a message to others (L-002).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) parent: Option<u64>,
    pub(super) child: Option<u64>,
    /// Its place in an agent's history.
    pub(super) place: Option<(TaskName, usize)>,
    pub(super) message: Option<Arc<Message>>,
}

impl Room {
    /// The history of a task's agent; empty if it has none.
    #[must_use]
    pub fn history(&self, task: &TaskName) -> History {
        self.histories.history(task)
    }
}

impl Histories {
    /// The history of a task's agent; empty if it has none.
    pub(super) fn history(&self, task: &TaskName) -> History {
        self.memories.get(task).map(|memory| memory.history.clone()).unwrap_or_default()
    }

    pub(super) fn memory<'r>(
        &'r mut self,
        cx: &'r RoomContext,
        task: &TaskName,
    ) -> &'r mut AgentHistory {
        if !self.memories.contains_key(task) {
            let bytes_per_token = bytes_per_token(cx, task);
            let memory = AgentHistory { bytes_per_token, ..AgentHistory::default() };
            self.memories.insert(task.clone(), Box::new(memory));
        }
        self.memories.get_mut(task).expect("it was put in above")
    }

    /// Drops the histories of tasks that the current setup does not have: no agent reads them.
    pub(super) fn forget_removed_tasks(&mut self, cx: &RoomContext) {
        let is_removed = |task: &TaskName| !cx.setup.tasks.contains_key(task);
        self.memories.retain(|task, _| !is_removed(task));
        // Their links stay until the next cleanup, because other histories may follow from them.
        for link in self.links.values_mut() {
            link.place.take_if(|(task, _)| is_removed(task));
        }
        // A cache, which is filled again.
        self.texts = SystemTexts::default();
    }

    /// Recounts histories of earlier runs by the current setup.
    pub(super) fn count_histories(&mut self, cx: &RoomContext) {
        let tasks: Vec<(TaskName, u32)> =
            self.memories.keys().map(|task| (task.clone(), bytes_per_token(cx, task))).collect();
        for (task, bytes_per_token) in tasks {
            self.memory(cx, &task).count(bytes_per_token);
        }
    }

    /// The task's current tools.
    pub(super) fn toolbox(&self, cx: &RoomContext, task: &TaskName) -> Arc<Toolbox> {
        let now = self.memories.get(task).and_then(|memory| memory.toolbox.clone());
        now.or_else(|| cx.setup.tasks.get(task).map(|setup| Arc::clone(&setup.toolbox)))
            .unwrap_or_default()
    }

    /// Offers a host tool to a task's agent from here on.
    pub(super) fn offer(
        &mut self,
        cx: &RoomContext,
        task: &TaskName,
        host_tool: HostTool,
        set_input: impl FnOnce(&mut Value),
    ) {
        let toolbox = self.toolbox(cx, task);
        if let Some(mut tool) =
            toolbox.host_tool(host_tool).filter(|tool| !(tool.offered && tool.handled)).cloned()
        {
            (tool.offered, tool.handled) = (true, true);
            set_input(&mut tool.summary.input_schema);
            self.memory(cx, task).toolbox = Some(Arc::new(toolbox.with([tool])));
        }
    }

    /// Appends the operator's first entry to an empty history, if there is one (L-024).
    pub(super) fn begin_history(
        &mut self,
        cx: &mut RoomContext,
        task: &TaskName,
        user_message: Option<String>,
    ) {
        if let Some(text) = user_message.filter(|text| !text.is_empty())
            && self.memory(cx, task).history.is_empty()
        {
            let mut first = cx.stamp(Role::User, task.as_str());
            first.content = Some(text);
            self.memory(cx, task).push(&Arc::new(first));
        }
    }

    /// Returns the link of a message, creating it if needed.
    pub(super) fn link(&mut self, message: &Arc<Message>) -> &mut Link {
        let link = self.links.entry(message.seq).or_default();
        link.message.get_or_insert_with(|| Arc::clone(message));
        if link.parent.is_none() {
            link.parent = message.parent;
        }
        link
    }

    pub(super) fn message(&self, seq: u64) -> Option<&Arc<Message>> {
        self.links.get(&seq)?.message.as_ref()
    }

    /// Drops the links of a message and of all that followed from it.
    fn unlink(&mut self, seq: u64) {
        let mut next = Some(seq);
        while let Some(link) = next.and_then(|seq| self.links.remove(&seq)) {
            next = link.child;
        }
    }

    /// Drops a history's messages from `start` on (L-181).
    pub(super) fn clear_history(&mut self, task: &TaskName, start: usize) {
        let Some(memory) = self.memories.get_mut(task) else { return };
        let dropped = memory.split_off(start);
        if start == 0 {
            memory.cut_results.clear();
        }
        // The cut may have removed calls or their results.
        memory.open_calls = open_calls(&memory.history);
        dropped.iter().for_each(|message| self.unlink(message.seq));
    }

    /// Forgets what a run of so many turns left pending, except for the task that goes on with it.
    pub(super) fn forget_left_pending(&mut self, goes_on: Option<&TaskName>) {
        let others = self.memories.iter_mut().filter(|(task, _)| Some(*task) != goes_on);
        for memory in others.map(|(_, memory)| memory).filter(|memory| memory.left_by.is_some()) {
            (memory.left_pending, memory.left_by) = (None, None);
        }
    }

    /// Drops a history's messages from `start` on, and those in other histories that followed from
    /// the first one (L-150). Returns the message that the first one answered.
    pub(super) fn prune(&mut self, task: &TaskName, start: usize) -> Option<u64> {
        let first = self.memories.get(task)?.history.get(start)?.seq;
        let parent = self
            .links
            .get(&first)
            .and_then(|link| link.parent)
            .filter(|parent| self.links.contains_key(parent));
        let mut next = self.links.get(&first).and_then(|link| link.child);
        // Links only lead forward, but a journal from another source may hold a cycle.
        let mut remaining = self.links.len();
        while let Some(link) = next.and_then(|seq| self.links.get(&seq)).filter(|_| remaining > 0) {
            remaining -= 1;
            next = link.child;
            if let Some((of, place)) = link.place.clone() {
                self.clear_history(&of, place);
            }
        }
        self.unlink(first);
        self.clear_history(task, start);
        parent
    }

    /// Clears the histories of a task and of its sub-tasks (L-050b).
    pub(super) fn reset(&mut self, cx: &RoomContext, task: &TaskName) {
        let mut to_do = vec![task.clone()];
        // Sub-tasks may form a cycle.
        let mut visited = BTreeSet::new();
        while let Some(task) = to_do.pop() {
            if !visited.insert(task.clone()) {
                continue;
            }
            self.clear_history(&task, 0);
            to_do.extend(
                cx.setup.tasks.get(&task).iter().flat_map(|setup| setup.subtasks.iter().cloned()),
            );
        }
    }
}

fn bytes_per_token(cx: &RoomContext, task: &TaskName) -> u32 {
    cx.setup.tasks.get(task).map_or(BYTES_PER_TOKEN, |setup| setup.bytes_per_token)
}

impl Dialogue<'_> {
    /// Appends a message that the agent reads or has written to its history (L-025, L-026). Returns
    /// false if there is nothing to append.
    pub(super) fn write_history(&mut self, frame: FrameId, message: &Arc<Message>) -> bool {
        let Some((open_frame, setup)) = self.frames.task_of(self.cx, frame) else { return false };
        let (task, rules) = (open_frame.task.clone(), setup.rules());
        let user_message = setup.user_message.clone();
        self.histories.begin_history(self.cx, &task, user_message);
        // L-009: a user message is not the result of a call, even if a result is missing.
        let is_somebodys_word = !rules.user_words_answer_calls
            && message.sender == Role::User
            && message.sender_name == *self.cx.opening.channel.as_str();
        let memory = self.histories.memory(self.cx, &task);
        // The message may be there already: `ask_llm_role` and `post` can both write it.
        if newest_said(&memory.history).is_some_and(|last| last.seq == message.seq) {
            return true;
        }
        let none = Vec::new();
        let open = if is_somebodys_word { &none } else { &memory.open_calls };
        let Some(entry) = as_entry(message, open, rules) else { return false };
        if message.sender == Role::Llm {
            memory.open_calls.clone_from(&message.tool_calls);
        } else {
            memory
                .open_calls
                .retain(|call| entry.tool_results.iter().all(|result| result.call_id != call.id));
        }
        let place = memory.push(&entry);
        self.histories.link(message).place = Some((task.clone(), place));
        self.add_knowledge(frame, &task, message);
        true
    }

    /// Inserts an entry at a place; later entries move down.
    pub(super) fn insert_entry(&mut self, task: &TaskName, place: usize, message: &Arc<Message>) {
        let memory = self.histories.memory(self.cx, task);
        let tail = memory.split_off(place);
        let new_places: Vec<(u64, usize)> = [message]
            .into_iter()
            .chain(&tail)
            .map(|message| (message.seq, memory.push(message)))
            .collect();
        self.histories.link(message).place = Some((task.clone(), place));
        for (seq, place) in new_places {
            if let Some(link) = self
                .histories
                .links
                .get_mut(&seq)
                .filter(|link| link.place.as_ref().is_some_and(|(of, _)| of == task))
            {
                link.place = Some((task.clone(), place));
            }
        }
        // The first message of an activation moves down with the others.
        for frame in self
            .frames
            .values_mut()
            .filter(|frame| frame.task == *task && frame.history_start > place)
        {
            frame.shift_history_start();
        }
    }

    /// Shortens an answered tool result to the part that its tool retains (L-120).
    pub(super) fn shorten_answered(&mut self, frame: FrameId, answered: &Arc<Message>) {
        let Some(task) = self.frames.get(&frame).map(|frame| frame.task.clone()) else { return };
        let Some(place) = self
            .histories
            .links
            .get(&answered.seq)
            .and_then(|link| link.place.clone())
            .filter(|(of, _)| *of == task)
        else {
            return;
        };
        let Some(asking) = self
            .histories
            .links
            .get(&answered.seq)
            .and_then(|link| self.histories.message(link.parent?))
            .cloned()
        else {
            return;
        };
        let toolbox = self.histories.toolbox(self.cx, &task);
        let limited = |name: &str| toolbox.get(name).and_then(|tool| tool.retained_tokens);
        let bytes = self.cx.setup.tasks.get(&task).map_or(4, |setup| setup.bytes_per_token);
        let shorter = |text: &str, tool: &str, tokens: u64| {
            crate::tool_calls::truncate::retained(text, tool, tokens, bytes)
        };
        let Some(memory) = self.histories.memories.get_mut(&task) else { return };
        let Some(entry) = memory.history().get(place.1) else { return };
        // The content joins all results, and is cut by the first tool with a limit.
        let first =
            asking.tools.iter().find_map(|call| Some((call.name.as_str(), limited(&call.name)?)));
        if first.is_none() && !entry.tool_results.iter().any(|it| limited(&it.name).is_some()) {
            return;
        }
        let mut entry = Message::clone(entry);
        for result in &mut entry.tool_results {
            // Each by its own tool's limit.
            if let Some(tokens) = limited(&result.name) {
                result.content = shorter(&result.content, &result.name, tokens);
            }
        }
        if let Some((tool, tokens)) = first {
            entry.content = entry.content.map(|text| shorter(&text, tool, tokens));
        }
        memory.set(place.1, Arc::new(entry));
    }
}

/// The message as an agent's history holds it; `None` if it says nothing to a model (L-009, L-010).
fn as_entry(message: &Arc<Message>, open: &[ToolCall], rules: TaskRules) -> Option<Arc<Message>> {
    let mut text = Cow::Borrowed(message.text());
    if message.sender != Role::Llm && !message.tool_calls.is_empty() {
        // Only a model makes calls. Those of another sender become text (L-009).
        let calls: Vec<String> = message
            .tool_calls
            .iter()
            .map(|call| format!("{}({})", call.name, call.arguments))
            .collect();
        text = format!("{text} {}", calls.join("\n\n")).into();
    }
    let result = |call: &ToolCall, content: String| ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        value: None,
        is_error: false,
    };
    let answers = |result: &ToolResult| open.iter().any(|call| result.call_id == call.id);
    // With one open call, the next message answers it. With several, it answers all of them, or
    // only those that its results name.
    let answers_open =
        open.len() == 1 || rules.every_call_gets_result || message.tool_results.iter().any(answers);
    if message.sender != Role::Llm && !open.is_empty() && answers_open {
        let mut results = message.tool_results.clone();
        if !results.iter().any(answers) {
            // Each call needs a result, and this message answers all of them.
            results = open.iter().map(|call| result(call, text.clone().into_owned())).collect();
        }
        let mut entry = Message::clone(message);
        entry.tool_calls.clear();
        entry.tool_results = results;
        return Some(Arc::new(entry));
    }
    if message.sender == Role::Llm {
        return Some(Arc::clone(message));
    }
    if text.trim().is_empty() && message.attachments.is_empty() && message.action.is_none() {
        return None;
    }
    if message.tool_calls.is_empty() && message.tool_results.is_empty() {
        return Some(Arc::clone(message));
    }
    let mut entry = Message::clone(message);
    entry.content = Some(text.into_owned());
    entry.tool_calls.clear();
    entry.tool_results.clear();
    Some(Arc::new(entry))
}

/// The calls of the agent's last answer that no later entry answers.
pub(super) fn open_calls(history: &History) -> Vec<ToolCall> {
    let mut answered = BTreeSet::new();
    for message in history.iter_newest_first() {
        if message.sender == Role::Llm {
            return message
                .tool_calls
                .iter()
                .filter(|call| !answered.contains(&call.id))
                .cloned()
                .collect();
        }
        answered.extend(message.tool_results.iter().map(|result| result.call_id.clone()));
    }
    Vec::new()
}

/// Whether the task can use this host tool.
pub(super) fn is_at_work(toolbox: &Toolbox, host_tool: HostTool) -> bool {
    toolbox.iter().any(|tool| tool.handled && tool.target == ToolTarget::Host(host_tool))
}

/// Histories by task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Histories {
    /// Boxed, because a node of the map has room for eleven.
    pub(super) memories: BTreeMap<TaskName, Box<AgentHistory>>,
    /// The parent and child of each linked message.
    pub(super) links: Links,
    /// The number of links at which the next cleanup is due.
    #[serde(default)]
    pub(super) links_due: usize,
    /// Parts that histories lost while a call was pending.
    #[serde(rename = "lost", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) removals: Lost,
    /// Cache of system texts.
    #[serde(skip)]
    pub(super) texts: SystemTexts,
}

/// Links by the number of the message.
pub(super) type Links = BTreeMap<u64, Link>;
