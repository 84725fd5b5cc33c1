//! The agent seat: the host carries out what the pending message asks for, tool calls first (L-021, L-117, L-125). Which tools an agent
//! may call was fixed when the room opened; here it is only looked up.

use std::sync::Arc;

use serde_json::{Value, json};

use super::approvals::Ruling;
use super::ending::done_signal;
use super::frame::{Frame, Responder, Slot, ToolRound, Wait};
use super::posting::unknown_plugin;
use super::{Purpose, Room};
use crate::action::{Action, Background, Observation};
use crate::config::ORCHESTRATION_TOOLS;
use crate::effect::Effect;
use crate::fault::CallReport;
use crate::grant::{DenialRecord, Layer, list_with};
use crate::ids::{CallId, FrameId, PluginName, TaskName};
use crate::manifest::Capability;
use crate::message::{Entity, Label, Message, Signal, ToolCall, ToolResult};
use crate::notice::Notice;
use crate::setup::{AgentSeat, NoTool};
use crate::tool::{ToolError, ToolOutcome};

/// Calls that may follow from one another in one answer; more is a loop.
const MAX_CHAIN: u32 = 8;
/// Calls in one round; more is a flood.
const MAX_ROUND: usize = 128;
const TOO_MANY: &str = "not run: a message may hold 128 calls, those that follow from them included";
/// Those that steer the task to one place (L-119).
const EXCLUSIVE_TOOLS: [&str; 7] = ["done", "agent_done", "pass", "done_pass", "forward", "send", "agent_send"];

impl Room {
    pub(super) fn ask_agent_seat(&mut self, id: FrameId) -> Option<Wait> {
        let (frame, task) = self.task_of(id)?;
        let seat = task.agent_seat;
        let Some(pending) = frame.pending.clone() else { return Some(Wait::Ready(None)) };
        if seat == AgentSeat::Component {
            return Some(self.ask_responder(id).unwrap_or(Wait::Ready(None)));
        }
        // L-171: only the agent's own calls are carried out, never those that came in from outside.
        if pending.sender == Entity::Llm && !pending.tool_calls.is_empty() {
            return Some(self.start_round(id, &pending.tool_calls));
        }
        if let (Entity::Llm, Some(action)) = (pending.sender, &pending.action) {
            return Some(self.carry_out(id, action.clone()));
        }
        if seat == AgentSeat::HostThenComponent
            && let Some(wait) = self.ask_responder(id)
        {
            return Some(wait);
        }
        Some(Wait::Ready(self.without_tool(id)))
    }

    /// What the operator wants done with a message that carries no call (L-125).
    pub(super) fn without_tool(&mut self, id: FrameId) -> Option<Arc<Message>> {
        let (frame, task) = self.task_of(id)?;
        let pending = frame.pending.clone().filter(|message| message.sender == Entity::Llm && !message.wants_agent_seat())?;
        let wanted = task.no_tool.clone();
        let message = match wanted {
            NoTool::Nothing => return None,
            NoTool::Nudge(text) => return Some(self.host_message(id, text)),
            NoTool::Done => {
                let mut message = Arc::unwrap_or_clone(self.host_message(id, pending.text().to_owned()));
                message.signal = Some(Signal::Done { value: None });
                message
            }
            NoTool::User => {
                let mut message = Arc::unwrap_or_clone(self.host_message(id, pending.text().to_owned()));
                message.recipient = Some(Entity::User.as_str().to_owned());
                message
            }
        };
        Some(Arc::new(message))
    }

    fn start_round(&mut self, id: FrameId, calls: &[ToolCall]) -> Wait {
        let slots = calls.iter().enumerate().map(|(index, call)| {
            let result = (index >= MAX_ROUND).then(|| failed(call, TOO_MANY.to_owned()));
            Slot { call: call.clone(), asked_by: None, depth: 0, result }
        });
        let mut round = ToolRound { slots: slots.collect(), signal: None };
        // L-119: a call that steers the task stands alone.
        let steers = |slot: &Slot| EXCLUSIVE_TOOLS.contains(&slot.call.name.as_str());
        if round.slots.len() > 1 && round.slots.iter().any(steers) {
            for slot in &mut round.slots {
                slot.result =
                    Some(failed(&slot.call, "a call that steers the task must be the only one in its message; none was run".to_owned()));
            }
        }
        self.run_slots(id, &mut round, 0);
        self.settle(id, round)
    }

