//! The loop: a step tries the responders in turn until one gives a valid answer (L-050…L-062). Everything that can take time is an
//! effect, so a step may rest here between two events.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::ending::{Ending, is_ended_by_user_alone};
use super::frame::{Attempt, Frame, Responder, Wait};
use super::{Purpose, Room};
use crate::action::Turn;
use crate::effect::Effect;
use crate::fault::Fault;
use crate::ids::{CallId, FrameId, TaskName};
use crate::message::{Blob, DO_NOT_KNOW, Entity, Message};
use crate::notice::Notice;
use crate::outcome::Status;
use crate::setup::PluginKind;
use crate::view::Peer;

/// Faults in a row after which an agent is given up: its next step would most likely fail in the same way.
const MAX_FAULTS: u32 = 3;
const TURNS_USED_UP: &str = "the run made as many steps as limits.run.turns allows";

impl Room {
    pub(super) fn new_frame(&mut self, task: &TaskName, caller: Option<FrameId>, inputs: Arc<Value>) -> FrameId {
        let id = FrameId(self.counters.frame);
        self.counters.frame += 1;
        let setup = Arc::clone(&self.setup);
        let task_setup = setup.tasks.get(task);
        let frame = Frame {
            id,
            task: task.clone(),
            caller,
            inputs,
            peers: Arc::new(self.peers(task)),
            pending: None,
            pending_sender: Responder::User,
            intent: None,
            human_tried: false,
            stalled: 0,
            faults: 0,
            steps: 0,
            turn_limit: task_setup.and_then(|task| task.turns),
            iteration: 0,
            past: Vec::new(),
            attempt: None,
        };
        self.frames.insert(id, frame);
        if let Some(task_setup) = task_setup {
            let caller = caller.and_then(|caller| self.frames.get(&caller)).map(|frame| frame.task.clone());
            self.tell(Notice::TaskStarted { task: task.clone(), agent: task_setup.agent.clone(), caller });
        }
        id
    }

    /// Tasks that a task's agent may hand work to: its sub-tasks, and those that it may delegate to.
    fn peers(&self, task: &TaskName) -> Vec<Peer> {
        let Some(task) = self.setup.tasks.get(task) else { return Vec::new() };
        let granted = self.setup.rights(&task.agent).filter(|rights| rights.manifest.ask(crate::manifest::Capability::Delegate).is_some());
        let delegates = granted.and_then(|rights| rights.grants.delegate.as_ref()).map_or(&[][..], |grant| &grant.tasks);
        let names = task.subtasks.iter().chain(delegates.iter().filter(|name| !task.subtasks.contains(name)));
        names.map(|name| Peer { name: name.clone(), description: self.description(name) }).collect()
    }

    fn description(&self, task: &TaskName) -> String {
        self.setup.tasks.get(task).map(|task| task.description.clone()).unwrap_or_default()
    }

    /// Goes on with every frame that can: a child that was just made, a caller whose child has ended, a step that got its answer.
    pub(super) fn run(&mut self) {
        while let Some(id) = self.runnable.pop_front() {
            self.advance(id);
        }
    }

    /// Goes on with a frame until it waits or ends.
    fn advance(&mut self, id: FrameId) {
        loop {
            let Some(frame) = self.frames.get_mut(&id) else { return };
            match frame.attempt.take() {
                None => self.begin_step(id),
                Some(Attempt { wait: Wait::Next, responder: _, rest, do_not_know }) => self.try_next(id, rest, do_not_know),
                Some(Attempt { wait: Wait::Ready(answer), responder, rest, do_not_know }) => {
                    self.answered(id, responder, answer, rest, do_not_know);
                }
                waiting => {
                    frame.attempt = waiting;
                    return;
                }
            }
        }
    }

    fn begin_step(&mut self, id: FrameId) {
        let Some((frame, task)) = self.task_of(id) else {
            self.end_frame(id, Ending::new(Status::Error, "the config has no such task"));
            return;
        };
        let recipient = frame.pending.as_ref().and_then(|message| message.recipient.clone()).unwrap_or_default();
        let rest = self.order(frame, task);
        if self.is_valid_recipient(id, &recipient) {
            self.set_attempt(id, Attempt { responder: Responder::User, rest, wait: Wait::Next, do_not_know: None });
        } else {
            // L-053: the agent gets a chance to correct itself.
            let text = format!("Invalid recipient: {recipient}");
            let message = match self.frames.get(&id).and_then(|frame| frame.pending.clone()) {
                Some(pending) => self.refusal_message(id, &pending, text),
                None => self.error_message(id, text),
            };
            let wait = Wait::Ready(Some(message));
            self.set_attempt(id, Attempt { responder: Responder::Agent, rest: VecDeque::new(), wait, do_not_know: None });
        }
    }

