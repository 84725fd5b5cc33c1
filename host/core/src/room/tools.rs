//! The agent role: the host carries out the pending message, tool calls first (L-021, L-117,
//! L-125). The tools of each agent were fixed when the room opened; here they are only looked up.

mod gated;
mod nested;
mod round;
mod start;

use std::sync::Arc;

use serde_json::{Value, json};

use super::state::consent::Consent;
use super::state::frame_state::FrameWait;
use super::state::rounds::{CallOutcome, Slot, SlotAnswer, SlotState, ToolRound};
use super::steps::MAX_WEIGHT;
use super::{Dialogue, Frames, Histories, Invariant, RoomContext, ToolRounds};
use crate::protocol::notice::Notice;
use crate::setup::{AgentResponder, NoTool};
use crate::tool_calls::parse::{ParsedCalls, WrongCall};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::action::Action;
use crate::types::fault::CallReport;
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, Role, ToolCall, ToolResult, lead};

pub(super) use gated::{call_facts, changed_answer, changed_arguments, result_facts};
pub(crate) use start::{naming_task_list, wider_tools};

/// Calls in one round; more is taken for a flood.
const MAX_ROUND: usize = 128;
const TOO_MANY: &str =
    "not run: a message may hold 128 calls, those that follow from them included";
const TOO_LARGE: &str = "not run: what the calls before it said is too large already";
const ONE_CALL: &str = "not run: one call in a message, please";
const STANDS_ALONE: &str =
    "not run: a call that steers the task must be the only one in its message; none was run";