    /// Starts every slot from `first` on that has no result yet.
    fn run_slots(&mut self, id: FrameId, round: &mut ToolRound, first: usize) {
        for index in first..round.slots.len() {
            let slot = &round.slots[index];
            if slot.result.is_some() {
                continue;
            }
            let (call, asked_by) = (slot.call.clone(), slot.asked_by.clone());
            let result = if ORCHESTRATION_TOOLS.contains(&call.name.as_str()) {
                Some(self.orchestrate(id, &call, asked_by.as_ref(), &mut round.signal))
            } else {
                self.start_tool(id, index, &call, asked_by.as_ref(), false)
            };
            if let Some(result) = &result {
                self.tell_answer(id, &call.name, result);
            }
            round.slots[index].result = result;
        }
    }

    fn tell_answer(&mut self, id: FrameId, name: &str, result: &ToolResult) {
        let Some(frame) = self.frames.get(&id) else { return };
        self.tell(Notice::ToolAnswered {
            call: None,
            task: frame.task.clone(),
            name: name.to_owned(),
            content: result.content.clone(),
            is_error: result.is_error,
            fault: None,
            report: CallReport::default(),
        });
    }

    /// Starts a tool that an approver has let through; everything else is looked at again, for much may have been used up since.
    pub(super) fn start_approved(&mut self, id: FrameId, slot: usize, call: &ToolCall) -> Option<ToolResult> {
        self.start_tool(id, slot, call, None, true)
    }

    /// Starts a tool of a plugin, or asks about it; a result at once when it may not run.
    fn start_tool(
        &mut self,
        id: FrameId,
        slot: usize,
        call: &ToolCall,
        asked_by: Option<&PluginName>,
        is_approved: bool,
    ) -> Option<ToolResult> {
        let Some((frame, task)) = self.task_of(id) else { return Some(failed(call, "the task is over".to_owned())) };
        let (task_name, agent, tools) = (frame.task.clone(), task.agent.clone(), Arc::clone(&task.tools));
        let setup = Arc::clone(&self.setup);
        let admitted = setup.tool(&call.name);
        let Some((plugin, spec)) = admitted.filter(|_| tools.iter().any(|tool| tool.name == call.name)) else {
            return Some(match admitted {
                Some(_) => {
                    let record = self.why_not(&agent, &task_name, &call.name);
                    failed(call, self.denied(&agent, *record))
                }
                // The reference gives no feedback here (L-113), and its tasks stall.
                None => failed(call, unknown_tool(&call.name, tools.iter().map(|tool| tool.name.as_str()))),
            });
        };
        if let Some(record) = self.calls_are_used_up(&agent, &call.name) {
            return Some(failed(call, self.denied(&agent, *record)));
        }
        if !is_approved {
            match self.rule_on(id, slot, call, &agent, asked_by) {
                Ruling::Runs => {}
                Ruling::Waits => return None,
                Ruling::Refused(result) => return Some(result),
            }
        }
        self.used_by(&agent).tool_calls += 1;
        let (plugin, tool) = (plugin.clone(), spec.name.clone());
        let id = self.next_call(Purpose::Tool { frame: id, slot, plugin: plugin.clone() });
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        self.tell(Notice::ToolCalled { call: id, task: task_name.clone(), caller: agent.clone(), name, arguments: arguments.clone() });
        self.effects.push_back(Effect::CallTool { call: id, task: task_name, caller: agent, plugin, tool, arguments });
        None
    }

