//! Slots of a round that wait for a delegation: for its receipt while gates are asked, or for its
//! result. A waiter that is over gets no answer.

use crate::room::{Background, BackgroundWork, Frames, RoomContext};
use std::sync::Arc;

use serde_json::Value;

use super::super::Invariant;
use super::super::frame::{CallOutcome, FrameWait, Slot, ToolRound};
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

impl Frames {
    fn place_of(&self, cx: &RoomContext, waiter: &Waiter) -> RoundState {
        let is_open = |round: &ToolRound| {
            round.message.seq == waiter.seq
                && round.slots.get(waiter.slot).is_some_and(|slot: &Slot| slot.said.is_none())
        };
        match self
            .get(&waiter.frame)
            .map(|frame| frame.attempt.as_ref().map(|attempt| &attempt.wait))
        {
            Some(Some(FrameWait::Tools(round))) if is_open(round) => RoundState::Rests,
            Some(None | Some(FrameWait::Next)) => RoundState::UnderWay,
            // A component answered with calls: its own call is over, and the round is not stored in
            // its place yet.
            Some(Some(FrameWait::Call(call))) if !cx.calls.contains_key(call) => {
                RoundState::UnderWay
            }
            Some(Some(_)) | None => RoundState::Gone,
        }
    }

    /// Returns whether the slot still waits.
    pub(super) fn waits(&self, cx: &RoomContext, waiter: &Waiter) -> bool {
        !matches!(self.place_of(cx, waiter), RoundState::Gone)
    }

    fn said_of_delegation(
        &self,
        cx: &mut RoomContext,
        frame: FrameId,
        answer: &Value,
        is_error: bool,
        is_data: bool,
    ) -> CallOutcome {
        let mut message = Arc::unwrap_or_clone(self.host_message(cx, frame, answer.to_string()));
        // L-172: a worker's answer derives from external text.
        message.labels.extend(is_data.then_some(Label::Untrusted));
        CallOutcome { message: Some(Box::new(message)), is_error, is_result: true }
    }

    fn fill(
        &self,
        cx: &mut RoomContext,
        waiter: &Waiter,
        round: &mut ToolRound,
        said: CallOutcome,
        is_data: bool,
    ) {
        let Some(slot) = round.slots.get_mut(waiter.slot) else {
            return cx.violated(Invariant::SlotExists, waiter.frame);
        };
        if slot.said.is_some() {
            return;
        }
        slot.now.untrusted |= is_data;
        let call = slot.call.clone();
        if slot.action.is_none() {
            self.report_answer(cx, waiter.frame, &call, &said);
        }
        if let Some(slot) = round.slots.get_mut(waiter.slot) {
            slot.said = Some(said);
        }
    }
}

impl BackgroundWork<'_> {
    /// Answers a slot. `is_data` is true for a worker's text. Returns false if the slot no longer
    /// waits.
    pub(super) fn answer_waiter(
        &mut self,
        waiter: &Waiter,
        answer: &Value,
        is_error: bool,
        is_data: bool,
    ) -> bool {
        match self.frames.place_of(self.cx, waiter) {
            RoundState::Gone => false,
            RoundState::UnderWay => {
                let said = self.frames.said_of_delegation(
                    self.cx,
                    waiter.frame,
                    answer,
                    is_error,
                    is_data,
                );
                self.background.records.answers.push((*waiter, said, is_data));
                true
            }
            RoundState::Rests => {
                let said = self.frames.said_of_delegation(
                    self.cx,
                    waiter.frame,
                    answer,
                    is_error,
                    is_data,
                );
                let Some(mut round) = self.frames.take_round(self.cx, waiter.frame, waiter.slot)
                else {
                    return false;
                };
                self.frames.fill(self.cx, waiter, &mut round, said, is_data);
                self.round_results().resume(waiter.frame, round);
                true
            }
        }
    }
}

impl Background {
    /// Takes the answer that arrived while the slot's round was being worked on.
    pub(super) fn take_answer(&mut self, waiter: &Waiter) -> Option<CallOutcome> {
        let place = self.records.answers.iter().position(|(of, ..)| of == waiter)?;
        Some(self.records.answers.remove(place).1)
    }

    /// Fills a round, before it waits, with the answers that arrived meanwhile.
    pub(in crate::room) fn fill_answered(
        &mut self,
        cx: &mut RoomContext,
        frames: &Frames,
        id: FrameId,
        round: &mut ToolRound,
    ) {
        if self.records.answers.is_empty() {
            return;
        }
        let (mine, others) = std::mem::take(&mut self.records.answers)
            .into_iter()
            .partition(|(waiter, ..)| waiter.frame == id);
        self.records.answers = others;
        let mine: Vec<(Waiter, CallOutcome, bool)> = mine;
        let seq = round.message.seq;
        for (waiter, said, is_data) in mine.into_iter().filter(|(waiter, ..)| waiter.seq == seq) {
            frames.fill(cx, &waiter, round, said, is_data);
        }
    }
}
