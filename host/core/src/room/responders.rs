//! The responders of a task: their order, and which of them may answer the pending message (L-020,
//! L-032, L-052, L-055, L-063, L-064).

use std::sync::Arc;

use super::state::frame::Frame;
use super::state::frame::turn::SharedCalls;
use super::state::frame_state::Responders;
use super::state::responder::Responder;
use super::{Dialogue, Frames, Histories, Invariant, RoomContext};
use crate::protocol::notice::SkipReason;
use crate::setup::{TaskRules, TaskSetup};
use crate::tool_calls::parse::{CallParser, ParsedCalls};
use crate::types::completion::ToolFormat;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Message, Role};

impl Dialogue<'_> {
    /// Returns the responders of a step, in the order in which they are tried.
    pub(super) fn order(&mut self, id: FrameId) -> Responders {
        let attempts = self.pending_is_attempt(id);
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return Responders::new();
        };
        let task = Arc::clone(task);
        let human_tried =
            self.histories.memories.get(&frame.task).is_some_and(|memory| memory.human_tried);
        let mut order = Responders::new();
        // L-052: the user gets a chance after every step of another responder, but not between a
        // call and its handling.
        if !human_tried && !attempts {
            order.push(Responder::User);
        }
        order.push(Responder::Agent);
        order.push(Responder::Llm);
        let all = task.rules().tries_missing_roles;
        order.retain(|responder| {
            all || responder.role().is_some_and(|role| task.responders.contains(&role))
        });
        order.extend(task.subtasks.iter().cloned().map(Responder::Subtask));
        order
    }

    /// Returns the reason why the responder may not answer the pending message; `None` if it may
    /// (L-055).
    pub(super) fn skip_reason(&mut self, id: FrameId, responder: &Responder) -> Option<SkipReason> {
        // Computed first, because it needs `&mut self`.
        let user_may = *responder != Responder::User || self.user_may_respond(id);
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return Some(SkipReason::NotAddressed);
        };
        if frame.turn().pending_sender == *responder {
            return Some(SkipReason::SentMessage);
        }
        if !user_may {
            return Some(SkipReason::UserNotAsked);
        }
        // L-166: a task that waits for this one cannot answer it. The two would share one history,
        // and call each other without end.
        if let Responder::Subtask(name) = responder
            && self.frames.is_above(id, name)
        {
            return Some(SkipReason::WaitsForTask);
        }
        let pending = frame.turn().pending.clone()?;
        if !is_addressed(frame, task, responder, &pending) {
            return Some(SkipReason::NotAddressed);
        }
        let Responder::Subtask(name) = responder else { return None };
        let can_run = self.subtask_can_respond(id, name, &pending);
        (!can_run).then_some(SkipReason::CannotRunCalls)
    }

    /// Whether the user may answer: in an interactive task always, in any other task if addressed
    /// (L-055, L-069).
    pub(super) fn user_may_respond(&mut self, id: FrameId) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return false;
        };
        if task.interactive {
            return true;
        }
        let recipient =
            frame.turn().pending.as_ref().and_then(|pending| pending.recipient.as_deref());
        recipient.and_then(Role::from_name) == Some(Role::User) && !self.pending_is_attempt(id)
    }

    /// Whether a sub-task may answer. It answers plain text, and calls if its agent may run at
    /// least one of them (L-032).
    fn subtask_can_respond(
        &mut self,
        id: FrameId,
        name: &TaskName,
        pending: &Arc<Message>,
    ) -> bool {
        if pending.action.is_some() {
            return false;
        }
        let Some(task) = self.cx.setup.tasks.get(name).cloned() else { return false };
        let goes_on = self
            .frames
            .task_of(self.cx, id)
            .is_some_and(|(_, task)| task.rules().unknown_calls_go_to_others);
        if !goes_on && pending.sender == Role::Llm && !self.reading(id).unknown.is_empty() {
            // A call must not gain permissions through another agent's grants.
            return false;
        }
        let reading = self.histories.read(self.cx, name, &task, pending);
        // Calls found in a text are attached to the message (L-108), for later responders too.
        self.attach_to_pending(id, &reading);
        !(reading.is_for_others() || (task.respond_tools_only && reading.own.is_empty()))
    }

    /// Whether the pending message holds a call, or an attempt at one, that concerns this task
    /// (L-052).
    pub(super) fn pending_is_attempt(&mut self, id: FrameId) -> bool {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.turn().pending.clone())
        else {
            return false;
        };
        if pending.action.is_some() || !pending.tools.is_empty() {
            return true;
        }
        if pending.sender != Role::Llm {
            return false;
        }
        let reading = self.reading(id);
        let native_unknown = !pending.tool_calls.is_empty() && !reading.unknown.is_empty();
        // A call of an unknown tool still counts: the model gets the error before any other
        // responder is asked.
        reading.is_attempt()
            || (native_unknown
                && self
                    .frames
                    .task_of(self.cx, id)
                    .is_some_and(|(_, task)| task.rules().unknown_calls_are_calls))
    }

    /// Returns the calls in the pending message as the task's agent reads them. Those that the task
    /// carries out are attached to the message.
    pub(super) fn reading(&mut self, id: FrameId) -> SharedCalls {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.turn().pending.clone())
        else {
            return SharedCalls::default();
        };
        let reading = self.reading_of(id, &pending);
        self.attach_to_pending(id, &reading);
        reading
    }

    /// Returns the calls in a message as the task's agent reads them, and caches them.
    pub(super) fn reading_of(&mut self, id: FrameId, message: &Message) -> SharedCalls {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return SharedCalls::default();
        };
        if let Some((of, reading)) = &frame.turn().reading.0
            && *of == message.seq
        {
            return reading.clone();
        }
        let reading = SharedCalls::from(self.histories.read(self.cx, &frame.task, task, message));
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.cache_reading(message.seq, reading.clone());
        }
        reading
    }

    fn attach_to_pending(&mut self, id: FrameId, reading: &ParsedCalls) {
        let Some(frame) = self.frames.get_mut(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let Some(pending) = frame
            .pending_mut()
            .filter(|pending| pending.tools.is_empty() && !reading.own.is_empty())
        else {
            return;
        };
        Arc::make_mut(pending).tools.clone_from(&reading.own);
        self.keep_pending(id);
    }

    /// Updates the linked copy of the pending message.
    pub(super) fn keep_pending(&mut self, id: FrameId) {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.turn().pending.clone())
        else {
            return;
        };
        self.histories.link(&pending).message = Some(Arc::clone(&pending));
    }
}

