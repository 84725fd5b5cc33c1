//! The activations of tasks by their ids.
#![expect(
    clippy::result_large_err,
    reason = "a refused transition gives the state back; a box would be an allocation per step"
)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::context::RoomContext;
use super::frame::Frame;
use super::frame_state::{Attempt, FrameState, FrameWait, Transition};
use super::invariant::Invariant;
use super::responder::Responder;
use super::rounds::{Slot, ToolRound};
use crate::setup::TaskSetup;
use crate::types::ids::{CallId, FrameId};
use crate::types::message::Message;

/// The activations of tasks, and those that are ready to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Frames {
    /// Boxed, because a node of the map has room for eleven.
    frames: BTreeMap<FrameId, Box<Frame>>,
    /// Frames that are ready to run; empty between events.
    pub runnable: VecDeque<FrameId>,
}

impl Frames {
    /// The number of delegations above a frame, in this room and its parents.
    pub(in crate::room) fn level_of(&self, cx: &RoomContext, frame: &Frame) -> u32 {
        let above = std::iter::successors(frame.caller, |caller| {
            self.get(caller).and_then(|frame| frame.caller)
        });
        cx.opening.depth.saturating_add(u32::try_from(above.count()).unwrap_or(u32::MAX))
    }

    pub(in crate::room) fn task_of<'r>(
        &'r self,
        cx: &'r RoomContext,
        frame: FrameId,
    ) -> Option<(&'r Frame, &'r Arc<TaskSetup>)> {
        let frame = self.get(&frame)?;
        Some((frame, frame.task_setup.of(&cx.setup, &frame.task)?))
    }

    pub(in crate::room) fn get(&self, id: &FrameId) -> Option<&Frame> {
        self.frames.get(id).map(|frame| &**frame)
    }

    pub(in crate::room) fn get_mut(&mut self, id: &FrameId) -> Option<&mut Frame> {
        self.frames.get_mut(id).map(|frame| &mut **frame)
    }

    pub(in crate::room) fn contains_key(&self, id: &FrameId) -> bool {
        self.frames.contains_key(id)
    }

    pub(in crate::room) fn insert(&mut self, id: FrameId, frame: Frame) {
        self.frames.insert(id, Box::new(frame));
    }

    pub(in crate::room) fn remove(&mut self, id: &FrameId) -> Option<Frame> {
        self.frames.remove(id).map(|frame| *frame)
    }

    /// Drops all frames.
    pub(in crate::room) fn clear(&mut self) {
        self.frames.clear();
        self.runnable.clear();
    }

    /// The ids of the frames, oldest first.
    pub(in crate::room) fn keys(&self) -> impl DoubleEndedIterator<Item = &FrameId> {
        self.frames.keys()
    }

    /// The frames, oldest first.
    pub(in crate::room) fn values(&self) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frames.values().map(|frame| &**frame)
    }

    /// Returns the frames, oldest first.
    pub(in crate::room) fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Frame> {
        self.frames.values_mut().map(|frame| &mut **frame)
    }

    /// The round that a frame waits for; `None` if it waits for none.
    pub(in crate::room) fn round(&self, id: FrameId) -> Option<&ToolRound> {
        match self.get(&id)?.wait()? {
            FrameWait::Tools(round) => Some(round),
            _ => None,
        }
    }

    /// A slot of the round that a frame waits for.
    pub(in crate::room) fn slot(&self, id: FrameId, slot: usize) -> Option<&Slot> {
        self.round(id)?.slots.get(slot)
    }
}

impl Frames {
    /// Returns the round that a frame waits for. If it waits for none, the room ends.
    pub(in crate::room) fn round_mut(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
    ) -> Option<&mut ToolRound> {
        let round = self.get_mut(&id).and_then(Frame::round_mut);
        if round.is_none() {
            cx.violated(Invariant::RoundWaits, id);
        }
        round
    }

    /// Returns a slot of the round that a frame waits for. If there is none, the room ends.
    pub(in crate::room) fn slot_mut(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        slot: usize,
    ) -> Option<&mut Slot> {
        let found = self.round_mut(cx, id)?.slots.get_mut(slot);
        if found.is_none() {
            cx.violated(Invariant::SlotExists, id);
        }
        found
    }

    /// Whether a frame waits for the answer to this call. If it does not, the room ends.
    pub(in crate::room) fn waits_for_answer(
        &self,
        cx: &mut RoomContext,
        id: FrameId,
        call: CallId,
    ) -> bool {
        let wait = self.get(&id).and_then(Frame::wait);
        let waits = wait == Some(&FrameWait::Call(call));
        if !waits {
            cx.violated(Invariant::StepWaits, id);
        }
        waits
    }

    /// Leads a frame to its next state. If that may not follow, the room ends, and this returns
    /// false.
    pub(in crate::room) fn follow(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        transition: impl FnOnce(FrameState) -> Transition,
    ) -> bool {
        let Some(frame) = self.get_mut(&id) else {
            cx.violated(Invariant::FrameExists, id);
            return false;
        };
        let follows = frame.follow(transition);
        if !follows {
            cx.violated(Invariant::StepWaits, id);
        }
        follows
    }

    /// Begins a step, or continues with its next responder.
    pub(in crate::room) fn ask(&mut self, cx: &mut RoomContext, id: FrameId, attempt: Attempt) {
        self.follow(cx, id, |state| state.ask(attempt));
    }

    /// Sets the wait of a step that is being advanced.
    pub(in crate::room) fn set_wait(&mut self, cx: &mut RoomContext, id: FrameId, wait: FrameWait) {
        self.follow(cx, id, |state| state.wait(wait));
    }

    /// Stores an answer in the waiting step, and makes the frame runnable.
    pub(in crate::room) fn ready(
        &mut self,
        cx: &mut RoomContext,
        id: FrameId,
        answer: Option<(Responder, Arc<Message>)>,
    ) {
        let (responder, message) = answer.unzip();
        if self.follow(cx, id, |state| state.answer(responder, message)) {
            self.runnable.push_back(id);
        }
    }
}
