//! What an event does to the agent that reads it (O-054, O-069, O-070, O-083, O-085, O-086).

use std::sync::Arc;

use conclave_trajectory::{Action, Event, Observation, RecallType, Source, action, observation};

use super::{Controller, Idle, Profile, Step, TrafficControl};
use crate::control::agent_state::AgentState;
use crate::control::should_step::should_step;
use crate::plan::PlanRules;

/// O-086: what is said for an action that nobody carried out any more, with its name for programs.
const STOPPED: (&str, &str) = ("Stop button pressed. The action has not been executed.", "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED");
const BROKE: (&str, &str) = (
    "The action has not been executed: there was an error in the runtime. It may have crashed and been started again, so that anything set up \
     in it, such as dependencies or environment variables, may be gone.",
    "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_ERROR",
);

impl Controller {
    /// The agent whose turn it is reads an event: in 2024 whoever is on top; later the root, which hands it on while its child is at work.
    pub(super) fn read(&mut self, event: &Arc<Event>) -> Step {
        if self.is_of_2024() {
            self.read_2024(self.seats.len() - 1, event);
            return Step::Idle(Idle::NoReason);
        }
        let mut at = 0;
        while self.has_child(at) {
            let child = &self.seats[at + 1];
            // A child that ran into the limit is spoken to all the same, so that it may be raised.
            let may_go_on = child.last_error.contains("RuntimeError: Agent reached maximum iteration.");
            if child.state.is_over() && !may_go_on {
                self.end_delegate(at);
                return Step::Idle(Idle::NoReason);
            }
            at += 1;
        }
        self.read_2025(at, event)
    }

    fn read_2024(&mut self, at: usize, event: &Arc<Event>) {
        let profile = self.options.profile;
        match event.action() {
            Some(Action::ChangeAgentState(change)) => self.enter_named(at, &change.agent_state),
            Some(Action::Message(message)) => match &event.source {
                Some(Source::User) => {
                    self.seats[at].keep_pair(Some(Arc::clone(event)), None, profile);
                    self.enter(at, AgentState::Running);
                }
                Some(Source::Agent) if message.wait_for_response => self.enter(at, AgentState::AwaitingUserInput),
                _ => {}
            },
            Some(Action::Delegate(delegate)) => self.start_delegate(at, delegate),
            Some(Action::AddTask(add)) => {
                let subtasks = serde_json::Value::Array(add.subtasks.clone());
                let added = self.seats[at].plan.add(&add.parent, &add.goal, &subtasks, PlanRules::OpenHands);
                self.lose(added.err());
            }
            Some(Action::ModifyTask(modify)) => {
                let set = self.seats[at].plan.set_named(&modify.task_id.to_string(), &modify.state, PlanRules::OpenHands);
                self.lose(set.err());
            }
            Some(Action::Finish(action::Finish { outputs, .. })) => {
                self.seats[at].outputs = outputs.clone();
                self.enter(at, AgentState::Finished);
            }
            Some(Action::Reject(action::Reject { outputs, .. })) => {
                self.seats[at].outputs = outputs.clone();
                self.enter(at, AgentState::Rejected);
            }
            Some(_) => {}
            None => self.read_observation_2024(at, event),
        }
    }

    /// O-054: the answer to what is pending; of what nobody asked for only some kinds.
    fn read_observation_2024(&mut self, at: usize, event: &Arc<Event>) {
        let profile = self.options.profile;
        let seat = &mut self.seats[at];
        let is_answer = seat.pending.as_ref().is_some_and(|pending| event.cause.is_some() && pending.id == event.cause);
        let is_kept = is_answer
            || match event.observation() {
                Some(Observation::Run(_) | Observation::Delegate(_)) => true,
                Some(Observation::Error(_)) => profile == Profile::V2024_07,
                _ => false,
            };
        if is_kept {
            let action = if is_answer { seat.pending.take() } else { None };
            seat.keep_pair(action, Some(Arc::clone(event)), profile);
        }
    }

    /// What goes wrong in a callback is heard by nobody (O-075).
    fn lose(&mut self, error: Option<impl std::fmt::Display>) {
        self.lost.extend(error.map(|error| error.to_string()));
    }

    fn read_2025(&mut self, at: usize, event: &Arc<Event>) -> Step {
        if event.hidden() {
            return Step::Idle(Idle::NoReason);
        }
        self.seats[at].keep_event(event);
        match event.action() {
            Some(Action::ChangeAgentState(change)) => self.enter_named(at, &change.agent_state),
            Some(Action::Message(message)) => match &event.source {
                Some(Source::User) => self.recall(at, event, &message.content),
                Some(Source::Agent) if message.wait_for_response => self.enter(at, AgentState::AwaitingUserInput),
                _ => {}
            },
            Some(Action::Delegate(delegate)) => self.start_delegate(at, delegate),
            Some(Action::Finish(action::Finish { outputs, .. })) => {
                self.seats[at].outputs = outputs.clone();
                self.enter(at, AgentState::Finished);
            }
            Some(Action::Reject(action::Reject { outputs, .. })) => {
                self.seats[at].outputs = outputs.clone();
                self.enter(at, AgentState::Rejected);
            }
            Some(Action::LoopRecovery(recovery)) => self.recover(at, recovery.option),
            Some(_) => {}
            None => self.read_observation_2025(at, event),
        }
        if at < self.seats.len() && should_step(event, self.seats[at].state, self.has_child(at)) {
            self.begin_step(at)
        } else {
            Step::Idle(Idle::NoReason)
        }
    }

