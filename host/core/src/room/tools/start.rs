//! The start of a plugin's tool. Grants, remaining amounts, the operator's rules and the run's
//! budget are checked each time. A refusal names the missing grant or budget.

use super::failed;
use crate::policy::budget::Budget;
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::approvals::{ConsentRuling, apply_rules};
use crate::room::messages::unknown_plugin;
use crate::room::scratch::{ScratchTurns, call_tool, takes_turns};
use crate::room::state::consent::Consent;
use crate::room::state::rounds::SlotState;
use crate::room::{Budgets, Histories, Purpose, RoomContext, ToolRounds};
use crate::tool_calls::toolbox::{ToolTarget, Toolbox};
use crate::types::capability::Capability;
use crate::types::denial::{DenialRecord, Layer};
use crate::types::ids::{FrameId, PluginName, TaskName};
use crate::types::message::{ToolCall, ToolResult};
use crate::types::usage::Spent;

impl ToolRounds<'_> {
    /// Starts a tool of a plugin, or asks for approval. Returns a result at once if it may not run.
    /// After an approval everything else is checked again, because budgets may have been used up
    /// since.
    pub(in crate::room) fn start_tool(
        &mut self,
        id: FrameId,
        slot: usize,
        call: &ToolCall,
        consent: Consent,
    ) -> Option<ToolResult> {
        let Some((frame, task)) = self.frames.task_of(self.cx, id) else {
            return Some(failed(call, "the task is over".to_owned()));
        };
        let (task_name, agent, toolbox) =
            (frame.task.clone(), task.agent.clone(), self.histories.toolbox(self.cx, &frame.task));
        let target =
            toolbox.get(&call.name).filter(|tool| tool.handled).map(|tool| tool.target.clone());
        let admitted = target.as_ref().and_then(ToolTarget::admitted_name);
        let (Some(ToolTarget::Plugin { plugin, tool }), Some(admitted)) = (target, admitted) else {
            let text =
                self.histories.unknown_tool(self.cx, &agent, &task_name, &toolbox, &call.name);
            return Some(failed(call, text));
        };
        // Grants are checked before rules, so that no approver is asked in vain.
        if let Some(record) = self.budgets.calls_are_used_up(self.cx, &agent, &admitted) {
            return Some(failed(call, self.cx.denied(&agent, *record)));
        }
        // The call also counts for each plugin that led to it.
        let within = self.frames.slot(id, slot).and_then(|slot| Some(slot.nested.as_ref()?.call));
        for by in call.led_by.iter().filter(|by| **by != agent) {
            if let Some(record) = self.budgets.calls_are_used_up(self.cx, by, &admitted) {
                return Some(failed(call, self.cx.denied(by, *record)));
            }
        }
        let is_approved = consent == Consent::Approved;
        if !is_approved {
            // Rules are about the admitted name; most tasks use no other.
            let renamed =
                (call.name != admitted).then(|| ToolCall { name: admitted, ..call.clone() });
            let call = renamed.as_ref().unwrap_or(call);
            match apply_rules(self.frames, self.cx, id, slot, call, &agent, consent) {
                ConsentRuling::Runs => {}
                ConsentRuling::Waits => return None,
                ConsentRuling::Refused(result) => return Some(result),
            }
        }
        if let Some(within) = within
            && (ScratchTurns { frames: self.frames, cx: self.cx })
                .waits_in_circle(within, (&plugin, &task_name))
        {
            let text = format!(
                "not run: {plugin} works on a call that waits for this one; call it again later"
            );
            return Some(failed(call, text));
        }
        // Checked after an approval, which may have taken long.
        match self.plugin_calls().must_wait_for(Budget::ToolCalls) {
            Ok(false) => {}
            Ok(true) => {
                // All approvals are complete. Rules that deny still apply when it resumes.
                let consent = if is_approved { Consent::Approved } else { Consent::Edited };
                self.cx.next_call(Purpose::HeldTool { frame: id, slot, consent });
                self.frames.set_slot(self.cx, id, slot, SlotState::Confirming);
                return None;
            }
            Err(budget) => {
                self.budgets.over = Some(budget);
                return Some(failed(call, format!("{} is used up", budget.key())));
            }
        }
        self.budgets.spent = self.budgets.spent.plus(Spent { tool_calls: 1, ..Spent::default() });
        self.budgets.used_by(&agent).tool_calls += 1;
        for by in call.led_by.iter().filter(|by| **by != agent) {
            self.budgets.used_by(by).tool_calls += 1;
        }
        let led_by = call.led_by.clone();
        let frame = id;
        let id = self.cx.next_call(Purpose::Tool { frame, slot, plugin: plugin.clone() });
        if !takes_turns(self.cx, &plugin) {
            self.frames.set_action_timeout(self.cx, frame, id);
        }
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        self.cx.notify(Notice::ToolCalled {
            call: id,
            task: task_name.clone(),
            caller: agent.clone(),
            name,
            arguments: arguments.clone(),
            within,
            led_by,
        });
        let effect = Effect::CallTool {
            call: id,
            task: task_name,
            caller: agent,
            plugin: plugin.clone(),
            tool,
            arguments,
        };
        call_tool(self.cx, &plugin, effect);
        self.frames.set_slot(self.cx, frame, slot, SlotState::Calling);
        None
    }
}

