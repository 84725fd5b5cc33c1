//! Making messages: stamping them with what only the host may say, and turning an agent's turn into one.

use std::sync::Arc;

use serde_json::Value;

use super::frame::{Frame, Responder};
use super::Room;
use crate::action::{Action, Observation, Past, Reply, Turn};
use crate::grant::{DenialRecord, Layer};
use crate::ids::{FrameId, PluginName};
use crate::manifest::Capability;
use crate::message::{Entity, Label, Message, Signal, ToolCall};
use crate::notice::Notice;

impl Room {
    /// An empty message from a seat, stamped with its place.
    pub(super) fn stamp(&mut self, sender: Entity, sender_name: &str) -> Message {
        let seq = self.counters.message;
        self.counters.message += 1;
        Message {
            seq,
            sender,
            sender_name: sender_name.to_owned(),
            recipient: None,
            content: None,
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            attachments: Vec::new(),
            labels: Vec::new(),
            action: None,
            signal: None,
            parent: None,
        }
    }

    /// What a person said, which is external text (L-029, L-170).
    pub(super) fn user_message(&mut self, content: String) -> Message {
        let channel = self.opening.channel.clone();
        let mut message = self.stamp(Entity::User, channel.as_str());
        message.content = Some(content);
        message.labels.push(Label::Untrusted);
        message
    }

    /// The host's word to the agent, such as an observation.
    pub(super) fn host_message(&mut self, frame: FrameId, content: String) -> Arc<Message> {
        let name = self.agent_of(frame).map_or_else(|| "host".to_owned(), |agent| agent.to_string());
        let mut message = self.stamp(Entity::Agent, &name);
        message.content = Some(content);
        Arc::new(message)
    }

    /// Same, as an error that the agent can read; it goes into what came since its last step.
    pub(super) fn error_message(&mut self, frame: FrameId, content: String) -> Arc<Message> {
        let message = self.host_message(frame, content.clone());
        self.remember(frame, None, Some(Observation::Error { content }), message.seq);
        message
    }

    pub(super) fn agent_of(&self, frame: FrameId) -> Option<&PluginName> {
        Some(&self.task_of(frame)?.1.agent)
    }

    /// Puts a message up for an answer.
    pub(super) fn put_pending(&mut self, frame: FrameId, sender: Responder, message: Message) {
        if let Some(frame) = self.frames.get_mut(&frame) {
            let message = Arc::new(message);
            if message.sender == Entity::User {
                frame.intent = Some(Arc::clone(&message));
            }
            frame.pending_sender = sender;
            frame.pending = Some(message);
        }
    }

    pub(super) fn remember(&mut self, frame: FrameId, action: Option<Action>, observation: Option<Observation>, seq: u64) {
        let Some(frame) = self.frames.get_mut(&frame) else { return };
        // O-054: the answer to an action joins it; anything else stands alone.
        match frame.past.last_mut() {
            Some(past) if action.is_none() && past.action.is_some() && past.observation.is_none() => past.observation = observation,
            _ => frame.past.push(Past { action, observation, seq }),
        }
    }

    /// The message that an agent's turn amounts to; none when it said nothing.
    pub(super) fn turn_message(&mut self, frame: FrameId, turn: Turn) -> Option<Arc<Message>> {
        let name = self.agent_of(frame)?.to_string();
        let mut message = self.stamp(Entity::Llm, &name);
        let seq = message.seq;
        if turn.wait_for_response {
            // L-069: addressing the user makes the task ask, also when it is not interactive.
            message.recipient = Some(Entity::User.as_str().to_owned());
        }
        let remembered = turn.action.clone();
        match turn.action {
            Action::Null => return None,
            Action::Reply(reply) => fill_reply(&mut message, reply, seq),
            Action::Finish { outputs } => {
                message.content = Some(text_form(&outputs));
                message.signal = Some(Signal::Done { value: if outputs.is_string() { None } else { Some(outputs) } });
            }
            Action::Reject { outputs } => {
                message.content = Some(text_form(&outputs));
                message.signal = Some(Signal::Rejected);
            }
            action => {
                if let Action::Talk { content } | Action::Think { thought: content } = &action {
                    message.content = Some(content.clone());
                }
                message.action = Some(action);
            }
        }
        self.remember(frame, Some(remembered), None, seq);
        // L-173: taint does not flow through an agent's own words; labels stay empty.
        Some(Arc::new(message))
    }

    /// The agent may address a sub-task only with the `route` grant; anyone else needs none.
    pub(super) fn check_route(&mut self, frame: FrameId, message: &Message) -> Result<(), Box<DenialRecord>> {
        let Some(recipient) = message.recipient.as_deref() else { return Ok(()) };
        let Some((_, task)) = self.task_of(frame) else { return Ok(()) };
        if !task.subtasks.iter().any(|subtask| subtask.as_str().eq_ignore_ascii_case(recipient)) {
            return Ok(());
        }
        let agent = task.agent.clone();
        self.require_route(&agent, recipient)
    }

    pub(super) fn require_route(&mut self, plugin: &PluginName, name: &str) -> Result<(), Box<DenialRecord>> {
        let setup = Arc::clone(&self.setup);
        let Some(rights) = setup.rights(plugin) else { return Ok(()) };
        let smallest = || Some(format!("plugins.{plugin}.grants.route = [\"{name}\"]"));
        rights.require(Capability::Route, name, smallest)?;
        let granted = rights.grants.route.as_ref().is_some_and(|grant| grant.names.iter().any(|granted| granted.eq_ignore_ascii_case(name)));
        if granted {
            return Ok(());
        }
        let reason = format!("plugins.{plugin}.grants.route does not hold \"{name}\"");
        Err(rights.refuse(Capability::Route, name, Layer::Config, &reason, smallest()))
    }

    /// Tells the operator of a refusal, and gives the text that the agent may read.
    pub(super) fn denied(&mut self, plugin: &PluginName, record: Box<DenialRecord>) -> String {
        let text = format!("Refused: {} {}.", record.denial.capability, record.denial.target);
        self.tell(Notice::Denied { plugin: plugin.clone(), record: *record });
        text
    }

    /// Appends to the agent's history what it is about to read or has just said (L-025, L-026).
    pub(super) fn write_history(&mut self, frame: FrameId, message: &Arc<Message>) {
        let Some(Frame { task, .. }) = self.frames.get(&frame) else { return };
        let task = task.clone();
        self.histories.entry(task).or_default().push(message);
    }
}

fn fill_reply(message: &mut Message, reply: Reply, seq: u64) {
    message.content = reply.content;
    message.recipient = reply.recipient.filter(|name| !name.is_empty()).or(message.recipient.take());
    message.attachments = reply.attachments;
    message.tool_calls = reply.tool_calls.into_iter().enumerate().map(|(index, call)| stamp_call(call, seq, index)).collect();
}

/// A call without an id gets one that no other call of the room has.
fn stamp_call(call: ToolCall, seq: u64, index: usize) -> ToolCall {
    if call.id.is_empty() { ToolCall { id: format!("m{seq}-{index}"), ..call } } else { call }
}

/// The text of a value (L-031).
pub(super) fn text_form(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
