//! Gates: plugins that check an item before it takes effect, one after the other. Each may allow
//! it, change its text or block it. A gate that fails or exceeds its deadline blocks it (R-009 done
//! right). Observers delay nothing (`observing.rs`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::acting::drop_timers;
use super::passages::passage_facts;
use super::queue_limit::QueueLimit;
use super::state::delegation::TaskOrigin;
use super::state::gated::{GatedAct, GatedMessage, PassageKind};
use super::tools::{call_facts, changed_answer, changed_arguments, result_facts};
use super::{
    BackgroundWork, GateChecks, Invariant, PluginCalls, Purpose, Room, RoomContext, TimerPurpose,
    ToolRounds,
};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::setup::plugin_query::{self, GATE_INPUT_MAX, GateVerdict, PluginQuery, PluginReply};
use crate::setup::{GatePoint, GateRule};
use crate::types::fault::{CallReport, Fault, FaultKind};
use crate::types::ids::{CallId, ChannelId, FrameId, PluginName};
use crate::types::request::Inbound;
use crate::types::text::cut_bytes;

/// Bytes of a gate's reason, which the sender reads.
const REASON_MAX: usize = 4 << 10;

/// The items that gates are checking.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Gating {
    /// Items in order of arrival.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    waiting: BTreeMap<u64, GatedItem>,
    /// The number of the next item.
    next: u64,
}

/// An item that gates are checking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct GatedItem {
    act: GatedAct,
    /// The gates that let it pass. Not a place in the setup's list, because a resumption under
    /// another config changes that list.
    passed: Vec<PluginName>,
    /// `None` while an earlier message of its channel waits.
    call: Option<CallId>,
}

impl Gating {
    fn in_lane(&self, lane: &ChannelId) -> impl Iterator<Item = (u64, &GatedItem)> {
        self.waiting
            .iter()
            .filter(move |(_, waiting)| waiting.act.lane() == Some(lane))
            .map(|(number, waiting)| (*number, waiting))
    }
}

/// Whether a gate checks the items of this point.
pub(super) fn has_gate(cx: &RoomContext, point: GatePoint) -> bool {
    next_gate(cx, (point, None), &[]).is_some()
}

/// Whether any tool has gates at this point. Most configs have none, and their calls do no more
/// than this.
pub(super) fn has_gate_at(cx: &RoomContext, point: GatePoint) -> bool {
    cx.setup.gates.iter().any(|rule| rule.on == point)
}

/// Whether a gate checks the items of this point that belong to a `plugin.tool`.
pub(super) fn has_gate_for(cx: &RoomContext, point: GatePoint, tool: &str) -> bool {
    cx.setup.gates.iter().any(|rule| rule.checks(point, Some(tool)))
}

/// The first gate of a point, and of a tool if the point is about tools, that an item has not
/// passed. A plugin that stands twice in the list checks twice.
fn next_gate<'r>(
    cx: &'r RoomContext,
    (point, tool): (GatePoint, Option<&str>),
    passed: &[PluginName],
) -> Option<&'r GateRule> {
    let mut passed = passed.to_vec();
    cx.setup.gates.iter().filter(|rule| rule.checks(point, tool)).find(|rule| {
        match passed.iter().position(|plugin| *plugin == rule.plugin) {
            Some(place) => {
                passed.swap_remove(place);
                false
            }
            None => true,
        }
    })
}

impl Gating {
    /// Returns why this message may not wait for the gates of its channel, if so: the sender is too
    /// fast for them.
    pub(super) fn full_lane(&self, inbound: &Inbound) -> Option<String> {
        let weights = self.in_lane(&inbound.channel).filter_map(|(_, item)| match &item.act {
            GatedAct::Inbound { inbound, .. } => Some(inbound.weight()),
            _ => None,
        });
        QueueLimit::exceeded_by(weights.chain([inbound.weight()]))
            .map(|limit| limit.reason("messages of the channel", "wait for its gates"))
    }

