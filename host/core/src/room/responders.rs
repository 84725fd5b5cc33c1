//! Which seats there are, in which order they are tried, and which of them may answer the pending
//! message (L-020, L-032, L-052, L-055, L-063, L-064).

use std::collections::VecDeque;
use std::sync::Arc;

use super::Room;
use super::frame::{Frame, ParsedMessage, Responder};
use crate::setup::TaskSetup;
use crate::tool_calls::parse::{CallParser, ParsedCalls};
use crate::types::completion::ToolFormat;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{Entity, Message};

impl Room {
    /// The responders of a step, in the order in which they are tried.
    pub(super) fn order(&mut self, id: FrameId) -> VecDeque<Responder> {
        let attempts = self.pending_is_attempt(id);
        let Some((frame, task)) = self.task_of(id) else { return VecDeque::new() };
        let task = Arc::clone(task);
        let human_tried = self.memories.get(&frame.task).is_some_and(|memory| memory.human_tried);
        let mut order = VecDeque::with_capacity(3 + task.subtasks.len());
        // L-052: the user gets a chance after every step of somebody else, but not between a call
        // and its handling.
        if !human_tried && !attempts {
            order.push_back(Responder::User);
        }
        order.push_back(Responder::Agent);
        order.push_back(Responder::Llm);
        // In the reference a seat that nobody takes is one that never answers.
        order.retain(|responder| {
            task.as_langroid || responder.seat().is_some_and(|seat| task.seats.contains(&seat))
        });
        order.extend(task.subtasks.iter().cloned().map(Responder::Subtask));
        order
    }

    /// The responder may answer what is pending (L-055).
    pub(super) fn can_respond(&mut self, id: FrameId, responder: &Responder) -> bool {
        let user_may = *responder != Responder::User || self.user_may_respond(id);
        let Some((frame, task)) = self.task_of(id) else { return false };
        if frame.pending_sender == *responder || !user_may {
            return false;
        }
        // L-166: a task that waits for this one already cannot answer it: the two would share one
        // history, and call each other for ever.
        if let Responder::Subtask(name) = responder
            && self.is_above(id, name)
        {
            return false;
        }
        let Some(pending) = frame.pending.clone() else { return true };
        if !is_addressed(frame, task, responder, &pending) {
            return false;
        }
        match responder {
            Responder::Subtask(name) => {
                let name = name.clone();
                self.subtask_can_respond(id, &name, &pending)
            }
            _ => true,
        }
    }

    /// The user is asked in an interactive task, and in any task when addressed (L-055, L-069).
    pub(super) fn user_may_respond(&mut self, id: FrameId) -> bool {
        let Some((frame, task)) = self.task_of(id) else { return false };
        if task.interactive {
            return true;
        }
        let recipient = frame.pending.as_ref().and_then(|pending| pending.recipient.as_deref());
        recipient.and_then(Entity::named) == Some(Entity::User) && !self.pending_is_attempt(id)
    }

    /// A sub-task answers plain text, and calls of which its agent may run at least one (L-032).
    fn subtask_can_respond(
        &mut self,
        id: FrameId,
        name: &TaskName,
        pending: &Arc<Message>,
    ) -> bool {
        if pending.action.is_some() {
            return false;
        }
        let Some(task) = self.setup.tasks.get(name).cloned() else { return false };
        let langroid = self.task_of(id).is_some_and(|(_, task)| task.as_langroid);
        if !langroid && pending.sender == Entity::Llm && !self.reading(id).unknown.is_empty() {
            // What this task's agent was not granted it does not get by way of another's grants.
            return false;
        }
        let reading = self.read(name, &task, pending);
        // Whoever reads calls out of a text attaches them to the message (L-108), for others too.
        self.attach_to_pending(id, &reading);
        !(reading.is_for_others() || (task.respond_tools_only && reading.mine.is_empty()))
    }

