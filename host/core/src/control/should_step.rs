//! Whether an event is a reason for an agent of 2025-11 to take a step (O-083).

use conclave_trajectory::{Action, Event, Observation, Source};

use super::agent_state::AgentState;

/// Whether the agent steps after this event. Never while a delegate is at work; an answer of nothing only when it answers something that the
/// agent did not do itself at the beginning (a cause above 0).
#[must_use]
pub fn should_step(event: &Event, state: AgentState, has_delegate: bool) -> bool {
    if has_delegate {
        return false;
    }
    if let Some(action) = event.action() {
        return match action {
            Action::Message(_) => event.source == Some(Source::User) || state != AgentState::AwaitingUserInput,
            Action::Delegate(_) | Action::Condensation(_) | Action::CondensationRequest(_) => true,
            _ => false,
        };
    }
    match event.observation() {
        Some(Observation::Null(_)) => event.cause.is_some_and(|cause| cause > 0),
        Some(Observation::AgentStateChanged(_)) | None => false,
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use conclave_trajectory::Era;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn messages_and_answers_are_reasons_to_step() {
        let awaiting = AgentState::AwaitingUserInput;
        for (event, running, waiting) in [
            (json!({ "action": "message", "source": "user", "args": { "content": "" } }), true, true),
            (json!({ "action": "message", "source": "agent", "args": { "content": "" } }), true, false),
            (json!({ "action": "delegate", "args": { "agent": "A", "inputs": {} } }), true, true),
            (json!({ "action": "condensation", "args": { "forgotten_event_ids": [1] } }), true, true),
            (json!({ "action": "condensation_request", "args": {} }), true, true),
            (json!({ "action": "run", "args": { "command": "ls" } }), false, false),
            (json!({ "action": "finish", "args": {} }), false, false),
            (json!({ "observation": "run", "content": "", "extras": { "command": "ls" } }), true, true),
            (json!({ "observation": "error", "content": "" }), true, true),
            (json!({ "observation": "agent_state_changed", "content": "", "extras": { "agent_state": "running" } }), false, false),
            (json!({ "observation": "null", "content": "" }), false, false),
            (json!({ "observation": "null", "content": "", "cause": 0 }), false, false),
            (json!({ "observation": "null", "content": "", "cause": 5 }), true, true),
        ] {
            let read = |event: &Value| Event::from_json_of(event, Era::V2025).unwrap();
            let steps = |state, has_delegate| should_step(&read(&event), state, has_delegate);
            assert_eq!([steps(AgentState::Running, false), steps(awaiting, false)], [running, waiting], "{event}");
            assert!(!steps(AgentState::Running, true), "{event}");
        }
    }
}
