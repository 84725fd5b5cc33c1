//! The invariants of a room, and the violation of one, for which `invariants.rs` ends the room.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::ids::FrameId;

/// A property that always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invariant {
    /// An active frame exists, and its task is in the setup.
    FrameExists,
    /// A frame with a step in progress waits for the answer that arrived, and its next state may
    /// follow the one that it is in.
    StepWaits,
    /// A call of a round belongs to a round that its frame waits for.
    RoundWaits,
    /// A call of a round has its slot.
    SlotExists,
    /// A background task with an open room is known.
    TaskKnown,
    /// A strategy with a pending call has its state.
    StrategyKnown,
    /// A background command that is followed is known.
    CommandKnown,
    /// The item that a gate checks is known, and the gate is in the setup.
    GateKnown,
}

impl Invariant {
    /// The stable code for programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrameExists => "frame_exists",
            Self::StepWaits => "step_waits",
            Self::RoundWaits => "round_waits",
            Self::SlotExists => "slot_exists",
            Self::TaskKnown => "task_known",
            Self::StrategyKnown => "strategy_known",
            Self::CommandKnown => "command_known",
            Self::GateKnown => "gate_known",
        }
    }

    /// Whether it is about frames, which are all gone once a stop has ended the run.
    pub(in crate::room) fn is_of_frames(self) -> bool {
        !matches!(self, Self::TaskKnown | Self::StrategyKnown | Self::GateKnown)
    }
}

/// An invariant that did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvariantViolation {
    pub invariant: Invariant,
    /// The frame that the invariant is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameId>,
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.invariant.as_str();
        write!(
            out,
            "internal error ({code}): the room was in a state that no events lead to, and was ended. "
        )?;
        out.write_str("This is a defect of Conclave: please report it, with the run's journal.")
    }
}
