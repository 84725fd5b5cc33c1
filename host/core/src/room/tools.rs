//! The agent seat: the host carries out what the pending message asks for, tool calls first (L-021, L-117, L-125). Which tools an agent
//! may call was fixed when the room opened; here it is only looked up.

use std::sync::Arc;

use serde_json::{Value, json};

use super::approvals::{Asked, Ruling};
use super::frame::{Frame, Responder, Said, Slot, ToolRound, Wait};
use super::posting::{text_form, unknown_plugin};
use super::steps::MAX_WEIGHT;
use super::{Purpose, Room};
use crate::action::{Action, Observation};
use crate::budget::Budget;
use crate::calling::{fit, routing};
use crate::effect::Effect;
use crate::event::Spent;
use crate::fault::CallReport;
use crate::grant::{DenialRecord, Layer};
use crate::ids::{CallId, FrameId, PluginName, TaskName};
use crate::manifest::Capability;
use crate::message::{Entity, Label, Message, ToolCall, ToolResult};
use crate::notice::Notice;
use crate::setup::{AgentSeat, NoTool, PluginKind, TaskSetup};
use crate::tool::{ToolError, ToolOutcome};
use crate::toolbox::{HostTool, ToolTarget, Toolbox};

/// Calls that may follow from one another in one answer; more is a loop.
const MAX_CHAIN: u32 = 8;
/// Calls in one round; more is a flood.
const MAX_ROUND: usize = 128;
const TOO_MANY: &str = "not run: a message may hold 128 calls, those that follow from them included";
/// Bytes of several results put together.
const MAX_TOGETHER: u64 = 1 << 20;
const TOO_LARGE: &str = "not run: what the calls before it said is too large already";
const ONE_CALL: &str = "not run: one call in a message, please";
const STANDS_ALONE: &str = "not run: a call that steers the task must be the only one in its message; none was run";

