//! Actions beyond a reply. Each is a slot of a round on the agent role, like a tool call, so that
//! rules, approvals, budgets and resumption treat both alike. Executors (O-132, O-141…O-151) are
//! tools of plugins. A missing executor is an observation, and never ends the task.

pub(super) mod executors;
pub(super) mod jobs;

use std::sync::Arc;

use serde_json::Value;

use super::approvals::ConsentRuling;
use super::delegates::delegate_slots;
use super::planning::change_plan;
use super::queries::consult;
use super::state::consent::Consent;
use super::state::rounds::{CallOutcome, Slot, SlotAnswer, SlotState, ToolRound};
use super::{
    Frames, Invariant, Purpose, QueryPurpose, RoomContext, TimerPurpose, ToolRounds, confirming,
};
use crate::protocol::notice::Notice;
use crate::setup::plugin_query::{PluginQuery, PluginReply};
use crate::trajectory;
use crate::trajectory::truncate;
use crate::types::action::{Action, Observation};
use crate::types::fault::{CallReport, Fault};
use crate::types::ids::{CallId, FrameId, PluginName, TaskName, TimerId};
use crate::types::message::{Message, ToolResult};
use crate::types::plugin_kind::PluginKind;
pub(super) use jobs::{KILL, exit_of};

/// Number of memories that `recall` asks for.
const MEMORIES: u32 = 10;
/// Characters of one memory; a longer one is cut in the middle (O-009).
const MEMORY_CHARS: usize = 30_000;
const CONDENSE: &str = "condensation_request";
/// The observation of a thought (O-045).
const THOUGHT_LOGGED: &str = "Your thought has been logged.";

/// What the text of an answer is to its agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerKind {
    /// A word of the host.
    HostText,
    /// The result that the action was to give, or why there is none: data.
    Result,
}