    /// The messages that gates check.
    pub(super) fn deliveries(&self) -> impl Iterator<Item = &GatedMessage> {
        self.waiting.values().filter_map(|item| match &item.act {
            GatedAct::Delivery { gated } => Some(&**gated),
            _ => None,
        })
    }

    /// Drops items. Returns the calls of the gates that check them.
    fn forget(&mut self, is_dropped: impl Fn(&GatedAct) -> bool) -> Vec<CallId> {
        let dropped = self.waiting.extract_if(.., |_, item| is_dropped(&item.act));
        dropped.filter_map(|(_, item)| item.call).collect()
    }
}

impl GateChecks<'_> {
    /// Asks the first gate of the item's point. Its last gate releases the item.
    pub(super) fn wait_for_gates(&mut self, act: GatedAct) {
        if next_gate(self.cx, act.place(), &[]).is_none() {
            return self.cx.violated(Invariant::GateKnown, None::<FrameId>);
        }
        let before = act.lane().map_or(0, |lane| self.gating.in_lane(lane).count());
        let number = self.gating.next;
        self.gating.next += 1;
        self.gating.waiting.insert(number, GatedItem { act, passed: Vec::new(), call: None });
        // One item of a channel at a time keeps the order of its messages.
        if before == 0 && self.ask_gate(number).is_some() {
            self.cx.violated(Invariant::GateKnown, None::<FrameId>);
        }
    }

    /// The rule by which a gate checks an item; `None` if the config does not have it any more.
    fn rule_of(&self, number: u64, plugin: &PluginName) -> Option<&GateRule> {
        let (point, tool) = self.gating.waiting.get(&number)?.act.place();
        let mut gates = self.cx.setup.gates.iter();
        gates.find(|rule| rule.checks(point, tool) && rule.plugin == *plugin)
    }

    /// Asks the next gate of an item. Returns the item if it has passed all.
    fn ask_gate(&mut self, number: u64) -> Option<GatedAct> {
        let Some(waiting) = self.gating.waiting.get(&number) else {
            self.cx.violated(Invariant::GateKnown, None::<FrameId>);
            return None;
        };
        let rule = next_gate(self.cx, waiting.act.place(), &waiting.passed).cloned();
        let Some(rule) = rule else {
            return self.gating.waiting.remove(&number).map(|waiting| waiting.act);
        };
        let question = PluginQuery::Gate { input: Box::new(self.gate_view(&waiting.act)) };
        let call = self.cx.next_call(Purpose::Gate { plugin: rule.plugin.clone(), number });
        if let Some(waiting) = self.gating.waiting.get_mut(&number) {
            waiting.call = Some(call);
        }
        let task = self.cx.opening.entry.clone();
        self.cx.effects.push_back(Effect::QueryPlugin {
            call,
            task,
            plugin: rule.plugin,
            question,
        });
        self.cx.set_timer(TimerPurpose::Gate { call }, self.cx.now.plus(rule.deadline_ms));
        None
    }

    /// The item as a gate sees it.
    fn gate_view(&self, act: &GatedAct) -> plugin_query::GateInput {
        let mut input = plugin_query::GateInput {
            point: act.point(),
            room: self.cx.opening.room.clone(),
            channel: None,
            from_task: None,
            to_task: None,
            text: act.text().to_owned(),
            metadata: json!({}),
        };
        match act {
            GatedAct::Inbound { inbound, .. } => {
                input.channel = Some(inbound.channel.clone());
                input.to_task = inbound.to.as_ref().map(ToString::to_string);
                // Gates get the types of attachments, not their content.
                let attachments: Vec<&str> =
                    inbound.attachments.iter().map(|blob| blob.media_type.as_str()).collect();
                input.metadata = json!({
                    "sender": inbound.sender, "attachments": attachments, "chain_depth": inbound.chain_depth, "key": inbound.key,
                });
            }
            GatedAct::Delegation { delegating } => {
                let delegation = &delegating.delegation;
                input.from_task = match &delegating.origin {
                    TaskOrigin::Slot { frame, .. } => {
                        self.frames.get(frame).map(|frame| frame.task.clone())
                    }
                    TaskOrigin::Request { by, .. } => by.clone(),
                };
                input.to_task = Some(delegation.worker.clone());
                input.metadata = json!({
                    "label": delegation.description, "context": delegation.context, "share_channels": delegation.share_channels,
                    "conversation": delegation.conversation, "wait": delegation.wait,
                });
            }
            GatedAct::Delivery { gated } => {
                let outgoing = &gated.outgoing;
                input.channel = Some(outgoing.channel.clone());
                input.from_task = outgoing
                    .tasks
                    .first()
                    .and_then(|id| self.background.task(id))
                    .map(|record| record.worker.clone());
                input.metadata = json!({ "tasks": outgoing.tasks, "interrupt": outgoing.interrupt, "key": outgoing.key });
            }
            GatedAct::Passage { passage } => {
                let frame = self.frames.get(&passage.frame);
                let caller = frame.and_then(|frame| self.frames.get(&frame.caller?));
                // The frame of a first message is the one that it reaches, so its caller sends it.
                let from = if passage.kind == PassageKind::Message { caller } else { frame };
                input.from_task = from.map(|frame| frame.task.clone());
                input.to_task.clone_from(&passage.to);
                input.channel =
                    (act.point() == GatePoint::Outbound).then(|| self.cx.opening.channel.clone());
                input.metadata = passage_facts(self.frames, passage);
            }
            GatedAct::ToolCall { call } => {
                let frame = self.frames.get(&call.waiter.frame);
                input.from_task = frame.map(|frame| frame.task.clone());
                input.metadata = call_facts(self.frames, self.cx, call);
            }
            GatedAct::ToolResult { result } => {
                let frame = act.frame().and_then(|frame| self.frames.get(&frame));
                // The task's agent asked for the result, and is the first to read it.
                input.to_task = frame.map(|frame| frame.task.to_string());
                input.metadata = result_facts(self.frames, self.cx, result);
            }
        }
        input
    }

    /// Asks the first gate of the next item of a channel. Returns the item if it has none to pass.
    fn next_in_lane(&mut self, lane: Option<ChannelId>) -> Option<GatedAct> {
        let (number, waiting) = self.gating.in_lane(&lane?).next()?;
        if waiting.call.is_some() { None } else { self.ask_gate(number) }
    }
}

