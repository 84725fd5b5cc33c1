//! Requests for more budget: one at a time, to an approver. Meanwhile nothing that costs begins,
//! and running work continues. Only the root room asks; a background task ends with its own budget.

use serde::{Deserialize, Serialize};

use super::budgets::BudgetShortage;
use super::state::consent::Consent;
use super::state::frame::Frame;
use super::state::frame_state::{FrameState, FrameWait};
use super::{
    Budgets, Frames, Invariant, PluginCalls, Purpose, Room, RoomContext, RoomPhase, TimerPurpose,
};
use crate::policy::budget::{Budget, BudgetShortfall, LimitIncrease};
use crate::protocol::effect::Effect;
use crate::protocol::notice::Notice;
use crate::types::approval::{Approval, ApprovalAuthor};
use crate::types::completion::ModelRequest;
use crate::types::ids::{CallId, FrameId};
use crate::types::limits::WhenUsedUp;

/// A model request that awaits more budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HeldRequest {
    pub(super) call: CallId,
    pub(super) ordinal: u32,
    pub(super) request: ModelRequest,
}

impl RoomContext {
    /// Whether an exhausted budget leads to a request for more.
    pub(super) fn asks_for_more(&self) -> bool {
        let is_running = matches!(self.phase, RoomPhase::Running { .. });
        is_running && self.opening.depth == 0 && self.opening.limits.when_used_up == WhenUsedUp::Ask
    }

    fn raise_limit(&mut self, budget: Budget, more: u64) {
        budget.raise(&mut self.opening.limits, more);
        if budget == Budget::Wall
            && let Some(deadline) = self.opening.deadline
        {
            // Counted from now if the old deadline has passed, because the approver took time too.
            let deadline = deadline.max(self.now).plus(more);
            self.opening.deadline = Some(deadline);
            self.set_timer(TimerPurpose::Wall, deadline);
        }
    }
}

impl Budgets {
    /// Whether a request for more is open, so that new work has to wait.
    pub(super) fn is_waiting_for_more(&self) -> bool {
        self.top_up.is_some()
    }

    /// Drops the open request for more, if any.
    pub(super) fn drop_top_up(&mut self, cx: &mut RoomContext) {
        if let Some(call) = self.top_up.take()
            && cx.calls.remove(&call).is_some()
        {
            cx.effects.push_back(Effect::AbandonCall { call });
        }
    }
}

impl PluginCalls<'_> {
    /// Whether work must wait: its budget is exhausted, or a request for more is open. `Err` if no
    /// request can be made, so that the run ends.
    pub(super) fn must_wait_for(&mut self, budget: Budget) -> Result<bool, Budget> {
        if self.budgets.is_waiting_for_more() {
            return Ok(true);
        }
        if !self.budgets.is_used_up(self.cx, self.frames, self.histories, budget) {
            return Ok(false);
        }
        if !self.cx.asks_for_more() {
            return Err(budget);
        }
        self.ask_for_more(BudgetShortage::of_used_up(budget));
        Ok(true)
    }

    /// Requests more of a budget, unless a request is open.
    pub(super) fn ask_for_more(&mut self, short: BudgetShortage) {
        // One at a time: the decision resumes all waiting work, which then asks again.
        if self.budgets.is_waiting_for_more() {
            return;
        }
        let BudgetShortage { budget, needed, .. } = short;
        let shortfall = self.budgets.shortfall(self.cx, self.frames, self.histories, short);
        let BudgetShortfall { limit, used, set_aside, .. } = shortfall;
        // Proposes half of the limit again, or the missing amount if that is larger. If more was
        // used than the limit, the missing amount is the excess.
        let over = used.saturating_sub(limit);
        let lacks = if over > 0 {
            over
        } else {
            needed.saturating_sub(
                self.budgets
                    .rest_of(self.cx, self.frames, self.histories, budget)
                    .unwrap_or_default(),
            )
        };
        let proposed = (limit / 2).max(lacks).max(1);
        let task = self.cx.opening.entry.clone();
        let needed = shortfall.needed;
        let top_up =
            LimitIncrease { budget, limit, used, set_aside, needed, proposed, task, problem: None };
        let call = self.cx.next_call(Purpose::TopUp { top_up: Box::new(top_up.clone()) });
        self.budgets.top_up = Some(call);
        self.cx.notify(Notice::TopUpAsked { call, top_up: top_up.clone() });
        self.cx.effects.push_back(Effect::AskTopUp { call, top_up });
    }
}