    /// Asks the next responder that may answer (L-054).
    fn try_next(&mut self, id: FrameId, mut rest: VecDeque<Responder>, do_not_know: Option<(Responder, Arc<Message>)>) {
        loop {
            let Some(responder) = rest.pop_front() else {
                self.no_valid_answer(id, do_not_know);
                return;
            };
            let Some((frame, task)) = self.task_of(id) else { return };
            if !self.can_respond(frame, task, &responder) {
                continue;
            }
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.human_tried = responder == Responder::User;
            }
            let wait = match &responder {
                Responder::Agent => self.ask_agent_seat(id),
                Responder::Llm => self.ask_agent(id),
                Responder::User => self.ask_user(id),
                Responder::Subtask(name) => self.ask_subtask(id, name),
            };
            // None: the frame, and perhaps the run, has ended.
            let Some(wait) = wait else { return };
            self.set_attempt(id, Attempt { responder, rest, wait, do_not_know });
            return;
        }
    }

    fn ask_agent(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, task) = self.task_of(id)?;
        let pending = frame.pending.clone();
        // L-022: no agent answers a message whose calls the host should carry out.
        if pending.as_ref().is_some_and(|message| message.wants_agent_seat() && message.sender == Entity::Llm) {
            return Some(Wait::Ready(None));
        }
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        if self.turns_are_used_up() {
            self.stop(Status::MaxTurns, TURNS_USED_UP);
            return None;
        }
        if let Some(pending) = &pending {
            self.write_history(id, pending);
        }
        self.spent.turns = self.spent.turns.saturating_add(1);
        let call = self.next_call(Purpose::Step { frame: id });
        self.tell(Notice::StepStarted { call, task: name.clone(), agent: agent.clone() });
        self.effects.push_back(Effect::StepAgent { call, frame: id, task: name, agent });
        Some(Wait::Call(call))
    }

    pub(super) fn ask_responder(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, task) = self.task_of(id)?;
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let plugin = self.setup.plugins.get(&agent)?;
        if !plugin.facts.kinds.contains(&PluginKind::Responder) {
            return None;
        }
        let call = self.next_call(Purpose::Respond { frame: id });
        self.tell(Notice::StepStarted { call, task: name.clone(), agent: agent.clone() });
        self.effects.push_back(Effect::AskResponder { call, frame: id, task: name, agent });
        Some(Wait::Call(call))
    }

    fn ask_user(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, _) = self.task_of(id)?;
        let prompt = frame.pending.as_ref().map(|message| message.text().to_owned()).unwrap_or_default();
        let (task, channel) = (frame.task.clone(), self.opening.channel.clone());
        let call = self.next_call(Purpose::User { frame: id });
        self.effects.push_back(Effect::AskUser { call, task, channel, prompt });
        Some(Wait::Call(call))
    }

    /// L-160: a sub-task is called with the pending message, which its agent sees as the user's (L-051b).
    fn ask_subtask(&mut self, id: FrameId, name: &TaskName) -> Option<Wait> {
        let (frame, _) = self.task_of(id)?;
        let (pending, inputs) = (frame.pending.clone(), Arc::clone(&frame.inputs));
        let caller = frame.task.clone();
        let child = self.new_frame(name, Some(id), inputs);
        if let Some(pending) = pending {
            let mut message = self.stamp(Entity::User, caller.as_str());
            message.content.clone_from(&pending.content);
            message.attachments.clone_from(&pending.attachments);
            message.tool_calls.clone_from(&pending.tool_calls);
            message.labels.clone_from(&pending.labels);
            message.parent = Some(pending.seq);
            self.put_pending(child, Responder::User, message);
        }
        self.runnable.push_back(child);
        Some(Wait::Subtask(child))
    }

    pub(super) fn agent_stepped(&mut self, id: FrameId, call: CallId, answer: Result<Turn, Fault>) {
        let lacked_model = self.without_model.remove(&call);
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.iteration += 1;
            frame.past.clear();
        }
        let message = match answer {
            Ok(turn) => {
                if let Some(frame) = self.frames.get_mut(&id) {
                    frame.faults = 0;
                }
                let message = self.turn_message(id, turn);
                if let Some(message) = &message {
                    self.write_history(id, message);
                }
                self.admit_reply(id, message)
            }
            Err(fault) => {
                let Some(message) = self.agent_faulted(id, call, &fault, lacked_model) else { return };
                Some((Responder::Agent, message))
            }
        };
        self.ready(id, message);
    }

    pub(super) fn agent_responded(&mut self, id: FrameId, call: CallId, answer: Result<Option<Turn>, Fault>) {
        let lacked_model = self.without_model.remove(&call);
        let message = match answer {
            // An answer of the component costs a turn, whichever of its exports gives it: two responders could talk for ever.
            Ok(Some(_)) if self.turns_are_used_up() => {
                self.stop(Status::MaxTurns, TURNS_USED_UP);
                return;
            }
            Ok(turn) => {
                self.spent.turns = self.spent.turns.saturating_add(u64::from(turn.is_some()));
                let said = turn.and_then(|turn| self.turn_message(id, turn));
                let said = self.admit_reply(id, said).map(|(_, message)| {
                    let mut message = Arc::unwrap_or_clone(message);
                    message.sender = Entity::Agent;
                    Arc::new(message)
                });
                said.or_else(|| self.without_tool(id)).map(|message| (Responder::Agent, message))
            }
            Err(fault) => {
                let Some(message) = self.agent_faulted(id, call, &fault, lacked_model) else { return };
                Some((Responder::Agent, message))
            }
        };
        self.ready(id, message);
    }

    /// A recipient that was not granted is refused before anyone reads the message.
    fn admit_reply(&mut self, id: FrameId, message: Option<Arc<Message>>) -> Option<(Responder, Arc<Message>)> {
        let message = message?;
        match self.check_route(id, &message) {
            Ok(()) => Some((Responder::Llm, message)),
            Err(record) => {
                let agent = self.agent_of(id)?.clone();
                let text = self.denied(&agent, *record);
                Some((Responder::Agent, self.refusal_message(id, &message, text)))
            }
        }
    }

    /// O-072: a failed step is an observation; after several in a row the task is given up.
    fn agent_faulted(&mut self, id: FrameId, call: CallId, fault: &Fault, lacked_model: bool) -> Option<Arc<Message>> {
        let agent = self.agent_of(id)?.clone();
        self.tell(Notice::PluginFaulted { call, plugin: agent.clone(), fault: fault.clone() });
        let (_, task) = self.task_of(id)?;
        // The model's client has tried again already, and the agent's next step would put the failure to the model as somebody's words.
        if lacked_model && !task.interactive {
            let reason = format!("{agent} got no answer of its model: {}", fault.message);
            self.end_frame(id, Ending::new(Status::Error, reason));
            return None;
        }
        let frame = self.frames.get_mut(&id)?;
        frame.faults += 1;
        if frame.faults >= MAX_FAULTS {
            let reason = format!("{agent} failed {MAX_FAULTS} times in a row; the last time: {}", fault.message);
            self.end_frame(id, Ending::new(Status::Error, reason));
            return None;
        }
        Some(self.error_message(id, format!("The step of {agent} failed: {}", fault.message)))
    }

    pub(super) fn user_answered(&mut self, call: CallId, text: Option<String>, attachments: Vec<Blob>) {
        let Some(Purpose::User { frame }) = self.calls.get(&call) else { return };
        let frame = *frame;
        self.calls.remove(&call);
        let text = text.filter(|text| !text.trim().is_empty() || !attachments.is_empty());
        let message = text.map(|text| {
            let mut message = self.user_message(text);
            message.attachments = attachments;
            (Responder::User, Arc::new(message))
        });
        if message.is_some()
            && let Some(frame) = self.frames.get_mut(&frame)
        {
            // Who has read of a fault and speaks all the same wants another try; what failed before is not in a row with it (O-072).
            frame.faults = 0;
        }
        self.ready(frame, message);
    }

    /// Puts an answer where the step waits for it, and goes on.
    pub(super) fn ready(&mut self, id: FrameId, answer: Option<(Responder, Arc<Message>)>) {
        let Some(attempt) = self.frames.get_mut(&id).and_then(|frame| frame.attempt.as_mut()) else { return };
        if let Some((responder, _)) = &answer {
            attempt.responder = responder.clone();
        }
        attempt.wait = Wait::Ready(answer.map(|(_, message)| message));
        self.runnable.push_back(id);
    }

    /// Judges an answer (L-054, L-056).
    fn answered(
        &mut self,
        id: FrameId,
        responder: Responder,
        answer: Option<Arc<Message>>,
        rest: VecDeque<Responder>,
        do_not_know: Option<(Responder, Arc<Message>)>,
    ) {
        let Some((frame, task)) = self.task_of(id) else { return };
        let empty = answer.as_ref().is_none_or(|message| message.is_empty());
        // L-081: an answer, or the lack of one, of a seat that the operator named ends the task.
        let seats = if empty { &task.done_if_no_response } else { &task.done_if_response };
        // Where only the user ends the task it ends nothing, and the other seats are still to be asked.
        let ends = !is_ended_by_user_alone(frame, task) && responder.seat().is_some_and(|seat| seats.contains(&seat));
        match answer {
            Some(message) if ends || (!empty && !passes_on(&message)) => self.post(id, responder, message, ends),
            Some(message) if passes_on(&message) => {
                let do_not_know = Some((responder.clone(), message));
                self.set_attempt(id, Attempt { responder, rest, wait: Wait::Next, do_not_know });
            }
            _ if ends => self.finish_step(id, true, false),
            _ => self.set_attempt(id, Attempt { responder, rest, wait: Wait::Next, do_not_know }),
        }
    }

    /// A valid answer becomes the pending message (L-059).
    fn post(&mut self, id: FrameId, responder: Responder, message: Arc<Message>, ends: bool) {
        let Some(frame) = self.frames.get_mut(&id) else { return };
        let message = match frame.pending.as_ref().map(|pending| pending.seq) {
            Some(parent) if message.parent.is_none() => {
                let mut message = Arc::unwrap_or_clone(message);
                message.parent = Some(parent);
                Arc::new(message)
            }
            _ => message,
        };
        let typed = responder == Responder::User;
        // L-060: a message may be labelled as another seat's; then that seat may not answer it.
        frame.pending_sender = match (&responder, message.sender) {
            (Responder::Agent, Entity::Llm) => Responder::Llm,
            _ => responder,
        };
        if message.sender == Entity::User && matches!(frame.pending_sender, Responder::User) {
            frame.intent = Some(Arc::clone(&message));
        }
        frame.pending = Some(Arc::clone(&message));
        frame.stalled = 0;
        let task = frame.task.clone();
        if !message.tool_results.is_empty() {
            // Also when somebody else answers it, or nobody does: the agent's history would hold calls without results.
            self.write_history(id, &message);
        }
        if let Some(agent) = self.agent_of(id).cloned() {
            self.tell(Notice::MessagePosted { task, agent, message });
        }
        self.finish_step(id, ends, typed);
    }

    /// L-058: the last "I do not know" counts when nobody knows better; else the step is stalled.
    fn no_valid_answer(&mut self, id: FrameId, do_not_know: Option<(Responder, Arc<Message>)>) {
        if let Some((responder, message)) = do_not_know {
            self.post(id, responder, message, false);
            return;
        }
        let Some((_, task)) = self.task_of(id) else { return };
        let (of, allow_null) = (task.max_stalled_steps, task.allow_null_result);
        let Some(frame) = self.frames.get_mut(&id) else { return };
        frame.stalled += 1;
        let (task, stalled, pending_sender) = (frame.task.clone(), frame.stalled, frame.pending_sender.clone());
        self.tell(Notice::StepStalled { task: task.clone(), stalled, of });
        if allow_null {
            let (sender, responder) =
                if pending_sender == Responder::User { (Entity::Llm, Responder::Llm) } else { (Entity::User, Responder::User) };
            let mut message = self.stamp(sender, task.as_str());
            message.content = Some(DO_NOT_KNOW.to_owned());
            if let Some(frame) = self.frames.get_mut(&id) {
                // Not `put_pending`: nobody asked for anything here, so the user's intent stays.
                frame.pending_sender = responder;
                frame.pending = Some(Arc::new(message));
            }
        }
        self.finish_step(id, false, false);
    }

    /// After each step: has the task ended? (L-050e, L-080…L-086)
    fn finish_step(&mut self, id: FrameId, ends: bool, typed: bool) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.steps = frame.steps.saturating_add(1);
            frame.attempt = None;
        }
        if let Some(ending) = self.ending_of(id, ends, typed) {
            self.end_frame(id, ending);
        }
    }

    pub(super) fn set_attempt(&mut self, id: FrameId, attempt: Attempt) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.attempt = Some(attempt);
        }
    }

    fn turns_are_used_up(&self) -> bool {
        self.opening.limits.turns.is_some_and(|limit| self.committed().turns >= limit)
    }
}

/// The answer leaves it to somebody who knows (L-056, L-058). A tool's result never does: its text is data, and passes nothing on.
fn passes_on(message: &Message) -> bool {
    message.tool_results.is_empty() && message.action.is_none() && message.says_do_not_know()
}
