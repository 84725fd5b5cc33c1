//! The activations of tasks by their ids.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::context::RoomContext;
use super::frame::{Frame, FrameWait};
use super::rounds::{Slot, ToolRound};
use crate::setup::TaskSetup;
use crate::types::ids::FrameId;

/// The activations of tasks, and those that are ready to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Frames {
    /// Boxed, because a node of the map has room for eleven.
    frames: BTreeMap<FrameId, Box<Frame>>,
    /// Frames that are ready to run; empty between events.
    pub(in crate::room) runnable: VecDeque<FrameId>,
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
        match &self.get(&id)?.attempt.as_ref()?.wait {
            FrameWait::Tools(round) => Some(round),
            _ => None,
        }
    }

    /// A slot of the round that a frame waits for.
    pub(in crate::room) fn slot(&self, id: FrameId, slot: usize) -> Option<&Slot> {
        self.round(id)?.slots.get(slot)
    }
}