impl Room {
    /// Takes a gate's answer. If the gate failed, the item does not pass (R-009, R-118 done right).
    pub(super) fn gate_answered(
        &mut self,
        call: CallId,
        plugin: &PluginName,
        number: u64,
        answer: Result<PluginReply, Fault>,
        report: &CallReport,
    ) {
        // Read first, because `checked` compares a changed text with it.
        let original = self.gating.waiting.get(&number).map(|waiting| waiting.act.text());
        let verdict = answer.and_then(|advice| checked(advice, original.unwrap_or_default()));
        let verdict =
            verdict.and_then(|verdict| self.tool_rounds().fitting_verdict(number, verdict));
        self.end_call(call, verdict.is_ok(), report);
        drop_timers(&mut self.cx, |purpose| *purpose == TimerPurpose::Gate { call });
        match verdict {
            Ok(GateVerdict::Allow) => self.release(number, plugin),
            Ok(GateVerdict::Modify { text }) => {
                let Some(waiting) = self.gating.waiting.get_mut(&number) else {
                    return self.cx.violated(Invariant::GateKnown, None::<FrameId>);
                };
                // The same text is no change: a change costs a passage its value and its calls.
                if waiting.act.text() != text {
                    waiting.act.set_text(text);
                    let (point, tool) = waiting.act.place();
                    let (plugin, tool) = (plugin.clone(), tool.map(str::to_owned));
                    self.cx.notify(Notice::GateModified { point, plugin, tool });
                }
                self.release(number, plugin);
            }
            Ok(GateVerdict::Block { reason }) if reason.trim().is_empty() => {
                let reason = format!("gate {plugin} blocked it, and gave no reason");
                self.block(number, plugin, &reason, &reason);
            }
            Ok(GateVerdict::Block { reason }) => {
                let reason =
                    format!("gate {plugin} blocked it: {}", cut_bytes(&reason, REASON_MAX));
                self.block(number, plugin, &reason, &reason);
            }
            Err(fault) => self.gate_failed(call, plugin, number, fault),
        }
    }

