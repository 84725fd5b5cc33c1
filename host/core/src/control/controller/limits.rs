//! What is looked at before an agent steps: limits, budgets, and whether it goes in circles (O-076…O-080, O-106).

use super::{Controller, Idle, Profile, Step, TrafficControl};
use crate::control::agent_state::AgentState;
use crate::control::limit::Budget;
use crate::control::stuck::{events, pairs};

/// What the user may do about a limit of 2024-07.
const REMINDER: &str = "Please click on resume button if you'd like to continue, or start a new task.";

impl Controller {
    /// Whether a limit keeps the agent from stepping; then what follows from it is done.
    pub(super) fn is_held_up(&mut self, at: usize) -> bool {
        match self.options.profile {
            Profile::V2024_06 => self.is_held_up_2024_06(at),
            Profile::V2024_07 => self.is_held_up_2024_07(at),
            Profile::V2025_11 => self.is_held_up_2025(at),
        }
    }

    fn is_held_up_2024_06(&mut self, at: usize) -> bool {
        let seat = &self.seats[at];
        if seat.chars > self.options.max_chars {
            self.broke_2024(at, &format!("{} characters are more than {}", seat.chars, self.options.max_chars));
            return true;
        }
        let is_reached = seat.iterations.current >= seat.iterations.max;
        if is_reached {
            self.report(at, "Agent reached maximum number of iterations");
            self.enter(at, AgentState::Error);
        }
        is_reached
    }

    fn is_held_up_2024_07(&mut self, at: usize) -> bool {
        let seat = &mut self.seats[at];
        let max_budget = seat.budget.map(|budget| budget.max).filter(|max| seat.cost > *max);
        let problem = if seat.iterations.current >= seat.iterations.max {
            format!("Agent reached maximum number of iterations, task paused. {REMINDER}")
        } else if let Some(max) = max_budget {
            format!("Task budget exceeded. Current cost: {:.2}, Max budget: {max:.2}, task paused. {REMINDER}", seat.cost)
        } else {
            return false;
        };
        // O-078: one step more for each time that the user wants it.
        if seat.traffic == TrafficControl::Paused {
            seat.traffic = TrafficControl::Normal;
            return false;
        }
        seat.traffic = TrafficControl::Throttling;
        self.report(at, &problem);
        self.enter(at, AgentState::Paused);
        true
    }

    /// O-084: first whether it goes in circles, then the flags.
    fn is_held_up_2025(&mut self, at: usize) -> bool {
        let cost = self.seats[at].cost;
        if let Some(budget) = &mut self.seats[at].budget {
            budget.current = cost;
        }
        if self.is_stuck(at) {
            self.broke_2025(at, "AgentStuckInLoopError", "Agent got stuck in a loop");
            return true;
        }
        let seat = &mut self.seats[at];
        let flags = seat.iterations.step().and_then(|()| seat.budget.as_mut().map_or(Ok(()), Budget::step));
        if let Err(reached) = &flags {
            self.broke_2025(at, "RuntimeError", &reached.to_string());
        }
        flags.is_err()
    }

    /// Whether it goes in circles, or its child does (O-106).
    pub(super) fn is_stuck(&mut self, at: usize) -> bool {
        if self.has_child(at) && self.is_stuck(at + 1) {
            return true;
        }
        let (headless, profile) = (self.options.headless, self.options.profile);
        let seat = &mut self.seats[at];
        let rules = match profile {
            Profile::V2024_06 => pairs::PairRules::Pairs2024_06,
            Profile::V2024_07 => pairs::PairRules::Pairs2024_07,
            Profile::V2025_11 => {
                seat.found_loop = events::find(&seat.seen, headless);
                return seat.found_loop.is_some();
            }
        };
        pairs::find(rules, seat.pairs.iter()).is_some()
    }

    /// O-080, when the user wants to go on after an error.
    pub(super) fn raise_limits(&mut self, at: usize) {
        let headless = self.options.headless;
        let seat = &mut self.seats[at];
        seat.iterations.raise(headless);
        if let Some(budget) = &mut seat.budget {
            budget.raise();
        }
    }

    /// An error that the user and the model see.
    pub(super) fn report(&mut self, at: usize, problem: &str) {
        problem.clone_into(&mut self.seats[at].last_error);
        self.publish_error(problem);
    }

    /// O-071: whatever came out of a step of 2024.
    pub(super) fn broke_2024(&mut self, at: usize, why: &str) {
        let told = "There was an unexpected error while running the agent";
        self.report(at, told);
        self.seats[at].last_error = format!("{told}: {why}");
        self.enter(at, AgentState::Error);
    }

    pub(super) fn broke_2025(&mut self, at: usize, name: &str, why: &str) {
        self.seats[at].last_error = format!("{name}: {why}");
        self.enter(at, AgentState::Error);
    }

    pub(super) fn stopped() -> Step {
        Step::Idle(Idle::Stopped)
    }
}
