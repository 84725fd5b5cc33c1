//! Host tools: they end a task, pass its message on, address a recipient, take back messages
//! (L-140…L-150), or start another task. A tool plugin needs the `route` grant for them; an agent
//! steers its own task freely.

use std::sync::Arc;

use serde_json::{Value, json};

use super::messages::text_form;
use super::state::rounds::CallOutcome;
use super::termination::calls_in;
use super::tools::{calls_as_json, host_tool_of, taint_of};
use super::{Dialogue, Frames, Histories, RoomContext, ToolRounds};
use crate::tool_calls::arguments;
use crate::types::host_tool::HostTool;
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{Label, Message, Role, ToolCall, lead};

impl ToolRounds<'_> {
    /// Carries out a call of a host tool. The call stands in `message`, or a tool plugin asked for
    /// it because of that message.
    pub(super) fn run_host_tool(
        &mut self,
        id: FrameId,
        tool: HostTool,
        call: &ToolCall,
        message: &Arc<Message>,
    ) -> CallOutcome {
        if let Err(text) = self.dialogue().check_host_tool(id, tool, call) {
            return self.frames.error_outcome(self.cx, id, text);
        }
        // These tools build their own outcome.
        if tool == HostTool::HandoffConversation {
            return self.handoffs.handoff_by_call(self.cx, self.frames, id, call);
        }
        match tool {
            HostTool::TaskStatus | HostTool::CancelTask | HostTool::TellTask => {
                return self.background_work().answer_task_tool(id, tool, call);
            }
            HostTool::ReadResult => return self.dialogue().read_result(id, call),
            HostTool::SubmitResult => {
                return self.background.submitted(self.cx, self.frames, id, call);
            }
            _ => {}
        }
        let answer = match tool {
            HostTool::Done => done_message(self.frames, self.cx, id, call),
            HostTool::AgentDone => agent_done(self.frames, self.cx, id, call),
            HostTool::Result => self.dialogue().result_call_message(id, call),
            HostTool::FinalResult | HostTool::DelegateTask | HostTool::HandoffConversation => {
                message_with_calls(self.frames, self.cx, id, vec![call.clone()], String::new())
            }
            HostTool::TaskStatus
            | HostTool::CancelTask
            | HostTool::TellTask
            | HostTool::ReadResult
            | HostTool::SubmitResult => None,
            HostTool::Pass => Some(self.dialogue().passed_message(id, message, tool)),
            HostTool::DonePass => self.dialogue().final_passed_message(id, message),
            // L-146: passed on with another recipient.
            HostTool::Forward => {
                let mut passed = self.dialogue().passed_message(id, message, tool);
                passed.recipient = Some(text(call, "agent"));
                Some(passed)
            }
            HostTool::Send | HostTool::AgentSend => {
                addressed_message(self.frames, self.cx, id, tool, call)
            }
            HostTool::RecipientMessage => Some(self.dialogue().addressed(id, call, message)),
            HostTool::AddRecipient => Some(self.dialogue().address_added(id, call, message)),
            HostTool::Rewind => Some(self.dialogue().rewound(id, call, message)),
        };
        let answer = answer.map(|mut message| {
            let by_tools = message.tools.iter_mut().map(|handed| &mut handed.led_by);
            [&mut message.led_by].into_iter().chain(by_tools).for_each(|it| lead(it, &call.led_by));
            Box::new(message)
        });
        CallOutcome { message: answer, ..CallOutcome::default() }
    }
}

