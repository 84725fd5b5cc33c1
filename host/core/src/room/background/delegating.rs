//! The path from a tool, an action or a request to a child room. Invalid delegations are refused in
//! a fixed form (R-084 done right). The others pass the gates, are checked again, and are put to
//! the rules of consent as the gates left them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::checks::CheckedDelegation;
use super::opening::delegators_of_child;
use super::slots::{outcome_of_delegation, waits};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::room::approvals::ConsentRuling;
use crate::room::confirming::{RequestedAct, consent_to};
use crate::room::gates::has_gate;
use crate::room::state::consent::Consent;
use crate::room::state::delegation::{
    BackgroundTask, Delegating, DelegationAnswer, RequestedDelegation, TaskOrigin, Waiter,
};
use crate::room::state::gated::GatedAct;
use crate::room::state::rounds::{CallOutcome, SlotState};
use crate::room::{BackgroundWork, Frames, Purpose, RoomContext};
use crate::setup::GatePoint;
use crate::types::action::Action;
use crate::types::delegation::{BackgroundRecord, Delegation};
use crate::types::host_tool::HostTool;
use crate::types::ids::{BackgroundId, FrameId, TaskName};
use crate::types::message::ToolCall;
use crate::types::request::{Refusal, RefusalCode, RequestId, RequestReply};
use crate::types::usage::Spent;

/// The result of the checks of a delegation.
enum DelegationCheck {
    MayStart(Box<CheckedDelegation>),
    /// The result of an earlier delegation is its answer; `None` if it was sent to a client.
    Answered(Option<DelegationAnswer>),
}

impl TaskOrigin {
    fn waiter(&self) -> Option<Waiter> {
        match *self {
            Self::Slot { frame, slot, seq } => Some(Waiter { frame, slot, seq }),
            Self::Request { .. } => None,
        }
    }
}

