//! Texts that pass between tasks of a run, and from the run to people: the first message of a
//! sub-task or delegate, its result, a question to the user, the run's answer, what an agent says
//! meanwhile, the summary of a handoff. Gates check them; a judge may replace a result first. The activation is held meanwhile.

use std::sync::Arc;

use serde_json::{Value, json};

use super::background::closing::shares_channels;
use super::background::slots::waits;
use super::gates::has_gate;
use super::messages::text_form;
use super::prompt_agent::own_system;
use super::queries::consult;
use super::state::closing::{Closing, FrameEnd};
use super::state::delegation::Waiter;
use super::state::frame::Frame;
use super::state::frame_state::{FrameState, FrameWait};
use super::state::gated::{GatedAct, Passage, PassageKind};
use super::state::responder::Responder;
use super::state::rounds::SlotState;
use super::termination::{failed_instead, has_answer};
use super::{
    Frames, GateChecks, Invariant, QueryPurpose, Room, RoomContext, RoomPhase, RunControl,
    StepLoop, ToolRounds,
};
use crate::protocol::notice::Notice;
use crate::setup::GatePoint;
use crate::setup::plugin_query::{PluginQuery, PluginReply, TaskEnding, TaskResult};
use crate::tool_calls::routing;
use crate::types::fault::{Fault, FaultKind};
use crate::types::ids::{FrameId, PluginName};
use crate::types::message::{Label, Message, ToolCall};
use crate::types::outcome::Status;

/// The next way out that a result takes through gates; `None` if nothing checks it any more. A
/// background task has its caller in another room, and people hear it on the channels that were
/// shared with it.
fn way_out(cx: &RoomContext, frame: &Frame) -> Option<PassageKind> {
    let in_run = frame.caller.is_some();
    let is_result = in_run || cx.opening.depth > 0;
    let is_heard = !in_run && (cx.opening.depth == 0 || shares_channels(cx));
    let passed = frame.closing().map_or(&[][..], |closing| &closing.passed);
    [(PassageKind::Result, is_result), (PassageKind::Answer, is_heard)]
        .into_iter()
        .filter(|(kind, is_taken)| *is_taken && !passed.contains(kind))
        .map(|(kind, _)| kind)
        .find(|kind| has_gate(cx, kind.point()))
}

/// Whether gates must still let a result pass, so that it cannot leave the frame.
pub(super) fn withholds_result(cx: &RoomContext, frame: &Frame) -> bool {
    way_out(cx, frame).is_some()
}

/// The state with which a new activation begins.
pub(super) fn state_of_new(cx: &RoomContext, has_caller: bool) -> FrameState {
    match has_caller && has_gate(cx, GatePoint::Subtask) {
        true => FrameState::Entering,
        false => FrameState::Idle,
    }
}

impl GateChecks<'_> {
    /// Lets the gates of its point check a passage; `passage_passed` or `passage_blocked` continues.
    pub(super) fn check_passage(&mut self, passage: Passage) {
        self.wait_for_gates(GatedAct::Passage { passage: Box::new(passage) });
    }
}

/// The facts of a passage besides its text.
pub(super) fn passage_facts(frames: &Frames, passage: &Passage) -> Value {
    let frame = frames.get(&passage.frame);
    let mut facts = json!({ "kind": passage.kind });
    if let Value::Object(more) = &passage.facts {
        for (key, value) in more {
            facts[key] = value.clone();
        }
    }
    let message = match passage.kind {
        PassageKind::Message | PassageKind::Question => {
            frame.and_then(|frame| frame.turn().pending.as_deref())
        }
        PassageKind::Result | PassageKind::Answer => {
            frame.and_then(Frame::closing).map(|closing| &closing.result)
        }
        PassageKind::Handoff | PassageKind::Talk => None,
    };
    if let (PassageKind::Message, Some(frame)) = (passage.kind, frame) {
        facts["inputs"] = Value::clone(&frame.inputs);
    }
    if let Some(message) = message {
        let attachments: Vec<&str> =
            message.attachments.iter().map(|blob| blob.media_type.as_str()).collect();
        let as_json = |call: &ToolCall| json!({ "name": call.name, "arguments": call.arguments });
        // A native call may be in both lists, and gates see it once.
        let of_text = message.tools.iter().filter(|call| !message.tool_calls.contains(call));
        let calls: Vec<Value> = message.tool_calls.iter().chain(of_text).map(as_json).collect();
        let results: Vec<&str> =
            message.tool_results.iter().map(|result| result.content.as_str()).collect();
        facts["tool_results"] = json!(results);
        facts["attachments"] = json!(attachments);
        facts["tool_calls"] = json!(calls);
        facts["value"] = json!(message.value);
    }
    facts
}

