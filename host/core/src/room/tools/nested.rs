//! Calls that a running tool makes with its agent's tools. Each is a slot of the agent's round, so
//! that grants, rules, approvals, budgets and resumption treat it as a call of the agent. Its answer
//! goes to the tool, and not into the round's message.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::host_tool_of;
use super::round::{MAX_CHAIN, name_in_task};
use crate::protocol::effect::Effect;
use crate::room::messages::unknown_plugin;
use crate::room::state::rounds::{CallOutcome, Nested, Slot, SlotAnswer, SlotState, ToolRound};
use crate::room::{
    Dialogue, Frames, PluginCalls, Purpose, QueryPurpose, Room, RoomContext, ToolRounds,
};
use crate::tool_calls::toolbox::{TaskTool, ToolTarget, Toolbox};
use crate::types::capability::Capability;
use crate::types::denial::Denial;
use crate::types::ids::{CallId, FrameId, PluginName};
use crate::types::message::ToolCall;
use crate::types::tool::{NestedAnswer, NestedCall, NestedError, NestedResult};

/// Nested calls of one call, and those of them that run at once.
const MAX_NESTED: usize = 1_024;
const AT_ONCE: usize = 64;

impl Room {
    pub(in crate::room) fn tools_asked(
        &mut self,
        call: CallId,
        ordinal: u32,
        calls: Vec<NestedCall>,
    ) {
        match self.cx.calls.get(&call) {
            Some(Purpose::Tool { frame, slot, plugin }) => {
                let (frame, slot, plugin) = (*frame, *slot, plugin.clone());
                self.tool_rounds().start_nested((frame, slot), (call, ordinal), &plugin, calls);
                self.dialogue().end_if_complete(frame);
            }
            // A poll of a background command belongs to no round.
            Some(_) => {
                let refused = || failed("only a call of an agent can call other tools".to_owned());
                let answers = calls.iter().map(|_| refused()).collect();
                self.cx.effects.push_back(Effect::AnswerTools { call, ordinal, answers });
            }
            // The call was abandoned, and its plugin is being stopped.
            None => {}
        }
    }
}

impl ToolRounds<'_> {
    /// Adds a slot for each call, and starts it unless it is refused.
    fn start_nested(
        &mut self,
        (id, parent): (FrameId, usize),
        (call, ordinal): (CallId, u32),
        plugin: &PluginName,
        calls: Vec<NestedCall>,
    ) {
        let is_untrusted = self.frames.round(id).is_some_and(ToolRound::is_untrusted);
        let Some(slot) = self.frames.slot_mut(self.cx, id, parent) else { return };
        let (depth, before) = (slot.depth + 1, slot.nested_calls as usize);
        let untrusted = slot.now.untrusted || is_untrusted;
        let led_by = slot.now.led_by_and(plugin);
        slot.nested_calls =
            slot.nested_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        // An answer is sent when a slot ends, and this request has none.
        if calls.is_empty() {
            let answers = Vec::new();
            return self.cx.effects.push_back(Effect::AnswerTools { call, ordinal, answers });
        }
        let Some(frame) = self.frames.get(&id) else { return };
        let toolbox = self.histories.toolbox(self.cx, &frame.task);
        let above = self.plugins_above(id, parent, plugin);
        let Some(first) = self.frames.round(id).map(|round| round.slots.len()) else { return };
        for (offset, NestedCall { name, arguments }) in calls.into_iter().enumerate() {
            let next = ToolCall {
                // With an id of the plugin's choice, a result could pass for that of another call.
                id: format!("{call}-{ordinal}-{offset}"),
                untrusted,
                led_by: led_by.clone(),
                ..ToolCall::new(name_in_task(&toolbox, name), arguments)
            };
            // The grant first: without it the plugin does not even learn whether the tool exists.
            let denial = may_nest(self.cx, plugin, &toolbox, &next.name).err();
            let refusal = if let Some(denial) = &denial {
                Some(denial.detail.clone())
            } else if toolbox.get(&next.name).is_none() && self.cx.setup.tool(&next.name).is_none()
            {
                Some(no_such_tool(self.cx, plugin, &toolbox, &above, &next.name))
            } else if depth > MAX_CHAIN {
                Some(format!("not run: more than {MAX_CHAIN} tools call one another"))
            } else if offset >= AT_ONCE {
                Some(format!("not run: at most {AT_ONCE} calls run at once"))
            } else if before + offset >= MAX_NESTED {
                Some(format!("not run: a tool may make {MAX_NESTED} calls"))
            } else if host_tool_of(&toolbox, &next).is_some() {
                Some(format!("{} steers the task, so only its agent can call it", next.name))
            } else if target_of(&toolbox, &next.name).is_some_and(|of| above.contains(of)) {
                Some(format!("{} belongs to a plugin that is waiting for this call", next.name))
            } else if self.histories.is_handed_on(self.cx, self.frames, id, &toolbox, &next, None) {
                Some(match untrusted {
                    true => format!(
                        "{} is not offered to the agent, and the call derives from text of outside origin",
                        next.name
                    ),
                    false => format!("{} is carried out by another task", next.name),
                })
            } else {
                None
            };
            if let Some(text) = &refusal {
                self.frames.report_refused(self.cx, id, &next.name, Some(&next.arguments), text);
            }
            let outcome = refusal.map(|text| self.frames.error_outcome(self.cx, id, text));
            let nested = Some(Nested { call, ordinal, denial, is_told: false });
            let slot = Slot { depth, nested, ..Slot::new(next) }.answered(outcome);
            let Some(round) = self.frames.round_mut(self.cx, id) else { return };
            round.push(slot);
        }
        self.run_slots(id, first);
    }

    /// A tool's plugin, and those that wait for it.
    fn plugins_above(&self, id: FrameId, slot: usize, plugin: &PluginName) -> Vec<PluginName> {
        let mut plugins = vec![plugin.clone()];
        let mut next = self.frames.slot(id, slot);
        while let Some((nested, slot)) = next.and_then(|slot| Some((slot.nested.as_ref()?, slot))) {
            plugins.extend(slot.now.requester().cloned());
            next = match self.cx.calls.get(&nested.call) {
                Some(Purpose::Tool { slot, .. }) => self.frames.slot(id, *slot),
                _ => None,
            };
        }
        plugins
    }
}

