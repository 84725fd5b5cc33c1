//! The open spans of one room. A parent span stays open until its children end. A span without an
//! answer ends with the next step of its task, or with its task, turn or run.

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::setup::Setup;
use conclave_core::types::ids::{CallId, ModelName, PluginName, RoomId, TaskName};
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::names::{
    AGENT, CONVERSATION, COST, ERROR, INPUT_MESSAGES, INPUT_TOKENS, OPERATION, OUTPUT_MESSAGES,
    OUTPUT_TOKENS, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, SERVER, SHOWN, STATUS, TASK, TOOL,
    TOOL_ARGUMENTS, TOOL_CALL, TOOL_RESULT, WALL,
};
use crate::observe::subscribe::OWN_CLIENT;

/// Maximum number of open spans in a room. Further spans are not created.
const SPANS: usize = 4096;

/// Stands in for a span that was not created.
static NONE: Span = Span::none();

/// The open spans of a room.
#[derive(Debug, Default)]
pub(super) struct OpenSpans {
    /// The setup of the room's first event.
    pub(super) setup: Option<Arc<Setup>>,
    /// The message that the next turn answers, in the form of the conventions; `None` without
    /// content.
    pub(super) input: Option<String>,
    /// The step that started a background task. `None` for the current span of the room's loop.
    parent: Option<Span>,
    /// The turn of the entry task, from its first step to its end. A background task has none: its
    /// steps are below the one that started it.
    turn: Option<Span>,
    /// Spans of steps and tools, with their tasks.
    calls: HashMap<CallId, (TaskName, Span)>,
    /// The latest step of each active task. Each task after the first was delegated to by the task
    /// before it.
    steps: Vec<(TaskName, CallId)>,
    latest: Option<CallId>,
    chats: HashMap<(CallId, u32), Span>,
}

impl OpenSpans {
    /// The spans of a room that another one started.
    pub(super) fn below(parent: Span) -> Self {
        Self { parent: Some(parent), ..Self::default() }
    }

    /// The span of a step or tool.
    pub(super) fn call(&self, call: CallId) -> &Span {
        self.calls.get(&call).map_or(&NONE, |(_, span)| span)
    }

    /// The span of a model call.
    pub(super) fn chat(&self, call: CallId, ordinal: u32) -> &Span {
        self.chats.get(&(call, ordinal)).unwrap_or(&NONE)
    }

    /// The span of the current step of a task.
    pub(super) fn step_of(&self, task: &TaskName) -> &Span {
        self.steps.iter().find(|(of, _)| of == task).map_or(&NONE, |(_, call)| self.call(*call))
    }

    /// The span of the newest step of the room.
    pub(super) fn latest(&self) -> &Span {
        self.latest.map_or(&NONE, |call| self.call(call))
    }

    pub(super) fn step_started(
        &mut self,
        room: &RoomId,
        call: CallId,
        task: &TaskName,
        agent: &PluginName,
    ) {
        // A task only steps again when nothing that it waited for is active. Open spans of it, and
        // of tasks it delegated to, were abandoned.
        self.end_steps(task);
        if self.parent.is_none() && self.turn.is_none() {
            self.turn = Some(turn(room, task, self.input.take()));
        }
        self.steps.push((task.clone(), call));
        self.latest = Some(call);
        let span = info_span!(
            target: "conclave", parent: &self.above(), "invoke_agent",
            { SHOWN } = format!("invoke_agent {agent}"), { OPERATION } = "invoke_agent", { AGENT } = agent.as_str(),
            { CONVERSATION } = room.as_str(), { TASK } = task.as_str(), { ERROR } = Empty, { STATUS } = Empty,
        );
        self.keep(call, task, span);
    }

    pub(super) fn tool_called(
        &mut self,
        room: &RoomId,
        call: CallId,
        (task, caller): (&TaskName, &PluginName),
        tool: &str,
        within: Option<CallId>,
    ) {
        let parent = within.map_or_else(|| self.step_of(task), |within| self.call(within));
        let span = info_span!(
            target: "conclave", parent: parent, "execute_tool",
            { SHOWN } = format!("execute_tool {tool}"), { OPERATION } = "execute_tool", { TOOL } = tool, { TOOL_CALL } = call.to_string(),
            { AGENT } = caller.as_str(), { CONVERSATION } = room.as_str(), { TASK } = task.as_str(),
            { WALL } = Empty, { TOOL_ARGUMENTS } = Empty, { TOOL_RESULT } = Empty, { ERROR } = Empty, { STATUS } = Empty,
        );
        self.keep(call, task, span);
    }

    /// Removes the span and returns it; it ends when the caller drops it.
    pub(super) fn tool_answered(&mut self, call: CallId) -> Span {
        let span = self.call(call).clone();
        self.end(call);
        span
    }

