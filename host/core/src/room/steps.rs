//! The step loop: a step tries the responders in turn until one gives a valid answer (L-050…L-062).
//! Anything that takes time is an effect, so a step may pause here between two events.

mod judge;

use std::sync::Arc;

use serde_json::Value;

use super::budgets::BudgetShortage;
use super::delegates::limit_child;
use super::knowledge::newest_said;
use super::passages::state_of_new;
use super::prompt_agent::{own_system, with_message};
use super::prompts::{IncompleteAnswer, say_if_filtered};
use super::queries::consult;
use super::replayed::replayed;
use super::responders::is_valid_recipient;
use super::state::closing::FrameEnd;
use super::state::frame::Frame;
use super::state::frame::activation::{Activation, CachedTaskSetup};
use super::state::frame::counters::FrameCounters;
use super::state::frame_state::{Attempt, FrameState, FrameWait, Responders};
use super::state::responder::Responder;
use super::tools::failed;
use super::{
    Dialogue, Frames, Invariant, PluginCalls, Purpose, QueryPurpose, RoomContext, StepLoop,
};
use crate::policy::budget::Budget;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::plugin_query::PluginQuery;
use crate::types::action::{Action, Turn};
use crate::types::fault::Fault;
use crate::types::ids::{CallId, FrameId, TaskName};
use crate::types::message::{Blob, Label, Message, Role};
use crate::types::outcome::Status;
use crate::types::plugin_kind::PluginKind;
use crate::types::view::Peer;
use judge::report_step;

pub(super) use judge::is_empty;

/// Consecutive faults after which an agent is given up, because its next step would most likely
/// fail too.
const MAX_FAULTS: u32 = 3;
/// Bytes that an answer may weigh; the limit on a plugin's own answers is lower.
pub(super) const MAX_WEIGHT: usize = 2 << 20;
/// Calls that an answer may carry. Native calls of a model are answered one by one instead.
const MAX_CALLS: usize = 1_000;
/// Consecutive steps after which a run is taken for a loop if none of them had a turn, a tool call,
/// a background task or a user's answer.
const MAX_IDLE: u32 = 2_000;

/// The occupant of the user role that gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserSeat {
    Person,
    /// A simulated user, which never speaks as the host.
    Plugin,
}