impl ToolRounds<'_> {
    /// Asks the agent role, and sets the wait of its step.
    pub(super) fn ask_agent_role(&mut self, id: FrameId) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let task = Arc::clone(task);
        let Some(pending) = frame.turn().pending.clone() else {
            return self.frames.set_wait(self.cx, id, FrameWait::Ready(None));
        };
        if task.agent_responder == AgentResponder::Component {
            let wait = self.plugin_calls().ask_responder(id).unwrap_or(FrameWait::Ready(None));
            return self.frames.set_wait(self.cx, id, wait);
        }
        let reading = self.dialogue().reading(id);
        if let (Role::Llm, Some(action)) = (pending.sender, &pending.action) {
            // An action precedes calls: its text may look like one.
            return self.carry_out(id, action.clone(), &pending);
        }
        let calls = self.histories.trusted_calls(self.cx, self.frames, id, &pending, &reading.own);
        if let ([wrong], [], [] | [_]) = (&*reading.wrong, &*calls, &*pending.tool_calls) {
            self.frames.report_refused(self.cx, id, &wrong.call.name, None, &wrong.text);
            let refusal = self.frames.refusal_message(self.cx, id, &pending, wrong.text.clone());
            return self.frames.set_wait(self.cx, id, FrameWait::Ready(Some(refusal)));
        }
        if !calls.is_empty() || !reading.wrong.is_empty() {
            return self.respond_to_calls(id, &pending, calls, &reading);
        }
        if task.agent_responder == AgentResponder::HostThenComponent
            && let Some(wait) = self.plugin_calls().ask_responder(id)
        {
            return self.frames.set_wait(self.cx, id, wait);
        }
        self.without_tool(id);
    }

    /// Applies the operator's rule for a message without a call (L-125).
    pub(super) fn without_tool(&mut self, id: FrameId) {
        match self.answer_without_tool(id) {
            Some(RuleAnswer::Round(round)) => self.start_round(id, round),
            Some(RuleAnswer::Message(message)) => {
                self.frames.set_wait(self.cx, id, FrameWait::Ready(Some(message)));
            }
            None => self.frames.set_wait(self.cx, id, FrameWait::Ready(None)),
        }
    }

    fn answer_without_tool(&mut self, id: FrameId) -> Option<RuleAnswer> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, task) = (frame.task.clone(), Arc::clone(task));
        if task.rules().component_replaces_host {
            return None;
        }
        let pending = frame
            .turn()
            .pending
            .clone()
            .filter(|message| message.sender == Role::Llm && message.action.is_none())?;
        let toolbox = self.histories.toolbox(self.cx, &name);
        // L-149: an agent that must name a recipient and did not is asked for one.
        if super::histories::is_at_work(&toolbox, HostTool::RecipientMessage) {
            return match pending.recipient {
                Some(_) => None,
                None => {
                    let (text, labels) = (pending.text().to_owned(), &pending.labels);
                    let message = self.dialogue().ask_for_recipient(id, text, labels);
                    Some(RuleAnswer::Message(Arc::new(message)))
                }
            };
        }
        let reading = self.dialogue().reading(id);
        let waits = !reading.unknown.is_empty() || !reading.own.is_empty();
        if reading.is_for_others() || (waits && task.rules().unknown_calls_are_calls) {
            return None;
        }
        let call = match &task.no_tool {
            NoTool::Nothing => return None,
            NoTool::Nudge(text) => {
                let mut message = self.frames.host_message(self.cx, id, text.clone());
                message.labels = taint_of(&pending);
                return Some(RuleAnswer::Message(Arc::new(message)));
            }
            NoTool::Done => {
                let tools = calls_as_json(&pending.tools);
                own_call(
                    &toolbox,
                    HostTool::AgentDone,
                    json!({ "content": pending.text(), "tools": tools }),
                )
            }
            NoTool::User => {
                own_call(&toolbox, HostTool::Forward, json!({ "agent": Role::User.as_str() }))
            }
            NoTool::Call(call) => call.clone(),
        };
        let call = ToolCall {
            untrusted: call.untrusted || pending.labels.contains(&Label::Untrusted),
            ..call
        };
        let mut outcome = if let Some(tool) =
            host_tool_of(&toolbox, &call).filter(|_| !matches!(task.no_tool, NoTool::Call(_)))
        {
            // The operator's rule made it, so it is not reported as an agent's call.
            Some(self.run_host_tool(id, tool, &call, &pending))
        } else if self.histories.is_handed_on(self.cx, self.frames, id, &toolbox, &call, None) {
            Some(self.frames.handed_on(self.cx, id, call.clone()))
        } else {
            None
        };
        // The operator's rule needs no grant of a plugin, so they are added behind the check.
        let call = ToolCall { led_by: pending.led_by.clone(), ..call };
        if let Some(message) = outcome.as_mut().and_then(|outcome| outcome.message.as_mut()) {
            lead(&mut message.led_by, &call.led_by);
            message.tools.iter_mut().for_each(|handed| lead(&mut handed.led_by, &call.led_by));
        }
        let slot = Slot::new(call).answered(outcome);
        Some(RuleAnswer::Round(ToolRound::new(vec![slot], pending)))
    }

    /// Carries out the calls in an agent's answer on the agent role, or passes them on (L-030).
    pub(super) fn respond_with_calls(&mut self, id: FrameId, calls: &[ToolCall]) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let Some(pending) = frame.turn().pending.clone() else {
            return self.frames.set_wait(self.cx, id, FrameWait::Ready(None));
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let untrusted = pending.labels.contains(&Label::Untrusted);
        let mut slots = Vec::with_capacity(calls.len());
        let (name, agent, rules) = (frame.task.clone(), task.agent.clone(), task.rules());
        for call in calls.iter().take(MAX_ROUND) {
            let call = ToolCall { untrusted: call.untrusted || untrusted, ..call.clone() };
            if !rules.unknown_calls_go_to_others
                && host_tool_of(&toolbox, &call).is_none()
                && toolbox.get(&call.name).is_none()
            {
                // A call must not gain permissions through another agent's grants.
                let text =
                    self.histories.unknown_tool(self.cx, &agent, &name, &toolbox, &call.name);
                let outcome = Some(self.frames.error_outcome(self.cx, id, text));
                slots.push(Slot::new(call).answered(outcome));
                continue;
            }
            let is_handed_on =
                self.histories.is_handed_on(self.cx, self.frames, id, &toolbox, &call, None);
            let unoffered = host_tool_of(&toolbox, &call)
                .filter(|tool| toolbox.host_tool(*tool).is_none_or(|entry| entry.handled))
                .filter(|_| is_handed_on && !rules.unknown_calls_go_to_others);
            if let Some(tool) = unoffered {
                // The component's own decision, which a grant allows as it does for a tool.
                let allowed = self.frames.require_route(self.cx, id, &agent, tool.as_str());
                let refused = allowed.map_err(|record| self.cx.denied(&agent, *record)).err();
                let outcome = refused.map(|text| self.frames.error_outcome(self.cx, id, text));
                let call = ToolCall { untrusted: outcome.is_some() && call.untrusted, ..call };
                slots.push(Slot::new(call).answered(outcome));
                continue;
            }
            let outcome = is_handed_on.then(|| self.frames.handed_on(self.cx, id, call.clone()));
            slots.push(Slot::new(call).answered(outcome));
        }
        self.start_round(id, ToolRound::new(slots, pending));
    }

    /// Carries out the calls of the pending message. Each wrong call of its `reading` gets its own
    /// error.
    fn respond_to_calls(
        &mut self,
        id: FrameId,
        pending: &Arc<Message>,
        calls: Vec<ToolCall>,
        reading: &ParsedCalls,
    ) {
        let origin = self.frames.origin_of(self.cx, id, pending);
        let slot = |call: ToolCall| match &origin {
            Some(origin) => Slot::new(ToolCall { led_by: call.led_by_and(origin), ..call }),
            None => Slot::new(call),
        };
        let mut slots: Vec<Slot> = calls.into_iter().map(slot).collect();
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (several, toolbox, task) = (
            task.allow_multiple_tools,
            self.histories.toolbox(self.cx, &frame.task),
            Arc::clone(task),
        );
        // L-119: a call that steers the task stands alone. L-118: so does every call, if the
        // operator wants it.
        let is_final = |slot: &Slot| {
            task.rules().ending_calls_stand_alone
                && toolbox.get(&slot.call.name).is_some_and(|tool| tool.is_final)
        };
        let steers = |slot: &Slot| {
            host_tool_of(&toolbox, &slot.call).is_some_and(HostTool::stands_alone) || is_final(slot)
        };
        let refusal = if slots.len() + reading.refused(task.rules()) < 2 {
            None
        } else if !several {
            Some(ONE_CALL)
        } else {
            slots.iter().any(steers).then_some(STANDS_ALONE)
        };
        // Refused slots get their results before any call starts.
        for (index, slot) in slots.iter_mut().enumerate() {
            let text = if index >= MAX_ROUND { Some(TOO_MANY) } else { refusal };
            if let Some(text) = text {
                let outcome = self.frames.error_outcome(self.cx, id, text.to_owned());
                slot.state = SlotState::Answered(Box::new(outcome.into()));
            }
        }
        self.add_wrong(id, &reading.wrong, &mut slots);
        if task.rules().every_call_gets_result {
            self.dialogue().add_unknown(id, &toolbox, pending, &reading.unknown, &mut slots);
        }
        self.start_round(id, ToolRound::new(slots, Arc::clone(pending)));
    }

    /// Adds the errors of calls that do not fit, each where its call stands.
    fn add_wrong(&mut self, id: FrameId, wrong: &[WrongCall], slots: &mut Vec<Slot>) {
        for (before, WrongCall { call, text, after }) in wrong.iter().enumerate() {
            // `after` counts the calls that fit before it, and `before` the wrong ones.
            let place = (before + after).min(slots.len());
            let text = if place < MAX_ROUND { text } else { TOO_MANY };
            let arguments = Some(&call.arguments);
            self.frames.report_refused(self.cx, id, &call.name, arguments, text);
            let outcome = self.frames.error_outcome(self.cx, id, text.to_owned());
            slots.insert(place, Slot::new(call.clone()).answered(Some(outcome)));
        }
    }

    /// Puts a round in its frame, starts its slots, and ends it if all are answered.
    pub(super) fn start_round(&mut self, id: FrameId, round: ToolRound) {
        self.frames.set_wait(self.cx, id, FrameWait::Tools(round));
        self.run_slots(id, 0);
        self.dialogue().end_if_complete(id);
    }

    /// Starts every slot from `first` on that has no result.
    pub(super) fn run_slots(&mut self, id: FrameId, first: usize) {
        let slots = self.frames.round_mut(self.cx, id).map_or(0, |round| round.slots.len());
        for index in first..slots {
            self.run_slot(id, index, Consent::NotYet);
        }
    }

    /// Starts one slot, or lets gates check it first. `consent` is the consent that it has so far.
    pub(super) fn run_slot(&mut self, id: FrameId, index: usize, consent: Consent) {
        // Rules and approvers see the call as its gates let it pass, so none comes before them.
        if consent == Consent::NotYet && self.check_call(id, index, Consent::NotYet) {
            return;
        }
        self.start_slot(id, index, consent);
    }

    /// Starts one slot, which has passed its gates.
    fn start_slot(&mut self, id: FrameId, index: usize, consent: Consent) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let Some(round) = self.frames.round_mut(self.cx, id) else { return };
        round.begin_work();
        let (weight, message) = (round.weight(), Arc::clone(&round.message));
        let Some(slot) = round.slots.get(index) else {
            return self.cx.violated(Invariant::SlotExists, id);
        };
        if !slot.is_open() {
            return;
        }
        let call = Arc::clone(&slot.now);
        let outcome = match slot.work(&toolbox) {
            SlotWork::Action(action) => {
                let action = action.clone();
                return self.start_act(id, index, action, consent);
            }
            // Each result may repeat the message that it stands in.
            SlotWork::HostTool(_) if weight > MAX_WEIGHT as u64 => {
                Some(self.frames.error_outcome(self.cx, id, TOO_LARGE.to_owned()))
            }
            // It may wait for gates, then for an approver, then for its result.
            SlotWork::HostTool(HostTool::DelegateTask) => {
                self.background_work().delegate_by_call((id, index), &call, message.seq, consent)
            }
            SlotWork::HostTool(tool) => Some(self.run_host_tool(id, tool, &call, &message)),
            SlotWork::PluginTool => self
                .start_tool(id, index, &call, consent)
                .map(|result| self.frames.result_outcome(self.cx, id, result)),
        };
        if let Some(outcome) = outcome {
            let labels =
                outcome.message.as_ref().map(|message| message.labels.contains(&Label::Untrusted));
            if outcome.is_result
                && labels == Some(true)
                && let Some(slot) = self.frames.slot_mut(self.cx, id, index)
            {
                // L-172: several answers in one message are as untrusted as the worst of them.
                Arc::make_mut(&mut slot.now).untrusted = true;
            }
            self.frames.report_answer(self.cx, id, &call, &outcome);
            self.frames.answer_slot(self.cx, id, index, outcome.into());
        }
    }
}

