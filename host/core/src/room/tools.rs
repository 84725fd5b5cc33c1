//! The agent role: the host carries out the pending message, tool calls first (L-021, L-117,
//! L-125). The tools of each agent were fixed when the room opened; here they are only looked up.

mod round;
mod start;

use crate::room::{Dialogue, Frames, Histories, RoomContext, ToolRounds};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Invariant;
use super::approvals::Consent;
use super::frame::{CallOutcome, FrameWait, Slot, ToolRound};
use super::steps::MAX_WEIGHT;
use crate::protocol::notice::Notice;
use crate::setup::{AgentSeat, NoTool};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::fault::CallReport;
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Entity, Label, Message, ToolCall, ToolResult};

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
    pub(super) fn ask_agent_seat(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let task = Arc::clone(task);
        if frame.pending.is_none() {
            return Some(FrameWait::Ready(None));
        }
        if task.agent_seat == AgentSeat::Component {
            return Some(self.plugin_calls().ask_responder(id).unwrap_or(FrameWait::Ready(None)));
        }
        let reading = self.dialogue().reading(id);
        let pending = self.frames.get(&id)?.pending.clone()?;
        if let (Entity::Llm, Some(action)) = (pending.sender, &pending.action) {
            // An action precedes calls: its text may look like one.
            return Some(self.carry_out(id, action.clone()));
        }
        if let Some(wrong) = &reading.wrong {
            // L-114: none of the calls was run.
            self.frames.report_refused(self.cx, id, &wrong.tool, None, &wrong.text);
            return Some(FrameWait::Ready(Some(self.frames.refusal_message(
                self.cx,
                id,
                &pending,
                wrong.text.clone(),
            ))));
        }
        let calls = self.histories.trusted_calls(self.cx, self.frames, id, &pending, &reading.mine);
        if !calls.is_empty() {
            return Some(self.start_round(id, &pending, &calls));
        }
        if task.agent_seat == AgentSeat::HostThenComponent
            && let Some(wait) = self.plugin_calls().ask_responder(id)
        {
            return Some(wait);
        }
        Some(self.without_tool(id))
    }

    /// Applies the operator's rule for a message without a call (L-125).
    pub(super) fn without_tool(&mut self, id: FrameId) -> FrameWait {
        self.answer_without_tool(id).unwrap_or(FrameWait::Ready(None))
    }

    fn answer_without_tool(&mut self, id: FrameId) -> Option<FrameWait> {
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let (name, task) = (frame.task.clone(), Arc::clone(task));
        if task.rules().component_replaces_agent_seat {
            return None;
        }
        let pending = frame
            .pending
            .clone()
            .filter(|message| message.sender == Entity::Llm && message.action.is_none())?;
        let toolbox = self.histories.toolbox(self.cx, &name);
        // L-149: an agent that must name a recipient and did not is asked for one.
        if super::histories::is_at_work(&toolbox, HostTool::RecipientMessage) {
            return match pending.recipient {
                Some(_) => None,
                None => Some(FrameWait::Ready(Some(Arc::new(self.dialogue().ask_for_recipient(
                    id,
                    pending.text().to_owned(),
                    &pending.labels,
                ))))),
            };
        }
        let reading = self.dialogue().reading(id);
        let waits = !reading.unknown.is_empty() || !reading.mine.is_empty();
        if reading.is_for_others() || (waits && task.rules().unknown_calls_are_calls) {
            return None;
        }
        let call = match &task.no_tool {
            NoTool::Nothing => return None,
            NoTool::Nudge(text) => {
                let mut message =
                    Arc::unwrap_or_clone(self.frames.host_message(self.cx, id, text.clone()));
                message.labels = taint_of(&pending);
                return Some(FrameWait::Ready(Some(Arc::new(message))));
            }
            NoTool::Done => {
                let tools = calls_as_json(&pending.tools);
                self.cx.own_call(
                    &toolbox,
                    HostTool::AgentDone,
                    json!({ "content": pending.text(), "tools": tools }),
                )
            }
            NoTool::User => self.cx.own_call(
                &toolbox,
                HostTool::Forward,
                json!({ "agent": Entity::User.as_str() }),
            ),
            NoTool::Call(call) => call.clone(),
        };
        let call = ToolCall {
            untrusted: call.untrusted || pending.labels.contains(&Label::Untrusted),
            ..call
        };
        let mut slot = Slot::new(call.clone(), None);
        if let Some(tool) =
            host_tool_of(&toolbox, &call).filter(|_| !matches!(task.no_tool, NoTool::Call(_)))
        {
            // The operator's rule made it, so it is not reported as an agent's call.
            slot.said = Some(self.steer(id, tool, &call, None, &pending));
        } else if self.histories.is_handed_on(self.cx, self.frames, id, &toolbox, &call, None) {
            slot.said = Some(self.frames.handed_on(self.cx, id, call));
        }
        let mut round = ToolRound::new(vec![slot], pending);
        self.run_slots(id, &mut round, 0);
        Some(self.round_results().settle(id, round))
    }

    /// Carries out the calls in an agent's answer on the agent role, or passes them on (L-030).
    pub(super) fn respond_with_calls(
        &mut self,
        id: FrameId,
        calls: &[ToolCall],
    ) -> Option<FrameWait> {
        let (frame, _) = self.frames.task_of(self.cx, id)?;
        let (toolbox, pending) =
            (self.histories.toolbox(self.cx, &frame.task), frame.pending.clone()?);
        let untrusted = pending.labels.contains(&Label::Untrusted);
        let mut round = ToolRound::new(Vec::with_capacity(calls.len()), pending);
        let (frame, task) = self.frames.task_of(self.cx, id)?;
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
                let said = Some(self.frames.said_error(self.cx, id, text));
                round.slots.push(Slot { said, ..Slot::new(call, None) });
                continue;
            }
            let said = self
                .histories
                .is_handed_on(self.cx, self.frames, id, &toolbox, &call, None)
                .then(|| self.frames.handed_on(self.cx, id, call.clone()));
            round.slots.push(Slot { said, ..Slot::new(call, None) });
        }
        self.run_slots(id, &mut round, 0);
        Some(self.round_results().settle(id, round))
    }

    fn start_round(
        &mut self,
        id: FrameId,
        pending: &Arc<Message>,
        calls: &[ToolCall],
    ) -> FrameWait {
        let origin = self.frames.origin_of(self.cx, id, pending);
        let slot = |call: &ToolCall| Slot::new(call.clone(), origin.clone());
        let mut round = ToolRound::new(calls.iter().map(slot).collect(), Arc::clone(pending));
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            self.cx.violated(Invariant::FrameExists, id);
            return FrameWait::Ready(None);
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
        let refusal = if round.slots.len() < 2 {
            None
        } else if !several {
            Some(ONE_CALL)
        } else {
            round.slots.iter().any(steers).then_some(STANDS_ALONE)
        };
        // Refused slots get their results before any call starts.
        for index in 0..round.slots.len() {
            let text = if index >= MAX_ROUND { Some(TOO_MANY) } else { refusal };
            if let Some(text) = text {
                round.slots[index].said =
                    Some(self.frames.said_error(self.cx, id, text.to_owned()));
            }
        }
        if task.rules().every_call_gets_result {
            self.dialogue().add_unknown(id, &toolbox, &mut round);
        }
        self.run_slots(id, &mut round, 0);
        self.round_results().settle(id, round)
    }

    /// Starts every slot from `first` on that has no result.
    pub(super) fn run_slots(&mut self, id: FrameId, round: &mut ToolRound, first: usize) {
        for index in first..round.slots.len() {
            self.run_slot(id, round, index, Consent::NotYet);
        }
    }

    /// Starts one slot. `asked` is the consent that it has so far.
    pub(super) fn run_slot(
        &mut self,
        id: FrameId,
        round: &mut ToolRound,
        index: usize,
        asked: Consent,
    ) {
        let Some(frame) = self.frames.get(&id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let Some(slot) = round.slots.get(index) else {
            return self.cx.violated(Invariant::SlotExists, id);
        };
        if slot.said.is_some() {
            return;
        }
        if let Some(action) = slot.action.clone() {
            self.start_act(id, round, index, action, asked);
            return;
        }
        let (call, asked_by) = (slot.now.clone(), slot.asked_by.clone());
        let weight: usize = round
            .slots
            .iter()
            .filter_map(|slot| slot.said.as_ref()?.message.as_ref())
            .map(|message| message.weight())
            .sum();
        let said = match host_tool_of(&toolbox, &call) {
            // Each result may repeat the message that it stands in.
            Some(_) if weight > MAX_WEIGHT => {
                Some(self.frames.said_error(self.cx, id, TOO_LARGE.to_owned()))
            }
            // It may wait for gates, then for an approver, then for its result.
            Some(HostTool::DelegateTask) => self.background_work().delegate_by_call(
                (id, index),
                &call,
                asked_by.as_ref(),
                &round.message,
                asked,
            ),
            Some(tool) => Some(self.steer(id, tool, &call, asked_by.as_ref(), &round.message)),
            None => self
                .start_tool(id, index, &call, asked_by.as_ref(), asked)
                .map(|result| self.frames.said_result(self.cx, id, result)),
        };
        if let Some(said) = &said {
            self.frames.report_answer(self.cx, id, &call, said);
        }
        if let Some(slot) = round.slots.get_mut(index) {
            slot.said = said;
        }
    }
}