impl Dialogue<'_> {
    pub(super) fn new_frame(
        &mut self,
        task: &TaskName,
        caller: Option<FrameId>,
        inputs: Arc<Value>,
    ) -> FrameId {
        let id = FrameId(self.cx.counters.frame);
        self.cx.counters.frame += 1;
        let setup = Arc::clone(&self.cx.setup);
        let task_setup = setup.tasks.get(task);
        let activation = Activation {
            id,
            task: task.clone(),
            task_setup: CachedTaskSetup::new(&setup, task),
            caller,
            led_by: Vec::new(),
            system: own_system(self.cx, task, &inputs),
            inputs,
            peers: Arc::new(peers(self.cx, task)),
            history_start: self.histories.history(task).len(),
            only: None,
        };
        // A child inherits the count of automatic answers from its caller.
        let chain_depth = caller
            .and_then(|caller| self.frames.get(&caller))
            .map_or(self.cx.opening.chain_depth, |caller| caller.counters().chain_depth);
        let counters = FrameCounters::new(task_setup.and_then(|task| task.turns), chain_depth);
        let frame = Frame::new(activation, state_of_new(self.cx, caller.is_some()), counters);
        self.frames.insert(id, frame);
        if let Some(task_setup) = task_setup {
            let caller =
                caller.and_then(|caller| self.frames.get(&caller)).map(|frame| frame.task.clone());
            self.cx.notify(Notice::TaskStarted {
                task: task.clone(),
                agent: task_setup.agent.clone(),
                caller,
            });
        }
        id
    }

    /// Calls a sub-task with the pending message, which its agent sees as the user's (L-051b,
    /// L-160).
    fn ask_subtask(&mut self, id: FrameId, name: &TaskName) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (pending, inputs, caller) =
            (frame.turn().pending.clone(), Arc::clone(&frame.inputs), frame.task.clone());
        let (one_call, rules) = (!task.allow_subtask_multi_tools, task.rules());
        let recipient =
            pending.as_ref().and_then(|message| message.recipient.as_deref()).unwrap_or_default();
        let resets = self.cx.setup.tasks.get(name).is_some_and(|task| task.restart_as_subtask);
        if resets && rules.resets_before_recipient_check {
            self.histories.reset(self.cx, name);
        }
        // L-071: a message to the whole task is for its sub-tasks too.
        let for_all =
            rules.task_messages_reach_subtasks && recipient.eq_ignore_ascii_case(caller.as_str());
        if !(recipient.is_empty() || recipient.eq_ignore_ascii_case(name.as_str()) || for_all) {
            return Some(FrameWait::Ready(None));
        }
        if one_call
            && pending
                .as_ref()
                .is_some_and(|message| message.tool_calls.len() > 1 && message.tools.len() > 1)
        {
            let refusal = one_call_at_a_time(self.cx, pending.as_ref()?, name);
            return Some(FrameWait::Ready(Some(refusal)));
        }
        if resets && !rules.resets_before_recipient_check {
            self.histories.reset(self.cx, name);
        }
        let text = pending.as_ref().map(|message| message.text());
        let inputs = self
            .cx
            .setup
            .tasks
            .get(name)
            .map_or(Arc::clone(&inputs), |task| with_message(task, Arc::clone(&inputs), text));
        let child = self.new_frame(name, Some(id), inputs);
        if pending.as_ref().is_some_and(|pending| pending.sender == Role::Llm) {
            limit_child(self.frames, id, child);
        }
        match pending {
            Some(pending) => {
                let mut message = self.cx.stamp(Role::User, caller.as_str());
                message.content.clone_from(&pending.content);
                message.attachments.clone_from(&pending.attachments);
                message.tool_calls.clone_from(&pending.tool_calls);
                message.tools.clone_from(&pending.tools);
                message.value.clone_from(&pending.value);
                message.recipient = pending.recipient.clone().filter(|_| !for_all);
                message.labels.clone_from(&pending.labels);
                message.from_agent = pending.from_agent;
                message.led_by.clone_from(&pending.led_by);
                // The caller's message now links to this copy, in place of any earlier child
                // (L-051b).
                message.parent = self
                    .histories
                    .links
                    .get(&pending.seq)
                    .and_then(|link| link.parent)
                    .or(Some(pending.seq));
                self.histories.link(&pending).child = Some(message.seq);
                self.put_pending(child, Responder::User, message);
            }
            None => self.begin_with_last_entry(child),
        }
        self.frames.runnable.push_back(child);
        Some(FrameWait::Subtask(child))
    }

    /// Makes the message pending that was so at the end of the requested turns of the run before,
    /// or else the newest entry of the task's history, for a frame that began without a message
    /// (L-051a). With an empty history nothing is pending.
    pub(super) fn begin_with_last_entry(&mut self, id: FrameId) {
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let memory = self.histories.memory(self.cx, &task);
        if let Some(by) = memory.left_by.take() {
            let pending = memory.left_pending.take();
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.set_pending(pending, by);
            }
            return;
        }
        let Some(last) = newest_said(&self.histories.history(&task)).cloned() else {
            let outlives = self
                .frames
                .task_of(self.cx, id)
                .is_some_and(|(_, task)| task.rules().pending_outlives_activation);
            let pending =
                self.histories.memory(self.cx, &task).left_pending.clone().filter(|_| outlives);
            if let Some(frame) = self.frames.get_mut(&id) {
                let sender = frame.turn().pending_sender.clone();
                frame.set_pending(pending, sender);
            }
            return;
        };
        let last = self.histories.message(last.seq).cloned().unwrap_or(last);
        if let Some(frame) = self.frames.get_mut(&id) {
            let sender = Responder::of(last.sender);
            frame.set_pending(Some(last), sender);
        }
    }

    /// Turns an agent's turn into its message, and writes it to the history.
    fn take_turn(
        &mut self,
        id: FrameId,
        turn: Turn,
        incomplete: Option<IncompleteAnswer>,
    ) -> Option<(Responder, Arc<Message>)> {
        let frame = self.frames.get_mut(&id)?;
        frame.count_turn();
        frame.past_actions.clear();
        // Only consecutive faults give an agent up.
        frame.forgive_faults();
        let answered = frame.turn().pending.clone();
        let turn = Turn { action: turn.action.typed(), ..turn };
        if let Some(refused) = self.refuse_finish(id, &turn) {
            return Some(refused);
        }
        if let Some(refused) = self.take_delegated_turns(id, &turn) {
            return Some(refused);
        }
        self.frames.keep_outputs(id, &turn.action);
        let message = self.turn_message(id, turn, incomplete).map(Arc::new);
        if let Some(message) = &message {
            // The history holds the agent's original message. Routing may replace it below.
            self.write_history(id, message);
        }
        // The agent has read the whole result by now.
        if let Some(answered) = answered {
            self.shorten_answered(id, &answered);
        }
        let message = message.map(|message| say_if_filtered(incomplete, message));
        self.frames.admit_reply(self.cx, id, message)
    }
}