impl Dialogue<'_> {
    /// Checks that the caller may use the tool in this way. Returns the refusal for the agent
    /// otherwise.
    pub(super) fn check_host_tool(
        &mut self,
        id: FrameId,
        tool: HostTool,
        call: &ToolCall,
    ) -> Result<(), String> {
        // A plugin that requests the call needs the grant itself, whatever its agent has.
        if let Some(plugin) = call.requester()
            && let Err(record) = self.frames.require_route(self.cx, id, plugin, tool.as_str())
        {
            return Err(self.cx.denied(plugin, *record));
        }
        self.may_hand_on(id, tool, call)?;
        may_hand_to(self.frames, self.cx, id, tool, call)
    }

    /// Checks the calls that a call passes on. An agent passes on only calls of its own tools,
    /// unless it has the `route` grant. A plugin's arguments must match the schema; a model's were
    /// checked when they were parsed.
    fn may_hand_on(&mut self, id: FrameId, tool: HostTool, call: &ToolCall) -> Result<(), String> {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else { return Ok(()) };
        let (toolbox, agent, rules) =
            (self.histories.toolbox(self.cx, &frame.task), task.agent.clone(), task.rules());
        if call.requester().is_some() && rules.checks_handler_arguments {
            arguments::check(&tool.input_schema(), &call.arguments)
                .map_err(|wrong| arguments::explain(&call.name, &wrong))?;
        }
        // A plugin that requests it was checked for the grant before.
        let hands_on = matches!(tool, HostTool::AgentDone | HostTool::AgentSend | HostTool::Result)
            && call.requester().is_none();
        if hands_on && calls_in(call).iter().any(|handed| toolbox.get(&handed.name).is_none()) {
            return self
                .frames
                .require_route(self.cx, id, &agent, tool.as_str())
                .map_err(|record| self.cx.denied(&agent, *record));
        }
        Ok(())
    }

    /// Returns the message that ends the task with this call as its result (L-142).
    fn result_call_message(&mut self, id: FrameId, call: &ToolCall) -> Option<Message> {
        let arguments =
            json!({ "content": null, "tools": calls_as_json(std::slice::from_ref(call)) });
        let done_call = ToolCall {
            untrusted: call.untrusted,
            led_by: call.led_by.clone(),
            ..ToolCall::new(
                self.histories.name_of(self.cx, self.frames, id, HostTool::AgentDone),
                arguments,
            )
        };
        agent_done(self.frames, self.cx, id, &done_call)
    }

    /// Returns the nearest message above that does not itself ask to be passed on, as the agent
    /// role's (L-144).
    fn passed_message(&mut self, id: FrameId, message: &Arc<Message>, tool: HostTool) -> Message {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return Message::clone(message);
        };
        let (name, task, toolbox) =
            (frame.task.clone(), Arc::clone(task), self.histories.toolbox(self.cx, &frame.task));
        let asks = |call: &ToolCall| {
            let host_tool = host_tool_of(&toolbox, call);
            // The general tool skips all three; a special one skips its own kind.
            host_tool == Some(tool)
                || (tool == HostTool::Pass
                    && matches!(host_tool, Some(HostTool::DonePass | HostTool::Forward)))
        };
        let mut source = Arc::clone(message);
        let mut own = self.histories.read(self.cx, &name, &task, &source).own;
        while own.iter().any(asks) {
            let above = self
                .histories
                .links
                .get(&source.seq)
                .and_then(|link| link.parent)
                .or(source.parent);
            // Parents have lower numbers; the check ends the walk on a corrupt chain.
            let Some(above) = above
                .filter(|above| *above < source.seq)
                .and_then(|above| self.histories.message(above))
                .cloned()
            else {
                break;
            };
            own = self.histories.read(self.cx, &name, &task, &above).own;
            source = above;
        }
        let mut passed = self.cx.stamp(Role::Agent, task.agent.as_str());
        let seq = passed.seq;
        passed = Message { seq, sender: passed.sender, parent: None, ..Message::clone(&source) };
        if passed.tools.is_empty() {
            passed.tools = own;
        }
        passed
    }

    /// Returns the message that ends the task with the one that is passed on (L-145).
    fn final_passed_message(&mut self, id: FrameId, message: &Arc<Message>) -> Option<Message> {
        let passed = self.passed_message(id, message, HostTool::DonePass);
        let (frame, task) = self.frames.task_of(self.cx, id)?;
        let mut calls = self.histories.read(self.cx, &frame.task, task, &passed).own;
        let tainted = passed.labels.contains(&Label::Untrusted);
        calls.iter_mut().for_each(|call| call.untrusted |= tainted);
        let arguments = json!({ "content": passed.text(), "tools": calls_as_json(&calls) });
        let done_call = ToolCall {
            untrusted: tainted,
            led_by: passed.led_by.clone(),
            ..ToolCall::new(
                self.histories.name_of(self.cx, self.frames, id, HostTool::AgentDone),
                arguments,
            )
        };
        let (_, task) = self.frames.task_of(self.cx, id)?;
        let by_hand = !tainted || task.rules().external_done_pass_runs;
        // L-172: with external text the call is not carried out, but it still ends the task.
        let mut message = if by_hand {
            agent_done(self.frames, self.cx, id, &done_call)?
        } else {
            message_with_calls(self.frames, self.cx, id, vec![done_call], String::new())?
        };
        message.attachments = passed.attachments;
        Some(message)
    }

    /// Returns an addressed message in the agent's name, so that the agent does not answer itself
    /// (L-148).
    fn addressed(&mut self, id: FrameId, call: &ToolCall, message: &Arc<Message>) -> Message {
        let mut recipient = text(call, "intended_recipient");
        if recipient.is_empty() {
            let schema = self.frames.get(&id).and_then(|frame| {
                let toolbox = self.histories.toolbox(self.cx, &frame.task);
                let schema = &toolbox.host_tool(HostTool::RecipientMessage)?.summary.input_schema;
                schema
                    .pointer("/properties/intended_recipient/default")
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            });
            recipient = schema.unwrap_or_default();
        }
        if recipient.is_empty() {
            return self.ask_for_recipient(id, text(call, "content"), &message.labels);
        }
        as_agent_message(
            self.frames,
            self.cx,
            id,
            text(call, "content"),
            recipient,
            taint_of(message),
        )
    }

    /// Stores the text, and asks the agent for its recipient (L-148, L-149).
    pub(super) fn ask_for_recipient(
        &mut self,
        id: FrameId,
        content: String,
        labels: &[Label],
    ) -> Message {
        let text = "Your message names no recipient. Call `add_recipient` with the recipient alone; do not repeat the message.".to_owned();
        if let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) {
            let taint = labels.iter().copied().filter(|label| *label == Label::Untrusted).collect();
            self.histories.memory(self.cx, &task).stash = Some((content, taint));
            self.histories.offer(self.cx, &task, HostTool::AddRecipient, |_| {});
        }
        let mut message = self.frames.host_message(self.cx, id, text);
        message.recipient = Some(Role::Llm.as_str().to_owned());
        message
    }

    /// Returns the stored text with its recipient and its taint (L-149).
    fn address_added(&mut self, id: FrameId, call: &ToolCall, message: &Arc<Message>) -> Message {
        let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
            return Message::clone(message);
        };
        let mut labels = taint_of(message);
        let content = match self.histories.memory(self.cx, &task).stash.take() {
            Some((content, taint)) if !content.is_empty() => {
                // The text is as untrusted as the worse of the two messages.
                labels = if labels.is_empty() { taint } else { labels };
                content
            }
            _ => {
                "There is no message that waits for a recipient. Send it with `recipient_message`."
                    .to_owned()
            }
        };
        as_agent_message(
            self.frames,
            self.cx,
            id,
            content,
            text(call, "intended_recipient"),
            labels,
        )
    }

    /// Replaces an earlier message of the agent, and returns the new one (L-150).
    fn rewound(&mut self, id: FrameId, call: &ToolCall, message: &Arc<Message>) -> Message {
        let index = argument(call, "n")
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .and_then(|n| n.checked_sub(1));
        let found = self.frames.get(&id).map(|frame| frame.task.clone()).and_then(|task| {
            let history = self.histories.history(&task);
            // Messages of an earlier activation already led to the caller's own messages, which a
            // sub-task must not take back.
            let (_, setup) = self.frames.task_of(self.cx, id)?;
            let frame = self.frames.get(&id)?;
            let is_bounded = frame.caller.is_some() && !setup.rules().rewinds_earlier_activations;
            let first = if is_bounded { frame.history_start } else { 0 };
            let own = history
                .iter()
                .enumerate()
                .skip(first)
                .filter(|(_, message)| message.sender == Role::Llm);
            let mut of_agent = own.map(|(place, _)| place);
            Some((task, of_agent.nth(index?)?))
        });
        let Some((task, place)) = found else {
            let n = text_form(argument(call, "n"));
            let text = format!(
                "There is no message {n} of yours to go back to: look at `n`, which counts your own messages from 1."
            );
            return self.frames.host_message(self.cx, id, text);
        };
        self.histories.rewind(self.cx, &task, place, text(call, "content"), taint_of(message))
    }
}

