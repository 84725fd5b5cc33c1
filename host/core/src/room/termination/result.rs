//! The result of a task that ended, for its caller or as the outcome of the run.

use std::sync::Arc;

use serde_json::{Value, json};

use super::done::{EndScope, calls_in, is_host_tool};
use crate::room::delivery::is_data;
use crate::room::messages::text_form;
use crate::room::passages::withholds_result;
use crate::room::state::closing::FrameEnd;
use crate::room::state::frame::Frame;
use crate::room::{Dialogue, Frames, Histories, RoomContext, result_types};
use crate::setup::ReturnType;
use crate::tool_calls::toolbox::ToolTarget;
use crate::tool_calls::{arguments, routing};
use crate::types::host_tool::HostTool;
use crate::types::ids::TaskName;
use crate::types::message::{Label, Message, Role, Signal, ToolCall};
use crate::types::outcome::Status;

impl Dialogue<'_> {
    /// Returns the result of a task. `None` if it has none, or if gates did not let it pass.
    pub(super) fn result_message(&mut self, frame: &Frame, ending: &FrameEnd) -> Option<Message> {
        // An error has the host's words, and a goodbye those of the user.
        if matches!(ending.status, Status::Error | Status::UserQuit) {
            return self.form_result(frame, ending);
        }
        if withholds_result(self.cx, frame) {
            return None;
        }
        match frame.closing() {
            Some(closing) => Some(closing.result.clone()),
            None => self.form_result(frame, ending),
        }
    }

    /// Returns the result of a task by the host's rules (L-088). `None` if it has no answer, so that
    /// the caller tries its next responder (L-162).
    pub(in crate::room) fn form_result(
        &mut self,
        frame: &Frame,
        ending: &FrameEnd,
    ) -> Option<Message> {
        let task = self.cx.setup.tasks.get(&frame.task).cloned()?;
        let rules = task.rules();
        let mut message = match ending.status {
            Status::Stalled | Status::MaxTurns | Status::InfLoop | Status::NotAddressed => {
                return None;
            }
            // An error without content would look like a task that has no answer.
            Status::Error => {
                let mut message = self.cx.stamp(Role::User, frame.task.as_str());
                message.content =
                    Some(format!("The task {} failed: {}", frame.task, ending.reason));
                // The reason may quote a plugin.
                message.labels.extend(rules.marks_results.then_some(Label::Task));
                return Some(message);
            }
            // L-089: after any other end the pending message is the result.
            _ => self.cx.stamp(Role::User, frame.task.as_str()),
        };
        // A finished task without a message has an empty result, unlike a stalled one.
        let Some(pending) = &frame.turn().pending else {
            message.content = Some(String::new());
            return Some(message);
        };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        message.content.clone_from(&pending.content);
        // The signal ended this task, and must not end its caller as well.
        if task.text_rules.signals {
            message.content = message.content.map(|text| routing::without_done(&text).into_owned());
        }
        message.value.clone_from(&pending.value);
        if let Some(Signal::Done { value }) = &pending.signal {
            message.value.clone_from(value);
        }
        message.tool_calls.clone_from(&pending.tool_calls);
        if rules.results_limit_calls {
            // A task must not gain permissions through its caller's grants, nor call host tools on
            // the caller's behalf. Only calls of its own plugins pass.
            let may_go_on = |call: &ToolCall| {
                toolbox
                    .get(&call.name)
                    .is_some_and(|tool| matches!(tool.target, ToolTarget::Plugin { .. }))
            };
            message.tool_calls.retain(may_go_on);
        }
        message.tool_results.clone_from(&pending.tool_results);
        message.tools.clone_from(&pending.tools);
        let ends =
            pending.tools.iter().find_map(|call| Some((call, EndScope::of(&toolbox, call)?)));
        match ends {
            Some((call, EndScope::Everything)) => {
                (message.content, message.value, message.tools) =
                    (Some(String::new()), None, vec![call.clone()]);
            }
            Some((call, EndScope::Task)) => {
                let content = call.arguments.get("content").unwrap_or(&Value::Null);
                message.content = Some(text_form(content));
                let is_text =
                    rules.done_content_is_text && is_host_tool(&toolbox, call, HostTool::Done);
                message.value = Some(content.clone())
                    .filter(|value| !(is_text || value.is_null() || value.is_string()));
                message.tool_calls.clear();
                message.tool_results.clear();
                if is_host_tool(&toolbox, call, HostTool::AgentDone) {
                    message.tools = calls_in(call);
                }
            }
            None => {}
        }
        // A call that ended this task must not end its caller either.
        message.tools.retain(|call| EndScope::of(&toolbox, call) != Some(EndScope::Task));
        message.labels.clone_from(&pending.labels);
        message.led_by.clone_from(&pending.led_by);
        // Text of the child's own agent becomes data for the caller.
        let is_marked =
            pending.labels.iter().any(|label| matches!(label, Label::Tool | Label::Task));
        let is_agents_word = rules.marks_results && pending.sender != Role::User && !is_marked;
        message.labels.extend(is_agents_word.then_some(Label::Task));
        message.attachments.clone_from(&pending.attachments);
        message.from_agent = !message.tools.is_empty() && pending.from_agent;
        let recipient = pending.recipient.clone();
        message.recipient = recipient.filter(|name| {
            rules.results_keep_recipient
                || frame.caller.is_none()
                || is_for_caller(self.frames, self.cx, frame, name)
        });
        message.parent = Some(pending.seq);
        Some(message)
    }
}