impl ToolRounds<'_> {
    /// Carries out the action of a message, which is more than a reply.
    pub(super) fn carry_out(&mut self, id: FrameId, action: Action, message: &Arc<Message>) {
        let arguments = action.args();
        let slots = match delegate_slots(&action) {
            Some(Ok(slots)) => slots,
            Some(Err(text)) => {
                let refused = self.frames.observed(self.cx, id, Err(text));
                vec![Slot::of_action(action, arguments).answered(Some(refused))]
            }
            None => vec![Slot::of_action(action, arguments)],
        };
        self.start_round(id, ToolRound::new(slots, Arc::clone(message)));
    }

    /// Starts the action of a slot; answers it at once if it needs no wait. `consent` is what
    /// the action has so far.
    pub(super) fn start_act(
        &mut self,
        id: FrameId,
        index: usize,
        action: Action,
        consent: Consent,
    ) {
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        let call = slot.call.clone();
        // A delegation passes its gates first, and is then put to the rules of consent.
        if has_effect(&action) && !matches!(action, Action::DelegateTask(_)) {
            // O-110: all actions with an effect are checked alike, under any name.
            match confirming::consent_to_action(
                self.frames,
                self.cx,
                id,
                index,
                &call,
                Some(&action),
                consent.clone(),
            ) {
                ConsentRuling::Runs => {}
                ConsentRuling::Waits => return,
                ConsentRuling::Refused(result) => {
                    self.frames.observe(self.cx, id, index, Err(result.content));
                    return;
                }
            }
        }
        let observed = match action {
            Action::Think { .. } => Ok(THOUGHT_LOGGED.to_owned()),
            Action::Talk { content } => match self.talk(id, index, content) {
                Some(observed) => observed,
                None => return,
            },
            Action::DelegateTask(delegation) => {
                if let Some(outcome) =
                    self.background_work().delegate_by_action(id, index, *delegation, consent)
                {
                    self.frames.answer_slot(self.cx, id, index, outcome.into());
                }
                return;
            }
            Action::Delegate { agent, inputs } => {
                self.dialogue().start_delegate(id, index, &agent, inputs);
                return;
            }
            Action::Recall { query } => {
                self.frames.start_recall(self.cx, id, index, query);
                return;
            }
            Action::Kill { command_id } => {
                self.start_kill(id, index, command_id, consent);
                return;
            }
            Action::Custom { name, .. } if name == CONDENSE => {
                match self.dialogue().condense_requested(id) {
                    Ok(observation) => {
                        let text = observation.content().to_owned();
                        self.frames.answer(
                            self.cx,
                            id,
                            index,
                            observation,
                            text,
                            AnswerKind::HostText,
                        );
                        return;
                    }
                    Err(text) => Err(text),
                }
            }
            action => {
                if let Some(changed) = change_plan(self.frames, self.cx, id, &action) {
                    changed
                } else {
                    self.start_executor(id, index, &action, consent);
                    return;
                }
            }
        };
        self.frames.observe(self.cx, id, index, observed);
    }

    /// Answers a `recall` slot with the memories found.
    pub(super) fn recalled(
        &mut self,
        id: FrameId,
        slot: usize,
        answer: Result<PluginReply, Fault>,
    ) {
        if !self.frames.slot(id, slot).is_some_and(Slot::is_open) {
            return self.cx.violated(Invariant::RoundWaits, id);
        }
        match answer {
            Ok(PluginReply::Memories { mut memories }) => {
                // A plugin may return more than it was asked for.
                memories.truncate(MEMORIES as usize);
                // O-082: each memory is limited.
                memories.iter_mut().for_each(|memory| *memory = truncate(memory, MEMORY_CHARS));
                let listed: Vec<String> = memories
                    .iter()
                    .enumerate()
                    .map(|(index, memory)| format!("{}. {memory}", index + 1))
                    .collect();
                let text = if listed.is_empty() {
                    "No memory fits.".to_owned()
                } else {
                    listed.join("\n")
                };
                self.frames.answer(
                    self.cx,
                    id,
                    slot,
                    Observation::Recalled { memories },
                    text,
                    AnswerKind::Result,
                );
            }
            Ok(_) => self.frames.observe(
                self.cx,
                id,
                slot,
                Err("The memory gave an answer to another question.".to_owned()),
            ),
            // The text of a fault comes from the plugin, so the slot's answer is data.
            Err(fault) => {
                let content = format!("The memory failed: {}", fault.message);
                let observation = Observation::Error { content: content.clone() };
                self.frames.answer(self.cx, id, slot, observation, content, AnswerKind::Result);
            }
        }
        self.dialogue().resume_round(id);
    }

    /// Ends a call that was pending for too long with an error; the run continues (O-073 done
    /// right, C-326).
    pub(super) fn pending_expired(&mut self, call: CallId, after_ms: u64) {
        let (id, index) = match self.cx.calls.get(&call) {
            Some(
                Purpose::Tool { frame, slot, .. }
                | Purpose::QueryPlugin { frame, about: QueryPurpose::Memories { slot }, .. },
            ) => (*frame, *slot),
            Some(Purpose::Job { .. }) => {
                self.job_expired(call, after_ms);
                return;
            }
            _ => return,
        };
        // A late answer must not find the slot.
        self.plugin_calls().abandon(call);
        let Some(slot) = self.frames.slot(id, index).filter(|slot| slot.is_open()).cloned() else {
            return self.cx.violated(Invariant::RoundWaits, id);
        };
        let what = if slot.action.is_some() { "Action".to_owned() } else { "Tool".to_owned() };
        let content = format!("{what} {} timed out after {after_ms} ms.", slot.call.name);
        let task =
            self.frames.get(&id).map_or_else(|| TaskName::from(""), |frame| frame.task.clone());
        let (name, report) = (slot.now.name.clone(), CallReport::default());
        self.cx.notify(Notice::ToolAnswered {
            call: Some(call),
            task,
            name,
            arguments: None,
            content: content.clone(),
            is_error: true,
            fault: None,
            report,
        });
        let outcome = self.frames.error_outcome(self.cx, id, content.clone());
        let observation = slot.action.is_some().then_some(Observation::Error { content });
        self.frames.answer_slot(self.cx, id, index, SlotAnswer { outcome, observation });
        self.dialogue().resume_round(id);
    }
}

impl Frames {
    /// Answers a slot with a text and its success or error observation.
    pub(super) fn observe(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        index: usize,
        observed: Result<String, String>,
    ) {
        let answer = self.observed(cx, id, observed);
        self.answer_slot(cx, id, index, answer);
    }

    fn observed(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        observed: Result<String, String>,
    ) -> SlotAnswer {
        let is_error = observed.is_err();
        let (content, observation) = match observed {
            Ok(content) => (content.clone(), Observation::Success { content }),
            Err(content) => (content.clone(), Observation::Error { content }),
        };
        let message = Some(Box::new(self.host_message(cx, id, content)));
        let outcome = CallOutcome { message, is_error, is_result: false };
        SlotAnswer { outcome, observation: Some(observation) }
    }

    /// Replaces the arguments of a slot with those of an approver.
    ///
    /// # Errors
    /// If they are not valid arguments of its kind of action.
    pub(super) fn edit_slot(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        slot: usize,
        arguments: Value,
    ) -> Result<(), String> {
        let Some(slot) = self.slot_mut(cx, id, slot) else { return Ok(()) };
        if let Some(action) = &slot.action {
            if !arguments.is_object() {
                return Err("the arguments must be a JSON object".to_owned());
            }
            // Edited arguments must still be valid for the same kind of action.
            let action =
                Action::from_args(action.name(), &arguments).map_err(|error| error.text)?;
            slot.set_action(action, Arc::new(arguments));
        } else {
            Arc::make_mut(&mut slot.now).arguments = Arc::new(arguments);
        }
        Ok(())
    }