impl Dialogue<'_> {
    /// Answers the requests whose calls have all ended.
    pub(super) fn answer_nested(&mut self, id: FrameId) {
        let Some(round) = nesting_round(self.frames, id) else { return };
        // Sorted, so that a replay answers in the same order.
        let mut requests: BTreeMap<(CallId, u32), bool> = BTreeMap::new();
        for slot in &round.slots {
            let Some(nested) = slot.nested.as_ref().filter(|nested| !nested.is_told) else {
                continue;
            };
            *requests.entry((nested.call, nested.ordinal)).or_insert(true) &= !slot.is_open();
        }
        for ((call, ordinal), _) in requests.into_iter().filter(|(_, is_complete)| *is_complete) {
            let answers = round.slots.iter_mut().filter_map(|slot| slot.tell(call, ordinal));
            let answers = answers.collect();
            self.cx.effects.push_back(Effect::AnswerTools { call, ordinal, answers });
        }
        round.drop_told();
    }

    /// Returns the error of a nested call whose tool asks for follow-up calls, which only an agent
    /// can make.
    pub(super) fn refused_follow_ups(&mut self, id: FrameId, then: &[ToolCall]) -> CallOutcome {
        let names: Vec<&str> = then.iter().map(|call| call.name.as_str()).collect();
        let text = format!(
            "it asks its agent to call {} next, so only an agent can call it",
            names.join(", ")
        );
        self.frames.error_outcome(self.cx, id, text)
    }
}

/// Checks whether a plugin may make a nested call, by its own grant.
fn may_nest(
    cx: &mut RoomContext,
    plugin: &PluginName,
    toolbox: &Toolbox,
    name: &str,
) -> Result<(), Denial> {
    let setup = Arc::clone(&cx.setup);
    let admitted = toolbox.get(name).and_then(|tool| tool.target.admitted_name());
    let admitted = admitted.unwrap_or_else(|| name.to_owned());
    let refused = match setup.rights(plugin) {
        Some(rights) => rights.may_call(&admitted),
        None => Err(unknown_plugin(plugin, Capability::Tools, &admitted)),
    };
    refused.map_err(|mut record| {
        // A grant would not help, and the config would refuse it.
        if setup.tool(&admitted).is_none() {
            record.reason = format!("there is no tool {admitted}");
            record.suggestion = None;
        } else if admitted.split_once('.').is_some_and(|(of, _)| of == plugin.as_str()) {
            record.reason = "a plugin cannot call its own tools".to_owned();
            record.suggestion = None;
        }
        let denial = record.denial.clone();
        cx.denied(plugin, *record);
        denial
    })
}

