//! Judging an answer (L-054…L-062): whether it is valid, whether it ends the task, and what becomes
//! pending. `steps` decides which responder is asked.

use std::sync::Arc;

use super::{MAX_CALLS, MAX_IDLE, MAX_WEIGHT};
use crate::protocol::notice::{Notice, SkipReason};
use crate::room::state::closing::FrameEnd;
use crate::room::state::frame_state::{Attempt, FrameWait, Responders, RuledAnswer};
use crate::room::state::responder::Responder;
use crate::room::{Dialogue, Frames, Invariant, RoomContext, StepLoop};
use crate::setup::{Setup, TaskSetup};
use crate::tool_calls::routing::PASS;
use crate::tool_calls::toolbox::ToolTarget;
use crate::types::ids::{FrameId, TaskName};
use crate::types::message::{DO_NOT_KNOW, Label, Message, Role, ToolCall};
use crate::types::outcome::Status;

impl Dialogue<'_> {
    /// Attaches the calls in an answer that this task carries out (L-108): the agent's own, and
    /// those that a sub-task passes on.
    pub(in crate::room) fn with_calls(
        &mut self,
        id: FrameId,
        mut message: Arc<Message>,
    ) -> Arc<Message> {
        if message.tools.is_empty() && message.action.is_none() {
            let reading = self.reading_of(id, &message);
            if !reading.own.is_empty() {
                Arc::make_mut(&mut message).tools.clone_from(&reading.own);
            }
        }
        message
    }
}

/// The bytes that an answer of a task may weigh: more than others, if it calls a tool whose plugin
/// takes large arguments (`limits.arguments`).
fn weight_limit(setup: &Setup, task: &TaskSetup, message: &Message) -> usize {
    let argument_limit = |call: &ToolCall| {
        let ToolTarget::Plugin { plugin, .. } = &task.toolbox.get(&call.name)?.target else {
            return None;
        };
        Some(setup.plugins.get(plugin)?.limits.arguments)
    };
    let largest = message.tool_calls.iter().chain(&message.tools).filter_map(argument_limit).max();
    let largest = usize::try_from(largest.unwrap_or_default()).unwrap_or(usize::MAX);
    // A call counts as the provider's and as the task's; what it exceeds is refused by name.
    MAX_WEIGHT.saturating_add(largest.saturating_mul(2))
}

/// Replaces an answer over the size limits with a refusal. Answers that repeat their question,
/// or calls that hold calls, could double with every step.
fn bounded(
    frames: &mut Frames,
    cx: &mut RoomContext,
    id: FrameId,
    message: Arc<Message>,
) -> Arc<Message> {
    let (weight, calls) = (message.weight(), message.tools.len());
    let task = frames.task_of(cx, id).map(|(_, task)| task);
    let most = task.map_or(MAX_WEIGHT, |task| weight_limit(&cx.setup, task, &message));
    if weight <= most && calls <= MAX_CALLS {
        return message;
    }
    let text = format!(
        "The answer was dropped: {weight} bytes and {calls} calls; {most} bytes and {MAX_CALLS} calls are allowed."
    );
    frames.refusal_message(cx, id, &message, text)
}

fn count_pending(frames: &mut Frames, cx: &mut RoomContext, id: FrameId) {
    let Some((_, task)) = frames.task_of(cx, id) else {
        return cx.violated(Invariant::FrameExists, id);
    };
    let rules = task.loop_detection;
    if let Some(frame) = frames.get_mut(&id) {
        frame.count_pending(&rules);
    }
}

pub(in crate::room) fn report_step(frames: &mut Frames, cx: &mut RoomContext, id: FrameId) {
    let Some(frame) = frames.get_mut(&id) else {
        return cx.violated(Invariant::FrameExists, id);
    };
    let by = frame.turn().pending_sender.label();
    let mut skipped = frame.take_skipped();
    // An answer that did not count at first may be the one that counts in the end.
    skipped.retain(|one| one.reason != SkipReason::NoAnswer || one.responder != by);
    let (task, message) = (frame.task.clone(), frame.turn().pending.clone());
    cx.notify(Notice::StepEnded { task, by, message, skipped });
}