impl BackgroundWork<'_> {
    pub(in crate::room) fn delegate_on_request(
        &mut self,
        request: RequestId,
        delegation: Delegation,
        by: Option<TaskName>,
    ) {
        let origin = TaskOrigin::Request { request, by };
        // A request is answered by a reply.
        drop(self.delegate(Delegating { delegation, origin, wish: None }));
    }

    /// Delegates by a call of `delegate_task`; `None` if its slot waits.
    pub(in crate::room) fn delegate_by_call(
        &mut self,
        (id, slot): (FrameId, usize),
        call: &ToolCall,
        seq: u64,
        consent: Consent,
    ) -> Option<CallOutcome> {
        if let Err(text) = self.dialogue().check_host_tool(id, HostTool::DelegateTask, call) {
            return Some(self.frames.error_outcome(self.cx, id, text));
        }
        let worker = self.frames.get(&id).and_then(|frame| {
            self.histories.toolbox(self.cx, &frame.task).get(&call.name)?.worker.clone()
        });
        // A worker tool may fix the agent, and the model's own choice is replaced then.
        let mut arguments = Value::clone(&call.arguments);
        if let (Some(agent), Some(arguments)) =
            (worker.as_ref().and_then(|worker| worker.agent.as_ref()), arguments.as_object_mut())
        {
            arguments.insert("agent".to_owned(), json!(agent));
        }
        let mut delegation = match serde_json::from_value::<DelegateTaskArguments>(arguments) {
            Ok(arguments) => Delegation::from(arguments),
            Err(error) => {
                let refusal = Refusal::new(
                    RefusalCode::BadArguments,
                    format!("The arguments of delegate_task are not right: {error}."),
                );
                return Some(self.frames.error_outcome(
                    self.cx,
                    id,
                    refusal.to_value().to_string(),
                ));
            }
        };
        delegation.wait = worker.is_some_and(|worker| worker.wait);
        let wish = RequestedDelegation { call: call.clone(), action: None, consent };
        self.delegate_for_slot(Waiter { frame: id, slot, seq }, delegation, wish)
    }

    /// Delegates by a `delegate_task` action; `None` if its slot waits.
    pub(in crate::room) fn delegate_by_action(
        &mut self,
        id: FrameId,
        slot: usize,
        delegation: Delegation,
        consent: Consent,
    ) -> Option<CallOutcome> {
        let round = self.frames.round_mut(self.cx, id)?;
        let (call, seq) = (round.slots.get(slot)?.call.clone(), round.message.seq);
        let wish = RequestedDelegation {
            call: ToolCall::clone(&call),
            action: Some(delegation.clone()),
            consent,
        };
        self.delegate_for_slot(Waiter { frame: id, slot, seq }, delegation, wish)
    }

    fn delegate_for_slot(
        &mut self,
        waiter: Waiter,
        mut delegation: Delegation,
        wish: RequestedDelegation,
    ) -> Option<CallOutcome> {
        if let Some((_, task)) = self.frames.task_of(self.cx, waiter.frame) {
            // The operator's settings are minimums.
            delegation.wait |= task.background.wait;
            delegation.conversation = delegation.conversation.max(task.background.conversation);
        }
        let Waiter { frame, slot, seq } = waiter;
        self.frames.set_slot(self.cx, frame, slot, SlotState::InBackground);
        let answer = self.delegate(Delegating {
            delegation,
            origin: TaskOrigin::Slot { frame, slot, seq },
            wish: Some(Box::new(wish)),
        })?;
        if let Some(slot) = self.frames.slot_mut(self.cx, frame, slot) {
            // L-172: an answer from an earlier result is a worker's as well.
            Arc::make_mut(&mut slot.now).untrusted |= answer.is_data;
        }
        Some(outcome_of_delegation(self.frames, self.cx, frame, &answer))
    }

    /// Refuses an invalid delegation before any gate is asked about it. Returns the answer to its
    /// slot; `None` if the slot waits, or if a request from outside was answered.
    fn delegate(&mut self, delegating: Delegating) -> Option<DelegationAnswer> {
        match self.may_start(&delegating) {
            Ok(DelegationCheck::MayStart(checked)) => {
                // The check is repeated after the gates, which may change the text.
                drop(checked);
                // Consent applies to the text that the gates left, so that the approved text is the
                // one that runs.
                match delegating.wish.as_ref().map(|wish| &wish.consent) {
                    // Consent is asked for after the gates, so these delegations have passed them.
                    Some(Consent::Assessed { .. } | Consent::Approved) => {
                        self.start_delegation(delegating)
                    }
                    // The gates have not seen what an approver wrote.
                    None | Some(Consent::NotYet | Consent::Edited)
                        if has_gate(self.cx, GatePoint::Delegate) =>
                    {
                        self.gate_checks().wait_for_gates(GatedAct::Delegation {
                            delegating: Box::new(delegating),
                        });
                        None
                    }
                    None | Some(Consent::NotYet | Consent::Edited) => {
                        self.start_delegation(delegating)
                    }
                }
            }
            Ok(DelegationCheck::Answered(answer)) => answer,
            Err(refusal) => refuse_delegation(self.cx, &delegating.origin, refusal),
        }
    }

    /// Resumes a delegation after the gates, which may have changed its text. The rules of consent
    /// see the new text.
    pub(in crate::room) fn delegation_passed(&mut self, delegating: Delegating) {
        let waiter = delegating.origin.waiter();
        if waiter.is_some_and(|waiter| !waits(self.frames, &waiter)) {
            // The task that requested it is over.
            return;
        }
        let answer = self.start_delegation(delegating);
        if let Some((waiter, answer)) = waiter.zip(answer) {
            self.answer_waiter(&waiter, &answer);
        }
    }

    /// Starts a delegation that its gates and its task's rules of consent allow. Returns the answer
    /// to its slot, if there is one already.
    fn start_delegation(&mut self, delegating: Delegating) -> Option<DelegationAnswer> {
        // Checked again: a limit may have been reached while gates or an approver decided.
        match self.may_start(&delegating) {
            Ok(DelegationCheck::MayStart(checked)) => {
                match consent_to_delegation(self.frames, self.cx, &delegating) {
                    ConsentRuling::Runs => self.start_background(delegating, *checked),
                    ConsentRuling::Waits => None,
                    ConsentRuling::Refused(result) => refuse_delegation(
                        self.cx,
                        &delegating.origin,
                        Refusal::new(RefusalCode::TaskEnded, result.content),
                    ),
                }
            }
            Ok(DelegationCheck::Answered(answer)) => answer,
            Err(refusal) => refuse_delegation(self.cx, &delegating.origin, refusal),
        }
    }

    pub(in crate::room) fn delegation_blocked(&mut self, delegating: Delegating, reason: &str) {
        let refusal = Refusal::new(RefusalCode::Blocked, reason);
        let answer = refuse_delegation(self.cx, &delegating.origin, refusal);
        if let Some((waiter, answer)) = delegating.origin.waiter().zip(answer) {
            self.answer_waiter(&waiter, &answer);
        }
    }

    /// Checks whether a delegation may start, or is answered by the result of an earlier one.
    fn may_start(&mut self, delegating: &Delegating) -> Result<DelegationCheck, Refusal> {
        let checked = self.check_delegation(delegating)?;
        let by = checked.by.as_ref();
        let cache_ms =
            by.and_then(|by| self.cx.setup.tasks.get(by)).and_then(|task| task.background.cache_ms);
        // An explicit key takes precedence over the cache.
        let earlier = match &delegating.delegation.key {
            Some(key) => self.background.records.of_key(checked.by.as_ref(), key),
            None => cache_ms.and_then(|ttl| {
                self.background.records.cached(
                    &checked.task,
                    &delegating.delegation,
                    self.cx.now,
                    ttl,
                )
            }),
        };
        if let Some(record) = earlier {
            return Ok(DelegationCheck::Answered(answer_from_before(self.cx, delegating, &record)));
        }
        // Earlier results cost nothing, so limits are checked last.
        self.check_limits(&checked)?;
        Ok(DelegationCheck::MayStart(Box::new(checked)))
    }

    /// Starts the child room. Returns the receipt for a slot that does not wait for the result.
    fn start_background(
        &mut self,
        delegating: Delegating,
        checked: CheckedDelegation,
    ) -> Option<DelegationAnswer> {
        let Delegating { delegation, origin, wish } = delegating;
        // Counted before the child opens, so that the child's opening includes it.
        if let Some(agent) = &checked.agent {
            self.budgets.used_by(agent).background += 1;
        }
        self.cx.counters.background += 1;
        let number = self.cx.counters.background;
        let id = BackgroundId::from(format!("task-{number}"));
        let delegators = delegators_of_child(
            self.frames,
            self.cx,
            &origin,
            &delegation,
            &checked,
            wish.as_deref(),
        );
        let (mut opening, context) = self.child_opening(&id, &delegation, &checked);
        opening.delegators = delegators;
        self.budgets.spent = self.budgets.spent.plus(Spent { tasks: 1, ..Spent::default() });
        // Reserved before the child starts, so that parent and child cannot spend it twice.
        let reserved = self.budgets.reserve(&opening.limits);
        let (room, task) = (opening.room.clone(), checked.task.clone());
        let call = self.cx.next_call(Purpose::Background { id: id.clone() });
        let waiter = origin.waiter().filter(|_| delegation.wait);
        let on_close = delegation
            .on_close
            .or_else(|| self.cx.setup.tasks.get(&task).map(|task| task.on_close))
            .unwrap_or_default();
        let running = BackgroundTask {
            id: id.clone(),
            call,
            task: task.clone(),
            prompt: delegation.description.clone(),
            context,
            started_by: checked.agent.clone(),
            notify: checked.notify.clone(),
            strategy: checked.strategy.clone(),
            host_reports: checked.host_reports,
            result_delivery: delegation.result_delivery,
            on_close,
            started: self.cx.now,
            reserved,
            at_once: opening.limits.tasks_at_once.unwrap_or_default(),
            inherited: opening.used.clone(),
            waiter,
            structured: opening.structured_retries.is_some(),
            chain_depth: opening.chain_depth,
            messages_sent: 0,
            is_stopped: false,
        };
        let checked_by = checked.by.clone();
        self.background.records.begin(number, &running, room.clone(), checked.by, delegation.key);
        self.background.tasks.insert(id.clone(), running);
        self.cx.notify(Notice::BackgroundStarted {
            id: id.clone(),
            task: task.clone(),
            room: room.clone(),
            by: checked_by,
            brief: delegation.description,
        });
        self.cx.effects.push_back(Effect::StartBackground {
            call,
            id: id.clone(),
            opening: Box::new(opening),
        });
        match origin {
            TaskOrigin::Request { request, .. } => {
                self.cx.reply(
                    request,
                    Ok(RequestReply::Delegated { task: id, room, worker: task, from_cache: false }),
                );
                None
            }
            TaskOrigin::Slot { .. } if waiter.is_none() => {
                // the receipt never carries the result.
                let answer =
                    json!({ "status": "delegated", "task_id": id, "room_id": room, "agent": task });
                Some(DelegationAnswer { answer, is_error: false, is_data: false })
            }
            TaskOrigin::Slot { .. } => None,
        }
    }
}