/// The error for a nested call of a tool that no plugin has, with the tools that the plugin may
/// call. `above` are the plugins that wait for the call.
fn no_such_tool(
    cx: &RoomContext,
    plugin: &PluginName,
    toolbox: &Toolbox,
    above: &[PluginName],
    name: &str,
) -> String {
    let rights = cx.setup.rights(plugin);
    let is_callable = |tool: &&TaskTool| {
        let ToolTarget::Plugin { plugin: of, .. } = &tool.target else { return false };
        let admitted = tool.target.admitted_name().unwrap_or_default();
        tool.handled
            && !above.contains(of)
            && rights.as_ref().is_some_and(|rights| rights.may_call(&admitted).is_ok())
    };
    let known: Vec<&str> =
        toolbox.iter().filter(is_callable).map(|tool| tool.summary.name.as_str()).collect();
    if known.is_empty() {
        return format!("There is no tool {name:?}, and none that {plugin} may call.");
    }
    format!("There is no tool {name:?}. {plugin} may call: {}.", known.join(", "))
}

/// Returns a round that has nested calls.
fn nesting_round(frames: &mut Frames, id: FrameId) -> Option<&mut ToolRound> {
    let round = frames.get_mut(&id)?.round_mut()?;
    round.slots.iter().any(|slot| slot.nested.is_some()).then_some(round)
}

impl PluginCalls<'_> {
    /// Drops the nested calls of a call that is over.
    pub(in crate::room) fn abandon_nested(&mut self, id: FrameId, call: CallId) {
        let Some(round) = nesting_round(self.frames, id) else { return };
        let mut open = Vec::new();
        for (index, slot) in round.slots.iter_mut().enumerate() {
            if slot.nested.as_ref().is_none_or(|nested| nested.call != call) {
                continue;
            }
            if !matches!(slot.end_nested(), SlotState::Answered(_)) {
                open.push(index);
            }
        }
        if open.is_empty() {
            return;
        }
        let is_of_slot = |purpose: &Purpose| match purpose {
            Purpose::Tool { frame, slot, .. }
            | Purpose::Approval { frame, slot }
            | Purpose::HeldTool { frame, slot, .. }
            | Purpose::QueryPlugin { frame, about: QueryPurpose::Risk { slot }, .. } => {
                *frame == id && open.contains(slot)
            }
            _ => false,
        };
        let calls: Vec<CallId> = self
            .cx
            .calls
            .iter()
            .filter(|(_, purpose)| is_of_slot(purpose))
            .map(|(call, _)| *call)
            .collect();
        calls.into_iter().for_each(|call| self.abandon(call));
        self.abandon_checks(|act| {
            act.slot().is_some_and(|(frame, slot)| frame == id && open.contains(&slot))
        });
    }
}

impl ToolRound {
    /// Removes nested calls that were told, from the end: the slots of others keep their places.
    fn drop_told(&mut self) {
        let is_told = |slot: &Slot| slot.nested.as_ref().is_some_and(|nested| nested.is_told);
        while self.slots.last().is_some_and(is_told) {
            self.slots.pop();
        }
    }
}

impl Slot {
    /// Ends a nested call for its tool, drops its answer, and returns its state before.
    fn end_nested(&mut self) -> SlotState {
        self.nested.iter_mut().for_each(|nested| nested.is_told = true);
        let over = SlotState::Answered(Box::new(CallOutcome::default().into()));
        std::mem::replace(&mut self.state, over)
    }

    /// Takes its answer, if it belongs to this request.
    fn tell(&mut self, call: CallId, ordinal: u32) -> Option<NestedAnswer> {
        let nested = self.nested.as_mut()?;
        if nested.is_told || (nested.call, nested.ordinal) != (call, ordinal) {
            return None;
        }
        let denial = nested.denial.take();
        let SlotState::Answered(answer) = self.end_nested() else { return None };
        let SlotAnswer { outcome: CallOutcome { message, is_error, .. }, .. } = *answer;
        let content = message.as_ref().and_then(|message| message.content.clone());
        Some(match denial {
            Some(denial) => Err(NestedError::Denied { denial }),
            None if is_error => failed(content.unwrap_or_default().to_string()),
            None => Ok(NestedResult {
                content: content.map(|content| content.to_string()),
                value: message.and_then(|message| message.value),
            }),
        })
    }
}

/// The plugin behind a name of the task.
fn target_of<'t>(toolbox: &'t Toolbox, name: &str) -> Option<&'t PluginName> {
    match &toolbox.get(name)?.target {
        ToolTarget::Plugin { plugin, .. } => Some(plugin),
        ToolTarget::Host(_) => None,
    }
}

fn failed(message: String) -> NestedAnswer {
    Err(NestedError::Failed { message })
}
