//! Slots of a round that wait for a delegation: for its receipt while gates are asked, or for its
//! result. A waiter that is over gets no answer.

use std::sync::Arc;

use serde_json::Value;

use super::super::frame::{CallOutcome, FrameWait, Slot, ToolRound};
use super::super::{Invariant, Room};
use super::Waiter;
use crate::types::ids::FrameId;
use crate::types::message::Label;

/// The location of a slot's round.
enum RoundState {
    /// In its waiting frame.
    Rests,
    /// Taken out of its frame, and being worked on.
    UnderWay,
    Gone,
}

impl Room {
    fn place_of(&self, waiter: &Waiter) -> RoundState {
        let is_open = |round: &ToolRound| {
            round.message.seq == waiter.seq
                && round.slots.get(waiter.slot).is_some_and(|slot: &Slot| slot.said.is_none())
        };
        match self
            .frames
            .get(&waiter.frame)
            .map(|frame| frame.attempt.as_ref().map(|attempt| &attempt.wait))
        {
            Some(Some(FrameWait::Tools(round))) if is_open(round) => RoundState::Rests,
            Some(None | Some(FrameWait::Next)) => RoundState::UnderWay,
            // A component answered with calls: its own call is over, and the round is not stored in
            // its place yet.
            Some(Some(FrameWait::Call(call))) if !self.calls.contains_key(call) => {
                RoundState::UnderWay
            }
            Some(Some(_)) | None => RoundState::Gone,
        }
    }

    /// Returns whether the slot still waits.
    pub(super) fn waits(&self, waiter: &Waiter) -> bool {
        !matches!(self.place_of(waiter), RoundState::Gone)
    }

    /// Answers a slot. `is_data` is true for a worker's text. Returns false if the slot no longer
    /// waits.
    pub(super) fn answer_waiter(
        &mut self,
        waiter: &Waiter,
        answer: &Value,
        is_error: bool,
        is_data: bool,
    ) -> bool {
        match self.place_of(waiter) {
            RoundState::Gone => false,
            RoundState::UnderWay => {
                let said = self.said_of_delegation(waiter.frame, answer, is_error, is_data);
                self.tasks.answers.push((*waiter, said, is_data));
                true
            }
            RoundState::Rests => {
                let said = self.said_of_delegation(waiter.frame, answer, is_error, is_data);
                let Some(mut round) = self.take_round(waiter.frame, waiter.slot) else {
                    return false;
                };
                self.fill(waiter, &mut round, said, is_data);
                self.resume(waiter.frame, round);
                true
            }
        }
    }

    fn said_of_delegation(
        &mut self,
        frame: FrameId,
        answer: &Value,
        is_error: bool,
        is_data: bool,
    ) -> CallOutcome {
        let mut message = Arc::unwrap_or_clone(self.host_message(frame, answer.to_string()));
        // L-172: a worker's answer derives from external text.
        message.labels.extend(is_data.then_some(Label::Untrusted));
        CallOutcome { message: Some(Box::new(message)), is_error, is_result: true }
    }

    /// Takes the answer that arrived while the slot's round was being worked on.
    pub(super) fn take_answer(&mut self, waiter: &Waiter) -> Option<CallOutcome> {
        let place = self.tasks.answers.iter().position(|(of, ..)| of == waiter)?;
        Some(self.tasks.answers.remove(place).1)
    }

    /// Fills a round, before it waits, with the answers that arrived meanwhile.
    pub(in crate::room) fn fill_answered(&mut self, id: FrameId, round: &mut ToolRound) {
        if self.tasks.answers.is_empty() {
            return;
        }
        let (mine, others) = std::mem::take(&mut self.tasks.answers)
            .into_iter()
            .partition(|(waiter, ..)| waiter.frame == id);
        self.tasks.answers = others;
        let mine: Vec<(Waiter, CallOutcome, bool)> = mine;
        let seq = round.message.seq;
        for (waiter, said, is_data) in mine.into_iter().filter(|(waiter, ..)| waiter.seq == seq) {
            self.fill(&waiter, round, said, is_data);
        }
    }

    fn fill(&mut self, waiter: &Waiter, round: &mut ToolRound, said: CallOutcome, is_data: bool) {
        let Some(slot) = round.slots.get_mut(waiter.slot) else {
            return self.violated(Invariant::SlotExists, waiter.frame);
        };
        if slot.said.is_some() {
            return;
        }
        slot.now.untrusted |= is_data;
        let call = slot.call.clone();
        if slot.action.is_none() {
            self.report_answer(waiter.frame, &call, &said);
        }
        if let Some(slot) = round.slots.get_mut(waiter.slot) {
            slot.said = Some(said);
        }
    }
}