impl StepLoop<'_> {
    /// Lets gates check the first message of an activation, if it has one.
    pub(super) fn check_first_message(&mut self, id: FrameId) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let Some(text) = frame.turn().pending.as_ref().map(|pending| pending.text().to_owned())
        else {
            self.frames.follow(self.cx, id, FrameState::release);
            return;
        };
        let to = Some(frame.task.to_string());
        self.frames.follow(self.cx, id, FrameState::check);
        let passage = Passage { to, ..Passage::new(PassageKind::Message, id, text) };
        self.background_work().gate_checks().check_passage(passage);
    }

    /// Begins an activation after the gates let its first message pass.
    fn enter(&mut self, passage: Passage) {
        let id = passage.frame;
        if !self.frames.contains_key(&id) {
            return;
        }
        self.frames.follow(self.cx, id, FrameState::release);
        if passage.is_changed
            && let Some(frame) = self.frames.get_mut(&id)
        {
            let (name, sender) = (frame.task.clone(), frame.turn().pending_sender.clone());
            let inputs =
                changed_inputs(&frame.inputs, frame.turn().pending.as_deref(), &passage.text);
            let inputs = Arc::new(inputs);
            let pending = frame.turn().pending.clone();
            // The system text of a micro-agent contains its inputs.
            let system = own_system(self.cx, &name, &inputs);
            frame.change_inputs(inputs, system);
            if let Some(mut pending) = pending {
                replace_content(Arc::make_mut(&mut pending), passage.text, None);
                self.dialogue().put_pending(id, sender, pending);
            }
        }
        self.frames.runnable.push_back(id);
    }

    /// Puts a question to the user, once the gates have let it pass.
    pub(super) fn check_question(&mut self, id: FrameId, prompt: String) -> Option<FrameWait> {
        // A blank prompt holds nothing that a gate could refuse.
        if prompt.trim().is_empty() || !has_gate(self.cx, GatePoint::Outbound) {
            return self.put_question(id, prompt);
        }
        let passage = Passage::new(PassageKind::Question, id, prompt);
        self.background_work().gate_checks().check_passage(passage);
        Some(FrameWait::Gates)
    }

    fn question_passed(&mut self, passage: Passage) {
        let (id, text) = (passage.frame, passage.text);
        if let Some(frame) = self.frames.get_mut(&id).filter(|_| passage.is_changed) {
            frame.change_question(text.clone());
        }
        if let Some(wait) = self.put_question(id, text) {
            self.frames.set_wait(self.cx, id, wait);
        }
    }

    /// Returns a question that was blocked to its agent, with the reason.
    fn question_blocked(&mut self, id: FrameId, reason: &str) {
        let text = format!("The user was not asked: {reason}");
        let message = self.frames.error_message(self.cx, id, text);
        self.frames.ready(self.cx, id, Some((Responder::Agent, message)));
    }
}

impl ToolRounds<'_> {
    /// Says a text of an agent on the channels on which people hear the room. Returns the
    /// observation; `None` if gates check the text first.
    pub(super) fn talk(
        &mut self,
        id: FrameId,
        slot: usize,
        text: String,
    ) -> Option<Result<String, String>> {
        // No channel carries such a text, so no gate has to check it.
        if text.trim().is_empty() || !self.channels.is_heard(self.cx) {
            return Some(Ok("The message was shown to the run's observers.".to_owned()));
        }
        let passage = Passage::new(PassageKind::Talk, id, text);
        if !has_gate(self.cx, GatePoint::Outbound) {
            return Some(Ok(self.say(&passage)));
        }
        let seq = self.frames.round_mut(self.cx, id)?.message.seq;
        self.frames.set_slot(self.cx, id, slot, SlotState::InBackground);
        let passage = Passage { waiter: Some(Waiter { frame: id, slot, seq }), ..passage };
        self.background_work().gate_checks().check_passage(passage);
        None
    }

    fn talk_passed(&mut self, passage: Passage) {
        let report = self.say(&passage);
        self.talk_observed(&passage, Ok(report));
    }

    /// Gives the agent the observation of a text that gates have checked.
    fn talk_observed(&mut self, passage: &Passage, report: Result<String, String>) {
        let Some(Waiter { frame, slot, .. }) =
            passage.waiter.filter(|waiter| waits(self.frames, waiter))
        else {
            return;
        };
        self.frames.observe(self.cx, frame, slot, report);
        self.dialogue().resume_round(frame);
    }

    /// Says a text on the channels. Only the task that people talk with needs no name.
    fn say(&mut self, passage: &Passage) -> String {
        let frame = self.frames.get(&passage.frame);
        let other = frame.filter(|frame| frame.caller.is_some());
        let text = match other {
            Some(frame) => format!("{}: {}", frame.task, passage.text),
            None => passage.text.clone(),
        };
        self.channels.report_channels(self.cx, &text, None);
        "The message was said to the people in the room.".to_owned()
    }
}

