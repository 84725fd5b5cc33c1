//! Slots of a round that wait for a delegation: for its receipt while gates are asked, or for its
//! result. A waiter that is over gets no answer.

use std::sync::Arc;

use crate::room::state::delegation::{DelegationAnswer, Waiter};
use crate::room::state::rounds::{CallOutcome, Slot, SlotState};
use crate::room::{BackgroundWork, Frames, RoomContext};
use crate::types::ids::FrameId;
use crate::types::message::Label;

/// Whether the slot still waits for its delegation.
pub(in crate::room) fn waits(frames: &Frames, waiter: &Waiter) -> bool {
    frames.round(waiter.frame).is_some_and(|round| {
        round.message.seq == waiter.seq
            && matches!(
                round.slots.get(waiter.slot),
                Some(Slot { state: SlotState::InBackground, .. })
            )
    })
}

/// Returns the answer of a delegation as the outcome of a call.
pub(super) fn outcome_of_delegation(
    frames: &Frames,
    cx: &mut RoomContext,
    frame: FrameId,
    answer: &DelegationAnswer,
) -> CallOutcome {
    let text = answer.answer.to_string();
    let mut message = frames.host_message(cx, frame, text);
    // L-172: a worker's answer derives from external text.
    message.labels.extend(answer.is_data.then_some(Label::Untrusted));
    CallOutcome { message: Some(Box::new(message)), is_error: answer.is_error, is_result: true }
}

impl BackgroundWork<'_> {
    /// Answers a waiting slot. Returns false if the slot no longer waits.
    pub(super) fn answer_waiter(&mut self, waiter: &Waiter, answer: &DelegationAnswer) -> bool {
        if !waits(self.frames, waiter) {
            return false;
        }
        let Waiter { frame, slot: index, .. } = *waiter;
        let outcome = outcome_of_delegation(self.frames, self.cx, frame, answer);
        let Some(slot) = self.frames.slot_mut(self.cx, frame, index) else { return false };
        Arc::make_mut(&mut slot.now).untrusted |= answer.is_data;
        let (call, is_action) = (Arc::clone(&slot.call), slot.action.is_some());
        if !is_action {
            self.frames.report_answer(self.cx, frame, &call, &outcome);
        }
        self.frames.answer_slot(self.cx, frame, index, outcome.into());
        self.dialogue().resume_round(frame);
        true
    }
}