/// Answers a delegation with the record of an earlier one.
fn answer_from_before(
    cx: &mut RoomContext,
    delegating: &Delegating,
    record: &BackgroundRecord,
) -> Option<DelegationAnswer> {
    match &delegating.origin {
        TaskOrigin::Request { request, .. } => {
            let (task, room, agent) =
                (record.id.clone(), record.room.clone(), record.worker.clone());
            cx.reply(
                *request,
                Ok(RequestReply::Delegated {
                    task,
                    room,
                    worker: agent,
                    from_cache: record.state.is_end(),
                }),
            );
            None
        }
        TaskOrigin::Slot { .. } => {
            // A waiting call gets the state of the task; any other gets a receipt.
            let status =
                if delegating.delegation.wait { record.state.as_str() } else { "delegated" };
            let mut answer = json!({
                "status": status, "task_id": record.id, "room_id": record.room, "agent": record.worker, "from_cache": true,
            });
            if let Some(output) = &record.output {
                answer["output"] = json!(output);
            }
            Some(DelegationAnswer { answer, is_error: false, is_data: true })
        }
    }
}

fn refuse_delegation(
    cx: &mut RoomContext,
    origin: &TaskOrigin,
    refusal: Refusal,
) -> Option<DelegationAnswer> {
    match origin {
        TaskOrigin::Request { request, .. } => {
            cx.reply(*request, Err(refusal));
            None
        }
        TaskOrigin::Slot { .. } => {
            let answer = refusal.to_value();
            Some(DelegationAnswer { answer, is_error: true, is_data: false })
        }
    }
}

