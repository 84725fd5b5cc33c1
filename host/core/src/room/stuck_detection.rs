//! Stuck detection: finds an agent that repeats itself (O-098…O-108). Each act is counted when it
//! is answered, so a step costs the same at any length of history. Thoughts are not part of an act
//! (C-325). Waiting for an approver, for command output or for a background task is no act
//! (`waiting`). `state::stuck_watch` counts; `types::stuck_rules` holds the limits. The cycles
//! of a task's messages are found by `state::loop_detection`.

#[cfg(test)]
mod tests;
mod waiting;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::knowledge::newest_said;
use super::state::closing::FrameEnd;
use super::state::loop_detection::LoopDetector;
use super::state::responder::Responder;
use super::state::stuck_watch::{Act, StuckVerdict, StuckWatch, WatchedAct};
use super::tools::taint_of;
use super::{Dialogue, Frames, RunControl};
use crate::protocol::notice::Notice;
use crate::setup::{NoTool, TaskSetup};
use crate::types::action::{Action, Observation};
use crate::types::fingerprint::{Fingerprint, Fingerprinter};
use crate::types::ids::FrameId;
use crate::types::message::{Message, Role, ToolCall};
use crate::types::outcome::Status;
use crate::types::stuck_rules::Recovery;

pub(super) use super::state::stuck_watch::StuckKind;

/// A verdict that calls for a response once the step is over.
pub(super) struct StuckFinding {
    verdict: StuckVerdict,
    what: Cow<'static, str>,
    /// Number of the message after which it was found.
    after: u64,
}

