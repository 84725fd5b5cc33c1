//! The replay of a trajectory: its task and its actions, in order (O-119).

use crate::action::Action;
use crate::event::{Source, TrajectoryEvent};
use crate::observation::Observation;

/// The task of a trajectory, and the actions to repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// The first message of the user, if any.
    pub task: Option<String>,
    /// The later actions of agent and user, to be executed again. Only a message that is the last
    /// event waits for an answer.
    pub actions: Vec<Action>,
}

impl Replay {
    /// The replay of these events, without events of the environment and without observations.
    pub fn of(events: &[TrajectoryEvent]) -> Replay {
        let mut issued: Vec<&TrajectoryEvent> = events
            .iter()
            .filter(|event| event.source != Some(Source::Environment))
            .filter(|event| !matches!(event.observation(), Some(Observation::Null(_))))
            .collect();
        let is_task = |event: &&TrajectoryEvent| {
            event.source == Some(Source::User) && matches!(event.action(), Some(Action::Message(_)))
        };
        let task = issued.iter().position(is_task).map(|at| issued.remove(at));
        let last = issued.len().saturating_sub(1);
        let actions = issued
            .iter()
            .enumerate()
            .filter_map(|(at, event)| event.action().map(|action| (at, action)))
            .filter(|(_, action)| !matches!(action, Action::Null(_)))
            .map(|(at, action)| if at == last { action.clone() } else { without_waiting(action) })
            .collect();
        let task = task.and_then(|event| match event.action() {
            Some(Action::Message(message)) => Some(message.content.clone()),
            _ => None,
        });
        Replay { task, actions }
    }
}

/// The action without a wait, because the trajectory already contains the answer.
fn without_waiting(action: &Action) -> Action {
    let mut action = action.clone();
    if let Action::Message(message) = &mut action {
        message.wait_for_response = false;
    }
    action
}
