//! Construction of messages: the stamps that only the host may set, and the message of an agent's
//! turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::prompts::IncompleteAnswer;
use super::responders::{caller_name, forget_reading};
use super::state::responder::Responder;
use super::tools::failed;
use super::{Dialogue, Frames, Handoffs, Invariant, RoomContext};
use crate::protocol::notice::Notice;
use crate::setup::{AgentResponder, TaskSetup};
use crate::tool_calls::json;
use crate::tool_calls::routing::{self, Route};
use crate::types::action::{Action, Observation, PastAction, Reply, Turn};
use crate::types::capability::Capability;
use crate::types::denial::{Denial, DenialRecord, Layer};
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, Role, Signal, ToolCall};

impl RoomContext {
    /// Returns an empty message from a role, with the next number.
    pub(super) fn stamp(&mut self, sender: Role, sender_name: &str) -> Message {
        let seq = self.counters.message;
        self.counters.message += 1;
        Message::new(seq, sender, sender_name)
    }

    /// Reports a refusal to the operator, and returns the text for the agent.
    pub(super) fn denied(&mut self, plugin: &PluginName, record: DenialRecord) -> String {
        let text = record.denial.to_text();
        self.notify(Notice::Denied { call: None, plugin: plugin.clone(), record });
        text
    }
}

impl Handoffs {
    /// Returns a message of the user, which is external text (L-029, L-170).
    pub(super) fn user_message(&mut self, cx: &mut RoomContext, content: String) -> Message {
        self.user_spoke();
        let channel = cx.opening.channel.clone();
        let mut message = cx.stamp(Role::User, channel.as_str());
        message.content = Some(content);
        message.labels.push(Label::Untrusted);
        message
    }
}

impl Frames {
    /// Returns a message of the host to the agent, such as an observation.
    pub(super) fn host_message(
        &self,
        cx: &mut RoomContext,
        frame: FrameId,
        content: String,
    ) -> Message {
        let agent = self.agent_of(cx, frame).cloned();
        let mut message = cx.stamp(Role::Agent, agent.as_ref().map_or("host", PluginName::as_str));
        message.content = Some(content);
        message
    }

    /// Returns an error message that answers `refused`. Each of its calls gets the error as its
    /// result, because model providers accept no call without one.
    pub(super) fn refusal_message(
        &mut self,
        cx: &mut RoomContext,
        frame: FrameId,
        refused: &Message,
        content: String,
    ) -> Arc<Message> {
        let mut message = Arc::unwrap_or_clone(self.error_message(cx, frame, content.clone()));
        message.tool_results =
            refused.tool_calls.iter().map(|call| failed(call, content.clone())).collect();
        Arc::new(message)
    }

    /// Returns an error message for the agent, and adds it to the observations since its last step.
    pub(super) fn error_message(
        &mut self,
        cx: &mut RoomContext,
        frame: FrameId,
        content: String,
    ) -> Arc<Message> {
        let message = Arc::new(self.host_message(cx, frame, content.clone()));
        self.remember(cx, frame, None, Some(Observation::Error { content }), message.seq);
        message
    }