impl Histories {
    /// Parses a message for a task's agent.
    pub(super) fn read(
        &self,
        cx: &RoomContext,
        name: &TaskName,
        task: &TaskSetup,
        message: &Message,
    ) -> ParsedCalls {
        let toolbox = self.toolbox(cx, name);
        let history = self.memories.get(name).map(|memory| memory.history());
        let (of_model, rules) = (message.sender == Role::Llm, task.rules());
        let reader = CallParser {
            toolbox: &toolbox,
            text: task.text_rules.calls
                || (of_model && matches!(task.tool_format, ToolFormat::Json | ToolFormat::Xml)),
            name: rules.arguments_address.then_some(name.as_str()),
            for_handlers: rules.models_call_handler_tools,
            after_model: history
                .and_then(crate::types::history::History::last)
                .is_some_and(|last| last.sender == Role::Llm),
            wrong_call_stops_others: rules.wrong_call_stops_others,
        };
        let mut reading = reader.read(message);
        if !rules.trusts_external_calls {
            // L-171: an external text is not a call, except of tools that the agent itself is
            // offered. The agent answers the rest as text.
            reading.own.retain(|call| toolbox.trusts(message, call));
            reading.all.retain(|call| toolbox.trusts(message, call));
        }
        reading
    }
}

impl ParsedCalls {
    /// The number of calls that get an error in place of being carried out.
    pub(super) fn refused(&self, rules: TaskRules) -> usize {
        let unknown = if rules.every_call_gets_result { self.unknown.len() } else { 0 };
        self.wrong.len() + unknown
    }
}

/// Drops the cached parse of a message that changed under the same number.
pub(super) fn forget_reading(frames: &mut Frames, id: FrameId) {
    if let Some(frame) = frames.get_mut(&id) {
        frame.forget_reading();
    }
}

/// Whether the name belongs to the task or to one of its responders (L-063).
pub(super) fn is_valid_recipient(
    frames: &Frames,
    cx: &RoomContext,
    frame: FrameId,
    name: &str,
) -> bool {
    let Some((frame, task)) = frames.task_of(cx, frame) else { return false };
    name.is_empty()
        || frame.task.as_str().eq_ignore_ascii_case(name)
        || Role::from_name(name).is_some()
        || task.subtasks.iter().any(|subtask| subtask.as_str().eq_ignore_ascii_case(name))
}

/// The name of the task that called this one.
pub(super) fn caller_name<'r>(frames: &'r Frames, frame: &Frame) -> Option<&'r str> {
    Some(frames.get(&frame.caller?)?.task.as_str())
}

/// Whether the message is addressed to this responder, in any case of letters (L-064).
fn is_addressed(frame: &Frame, task: &TaskSetup, responder: &Responder, pending: &Message) -> bool {
    // If the text has no address, the recipient was set by the agent. Its calls are carried out for
    // any recipient.
    if *responder == Responder::Agent
        && pending.sender == Role::Llm
        && pending.has_work_for_host()
        && task.rules().calls_ignore_recipient
    {
        return true;
    }
    pending.recipient.as_deref().is_none_or(|name| {
        name.is_empty()
            || responder.is_named(name)
            || frame.task.as_str().eq_ignore_ascii_case(name)
    })
}