    /// Ends a gate's call after its deadline as a failure. A late answer has no effect.
    pub(super) fn gate_overdue(&mut self, call: CallId) {
        let Some(Purpose::Gate { plugin, number }) = self.cx.calls.get(&call).cloned() else {
            return;
        };
        self.plugin_calls().abandon(call);
        let deadline =
            self.gate_checks().rule_of(number, &plugin).map_or(0, |rule| rule.deadline_ms);
        let message = format!("it gave no answer within {deadline} ms (gates: `deadline`)");
        self.gate_failed(call, &plugin, number, Fault::new(FaultKind::Wall, message));
    }

    fn gate_failed(&mut self, call: CallId, plugin: &PluginName, number: u64, fault: Fault) {
        let reason = format!("gate {plugin} failed: {}", cut_bytes(&fault.message, REASON_MAX));
        self.cx.notify(Notice::PluginFaulted { call, plugin: plugin.clone(), fault });
        if self.gate_checks().rule_of(number, plugin).is_some_and(|rule| rule.fails_open) {
            self.release(number, plugin);
            return;
        }
        // The details are for the operator; the sender learns only that the gate failed.
        self.block(number, plugin, &reason, &format!("gate {plugin} failed"));
    }

    /// Moves an item that a gate let pass to its next one. Behind the last one it takes effect.
    fn release(&mut self, number: u64, plugin: &PluginName) {
        let Some(waiting) = self.gating.waiting.get_mut(&number) else {
            return self.cx.violated(Invariant::GateKnown, None::<FrameId>);
        };
        waiting.passed.push(plugin.clone());
        if let Some(act) = self.gate_checks().ask_gate(number) {
            self.passed_all(act);
        }
    }

    /// Carries out an item that has passed its gates, then asks about the next of its channel.
    fn passed_all(&mut self, act: GatedAct) {
        let lane = act.lane().cloned();
        match act {
            GatedAct::Inbound { request, inbound } => self.inbound_passed(request, *inbound),
            GatedAct::Delegation { delegating } => {
                self.background_work().delegation_passed(*delegating)
            }
            GatedAct::Delivery { gated } => self.result_delivery().delivery_passed(*gated),
            GatedAct::Passage { passage } => self.passage_passed(*passage),
            GatedAct::ToolCall { call } => self.tool_rounds().call_passed(&call),
            GatedAct::ToolResult { result } => self.tool_rounds().result_passed(*result),
        }
        self.continue_lane(lane);
    }

    fn continue_lane(&mut self, lane: Option<ChannelId>) {
        if let Some(act) = self.gate_checks().next_in_lane(lane) {
            self.passed_all(act);
        }
    }

    fn block(&mut self, number: u64, plugin: &PluginName, reason: &str, public_reason: &str) {
        let Some(GatedItem { act, .. }) = self.gating.waiting.remove(&number) else {
            return self.cx.violated(Invariant::GateKnown, None::<FrameId>);
        };
        let lane = act.lane().cloned();
        self.cx.notify(Notice::GateBlocked {
            point: act.point(),
            plugin: plugin.clone(),
            reason: reason.to_owned(),
            tool: act.tool().map(str::to_owned),
        });
        match act {
            GatedAct::Passage { passage } => self.passage_blocked(&passage, public_reason),
            GatedAct::ToolCall { call } => self.tool_rounds().call_blocked(&call, public_reason),
            GatedAct::ToolResult { result } => {
                self.tool_rounds().result_blocked(*result, public_reason)
            }
            act => self.background_work().block(act, public_reason),
        }
        self.continue_lane(lane);
    }
}