/// Checks that the agent may address the recipient of a call.
fn may_hand_to(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    tool: HostTool,
    call: &ToolCall,
) -> Result<(), String> {
    let key = match tool {
        HostTool::Forward => "agent",
        HostTool::Send | HostTool::AgentSend => "to",
        HostTool::RecipientMessage | HostTool::AddRecipient => "intended_recipient",
        _ => return Ok(()),
    };
    let Some(agent) = frames.agent_of(cx, id).cloned() else { return Ok(()) };
    frames
        .check_address(cx, id, &agent, &text(call, key))
        .map_err(|record| cx.denied(&agent, *record))
}

/// Returns the message that ends the task with a text (L-140).
fn done_message(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    call: &ToolCall,
) -> Option<Message> {
    message_with_calls(frames, cx, id, vec![call.clone()], text_form(argument(call, "content")))
}

/// Returns the message that ends the task with content and calls (L-141).
fn agent_done(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    call: &ToolCall,
) -> Option<Message> {
    let content = argument(call, "content").clone();
    let tools = [call.clone()].into_iter().chain(calls_in(call)).collect();
    let mut message = message_with_calls(frames, cx, id, tools, text_form(&content))?;
    // A text is in the content already.
    message.value = Some(content).filter(|value| !value.is_null() && !value.is_string());
    Some(message)
}