/// The kind of a slot's work.
enum SlotWork<'s> {
    Action(&'s Action),
    HostTool(HostTool),
    PluginTool,
}

impl Slot {
    /// The kind of its work. A tool may have asked for another call in its place.
    fn work(&self, toolbox: &Toolbox) -> SlotWork<'_> {
        match (&self.action, host_tool_of(toolbox, &self.now)) {
            (Some(action), _) => SlotWork::Action(action),
            (None, Some(tool)) => SlotWork::HostTool(tool),
            (None, None) => SlotWork::PluginTool,
        }
    }
}

/// The operator's answer to a message without a call.
enum RuleAnswer {
    Message(Arc<Message>),
    /// A call in its place.
    Round(ToolRound),
}

impl Histories {
    /// The calls that the agent could have made itself; others from outside are not carried out
    /// (L-171).
    fn trusted_calls(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        pending: &Message,
        calls: &[ToolCall],
    ) -> Vec<ToolCall> {
        let Some(frame) = frames.get(&id) else { return Vec::new() };
        let toolbox = self.toolbox(cx, &frame.task);
        calls.iter().filter(|call| toolbox.trusts(pending, call)).cloned().collect()
    }

    /// Whether the call is for another task (L-030): this task does not carry it out, or may not do
    /// so for its origin.
    fn is_handed_on(
        &self,
        cx: &RoomContext,
        frames: &Frames,
        id: FrameId,
        toolbox: &Toolbox,
        call: &ToolCall,
        before: Option<&ToolCall>,
    ) -> bool {
        let Some((_, task)) = frames.task_of(cx, id) else { return false };
        let is_again = task.rules().repeated_calls_go_to_others
            && before.is_some_and(|before| before.name == call.name);
        let knows = |name: &TaskName| self.toolbox(cx, name).get(&call.name).is_some();
        let entry = match host_tool_of(toolbox, call) {
            Some(tool) => toolbox.host_tool(tool),
            None => toolbox.get(&call.name),
        };
        match entry {
            Some(entry) => !entry.handled || is_again || (call.untrusted && !entry.offered),
            // A call that is unknown everywhere is refused when it starts.
            None => {
                host_tool_of(toolbox, call).is_some()
                    || task.rules().unknown_calls_go_to_others
                    || task.subtasks.iter().any(knows)
            }
        }
    }
}

