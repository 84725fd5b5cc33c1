//! Children: how one begins, how it ends, what its parent is told, and what a restored parent remembers of it (O-088…O-091).

use std::collections::BTreeSet;

use conclave_trajectory::{Action, Event, Observation, Source, action, observation};
use serde_json::{Map, Value};

use super::{Controller, Profile};
use crate::control::agent_state::AgentState;

impl Controller {
    /// O-088. An agent that nobody knows is an error that nobody hears (O-075).
    pub(super) fn start_delegate(&mut self, at: usize, delegate: &action::Delegate) {
        if self.options.others.as_ref().is_some_and(|others| !others.contains(&delegate.agent)) {
            self.lost.push(format!("there is no agent {:?}", delegate.agent));
            return;
        }
        let child = self.seats[at].child(&delegate.agent, delegate.inputs.clone(), &self.options);
        self.seats.truncate(at + 1);
        self.seats.push(child);
        if self.is_of_2024() {
            self.enter(at + 1, AgentState::Running);
        } else if let Some(task) = delegate.inputs.get("task") {
            let content = format!("TASK: {}", shown(task));
            let message = Action::Message(action::Message { content, ..Default::default() });
            self.publish(Event::from(message).from_source(Source::User));
            self.enter(at + 1, AgentState::Running);
        }
    }

    /// 2024: after each step of a child its parent looks whether it is over (O-090).
    pub(super) fn child_has_stepped(&mut self, at: usize) {
        if !self.is_of_2024() || self.seats.len() != at + 2 {
            return;
        }
        let child = &self.seats[at + 1];
        if !child.state.is_over() {
            return;
        }
        let (state, name, outputs) = (child.state, child.name.clone(), child.outputs.clone());
        self.close_child(at);
        let is_of_06 = self.options.profile == Profile::V2024_06;
        if state == AgentState::Error {
            self.report(at, "Delegator agent encounters an error");
            if is_of_06 {
                self.enter(at, AgentState::Error);
            }
            return;
        }
        let content = if is_of_06 { String::new() } else { format!("{name} finishes task with {}", listed(&outputs, &[])) };
        self.publish(Event::from(Observation::Delegate(observation::Delegate { content, outputs })).from_source(Source::Agent));
    }

    /// 2025-11: the first event after a child's end (O-090).
    pub(super) fn end_delegate(&mut self, at: usize) {
        let child = &self.seats[at + 1];
        let (state, outputs) = (child.state, child.outputs.clone());
        let ended = match state {
            AgentState::Error => format!("{} encountered an error during execution.", child.name),
            _ => format!("{} finishes task with {}", child.name, listed(&outputs, &["metrics"])),
        };
        // The counters are shared.
        (self.seats[at].iterations, self.seats[at].budget) = (child.iterations, child.budget);
        let call = self.seats[at].history().iter().rev().filter_map(|past| past.action.as_ref()).find(|event| is_delegate(event));
        let call = call.and_then(|event| event.tool_call_metadata.clone());
        self.close_child(at);
        let content = format!("Delegated agent finished with result:\n\n{ended}");
        let mut event = Event::from(Observation::Delegate(observation::Delegate { content, outputs })).from_source(Source::Agent);
        event.tool_call_metadata = call;
        self.publish(event);
    }

    fn close_child(&mut self, at: usize) {
        self.enter(at + 1, AgentState::Stopped);
        self.seats.truncate(at + 1);
    }

    /// Takes a child over that is in this state, as after a restart.
    pub fn set_child(&mut self, name: &str, state: AgentState, iteration: u64) {
        let mut child = self.root().child(name, Map::new(), &self.options);
        child.state = state;
        child.iterations.current = iteration;
        self.seats.truncate(1);
        self.seats.push(child);
    }

    /// The same, with what it gave.
    pub fn set_child_outputs(&mut self, outputs: Map<String, Value>) {
        if let Some(child) = self.seats.get_mut(1) {
            child.outputs = outputs;
        }
    }

    /// What a restored agent of 2025-11 remembers of its stream: nothing of what its children did (O-091).
    pub fn load(&mut self, events: impl IntoIterator<Item = Event>) {
        let events: Vec<_> = events.into_iter().map(std::sync::Arc::new).collect();
        self.next_id = events.iter().filter_map(|event| event.id).max().map_or(0, |last| last + 1);
        let left_out = of_children(events.iter().map(AsRef::as_ref));
        let seat = self.root_mut();
        for (index, event) in events.iter().enumerate() {
            if !left_out.contains(&index) && !event.hidden() {
                seat.keep_event(event);
            }
        }
    }
}

fn is_delegate(event: &Event) -> bool {
    matches!(event.action(), Some(Action::Delegate(_)))
}

/// Which of these events are strictly between a delegate action and the observation that ends it (O-091).
pub fn of_children<'a>(events: impl Iterator<Item = &'a Event>) -> BTreeSet<usize> {
    let (mut begun, mut between) = (Vec::new(), BTreeSet::new());
    for (index, event) in events.enumerate() {
        if is_delegate(event) {
            begun.push(index);
        } else if matches!(event.observation(), Some(Observation::Delegate(_)))
            && let Some(start) = begun.pop()
        {
            between.extend(start + 1..index);
        }
    }
    between
}

/// `k: v, k2: v2`, without the keys that are for programs.
fn listed(outputs: &Map<String, Value>, left_out: &[&str]) -> String {
    let entries = outputs.iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
    entries.map(|(key, value)| format!("{key}: {}", shown(value))).collect::<Vec<_>>().join(", ")
}

/// As Python puts a value into a text.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => repr(other),
    }
}

fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n")),
        Value::Array(items) => format!("[{}]", items.iter().map(repr).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{}: {}", repr(&Value::String(key.clone())), repr(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}
