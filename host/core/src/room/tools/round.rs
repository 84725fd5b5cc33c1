//! The end of a round of calls: the outcome of each, and the calls that it leads to (L-121). The
//! agent role joins the outcomes in one message (L-117).

use std::sync::Arc;

use super::{MAX_ROUND, ONE_CALL, TOO_MANY, host_tool_of};
use crate::protocol::notice::Notice;
use crate::room::acting::drop_limit;
use crate::room::cut_results::ResultCut;
use crate::room::messages::text_form;
use crate::room::state::consent::Consent;
use crate::room::state::frame_state::FrameWait;
use crate::room::state::gated::AnsweredCall;
use crate::room::state::rounds::{CallOutcome, Slot, SlotAnswer, SlotState, ToolRound};
use crate::room::steps::MAX_WEIGHT;
use crate::room::{Dialogue, Frames, Histories, Invariant, Purpose, Room, RoomContext, ToolRounds};
use crate::setup::TaskSetup;
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::tool_calls::{routing, truncate};
use crate::types::action::Observation;
use crate::types::fault::CallReport;
use crate::types::host_tool::HostTool;
use crate::types::ids::{CallId, FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, ToolCall, ToolResult};
use crate::types::tool::{ToolError, ToolOutcome};

/// Calls that may follow from one another in one answer; more is taken for a loop.
pub(super) const MAX_CHAIN: u32 = 8;
/// Bytes of several results joined in one message.
const MAX_TOGETHER: u64 = 1 << 20;
/// Bytes of a message that are left for the notices of results that were cut.
const NOTICES: usize = 1 << 17;

impl Room {
    pub(in crate::room) fn tool_answered(
        &mut self,
        call: CallId,
        answer: Result<ToolOutcome, ToolError>,
        report: CallReport,
    ) {
        // Background commands have no slot to answer.
        if let Some(Purpose::Job { .. }) = self.cx.calls.get(&call) {
            self.job_answered(call, answer, report);
            return;
        }
        let Some(Purpose::Tool { frame: id, slot: index, plugin }) =
            self.cx.calls.get(&call).cloned()
        else {
            return;
        };
        self.end_call(call, answer.is_ok(), &report);
        drop_limit(&mut self.cx, call);
        if self.frames.slot_mut(&mut self.cx, id, index).is_none() {
            return;
        }
        let answered = AnsweredCall { call, plugin, answer, report };
        if let Some(answered) = self.tool_rounds().check_answer((id, index), answered) {
            self.tool_rounds().tool_ended((id, index), answered, None);
        }
    }
}

impl ToolRounds<'_> {
    /// Answers the slot of a call that is over. `withheld` is the reason why a gate withholds the
    /// result.
    pub(super) fn tool_ended(
        &mut self,
        (id, index): (FrameId, usize),
        answered: AnsweredCall,
        withheld: Option<&str>,
    ) {
        let AnsweredCall { call, plugin, mut answer, report } = answered;
        let Some(slot) = self.frames.slot_mut(self.cx, id, index).cloned() else { return };
        if let Some(reason) = withheld {
            self.kill_unread_job(id, &slot, &plugin, &answer);
            let message =
                format!("{} was run, and its result is withheld: {reason}", slot.now.name);
            answer = Err(ToolError::Other { message });
        }
        let (outcome, observation, then) = if slot.action.is_some() {
            // An observation inherits the taint of its call, its message and its server.
            let untrusted = slot.now.untrusted
                || self.frames.round(id).is_some_and(ToolRound::is_untrusted)
                || self.histories.is_from_a_server(self.cx, self.frames, id, &slot.now.name);
            let (outcome, observation) = self.executed(id, &slot, &plugin, untrusted, &answer);
            (outcome, Some(observation), Vec::new())
        } else {
            if let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) {
                self.histories.note_command(self.cx, &task, &slot.now, &answer);
            }
            let (outcome, then) = match &answer {
                // The host's own words are no failure of the tool.
                Err(ToolError::Other { message }) if withheld.is_some() => {
                    let message = message.clone();
                    (self.frames.error_outcome(self.cx, id, message), Vec::new())
                }
                answer => self.dialogue().outcome_of(id, &slot, answer),
            };
            if slot.nested.is_some() && !then.is_empty() {
                (self.dialogue().refused_follow_ups(id, &then), None, Vec::new())
            } else {
                (outcome, None, then)
            }
        };
        let task =
            self.frames.get(&id).map_or_else(|| TaskName::from(""), |frame| frame.task.clone());
        let fault = match answer {
            Err(ToolError::Fault { fault }) => Some(fault),
            _ => None,
        };
        let content =
            outcome.message.as_ref().map(|message| message.text().to_owned()).unwrap_or_default();
        self.cx.notify(Notice::ToolAnswered {
            call: Some(call),
            task,
            name: slot.now.name.clone(),
            arguments: None,
            content,
            is_error: outcome.is_error,
            fault,
            report,
        });
        if then.is_empty() {
            let answer = SlotAnswer { outcome, observation };
            self.frames.answer_slot(self.cx, id, index, answer);
        } else {
            self.follow_calls(id, index, (outcome, then), (&plugin, call));
        }
        self.dialogue().resume_round(id);
    }
}

