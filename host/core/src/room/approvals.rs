//! The operator's policy on tool calls. A call is refused by a rule, waits for an approver, or
//! runs. A waiting call has started nothing.

use std::sync::Arc;

use serde_json::Value;

use super::confirming::{ByRule, RequestedAct, consent_to, delegators};
use super::messages::unknown_plugin;
use super::state::consent::Consent;
use super::tools::failed;
use super::{Frames, Purpose, Room, RoomContext, TimerPurpose};
use crate::permissions::policy_rules::{Decide, Rule};
use crate::policy::decision::{DecisionSource, PolicyDecision, decide_for_participants};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::types::approval::{
    Approval, ApprovalAnswer, ApprovalAuthor, ApprovalCause, ApprovalRequest, DecisionFault,
    participants,
};
use crate::types::capability::Capability;
use crate::types::denial::Layer;
use crate::types::ids::{CallId, FrameId, PluginName};
use crate::types::message::{ToolCall, ToolResult};
use crate::types::tool::ToolError;

/// The decision of the operator's rules about a call.
pub(super) enum ConsentRuling {
    Runs,
    Waits,
    Refused(ToolResult),
}

/// Checks a call against the rules. A call that needs approval waits for `Decided`.
pub(super) fn apply_rules(
    frames: &mut Frames,
    cx: &mut RoomContext,
    id: FrameId,
    slot: usize,
    call: &ToolCall,
    caller: &PluginName,
    consent: Consent,
) -> ConsentRuling {
    let setup = Arc::clone(&cx.setup);
    // The rules of all that led to the call apply, or another plugin could get around them.
    let delegators = delegators(frames, cx, id);
    let participants = participants(&delegators, caller, &call.led_by);
    let PolicyDecision { decide, why } =
        decide_for_participants(&setup, participants, &call.name, &call.arguments);
    let act = RequestedAct { frame: id, slot, call, action: None, caller };
    match decide {
        // An allowing rule does not override the task's rules of consent.
        Decide::Allow => consent_to(frames, cx, &act, None, consent),
        Decide::Deny => {
            let reason = match why {
                DecisionSource::Rule { rule: Rule { caller: Some(by), source, .. }, .. }
                    if by != caller =>
                {
                    format!("the rule at {source} denies it to {by}, which led to the call")
                }
                why => format!("the rule at {why} denies it"),
            };
            let record = match setup.rights(caller) {
                Some(rights) => {
                    rights.refuse(Capability::Tools, &call.name, Layer::Policy, &reason, None)
                }
                None => unknown_plugin(caller, Capability::Tools, &call.name),
            };
            ConsentRuling::Refused(failed(call, cx.denied(caller, *record)))
        }
        // O-110, O-185: asked for every tool alike, and stored under the id of this call.
        Decide::Ask => {
            let (cause, expires_ms) = match why {
                DecisionSource::Rule { index, rule } => {
                    (ApprovalCause::Rule(index), rule.expires_ms)
                }
                DecisionSource::Grants { .. } | DecisionSource::Nothing => {
                    (ApprovalCause::Grants, None)
                }
            };
            consent_to(
                frames,
                cx,
                &act,
                Some(ByRule { source: why.to_string(), cause, expires_ms }),
                consent,
            )
        }
    }
}

pub(super) fn drop_approval_timer(cx: &mut RoomContext, call: CallId) {
    cx.timers.retain(
        |_, purpose| !matches!(purpose, TimerPurpose::Approval { call: of } if *of == call),
    );
}

pub(super) fn ask_approver(
    cx: &mut RoomContext,
    (frame, slot): (FrameId, usize),
    request: ApprovalRequest,
) {
    let expires = request.expires_ms;
    let waiting = cx.next_call(Purpose::Approval { frame, slot });
    cx.notify(Notice::ApprovalAsked { call: waiting, request: request.clone() });
    cx.effects.push_back(Effect::AskApproval { call: waiting, request });
    if let Some(expires) = expires {
        let at = cx.now.plus(expires);
        cx.set_timer(TimerPurpose::Approval { call: waiting }, at);
    }
}

/// The arguments of a call, or of a limit increase, that waits for a decision.
fn arguments_to_decide(
    frames: &mut Frames,
    cx: &mut RoomContext,
    call: CallId,
) -> Option<Arc<Value>> {
    match cx.calls.get(&call)? {
        Purpose::Approval { frame, slot } => {
            let (frame, slot) = (*frame, *slot);
            Some(Arc::clone(&frames.slot_mut(cx, frame, slot)?.now.arguments))
        }
        Purpose::TopUp { top_up } => Some(Arc::new(top_up.as_approval().arguments)),
        _ => None,
    }
}

impl Room {
    pub(super) fn decided(
        &mut self,
        call: CallId,
        ApprovalAnswer { approval, author }: ApprovalAnswer,
        arguments_sha256: Option<&str>,
    ) {
        if let Some(arguments) = arguments_to_decide(&mut self.frames, &mut self.cx, call)
            && let Err(fault) = DecisionFault::check(arguments_sha256, &arguments)
        {
            // What was approved is what runs. The call waits for a decision about its arguments.
            return self.cx.notify(Notice::DecisionRejected { call, author, fault });
        }
        let (id, slot) = match self.cx.calls.get(&call) {
            Some(Purpose::Approval { frame, slot }) => (*frame, *slot),
            Some(Purpose::TopUp { .. }) => {
                self.topped_up(call, approval, author);
                return;
            }
            // The call no longer waits for a decision.
            _ => return,
        };
        self.cx.calls.remove(&call);
        drop_approval_timer(&mut self.cx, call);
        self.cx.notify(Notice::ApprovalGiven { call, approval: approval.clone(), author });
        let Some(waiting) = self.frames.slot_mut(&mut self.cx, id, slot) else { return };
        let name = waiting.now.name.clone();
        let mut rounds = self.tool_rounds();
        match approval {
            Approval::Approved => rounds.resume_slot(id, slot, Consent::Approved),
            Approval::Edited { arguments } => {
                match rounds.frames.edit_slot(rounds.cx, id, slot, arguments) {
                    // What an approver wrote passes the gates too.
                    Ok(()) if rounds.check_call(id, slot, Consent::Edited) => {}
                    Ok(()) => rounds.resume_slot(id, slot, Consent::Edited),
                    // Arguments that do not fit the call are no approval of it.
                    Err(problem) => rounds.refuse_slot(id, slot, &problem, problem.clone()),
                }
            }
            Approval::Refused { reason } => {
                rounds.refuse_slot(id, slot, &reason, format!("Not approved: {reason}"));
            }
            Approval::Invalid { message } => {
                let error = ToolError::InvalidArguments { message: message.clone() };
                rounds.refuse_slot(id, slot, &message, error.to_text(&name));
            }
        }
    }

    pub(super) fn approval_expired(&mut self, call: CallId) {
        if matches!(self.cx.calls.get(&call), Some(Purpose::Approval { .. })) {
            // The approver may still show the question, and must drop it.
            self.cx.effects.push_back(Effect::AbandonCall { call });
            let refused = Approval::Refused { reason: "nobody decided in time".to_owned() };
            self.decided(call, refused.by(ApprovalAuthor::Nobody), None);
        }
    }
}
