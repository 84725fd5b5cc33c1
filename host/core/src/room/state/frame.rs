//! A frame: one activation of a task, with its pending message and its current step.

pub(in crate::room) mod activation;
pub(in crate::room) mod counters;
#[cfg(test)]
mod tests;
pub(in crate::room) mod turn;

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use activation::Activation;
use counters::FrameCounters;
use turn::FrameTurn;

use super::acting::Acting;
use super::closing::Closing;
use super::frame_state::{Attempt, FrameState, FrameWait, Transition};
use super::loop_detection::LoopDetector;
use super::past_actions::PastActions;
use super::rounds::ToolRound;
use super::stuck_watch::StuckWatch;
use crate::types::message::Message;

/// One activation of a task. It reads as its [`Activation`]. What changes while it runs is in
/// groups, each of which only its own file assigns: the state, the turn and the counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct Frame {
    activation: Activation,
    state: FrameState,
    turn: FrameTurn,
    counters: FrameCounters,
    pub loops: LoopDetector,
    /// The newest answers, oldest first, as many as the longest done sequence has events (L-093).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub chain: VecDeque<SequenceAnswer>,
    /// Events since the previous step returned (O-053).
    #[serde(rename = "past")]
    pub past_actions: PastActions,
    /// The state of an acting agent.
    #[serde(default, skip_serializing_if = "super::acting::Acting::is_idle")]
    pub acting: Acting,
    /// The stuck detector (O-098…O-108).
    #[serde(default, skip_serializing_if = "super::stuck_watch::StuckWatch::is_new")]
    pub stuck_watch: StuckWatch,
}

impl Deref for Frame {
    type Target = Activation;

    fn deref(&self) -> &Activation {
        &self.activation
    }
}

impl Frame {
    pub(in crate::room) fn new(
        activation: Activation,
        state: FrameState,
        counters: FrameCounters,
    ) -> Self {
        Self {
            activation,
            state,
            turn: FrameTurn::default(),
            counters,
            loops: LoopDetector::default(),
            chain: VecDeque::new(),
            past_actions: PastActions::default(),
            acting: Acting::default(),
            stuck_watch: StuckWatch::default(),
        }
    }
}

impl Frame {
    pub(in crate::room) fn state(&self) -> &FrameState {
        &self.state
    }

    /// The step in progress; `None` between steps, and while something holds the activation.
    pub(in crate::room) fn attempt(&self) -> Option<&Attempt> {
        match &self.state {
            FrameState::Asking(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// What its step waits for.
    pub(in crate::room) fn wait(&self) -> Option<&FrameWait> {
        self.attempt().map(|attempt| &attempt.wait)
    }

    /// The round that its step waits for.
    pub(in crate::room) fn round_mut(&mut self) -> Option<&mut ToolRound> {
        match &mut self.state {
            FrameState::Asking(Attempt { wait: FrameWait::Tools(round), .. }) => Some(round),
            _ => None,
        }
    }

    /// The end that a judge and gates decide on, with its result.
    pub(in crate::room) fn closing(&self) -> Option<&Closing> {
        match &self.state {
            FrameState::Closing(closing) => Some(closing),
            _ => None,
        }
    }

    pub(in crate::room) fn closing_mut(&mut self) -> Option<&mut Closing> {
        match &mut self.state {
            FrameState::Closing(closing) => Some(closing),
            _ => None,
        }
    }

    /// Takes the step in progress, for the loop that carries it on; the frame is then `Idle`. What
    /// holds the activation stays.
    pub(in crate::room) fn take_attempt(&mut self) -> Option<Attempt> {
        match std::mem::take(&mut self.state) {
            FrameState::Asking(attempt) => Some(attempt),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Gives up the step in progress. What holds the activation stays.
    pub(in crate::room) fn abandon_step(&mut self) {
        drop(self.take_attempt());
    }

    /// Gives up its step, and what holds it.
    pub(in crate::room) fn stop_turn(&mut self) {
        self.state = FrameState::Idle;
    }

    /// Ends it once a judge and gates have decided on its result.
    pub(in crate::room) fn close(&mut self, closing: Closing) {
        self.state = std::mem::take(&mut self.state).close(closing);
    }

    /// Leads it to its next state. Returns false, and changes nothing, if that may not follow.
    #[must_use]
    pub(in crate::room) fn follow(
        &mut self,
        transition: impl FnOnce(FrameState) -> Transition,
    ) -> bool {
        let (state, follows) = match transition(std::mem::take(&mut self.state)) {
            Ok(next) => (next, true),
            Err(unchanged) => (unchanged, false),
        };
        self.state = state;
        follows
    }
}

/// An answer, as done sequences see it (L-094).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::room) struct SequenceAnswer {
    pub message: Arc<Message>,
    /// Names of the calls in it that the agent knows.
    pub tools: Vec<String>,
}