/// Replaces the content of a message. Its value, calls and results may repeat the old text, so they
/// are removed.
fn replace_content(message: &mut Message, text: String, value: Option<Value>) {
    (message.content, message.value) = (Some(text), value);
    message.tools.clear();
    message.tool_calls.clear();
    message.tool_results.clear();
}

fn is_empty_beside_text(message: &Message) -> bool {
    message.tools.is_empty()
        && message.tool_calls.is_empty()
        && message.tool_results.is_empty()
        && message.attachments.is_empty()
}

/// The inputs of an activation after a gate changed its first message. The message is one of
/// the inputs, or the JSON of all of them.
fn changed_inputs(inputs: &Value, first: Option<&Message>, text: &str) -> Value {
    let original = first.map(Message::text).unwrap_or_default();
    if inputs.is_object() && text_form(inputs) == original {
        let changed = serde_json::from_str(text).ok().filter(Value::is_object);
        return changed.unwrap_or_else(|| json!({ "task": text }));
    }
    with_replaced(inputs, original, text)
}

/// A value in which every text that equals `original` is replaced.
fn with_replaced(value: &Value, original: &str, text: &str) -> Value {
    match value {
        Value::Array(items) => {
            items.iter().map(|item| with_replaced(item, original, text)).collect()
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), with_replaced(value, original, text)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other if text_form(other) == original => json!(text),
        other => other.clone(),
    }
}

