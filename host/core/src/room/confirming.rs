//! Consent to actions and tool calls by risk (O-109…O-111). No kind of action or call is exempt. If
//! an analyzer fails, an approver is asked. A waiting action has started nothing (O-110, O-185).

use super::acting::executors::executor_of;
use super::approvals::{ConsentRuling, ask_approver};
use super::queries::consult;
use super::state::consent::Consent;
use super::state::rounds::{CallOutcome, SlotAnswer, SlotState};
use super::tools::failed;
use super::{Frames, Invariant, Purpose, QueryPurpose, Room, RoomContext, ToolRounds};
use crate::setup::plugin_query::{PluginQuery, PluginReply};
use crate::types::action::{Action, Observation, Reply};
use crate::types::approval::{ApprovalCause, ApprovalRequest, Asker, BRIEF_MAX, Delegator};
use crate::types::confirm::ConfirmPolicy;
use crate::types::fault::Fault;
use crate::types::ids::{CallId, FrameId, PluginName};
use crate::types::message::ToolCall;
use crate::types::risk::Risk;
use crate::types::text::cut_bytes;

/// Bytes of an analyzer's reason; the rest is cut.
const REASON_MAX: usize = 4 << 10;
const OVER: &str = "the task is over";

/// A requested action or call, as rules and approvers see it.
pub(super) struct RequestedAct<'a> {
    pub(super) frame: FrameId,
    pub(super) slot: usize,
    /// The call under its admitted name.
    pub(super) call: &'a ToolCall,
    /// `None` for a tool call.
    pub(super) action: Option<&'a Action>,
    pub(super) caller: &'a PluginName,
}

/// The request for approval by an operator's rule, or by the grants if no rule matches.
pub(super) struct ByRule {
    pub(super) source: String,
    pub(super) cause: ApprovalCause,
    pub(super) expires_ms: Option<u64>,
}

/// Checks an action against the task's rules of consent. Tool calls are checked in
/// `approvals::apply_rules`.
pub(super) fn consent_to_action(
    frames: &mut Frames,
    cx: &mut RoomContext,
    id: FrameId,
    slot: usize,
    call: &ToolCall,
    action: Option<&Action>,
    consent: Consent,
) -> ConsentRuling {
    let Some(caller) = frames.agent_of(cx, id).cloned() else {
        return ConsentRuling::Refused(failed(call, OVER.to_owned()));
    };
    consent_to(
        frames,
        cx,
        &RequestedAct { frame: id, slot, call, action, caller: &caller },
        None,
        consent,
    )
}