    /// Why an admitted tool is not among those that the task's agent may call.
    fn why_not(&self, agent: &PluginName, task: &TaskName, tool: &str) -> Box<DenialRecord> {
        let Some(rights) = self.setup.rights(agent) else { return unknown_plugin(agent, Capability::Tools, tool) };
        let smallest = || {
            let granted = rights.grants.tools.iter().flat_map(|grant| &grant.names).map(|pattern| pattern.0.as_str());
            Some(format!("[plugins.{agent}] grants.tools = {}", list_with(granted, tool)))
        };
        if let Err(record) = rights.require(Capability::Tools, tool, smallest) {
            return record;
        }
        let granted = rights.grants.tools.as_ref().is_some_and(|grant| grant.names.iter().any(|pattern| pattern.covers(tool)));
        if granted {
            let reason = format!("tasks.{task}.tools narrows what {agent} may call");
            return rights.refuse(Capability::Tools, tool, Layer::Task, &reason, Some(self.wider_tools(task, tool)));
        }
        let reason = format!("plugins.{agent}.grants.tools does not cover it");
        rights.refuse(Capability::Tools, tool, Layer::Config, &reason, smallest())
    }

    /// The task's line with one tool more.
    fn wider_tools(&self, task: &TaskName, tool: &str) -> String {
        let allowed = self.setup.tasks.get(task).map(|task| Arc::clone(&task.tools)).unwrap_or_default();
        format!("[tasks.{task}] tools = {}", list_with(allowed.iter().map(|tool| tool.name.as_str()), tool))
    }

    fn calls_are_used_up(&mut self, agent: &PluginName, tool: &str) -> Option<Box<DenialRecord>> {
        let used = self.used_by(agent).tool_calls;
        let rights = self.setup.rights(agent)?;
        let limit = rights.grants.tools.as_ref()?.calls.filter(|limit| used >= *limit)?;
        let reason = format!("{agent} has made the {limit} calls that plugins.{agent}.grants.tools.calls gives it");
        Some(rights.refuse(Capability::Tools, tool, Layer::Runtime, &reason, None))
    }

    /// Carries out an orchestration tool. A tool plugin needs the `route` grant for it; an agent steers its own task freely.
    fn orchestrate(&mut self, id: FrameId, call: &ToolCall, asked_by: Option<&PluginName>, signal: &mut Option<Signal>) -> ToolResult {
        if let Some(plugin) = asked_by
            && let Err(record) = self.require_route(plugin, &call.name)
        {
            let text = self.denied(plugin, *record);
            return failed(call, text);
        }
        match call.name.as_str() {
            "done" => {
                let (content, done) = done_signal(&call.arguments);
                *signal = Some(done);
                succeeded(call, content)
            }
            "delegate_task" => match serde_json::from_value::<DelegateTaskArguments>(call.arguments.clone()) {
                Ok(arguments) => match self.delegate_in_background(id, &arguments.into()) {
                    Ok(receipt) => succeeded(call, receipt.to_string()),
                    Err(text) => failed(call, text),
                },
                Err(error) => failed(call, format!("the arguments of delegate_task are not right: {error}")),
            },
            other => failed(call, format!("{other} is not available in this version of the host")),
        }
    }

    pub(super) fn tool_answered(&mut self, call: CallId, answer: Result<ToolOutcome, ToolError>, report: CallReport) {
        let Some(Purpose::Tool { frame: id, slot, plugin }) = self.calls.get(&call).cloned() else { return };
        self.end_call(call, answer.is_ok(), &report);
        let Some(Wait::Tools(mut round)) = self.take_wait(id) else { return };
        let Some(tool_call) = round.slots.get(slot).map(|slot| slot.call.clone()) else { return };
        let (result, then) = result_of(&tool_call, &answer);
        let task = self.frames.get(&id).map_or_else(|| TaskName::from(""), |frame| frame.task.clone());
        let fault = match answer {
            Err(ToolError::Fault { fault }) => Some(fault),
            _ => None,
        };
        let (name, content, is_error) = (tool_call.name, result.content.clone(), result.is_error);
        self.tell(Notice::ToolAnswered { call: Some(call), task, name, content, is_error, fault, report });
        let depth = round.slots[slot].depth + 1;
        round.slots[slot].result = Some(result);
        let first = round.slots.len();
        // One more than may run, so that the agent reads that there were more.
        for (index, mut next) in then.into_iter().take((MAX_ROUND + 1).saturating_sub(first)).enumerate() {
            // The room's own id: with one of the plugin's choice, its result could pass for that of another call.
            next.id = format!("{call}-{index}");
            let result = if depth > MAX_CHAIN {
                Some(failed(&next, format!("more than {MAX_CHAIN} tools led to one another")))
            } else {
                (first + index >= MAX_ROUND).then(|| failed(&next, TOO_MANY.to_owned()))
            };
            round.slots.push(Slot { call: next, asked_by: Some(plugin.clone()), depth, result });
        }
        self.run_slots(id, &mut round, first);
        self.go_on(id, round);
    }

