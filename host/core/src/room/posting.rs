//! Making messages: stamping them with what only the host may say, and turning an agent's turn into one.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::Room;
use super::frame::{Frame, Responder};
use super::tools::failed;
use crate::action::{Action, Observation, Past, Reply, Turn};
use crate::grant::{Denial, DenialRecord, Layer, list_with};
use crate::ids::{FrameId, PluginName};
use crate::manifest::Capability;
use crate::message::{Entity, Label, Message, Signal, ToolCall};
use crate::notice::Notice;

impl Room {
    /// An empty message from a seat, stamped with its place.
    pub(super) fn stamp(&mut self, sender: Entity, sender_name: &str) -> Message {
        let seq = self.counters.message;
        self.counters.message += 1;
        Message::new(seq, sender, sender_name)
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

    /// Same, as an error that the agent can read in place of an answer to its message. Each call of the message gets the error for a
    /// result: a model provider accepts no call without one.
    pub(super) fn refusal_message(&mut self, frame: FrameId, refused: &Message, content: String) -> Arc<Message> {
        let mut message = Arc::unwrap_or_clone(self.error_message(frame, content.clone()));
        message.tool_results = refused.tool_calls.iter().map(|call| failed(call, content.clone())).collect();
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
                message.signal = Some(Signal::Done { value: if outputs.is_string() || outputs.is_null() { None } else { Some(outputs) } });
            }
            // The user is about to answer it, so there is nothing left to carry out.
            Action::Talk { content } if turn.wait_for_response => message.content = Some(content),
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

    /// The agent may address another task only with the `route` grant: a sub-task, or one that its caller would pass the result on to.
    /// Its own task, its caller and the seats need none.
    pub(super) fn check_route(&mut self, id: FrameId, message: &Message) -> Result<(), Box<DenialRecord>> {
        let Some(recipient) = message.recipient.as_deref() else { return Ok(()) };
        let Some((frame, task)) = self.task_of(id) else { return Ok(()) };
        let is_named = |name: &str| name.eq_ignore_ascii_case(recipient);
        let is_own = is_named(frame.task.as_str()) || self.caller_name(frame).is_some_and(is_named);
        if is_own || !self.setup.tasks.keys().any(|task| is_named(task.as_str())) {
            return Ok(());
        }
        let agent = task.agent.clone();
        self.require_route(&agent, recipient)
    }

    pub(super) fn require_route(&mut self, plugin: &PluginName, name: &str) -> Result<(), Box<DenialRecord>> {
        let setup = Arc::clone(&self.setup);
        let Some(rights) = setup.rights(plugin) else { return Err(unknown_plugin(plugin, Capability::Route, name)) };
        let smallest = || {
            let granted = rights.grants.route.iter().flat_map(|grant| &grant.names).map(String::as_str);
            Some(format!("[plugins.{plugin}] grants.route = {}", list_with(granted, name)))
        };
        rights.require(Capability::Route, name, smallest)?;
        let granted =
            rights.grants.route.as_ref().is_some_and(|grant| grant.names.iter().any(|granted| granted.eq_ignore_ascii_case(name)));
        if granted {
            return Ok(());
        }
        let reason = format!("plugins.{plugin}.grants.route does not hold \"{name}\"");
        Err(rights.refuse(Capability::Route, name, Layer::Config, &reason, smallest()))
    }

    /// Tells the operator of a refusal, and gives the text that the agent may read.
    pub(super) fn denied(&mut self, plugin: &PluginName, record: DenialRecord) -> String {
        let text = format!("Refused: {} {}.", record.denial.capability, record.denial.target);
        self.tell(Notice::Denied { plugin: plugin.clone(), record });
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
    message.tool_calls = stamped(reply.tool_calls, seq);
}

/// A call without an id, or with one that an earlier call of the message has, gets its own: results are told apart by it.
fn stamped(mut calls: Vec<ToolCall>, seq: u64) -> Vec<ToolCall> {
    let mut ids = BTreeSet::new();
    for (index, call) in calls.iter_mut().enumerate() {
        while call.id.is_empty() || ids.contains(&call.id) {
            call.id = format!("{}m{seq}-{index}", call.id);
        }
        ids.insert(call.id.clone());
    }
    calls
}

/// The refusal of a plugin that the setup does not hold. Assembly makes no such setup, but a journal may have been written by anyone.
pub(super) fn unknown_plugin(plugin: &PluginName, capability: Capability, target: &str) -> Box<DenialRecord> {
    Box::new(DenialRecord {
        denial: Denial {
            capability: capability.as_str().to_owned(),
            target: target.to_owned(),
            detail: format!("{capability} was refused for {target:?}"),
        },
        layer: Layer::Config,
        reason: format!("the config has no plugin {plugin}"),
        suggestion: None,
    })
}

/// The text of a value (L-031).
pub(super) fn text_form(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