impl Histories {
    /// Erases the messages that led to the result, here and in the sub-tasks (L-050l).
    pub(super) fn erase_substeps(&mut self, cx: &RoomContext, frame: &Frame) {
        let Some(task) =
            cx.setup.tasks.get(&frame.task).filter(|task| task.erase_substeps).cloned()
        else {
            return;
        };
        // The seed of a new history stands before the first message.
        let seeds = usize::from(frame.history_start == 0 && task.user_message.is_some());
        let memory = self.memory(cx, &frame.task);
        let keep_from = frame.history_start + seeds + 1;
        let mut tail = memory.split_off(keep_from);
        if let Some(last) = tail.pop() {
            let place = memory.push(&last);
            if let Some(link) = self.links.get_mut(&last.seq) {
                link.place = Some((frame.task.clone(), place));
            }
        }
        for message in tail {
            self.links.remove(&message.seq);
        }
        for subtask in &task.subtasks {
            self.clear_history(subtask, 0);
        }
    }

    /// The result in the type that the caller wanted (L-050i). `None` if it has no such value.
    pub(super) fn typed(
        &self,
        cx: &RoomContext,
        name: &TaskName,
        message: &Message,
        return_type: &ReturnType,
    ) -> Option<Value> {
        let task = cx.setup.tasks.get(name)?;
        let calls = self.read(cx, name, task, message).all;
        let toolbox = self.toolbox(cx, name);
        // A handler's call was not read by a parser, so nothing has checked its arguments yet.
        let fitting = |call: &ToolCall| {
            let arguments = match toolbox.get(&call.name) {
                Some(tool) => arguments::check(&tool.summary.input_schema, &call.arguments).ok()?,
                None => Value::clone(&call.arguments),
            };
            Some(json!({ "name": call.name, "arguments": arguments }))
        };
        match return_type {
            ReturnType::AnyTool => calls.first().and_then(fitting),
            ReturnType::Tool(tool) => {
                calls.iter().filter(|call| call.name == *tool).find_map(fitting)
            }
            ReturnType::Text if !message.text().is_empty() => Some(json!(message.text())),
            plain => {
                let of_value = message.value.clone().filter(|value| result_types::is(plain, value));
                let of_text = || result_types::from_text(plain, message.text());
                let of_field =
                    || calls.iter().find_map(|call| result_types::field(plain, &call.arguments));
                of_value.or_else(of_text).or_else(of_field)
            }
        }
    }
}

/// Whether a recipient is still meaningful to the caller (L-070): the user, or another sub-task
/// of the caller. The child's own roles and sub-tasks are not, and the caller has the result
/// already.
fn is_for_caller(frames: &Frames, cx: &RoomContext, child: &Frame, name: &str) -> bool {
    let Some((_, caller)) = child.caller.and_then(|caller| frames.task_of(cx, caller)) else {
        return false;
    };
    let is_sibling =
        |task: &TaskName| *task != child.task && task.as_str().eq_ignore_ascii_case(name);
    Role::from_name(name) == Some(Role::User) || caller.subtasks.iter().any(is_sibling)
}

/// Whether the pending message of an entry task is an answer. The opening message of the
/// room is not. In a room without one, the first answer has no parent.
pub(in crate::room) fn has_answer(cx: &RoomContext, root: &Frame) -> bool {
    let is_answer = |message: &Arc<Message>| {
        message.parent.is_some()
            || cx.opening.content.is_none()
            || root.turn().last_responder.is_some()
    };
    let task = cx.setup.tasks.get(&root.task);
    root.only.is_some()
        || task.is_some_and(|task| task.rules().question_is_result)
        || root.turn().pending.as_ref().filter(|pending| !is_data(pending)).is_some_and(is_answer)
}

/// Removes a plugin's words from the reason of an end, if gates check what leaves the task.
pub(super) fn without_quotes(cx: &RoomContext, frame: &Frame, ending: FrameEnd) -> FrameEnd {
    if !(ending.quotes_plugin && withholds_result(cx, frame)) {
        return ending;
    }
    let reason =
        "a plugin failed; its words are in the log alone, because gates check what leaves the task";
    FrameEnd { reason: reason.to_owned(), quotes_plugin: false, ..ending }
}

/// Turns a success into `Status::Error` if the last step of the root failed. The host's message
/// about the failure is not an answer.
pub(in crate::room) fn failed_instead(
    cx: &RoomContext,
    frame: &Frame,
    ending: FrameEnd,
) -> FrameEnd {
    let task = cx.setup.tasks.get(&frame.task);
    let fails = task.is_none_or(|task| task.rules().failed_step_fails_run);
    // The pending message of a failed step is the host's, on the agent role.
    let is_told = frame.counters().faults > 0
        && frame.caller.is_none()
        && frame.turn().pending.as_ref().is_some_and(|it| it.sender == Role::Agent);
    match frame.turn().pending.as_ref().filter(|_| is_told && fails && ending.status.is_success()) {
        Some(report) => FrameEnd::of_fault(report.text()),
        None => ending,
    }
}