impl Room {
    pub(super) fn ask_agent_seat(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, task) = self.task_of(id)?;
        let task = Arc::clone(task);
        if frame.pending.is_none() {
            return Some(Wait::Ready(None));
        }
        if task.agent_seat == AgentSeat::Component {
            return Some(self.ask_responder(id).unwrap_or(Wait::Ready(None)));
        }
        let reading = self.reading(id);
        let pending = self.frames.get(&id)?.pending.clone()?;
        if let (Entity::Llm, Some(action)) = (pending.sender, &pending.action) {
            return Some(self.carry_out(id, action.clone()));
        }
        if let Some(wrong) = &reading.wrong {
            // L-114: none of the calls was run.
            self.tell_refused(id, &wrong.tool, &wrong.text);
            return Some(Wait::Ready(Some(self.refusal_message(id, &pending, wrong.text.clone()))));
        }
        let calls = self.trusted_calls(id, &pending, &reading.mine);
        if !calls.is_empty() {
            return Some(self.start_round(id, &pending, &calls));
        }
        if task.agent_seat == AgentSeat::HostThenComponent
            && let Some(wait) = self.ask_responder(id)
        {
            return Some(wait);
        }
        Some(self.without_tool(id))
    }

    /// L-171: of calls that came in from outside only those that the agent could have made itself are carried out.
    fn trusted_calls(&self, id: FrameId, pending: &Message, calls: &[ToolCall]) -> Vec<ToolCall> {
        let Some(frame) = self.frames.get(&id) else { return Vec::new() };
        let toolbox = self.toolbox(&frame.task);
        calls.iter().filter(|call| toolbox.trusts(pending, call)).cloned().collect()
    }

    /// What the operator wants done with a message that carries no call (L-125).
    pub(super) fn without_tool(&mut self, id: FrameId) -> Wait {
        self.answer_without_tool(id).unwrap_or(Wait::Ready(None))
    }

    fn answer_without_tool(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, task) = self.task_of(id)?;
        let (name, task) = (frame.task.clone(), Arc::clone(task));
        if task.as_langroid && task.agent_seat == AgentSeat::Component {
            // A native responder stands in the place of all that the agent does.
            return None;
        }
        let pending = frame.pending.clone().filter(|message| message.sender == Entity::Llm && message.action.is_none())?;
        let toolbox = self.toolbox(&name);
        // L-149: whoever is to name recipients and named none is asked for one.
        if super::memory::is_at_work(&toolbox, HostTool::RecipientMessage) {
            return match pending.recipient {
                Some(_) => None,
                None => Some(Wait::Ready(Some(Arc::new(self.ask_for_recipient(id, pending.text().to_owned(), &pending.labels))))),
            };
        }
        let reading = self.reading(id);
        let waits = !reading.unknown.is_empty() || !reading.mine.is_empty();
        if reading.is_for_others() || (waits && !task.as_langroid) {
            return None;
        }
        let call = match &task.no_tool {
            NoTool::Nothing => return None,
            NoTool::Nudge(text) => {
                let mut message = Arc::unwrap_or_clone(self.host_message(id, text.clone()));
                message.labels = taint_of(&pending);
                return Some(Wait::Ready(Some(Arc::new(message))));
            }
            NoTool::Done => {
                let tools = calls_as_json(&pending.tools);
                self.own_call(&toolbox, HostTool::AgentDone, json!({ "content": pending.text(), "tools": tools }))
            }
            NoTool::User => self.own_call(&toolbox, HostTool::Forward, json!({ "agent": Entity::User.as_str() })),
            NoTool::Call(call) => call.clone(),
        };
        let call = ToolCall { untrusted: call.untrusted || pending.labels.contains(&Label::Untrusted), ..call };
        let mut slot = Slot { call: call.clone(), now: call.clone(), asked_by: None, depth: 0, said: None };
        if let Some(tool) = host_tool_of(&toolbox, &call).filter(|_| !matches!(task.no_tool, NoTool::Call(_))) {
            // The operator's wish, not somebody's call: there is nothing to tell of it.
            slot.said = Some(self.steer(id, tool, &call, None, &pending));
        } else if self.is_handed_on(id, &toolbox, &call, None) {
            slot.said = Some(self.handed_on(id, call));
        }
        let mut round = ToolRound { slots: vec![slot], message: pending };
        self.run_slots(id, &mut round, 0);
        Some(self.settle(id, round))
    }

    /// What an agent's own answer on the agent seat asks for (L-030): calls are carried out at once, or handed on.
    pub(super) fn respond_with_calls(&mut self, id: FrameId, calls: &[ToolCall]) -> Option<Wait> {
        let (frame, _) = self.task_of(id)?;
        let (toolbox, pending) = (self.toolbox(&frame.task), frame.pending.clone()?);
        let untrusted = pending.labels.contains(&Label::Untrusted);
        let mut round = ToolRound { slots: Vec::with_capacity(calls.len()), message: pending };
        let (frame, task) = self.task_of(id)?;
        let (name, agent, langroid) = (frame.task.clone(), task.agent.clone(), task.as_langroid);
        for call in calls.iter().take(MAX_ROUND) {
            let call = ToolCall { untrusted: call.untrusted || untrusted, ..call.clone() };
            if !langroid && host_tool_of(&toolbox, &call).is_none() && toolbox.get(&call.name).is_none() {
                // What its agent was not granted it does not get by way of somebody else's grants.
                let text = self.unknown_tool(&agent, &name, &toolbox, &call.name);
                let said = Some(self.said_error(id, text));
                round.slots.push(Slot { call: call.clone(), now: call, asked_by: None, depth: 0, said });
                continue;
            }
            let said = self.is_handed_on(id, &toolbox, &call, None).then(|| self.handed_on(id, call.clone()));
            round.slots.push(Slot { call: call.clone(), now: call, asked_by: None, depth: 0, said });
        }
        self.run_slots(id, &mut round, 0);
        Some(self.settle(id, round))
    }

    /// A call that the host makes for a task: under the name that the tool has there.
    fn own_call(&self, toolbox: &Toolbox, tool: HostTool, arguments: Value) -> ToolCall {
        let name = toolbox.host_tool(tool).map_or_else(|| tool.as_str().to_owned(), |tool| tool.summary.name.clone());
        ToolCall::new(name, arguments)
    }

    fn start_round(&mut self, id: FrameId, pending: &Arc<Message>, calls: &[ToolCall]) -> Wait {
        let origin = self.origin_of(id, pending);
        let slot = |call: &ToolCall| Slot { call: call.clone(), now: call.clone(), asked_by: origin.clone(), depth: 0, said: None };
        let mut round = ToolRound { slots: calls.iter().map(slot).collect(), message: Arc::clone(pending) };
        let Some((frame, task)) = self.task_of(id) else { return Wait::Ready(None) };
        let (several, toolbox, task) = (task.allow_multiple_tools, self.toolbox(&frame.task), Arc::clone(task));
        // L-119: a call that steers the task stands alone. L-118: so does any, where the operator wants it.
        let is_final = |slot: &Slot| !task.as_langroid && toolbox.get(&slot.call.name).is_some_and(|tool| tool.is_final);
        let steers = |slot: &Slot| host_tool_of(&toolbox, &slot.call).is_some_and(HostTool::stands_alone) || is_final(slot);
        let refusal = if round.slots.len() < 2 {
            None
        } else if !several {
            Some(ONE_CALL)
        } else {
            round.slots.iter().any(steers).then_some(STANDS_ALONE)
        };
        for index in 0..round.slots.len() {
            let text = if index >= MAX_ROUND { Some(TOO_MANY) } else { refusal };
            if let Some(text) = text {
                round.slots[index].said = Some(self.said_error(id, text.to_owned()));
            }
        }
        if !task.as_langroid {
            self.add_unknown(id, &toolbox, &mut round);
        }
        self.run_slots(id, &mut round, 0);
        self.settle(id, round)
    }

    /// The agent that made the calls of a message that came from another task: its grants and the rules on it count too.
    fn origin_of(&self, id: FrameId, message: &Message) -> Option<PluginName> {
        let (_, task) = self.task_of(id)?;
        let by_other = message.sender == Entity::User && message.from_agent && !task.as_langroid;
        let origin = self.setup.tasks.get(message.sender_name.as_str()).map(|task| task.agent.clone())?;
        Some(origin).filter(|origin| by_other && *origin != task.agent)
    }

    /// Native calls that nobody here carries out want a result too: a provider accepts no call without one.
    fn add_unknown(&mut self, id: FrameId, toolbox: &Toolbox, round: &mut ToolRound) {
        let Some((frame, task)) = self.task_of(id) else { return };
        let (name, agent) = (frame.task.clone(), task.agent.clone());
        let calls: Vec<ToolCall> = round.message.tool_calls.iter().take(MAX_ROUND).cloned().collect();
        for (index, call) in calls.into_iter().enumerate() {
            if round.slots.iter().any(|slot| slot.call.id == call.id) {
                continue;
            }
            let text = match toolbox.get(&call.name) {
                Some(_) => format!("{} was not run: {name} does not carry it out, and other calls of the message were", call.name),
                None => self.unknown_tool(&agent, &name, toolbox, &call.name),
            };
            self.tell_refused(id, &call.name, &text);
            let said = Some(self.said_error(id, text));
            let slot = Slot { now: call.clone(), call, asked_by: None, depth: 0, said };
            round.slots.insert(index.min(round.slots.len()), slot);
        }
    }

    /// Starts every slot from `first` on that has no result yet.
    fn run_slots(&mut self, id: FrameId, round: &mut ToolRound, first: usize) {
        for index in first..round.slots.len() {
            self.run_slot(id, round, index);
        }
    }

    fn run_slot(&mut self, id: FrameId, round: &mut ToolRound, index: usize) {
        let Some(frame) = self.frames.get(&id) else { return };
        let toolbox = self.toolbox(&frame.task);
        let Some(slot) = round.slots.get(index) else { return };
        if slot.said.is_some() {
            return;
        }
        let (call, asked_by) = (slot.now.clone(), slot.asked_by.clone());
        let weight: usize =
            round.slots.iter().filter_map(|slot| slot.said.as_ref()?.message.as_ref()).map(|message| message.weight()).sum();
        let said = match host_tool_of(&toolbox, &call) {
            // Each may repeat the message that it stands in.
            Some(_) if weight > MAX_WEIGHT => Some(self.said_error(id, TOO_LARGE.to_owned())),
            Some(tool) => Some(self.steer(id, tool, &call, asked_by.as_ref(), &round.message)),
            None => self.start_tool(id, index, &call, asked_by.as_ref(), Asked::NotYet).map(|result| self.said_result(id, result)),
        };
        if let Some(said) = &said {
            self.tell_answer(id, &call.name, said);
        }
        if let Some(slot) = round.slots.get_mut(index) {
            slot.said = said;
        }
    }

    /// A call was answered without being carried out.
    pub(super) fn tell_refused(&mut self, id: FrameId, name: &str, text: &str) {
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else { return };
        let (name, content, report) = (name.to_owned(), text.to_owned(), CallReport::default());
        self.tell(Notice::ToolAnswered { call: None, task, name, content, is_error: true, fault: None, report });
    }

    fn tell_answer(&mut self, id: FrameId, name: &str, said: &Said) {
        let Some(frame) = self.frames.get(&id) else { return };
        self.tell(Notice::ToolAnswered {
            call: None,
            task: frame.task.clone(),
            name: name.to_owned(),
            content: said.message.as_ref().map(|message| message.text().to_owned()).unwrap_or_default(),
            is_error: said.is_error,
            fault: None,
            report: CallReport::default(),
        });
    }

    /// A text in place of an answer, as an error.
    pub(super) fn said_error(&mut self, id: FrameId, text: String) -> Said {
        let message = Arc::unwrap_or_clone(self.host_message(id, text));
        Said { message: Some(Box::new(message)), is_error: true, is_result: true }
    }

    fn said_result(&mut self, id: FrameId, result: ToolResult) -> Said {
        let mut message = Arc::unwrap_or_clone(self.host_message(id, result.content));
        message.value = result.value;
        Said { message: Some(Box::new(message)), is_error: result.is_error, is_result: true }
    }

    /// Starts a tool that an approver has let through; everything else is looked at again, for much may have been used up since.
    pub(super) fn start_approved(
        &mut self,
        id: FrameId,
        slot: usize,
        call: &ToolCall,
        asked_by: Option<&PluginName>,
        asked: Asked,
    ) -> Option<ToolResult> {
        self.start_tool(id, slot, call, asked_by, asked)
    }

    /// Starts a tool of a plugin, or asks about it; a result at once when it may not run.
    fn start_tool(&mut self, id: FrameId, slot: usize, call: &ToolCall, asked_by: Option<&PluginName>, asked: Asked) -> Option<ToolResult> {
        let Some((frame, task)) = self.task_of(id) else { return Some(failed(call, "the task is over".to_owned())) };
        let (task_name, agent, toolbox) = (frame.task.clone(), task.agent.clone(), self.toolbox(&frame.task));
        let target = toolbox.get(&call.name).filter(|tool| tool.handled).map(|tool| tool.target.clone());
        let Some(ToolTarget::Plugin { plugin, tool }) = target else {
            let text = self.unknown_tool(&agent, &task_name, &toolbox, &call.name);
            return Some(failed(call, text));
        };
        let admitted = format!("{plugin}.{tool}");
        if let Some(record) = self.calls_are_used_up(&agent, &admitted) {
            return Some(failed(call, self.denied(&agent, *record)));
        }
        // An agent whose call another task carries out has made it all the same.
        let origin =
            asked_by.filter(|by| self.setup.plugins.get(*by).is_some_and(|by| by.facts.kinds.contains(&PluginKind::Agent))).cloned();
        if let Some(origin) = &origin
            && let Some(record) = self.calls_are_used_up(origin, &admitted)
        {
            return Some(failed(call, self.denied(origin, *record)));
        }
        if asked != Asked::Approved {
            match self.rule_on(id, slot, &ToolCall { name: admitted, ..call.clone() }, (&agent, asked_by), asked) {
                Ruling::Runs => {}
                Ruling::Waits => return None,
                Ruling::Refused(result) => return Some(result),
            }
        }
        match self.must_wait_for(Budget::ToolCalls) {
            Ok(false) => {}
            Ok(true) => {
                self.next_call(Purpose::HeldTool { frame: id, slot, asked });
                return None;
            }
            Err(budget) => {
                self.over = Some(budget);
                return Some(failed(call, format!("{} is used up", budget.key())));
            }
        }
        self.spent = self.spent.plus(Spent { tool_calls: 1, ..Spent::default() });
        self.used_by(&agent).tool_calls += 1;
        if let Some(origin) = &origin {
            self.used_by(origin).tool_calls += 1;
        }
        let id = self.next_call(Purpose::Tool { frame: id, slot, plugin: plugin.clone() });
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        self.tell(Notice::ToolCalled { call: id, task: task_name.clone(), caller: agent.clone(), name, arguments: arguments.clone() });
        self.effects.push_back(Effect::CallTool { call: id, task: task_name, caller: agent, plugin, tool, arguments });
        None
    }

    /// What an agent reads of a call of a tool that it does not have; the operator reads which grant is missing, if one is.
    pub(super) fn unknown_tool(&mut self, agent: &PluginName, task: &TaskName, toolbox: &Toolbox, name: &str) -> String {
        if self.setup.tool(name).is_some() {
            let record = self.why_not(agent, task, name);
            return self.denied(agent, *record);
        }
        let known: Vec<&str> = toolbox.offered().iter().map(|tool| tool.name.as_str()).collect();
        if known.is_empty() {
            return format!("There is no tool {name:?}, and none that you may call.");
        }
        format!("There is no tool {name:?}. You may call: {}.", known.join(", "))
    }

    /// Why an admitted tool is not among those that the task's agent may call.
    fn why_not(&self, agent: &PluginName, task: &TaskName, tool: &str) -> Box<DenialRecord> {
        let Some(rights) = self.setup.rights(agent) else { return unknown_plugin(agent, Capability::Tools, tool) };
        if let Err(record) = rights.may_call(tool) {
            return record;
        }
        let (reason, wider) = wider_tools(&self.toolbox(task), agent, task, tool);
        rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider)
    }

    fn calls_are_used_up(&mut self, agent: &PluginName, tool: &str) -> Option<Box<DenialRecord>> {
        let used = self.used_by(agent).tool_calls;
        let rights = self.setup.rights(agent)?;
        let limit = rights.grants.tools.as_ref()?.calls.filter(|limit| used >= *limit)?;
        let reason = format!("{agent} has made the {limit} calls that plugins.{agent}.grants.tools.calls gives it");
        Some(rights.refuse(Capability::Tools, tool, Layer::Runtime, &reason, None))
    }

    pub(super) fn tool_answered(&mut self, call: CallId, answer: Result<ToolOutcome, ToolError>, report: CallReport) {
        let Some(Purpose::Tool { frame: id, slot: index, plugin }) = self.calls.get(&call).cloned() else { return };
        self.end_call(call, answer.is_ok(), &report);
        let Some(Wait::Tools(mut round)) = self.take_wait(id) else { return };
        let Some(slot) = round.slots.get(index).cloned() else { return };
        let (said, then) = self.said_of(id, &slot, &answer);
        let task = self.frames.get(&id).map_or_else(|| TaskName::from(""), |frame| frame.task.clone());
        let fault = match answer {
            Err(ToolError::Fault { fault }) => Some(fault),
            _ => None,
        };
        let content = said.message.as_ref().map(|message| message.text().to_owned()).unwrap_or_default();
        self.tell(Notice::ToolAnswered { call: Some(call), task, name: slot.now.name, content, is_error: said.is_error, fault, report });
        self.go_on_after(id, &mut round, index, (said, then), (&plugin, call));
        self.go_on(id, round);
    }

    /// What a tool's answer says, cut to what is allowed (L-120), and the calls that it asks for.
    fn said_of(&mut self, id: FrameId, slot: &Slot, answer: &Result<ToolOutcome, ToolError>) -> (Said, Vec<ToolCall>) {
        let outcome = match answer {
            Ok(outcome) => outcome,
            // L-050k: a tool's failure is an answer, and the run goes on.
            Err(error) => return (self.said_error(id, error.to_text(&slot.now.name)), Vec::new()),
        };
        // `null` is no value: in JSON, and so in a journal, the two look the same.
        let value = outcome.value.clone().filter(|value| !value.is_null());
        let content = outcome.content.clone().or_else(|| value.as_ref().map(text_form));
        if content.is_none() && outcome.attachments.is_empty() {
            return (Said::default(), outcome.then.clone());
        }
        let limit = self.task_of(id).and_then(|(frame, task)| {
            let tokens = self.toolbox(&frame.task).get(&slot.now.name)?.result_tokens?;
            Some((tokens, task.bytes_per_token))
        });
        let content = content.unwrap_or_default();
        let content = match limit {
            Some((tokens, bytes)) => fit::shortened(&content, tokens, bytes),
            None => content,
        };
        let mut message = Arc::unwrap_or_clone(self.host_message(id, content));
        message.value = value;
        message.attachments.clone_from(&outcome.attachments);
        (Said { message: Some(Box::new(message)), is_error: false, is_result: true }, outcome.then.clone())
    }

    /// A tool's outcome: what it said, and what it asks for.
    fn go_on_after(
        &mut self,
        id: FrameId,
        round: &mut ToolRound,
        index: usize,
        (said, then): (Said, Vec<ToolCall>),
        (plugin, call): (&PluginName, CallId),
    ) {
        let Some(slot) = round.slots.get_mut(index) else { return };
        let depth = slot.depth + 1;
        let tainted = slot.now.untrusted || round.message.labels.contains(&Label::Untrusted);
        let toolbox = self.frames.get(&id).map(|frame| self.toolbox(&frame.task)).unwrap_or_default();
        let as_here = |next: ToolCall| ToolCall { untrusted: next.untrusted || tainted, name: name_here(&toolbox, next.name), ..next };
        let mut then: Vec<ToolCall> = then.into_iter().map(as_here).collect();
        if said.message.is_none() && then.len() == 1 {
            // L-121: the call that it asks for takes its place.
            let next = then.remove(0);
            let before = std::mem::replace(&mut slot.now, next.clone());
            (slot.asked_by, slot.depth) = (Some(plugin.clone()), depth);
            let said = self.said_instead(id, next, depth, Some(&before), plugin);
            if let Some(slot) = round.slots.get_mut(index) {
                slot.said = said;
            }
            self.run_slot(id, round, index);
            return;
        }
        slot.said = Some(said);
        let first = round.slots.len();
        // One more than may run, so that the agent reads that there were more.
        for (offset, mut next) in then.into_iter().take((MAX_ROUND + 1).saturating_sub(first)).enumerate() {
            // The room's own id: with one of the plugin's choice, its result could pass for that of another call.
            next.id = format!("{call}-{offset}");
            let said = if first + offset >= MAX_ROUND {
                Some(self.said_error(id, TOO_MANY.to_owned()))
            } else {
                self.said_instead(id, next.clone(), depth, None, plugin)
            };
            round.slots.push(Slot { call: next.clone(), now: next, asked_by: Some(plugin.clone()), depth, said });
        }
        self.run_slots(id, round, first);
    }

    /// What a tool asked for is not carried out here: it leads nowhere, or somebody else is to do it.
    fn said_instead(&mut self, id: FrameId, next: ToolCall, depth: u32, before: Option<&ToolCall>, plugin: &PluginName) -> Option<Said> {
        if depth > MAX_CHAIN {
            return Some(self.said_error(id, format!("more than {MAX_CHAIN} tools led to one another")));
        }
        let toolbox = self.frames.get(&id).map(|frame| self.toolbox(&frame.task))?;
        if !self.is_handed_on(id, &toolbox, &next, before) {
            return None;
        }
        let steering = host_tool_of(&toolbox, &next).unwrap_or(HostTool::AgentSend);
        if let Err(record) = self.require_route(id, plugin, steering.as_str()) {
            let text = self.denied(plugin, *record);
            return Some(self.said_error(id, text));
        }
        Some(self.handed_on(id, next))
    }

    /// The call is for others (L-030): this task does not carry it out, or may not for whoever is behind it.
    fn is_handed_on(&self, id: FrameId, toolbox: &Toolbox, call: &ToolCall, before: Option<&ToolCall>) -> bool {
        let Some((_, task)) = self.task_of(id) else { return false };
        let is_again = task.as_langroid && before.is_some_and(|before| before.name == call.name);
        let knows = |name: &TaskName| self.toolbox(name).get(&call.name).is_some();
        let entry = match host_tool_of(toolbox, call) {
            Some(tool) => toolbox.host_tool(tool),
            None => toolbox.get(&call.name),
        };
        match entry {
            Some(entry) => !entry.handled || is_again || (call.untrusted && !entry.offered),
            // What nobody here knows is refused where it is started.
            None => host_tool_of(toolbox, call).is_some() || task.as_langroid || task.subtasks.iter().any(knows),
        }
    }

    fn handed_on(&mut self, id: FrameId, call: ToolCall) -> Said {
        let mut message = Arc::unwrap_or_clone(self.host_message(id, String::new()));
        message.labels.extend(call.untrusted.then_some(Label::Untrusted));
        message.tools = vec![call];
        message.from_agent = true;
        Said { message: Some(Box::new(message)), ..Said::default() }
    }

    /// Goes on with a slot that waited for something else than its tool: `start` gives its result, or has started the tool.
    pub(super) fn go_on_with(&mut self, id: FrameId, slot: usize, start: impl FnOnce(&mut Self, &mut ToolCall) -> Option<ToolResult>) {
        let Some(Wait::Tools(mut round)) = self.take_wait(id) else { return };
        let Some(mut call) = round.slots.get(slot).map(|slot| slot.now.clone()) else { return };
        let said = start(self, &mut call).map(|result| self.said_result(id, result));
        if let Some(said) = &said {
            self.tell_answer(id, &call.name, said);
        }
        if let Some(slot) = round.slots.get_mut(slot) {
            slot.now = call;
            slot.said = said;
        }
        self.go_on(id, round);
    }

    /// Waits for the rest of the round, or goes on with the task.
    fn go_on(&mut self, id: FrameId, round: ToolRound) {
        let wait = self.settle(id, round);
        if let Some(attempt) = self.frames.get_mut(&id).and_then(|frame| frame.attempt.as_mut()) {
            attempt.wait = wait;
            self.runnable.push_back(id);
        }
    }

    fn take_wait(&mut self, id: FrameId) -> Option<Wait> {
        let attempt = self.frames.get_mut(&id)?.attempt.as_mut()?;
        Some(std::mem::replace(&mut attempt.wait, Wait::Next))
    }

    /// Waits for the rest of the round, or makes its answer (L-117).
    fn settle(&mut self, id: FrameId, mut round: ToolRound) -> Wait {
        if !round.is_complete() {
            return Wait::Tools(round);
        }
        let Some((_, task)) = self.task_of(id) else { return Wait::Ready(None) };
        let task = Arc::clone(task);
        let is_native = |slot: &Slot| round.message.tool_calls.iter().any(|call| call.id == slot.call.id);
        let native: Vec<bool> = round.slots.iter().map(is_native).collect();
        if !task.as_langroid {
            // A call wants a result, even if there is nothing to say.
            for (slot, native) in round.slots.iter_mut().zip(&native) {
                let says_nothing = |message: &Message| message.is_empty() && !*native;
                let is_silent = slot.said.as_ref().is_some_and(|said| said.message.as_deref().is_none_or(says_nothing));
                if is_silent {
                    let text = if *native { String::new() } else { format!("{} gave an empty result.", slot.call.name) };
                    let message = Arc::unwrap_or_clone(self.host_message(id, text));
                    slot.said = Some(Said { message: Some(Box::new(message)), is_error: false, is_result: true });
                }
            }
        }
        for slot in &round.slots {
            if let Some(said) = slot.said.as_ref().filter(|said| said.is_result) {
                let result = result_of(slot, said);
                self.remember(id, None, Some(Observation::Tool(result)), round.message.seq);
            }
        }
        let tainted = round.message.labels.contains(&Label::Untrusted)
            || round.slots.iter().any(|slot| slot.now.untrusted || self.is_from_a_server(id, &slot.now.name));
        let message = match round.slots.as_mut_slice() {
            [] => None,
            [only] => alone(only, native.first().copied().unwrap_or_default()),
            slots => self.together(id, slots, &native, &task),
        };
        let Some(mut message) = message else { return Wait::Ready(None) };
        if tainted && message.tools.is_empty() && !message.labels.contains(&Label::Untrusted) {
            // L-172: what came of text from outside is text from outside.
            message.labels.insert(0, Label::Untrusted);
        }
        Wait::Ready(Some(Arc::new(message)))
    }

    /// What the tool gives comes from outside: it belongs to a server that no sandbox holds.
    fn is_from_a_server(&self, id: FrameId, tool: &str) -> bool {
        let toolbox = self.frames.get(&id).map(|frame| self.toolbox(&frame.task)).unwrap_or_default();
        match toolbox.get(tool).map(|tool| &tool.target) {
            Some(ToolTarget::Plugin { plugin, .. }) => self.setup.plugins.get(plugin).is_some_and(|plugin| plugin.facts.mcp),
            Some(ToolTarget::Host(_)) | None => false,
        }
    }

    /// Several results as one answer.
    fn together(&mut self, id: FrameId, slots: &mut [Slot], native: &[bool], task: &TaskSetup) -> Option<Message> {
        let said: Vec<(&Slot, &Said, &Message)> =
            slots.iter().filter_map(|slot| slot.said.as_ref().and_then(|said| Some((slot, said, &**said.message.as_ref()?)))).collect();
        if said.is_empty() {
            return None;
        }
        let all_native = native.iter().all(|native| *native);
        let signals = [routing::DONE, routing::PASS, routing::SEND_TO];
        let confusing = task.text.signals
            && all_native
            && said.len() > 1
            && said.iter().any(|(_, said, message)| !said.is_error && signals.iter().any(|signal| message.text().contains(signal)));
        let text_of = |message: &Message| if confusing { ONE_CALL.to_owned() } else { message.text().to_owned() };
        let blocks: Vec<String> =
            said.iter().map(|(slot, _, message)| format!("Result from {}: {}", slot.call.name, text_of(message))).collect();
        let in_results_alone = task.as_langroid && all_native && said.len() > 1;
        // Results that repeat the message they answer could double it with every step.
        let content = if in_results_alone { String::new() } else { fit::cut(&blocks.join("\n\n"), MAX_TOGETHER, 1) };
        let any_native = native.contains(&true);
        let results: Vec<ToolResult> = said
            .iter()
            .filter(|_| any_native)
            .zip(native)
            .filter(|((slot, ..), native)| **native || (!task.as_langroid && slot.asked_by.is_some()))
            .map(|((slot, said, message), _)| ToolResult { content: text_of(message), ..result_of(slot, said) })
            .collect();
        // What a tool asked for steers the task, whatever else was said.
        let steering: Vec<&Message> =
            said.iter().filter(|(slot, ..)| slot.asked_by.is_some() && !task.as_langroid).map(|(_, _, message)| *message).collect();
        let tools: Vec<ToolCall> = steering.iter().flat_map(|message| message.tools.iter().cloned()).collect();
        let recipient = steering.iter().find_map(|message| message.recipient.clone());
        let attachments = said.iter().flat_map(|(_, _, message)| message.attachments.iter().cloned()).collect();
        let mut message = Arc::unwrap_or_clone(self.host_message(id, content));
        message.labels.push(Label::Tool);
        (message.tool_results, message.recipient, message.attachments) = (results, recipient, attachments);
        (message.from_agent, message.tools) = (!tools.is_empty(), tools);
        Some(message)
    }

    /// Carries out an action that is more than a reply.
    fn carry_out(&mut self, id: FrameId, action: Action) -> Wait {
        let observed = match action {
            Action::Think { .. } => Ok("Your thought has been logged.".to_owned()),
            Action::Talk { .. } => Ok("Those who follow the run were told.".to_owned()),
            Action::DelegateTask(background) => self.delegate_in_background(id, &background).map(|receipt| receipt.to_string()),
            Action::Delegate { agent, inputs } => match self.delegate_within(id, &agent, inputs) {
                Ok(child) => return Wait::Delegate(child),
                Err(text) => Err(text),
            },
            // O-132
            other => Err(format!("Action {} is not supported in the current runtime.", other.name())),
        };
        let message = match observed {
            Ok(content) => {
                let message = self.host_message(id, content.clone());
                self.remember(id, None, Some(Observation::Success { content }), message.seq);
                message
            }
            Err(content) => self.error_message(id, content),
        };
        Wait::Ready(Some(message))
    }

    /// A child in the run, which works while this task waits (O-088).
    fn delegate_within(&mut self, id: FrameId, agent: &str, inputs: Value) -> Result<FrameId, String> {
        let task = self.may_delegate(id, agent)?;
        if self.is_above(id, &task) {
            return Err(format!("{task} waits for this task already, so it cannot be delegated to"));
        }
        // O-088: the child begins anew, unlike a sub-task, which goes on with what it knows (L-050b).
        self.clear_history(&task, 0);
        let text = inputs.get("task").map(text_form).unwrap_or_default();
        let caller = self.frames.get(&id).map_or_else(String::new, |frame: &Frame| frame.task.to_string());
        let child = self.new_frame(&task, Some(id), Arc::new(inputs));
        let mut message = self.stamp(Entity::User, &caller);
        message.content = Some(text);
        self.put_pending(child, Responder::User, message);
        self.runnable.push_back(child);
        Ok(child)
    }

    /// The task is this frame's own or one of its callers': starting it again would never end.
    pub(super) fn is_above(&self, id: FrameId, task: &TaskName) -> bool {
        let mut next = self.frames.get(&id);
        while let Some(frame) = next {
            if frame.task == *task {
                return true;
            }
            next = frame.caller.and_then(|caller| self.frames.get(&caller));
        }
        false
    }
}

