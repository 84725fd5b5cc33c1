//! Which seats there are, in which order they are tried, and which of them may answer the pending message (L-020, L-032, L-052, L-055,
//! L-063, L-064).

use std::collections::VecDeque;

use super::Room;
use super::frame::{Frame, Responder};
use crate::ids::FrameId;
use crate::message::{Entity, Message};
use crate::setup::TaskSetup;

impl Room {
    /// The responders of a step, in the order in which they are tried.
    pub(super) fn order(&self, frame: &Frame, task: &TaskSetup) -> VecDeque<Responder> {
        let works = frame.pending.as_ref().is_some_and(|message| message.wants_agent_seat());
        let mut order = VecDeque::with_capacity(3 + task.subtasks.len());
        // L-052: the user gets a chance after every step of somebody else, but not between a call and its handling.
        if !frame.human_tried && !works {
            order.push_back(Responder::User);
        }
        order.push_back(Responder::Agent);
        order.push_back(Responder::Llm);
        order.extend(task.subtasks.iter().cloned().map(Responder::Subtask));
        order
    }

    /// The responder may answer what is pending (L-055).
    pub(super) fn can_respond(&self, frame: &Frame, task: &TaskSetup, responder: &Responder) -> bool {
        if frame.pending_sender == *responder {
            return false;
        }
        let Some(pending) = frame.pending.as_deref() else {
            return match responder {
                Responder::User => task.interactive,
                Responder::Subtask(name) => !self.is_above(frame.id, name),
                Responder::Agent | Responder::Llm => true,
            };
        };
        let able = match responder {
            Responder::User => user_may_respond(task, pending),
            // A task that waits for this one already cannot answer it: the two would share one history, and call each other for ever.
            Responder::Subtask(name) if self.is_above(frame.id, name) => false,
            Responder::Subtask(name) => self.setup.tasks.get(name).is_some_and(|task| subtask_can_respond(task, pending)),
            Responder::Agent | Responder::Llm => true,
        };
        able && is_addressed(frame, responder, pending)
    }

    /// Somebody in the task answers to this name, or its caller does (L-063).
    pub(super) fn is_valid_recipient(&self, frame: FrameId, name: &str) -> bool {
        let Some((frame, task)) = self.task_of(frame) else { return false };
        name.is_empty()
            || frame.task.as_str().eq_ignore_ascii_case(name)
            || Entity::named(name).is_some()
            || task.subtasks.iter().any(|subtask| subtask.as_str().eq_ignore_ascii_case(name))
            || self.caller_name(frame).is_some_and(|caller| caller.eq_ignore_ascii_case(name))
    }

    /// The name of the task that called this one.
    pub(super) fn caller_name(&self, frame: &Frame) -> Option<&str> {
        Some(self.frames.get(&frame.caller?)?.task.as_str())
    }
}

/// The user is asked in an interactive task, and in any task when addressed (L-055, L-069).
pub(super) fn user_may_respond(task: &TaskSetup, pending: &Message) -> bool {
    let addressed = pending.recipient.as_deref().and_then(Entity::named) == Some(Entity::User);
    task.interactive || (addressed && !pending.wants_agent_seat())
}

/// A sub-task answers plain text, and calls of which its agent may run at least one (L-032).
fn subtask_can_respond(task: &TaskSetup, pending: &Message) -> bool {
    if pending.action.is_some() {
        return false;
    }
    pending.tool_calls.is_empty() || pending.tool_calls.iter().any(|call| task.tools.iter().any(|tool| tool.name == call.name))
}

fn is_addressed(frame: &Frame, responder: &Responder, pending: &Message) -> bool {
    // The agent's own calls are carried out whoever is to hear of them: no other seat could, and the task would stall.
    if *responder == Responder::Agent && pending.sender == Entity::Llm && pending.wants_agent_seat() {
        return true;
    }
    pending
        .recipient
        .as_deref()
        .is_none_or(|name| name.is_empty() || responder.is_named(name) || frame.task.as_str().eq_ignore_ascii_case(name))
}
