//! Judges and simulated users: plugins that the operator put in the place of the host's rules for
//! answers (L-056, L-081) and results (L-088), and in the place of the user (L-029). The host rules
//! first, and the judge may overrule it. Limits, kills and the user's own goodbye are not its to
//! decide, and only people approve.

use std::sync::Arc;

use super::queries::consult;
use super::state::closing::FrameEnd;
use super::state::frame::Frame;
use super::state::frame_state::{Attempt, FrameWait, RuledAnswer};
use super::state::responder::Responder;
use super::steps::UserSeat;
use super::tools::taint_of;
use super::{Dialogue, Invariant, QueryPurpose, RunControl, StepLoop};
use crate::protocol::notice::Notice;
use crate::setup::plugin_query::{JudgedAnswer, PluginQuery, PluginReply, Ruling};
use crate::types::fault::Fault;
use crate::types::ids::{FrameId, PluginName};
use crate::types::message::{Label, Message};

impl StepLoop<'_> {
    /// Asks a judge about an answer; the step waits for its ruling.
    pub(super) fn ask_judge(
        &mut self,
        id: FrameId,
        judge: &PluginName,
        attempt: Attempt,
        answer: RuledAnswer,
    ) {
        let judged_answer = JudgedAnswer {
            message: Arc::clone(&answer.message),
            responder: attempt.responder.label().into_owned(),
            valid: answer.valid,
            is_done: answer.is_done,
        };
        let query = PluginQuery::Rule { answer: Box::new(judged_answer) };
        if consult(self.frames, self.cx, id, judge, query, QueryPurpose::Rule).is_none() {
            return self.cx.violated(Invariant::FrameExists, id);
        }
        let wait = FrameWait::Judge(Box::new(answer));
        self.frames.ask(self.cx, id, Attempt { wait, ..attempt });
    }

    /// Continues a step with the judge's ruling on its answer.
    pub(super) fn ruled(
        &mut self,
        id: FrameId,
        judge: &PluginName,
        reply: Result<PluginReply, Fault>,
    ) {
        let frame = self.frames.get_mut(&id);
        let attempt = frame
            .filter(|frame| matches!(frame.wait(), Some(FrameWait::Judge(_))))
            .and_then(Frame::take_attempt);
        let Some(Attempt { wait: FrameWait::Judge(answer), responder, rest, do_not_know }) =
            attempt
        else {
            return self.cx.violated(Invariant::StepWaits, id);
        };
        let ruling = match reply {
            Ok(PluginReply::Rule { ruling }) => ruling,
            Ok(_) => Ruling::default(),
            Err(fault) => return self.run_control().judge_failed(id, judge, &fault),
        };
        // A call that was carried out has its result, whatever a judge thinks of it. Without the
        // result, the host would carry out the call again.
        let is_result = !answer.message.tool_results.is_empty();
        let valid = ruling.valid.filter(|_| !is_result);
        let is_refused = valid == Some(false) || ruling.is_done == Some(false);
        let feedback = ruling.feedback.filter(|words| is_refused && !words.trim().is_empty());
        let overruled = Ruling {
            valid: valid.filter(|valid| *valid != answer.valid),
            is_done: ruling.is_done.filter(|is_done| *is_done != answer.is_done),
            feedback: feedback.clone(),
        };
        let ruling = Ruling { valid, feedback, ..ruling };
        if overruled != Ruling::default()
            && let Some(frame) = self.frames.get(&id)
        {
            self.cx.notify(Notice::AnswerOverruled {
                task: frame.task.clone(),
                plugin: judge.clone(),
                responder: responder.label().into_owned(),
                ruling: overruled,
            });
        }
        // What ends the task is valid (L-056), unless the judge says otherwise.
        if ruling.valid.unwrap_or(answer.valid || ruling.is_done == Some(true)) {
            let ends = ruling.is_done.unwrap_or(answer.ends);
            if let Some(frame) = self.frames.get_mut(&id) {
                frame.rule_done(ruling.is_done);
            }
            let seq = answer.message.seq;
            self.post(id, responder, answer.message, ends);
            if let Some(words) = &ruling.feedback {
                self.dialogue().answer_with_feedback(id, judge, seq, words);
            }
        } else {
            if let Some(words) = &ruling.feedback {
                self.dialogue().note_feedback(id, judge, &answer.message, words);
            }
            let wait = FrameWait::Next;
            // An answer that the judge refused is not the last word of a step without an answer.
            let refused = ruling.valid.map(|_| answer.message.seq);
            let do_not_know = do_not_know.filter(|(_, message)| Some(message.seq) != refused);
            let attempt = Attempt { responder, rest, wait, do_not_know };
            self.frames.ask(self.cx, id, attempt);
        }
        // The step may have ended, and the frame with it.
        if self.frames.contains_key(&id) {
            self.frames.runnable.push_back(id);
        }
    }

    /// Takes a simulated user's answer.
    pub(super) fn answered_as_user(
        &mut self,
        id: FrameId,
        plugin: &PluginName,
        reply: Result<PluginReply, Fault>,
    ) {
        match reply {
            Ok(PluginReply::AnswerAsUser { text: Some(text) }) => {
                let answer =
                    self.user_said(id, text, Vec::new(), UserSeat::Plugin).map(|mut message| {
                        plugin.as_str().clone_into(&mut Arc::make_mut(&mut message).sender_name);
                        (Responder::User, message)
                    });
                self.frames.ready(self.cx, id, answer);
            }
            Ok(_) => self.frames.ready(self.cx, id, None),
            Err(fault) => {
                let reason = format!("the simulated user {plugin} failed: {}", fault.message);
                self.run_control().end_frame(id, FrameEnd::of_fault(reason));
            }
        }
    }
}

impl Dialogue<'_> {
    /// Returns a judge's words as a message to the agent. A plugin wrote them, so they are data.
    fn feedback(&mut self, id: FrameId, judge: &PluginName, words: &str) -> Message {
        let text = format!("The judge {judge} on the answer: {words}");
        let mut message = Arc::unwrap_or_clone(self.frames.error_message(self.cx, id, text));
        message.labels.push(Label::Tool);
        message
    }

    /// Adds a judge's words to the history, behind the answer that it refused. The question stays
    /// pending.
    fn note_feedback(
        &mut self,
        id: FrameId,
        judge: &PluginName,
        refused: &Arc<Message>,
        words: &str,
    ) {
        let mut message = self.feedback(id, judge, words);
        // An answer of another responder is not in the history of the agent, which reads about it.
        self.write_history(id, refused);
        message.labels.extend(taint_of(refused));
        self.write_history(id, &Arc::new(message));
    }

    /// Answers the message of this number with a judge's words. Does nothing if the task is over, or
    /// another message is pending.
    fn answer_with_feedback(&mut self, id: FrameId, judge: &PluginName, seq: u64, words: &str) {
        let frame = self.frames.get(&id).filter(|frame| !frame.state().is_held());
        let pending = frame.and_then(|frame| frame.turn().pending.clone());
        let Some(before) = pending.filter(|pending| pending.seq == seq) else { return };
        let message = self.feedback(id, judge, words);
        self.post_after(id, &before, message);
    }
}

impl RunControl<'_> {
    /// Ends a task whose judge failed: its answers and its result may not be what they should.
    pub(super) fn judge_failed(&mut self, id: FrameId, judge: &PluginName, fault: &Fault) {
        let reason = format!("the judge {judge} failed: {}", fault.message);
        self.close_frame(id, FrameEnd::of_fault(reason));
    }
}
