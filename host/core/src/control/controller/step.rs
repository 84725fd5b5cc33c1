//! A step of an agent: what comes before it is asked, and what becomes of its answer (O-072, O-084).

use std::sync::Arc;

use conclave_trajectory::{Action, Event, Source, action};

use super::{Answer, Controller, Idle, Profile, Step};
use crate::control::agent_state::AgentState;

impl Controller {
    /// Up to the question to the agent, or to why it is not asked.
    pub(super) fn begin_step(&mut self, at: usize) -> Step {
        if self.seats[at].state != AgentState::Running {
            return Step::Idle(Idle::NotRunning);
        }
        if self.seats[at].pending.is_some() {
            return Step::Idle(Idle::Pending);
        }
        if self.has_child(at) {
            let step = self.begin_step(at + 1);
            if matches!(step, Step::Idle(_)) {
                self.child_has_stepped(at);
            }
            return step;
        }
        if self.is_held_up(at) {
            return Self::stopped();
        }
        if self.is_of_2024() {
            // Those of 2025 are counted with their limit.
            self.seats[at].iterations.current += 1;
        }
        self.asked = Some(at);
        Step::Ask { level: at }
    }

    /// From the agent's answer on.
    pub(super) fn finish_step(&mut self, at: usize, answer: Answer) {
        if self.options.profile == Profile::V2025_11 {
            self.finish_step_2025(at, answer);
        } else {
            self.finish_step_2024(at, answer);
        }
    }

    fn finish_step_2024(&mut self, at: usize, answer: Answer) {
        let profile = self.options.profile;
        let action = match answer {
            Answer::Action(action) => *action,
            Answer::Nothing => return self.report(at, "No action was returned"),
            Answer::Malformed(why) => return self.report(at, &why),
            Answer::TooLong => return self.broke_2024(at, "the prompt is too long"),
            Answer::RateLimited { .. } => return self.broke_2024(at, "the model's rate limit was reached"),
            Answer::Broke(why) => return self.broke_2024(at, &why),
        };
        // O-053: what follows is already for the next step.
        self.seats[at].stepped();
        if profile == Profile::V2024_06 {
            self.check_budget_2024_06(at);
        }
        let is_nothing = matches!(action, Action::Null(_));
        let runnable = action.runnable();
        let event = Event::from(action).from_source(Source::Agent);
        if runnable {
            self.publish_pending(at, event);
        } else if !is_nothing {
            self.publish(event);
            let published = self.published.last().cloned();
            self.seats[at].keep_pair(published, None, profile);
        }
        if self.is_stuck(at) {
            self.report(at, "Agent got stuck in a loop");
            self.enter(at, AgentState::Error);
        }
    }

    /// O-077: after the step, in 2024-06.
    fn check_budget_2024_06(&mut self, at: usize) {
        let seat = &self.seats[at];
        if let Some(max) = seat.budget.map(|budget| budget.max).filter(|max| seat.cost > *max) {
            self.report(at, &format!("Task budget exceeded. Current cost: {}, Max budget: {max}", seat.cost));
            self.enter(at, AgentState::Error);
        }
    }

    fn finish_step_2025(&mut self, at: usize, answer: Answer) {
        self.seats[at].stepped();
        match answer {
            Answer::Action(action) => self.act(at, *action),
            Answer::Nothing => self.publish_error("No action was returned"),
            Answer::Malformed(why) => self.publish_error(why),
            Answer::TooLong if self.options.truncates => {
                self.publish(Event::from(Action::CondensationRequest(action::CondensationRequest::default())).from_source(Source::Agent));
            }
            Answer::TooLong => {
                self.broke_2025(at, "LLMContextWindowExceedError", "the prompt does not fit into the model, and histories are not cut");
            }
            // O-087
            Answer::RateLimited { for_good: false } => self.enter(at, AgentState::RateLimited),
            Answer::RateLimited { for_good: true } => {
                "CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE".clone_into(&mut self.seats[at].last_error);
                self.enter(at, AgentState::Error);
            }
            Answer::Broke(name) => {
                let told = format!("There was an unexpected error while running the agent: {name}. Ask the agent to try again.");
                self.broke_2025(at, "RuntimeError", &told);
            }
        }
    }

    fn act(&mut self, at: usize, mut action: Action) {
        if matches!(action, Action::Null(_)) {
            return;
        }
        let runnable = action.runnable();
        if runnable && self.waits_for_consent(&action) {
            super::confirming::mark(&mut action, conclave_trajectory::Confirmation::AwaitingConfirmation);
            self.enter(at, AgentState::AwaitingUserConfirmation);
        }
        let event = Event::from(action).from_source(Source::Agent);
        if runnable {
            self.publish_pending(at, event);
        } else {
            self.publish(event);
        }
    }

    /// Makes an action pending from outside, as after a restart; with the metadata of the call that it came from.
    pub fn set_pending(&mut self, mut event: Event, call: Option<serde_json::Value>) -> i64 {
        event.tool_call_metadata = call;
        self.next_id += 1;
        event.id = Some(self.next_id - 1);
        let id = self.next_id - 1;
        self.root_mut().pending = Some(Arc::new(event));
        id
    }
}