impl Dialogue<'_> {
    /// Returns a tool's answer, cut to its limit (L-120), and the calls that it asks for.
    fn outcome_of(
        &mut self,
        id: FrameId,
        slot: &Slot,
        answer: &Result<ToolOutcome, ToolError>,
    ) -> (CallOutcome, Vec<ToolCall>) {
        let outcome = match answer {
            Ok(outcome) => outcome,
            // L-050k: a tool's failure is an answer, and the run continues.
            Err(error) => {
                return (
                    self.frames.error_outcome(self.cx, id, error.to_text(&slot.now.name)),
                    Vec::new(),
                );
            }
        };
        // `null` counts as no value, because a journal in JSON holds the same for both.
        let value = outcome.value.clone().filter(|value| !value.is_null());
        let content = outcome.content.clone().or_else(|| value.as_ref().map(text_form));
        if content.is_none() && outcome.attachments.is_empty() {
            return (CallOutcome::default(), outcome.follow_up_calls.clone());
        }
        let content = content.unwrap_or_default();
        // The limit is about what a model reads, and a nested result is read by a tool.
        let content = match slot.nested {
            Some(_) => content,
            None => {
                let untrusted = slot.now.untrusted
                    || self.frames.round(id).is_some_and(ToolRound::is_untrusted)
                    || self.histories.is_from_a_server(self.cx, self.frames, id, &slot.now.name);
                self.cut_result(id, &slot.now.name, content, untrusted)
            }
        };
        let mut message = self.frames.host_message(self.cx, id, content);
        message.value = value;
        message.attachments.clone_from(&outcome.attachments);
        (
            CallOutcome { message: Some(Box::new(message)), is_error: false, is_result: true },
            outcome.follow_up_calls.clone(),
        )
    }

    /// Returns the outcome of a requested call that is not carried out here; `None` if it is. It
    /// may exceed the chain limit, or belong to another task.
    fn outcome_without_call(
        &mut self,
        id: FrameId,
        next: ToolCall,
        depth: u32,
        before: Option<&ToolCall>,
        plugin: &PluginName,
    ) -> Option<CallOutcome> {
        if depth > MAX_CHAIN {
            return Some(self.frames.error_outcome(
                self.cx,
                id,
                format!("more than {MAX_CHAIN} tools led to one another"),
            ));
        }
        let toolbox =
            self.frames.get(&id).map(|frame| self.histories.toolbox(self.cx, &frame.task))?;
        if !self.histories.is_handed_on(self.cx, self.frames, id, &toolbox, &next, before) {
            return None;
        }
        let steering = host_tool_of(&toolbox, &next).unwrap_or(HostTool::AgentSend);
        if let Err(record) = self.frames.require_route(self.cx, id, plugin, steering.as_str()) {
            let text = self.cx.denied(plugin, *record);
            return Some(self.frames.error_outcome(self.cx, id, text));
        }
        Some(self.frames.handed_on(self.cx, id, next))
    }
}

impl Histories {
    /// Whether the tool belongs to an MCP server, whose results no sandbox controls.
    fn is_from_a_server(&self, cx: &RoomContext, frames: &Frames, id: FrameId, tool: &str) -> bool {
        let toolbox =
            frames.get(&id).map(|frame| self.toolbox(cx, &frame.task)).unwrap_or_default();
        match toolbox.get(tool).map(|tool| &tool.target) {
            Some(ToolTarget::Plugin { plugin, .. }) => {
                cx.setup.plugins.get(plugin).is_some_and(|plugin| plugin.facts.mcp)
            }
            Some(ToolTarget::Host(_)) | None => false,
        }
    }
}