impl RunControl<'_> {
    /// Lets a judge and the gates decide on the result of an ending task. Returns false if there is
    /// nothing to decide.
    pub(super) fn decide_first(&mut self, id: FrameId, ending: &FrameEnd) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return false };
        // The host has checked a structured result against its schema, and a judge would not.
        let is_structured = frame.caller.is_none() && self.cx.opening.structured_retries.is_some();
        let judge = task.judge.clone().filter(|_| frame.only.is_none() && !is_structured);
        if !matches!(self.cx.phase, RoomPhase::Running { .. })
            || (judge.is_none() && !withholds_result(self.cx, frame))
        {
            return false;
        }
        let frame = frame.clone();
        let status = failed_instead(self.cx, &frame, ending.clone()).status;
        // An error has no result, and a goodbye is the user's own word.
        if matches!(status, Status::Error | Status::UserQuit) {
            return false;
        }
        let result = if frame.only.is_some() {
            frame.turn().pending.as_deref().cloned()
        } else {
            self.dialogue().form_result(&frame, ending)
        };
        let Some(mut result) =
            result.filter(|_| frame.caller.is_some() || has_answer(self.cx, &frame))
        else {
            return false;
        };
        if let Some(value) = self.background.structured_result().filter(|_| is_structured) {
            result.value = Some(value);
        }
        let task_ending = TaskEnding {
            status: ending.status,
            reason: ending.reason.clone(),
            result: TaskResult { text: result.text().to_owned(), value: result.value.clone() },
        };
        // A stop may come while calls of the task are in flight. Their answers would find a closing
        // frame, and a passed gate would reopen it.
        self.background_work().stop_working(id);
        if let Some(frame) = self.frames.get_mut(&id) {
            let closing = Closing { ending: ending.clone(), result, passed: Vec::new() };
            frame.close(closing);
        }
        match judge {
            Some(judge) => {
                let query = PluginQuery::Conclude { ending: Box::new(task_ending) };
                if consult(self.frames, self.cx, id, &judge, query, QueryPurpose::Conclude)
                    .is_none()
                {
                    self.cx.violated(Invariant::FrameExists, id);
                }
            }
            None => self.check_result(id),
        }
        true
    }

    /// Takes a judge's decision on a result.
    pub(super) fn concluded(
        &mut self,
        id: FrameId,
        judge: &PluginName,
        reply: Result<PluginReply, Fault>,
    ) {
        let replaced = match reply {
            Ok(PluginReply::Conclude { result }) => result,
            Ok(_) => None,
            Err(fault) => return self.judge_failed(id, judge, &fault),
        };
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let says_nothing =
            |result: &TaskResult| result.text.trim().is_empty() && result.value.is_none();
        let had_text = frame.closing().is_some_and(|closing| !closing.result.is_empty());
        if had_text && replaced.as_ref().is_some_and(says_nothing) {
            let message = "its result is empty; to keep the host's, a judge answers nothing";
            let fault = Fault::new(FaultKind::BadAnswer, message);
            return self.judge_failed(id, judge, &fault);
        }
        let (name, is_marked) = (frame.task.clone(), task.rules().marks_results);
        let takes_signals = task.text_rules.signals;
        let closing = self.frames.get_mut(&id).and_then(Frame::closing_mut);
        if let (Some(TaskResult { text, value }), Some(closing)) = (replaced, closing) {
            let result = &mut closing.result;
            // A signal in the judge's text must not end the caller, as in the host's own result.
            let text = if takes_signals { routing::without_done(&text).into_owned() } else { text };
            replace_content(result, text, value);
            // The judge's text is data to the caller, also where the user gave the last answer.
            if is_marked && !result.labels.contains(&Label::Task) {
                result.labels.push(Label::Task);
            }
            self.cx.notify(Notice::ResultReplaced { task: name, plugin: judge.clone() });
        }
        self.check_result(id);
    }

    /// Lets gates check the result of an ending task; behind the last one the task ends.
    fn check_result(&mut self, id: FrameId) {
        let Some((frame, closing)) =
            self.frames.get(&id).and_then(|frame| Some((frame, frame.closing()?)))
        else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let Some(kind) = way_out(self.cx, frame) else {
            let ending = closing.ending.clone();
            return self.close_frame(id, ending);
        };
        let result = &closing.result;
        let text = match (&result.content, &result.value) {
            (Some(text), _) if !text.trim().is_empty() => text.clone(),
            (_, Some(value)) => text_form(value),
            // An empty result holds nothing that a gate could refuse.
            _ if is_empty_beside_text(result) => {
                return self.result_passed(id, kind, None);
            }
            // Gates see its calls, results and attachments among the facts.
            _ => String::new(),
        };
        let caller = frame.caller.and_then(|caller| self.frames.get(&caller));
        let to = caller.map(|caller| caller.task.to_string());
        let passage = Passage { to, ..Passage::new(kind, id, text) };
        self.background_work().gate_checks().check_passage(passage);
    }

    /// Continues with a result that the gates of a way out let pass. One of them may have changed
    /// its text.
    fn result_passed(&mut self, id: FrameId, kind: PassageKind, changed: Option<String>) {
        let is_root = self.frames.get(&id).is_some_and(|frame| frame.caller.is_none());
        let Some(closing) = self.frames.get_mut(&id).and_then(Frame::closing_mut) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        if changed.is_some() && is_root && self.cx.opening.structured_retries.is_some() {
            let reason = "a gate changed the text of a structured result, which can only pass as \
                          it is or be blocked";
            self.close_frame(id, FrameEnd::new(Status::Error, reason));
            return;
        }
        closing.passed.push(kind);
        if let Some(text) = changed {
            replace_content(&mut closing.result, text, None);
        }
        self.check_result(id);
    }
}

impl Room {
    /// Continues with a text that the gates let pass.
    pub(super) fn passage_passed(&mut self, passage: Passage) {
        let (id, text) = (passage.frame, passage.text.clone());
        match passage.kind {
            PassageKind::Message => self.step_loop().enter(passage),
            PassageKind::Question => self.step_loop().question_passed(passage),
            PassageKind::Handoff => self.step_loop().handoff_passed(id, text),
            PassageKind::Talk => self.tool_rounds().talk_passed(passage),
            PassageKind::Result | PassageKind::Answer => {
                let changed = passage.is_changed.then_some(text);
                self.run_control().result_passed(id, passage.kind, changed)
            }
        }
    }

    /// Continues without a text that a gate blocked.
    pub(super) fn passage_blocked(&mut self, passage: &Passage, reason: &str) {
        let id = passage.frame;
        match passage.kind {
            PassageKind::Question => self.step_loop().question_blocked(id, reason),
            PassageKind::Handoff => self.step_loop().handoff_blocked(id, reason),
            PassageKind::Talk => {
                let refusal = Err(format!("The message was not said: {reason}"));
                self.tool_rounds().talk_observed(passage, refusal);
            }
            PassageKind::Message => {
                let reason = format!("it did not begin: {reason}");
                self.run_control().close_frame(id, FrameEnd::new(Status::Error, reason));
            }
            PassageKind::Result | PassageKind::Answer => {
                self.run_control().close_frame(id, FrameEnd::new(Status::Error, reason))
            }
        }
    }
}