/// The tasks that a task's agent may hand work to: its sub-tasks and its delegates.
pub(super) fn peers(cx: &RoomContext, task: &TaskName) -> Vec<Peer> {
    let Some((name, task)) = cx.setup.tasks.get_key_value(task) else { return Vec::new() };
    let granted = cx.setup.rights_in(&task.agent, name).filter(|rights| {
        rights.manifest.ask(crate::types::capability::Capability::Delegate).is_some()
    });
    let delegates = granted
        .and_then(|rights| rights.grants.delegate.as_ref())
        .map_or(&[][..], |grant| &grant.tasks);
    let allowed_delegates = delegates
        .iter()
        .filter(|other| granted.is_none_or(|rights| rights.leaves_delegate(other).is_ok()));
    let names =
        task.subtasks.iter().chain(allowed_delegates.filter(|name| !task.subtasks.contains(name)));
    names.map(|name| Peer { name: name.clone(), description: description(cx, name) }).collect()
}

fn description(cx: &RoomContext, task: &TaskName) -> String {
    cx.setup.tasks.get(task).map(|task| task.description.clone()).unwrap_or_default()
}

/// Returns the refusal of several calls for a sub-task that takes one at a time (L-123).
fn one_call_at_a_time(
    cx: &mut RoomContext,
    pending: &Arc<Message>,
    name: &TaskName,
) -> Arc<Message> {
    let text = format!("{name} takes one call at a time; none was passed on");
    let mut message = cx.stamp(Role::User, name.as_str());
    message.tool_results =
        pending.tool_calls.iter().map(|call| failed(call, text.clone())).collect();
    Arc::new(message)
}