impl ToolRounds<'_> {
    /// Records a tool's outcome, and starts the calls that it asks for.
    fn follow_calls(
        &mut self,
        id: FrameId,
        index: usize,
        (outcome, then): (CallOutcome, Vec<ToolCall>),
        (plugin, call): (&PluginName, CallId),
    ) {
        let is_untrusted = self.frames.round(id).is_some_and(ToolRound::is_untrusted);
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        let depth = slot.depth + 1;
        // A call that follows from an untrusted one is untrusted too.
        let tainted = slot.now.untrusted || is_untrusted;
        let led_by = slot.now.led_by_and(plugin);
        let toolbox = self
            .frames
            .get(&id)
            .map(|frame| self.histories.toolbox(self.cx, &frame.task))
            .unwrap_or_default();
        let as_here = |next: ToolCall| ToolCall {
            untrusted: next.untrusted || tainted,
            led_by: led_by.clone(),
            name: name_in_task(&toolbox, next.name),
            ..next
        };
        let mut then: Vec<ToolCall> = then.into_iter().map(as_here).collect();
        if outcome.message.is_none() && then.len() == 1 {
            // L-121: the requested call takes its place.
            let next = then.remove(0);
            let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
            let before = std::mem::replace(&mut slot.now, Arc::new(next.clone()));
            slot.depth = depth;
            slot.state = SlotState::Ready;
            match self.dialogue().outcome_without_call(id, next, depth, Some(&before), plugin) {
                Some(outcome) => self.frames.answer_slot(self.cx, id, index, outcome.into()),
                None => self.run_slot(id, index, Consent::NotYet),
            }
            return;
        }
        self.frames.answer_slot(self.cx, id, index, outcome.into());
        let Some(round) = self.frames.round(id) else { return };
        let first = round.slots.len();
        let of_round = round.slots.iter().filter(|slot| slot.nested.is_none()).count();
        // One slot more than may run, so that the agent reads that there were more.
        for (offset, mut next) in
            then.into_iter().take((MAX_ROUND + 1).saturating_sub(of_round)).enumerate()
        {
            // The room assigns the id. With an id of the plugin's choice, a result could pass for
            // that of another call.
            next.id = format!("{call}-{offset}");
            let outcome = if of_round + offset >= MAX_ROUND {
                Some(self.frames.error_outcome(self.cx, id, TOO_MANY.to_owned()))
            } else {
                self.dialogue().outcome_without_call(id, next.clone(), depth, None, plugin)
            };
            let slot = Slot { depth, ..Slot::new(next) }.answered(outcome);
            let Some(round) = self.frames.round_mut(self.cx, id) else { return };
            round.push(slot);
        }
        self.run_slots(id, first);
    }
}