    pub(super) fn agent_of<'r>(
        &'r self,
        cx: &'r RoomContext,
        frame: FrameId,
    ) -> Option<&'r PluginName> {
        Some(&self.task_of(cx, frame)?.1.agent)
    }

    pub(super) fn remember(
        &mut self,
        cx: &mut RoomContext,
        frame: FrameId,
        action: Option<Action>,
        observation: Option<Observation>,
        seq: u64,
    ) {
        let Some(frame) = self.get_mut(&frame) else {
            return cx.violated(Invariant::FrameExists, frame);
        };
        // O-051: the last error stays readable.
        if let Some(Observation::Error { content }) = &observation {
            frame.acting.last_error = Some(content.clone());
        }
        // O-054: the answer to an action joins it, even after other events. Anything else is an
        // entry of its own.
        match action {
            Some(_) => frame.past_actions.push(PastAction { action, observation, seq }),
            None => frame.past_actions.answer(observation, seq),
        }
    }

    /// Records an observation that answers no action, as an entry of its own (O-054).
    pub(super) fn remember_unsolicited(
        &mut self,
        cx: &mut RoomContext,
        frame: FrameId,
        entry: PastAction,
    ) {
        let Some(frame) = self.get_mut(&frame) else {
            return cx.violated(Invariant::FrameExists, frame);
        };
        if let Some(Observation::Error { content }) = &entry.observation {
            frame.acting.last_error = Some(content.clone());
        }
        frame.past_actions.push(entry);
    }

    /// Checks the `route` grant that an agent needs to address another task: a sub-task, or one to
    /// which its caller would pass the result. Its own task, its caller and the roles need no
    /// grant.
    pub(super) fn check_route(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        message: &Message,
    ) -> Result<(), Box<DenialRecord>> {
        let Some(recipient) = message.recipient.as_deref() else { return Ok(()) };
        let Some(agent) = self.agent_of(cx, id).cloned() else {
            cx.violated(Invariant::FrameExists, id);
            return Ok(());
        };
        self.check_address(cx, id, &agent, recipient)
    }

    pub(super) fn check_address(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        agent: &PluginName,
        recipient: &str,
    ) -> Result<(), Box<DenialRecord>> {
        let Some((frame, _)) = self.task_of(cx, id) else {
            cx.violated(Invariant::FrameExists, id);
            return Ok(());
        };
        let is_named = |name: &str| name.eq_ignore_ascii_case(recipient);
        let is_own =
            is_named(frame.task.as_str()) || caller_name(self, frame).is_some_and(is_named);
        // Names other than tasks need no grant; unknown ones are refused in the next step (L-053).
        if is_own || !cx.setup.tasks.keys().any(|task| is_named(task.as_str())) {
            return Ok(());
        }
        self.require_route(cx, id, agent, recipient)
    }

    pub(super) fn require_route(
        &self,
        cx: &RoomContext,
        id: FrameId,
        plugin: &PluginName,
        name: &str,
    ) -> Result<(), Box<DenialRecord>> {
        let setup = Arc::clone(&cx.setup);
        let rights =
            self.task_of(cx, id).and_then(|(frame, _)| setup.rights_in(plugin, &frame.task));
        let Some(rights) = rights else {
            return Err(unknown_plugin(plugin, Capability::Route, name));
        };
        rights.may_route(name)
    }

    /// Checks that a responder may address this name. A user may; an agent needs the `route` grant
    /// for another task.
    fn may_address(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        by: &Responder,
        name: &str,
    ) -> Result<(), String> {
        let agent = match by {
            Responder::User | Responder::System => return Ok(()),
            Responder::Agent | Responder::Llm => self.agent_of(cx, id).cloned(),
            Responder::Subtask(task) => cx.setup.tasks.get(task).map(|task| task.agent.clone()),
        };
        let Some(agent) = agent else {
            cx.violated(Invariant::FrameExists, id);
            return Ok(());
        };
        self.check_address(cx, id, &agent, name).map_err(|record| cx.denied(&agent, *record))
    }
}