/// Checks a delegation against its task's rules of consent, with the text that the gates left.
fn consent_to_delegation(
    frames: &mut Frames,
    cx: &mut RoomContext,
    delegating: &Delegating,
) -> ConsentRuling {
    let (Some(wish), TaskOrigin::Slot { frame, slot, .. }) = (&delegating.wish, &delegating.origin)
    else {
        return ConsentRuling::Runs;
    };
    let (frame, slot) = (*frame, *slot);
    let RequestedDelegation { mut call, action, consent } = RequestedDelegation::clone(wish);
    let Delegation { description: task, brief, .. } = &delegating.delegation;
    let (action, is_changed) = match action {
        Some(mut delegation) => {
            let is_changed = (&delegation.description, &delegation.brief) != (task, brief);
            (delegation.description, delegation.brief) = (task.clone(), brief.clone());
            (Some(Action::DelegateTask(Box::new(delegation))), is_changed)
        }
        None => (None, call.arguments.get("task").and_then(Value::as_str) != Some(task.as_str())),
    };
    if is_changed {
        match &action {
            Some(action) => call.arguments = Arc::new(action.args()),
            None => {
                if let Some(arguments) = Arc::make_mut(&mut call.arguments).as_object_mut() {
                    arguments.insert("task".to_owned(), json!(task));
                }
            }
        }
        // What the gates left is approved and run.
        if let Some(slot) = frames.slot_mut(cx, frame, slot) {
            match &action {
                Some(action) => slot.set_action(action.clone(), Arc::clone(&call.arguments)),
                None => Arc::make_mut(&mut slot.now).arguments.clone_from(&call.arguments),
            }
        }
    }
    let Some(caller) = frames.agent_of(cx, frame).cloned() else { return ConsentRuling::Runs };
    // An approver's edit was approved as written, but a gate has changed it since.
    let consent = if is_changed && consent == Consent::Edited { Consent::NotYet } else { consent };
    let act = RequestedAct { frame, slot, call: &call, action: action.as_ref(), caller: &caller };
    consent_to(frames, cx, &act, None, consent)
}

/// The arguments of the tool `delegate_task`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DelegateTaskArguments {
    #[serde(default)]
    agent: String,
    #[serde(default)]
    task: String,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    share_channels: Option<Vec<String>>,
}

impl From<DelegateTaskArguments> for Delegation {
    fn from(arguments: DelegateTaskArguments) -> Self {
        Self {
            worker: arguments.agent,
            description: arguments.task,
            context: arguments.context,
            share_channels: arguments.share_channels.unwrap_or_default(),
            ..Self::default()
        }
    }
}