impl Dialogue<'_> {
    /// Resumes a round in which a slot was answered or started: its task continues if all slots are
    /// answered.
    pub(in crate::room) fn resume_round(&mut self, id: FrameId) {
        self.end_if_complete(id);
        self.frames.runnable.push_back(id);
    }

    /// Ends a round whose slots are all answered, with its answer as that of the agent role.
    pub(in crate::room) fn end_if_complete(&mut self, id: FrameId) {
        self.answer_nested(id);
        let Some(round) = self.frames.round_mut(self.cx, id) else { return };
        if !round.is_complete() {
            return round.rest();
        }
        // The round is over, so its slots are moved out rather than copied.
        let empty = ToolRound::new(Vec::new(), Arc::clone(&round.message));
        let mut round = std::mem::replace(round, empty);
        round.slots.retain(|slot| slot.nested.is_none());
        let answer = self.answer_of(id, round).map(Arc::new);
        self.frames.set_wait(self.cx, id, FrameWait::Ready(answer));
    }

    /// Returns the answer of a complete round (L-117).
    fn answer_of(&mut self, id: FrameId, mut round: ToolRound) -> Option<Message> {
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return None;
        };
        let task = Arc::clone(task);
        // Only native calls need results under their own ids.
        let is_native =
            |slot: &Slot| round.message.tool_calls.iter().any(|call| call.id == slot.call.id);
        let native: Vec<bool> = round.slots.iter().map(is_native).collect();
        if task.rules().every_call_gets_result {
            // A call needs a result, even an empty one.
            for (slot, native) in round.slots.iter_mut().zip(&native) {
                let says_nothing = |message: &Message| message.is_empty() && !*native;
                let SlotState::Answered(answer) = &mut slot.state else { continue };
                if answer.outcome.message.as_deref().is_none_or(says_nothing) {
                    let text = if *native {
                        String::new()
                    } else {
                        format!("{} gave an empty result.", slot.call.name)
                    };
                    let message = self.frames.host_message(self.cx, id, text);
                    answer.outcome = CallOutcome {
                        message: Some(Box::new(message)),
                        is_error: false,
                        is_result: true,
                    };
                }
            }
        }
        for slot in &round.slots {
            if let Some(observation) = observation_of(slot) {
                self.frames.remember(self.cx, id, None, Some(observation), round.message.seq);
            }
        }
        let tainted = round.is_untrusted()
            || round.slots.iter().any(|slot| {
                slot.now.untrusted
                    || self.histories.is_from_a_server(self.cx, self.frames, id, &slot.now.name)
            });
        let mut message = match round.slots.as_slice() {
            [] => None,
            [only] => only_message(only, native.first().copied().unwrap_or_default()),
            slots => together(self.frames, self.cx, id, slots, &native, &task),
        }?;
        self.share_space(id, &mut message, round.message.seq, tainted);
        if tainted && message.tools.is_empty() && !message.labels.contains(&Label::Untrusted) {
            // L-172: anything derived from external text is external text.
            message.labels.insert(0, Label::Untrusted);
        }
        Some(message)
    }
}

/// Joins several results in one message.
fn together(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    slots: &[Slot],
    native: &[bool],
    task: &TaskSetup,
) -> Option<Message> {
    let answers: Vec<(&Slot, &CallOutcome, &Message)> = slots
        .iter()
        .filter_map(|slot| {
            slot.answer().and_then(|SlotAnswer { outcome, .. }| {
                Some((slot, outcome, &**outcome.message.as_ref()?))
            })
        })
        .collect();
    if answers.is_empty() {
        return None;
    }
    let all_native = native.iter().all(|native| *native);
    let signals = [routing::DONE, routing::PASS, routing::SEND_TO];
    let confusing = task.text_rules.signals
        && all_native
        && answers.len() > 1
        && answers.iter().any(|(_, outcome, message)| {
            !outcome.is_error && signals.iter().any(|signal| message.text().contains(signal))
        });
    let text_of = |message: &Message| {
        if confusing { ONE_CALL.to_owned() } else { message.text().to_owned() }
    };
    let blocks: Vec<String> = answers
        .iter()
        .map(|(slot, _, message)| match slot.call.name.as_str() {
            // A call that cannot be read.
            "" => text_of(message),
            name => format!("Result from {name}: {}", text_of(message)),
        })
        .collect();
    let rules = task.rules();
    let in_results_alone = rules.native_results_lack_text && all_native && answers.len() > 1;
    // Results that repeat the message they answer could double it with every step.
    let content = if in_results_alone {
        String::new()
    } else {
        truncate::cut(&blocks.join("\n\n"), MAX_TOGETHER, 1)
    };
    // Calls in the text have no result entry; their results are in the content.
    let any_native = native.contains(&true);
    let results: Vec<ToolResult> = answers
        .iter()
        .filter(|_| any_native)
        .zip(native)
        .filter(|((slot, ..), native)| {
            **native || (rules.joined_results_steer && slot.is_requested())
        })
        .map(|((slot, outcome, message), _)| ToolResult {
            content: text_of(message),
            ..result_of(slot, outcome)
        })
        .collect();
    // Routing that a tool asked for applies, regardless of the other results.
    let steering: Vec<&Message> = answers
        .iter()
        .filter(|(slot, ..)| slot.is_requested() && rules.joined_results_steer)
        .map(|(_, _, message)| *message)
        .collect();
    let tools: Vec<ToolCall> =
        steering.iter().flat_map(|message| message.tools.iter().cloned()).collect();
    let recipient = steering.iter().find_map(|message| message.recipient.clone());
    let led_by: Vec<PluginName> =
        steering.iter().flat_map(|message| message.led_by.iter().cloned()).collect();
    let attachments =
        answers.iter().flat_map(|(_, _, message)| message.attachments.iter().cloned()).collect();
    let mut message = frames.host_message(cx, id, content);
    message.labels.push(Label::Tool);
    message.led_by = led_by;
    (message.tool_results, message.recipient, message.attachments) =
        (results, recipient, attachments);
    (message.from_agent, message.tools) = (!tools.is_empty(), tools);
    Some(message)
}