impl Dialogue<'_> {
    /// Makes a message pending.
    pub(super) fn put_pending(
        &mut self,
        frame: FrameId,
        sender: Responder,
        message: impl Into<Arc<Message>>,
    ) {
        if let Some(frame) = self.frames.get_mut(&frame) {
            frame.put_pending(sender, message.into());
        }
        self.keep_pending(frame);
    }

    /// The message of an agent's turn; `None` if it says nothing.
    pub(super) fn turn_message(
        &mut self,
        frame: FrameId,
        turn: Turn,
        incomplete: Option<IncompleteAnswer>,
    ) -> Option<Message> {
        let Some((_, task)) = self.frames.task_of(self.cx, frame) else {
            self.cx.violated(Invariant::FrameExists, frame);
            return None;
        };
        let task = Arc::clone(task);
        let mut message = self.cx.stamp(Role::Llm, task.agent.as_str());
        let seq = message.seq;
        if turn.wait_for_response {
            // L-069: with the user as recipient the task asks, even if it is not interactive.
            message.recipient = Some(Role::User.as_str().to_owned());
        }
        message.value = turn.extra("value").filter(|value| !value.is_null()).cloned();
        let text = turn.extra("text").and_then(Value::as_str).map(str::to_owned);
        // A kind with a type of its own is converted to it, so that no action escapes its checks by
        // another spelling.
        let action = turn.action.typed();
        let remembered = action.clone();
        match action {
            Action::Null => return None,
            Action::Reply(reply) => {
                message.is_cut = incomplete == Some(IncompleteAnswer::Cut);
                let reply = self.histories.without_repeats(
                    self.cx,
                    self.frames,
                    frame,
                    reply,
                    message.is_cut,
                );
                fill_reply(&mut message, reply, seq, &task)
            }
            Action::Finish { outputs } => {
                message.content = Some(text_form(&outputs));
                message.signal = Some(Signal::Done {
                    value: if outputs.is_string() || outputs.is_null() {
                        None
                    } else {
                        Some(outputs)
                    },
                });
            }
            // The user will answer it, so there is nothing left to carry out.
            Action::Talk { content } if turn.wait_for_response => message.content = Some(content),
            Action::Reject { outputs } => {
                message.content = Some(text_form(&outputs));
                message.signal = Some(Signal::Rejected);
            }
            action => {
                message.content = match &action {
                    Action::Talk { content } | Action::Think { thought: content } => {
                        Some(content.clone())
                    }
                    _ => text,
                };
                message.action = Some(action);
            }
        }
        self.frames.remember(self.cx, frame, Some(remembered), None, seq);
        // L-173: taint does not flow through an agent's own words; labels stay empty.
        Some(message)
    }

    /// Applies the routing in a text, if the operator allows it (L-066). Returns true if the
    /// message only passes on what is pending.
    pub(super) fn routed(
        &mut self,
        id: FrameId,
        by: &Responder,
        mut message: Arc<Message>,
    ) -> (Arc<Message>, bool) {
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return (message, false);
        };
        if !task.text_rules.signals {
            // A pass without signals does not count as an empty answer.
            let text = message.text().trim();
            let passes = text == routing::PASS
                || text.starts_with(routing::PASS_TO)
                || routing::without_done(text) == routing::PASS;
            let may_pass = task.rules().passes_without_signals;
            if task.text_rules.prefix.is_empty() || may_pass {
                return (message, may_pass && passes);
            }
        }
        // L-152: the pending message can be passed on as the task's result.
        let passes = message.text().trim() == routing::PASS
            || routing::without_done(message.text()) == routing::PASS;
        let (prefix, signals) = (task.text_rules.prefix.clone(), task.text_rules.signals);
        let has_call = !message.tools.is_empty()
            || (message.sender == Role::Llm && self.reading_of(id, &message).is_attempt());
        let route = if signals {
            routing::route(message.text(), &prefix, has_call)
        } else {
            by_prefix(message.text(), &prefix, has_call)
        };
        let route = match route {
            None | Some(Route::Pass) => return (message, passes),
            Some(route) => route,
        };
        let (Route::PassTo(name) | Route::SendTo { name, .. }) = &route else {
            return (message, passes);
        };
        if let Err(refusal) = self.frames.may_address(self.cx, id, by, name) {
            return (self.frames.refusal_message(self.cx, id, &message, refusal), false);
        }
        match route {
            Route::SendTo { name, content } => {
                let answer = Arc::make_mut(&mut message);
                (answer.content, answer.recipient) = (Some(content), Some(name));
                // The address is no longer part of the text, so it has to be parsed again.
                forget_reading(self.frames, id);
                return (message, false);
            }
            Route::PassTo(name) => {
                let Some(frame) = self.frames.get_mut(&id) else {
                    self.cx.violated(Invariant::FrameExists, id);
                    return (message, true);
                };
                // An agent that begins a task without a message has nothing to pass on.
                let Some(pending) = frame.pending_mut() else { return (message, true) };
                Arc::make_mut(pending).recipient = Some(name);
                self.keep_pending(id);
                // L-068: a bare address passes the turn on within the step, as the bare signal
                // does. A signal with a name ends the step.
                if !message.text().contains(routing::PASS_TO) {
                    Arc::make_mut(&mut message).content = Some(routing::PASS.to_owned());
                    forget_reading(self.frames, id);
                }
            }
            Route::Pass => {}
        }
        (message, true)
    }

    /// Returns the error for unknown tools in the pending message, once no other responder had an
    /// answer (L-113, done right).
    pub(super) fn unknown_tools(&mut self, id: FrameId) -> Option<Arc<Message>> {
        let pending = self
            .frames
            .get(&id)?
            .turn()
            .pending
            .clone()
            .filter(|pending| pending.sender == Role::Llm)?;
        if self.frames.task_of(self.cx, id)?.1.agent_responder == AgentResponder::Component {
            // The component carries out calls itself, and knows its own tools.
            return None;
        }
        let reading = self.reading(id);
        let (frame, setup) = self.frames.task_of(self.cx, id)?;
        let knows =
            |task: &TaskName, name: &str| self.histories.toolbox(self.cx, task).get(name).is_some();
        // If sub-tasks may carry it out, a call that one of them knows is not unknown, even if that
        // sub-task failed.
        let is_known_below = |name: &String| {
            setup.rules().unknown_calls_go_to_others
                && setup.subtasks.iter().any(|task| knows(task, name))
        };
        if reading.unknown.is_empty()
            || !reading.all.is_empty()
            || reading.unknown.iter().any(is_known_below)
        {
            return None;
        }
        let (task, toolbox) = (frame.task.clone(), self.histories.toolbox(self.cx, &frame.task));
        let agent = self.frames.agent_of(self.cx, id)?.clone();
        let mut texts = Vec::with_capacity(reading.unknown.len());
        for name in &reading.unknown {
            let text = self.histories.unknown_tool(self.cx, &agent, &task, &toolbox, name);
            let arguments = pending.tool_calls.iter().find(|call| &call.name == name);
            self.frames.report_refused(
                self.cx,
                id,
                name,
                arguments.map(|call| &call.arguments),
                &text,
            );
            texts.push(text);
        }
        let mut message =
            Arc::unwrap_or_clone(self.frames.error_message(self.cx, id, texts.join("\n")));
        let text_of = |name: &str| {
            reading
                .unknown
                .iter()
                .position(|unknown| unknown == name)
                .and_then(|at| texts.get(at))
                .cloned()
        };
        message.tool_results = pending
            .tool_calls
            .iter()
            .filter_map(|call| Some(failed(call, text_of(&call.name)?)))
            .collect();
        Some(Arc::new(message))
    }
}