impl Histories {
    /// Returns the calls that the agent could have made itself; others from outside are not carried
    /// out (L-171).
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

    /// Returns whether the call is for another task (L-030): this task does not carry it out, or
    /// may not do so for its origin.
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

impl RoomContext {
    /// Returns a call that the host makes for a task, under the tool's name there.
    fn own_call(&self, toolbox: &Toolbox, tool: HostTool, arguments: Value) -> ToolCall {
        let name = toolbox
            .host_tool(tool)
            .map_or_else(|| tool.as_str().to_owned(), |tool| tool.summary.name.clone());
        ToolCall::new(name, arguments)
    }
}

impl Frames {
    /// Returns the agent that made the calls of another task's message. Its grants and rules apply
    /// too.
    fn origin_of(&self, cx: &RoomContext, id: FrameId, message: &Message) -> Option<PluginName> {
        let (_, task) = self.task_of(cx, id)?;
        let by_other = message.sender == Entity::User
            && message.from_agent
            && task.rules().results_limit_calls;
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
        arguments: Option<&Value>,
        text: &str,
    ) {
        let Some(task) = self.get(&id).map(|frame| frame.task.clone()) else { return };
        cx.tell(Notice::ToolAnswered {
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
        said: &CallOutcome,
    ) {
        let Some(frame) = self.get(&id) else { return };
        cx.tell(Notice::ToolAnswered {
            call: None,
            task: frame.task.clone(),
            name: call.name.clone(),
            arguments: Some(call.arguments.clone()),
            content: said
                .message
                .as_ref()
                .map(|message| message.text().to_owned())
                .unwrap_or_default(),
            is_error: said.is_error,
            fault: None,
            report: CallReport::default(),
        });
    }

    /// Returns an error as the outcome of a call.
    pub(super) fn said_error(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        text: String,
    ) -> CallOutcome {
        let message = Arc::unwrap_or_clone(self.host_message(cx, id, text));
        CallOutcome { message: Some(Box::new(message)), is_error: true, is_result: true }
    }

    fn said_result(&self, cx: &mut RoomContext, id: FrameId, result: ToolResult) -> CallOutcome {
        let mut message = Arc::unwrap_or_clone(self.host_message(cx, id, result.content));
        message.value = result.value;
        CallOutcome { message: Some(Box::new(message)), is_error: result.is_error, is_result: true }
    }

    fn handed_on(&self, cx: &mut RoomContext, id: FrameId, call: ToolCall) -> CallOutcome {
        let mut message = Arc::unwrap_or_clone(self.host_message(cx, id, String::new()));
        message.labels.extend(call.untrusted.then_some(Label::Untrusted));
        message.tools = vec![call];
        message.from_agent = true;
        CallOutcome { message: Some(Box::new(message)), ..CallOutcome::default() }
    }

    /// Returns whether the task is the frame's own or one of its callers'. Starting it again would
    /// not end.
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
    /// Adds an error result for native calls that are not carried out here, because model providers
    /// accept no call without one.
    fn add_unknown(&mut self, id: FrameId, toolbox: &Toolbox, round: &mut ToolRound) {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let calls: Vec<ToolCall> =
            round.message.tool_calls.iter().take(MAX_ROUND).cloned().collect();
        for (index, call) in calls.into_iter().enumerate() {
            if round.slots.iter().any(|slot| slot.call.id == call.id) {
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
            let said = Some(self.frames.said_error(self.cx, id, text));
            let slot = Slot { said, ..Slot::new(call, None) };
            round.slots.insert(index.min(round.slots.len()), slot);
        }
    }
}

/// Returns the host tool that a call means: by its name in the toolbox, or by the tool's own name,
/// as handlers write it.
pub(super) fn host_tool_of(toolbox: &Toolbox, call: &ToolCall) -> Option<HostTool> {
    match toolbox.get(&call.name).map(|tool| &tool.target) {
        Some(ToolTarget::Host(tool)) => Some(*tool),
        Some(ToolTarget::Plugin { .. }) => None,
        None => HostTool::named(&call.name)
            .or_else(|| HostTool::ALL.into_iter().find(|tool| tool.langroid_name() == call.name)),
    }
}

/// Returns calls as an argument of another call.
pub(super) fn calls_as_json(calls: &[ToolCall]) -> Value {
    let shown = |call: &ToolCall| match call.untrusted {
        true => json!({ "name": call.name, "arguments": call.arguments, "untrusted": true }),
        false => json!({ "name": call.name, "arguments": call.arguments }),
    };
    calls.iter().map(shown).collect()
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