/// The message of the only call of a round.
fn alone(slot: &mut Slot, is_native: bool) -> Option<Message> {
    let said = slot.said.take()?;
    let mut message = *said.message.clone()?;
    if said.is_result {
        message.labels.push(Label::Tool);
        if is_native {
            message.tool_results = vec![result_of(slot, &said)];
        }
    }
    Some(message)
}

/// What a call led to, as its model reads it.
fn result_of(slot: &Slot, said: &Said) -> ToolResult {
    let message = said.message.as_deref();
    ToolResult {
        call_id: slot.call.id.clone(),
        name: slot.call.name.clone(),
        content: message.map(|message| message.text().to_owned()).unwrap_or_default(),
        value: message.and_then(|message| message.value.clone()),
        is_error: said.is_error,
    }
}

/// The tool of the host that a call means: by its name in the toolbox, or by its own, as handlers write it.
pub(super) fn host_tool_of(toolbox: &Toolbox, call: &ToolCall) -> Option<HostTool> {
    match toolbox.get(&call.name).map(|tool| &tool.target) {
        Some(ToolTarget::Host(tool)) => Some(*tool),
        Some(ToolTarget::Plugin { .. }) => None,
        None => HostTool::named(&call.name).or_else(|| HostTool::ALL.into_iter().find(|tool| tool.langroid_name() == call.name)),
    }
}