impl Dialogue<'_> {
    /// Cuts the results of a message that are too much for it together: the tools have run, so
    /// dropping them would make the model repeat their effects. Each gets the same share, and what
    /// small results leave of theirs is for the large ones.
    fn share_space(&mut self, id: FrameId, message: &mut Message, seq: u64, untrusted: bool) {
        let mut weights: Vec<usize> = message.tool_results.iter().map(ToolResult::weight).collect();
        let results: usize = weights.iter().sum();
        let rest = message.weight() - results;
        if rest + results <= MAX_WEIGHT {
            return;
        }
        let count = weights.len();
        let mut space = MAX_WEIGHT.saturating_sub(rest + NOTICES);
        weights.sort_unstable();
        let mut share = space;
        for (number, weight) in weights.into_iter().enumerate() {
            share = space / (count - number);
            if weight > share {
                break;
            }
            space -= weight;
        }
        for result in message.tool_results.iter_mut().filter(|result| result.weight() > share) {
            result.value = None;
            if result.content.len() > share {
                let full_text = result.content.clone();
                result.content.truncate(result.content.floor_char_boundary(share));
                result.content += &format!(
                    "\n[Cut to {share} bytes: {count} results were too long together; ask for less at a time.]"
                );
                let cut = ResultCut { tool: &result.name, limit: share, seq, untrusted };
                if let Some(hint) = self.hold_result(id, full_text, &cut) {
                    result.content += &format!("\n{hint}");
                }
            }
        }
    }
}

/// The message of a round with a single call.
fn only_message(slot: &Slot, is_native: bool) -> Option<Message> {
    let outcome = &slot.answer()?.outcome;
    let mut message = *outcome.message.clone()?;
    if outcome.is_result {
        if !message.labels.contains(&Label::Tool) {
            message.labels.push(Label::Tool);
        }
        if is_native {
            message.tool_results = vec![result_of(slot, outcome)];
        }
    }
    Some(message)
}

/// The observation of a slot, made of its result if it has none of its own (O-053).
fn observation_of(slot: &Slot) -> Option<Observation> {
    let SlotAnswer { outcome, observation } = slot.answer()?;
    if observation.is_some() {
        return observation.clone();
    }
    let content =
        || outcome.message.as_ref().map(|message| message.text().to_owned()).unwrap_or_default();
    match slot.action {
        // A rule, an approver or a budget prevented the action.
        Some(_) if outcome.is_error => Some(Observation::Error { content: content() }),
        Some(_) => Some(Observation::Success { content: content() }),
        None => outcome.is_result.then(|| Observation::Tool(result_of(slot, outcome))),
    }
}

/// The result of a call for its model.
fn result_of(slot: &Slot, outcome: &CallOutcome) -> ToolResult {
    let message = outcome.message.as_deref();
    ToolResult {
        call_id: slot.call.id.clone(),
        name: slot.call.name.clone(),
        content: message.map(|message| message.text().to_owned()).unwrap_or_default(),
        value: message.and_then(|message| message.value.clone()),
        is_error: outcome.is_error,
    }
}

/// A tool's name in this task. Plugins name the tools of others as `plugin.tool`, under any name
/// that the operator gave them.
pub(super) fn name_in_task(toolbox: &Toolbox, name: String) -> String {
    if toolbox.get(&name).is_some() {
        return name;
    }
    let is_it = |target: &ToolTarget| matches!(target, ToolTarget::Plugin { plugin, tool } if name.split_once('.') == Some((plugin.as_str(), tool.as_str())));
    toolbox.iter().find(|tool| is_it(&tool.target)).map_or(name, |tool| tool.summary.name.clone())
}