/// A call that the host makes for a task, under the tool's name there.
fn own_call(toolbox: &Toolbox, tool: HostTool, arguments: Value) -> ToolCall {
    let name = toolbox
        .host_tool(tool)
        .map_or_else(|| tool.as_str().to_owned(), |tool| tool.summary.name.clone());
    ToolCall::new(name, arguments)
}

impl Frames {
    /// The agent that made the calls of another task's message. Its grants and rules apply too.
    fn origin_of(&self, cx: &RoomContext, id: FrameId, message: &Message) -> Option<PluginName> {
        let (_, task) = self.task_of(cx, id)?;
        let by_other =
            message.sender == Role::User && message.from_agent && task.rules().results_limit_calls;
        let origin =
            cx.setup.tasks.get(message.sender_name.as_str()).map(|task| task.agent.clone())?;
        Some(origin).filter(|origin| by_other && *origin != task.agent)
    }

    /// Reports a call that was answered without being carried out.
    pub(super) fn report_refused(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        name: &str,
        arguments: Option<&Arc<Value>>,
        text: &str,
    ) {
        let Some(task) = self.get(&id).map(|frame| frame.task.clone()) else { return };
        cx.notify(Notice::ToolAnswered {
            call: None,
            task,
            name: name.to_owned(),
            arguments: arguments.cloned(),
            content: text.to_owned(),
            is_error: true,
            fault: None,
            report: CallReport::default(),
        });
    }