/// Applies the stricter of the operator's rule and the task's rules of consent. An approver is
/// asked once for both.
pub(super) fn consent_to(
    frames: &mut Frames,
    cx: &mut RoomContext,
    act: &RequestedAct<'_>,
    by_rule: Option<ByRule>,
    consent: Consent,
) -> ConsentRuling {
    let refusal = || ConsentRuling::Refused(failed(act.call, OVER.to_owned()));
    let Some((frame, task)) = frames.task_of(cx, act.frame) else { return refusal() };
    let (name, rules) = (frame.task.clone(), task.confirm.clone());
    let (asks, risk, risk_reason) = match consent {
        Consent::Approved | Consent::Edited => return ConsentRuling::Runs,
        Consent::Assessed { risk, asks, reason } => (asks, Some(risk), reason),
        Consent::NotYet => {
            match rules.analyzer.filter(|_| rules.policy != ConfirmPolicy::Never) {
                Some(analyzer) => {
                    let question = about_risk(frames, act);
                    let call = consult(
                        frames,
                        cx,
                        act.frame,
                        &analyzer,
                        question,
                        QueryPurpose::Risk { slot: act.slot },
                    );
                    return match call {
                        Some(_) => wait_for_consent(frames, cx, act),
                        None => refusal(),
                    };
                }
                // O-109: without an analyzer the risk is unknown.
                None => (rules.policy.asks(None), None, None),
            }
        }
    };
    if !asks && by_rule.is_none() {
        return ConsentRuling::Runs;
    }
    let expires_ms = by_rule.as_ref().and_then(|rule| rule.expires_ms);
    let (mut causes, mut sources) = (Vec::new(), Vec::new());
    if let Some(rule) = by_rule {
        causes.push(rule.cause);
        sources.push(rule.source);
    }
    if asks {
        causes.push(ApprovalCause::Confirm);
        sources.push(match (rules.policy, risk) {
            (ConfirmPolicy::Always, _) => {
                format!("tasks.{name}.confirm asks about all that is done")
            }
            (_, Some(risk)) => {
                format!("tasks.{name}.confirm asks about what has a {} risk", risk.as_str())
            }
            (_, None) => format!("tasks.{name}.confirm asks about what has an unknown risk"),
        });
    }
    // The approver sees which plugin will carry out the action.
    let executor = act.action.and_then(|action| executor_of(frames, cx, act.frame, action.name()));
    ask_approver(
        cx,
        (act.frame, act.slot),
        ApprovalRequest {
            task: name,
            caller: act.caller.clone(),
            led_by: act.call.led_by.clone(),
            delegators: delegators(frames, cx, act.frame),
            tool: act.call.name.clone(),
            executor,
            arguments: serde_json::Value::clone(&act.call.arguments),
            source: sources.join("; "),
            causes,
            expires_ms,
            risk,
            risk_reason: risk_reason.as_deref().map(str::to_owned),
            problem: None,
        },
    );
    wait_for_consent(frames, cx, act)
}

fn wait_for_consent(
    frames: &mut Frames,
    cx: &mut RoomContext,
    act: &RequestedAct<'_>,
) -> ConsentRuling {
    frames.set_slot(cx, act.frame, act.slot, SlotState::Confirming);
    ConsentRuling::Waits
}

/// The delegations that led to this frame, in this room and those above it, the first one
/// first.
pub(super) fn delegators(frames: &Frames, cx: &RoomContext, id: FrameId) -> Vec<Delegator> {
    let mut delegators = Vec::new();
    let mut next = Some(id);
    while let Some(frame) = next.and_then(|id| frames.get(&id)) {
        next = frame.caller;
        if let Some((caller, task)) = frame.caller.and_then(|caller| frames.task_of(cx, caller)) {
            let message = frame.turn().latest_user_message.as_ref();
            delegators.push(Delegator {
                task: caller.task.clone(),
                plugin: task.agent.clone(),
                brief: cut_bytes(
                    message.map(|message| message.text()).unwrap_or_default(),
                    BRIEF_MAX,
                )
                .into_owned(),
                led_by: frame.led_by.clone(),
            });
        }
    }
    // Collected from the newest delegation to the first, and reversed below.
    delegators.extend(cx.opening.delegators.iter().rev().cloned());
    delegators.reverse();
    delegators
}

/// Who asks a person through whom by this call: the tasks from the run's own to the one that asks.
/// Empty if the call waits for no person.
pub(crate) fn askers(room: &Room, call: CallId) -> Vec<Asker> {
    let (frames, cx) = (&room.frames, &room.cx);
    let (mut chain, last) = match cx.calls.get(&call) {
        Some(Purpose::Approval { frame, .. } | Purpose::User { frame }) => {
            let last = frames.task_of(cx, *frame);
            let last = last.map(|(frame, task)| (frame.task.clone(), task.agent.clone()));
            (delegators(frames, cx, *frame), last)
        }
        Some(Purpose::TopUp { top_up }) => {
            let task = cx.setup.tasks.get(&top_up.task);
            let last = task.map(|task| (top_up.task.clone(), task.agent.clone()));
            (cx.opening.delegators.clone(), last)
        }
        _ => return Vec::new(),
    };
    let above = chain.drain(..).map(|Delegator { task, plugin, .. }| (task, plugin));
    above.chain(last).map(|(task, agent)| Asker { task, agent }).collect()
}