impl Histories {
    /// Returns the error for an unavailable tool. The operator reads which grant is missing, if one
    /// is.
    pub(in crate::room) fn unknown_tool(
        &self,
        cx: &mut RoomContext,
        agent: &PluginName,
        task: &TaskName,
        toolbox: &Toolbox,
        name: &str,
    ) -> String {
        if cx.setup.tool(name).is_some() {
            let record = self.unavailable_reason(cx, agent, task, name);
            return cx.denied(agent, *record);
        }
        let known: Vec<&str> = toolbox.offered().iter().map(|tool| tool.name.as_str()).collect();
        if known.is_empty() {
            return format!("There is no tool {name:?}, and none that you may call.");
        }
        format!("There is no tool {name:?}. You may call: {}.", known.join(", "))
    }

    /// The reason why an admitted tool is not available to the task's agent.
    fn unavailable_reason(
        &self,
        cx: &RoomContext,
        agent: &PluginName,
        task: &TaskName,
        tool: &str,
    ) -> Box<DenialRecord> {
        let Some(rights) = cx.setup.rights(agent) else {
            return unknown_plugin(agent, Capability::Tools, tool);
        };
        if let Err(record) = rights.may_call(tool) {
            return naming_task_list(record, task);
        }
        let (reason, wider) = wider_tools(&self.toolbox(cx, task), agent, task, tool);
        rights.refuse(Capability::Tools, tool, Layer::Task, &reason, wider)
    }
}

impl Budgets {
    pub(in crate::room) fn calls_are_used_up(
        &mut self,
        cx: &mut RoomContext,
        agent: &PluginName,
        tool: &str,
    ) -> Option<Box<DenialRecord>> {
        let used = self.used_by(agent).tool_calls;
        let rights = cx.setup.rights(agent)?;
        let limit = rights.grants.tools.as_ref()?.calls.filter(|limit| used >= *limit)?;
        let reason = format!(
            "{agent} has made the {limit} calls that plugins.{agent}.grants.tools.calls gives it"
        );
        Some(rights.refuse(Capability::Tools, tool, Layer::Runtime, &reason, None))
    }
}

/// A refusal by the grant, with the task's list of tools added to its reason.
pub(crate) fn naming_task_list(
    mut record: Box<DenialRecord>,
    task: &TaskName,
) -> Box<DenialRecord> {
    // With the grant alone, a task with such a list would refuse the next call.
    if record.layer == Layer::Config {
        record.reason.push_str(&format!("; if tasks.{task} lists `tools`, add it there too"));
    }
    record
}

/// The reason why a task leaves out a granted tool, and what to add.
pub(crate) fn wider_tools(
    toolbox: &Toolbox,
    agent: &PluginName,
    task: &TaskName,
    tool: &str,
) -> (String, Option<String>) {
    match toolbox.iter().find(|listed| listed.target.is_admitted_as(tool)) {
        Some(listed) if !listed.handled => {
            (format!("tasks.{task}.tools leaves its calls to others, with `handle = false`"), None)
        }
        Some(listed) => {
            (format!("tasks.{task}.tools gives it another name, {:?}", listed.summary.name), None)
        }
        None => (
            // The whole list is not suggested, because it may hold more than names.
            format!("tasks.{task}.tools narrows what {agent} may call"),
            Some(format!("add {tool:?} to tasks.{task}.tools")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_calls::toolbox::TaskTool;
    use crate::types::tool::ToolSpec;

    #[test]
    fn a_tool_that_the_task_lists_already_is_not_to_be_added() {
        let tool = |name: &str| {
            TaskTool::of_plugin(
                &"box".into(),
                &ToolSpec { name: name.to_owned(), ..ToolSpec::default() },
            )
        };
        let (mut renamed_tool, mut unhandled_tool) = (tool("a"), tool("b"));
        "other".clone_into(&mut renamed_tool.summary.name);
        unhandled_tool.handled = false;
        let toolbox: Toolbox = vec![renamed_tool, unhandled_tool].into();
        let advice = |name: &str| wider_tools(&toolbox, &"desk".into(), &"desk".into(), name);
        assert_eq!(
            advice("box.a"),
            ("tasks.desk.tools gives it another name, \"other\"".into(), None)
        );
        assert_eq!(
            advice("box.b"),
            ("tasks.desk.tools leaves its calls to others, with `handle = false`".into(), None)
        );
        assert_eq!(advice("box.c").1.as_deref(), Some("add \"box.c\" to tasks.desk.tools"));
    }
}