impl StepLoop<'_> {
    /// Advances every runnable frame: a new child, a caller whose child has ended, a step with an
    /// answer.
    pub(super) fn run(&mut self) {
        // A violated invariant ends the room; what is runnable then rests on broken state.
        while self.cx.new_violation.is_none()
            && let Some(id) = self.frames.runnable.pop_front()
        {
            self.advance(id);
        }
    }

    /// Advances a frame until it waits or ends.
    fn advance(&mut self, id: FrameId) {
        loop {
            // The frame may have ended in the last pass, by its own step or by another frame.
            let Some(frame) = self.frames.get_mut(&id).filter(|_| self.cx.new_violation.is_none())
            else {
                return;
            };
            if *frame.state() == FrameState::Entering {
                self.check_first_message(id);
            }
            let Some(frame) = self.frames.get_mut(&id).filter(|frame| !frame.state().waits())
            else {
                return;
            };
            match frame.take_attempt() {
                None if frame.only.is_some() => self.ask_single_role(id),
                None => self.begin_step(id),
                Some(Attempt { wait: FrameWait::Ready(answer), .. }) if frame.only.is_some() => {
                    self.role_answered(id, answer)
                }
                Some(Attempt { wait: FrameWait::Ready(answer), responder, rest, do_not_know }) => {
                    self.answered(id, responder, answer, rest, do_not_know);
                }
                Some(Attempt { rest, do_not_know, .. }) => self.try_next(id, rest, do_not_know),
            }
        }
    }

    fn begin_step(&mut self, id: FrameId) {
        let Some((frame, _)) = self.frames.task_of(self.cx, id) else {
            self.run_control()
                .end_frame(id, FrameEnd::new(Status::Error, "the config has no such task"));
            return;
        };
        let recipient = frame
            .turn()
            .pending
            .as_ref()
            .and_then(|message| message.recipient.clone())
            .unwrap_or_default();
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.begin_step();
        }
        if is_valid_recipient(self.frames, self.cx, id, &recipient) {
            let rest = self.dialogue().order(id);
            self.frames.ask(
                self.cx,
                id,
                Attempt {
                    responder: Responder::User,
                    rest,
                    wait: FrameWait::Next,
                    do_not_know: None,
                },
            );
        } else {
            // L-053: the agent gets a chance to correct itself.
            let text = format!("Invalid recipient: {recipient}");
            let message = match self.frames.get(&id).and_then(|frame| frame.turn().pending.clone())
            {
                Some(pending) => self.frames.refusal_message(self.cx, id, &pending, text),
                None => self.frames.error_message(self.cx, id, text),
            };
            self.post(id, Responder::Agent, message, false);
        }
    }

    /// Asks the next responder that may answer (L-054).
    fn try_next(
        &mut self,
        id: FrameId,
        mut rest: Responders,
        do_not_know: Option<(Responder, Arc<Message>)>,
    ) {
        loop {
            if rest.is_empty() {
                return self.no_valid_answer(id, do_not_know, false);
            }
            let responder = rest.remove(0);
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.note_pass(false);
            }
            if let Some(reason) = self.dialogue().skip_reason(id, &responder) {
                if let Some(frame) = self.frames.get_mut(&id) {
                    frame.pass_over(&responder, reason);
                }
                continue;
            }
            let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
                return self.cx.violated(Invariant::FrameExists, id);
            };
            // L-052: set before the call, so that it also holds without an answer.
            self.histories.memory(self.cx, &task).human_tried = responder == Responder::User;
            let is_taken = responder.role().is_none_or(|role| {
                self.frames
                    .task_of(self.cx, id)
                    .is_some_and(|(_, task)| task.responders.contains(&role))
            });
            let wait = match &responder {
                _ if !is_taken => Some(FrameWait::Ready(None)),
                Responder::Agent => return self.ask_agent_role(id, rest, do_not_know),
                Responder::Llm => self.ask_llm_role(id),
                Responder::User => self.ask_user(id),
                Responder::Subtask(name) => self.dialogue().ask_subtask(id, name),
                Responder::System => Some(FrameWait::Ready(None)),
            };
            if let Some(wait) = self.waits_or_ended(id, wait) {
                let attempt = Attempt { responder, rest, wait, do_not_know };
                self.frames.ask(self.cx, id, attempt);
            }
            return;
        }
    }

    /// Asks the agent role.
    fn ask_agent_role(
        &mut self,
        id: FrameId,
        rest: Responders,
        do_not_know: Option<(Responder, Arc<Message>)>,
    ) {
        let (responder, wait) = (Responder::Agent, FrameWait::Next);
        // Before the role is asked, because a round works in the frame's attempt.
        self.frames.ask(self.cx, id, Attempt { responder, rest, wait, do_not_know });
        self.tool_rounds().ask_agent_role(id);
    }

    /// Returns the wait for a responder; `None` if asking it has ended the frame.
    fn waits_or_ended(&mut self, id: FrameId, wait: Option<FrameWait>) -> Option<FrameWait> {
        // A frame that neither waits nor has ended would begin the same step without end.
        if wait.is_none() && self.frames.get(&id).is_some() {
            self.cx.violated(Invariant::FrameExists, id);
        }
        wait
    }

    /// Asks the one role that the room was opened for.
    fn ask_single_role(&mut self, id: FrameId) {
        let Some(only) = self.frames.get(&id).and_then(|frame| frame.only.clone()) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let wait = match only.role {
            Role::Agent => return self.ask_agent_role(id, Responders::new(), None),
            Role::Llm => self.ask_llm_role(id),
            Role::User => self.ask_user(id),
            Role::System => Some(FrameWait::Ready(None)),
        };
        let Some(wait) = self.waits_or_ended(id, wait) else { return };
        let (responder, rest) = (Responder::of(only.role), Responders::new());
        self.frames.ask(self.cx, id, Attempt { responder, rest, wait, do_not_know: None });
    }

    /// Takes the answer of the one role, and asks it again with its own answer if turns are left.
    fn role_answered(&mut self, id: FrameId, answer: Option<Arc<Message>>) {
        let answer = answer.map(|message| self.dialogue().with_calls(id, message));
        let frame = self.frames.get_mut(&id);
        let Some((frame, only)) =
            frame.and_then(|frame| frame.count_role_answer().map(|only| (frame, only)))
        else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let goes_on = only.times > 0 && answer.is_some();
        frame.set_pending(answer.clone(), Responder::of(only.role));
        frame.count_step();
        report_step(self.frames, self.cx, id);
        if !goes_on {
            let reason =
                if answer.is_some() { "the role answered" } else { "the role had no answer" };
            self.run_control().end_frame(id, FrameEnd::new(Status::Done, reason));
        }
    }

    /// Asks the role `llm`: the task's agent takes a step. `Ready(None)` if a model has nothing to
    /// answer, `Budget` if the step waits for more of it, `None` if this ended the frame.
    fn ask_llm_role(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (pending, name) = (frame.turn().pending.clone(), frame.task.clone());
        let user_message = task.user_message.clone();
        // L-022: no agent answers a message whose calls the host should carry out.
        let is_for_host = pending
            .as_ref()
            .is_some_and(|message| message.action.is_some() && message.sender == Role::Llm);
        if is_for_host || !self.dialogue().reading(id).own.is_empty() {
            return Some(FrameWait::Ready(None));
        }
        // Checked before anything is written: a held step must leave the history as it is.
        match self.plugin_calls().must_wait_for(Budget::Turns) {
            Ok(true) => return Some(FrameWait::Budget),
            Ok(false) => {}
            Err(budget) => {
                self.run_control().stop_for_lack(BudgetShortage::of_used_up(budget));
                return None;
            }
        }
        // Output of background commands precedes the pending message, unless that is written
        // already.
        let is_written = self.dialogue().write_job_output(id);
        match &pending {
            // L-010: the message holds nothing that a model could answer.
            Some(pending) if !is_written && !self.dialogue().write_history(id, pending) => {
                return Some(FrameWait::Ready(None));
            }
            Some(_) => {}
            None => {
                // L-023: the agent's last answer is generated anew.
                let length = self.histories.memory(self.cx, &name).history().len();
                self.histories.clear_history(&name, length.saturating_sub(1));
                self.histories.begin_history(self.cx, &name, user_message);
            }
        }
        // A turn counts when it begins, so a failed step costs one too.
        self.budgets.spent.turns = self.budgets.spent.turns.saturating_add(1);
        // O-123: a history that is too long is condensed before the step.
        self.dialogue().condense_first(id).or_else(|| self.start_step(id))
    }

    /// Begins the agent's step, after adding the messages and results that arrived meanwhile.
    pub(super) fn start_step(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        self.read_user_messages(id);
        self.read_inbox(id);
        if let Some(turn) = replayed(self.frames, self.cx, id) {
            let answer = self.dialogue().take_turn(id, turn, None);
            return Some(FrameWait::Ready(answer.map(|(_, message)| message)));
        }
        let call = self.cx.next_call(Purpose::Step { frame: id });
        self.cx.notify(Notice::StepStarted { call, task: name.clone(), agent: agent.clone() });
        self.cx.effects.push_back(Effect::StepAgent { call, frame: id, task: name, agent });
        Some(FrameWait::Call(call))
    }

    fn ask_user(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        if let Some(text) = task.default_human_response.clone() {
            let answer = self.user_said(id, text, Vec::new(), UserSeat::Person);
            return Some(FrameWait::Ready(answer));
        }
        // Results put to the agent are not shown to the user.
        let pending =
            frame.turn().pending.as_ref().filter(|message| !super::delivery::is_data(message));
        let prompt = pending.map(|message| message.text().to_owned()).unwrap_or_default();
        if let Some(user) = task.simulated_user.clone() {
            let query = PluginQuery::AnswerAsUser { prompt };
            let about = QueryPurpose::AnswerAsUser;
            return consult(self.frames, self.cx, id, &user, query, about).map(FrameWait::Call);
        }
        self.check_question(id, prompt)
    }

    /// Puts a question to the user.
    pub(super) fn put_question(&mut self, id: FrameId, prompt: String) -> Option<FrameWait> {
        let task = self.frames.get(&id)?.task.clone();
        let channel = self.cx.opening.channel.clone();
        let call = self.cx.next_call(Purpose::User { frame: id });
        self.channels.report_question(self.cx, &channel, &prompt);
        self.cx.effects.push_back(Effect::AskUser { call, task, channel, prompt });
        Some(FrameWait::Call(call))
    }

    /// Returns the user's answer as a message; `None` if it is empty and the user was not addressed
    /// (L-029).
    pub(super) fn user_said(
        &mut self,
        id: FrameId,
        text: String,
        attachments: Vec<Blob>,
        by: UserSeat,
    ) -> Option<Arc<Message>> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let recipient =
            frame.turn().pending.as_ref().and_then(|pending| pending.recipient.as_deref());
        let is_addressed = recipient.and_then(Role::from_name) == Some(Role::User);
        let host_word = task.text_rules.system_word && by == UserSeat::Person;
        let rules = task.rules();
        let otherwise = task.default_human_response.clone().filter(|text| !text.trim().is_empty());
        let mut text = text;
        if text.trim().is_empty() && attachments.is_empty() {
            if !is_addressed {
                return None;
            }
            text = otherwise.unwrap_or_else(|| "null".to_owned());
        }
        let mut message = match text.trim().strip_prefix("SYSTEM").filter(|_| host_word) {
            Some(rest) => {
                let mut message = self.cx.stamp(Role::System, "user");
                message.content = Some(rest.replace("SYSTEM", "").trim().to_owned());
                // L-170: a person wrote it, under any name.
                let taint = rules.system_word_is_untrusted.then_some(Label::Untrusted);
                message.labels.extend(taint);
                message
            }
            None => self.handoffs.user_message(self.cx, text),
        };
        message.attachments = attachments;
        Some(Arc::new(message))
    }

    pub(super) fn agent_stepped(&mut self, id: FrameId, call: CallId, answer: Result<Turn, Fault>) {
        // Removed in any case, or the sets would grow with abandoned steps.
        let lacked_model = self.models.without_model.remove(&call);
        let incomplete = self.models.incomplete.remove(&call);
        let does_not_fit = self.models.does_not_fit.remove(&call);
        if !self.frames.waits_for_answer(self.cx, id, call) {
            return;
        }
        let message = match answer {
            Ok(turn) => {
                self.dialogue().forget_refusal(id);
                self.dialogue().take_turn(id, turn, incomplete)
            }
            Err(fault) => {
                // The step is repeated with a shorter history.
                if does_not_fit && let Some(wait) = self.dialogue().condense_refused(id) {
                    return self.frames.set_wait(self.cx, id, wait);
                }
                if let Some(frame) = self.frames.get_mut(&id) {
                    frame.count_turn();
                    frame.past_actions.clear();
                }
                let Some(message) = self.agent_faulted(id, call, &fault, lacked_model) else {
                    return;
                };
                Some((Responder::Agent, message))
            }
        };
        self.frames.ready(self.cx, id, message);
    }

    pub(super) fn agent_responded(
        &mut self,
        id: FrameId,
        call: CallId,
        answer: Result<Option<Turn>, Fault>,
    ) {
        let lacked_model = self.models.without_model.remove(&call);
        self.models.incomplete.remove(&call);
        self.models.does_not_fit.remove(&call);
        if !self.frames.waits_for_answer(self.cx, id, call) {
            return;
        }
        let message = match answer {
            // An answer of the component costs a turn, from either of its exports. Otherwise two
            // responders could talk without limit.
            Ok(Some(_))
                if self.budgets.is_used_up(self.cx, self.frames, self.histories, Budget::Turns)
                    && !self.cx.asks_for_more() =>
            {
                self.run_control().stop_for_lack(BudgetShortage::of_used_up(Budget::Turns));
                return;
            }
            Ok(turn) => {
                self.budgets.spent.turns =
                    self.budgets.spent.turns.saturating_add(u64::from(turn.is_some()));
                // An answer is progress; declining to answer is not.
                if turn.is_some() {
                    self.cx.idle_steps = 0;
                }
                self.responded(id, turn);
                self.frames.runnable.push_back(id);
                return;
            }
            Err(fault) => {
                let Some(message) = self.agent_faulted(id, call, &fault, lacked_model) else {
                    return;
                };
                Some((Responder::Agent, message))
            }
        };
        self.frames.ready(self.cx, id, message);
    }

    /// Takes the component's own answer; without one, applies the operator's rule for messages
    /// without a call.
    fn responded(&mut self, id: FrameId, turn: Option<Turn>) {
        if let Some(turn) = &turn {
            self.frames.keep_outputs(id, &turn.action);
        }
        let message =
            turn.and_then(|turn| self.dialogue().turn_message(id, turn, None)).map(Arc::new);
        let Some((_, message)) = self.frames.admit_reply(self.cx, id, message) else {
            return self.tool_rounds().without_tool(id);
        };
        if !message.tool_calls.is_empty() {
            return self.tool_rounds().respond_with_calls(id, &message.tool_calls);
        }
        let mut message = Arc::unwrap_or_clone(message);
        message.sender = Role::Agent;
        message.from_agent = false;
        if let Some(pending) =
            self.frames.get(&id).and_then(|frame| frame.turn().pending.as_deref())
        {
            // L-172: an answer to external text may repeat it.
            message.labels = super::tools::taint_of(pending);
        }
        self.frames.set_wait(self.cx, id, FrameWait::Ready(Some(Arc::new(message))));
    }

    /// Turns a failed step into an observation (O-072). Gives up the task after several in a row.
    fn agent_faulted(
        &mut self,
        id: FrameId,
        call: CallId,
        fault: &Fault,
        lacked_model: bool,
    ) -> Option<Arc<Message>> {
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return None;
        };
        let (agent, interactive) = (task.agent.clone(), task.interactive);
        self.cx.notify(Notice::PluginFaulted { call, plugin: agent.clone(), fault: fault.clone() });
        // The agent cannot proceed without this budget, and its next step would fail for the same
        // reason.
        if let Some(short) = self.budgets.out_of_budget.remove(&call) {
            self.run_control().stop_for_lack(short);
            return None;
        }
        // The model client has already retried. The agent's next step would show the failure to the
        // model as a message.
        if lacked_model && !interactive {
            let reason = format!("the model of {agent} did not answer: {}", fault.message);
            self.run_control().end_frame(id, FrameEnd::of_fault(reason));
            return None;
        }
        let Some(frame) = self.frames.get_mut(&id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return None;
        };
        if frame.count_fault() >= MAX_FAULTS {
            let reason = format!(
                "{agent} failed {MAX_FAULTS} times in a row; the last time: {}",
                fault.message
            );
            self.run_control().end_frame(id, FrameEnd::of_fault(reason));
            return None;
        }
        let to_answer = frame.to_answer().cloned();
        let text = format!("The step of {agent} failed: {}", fault.message);
        let report = self.frames.error_message(self.cx, id, text);
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.note_unanswered(report.seq, to_answer);
        }
        Some(report)
    }

    pub(super) fn user_answered(
        &mut self,
        call: CallId,
        text: Option<String>,
        attachments: Vec<Blob>,
    ) {
        let Some(Purpose::User { frame }) = self.cx.calls.get(&call) else { return };
        let frame = *frame;
        self.cx.calls.remove(&call);
        if !self.frames.waits_for_answer(self.cx, frame, call) {
            return;
        }
        if text.as_ref().is_some_and(|text| !text.trim().is_empty()) || !attachments.is_empty() {
            self.cx.idle_steps = 0;
        }
        let Some((_, task)) = self.frames.task_of(self.cx, frame) else {
            return self.cx.violated(Invariant::FrameExists, frame);
        };
        let is_silent = text.is_none() && task.rules().absent_user_is_silent;
        let text = if is_silent { Some(String::new()) } else { text };
        if let Some(frame) = self.frames.get_mut(&frame) {
            frame.note_absence(text.is_none());
        }
        let message = text
            .and_then(|text| self.user_said(frame, text, attachments, UserSeat::Person))
            .map(|message| (Responder::User, message));
        if message.is_some()
            && let Some(frame) = self.frames.get_mut(&frame)
        {
            // A user who has read of a fault and still answers wants another try, so the count
            // starts anew (O-072).
            frame.forgive_faults();
            frame.work_at_depth(self.cx.opening.chain_depth);
        }
        self.frames.ready(self.cx, frame, message);
    }
}