    /// Queries the task's memory plugin, or the agent itself if it is one (O-019, O-148).
    fn start_recall(&mut self, cx: &mut RoomContext, id: FrameId, index: usize, query: String) {
        let Some((frame, task)) = self.task_of(cx, id) else {
            return cx.violated(Invariant::FrameExists, id);
        };
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let remembers = |plugin: &PluginName| {
            cx.setup
                .plugins
                .get(plugin)
                .is_some_and(|plugin| plugin.facts.kinds.contains(&PluginKind::Memory))
        };
        let plugin = task.memory.clone().or(Some(agent)).filter(remembers);
        let call = plugin.and_then(|plugin| {
            consult(
                self,
                cx,
                id,
                &plugin,
                PluginQuery::Memories { query, limit: MEMORIES },
                QueryPurpose::Memories { slot: index },
            )
        });
        if let Some(call) = call {
            self.set_action_timeout(cx, id, call);
            return self.set_slot(cx, id, index, SlotState::Calling);
        }
        let text = format!("There is no memory to search: the task {name} has none.");
        self.answer(cx, id, index, Observation::Null, text, AnswerKind::HostText);
    }

    /// Answers a slot with an observation, and with a text for the agent.
    fn answer(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        slot: usize,
        observation: Observation,
        text: String,
        kind: AnswerKind,
    ) {
        let message = Some(Box::new(self.host_message(cx, id, text)));
        let is_error = matches!(observation, Observation::Error { .. });
        let outcome = CallOutcome { message, is_error, is_result: kind == AnswerKind::Result };
        self.answer_slot(cx, id, slot, SlotAnswer { outcome, observation: Some(observation) });
    }

    /// Answers an action with the refusal of its tool call.
    pub(super) fn refuse_act(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        index: usize,
        result: ToolResult,
    ) {
        let arguments = self.slot(id, index).map(|slot| &slot.now.arguments);
        self.report_refused(cx, id, &result.name, arguments, &result.content);
        let observation = Observation::Error { content: result.content.clone() };
        self.answer(cx, id, index, observation, result.content, AnswerKind::Result);
    }

    /// Sets the operator's timeout for a pending call, if there is one.
    pub(super) fn set_action_timeout(&self, cx: &mut RoomContext, id: FrameId, call: CallId) {
        let Some(after_ms) = self.task_of(cx, id).and_then(|(_, task)| task.action_timeout_ms)
        else {
            return;
        };
        let at = cx.now.plus(after_ms);
        cx.set_timer(TimerPurpose::Pending { call, after_ms }, at);
    }
}

/// Drops the timeout of an answered call.
pub(super) fn drop_limit(cx: &mut RoomContext, call: CallId) {
    drop_timers(
        cx,
        |purpose| matches!(purpose, TimerPurpose::Pending { call: of, .. } if *of == call),
    );
}

pub(super) fn drop_timers(cx: &mut RoomContext, is_over: impl Fn(&TimerPurpose) -> bool) {
    if cx.timers.is_empty() {
        return;
    }
    let timers: Vec<TimerId> =
        cx.timers.iter().filter(|(_, purpose)| is_over(purpose)).map(|(timer, _)| *timer).collect();
    timers.iter().for_each(|timer| drop(cx.timers.remove(timer)));
}

/// Whether the action does something itself or through another agent. The others only say
/// something, or edit a list.
fn has_effect(action: &Action) -> bool {
    match action {
        Action::Null
        | Action::Reply(_)
        | Action::Think { .. }
        | Action::Talk { .. }
        | Action::Finish { .. }
        | Action::Reject { .. } => false,
        Action::AddTask { .. } | Action::ModifyTask { .. } => false,
        Action::Custom { name, .. } => {
            !matches!(name.as_str(), "task_tracking" | CONDENSE | "add_task" | "modify_task")
        }
        _ => true,
    }
}

/// A text argument, for people and observations; empty if it is missing.
fn text_of(arguments: &Value, key: &str) -> String {
    arguments.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The reference's text for an unsupported kind of action, known or unknown (O-132).
fn unsupported(kind: &str) -> String {
    if trajectory::Action::KINDS.contains(&kind) {
        format!("Action {kind} is not supported in the current runtime.")
    } else {
        format!("Action {kind} does not exist.")
    }
}
