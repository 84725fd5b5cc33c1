//! What a frame counts, and the limit on its steps.

use serde::{Deserialize, Serialize};

use super::super::is_zero;
use super::Frame;

/// The counts of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct FrameCounters {
    /// Consecutive steps without a valid answer (L-084).
    pub stalled: u32,
    /// Consecutive faults of the agent.
    pub faults: u32,
    pub steps: u32,
    pub turn_limit: Option<u32>,
    /// Number of answered calls of the agent's `step`.
    pub iteration: u32,
    /// Number of automatic answers that led to the current work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chain_depth: u32,
}

impl FrameCounters {
    pub(in crate::room) fn new(turn_limit: Option<u32>, chain_depth: u32) -> Self {
        Self { stalled: 0, faults: 0, steps: 0, turn_limit, iteration: 0, chain_depth }
    }
}

impl Frame {
    pub(in crate::room) fn counters(&self) -> &FrameCounters {
        &self.counters
    }

    /// Counts a step.
    pub(in crate::room) fn count_step(&mut self) {
        self.counters.steps = self.counters.steps.saturating_add(1);
    }

    /// Counts an answered call of the agent's `step`.
    pub(in crate::room) fn count_turn(&mut self) {
        self.counters.iteration += 1;
    }

    /// Counts a step without a valid answer. Returns the number of those in a row.
    pub(in crate::room) fn count_stall(&mut self) -> u32 {
        self.counters.stalled += 1;
        self.counters.stalled
    }

    /// Ends the row of steps without a valid answer.
    pub(in crate::room) fn end_stall(&mut self) {
        self.counters.stalled = 0;
    }

    /// Counts a fault of the agent. Returns the number of those in a row.
    pub(in crate::room) fn count_fault(&mut self) -> u32 {
        self.counters.faults += 1;
        self.counters.faults
    }

    /// Ends the row of faults.
    pub(in crate::room) fn forgive_faults(&mut self) {
        self.counters.faults = 0;
    }

    /// Its work now follows from so many automatic answers.
    pub(in crate::room) fn work_at_depth(&mut self, chain_depth: u32) {
        self.counters.chain_depth = chain_depth;
    }

    /// Its work now follows from so many automatic answers too.
    pub(in crate::room) fn raise_depth(&mut self, chain_depth: u32) {
        self.counters.chain_depth = self.counters.chain_depth.max(chain_depth);
    }

    /// Replaces the limit of its steps, if there is another one.
    pub(in crate::room) fn grant_steps(&mut self, limit: Option<u32>) {
        self.counters.turn_limit = limit.or(self.counters.turn_limit);
    }

    /// Lowers the limit of its steps, if the other one is lower.
    pub(in crate::room) fn limit_steps(&mut self, limit: Option<u32>) {
        self.counters.turn_limit = [self.counters.turn_limit, limit].into_iter().flatten().min();
    }

    #[cfg(test)]
    pub(in crate::room) fn set_steps(&mut self, turn_limit: Option<u32>, steps: u32) {
        (self.counters.turn_limit, self.counters.steps) = (turn_limit, steps);
    }
}