/// A tool's name in this task: a plugin knows the tools of others as `plugin.tool`, whatever the operator calls them.
fn name_here(toolbox: &Toolbox, name: String) -> String {
    if toolbox.get(&name).is_some() {
        return name;
    }
    let is_it = |target: &ToolTarget| matches!(target, ToolTarget::Plugin { plugin, tool } if name.split_once('.') == Some((plugin.as_str(), tool.as_str())));
    toolbox.iter().find(|tool| is_it(&tool.target)).map_or(name, |tool| tool.summary.name.clone())
}

/// Calls as an argument of another call.
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
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), content, value: None, is_error: true }
}

/// Why a task does not give a tool that its agent was granted, and what to add. Not the whole list, which may say more of its tools than
/// their names.
pub(crate) fn wider_tools(toolbox: &Toolbox, agent: &PluginName, task: &TaskName, tool: &str) -> (String, Option<String>) {
    let is_it = |target: &ToolTarget| match target {
        ToolTarget::Plugin { plugin, tool: own } => tool.split_once('.') == Some((plugin.as_str(), own.as_str())),
        ToolTarget::Host(_) => false,
    };
    match toolbox.iter().find(|listed| is_it(&listed.target)) {
        Some(listed) if !listed.handled => (format!("tasks.{task}.tools leaves its calls to others, with `handle = false`"), None),
        Some(listed) => (format!("tasks.{task}.tools gives it another name, {:?}", listed.summary.name), None),
        None => (format!("tasks.{task}.tools narrows what {agent} may call"), Some(format!("add {tool:?} to tasks.{task}.tools"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolSpec;
    use crate::toolbox::TaskTool;

    #[test]
    fn a_tool_that_the_task_lists_already_is_not_to_be_added() {
        let tool = |name: &str| TaskTool::of_plugin(&"box".into(), &ToolSpec { name: name.to_owned(), ..ToolSpec::default() });
        let (mut named, mut left) = (tool("a"), tool("b"));
        "other".clone_into(&mut named.summary.name);
        left.handled = false;
        let toolbox: Toolbox = vec![named, left].into();
        let told = |name: &str| wider_tools(&toolbox, &"desk".into(), &"desk".into(), name);
        assert_eq!(told("box.a"), ("tasks.desk.tools gives it another name, \"other\"".into(), None));
        assert_eq!(told("box.b"), ("tasks.desk.tools leaves its calls to others, with `handle = false`".into(), None));
        assert_eq!(told("box.c").1.as_deref(), Some("add \"box.c\" to tasks.desk.tools"));
    }
}
