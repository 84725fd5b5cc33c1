//! What a controller knows of one agent.

use std::sync::Arc;

use conclave_trajectory::{Action, Event, Source};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Options, Profile};
use crate::control::agent_state::AgentState;
use crate::control::limit::{Budget, Iterations};
use crate::control::stuck::{events, pairs};
use crate::plan::Plan;

/// Whether a limit holds an agent of 2024-07 up (O-051, O-078).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficControl {
    #[default]
    Normal,
    /// It was reached, and the agent is paused.
    Throttling,
    /// The user wants one step more.
    Paused,
}

impl TrafficControl {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Throttling => "throttling",
            Self::Paused => "paused",
        }
    }
}

/// An entry of a history: in 2024 an action with what answered it, since then one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    pub action: Option<Arc<Event>>,
    pub observation: Option<Arc<Event>>,
}

/// One agent: the root, or a child of it.
#[derive(Clone, Debug)]
pub struct Seat {
    pub name: String,
    pub state: AgentState,
    pub resume_state: Option<AgentState>,
    pub traffic: TrafficControl,
    pub iterations: Iterations,
    pub budget: Option<Budget>,
    /// Dollars that its models have cost; set from outside.
    pub cost: f64,
    /// Of prompts and answers; set from outside (only 2024-06).
    pub chars: u64,
    pub inputs: Map<String, Value>,
    pub outputs: Map<String, Value>,
    pub last_error: String,
    pub plan: Plan,
    /// 0: the root.
    pub level: usize,
    /// The action that waits for its observation (O-073).
    pub pending: Option<Arc<Event>>,
    /// How often the agent was reset (O-069).
    pub resets: u32,
    /// The iterations of the parent when this one began.
    pub parent_iteration: u64,
    history: Vec<Past>,
    /// Where the entries since the most recent step begin (O-053).
    since: usize,
    pub(super) pairs: Vec<pairs::Pair>,
    pub(super) seen: Vec<events::Seen>,
    pub(super) found_loop: Option<events::Loop>,
}

impl Seat {
    pub(super) fn root(options: &Options) -> Self {
        Self {
            name: options.agent.clone(),
            state: AgentState::Loading,
            resume_state: None,
            traffic: TrafficControl::Normal,
            iterations: Iterations::up_to(options.max_iterations),
            budget: options.max_budget.map(Budget::up_to),
            cost: 0.0,
            chars: 0,
            inputs: Map::new(),
            outputs: Map::new(),
            last_error: String::new(),
            plan: Plan::default(),
            level: 0,
            pending: None,
            resets: 0,
            parent_iteration: 0,
            history: Vec::new(),
            since: 0,
            pairs: Vec::new(),
            seen: Vec::new(),
            found_loop: None,
        }
    }

    /// What an agent is given by its parent (O-088).
    pub(super) fn child(&self, name: &str, inputs: Map<String, Value>, options: &Options) -> Self {
        let shared = options.profile == Profile::V2025_11;
        let iterations = if shared { self.iterations } else { Iterations { current: 0, ..self.iterations } };
        Self {
            name: name.to_owned(),
            iterations,
            budget: self.budget,
            cost: self.cost,
            chars: self.chars,
            inputs,
            level: self.level + 1,
            parent_iteration: self.iterations.current,
            ..Self::root(options)
        }
    }

    /// Steps of its own, where the counter is shared.
    #[must_use]
    pub fn local_step(&self) -> u64 {
        self.iterations.current.saturating_sub(self.parent_iteration)
    }

    /// Everything that it remembers.
    #[must_use]
    pub fn history(&self) -> &[Past] {
        &self.history
    }

    /// What has come since its most recent step returned (O-053).
    #[must_use]
    pub fn since_last_step(&self) -> &[Past] {
        self.history.get(self.since..).unwrap_or_default()
    }

