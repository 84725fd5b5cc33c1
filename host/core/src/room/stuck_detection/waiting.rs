//! Waiting: questions about background tasks and commands that are under way. They are no acts of
//! the agent, and no loop: nothing has changed *yet*. Whether something is under way follows from
//! the task's records and from the answers of its tools, not from what the calls are called.

use serde_json::Value;

use crate::room::acting::{KILL, exit_of};
use crate::room::tools::host_tool_of;
use crate::room::{Histories, RoomContext, StepLoop};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::host_tool::HostTool;
use crate::types::ids::{BackgroundId, FrameId, PluginName, TaskName};
use crate::types::message::{Message, Role, ToolCall};
use crate::types::tool::{ToolError, ToolOutcome};

/// Commands of a task that are known to be under way; more are not known.
const MAX_COMMANDS: usize = 64;

/// The state of the work that a call asks about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    UnderWay,
    Over,
}

impl StepLoop<'_> {
    /// Whether a message, or the one that it answers, only asks about work that is under way.
    pub(in crate::room) fn is_waiting(
        &self,
        id: FrameId,
        message: &Message,
        answered: Option<&Message>,
    ) -> bool {
        let request = if message.sender == Role::Llm { Some(message) } else { answered };
        let Some(request) = request.filter(|request| request.sender == Role::Llm) else {
            return false;
        };
        let Some(task) = self.frames.get(&id).map(|frame| &frame.task) else { return false };
        let calls =
            if request.tool_calls.is_empty() { &request.tools } else { &request.tool_calls };
        if calls.is_empty() {
            return false;
        }
        let toolbox = self.histories.toolbox(self.cx, task);
        let mut work = calls.iter().map(|call| self.work_asked_about(task, &toolbox, call));
        // A call that asks about nothing is an act, whatever stands beside it.
        work.try_fold(false, |is_under_way, work| Some(is_under_way || work? == Work::UnderWay))
            .unwrap_or(false)
    }

    /// The state of the work that a call asks about; `None` if it does something else.
    fn work_asked_about(
        &self,
        task: &TaskName,
        toolbox: &Toolbox,
        call: &ToolCall,
    ) -> Option<Work> {
        if host_tool_of(toolbox, call) == Some(HostTool::TaskStatus) {
            let task_id = call.arguments.get("task_id").and_then(Value::as_str).unwrap_or_default();
            let task_id = BackgroundId::from(task_id.trim());
            let is_under_way = self
                .background
                .records
                .newest()
                .filter(|record| record.by.as_ref() == Some(task))
                .filter(|record| task_id.as_str().is_empty() || record.id == task_id)
                .any(|record| !record.state.is_end());
            return Some(if is_under_way { Work::UnderWay } else { Work::Over });
        }
        let command = self.histories.command_of(task, toolbox, call)?;
        let commands = &self.histories.memories.get(task)?.commands;
        commands.contains(&command).then_some(Work::UnderWay)
    }
}

impl Histories {
    /// The background command that a call names: its plugin and its number.
    fn command_of(
        &self,
        task: &TaskName,
        toolbox: &Toolbox,
        call: &ToolCall,
    ) -> Option<(PluginName, i64)> {
        self.memories.get(task)?;
        let ToolTarget::Plugin { plugin, .. } = &toolbox.get(&call.name)?.target else {
            return None;
        };
        Some((plugin.clone(), call.arguments.get("command_id")?.as_i64()?))
    }

    /// Notes that a call has begun a background command, or that one has ended: the answers of an
    /// executor say so (O-094, O-095).
    pub(in crate::room) fn note_command(
        &mut self,
        cx: &RoomContext,
        task: &TaskName,
        call: &ToolCall,
        answer: &Result<ToolOutcome, ToolError>,
    ) {
        let toolbox = self.toolbox(cx, task);
        let Some(ToolTarget::Plugin { plugin, tool }) =
            toolbox.get(&call.name).map(|tool| &tool.target)
        else {
            return;
        };
        let value = answer.as_ref().ok().and_then(|outcome| outcome.value.as_ref());
        let command_id =
            value.and_then(|value| value.get("background")?.get("command_id")?.as_i64());
        if let Some(number) = command_id {
            let commands = &mut self.memory(cx, task).commands;
            if commands.len() < MAX_COMMANDS {
                commands.insert((plugin.clone(), number));
            }
            return;
        }
        let Some(command) = self.command_of(task, &toolbox, call) else { return };
        // A poll of a command that goes on has neither a code nor an observation.
        let goes_on = tool != KILL
            && answer.as_ref().is_ok_and(|outcome| exit_of(outcome).is_none())
            && value.is_none_or(|value| value.get("observation").is_none());
        if !goes_on {
            self.memory(cx, task).commands.remove(&command);
        }
    }
}