impl Room {
    /// Takes an approver's decision about a request for more.
    pub(super) fn topped_up(&mut self, call: CallId, approval: Approval, author: ApprovalAuthor) {
        let Some(top_up) = self.cx.calls.top_up_mut(&call) else { return };
        let budget = top_up.budget;
        let more = match approval {
            Approval::Approved => Ok(top_up.proposed),
            Approval::Edited { arguments } => match top_up.amount(&arguments) {
                Ok(more) => Ok(more),
                Err(problem) => {
                    // An invalid amount is no decision: the request stays open for a valid one.
                    top_up.problem = Some(problem.to_string());
                    let top_up = LimitIncrease::clone(top_up);
                    self.cx.notify(Notice::TopUpAsked { call, top_up });
                    return;
                }
            },
            Approval::Refused { reason } | Approval::Invalid { message: reason } => Err(reason),
        };
        self.cx.calls.remove(&call);
        self.budgets.top_up = None;
        match more {
            Ok(more) => {
                self.cx.notify(Notice::ToppedUp {
                    call,
                    budget,
                    more: Some(more),
                    reason: None,
                    author,
                });
                self.cx.raise_limit(budget, more);
                self.resume_held();
            }
            Err(reason) => {
                let end_reason = format!("{}, and more was not given: {reason}", budget.reason());
                self.cx.notify(Notice::ToppedUp {
                    call,
                    budget,
                    more: None,
                    reason: Some(reason),
                    author,
                });
                self.run_control().stop(budget.status(), &end_reason);
            }
        }
    }

    /// Checks all waiting work again; it may have to wait again for another budget.
    fn resume_held(&mut self) {
        // First, because the granted amount may still be less than what was used.
        self.run_control().stop_if_spent();
        for held_request in std::mem::take(&mut self.budgets.held_requests) {
            self.run_control().model_asked(
                held_request.call,
                held_request.ordinal,
                held_request.request,
            );
        }
        let tools: Vec<(CallId, FrameId, usize, Consent)> = self
            .cx
            .calls
            .iter()
            .filter_map(|(call, purpose)| match purpose {
                Purpose::HeldTool { frame, slot, consent } => {
                    Some((*call, *frame, *slot, consent.clone()))
                }
                _ => None,
            })
            .collect();
        for (call, frame, slot, consent) in tools {
            // Resuming an earlier call may have ended the frame of a later one.
            if self.cx.calls.remove(&call).is_some() {
                self.tool_rounds().resume_slot(frame, slot, consent);
            }
        }
        let is_held =
            |id: &FrameId| self.frames.get(id).and_then(Frame::wait) == Some(&FrameWait::Budget);
        let frames: Vec<FrameId> = self.frames.keys().copied().filter(is_held).collect();
        for id in frames {
            try_again(&mut self.frames, &mut self.cx, id);
        }
    }
}

/// Asks the responder again that had to wait.
fn try_again(frames: &mut Frames, cx: &mut RoomContext, id: FrameId) {
    let Some(frame) = frames.get_mut(&id) else {
        return cx.violated(Invariant::FrameExists, id);
    };
    if frame.only.is_some() {
        frame.abandon_step();
    } else {
        frames.follow(cx, id, FrameState::ask_again);
    }
    frames.runnable.push_back(id);
}