    /// What the user wants: the latest message in 2024; later the earliest after the last finish (O-055).
    #[must_use]
    pub fn user_intent(&self, profile: Profile) -> Option<&Arc<Event>> {
        let actions = || self.history.iter().filter_map(|past| past.action.as_ref());
        let is_users = |event: &&Arc<Event>| matches!(event.action(), Some(Action::Message(_))) && event.source == Some(Source::User);
        if profile != Profile::V2025_11 {
            return self.history.iter().rev().filter_map(|past| past.action.as_ref()).find(is_users);
        }
        let finished = self.history.iter().rposition(|past| past.action.as_ref().is_some_and(is_finish));
        let newer = finished.and_then(|at| self.history.get(at..)).unwrap_or_default();
        newer.iter().filter_map(|past| past.action.as_ref()).find(is_users).or_else(|| actions().find(is_users))
    }

    pub(super) fn stepped(&mut self) {
        self.since = self.history.len();
    }

    /// Keeps a pair, unless both halves are nothing (O-054).
    pub(super) fn keep_pair(&mut self, action: Option<Arc<Event>>, observation: Option<Arc<Event>>, profile: Profile) {
        let is_nothing = |event: &Option<Arc<Event>>| event.as_ref().is_none_or(|event| event.kind() == "null");
        if is_nothing(&action) && is_nothing(&observation) {
            return;
        }
        let form = |event: &Option<Arc<Event>>| event.as_ref().map_or(Value::Null, |event| event.to_json(profile.era()));
        self.pairs.push(pairs::Pair::of(&form(&action), &form(&observation)));
        self.history.push(Past { action, observation });
    }

    /// Keeps an event, unless it is of a kind that histories of 2025 leave out (O-083).
    pub(super) fn keep_event(&mut self, event: &Arc<Event>) {
        if matches!(event.kind(), "null" | "change_agent_state" | "agent_state_changed") {
            return;
        }
        self.seen.push(events::Seen::of(&event.to_json(Profile::V2025_11.era())));
        let past = match event.action() {
            Some(_) => Past { action: Some(Arc::clone(event)), observation: None },
            None => Past { action: None, observation: Some(Arc::clone(event)) },
        };
        self.history.push(past);
    }

    /// Forgets everything from there on (O-108).
    pub(super) fn cut(&mut self, start: usize) {
        self.history.truncate(start);
        self.seen.truncate(start);
        self.since = self.since.min(start);
    }

    /// Whether an observation of this call has come.
    pub(super) fn has_observation_of(&self, call: &Value) -> bool {
        let of_call = |past: &Past| past.observation.as_ref().is_some_and(|event| event.tool_call_metadata.as_ref() == Some(call));
        self.history.iter().any(of_call)
    }

    pub(super) fn saved(&self, profile: Profile) -> Saved {
        Saved {
            agent_state: self.state,
            resume_state: self.resume_state,
            traffic_control_state: self.traffic,
            iterations: self.iterations,
            budget: self.budget,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            last_error: self.last_error.clone(),
            plan: self.plan.clone(),
            // Later it is read from the stream again (O-118). Entries are shared, not copied.
            history: if profile == Profile::V2025_11 { Vec::new() } else { self.history.clone() },
        }
    }

    pub(super) fn restored(options: &Options, saved: Saved) -> Self {
        let mut seat = Self {
            resume_state: saved.agent_state.to_resume(),
            traffic: saved.traffic_control_state,
            iterations: saved.iterations,
            budget: saved.budget,
            inputs: saved.inputs,
            outputs: saved.outputs,
            last_error: saved.last_error,
            plan: saved.plan,
            ..Self::root(options)
        };
        for past in saved.history {
            seat.keep_pair(past.action, past.observation, options.profile);
        }
        seat
    }
}

fn is_finish(event: &Arc<Event>) -> bool {
    matches!(event.action(), Some(Action::Finish(_)))
}

/// What is stored of an agent (O-118).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    pub agent_state: AgentState,
    #[serde(default)]
    pub resume_state: Option<AgentState>,
    #[serde(default)]
    pub traffic_control_state: TrafficControl,
    pub iterations: Iterations,
    #[serde(default)]
    pub budget: Option<Budget>,
    #[serde(default)]
    pub inputs: Map<String, Value>,
    #[serde(default)]
    pub outputs: Map<String, Value>,
    #[serde(default)]
    pub last_error: String,
    #[serde(default)]
    pub plan: Plan,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Past>,
}