/// Returns a message of the agent role with calls for other tasks.
fn message_with_calls(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    tools: Vec<ToolCall>,
    content: String,
) -> Option<Message> {
    let mut message = frames.host_message(cx, id, content);
    message.labels.extend(tools.iter().any(|call| call.untrusted).then_some(Label::Untrusted));
    message.from_agent = true;
    tools.iter().for_each(|call| lead(&mut message.led_by, &call.led_by));
    message.tools = tools;
    Some(message)
}

/// Returns a message to a recipient, with calls in the case of `AgentSend` (L-147).
fn addressed_message(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    tool: HostTool,
    call: &ToolCall,
) -> Option<Message> {
    let tools = if tool == HostTool::AgentSend { calls_in(call) } else { Vec::new() };
    let mut message = message_with_calls(frames, cx, id, tools, text(call, "content"))?;
    message.from_agent = !message.tools.is_empty();
    message.recipient = Some(text(call, "to"));
    if call.untrusted && !message.labels.contains(&Label::Untrusted) {
        message.labels.push(Label::Untrusted);
    }
    Some(message)
}

fn as_agent_message(
    frames: &Frames,
    cx: &mut RoomContext,
    id: FrameId,
    content: String,
    recipient: String,
    labels: Vec<Label>,
) -> Message {
    let name = frames.agent_of(cx, id).map_or_else(String::new, PluginName::to_string);
    let mut message = cx.stamp(Role::Llm, &name);
    message.content = Some(content);
    message.recipient = Some(recipient);
    message.labels = labels;
    message
}

impl Histories {
    /// Drops an agent's message and all that followed from it, and returns its replacement.
    pub(super) fn rewind(
        &mut self,
        cx: &mut RoomContext,
        task: &TaskName,
        place: usize,
        content: String,
        labels: Vec<Label>,
    ) -> Message {
        let parent = self.prune(task, place);
        let name =
            cx.setup.tasks.get(task).map_or_else(String::new, |setup| setup.agent.to_string());
        let mut message = cx.stamp(Role::Llm, &name);
        (message.content, message.labels, message.parent) = (Some(content), labels, parent);
        let replacement = Arc::new(message);
        let place = self.memory(cx, task).push(&replacement);
        self.link(&replacement).place = Some((task.clone(), place));
        if let Some(link) = parent.and_then(|parent| self.links.get_mut(&parent)) {
            link.child = Some(replacement.seq);
        }
        Message::clone(&replacement)
    }

    /// The name of a host tool in this task.
    fn name_of(&self, cx: &RoomContext, frames: &Frames, id: FrameId, tool: HostTool) -> String {
        let toolbox =
            frames.get(&id).map(|frame| self.toolbox(cx, &frame.task)).unwrap_or_default();
        toolbox
            .host_tool(tool)
            .map_or_else(|| tool.as_str().to_owned(), |tool| tool.summary.name.clone())
    }
}

fn argument<'a>(call: &'a ToolCall, name: &str) -> &'a Value {
    call.arguments.get(name).unwrap_or(&Value::Null)
}

fn text(call: &ToolCall, name: &str) -> String {
    text_form(argument(call, name))
}
