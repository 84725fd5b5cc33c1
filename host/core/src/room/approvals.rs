//! The operator's policy on tool calls: what a rule refuses is refused here, what it asks about waits for an approver, everything else
//! runs. A call that waits has started nothing yet.

use std::sync::Arc;

use super::posting::unknown_plugin;
use super::tools::failed;
use super::{Purpose, Room, TimerPurpose};
use crate::effect::Effect;
use crate::grant::Layer;
use crate::ids::{CallId, FrameId, PluginName, TimerId};
use crate::manifest::Capability;
use crate::message::{ToolCall, ToolResult};
use crate::notice::Notice;
use crate::policy::{Approval, ApprovalRequest, Decide, rule_for};

/// What the operator's rules say about a call.
pub(super) enum Ruling {
    Runs,
    Waits,
    Refused(ToolResult),
}

impl Room {
    /// Holds a call against the rules; one that is asked about waits for `Decided`.
    pub(super) fn rule_on(
        &mut self,
        id: FrameId,
        slot: usize,
        call: &ToolCall,
        caller: &PluginName,
        asked_by: Option<&PluginName>,
    ) -> Ruling {
        let setup = Arc::clone(&self.setup);
        let callers = [caller].into_iter().chain(asked_by);
        let Some(rule) = rule_for(&setup.policy, callers, &call.name) else { return Ruling::Runs };
        match rule.decide {
            Decide::Allow => Ruling::Runs,
            Decide::Deny => {
                let reason = format!("the rule at {} denies it", rule.source);
                let record = match setup.rights(caller) {
                    Some(rights) => rights.refuse(Capability::Tools, &call.name, Layer::Policy, &reason, None),
                    None => unknown_plugin(caller, Capability::Tools, &call.name),
                };
                Ruling::Refused(failed(call, self.denied(caller, *record)))
            }
            // O-110, O-185: asked for every tool alike, and kept under the id of this call.
            Decide::Ask => {
                let Some(task) = self.frames.get(&id).map(|frame| frame.task.clone()) else {
                    return Ruling::Refused(failed(call, "the task is over".to_owned()));
                };
                let request = ApprovalRequest {
                    task,
                    caller: caller.clone(),
                    asked_by: asked_by.cloned(),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                    source: rule.source.clone(),
                };
                let waiting = self.next_call(Purpose::Approval { frame: id, slot });
                self.tell(Notice::ApprovalAsked { call: waiting, request: request.clone() });
                self.effects.push_back(Effect::AskApproval { call: waiting, request });
                if let Some(expires) = rule.expires_ms {
                    let at = self.now.plus(expires);
                    self.set_timer(TimerPurpose::Approval { call: waiting }, at);
                }
                Ruling::Waits
            }
        }
    }

    pub(super) fn decided(&mut self, call: CallId, approval: Approval) {
        let Some(Purpose::Approval { frame: id, slot }) = self.calls.get(&call) else { return };
        let (id, slot) = (*id, *slot);
        self.calls.remove(&call);
        let of_call = |purpose: &TimerPurpose| matches!(purpose, TimerPurpose::Approval { call: of } if *of == call);
        let timers: Vec<TimerId> = self.timers.iter().filter(|(_, purpose)| of_call(purpose)).map(|(timer, _)| *timer).collect();
        timers.iter().for_each(|timer| drop(self.timers.remove(timer)));
        self.tell(Notice::ApprovalGiven { call, approval: approval.clone() });
        self.go_on_with(id, slot, |room, wanted| match approval {
            Approval::Approved => room.start_approved(id, slot, wanted),
            Approval::Edited { arguments } => {
                wanted.arguments = arguments;
                room.start_approved(id, slot, wanted)
            }
            Approval::Refused { reason } => Some(failed(wanted, format!("Not approved: {reason}"))),
        });
    }

    pub(super) fn approval_expired(&mut self, call: CallId) {
        if matches!(self.calls.get(&call), Some(Purpose::Approval { .. })) {
            self.effects.push_back(Effect::AbandonCall { call });
            self.decided(call, Approval::Refused { reason: "nobody decided in time".to_owned() });
        }
    }
}