    /// The pending message holds a call, or an attempt at one, that this task has to do with
    /// (L-052).
    pub(super) fn pending_is_attempt(&mut self, id: FrameId) -> bool {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.pending.clone()) else {
            return false;
        };
        if pending.action.is_some() || !pending.tools.is_empty() {
            return true;
        }
        if pending.sender != Entity::Llm {
            return false;
        }
        let reading = self.reading(id);
        let native_unknown = !pending.tool_calls.is_empty() && !reading.unknown.is_empty();
        // A call of a tool that there is not is still one: the model hears of it before anybody is
        // asked.
        reading.is_attempt()
            || (native_unknown && self.task_of(id).is_some_and(|(_, task)| !task.as_langroid))
    }

    /// The pending message as the task's agent reads it; what it is to carry out is attached to the
    /// message.
    pub(super) fn reading(&mut self, id: FrameId) -> Arc<ParsedCalls> {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.pending.clone()) else {
            return Arc::default();
        };
        let reading = self.reading_of(id, &pending);
        self.attach_to_pending(id, &reading);
        reading
    }

    /// A message as the task's agent reads it, kept for the next who asks.
    pub(super) fn reading_of(&mut self, id: FrameId, message: &Message) -> Arc<ParsedCalls> {
        let Some((frame, task)) = self.task_of(id) else { return Arc::default() };
        if let Some((of, reading)) = &frame.reading.0
            && *of == message.seq
        {
            return Arc::clone(reading);
        }
        let reading = Arc::new(self.read(&frame.task, task, message));
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.reading.0 = Some((message.seq, Arc::clone(&reading)));
        }
        reading
    }

    /// A message as a task's agent reads it.
    pub(super) fn read(&self, name: &TaskName, task: &TaskSetup, message: &Message) -> ParsedCalls {
        let toolbox = self.toolbox(name);
        let history = self.memories.get(name).map(super::histories::AgentHistory::history);
        let of_model = message.sender == Entity::Llm;
        let reader = CallParser {
            toolbox: &toolbox,
            text: task.text.calls
                || (of_model && matches!(task.tool_format, ToolFormat::Json | ToolFormat::Xml)),
            name: task.as_langroid.then_some(name.as_str()),
            for_handlers: task.as_langroid,
            after_model: history
                .and_then(crate::types::history::History::last)
                .is_some_and(|last| last.sender == Entity::Llm),
        };
        let mut reading = reader.read(message);
        if !task.as_langroid {
            // L-171: words from outside are no calls, except of what the agent itself is offered:
            // it answers them as words.
            reading.mine.retain(|call| toolbox.trusts(message, call));
            reading.all.retain(|call| toolbox.trusts(message, call));
        }
        reading
    }

    /// A message became another under the same number: what was read of it is not in it.
    pub(super) fn forget_reading(&mut self, id: FrameId) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.reading = ParsedMessage::default();
        }
    }

    fn attach_to_pending(&mut self, id: FrameId, reading: &ParsedCalls) {
        let Some(frame) = self.frames.get_mut(&id) else { return };
        let Some(pending) = frame
            .pending
            .as_mut()
            .filter(|pending| pending.tools.is_empty() && !reading.mine.is_empty())
        else {
            return;
        };
        Arc::make_mut(pending).tools.clone_from(&reading.mine);
        self.keep_pending(id);
    }

    /// The message is known to others as it is pending now.
    pub(super) fn keep_pending(&mut self, id: FrameId) {
        let Some(pending) = self.frames.get(&id).and_then(|frame| frame.pending.clone()) else {
            return;
        };
        self.link(&pending).message = Some(Arc::clone(&pending));
    }

    /// Somebody in the task answers to this name, or its caller does (L-063).
    pub(super) fn is_valid_recipient(&self, frame: FrameId, name: &str) -> bool {
        let Some((frame, task)) = self.task_of(frame) else { return false };
        name.is_empty()
            || frame.task.as_str().eq_ignore_ascii_case(name)
            || Entity::named(name).is_some()
            || task.subtasks.iter().any(|subtask| subtask.as_str().eq_ignore_ascii_case(name))
    }

    /// The name of the task that called this one.
    pub(super) fn caller_name(&self, frame: &Frame) -> Option<&str> {
        Some(self.frames.get(&frame.caller?)?.task.as_str())
    }
}

/// L-064; names ignore case everywhere.
fn is_addressed(frame: &Frame, task: &TaskSetup, responder: &Responder, pending: &Message) -> bool {
    // Where a text addresses nobody, the recipient is the agent's own word, and its calls are
    // carried out whoever is to hear of them.
    if *responder == Responder::Agent
        && pending.sender == Entity::Llm
        && pending.wants_agent_seat()
        && !task.as_langroid
    {
        return true;
    }
    pending.recipient.as_deref().is_none_or(|name| {
        name.is_empty()
            || responder.is_named(name)
            || frame.task.as_str().eq_ignore_ascii_case(name)
    })
}