impl PluginCalls<'_> {
    pub(super) fn ask_responder(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let plugin = self.cx.setup.plugins.get(&agent)?;
        if !plugin.facts.kinds.contains(&PluginKind::Responder) {
            return None;
        }
        // If it may not answer any more, `agent_responded` finds that out: the responder may
        // decline to answer, which costs no turn.
        if self.cx.asks_for_more() && self.must_wait_for(Budget::Turns) == Ok(true) {
            return Some(FrameWait::Budget);
        }
        let call = self.cx.next_call(Purpose::Respond { frame: id });
        self.cx.notify(Notice::StepStarted { call, task: name.clone(), agent: agent.clone() });
        self.cx.effects.push_back(Effect::AskResponder { call, frame: id, task: name, agent });
        Some(FrameWait::Call(call))
    }
}

impl Frames {
    /// Keeps the outputs of a finish or reject action for the agent to read, even if the action
    /// does not end its task (O-022, O-023).
    fn keep_outputs(&mut self, id: FrameId, action: &Action) {
        if let (Action::Finish { outputs } | Action::Reject { outputs }, Some(frame)) =
            (action, self.get_mut(&id))
        {
            frame.acting.outputs.clone_from(outputs);
        }
    }

    /// Checks the recipient of an answer before the message is read. Without a grant, the agent
    /// gets a refusal.
    fn admit_reply(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        message: Option<Arc<Message>>,
    ) -> Option<(Responder, Arc<Message>)> {
        let message = message?;
        match self.check_route(cx, id, &message) {
            Ok(()) => Some((Responder::Llm, message)),
            Err(record) => {
                let agent = self.agent_of(cx, id)?.clone();
                let text = cx.denied(&agent, *record);
                Some((Responder::Agent, self.refusal_message(cx, id, &message, text)))
            }
        }
    }
}