    pub(super) fn report_answer(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        call: &ToolCall,
        outcome: &CallOutcome,
    ) {
        let Some(frame) = self.get(&id) else { return };
        cx.notify(Notice::ToolAnswered {
            call: None,
            task: frame.task.clone(),
            name: call.name.clone(),
            arguments: Some(call.arguments.clone()),
            content: outcome
                .message
                .as_ref()
                .map(|message| message.text().to_owned())
                .unwrap_or_default(),
            is_error: outcome.is_error,
            fault: None,
            report: CallReport::default(),
        });
    }

    /// Returns an error as the outcome of a call.
    pub(super) fn error_outcome(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        text: String,
    ) -> CallOutcome {
        let message = self.host_message(cx, id, text);
        CallOutcome { message: Some(Box::new(message)), is_error: true, is_result: true }
    }

    /// Answers a slot.
    pub(super) fn answer_slot(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        index: usize,
        answer: SlotAnswer,
    ) {
        let Some(round) = self.round_mut(cx, id) else { return };
        if !round.answer(index, answer) {
            cx.violated(Invariant::SlotExists, id);
        }
    }

    /// Sets the state of a slot that waits.
    pub(super) fn set_slot(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        index: usize,
        state: SlotState,
    ) {
        if let Some(slot) = self.slot_mut(cx, id, index) {
            slot.state = state;
        }
    }