    pub(super) fn model_called(
        &mut self,
        room: &RoomId,
        call: CallId,
        ordinal: u32,
        model: &ModelName,
        provider: Option<&str>,
    ) {
        // Bounds the memory of a room whose calls never end.
        if self.chats.len() >= SPANS {
            return;
        }
        let setup = self.setup.as_ref().and_then(|setup| setup.models.get(model));
        let server = setup
            .and_then(|model| model.reached_at.as_deref())
            .filter(|server| *server != OWN_CLIENT);
        let of_server = setup.filter(|_| server.is_some()).map(|model| model.api.provider());
        let provider = provider.or(of_server).unwrap_or("_OTHER");
        // The call of a strategy has no span of its own to be the parent.
        let of_call = self.calls.get(&call).map(|(_, span)| span.clone());
        let parent = of_call.unwrap_or_else(|| self.above());
        let span = info_span!(
            target: "conclave", parent: &parent, "chat",
            { SHOWN } = format!("chat {model}"), { OPERATION } = "chat", { PROVIDER } = provider, { REQUEST_MODEL } = model.as_str(),
            { CONVERSATION } = room.as_str(), { SERVER } = server, { RESPONSE_MODEL } = Empty, { INPUT_TOKENS } = Empty,
            { OUTPUT_TOKENS } = Empty, { COST } = Empty, { OUTPUT_MESSAGES } = Empty, { ERROR } = Empty,
            { STATUS } = Empty,
        );
        self.chats.insert((call, ordinal), span);
    }

    /// Removes the span and returns it; it ends when the caller drops it.
    pub(super) fn model_answered(&mut self, call: CallId, ordinal: u32) -> Span {
        self.chats.remove(&(call, ordinal)).unwrap_or_else(Span::none)
    }

    /// Ends the last step of a task and its abandoned spans, and the turn if nothing is left of it.
    pub(super) fn task_ended(&mut self, task: &TaskName) {
        self.end_steps(task);
        if self.steps.is_empty() {
            self.turn = None;
        }
    }

    /// Ends the last step of a task and its abandoned spans.
    fn end_steps(&mut self, task: &TaskName) {
        let first = self.steps.iter().position(|(of, _)| of == task).unwrap_or(self.steps.len());
        // The tasks that it delegated to end too, because they get no event of their own.
        let mut ended: Vec<TaskName> = self.steps.drain(first..).map(|(of, _)| of).collect();
        if ended.is_empty() {
            ended.push(task.clone());
        }
        let calls: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, (of, _))| ended.contains(of))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.end(call));
    }

    /// Ends all spans, since everything active in a room belongs to the turn of its entry task.
    pub(super) fn turn_stopped(&mut self) {
        self.turn = None;
        self.steps.clear();
        self.chats.clear();
        self.calls.clear();
    }

    /// The span above the steps of this room.
    fn above(&self) -> Span {
        self.turn.clone().or_else(|| self.parent.clone()).unwrap_or_else(Span::current)
    }

    fn keep(&mut self, call: CallId, task: &TaskName, span: Span) {
        if self.calls.len() < SPANS {
            self.calls.insert(call, (task.clone(), span));
        }
    }

    /// Ends a step or tool, with its abandoned model calls.
    fn end(&mut self, call: CallId) {
        self.calls.remove(&call);
        self.chats.retain(|(of, _), _| *of != call);
    }
}

/// The span of a turn. The conventions have no other operation for the work of several agents.
fn turn(room: &RoomId, entry: &TaskName, input: Option<String>) -> Span {
    info_span!(
        target: "conclave", "invoke_agent",
        { SHOWN } = format!("invoke_agent {entry}"), { OPERATION } = "invoke_agent", { AGENT } = entry.as_str(),
        { CONVERSATION } = room.as_str(), { TASK } = entry.as_str(), { INPUT_MESSAGES } = input,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> CallId {
        CallId(number)
    }

    fn room_at_work() -> OpenSpans {
        let mut open = OpenSpans::default();
        let (room, plugin) = (RoomId::from("r"), PluginName::from("p"));
        open.step_started(&room, call(1), &TaskName::from("desk"), &plugin);
        open.step_started(&room, call(2), &TaskName::from("child"), &plugin);
        open.tool_called(&room, call(3), (&TaskName::from("child"), &plugin), "p.look", None);
        open.model_called(&room, call(3), 0, &ModelName::from("m"), None);
        open
    }

    fn count(open: &OpenSpans) -> (usize, usize, usize) {
        (open.calls.len(), open.chats.len(), open.steps.len())
    }

    #[test]
    fn what_a_task_waits_for_ends_with_its_next_step_or_with_itself() {
        let desk = TaskName::from("desk");
        let mut open = room_at_work();
        assert_eq!(count(&open), (3, 1, 2));
        open.step_started(&RoomId::from("r"), call(4), &desk, &PluginName::from("p"));
        assert_eq!(count(&open), (1, 0, 1));
        let mut open = room_at_work();
        open.task_ended(&TaskName::from("child"));
        assert_eq!(count(&open), (1, 0, 1));
        let mut open = room_at_work();
        open.task_ended(&desk);
        assert_eq!(count(&open), (0, 0, 0));
    }

    #[test]
    fn a_stopped_turn_leaves_nothing_open() {
        let mut open = room_at_work();
        open.turn_stopped();
        assert_eq!(count(&open), (0, 0, 0));
    }
}