impl ToolRounds<'_> {
    /// Returns the verdict, unless its change does not fit the tool whose call or result it is.
    fn fitting_verdict(&self, number: u64, verdict: GateVerdict) -> Result<GateVerdict, Fault> {
        let act = self.gating.waiting.get(&number).map(|waiting| &waiting.act);
        let (Some(act), GateVerdict::Modify { text }) = (act, &verdict) else { return Ok(verdict) };
        let problem = match act {
            GatedAct::ToolCall { call } => {
                changed_arguments(self.frames, self.histories, self.cx, call, text).err()
            }
            GatedAct::ToolResult { result } => changed_answer(&result.answered.answer, text).err(),
            _ => None,
        };
        problem.map_or(Ok(verdict), |message| Err(Fault::new(FaultKind::BadAnswer, message)))
    }
}

impl BackgroundWork<'_> {
    /// Ends the checks of an activation that is over.
    pub(super) fn abandon_passages(&mut self, frame: FrameId) {
        self.plugin_calls().abandon_checks(|act| act.frame() == Some(frame));
    }

    /// Blocks all items when the room stops, and reports that to their senders.
    pub(super) fn block_all(&mut self, reason: &str) {
        for (_, GatedItem { act, call, .. }) in std::mem::take(&mut self.gating.waiting) {
            if let Some(call) = call {
                self.plugin_calls().abandon(call);
            }
            let reason = format!("the room is over: {reason}");
            match act {
                // No gate refused it, so it waits for the agent's next turn.
                GatedAct::Delivery { gated } => {
                    self.deliveries.delivery_interrupted(self.cx, self.background, *gated, &reason)
                }
                act => self.block(act, &reason),
            }
        }
    }

    fn block(&mut self, act: GatedAct, reason: &str) {
        match act {
            GatedAct::Inbound { request, inbound } => {
                self.channels.inbound_blocked(self.cx, request, *inbound, reason)
            }
            GatedAct::Delegation { delegating } => self.delegation_blocked(*delegating, reason),
            GatedAct::Delivery { gated } => {
                self.deliveries.delivery_blocked(self.cx, self.background, *gated, reason)
            }
            // Its activation has ended already.
            GatedAct::Passage { .. } | GatedAct::ToolCall { .. } | GatedAct::ToolResult { .. } => {}
        }
    }
}

impl PluginCalls<'_> {
    /// Drops items that nothing waits for any more, with the calls of the gates that check them.
    pub(super) fn abandon_checks(&mut self, is_over: impl Fn(&GatedAct) -> bool) {
        for call in self.gating.forget(is_over) {
            drop_timers(self.cx, |purpose| *purpose == TimerPurpose::Gate { call });
            self.abandon(call);
        }
    }
}

/// Returns a gate's verdict, if it is a valid answer to the query.
fn checked(advice: PluginReply, original: &str) -> Result<GateVerdict, Fault> {
    let bad = |message: String| Err(Fault::new(FaultKind::BadAnswer, message));
    match advice {
        PluginReply::Gate { verdict: GateVerdict::Modify { text } }
            if text.len() > GATE_INPUT_MAX =>
        {
            bad(format!("its text has {} bytes; it may have {GATE_INPUT_MAX}", text.len()))
        }
        PluginReply::Gate { verdict: GateVerdict::Modify { text } }
            if text.trim().is_empty() && !original.trim().is_empty() =>
        {
            bad("it changed the text to nothing; to stop it, a gate answers `block`".to_owned())
        }
        PluginReply::Gate { verdict } => Ok(verdict),
        _ => bad("it answered another question than the one that it was asked".to_owned()),
    }
}