impl Dialogue<'_> {
    /// Counts an answer that has just become pending. `None` if it calls for no response.
    pub(super) fn watch(
        &mut self,
        id: FrameId,
        by: &Responder,
        message: &Message,
        answered: Option<&Arc<Message>>,
    ) -> Option<StuckFinding> {
        let (_, task) = self.frames.task_of(self.cx, id)?;
        if !task.rules().detects_stuck {
            return None;
        }
        let task = Arc::clone(task);
        let seen = self.completed_act(id, &task, by, message, answered)?;
        let verdict = self.frames.get_mut(&id)?.stuck_watch.saw(&seen, &task.stuck_detection);
        (verdict != StuckVerdict::Fine).then_some(StuckFinding {
            verdict,
            what: seen.what,
            after: message.seq,
        })
    }

    /// Returns the act that an answer completes; `None` if it completes none.
    fn completed_act(
        &mut self,
        id: FrameId,
        task: &TaskSetup,
        by: &Responder,
        message: &Message,
        answered: Option<&Arc<Message>>,
    ) -> Option<WatchedAct> {
        match by {
            // A default text set by the operator is not an answer of the user.
            Responder::User => task.default_human_response.is_none().then(|| WatchedAct {
                doing: Act::user(),
                seq: 0,
                what: Cow::Borrowed(""),
            }),
            Responder::Llm => {
                let is_work = message.has_work_for_host()
                    || !message.tools.is_empty()
                    || self.reading_of(id, message).is_attempt();
                (!is_work).then(|| message_act("says", message.text(), message))
            }
            Responder::Agent | Responder::Subtask(_) => {
                // Only answers to the agent's own messages complete an act.
                let request = answered.filter(|request| request.sender == Role::Llm)?;
                let is_error = failed(self.frames, id, request, message);
                match &request.action {
                    Some(Action::Think { thought }) => {
                        Some(message_act("thinks", thought, request))
                    }
                    Some(Action::Talk { content }) => Some(message_act("says", content, request)),
                    Some(action) if is_poll(action) => {
                        if let Some(frame) = self.frames.get_mut(&id) {
                            frame.stuck_watch.record_wait();
                        }
                        None
                    }
                    Some(action) => {
                        let what = Fingerprinter::of("action").finish_with_json(action);
                        Some(act(what, message, is_error, request, action.name().to_owned().into()))
                    }
                    None => {
                        let (what, description) =
                            request_fingerprint(task, by, message, request, is_error)?;
                        Some(act(what, message, is_error, request, description))
                    }
                }
            }
            Responder::System => None,
        }
    }

    /// O-107: adds the host's hint after the last of several failures. A message to someone other
    /// than the agent stays as it is.
    fn nudge(&mut self, id: FrameId, text: String) {
        let Some(result) = self.frames.get(&id).and_then(|frame| frame.turn().pending.clone())
        else {
            return;
        };
        let is_for_agent =
            result.sender == Role::Agent && result.tools.is_empty() && result.recipient.is_none();
        if is_for_agent && result.signal.is_none() {
            self.say_after(id, &result, text);
        }
    }

    /// Makes a host message pending. The message before it is written to the history, so it is
    /// still read.
    fn say_after(&mut self, id: FrameId, before: &Arc<Message>, text: String) {
        let message = self.frames.host_message(self.cx, id, text);
        self.post_after(id, before, message);
    }

    /// Makes a message pending that answers the one before it, as [`Self::say_after`] does.
    pub(super) fn post_after(&mut self, id: FrameId, before: &Arc<Message>, mut message: Message) {
        self.write_history(id, before);
        message.labels.extend(taint_of(before));
        message.parent = Some(before.seq);
        let message = Arc::new(message);
        self.put_pending(id, Responder::Agent, Arc::clone(&message));
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return };
        let (task, agent) = (frame.task.clone(), task.agent.clone());
        self.cx.notify(Notice::MessagePosted { task, agent, message });
    }

    /// Applies a recovery, and returns the one that was possible.
    fn recover(
        &mut self,
        id: FrameId,
        recovery: Recovery,
        kind: StuckKind,
        repeats: u32,
        how: &str,
    ) -> Recovery {
        let is_applied = match recovery {
            Recovery::Stop => false,
            // The step is still waiting for its history, so it can neither be asked about nor
            // restarted.
            _ if kind == StuckKind::OnlyCondensing => false,
            Recovery::Ask => self.turn_to_user(id, how),
            Recovery::Restart => self.restart_from_beginning(id, kind, repeats),
        };
        if is_applied { recovery } else { Recovery::Stop }
    }

    /// Reports the loop to the user and asks how to continue. Returns false if there is no user, or
    /// the user said nothing last time.
    fn turn_to_user(&mut self, id: FrameId, how: &str) -> bool {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return false };
        let is_asked = task.interactive
            && task.responders.contains(&Role::User)
            && task.default_human_response.is_none();
        if !is_asked || frame.stuck_watch.user_was_asked {
            return false;
        }
        let Some(before) = frame.turn().pending.clone() else { return false };
        let name = frame.task.clone();
        let text = format!(
            "{name} goes round in circles: {how}. There are three ways on: say something else, and it goes on with that; say nothing, and it \
             gets one more chance; say q, and it ends."
        );
        self.say_after(id, &before, text);
        // Lets the next step ask the user.
        self.histories.memory(self.cx, &name).human_tried = false;
        // All counts start anew; only the question and the restart are remembered.
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.stuck_watch = StuckWatch {
                user_was_asked: true,
                restarted: frame.stuck_watch.restarted,
                ..StuckWatch::default()
            };
        }
        true
    }

    /// Cuts the history to where the loop began, and makes the user's last request pending again,
    /// once in an activation (O-108). Returns false if it was done before, there is no request, or
    /// the beginning is gone.
    fn restart_from_beginning(&mut self, id: FrameId, kind: StuckKind, repeats: u32) -> bool {
        let Some(frame) = self.frames.get(&id).filter(|frame| !frame.stuck_watch.restarted) else {
            return false;
        };
        let (Some(latest_user_message), Some(began)) =
            (frame.turn().latest_user_message.clone(), frame.stuck_watch.began(kind, repeats))
        else {
            return false;
        };
        let task = frame.task.clone();
        // The search is by number: an older message with the same text is a different one.
        let history = self.histories.history(&task);
        let from_end = history.iter_newest_first().position(|message| message.seq == began);
        let Some(start) = from_end.and_then(|from_end| history.len().checked_sub(from_end + 1))
        else {
            return false;
        };
        self.histories.clear_history(&task, start);
        let mut message = Message::clone(&latest_user_message);
        // Unless the history still ends with the original, the request becomes a new message.
        if newest_said(&self.histories.history(&task))
            .is_none_or(|last| last.seq != latest_user_message.seq)
        {
            (message.seq, message.parent) = (self.cx.stamp(Role::User, "").seq, None);
        }
        self.put_pending(id, Responder::User, message);
        // All detectors start anew, or the old loop would be found again.
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.stuck_watch = StuckWatch { restarted: true, ..StuckWatch::default() };
            frame.loops = LoopDetector::default();
            frame.forget_reading();
            frame.past_actions.clear();
            frame.chain.clear();
            frame.end_stall();
        }
        true
    }
}