fn fill_reply(message: &mut Message, reply: Reply, seq: u64, task: &TaskSetup) {
    message.content = reply.content.map(reply_text);
    message.attachments = reply.attachments;
    message.tool_calls = stamped(reply.tool_calls, seq);
    // L-065: a call may name the recipient, and a text.
    let of_call = |call: &ToolCall| {
        call.arguments
            .get("recipient")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
    };
    let in_call =
        message.tool_calls.iter().find_map(of_call).filter(|_| task.rules().arguments_address);
    if in_call.is_some() {
        message.content = Some(String::new());
    }
    let mut in_text = None;
    if in_call.is_none() && task.text_rules.recipients {
        if let Some((name, rest)) = routing::directed(message.text()) {
            (in_text, message.content) = (Some(name), Some(rest));
        } else {
            in_text = json::field(message.text(), "recipient")
                .and_then(|name| Some(name.as_str()?.to_owned()));
        }
    }
    let recipient = reply.recipient.or(in_call).or(in_text).filter(|name| !name.is_empty());
    message.recipient = recipient.or(message.recipient.take());
}

/// The route of an address prefix, for tasks without other signals (L-067).
fn by_prefix(text: &str, prefix: &str, has_call: bool) -> Option<Route> {
    let (name, content) = routing::addressed(text.trim(), prefix).filter(|_| !has_call)?;
    Some(if content.is_empty() { Route::PassTo(name) } else { Route::SendTo { name, content } })
}

/// The text of a reply; empty if it is a pair of quotation marks (L-027).
fn reply_text(text: String) -> String {
    match text.trim() {
        "\"\"" | "''" => String::new(),
        trimmed if trimmed.len() < text.len() => trimmed.to_owned(),
        _ => text,
    }
}

/// Gives each call without a unique id its own, because results refer to it.
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

/// The refusal of a plugin that is missing from the setup. Assembly makes no such setup, but a
/// journal may come from another source.
pub(super) fn unknown_plugin(
    plugin: &PluginName,
    capability: Capability,
    target: &str,
) -> Box<DenialRecord> {
    Box::new(DenialRecord {
        denial: Denial {
            capability: capability.as_str().to_owned(),
            target: target.to_owned(),
            detail: format!("{capability} was refused for {target:?}"),
        },
        layer: Layer::Config,
        reason: format!("the config has no plugin {plugin}"),
        suggestion: None,
        writes: false,
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