    fn read_observation_2025(&mut self, at: usize, event: &Arc<Event>) {
        let seat = &mut self.seats[at];
        let is_answer = seat.pending.as_ref().is_some_and(|pending| event.cause.is_some() && pending.id == event.cause);
        // Nothing has been carried out while somebody is asked (O-109).
        if !is_answer || seat.state == AgentState::AwaitingUserConfirmation {
            return;
        }
        seat.pending = None;
        match seat.state {
            AgentState::UserConfirmed => self.enter(at, AgentState::Running),
            AgentState::UserRejected => self.enter(at, AgentState::AwaitingUserInput),
            _ => {}
        }
    }

    /// O-085: what the user says is looked up first.
    fn recall(&mut self, at: usize, event: &Arc<Event>, said: &str) {
        let is_users = |event: &Arc<Event>| matches!(event.action(), Some(Action::Message(_))) && event.source == Some(Source::User);
        let first = self.seats[at].history().iter().filter_map(|past| past.action.as_ref()).find(|event| is_users(event));
        let is_first = first.is_none_or(|first| first.id == event.id);
        let recall_type = Some(if is_first { RecallType::WorkspaceContext } else { RecallType::Knowledge });
        let recall = Action::Recall(action::Recall { recall_type, query: said.to_owned(), ..Default::default() });
        self.publish_pending(at, Event::from(recall).from_source(Source::User));
        self.enter(at, AgentState::Running);
    }

    /// Publishes an action that waits for its observation.
    pub(super) fn publish_pending(&mut self, at: usize, event: Event) {
        self.publish(event);
        self.seats[at].pending = self.published.last().cloned();
    }

    /// O-108: 1 and 2 cut the history to where the loop began; 3 stops.
    fn recover(&mut self, at: usize, option: i64) {
        let Some(found) = self.seats[at].found_loop else { return };
        let is_users = |event: &&Arc<Event>| matches!(event.action(), Some(Action::Message(_))) && event.source == Some(Source::User);
        let last = self.seats[at].history().iter().rev().filter_map(|past| past.action.as_ref()).find(is_users).cloned();
        match (option, last) {
            (3, _) => self.enter(at, AgentState::Stopped),
            (2, Some(last)) => {
                self.seats[at].cut(found.start);
                self.enter(at, AgentState::Running);
                if let Some(Action::Message(message)) = last.action() {
                    self.recall(at, &last, &message.content);
                }
            }
            (1 | 2, _) => {
                self.seats[at].cut(found.start);
                self.enter(at, AgentState::AwaitingUserInput);
            }
            _ => {}
        }
    }

    fn enter_named(&mut self, at: usize, word: &str) {
        match AgentState::named(word).filter(|state| state.is_of(self.options.profile)) {
            Some(state) => self.enter(at, state),
            None => self.lose(Some(format!("there is no state {word:?}"))),
        }
    }

    /// Sets a state, with what follows from it (O-069, O-070). The same state again is nothing.
    pub(super) fn enter(&mut self, at: usize, state: AgentState) {
        let profile = self.options.profile;
        let seat = &mut self.seats[at];
        let before = std::mem::replace(&mut seat.state, state);
        if before == state {
            return;
        }
        // O-078
        let resumes = before == AgentState::Paused && state == AgentState::Running;
        if profile == Profile::V2024_07 && resumes && seat.traffic == TrafficControl::Throttling {
            seat.traffic = TrafficControl::Paused;
        }
        if state.resets() {
            self.reset(at);
        }
        if profile == Profile::V2025_11 && before == AgentState::Error && state == AgentState::Running {
            self.raise_limits(at);
        }
        if matches!(state, AgentState::UserConfirmed | AgentState::UserRejected) {
            self.publish_again(at, state);
        }
        let seat = &mut self.seats[at];
        let reason = if profile == Profile::V2025_11 && state == AgentState::Error { seat.last_error.clone() } else { String::new() };
        let changed = observation::AgentStateChanged { agent_state: state.as_str().to_owned(), reason, ..Default::default() };
        let source = if profile == Profile::V2025_11 { Source::Environment } else { Source::Agent };
        self.publish(Event::from(Observation::AgentStateChanged(changed)).from_source(source));
        // O-070
        if state == AgentState::Init
            && let Some(resumed) = self.seats[at].resume_state.take()
        {
            self.enter(at, resumed);
        }
    }

    /// The agent forgets what it was about; later, a call without an observation gets one (O-086).
    fn reset(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        seat.resets += 1;
        if self.options.profile != Profile::V2025_11 {
            return;
        }
        let Some(pending) = seat.pending.take() else { return };
        let Some(call) = pending.tool_call_metadata.clone().filter(|call| !seat.has_observation_of(call)) else { return };
        let (content, error_id) = if seat.state == AgentState::Stopped { STOPPED } else { BROKE };
        let error = observation::Error { content: content.to_owned(), error_id: error_id.to_owned() };
        let mut event = Event::from(Observation::Error(error)).from_source(Source::Agent);
        (event.cause, event.tool_call_metadata) = (pending.id, Some(call));
        self.publish(event);
    }
}