    /// Goes on with a slot that waited for something else than its tool: `start` gives its result, or has started the tool.
    pub(super) fn go_on_with(&mut self, id: FrameId, slot: usize, start: impl FnOnce(&mut Self, &mut ToolCall) -> Option<ToolResult>) {
        let Some(Wait::Tools(mut round)) = self.take_wait(id) else { return };
        let Some(mut call) = round.slots.get(slot).map(|slot| slot.call.clone()) else { return };
        let result = start(self, &mut call);
        if let Some(result) = &result {
            self.tell_answer(id, &call.name, result);
        }
        round.slots[slot].call = call;
        round.slots[slot].result = result;
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

    /// Waits for the rest of the round, or makes its answer.
    fn settle(&mut self, id: FrameId, round: ToolRound) -> Wait {
        if !round.is_complete() {
            return Wait::Tools(round);
        }
        let results: Vec<ToolResult> = round.slots.into_iter().filter_map(|slot| slot.result).collect();
        let mut message = Arc::unwrap_or_clone(self.host_message(id, joined(&results)));
        message.labels.push(Label::Untrusted);
        message.signal = round.signal;
        for result in &results {
            self.remember(id, None, Some(Observation::Tool(result.clone())), message.seq);
        }
        message.tool_results = results;
        Wait::Ready(Some(Arc::new(message)))
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
        self.histories.remove(&task);
        let text = inputs.get("task").map(super::posting::text_form).unwrap_or_default();
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

/// The arguments of the tool `delegate_task`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegateTaskArguments {
    agent: String,
    task: String,
    #[serde(default)]
    context: Option<Value>,
    #[serde(default)]
    share_channels: Vec<String>,
}

impl From<DelegateTaskArguments> for Background {
    fn from(arguments: DelegateTaskArguments) -> Self {
        let context = arguments.context.filter(Value::is_object).unwrap_or_else(|| json!({}));
        Self { agent: arguments.agent, task: arguments.task, context, share_channels: arguments.share_channels }
    }
}

fn result_of(call: &ToolCall, answer: &Result<ToolOutcome, ToolError>) -> (ToolResult, Vec<ToolCall>) {
    match answer {
        Ok(outcome) => {
            let mut result = succeeded(call, outcome.content.clone().unwrap_or_default());
            // `null` is no value: in JSON, and so in a journal, the two look the same.
            result.value = outcome.value.clone().filter(|value| !value.is_null());
            (result, outcome.then.clone())
        }
        Err(error) => (failed(call, error.to_text(&call.name)), Vec::new()),
    }
}

/// One result as it is, several with their names (L-117).
fn joined(results: &[ToolResult]) -> String {
    match results {
        [only] => only.content.clone(),
        several => {
            let blocks: Vec<String> = several.iter().map(|result| format!("Result from {}: {}", result.name, result.content)).collect();
            blocks.join("\n\n")
        }
    }
}

fn succeeded(call: &ToolCall, content: String) -> ToolResult {
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), content, value: None, is_error: false }
}

pub(super) fn failed(call: &ToolCall, content: String) -> ToolResult {
    ToolResult { is_error: true, ..succeeded(call, content) }
}

fn unknown_tool<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    if known.is_empty() {
        return format!("There is no tool {name:?}, and none that you may call.");
    }
    format!("There is no tool {name:?}. You may call: {}.", known.join(", "))
}