    pub(super) fn result_outcome(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        result: ToolResult,
    ) -> CallOutcome {
        let mut message = self.host_message(cx, id, result.content);
        message.value = result.value;
        CallOutcome { message: Some(Box::new(message)), is_error: result.is_error, is_result: true }
    }

    fn handed_on(&self, cx: &mut RoomContext, id: FrameId, call: ToolCall) -> CallOutcome {
        let mut message = self.host_message(cx, id, String::new());
        message.labels.extend(call.untrusted.then_some(Label::Untrusted));
        message.led_by.clone_from(&call.led_by);
        message.tools = vec![call];
        message.from_agent = true;
        CallOutcome { message: Some(Box::new(message)), ..CallOutcome::default() }
    }

    /// Whether the task is the frame's own or one of its callers'. Starting it again would not end.
    pub(super) fn is_above(&self, id: FrameId, task: &TaskName) -> bool {
        let mut next = self.get(&id);
        while let Some(frame) = next {
            if frame.task == *task {
                return true;
            }
            next = frame.caller.and_then(|caller| self.get(&caller));
        }
        false
    }
}

impl Dialogue<'_> {
    /// Adds an error result for calls that are unknown or not carried out here: model providers
    /// accept no native call without one.
    fn add_unknown(
        &mut self,
        id: FrameId,
        toolbox: &Toolbox,
        message: &Message,
        unknown: &[String],
        slots: &mut Vec<Slot>,
    ) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        if message.tool_calls.is_empty() {
            // In a text they have no ids, so their place among the others is lost.
            for tool in unknown.iter().take(MAX_ROUND.saturating_sub(slots.len())) {
                let text = self.histories.unknown_tool(self.cx, &agent, &name, toolbox, tool);
                self.frames.report_refused(self.cx, id, tool, None, &text);
                let outcome = Some(self.frames.error_outcome(self.cx, id, text));
                slots.push(Slot::new(ToolCall::new(tool.clone(), json!({}))).answered(outcome));
            }
        }
        for (index, call) in message.tool_calls.iter().take(MAX_ROUND).enumerate() {
            if slots.iter().any(|slot| slot.call.id == call.id) {
                continue;
            }
            let text = match toolbox.get(&call.name) {
                Some(_) => format!(
                    "{} was not run: {name} does not carry it out, and other calls of the message were",
                    call.name
                ),
                None => self.histories.unknown_tool(self.cx, &agent, &name, toolbox, &call.name),
            };
            self.frames.report_refused(self.cx, id, &call.name, Some(&call.arguments), &text);
            let outcome = Some(self.frames.error_outcome(self.cx, id, text));
            let slot = Slot::new(call.clone()).answered(outcome);
            slots.insert(index.min(slots.len()), slot);
        }
    }
}

/// The host tool that a call means: by its name in the toolbox, or by the tool's own name, as
/// handlers write it.
pub(super) fn host_tool_of(toolbox: &Toolbox, call: &ToolCall) -> Option<HostTool> {
    match toolbox.get(&call.name).map(|tool| &tool.target) {
        Some(ToolTarget::Host(tool)) => Some(*tool),
        Some(ToolTarget::Plugin { .. }) => None,
        None => HostTool::from_name(&call.name)
            .or_else(|| HostTool::ALL.into_iter().find(|tool| tool.langroid_name() == call.name)),
    }
}

/// Returns calls as an argument of another call.
pub(super) fn calls_as_json(calls: &[ToolCall]) -> Value {
    let as_json = |call: &ToolCall| match call.untrusted {
        true => json!({ "name": call.name, "arguments": call.arguments, "untrusted": true }),
        false => json!({ "name": call.name, "arguments": call.arguments }),
    };
    calls.iter().map(as_json).collect()
}

pub(super) fn taint_of(message: &Message) -> Vec<Label> {
    message.labels.iter().copied().filter(|label| *label == Label::Untrusted).collect()
}

pub(super) fn failed(call: &ToolCall, content: String) -> ToolResult {
    ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content,
        value: None,
        is_error: true,
    }
}