impl RunControl<'_> {
    /// Counts a condensation of the history. Repeated condensations without other acts mean a stuck
    /// agent (O-102).
    pub(super) fn watch_condensed(&mut self, id: FrameId) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return };
        let (rules, detects) = (task.stuck_detection, task.rules().detects_stuck);
        let after = frame.turn().pending.as_ref().map(|pending| pending.seq);
        let Some(after) = after.filter(|_| detects) else { return };
        let Some(verdict) = self
            .frames
            .get_mut(&id)
            .map(|frame| frame.stuck_watch.watch.record(&Act::condensation(), &rules))
        else {
            return;
        };
        if verdict != StuckVerdict::Fine {
            self.respond_to_stuck(
                id,
                StuckFinding {
                    verdict,
                    what: "a condenser that is asked again and again".into(),
                    after,
                },
            );
        }
    }

    /// Responds to a stuck agent, unless its task is over.
    pub(super) fn respond_to_stuck(&mut self, id: FrameId, found: StuckFinding) {
        let Some(frame) = self.frames.get(&id) else { return };
        // The step may have ended the task, or be about to, or have posted another message since.
        if frame.state().is_held() {
            return;
        }
        if frame.turn().pending.as_ref().is_none_or(|pending| pending.seq != found.after) {
            return;
        }
        let StuckFinding { verdict, what, .. } = found;
        let (kind, repeats) = match verdict {
            StuckVerdict::Fine => return,
            StuckVerdict::Nudge { text, .. } => {
                self.dialogue().nudge(id, text);
                return;
            }
            StuckVerdict::Stuck { kind, repeats } => (kind, repeats),
        };
        self.end_loop(id, kind, repeats, &what);
    }

    /// Recovers from a loop of an agent, or ends its task.
    pub(super) fn end_loop(&mut self, id: FrameId, kind: StuckKind, repeats: u32, what: &str) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return };
        let (name, rules) = (frame.task.clone(), task.stuck_detection);
        let how = format!("{} ({what})", kind.describe(repeats));
        let recovery = self.dialogue().recover(id, rules.recovery, kind, repeats, &how);
        let reason =
            format!("{name} is stuck: {how}; tasks.{name}.stuck_detection = false lets it go on");
        self.cx.notify(Notice::AgentStuck { task: name, reason: reason.clone(), recovery });
        if recovery == Recovery::Stop {
            self.end_frame(id, FrameEnd::new(Status::InfLoop, reason));
        }
    }
}

impl StuckWatch {
    /// Notes that the agent waits for work under way, so its next message is not the same one with
    /// nothing between.
    pub(super) fn record_wait(&mut self) {
        self.watch.record_wait();
    }
}

/// Whether every result of the agent's message is an error. If only some failed, the others may
/// be new.
fn failed(frames: &Frames, id: FrameId, request: &Message, answer: &Message) -> bool {
    let Some(frame) = frames.get(&id) else { return false };
    let is_of_it = |seq: u64| seq == request.seq || seq == answer.seq;
    let mut observed = frame
        .past_actions
        .iter()
        .filter(|entry| is_of_it(entry.seq))
        .filter_map(|entry| entry.observation.as_ref())
        .peekable();
    let is_error = |observation: &Observation| match observation {
        Observation::Error { .. } => true,
        Observation::Tool(result) => result.is_error,
        _ => false,
    };
    observed.peek().is_some() && observed.all(is_error)
}

fn message_act(how: &str, text: &str, message: &Message) -> WatchedAct {
    let what = Fingerprinter::of(how).text(text).finish_with_json(&message.recipient);
    WatchedAct {
        doing: Act::message(what),
        seq: message.seq,
        what: if how == "thinks" { "a thought" } else { "a message" }.into(),
    }
}

fn act(
    what: Fingerprint,
    answer: &Message,
    is_error: bool,
    request: &Message,
    description: Cow<'static, str>,
) -> WatchedAct {
    let mut result = Fingerprinter::of("result").text(answer.text()).value(answer.value.as_ref());
    for tool in &answer.tool_results {
        result = result.text(&tool.name).text(&tool.content).value(tool.value.as_ref());
    }
    let result = result.finish();
    WatchedAct { doing: Act::action(what, result, is_error), seq: request.seq, what: description }
}

/// A fingerprint and a description of the request in a message without an action: calls, or an
/// answered text. `None` if it requested nothing.
fn request_fingerprint(
    task: &TaskSetup,
    by: &Responder,
    answer: &Message,
    request: &Message,
    is_error: bool,
) -> Option<(Fingerprint, Cow<'static, str>)> {
    let calls: &[ToolCall] =
        if request.tool_calls.is_empty() { &request.tools } else { &request.tool_calls };
    if !calls.is_empty() {
        let mut fingerprint = Fingerprinter::of("calls");
        for call in calls {
            fingerprint = fingerprint.text(&call.name).value(Some(&call.arguments));
        }
        let mut names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        names.dedup();
        return Some((fingerprint.finish(), names.join(", ").into()));
    }
    if is_error {
        // An unreadable call, or an unknown address. The rest of the text does not count.
        let refused = Fingerprinter::of("refused").text(answer.text()).finish();
        return Some((refused, "what was refused".into()));
    }
    let is_nudge = matches!(&task.no_tool, NoTool::Nudge(text) if *by == Responder::Agent && answer.text() == text);
    (!is_nudge).then(|| {
        (
            Fingerprinter::of("says").text(request.text()).finish_with_json(&request.recipient),
            format!("a message to {}", by.label()).into(),
        )
    })
}

/// Whether the action only polls a command for new output. Repetition is its purpose (O-193).
fn is_poll(action: &Action) -> bool {
    match action {
        Action::Run { command, .. } => command.trim().is_empty(),
        Action::Custom { name, arguments } if name == "run" => {
            let field = |key: &str| arguments.get(key);
            field("is_input").and_then(Value::as_bool) == Some(true)
                && field("command")
                    .and_then(Value::as_str)
                    .is_none_or(|command| command.trim().is_empty())
        }
        _ => false,
    }
}