impl StepLoop<'_> {
    /// Judges an answer (L-054, L-056).
    pub(in crate::room) fn answered(
        &mut self,
        id: FrameId,
        responder: Responder,
        answer: Option<Arc<Message>>,
        rest: Responders,
        mut do_not_know: Option<(Responder, Arc<Message>)>,
    ) {
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        // Checks for calls attach the calls that they find.
        let looks = task.done_if_tool || !task.done_sequences.is_empty();
        let is_read = |message: &Message| {
            looks || message.sender == Role::Llm || matches!(responder, Responder::Subtask(_))
        };
        let answer = answer.map(|message| {
            if is_read(&message) { self.dialogue().with_calls(id, message) } else { message }
        });
        let answer = answer.map(|message| bounded(self.frames, self.cx, id, message));
        let routed = answer.map(|message| self.dialogue().routed(id, &responder, message));
        let passes = routed.as_ref().is_some_and(|(_, passes)| *passes);
        let answer = routed.map(|(message, _)| message);
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let task = Arc::clone(task);
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.note_pass(passes);
        }
        let unknown = answer.as_ref().is_some_and(|message| leaves_it_to_others(message, &task));
        if let Some(message) = answer.as_ref().filter(|_| unknown) {
            do_not_know = Some((responder.clone(), Arc::clone(message)));
        }
        // If only the user ends the task, the answer ends nothing, and the other roles are still
        // asked.
        let is_idle =
            !task.rules().done_response_ends_any_step && self.dialogue().only_user_ends(id);
        let ends = !is_idle
            && self.histories.is_done_response(
                self.cx,
                self.frames,
                id,
                answer.as_deref(),
                &responder,
            );
        let ending = answer.as_ref().and_then(|message| {
            self.dialogue().find_end(id, Some(message), Some(&responder), ends)
        });
        let is_done = ending.is_some();
        // The user's goodbye is no judge's, and an accepted handoff precedes all checks.
        let is_settled = ending.is_some_and(|ending| ending.status == Status::UserQuit)
            || self.handoffs.is_agreed(id);
        let judge = task.judge.as_ref().filter(|_| !is_settled);
        let counts = |message: &Message| is_done || !(unknown || is_empty(message, &task));
        let valid = answer.as_deref().is_some_and(counts);
        match (answer, judge) {
            (Some(message), Some(judge)) => {
                let attempt = Attempt { responder, rest, wait: FrameWait::Next, do_not_know };
                let answer = RuledAnswer { message, valid, ends, is_done };
                self.ask_judge(id, judge, attempt, answer);
            }
            (Some(message), None) if valid => self.post(id, responder, message, ends),
            _ if ends => self.no_valid_answer(id, do_not_know, true),
            _ => {
                if let Some(frame) = self.frames.get_mut(&id) {
                    frame.pass_over(&responder, SkipReason::NoAnswer);
                }
                let attempt = Attempt { responder, rest, wait: FrameWait::Next, do_not_know };
                self.frames.ask(self.cx, id, attempt);
            }
        }
    }

    /// Makes a valid answer the pending message (L-059), unless it only passes the pending one on.
    pub(in crate::room) fn post(
        &mut self,
        id: FrameId,
        responder: Responder,
        message: Arc<Message>,
        ends: bool,
    ) {
        let is_tools_word =
            self.frames.task_of(self.cx, id).is_some_and(|(_, task)| is_data(&message, task));
        let Some(frame) = self.frames.get_mut(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (parent, step) = (frame.turn().pending.clone(), frame.counters().steps);
        let mut message = message;
        if let Some(parent) = parent.as_ref().filter(|_| message.parent.is_none()) {
            Arc::make_mut(&mut message).parent = Some(parent.seq);
        }
        // Tool results are data, so DO-NOT-KNOW in one is not an answer.
        if !is_tools_word {
            frame.loops.answered(&message, step);
        }
        frame.note_responder(responder.clone());
        let passes = frame.turn().passes;
        if passes {
            // Passing on is no progress, so a task that only passes stalls in the end.
            let (task, stalled) = (frame.task.clone(), frame.count_stall());
            let of = self.cx.setup.tasks.get(&task).map_or(0, |task| task.max_stalled_steps);
            // The message was passed on, so no list is reported.
            let skipped = Vec::new();
            self.cx.notices.push_back(Notice::StepStalled { task, stalled, of, skipped });
        } else {
            // L-060: a message may carry another role's label; then that role may not answer it.
            let sender = match &responder {
                Responder::Subtask(_) => responder.clone(),
                _ if parent.is_none() => responder.clone(),
                _ => Responder::of(message.sender),
            };
            if message.sender == Role::User && sender == Responder::User {
                frame.hear_user(Arc::clone(&message));
            }
            frame.set_pending(Some(Arc::clone(&message)), sender);
            frame.end_stall();
        }
        self.histories.link(&message).message = Some(Arc::clone(&message));
        if let Some(parent) = &parent {
            self.histories.link(parent).child.get_or_insert(message.seq);
        }
        let task =
            self.frames.get(&id).map_or_else(|| TaskName::from(""), |frame| frame.task.clone());
        if let Some(agent) = self.frames.agent_of(self.cx, id).cloned().filter(|_| !passes) {
            self.cx.notify(Notice::MessagePosted { task, agent, message: Arc::clone(&message) });
        }
        let is_overruled = !passes
            && self.frames.get(&id).is_some_and(|frame| frame.turn().ruled_done == Some(false));
        if is_overruled
            || self.dialogue().only_user_ends(id)
                && self.histories.is_done_response(
                    self.cx,
                    self.frames,
                    id,
                    Some(&message),
                    &responder,
                )
        {
            // L-061: the signal is removed, so that it ends nothing later either.
            self.dialogue().strip_endings(id);
        }
        if !message.tool_results.is_empty()
            && self
                .frames
                .task_of(self.cx, id)
                .is_some_and(|(_, task)| task.rules().every_call_gets_result)
        {
            // Needed even if another responder, or none, answers it. Otherwise the agent's history
            // would hold calls without results.
            self.dialogue().write_history(id, &message);
        }
        let waits = self.is_waiting(id, &message, parent.as_deref());
        if !waits {
            count_pending(self.frames, self.cx, id);
        }
        // Counted before the step ends, but acted on after it: a task that has just ended is not
        // stuck.
        let found = if passes {
            None
        } else if waits {
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.stuck_watch.record_wait();
            }
            None
        } else {
            self.dialogue().watch(id, &responder, &message, parent.as_ref())
        };
        self.finish_step(id, ends);
        if let Some(found) = found {
            self.run_control().respond_to_stuck(id, found);
        }
    }

    /// Ends a step without a valid answer (L-058): the last "I do not know" counts, or else the
    /// step is stalled.
    pub(in crate::room) fn no_valid_answer(
        &mut self,
        id: FrameId,
        do_not_know: Option<(Responder, Arc<Message>)>,
        ends: bool,
    ) {
        if let Some((responder, message)) = do_not_know {
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.rule_done(None);
            }
            self.post(id, responder, message, ends);
            return;
        }
        if let Some(message) = self.dialogue().unknown_tools(id) {
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.note_pass(false);
                frame.rule_done(None);
            }
            self.post(id, Responder::Agent, message, ends);
            return;
        }
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (of, allow_null) = (task.max_stalled_steps, task.allow_null_result);
        let Some(frame) = self.frames.get_mut(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        if frame.turn().is_unattended && !ends && !allow_null {
            // The next step would ask the same question, and get no answer either.
            return self.end_unattended(id);
        }
        let stalled = frame.count_stall();
        let (task, pending_sender, step) =
            (frame.task.clone(), frame.turn().pending_sender.clone(), frame.counters().steps);
        let (parent, passes) =
            (frame.turn().pending.as_ref().map(|pending| pending.seq), frame.turn().passes);
        if !ends {
            let skipped = self.frames.get(&id).map(|frame| frame.turn().skipped.clone());
            let mut skipped = skipped.unwrap_or_default();
            skipped.retain(|one| one.reason != SkipReason::NoAnswer);
            let task = task.clone();
            self.cx.notify(Notice::StepStalled { task, stalled, of, skipped });
        }
        if allow_null && !passes {
            let (sender, responder) = if pending_sender == Responder::User {
                (Role::Llm, Responder::Llm)
            } else {
                (Role::User, Responder::User)
            };
            let mut message = self.cx.stamp(sender, task.as_str());
            message.content = Some(DO_NOT_KNOW.to_owned());
            message.parent = parent;
            if let Some(frame) = self.frames.get_mut(&id) {
                // Not `put_pending`: it would replace the latest user message, and this one is the
                // host's.
                frame.loops.answered(&message, step);
                frame.set_pending(Some(Arc::new(message)), responder);
            }
            self.dialogue().keep_pending(id);
        }
        self.finish_step(id, ends);
    }

    /// Ends a task that asked its user while none is present.
    fn end_unattended(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (task, gated_question) = (frame.task.clone(), frame.turn().gated_question.clone());
        let question = frame
            .turn()
            .pending
            .as_ref()
            .filter(|pending| !super::super::delivery::is_data(pending));
        let question = question.map(|pending| pending.text().to_owned()).unwrap_or_default();
        let question = gated_question.unwrap_or(question);
        self.cx.notify(Notice::QuestionUnanswered { task: task.clone(), question });
        self.run_control().end_frame(id, FrameEnd::unattended(&task));
    }

    /// Ends a step, and the task if the step has ended it (L-050e, L-080…L-086).
    fn finish_step(&mut self, id: FrameId, ends: bool) {
        let Some(frame) = self.frames.get_mut(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        frame.count_step();
        frame.abandon_step();
        // Done sequences in `ending_of` include this answer.
        self.dialogue().remember_answer(id);
        report_step(self.frames, self.cx, id);
        self.cx.idle_steps += 1;
        if self.cx.idle_steps >= MAX_IDLE {
            self.run_control().stop(
                Status::InfLoop,
                &format!(
                    "{MAX_IDLE} steps in a row without a turn, a tool call or a user's answer"
                ),
            );
            return;
        }
        // A handoff precedes the checks: its frame ends with this step in any case.
        if self.perform_handoff(id) {
            return;
        }
        if let Some(ending) = self.dialogue().ending_of(id, ends) {
            self.run_control().end_frame(id, ending);
        }
    }
}

/// Whether the answer leaves the question to other responders (L-056, L-058). A tool's result never
/// does, because its text is data.
fn leaves_it_to_others(message: &Message, task: &TaskSetup) -> bool {
    if message.signal.is_some() || message.action.is_some() || is_data(message, task) {
        return false;
    }
    let text = message.text().trim();
    text.contains(DO_NOT_KNOW) && text.replace([',', '.', '!', '?', ':'], "") == DO_NOT_KNOW
}

/// Whether the message is a tool's text, and such text is data to the task.
fn is_data(message: &Message, task: &TaskSetup) -> bool {
    task.rules().tool_text_is_data
        && (message.labels.contains(&Label::Tool) || !message.tool_results.is_empty())
}

/// Whether the message holds nothing to answer (L-057).
pub(in crate::room) fn is_empty(message: &Message, task: &TaskSetup) -> bool {
    let says_only_pass = task.text_rules.signals && message.text().trim() == PASS;
    message.is_empty()
        || (says_only_pass
            && message.tool_calls.is_empty()
            && message.tools.is_empty()
            && message.tool_results.is_empty())
}