fn about_risk(frames: &Frames, act: &RequestedAct<'_>) -> PluginQuery {
    let action = match act.action {
        Some(action) => action.clone(),
        None => Action::Reply(Reply { tool_calls: vec![act.call.clone()], ..Reply::default() }),
    };
    let message = frames.get(&act.frame).and_then(|frame| frame.turn().pending.as_ref());
    PluginQuery::Risk {
        action: Box::new(action),
        thought: message.map(|message| message.text().to_owned()).unwrap_or_default(),
    }
}

impl ToolRounds<'_> {
    /// Applies an analyzer's assessment. A missing answer counts as the highest risk, and an
    /// approver is asked regardless of the rule for unknown risks (O-109 done right).
    pub(super) fn assessed(
        &mut self,
        id: FrameId,
        slot: usize,
        answer: Result<PluginReply, Fault>,
    ) {
        let Some((_, task)) = self.frames.task_of(self.cx, id) else {
            return self.cx.violated(Invariant::FrameExists, id);
        };
        let rules = task.confirm.clone();
        let (risk, asks, reason) = match answer {
            Ok(PluginReply::Risk { verdict }) => {
                (verdict.risk, rules.policy.asks(Some(verdict.risk)), verdict.reason)
            }
            Ok(_) => (
                Risk::High,
                true,
                "the analyzer answered another question, which counts as a high risk".to_owned(),
            ),
            Err(fault) => (
                Risk::High,
                true,
                format!(
                    "the analyzer gave no answer, which counts as a high risk: {}",
                    fault.message
                ),
            ),
        };
        let reason = (!reason.trim().is_empty()).then(|| cut_bytes(&reason, REASON_MAX).into());
        self.resume_slot(id, slot, Consent::Assessed { risk, asks, reason });
    }

    /// Resumes a slot that waited for consent, or for budget. `consent` is the consent so far.
    pub(super) fn resume_slot(&mut self, id: FrameId, slot: usize, consent: Consent) {
        let Some(waiting) = self.frames.slot_mut(self.cx, id, slot) else { return };
        // It was answered meanwhile; the round continues with its other slots.
        if !waiting.is_open() {
            return;
        }
        self.run_slot(id, slot, consent);
        self.dialogue().resume_round(id);
    }

    /// Answers a slot whose approver refused it (O-109). `answer` is the result of a call; the
    /// observation of an action holds the reason.
    pub(super) fn refuse_slot(&mut self, id: FrameId, index: usize, reason: &str, answer: String) {
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        let (call, is_action) = (slot.now.clone(), slot.action.is_some());
        if is_action {
            self.reject_action(id, index, reason);
        } else {
            let outcome = self.frames.result_outcome(self.cx, id, failed(&call, answer));
            self.frames.report_answer(self.cx, id, &call, &outcome);
            self.frames.answer_slot(self.cx, id, index, outcome.into());
        }
        self.dialogue().resume_round(id);
    }

    /// Rejects an action, with the reason in its observation (O-109).
    fn reject_action(&mut self, id: FrameId, index: usize, reason: &str) {
        let Some(slot) = self.frames.slot_mut(self.cx, id, index) else { return };
        let call = slot.call.clone();
        let content =
            format!("The action {} was not executed: the approver refused it: {reason}", call.name);
        self.frames.report_refused(self.cx, id, &call.name, Some(&call.arguments), &content);
        let message = self.frames.host_message(self.cx, id, content.clone());
        let outcome =
            CallOutcome { message: Some(Box::new(message)), is_error: true, is_result: false };
        let (name, extras) = ("user_rejected".to_owned(), serde_json::json!({}));
        let observation = Observation::Custom { name, content, extras };
        let answer = SlotAnswer { outcome, observation: Some(observation) };
        self.frames.answer_slot(self.cx, id, index, answer);
    }
}
