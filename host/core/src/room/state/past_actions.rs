//! The events since an agent's last step (O-053). Their number is limited, because a user and the
//! agent role may talk for long without a step of the agent.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize, Serializer};

use crate::types::action::{Action, Observation, PastAction};

/// Events that wait for an agent's next step; the oldest are dropped first.
const PAST_MAX: usize = 1_000;
/// Bytes of these events, as many as a run's histories have by default.
const PAST_BYTES: usize = 64 << 20;

/// The events since an agent's last step, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "VecDeque<PastAction>")]
pub(in crate::room) struct PastActions {
    entries: VecDeque<PastAction>,
    /// A running total, so that an event does not cost more with every earlier one.
    bytes: usize,
}

impl PastActions {
    /// The events, oldest first.
    pub(in crate::room) fn iter(&self) -> impl Iterator<Item = &PastAction> {
        self.entries.iter()
    }

    /// Appends an event.
    pub(in crate::room) fn push(&mut self, event: PastAction) {
        self.bytes += event.weight();
        self.entries.push_back(event);
        self.drop_oldest();
    }

    /// Adds an observation to the newest action without one. Without such an action it is an event
    /// of its own.
    pub(in crate::room) fn answer(&mut self, observation: Option<Observation>, seq: u64) {
        let is_open =
            |event: &&mut PastAction| event.action.is_some() && event.observation.is_none();
        let Some(open) = self.entries.iter_mut().rev().find(is_open) else {
            return self.push(PastAction { action: None, observation, seq });
        };
        self.bytes += observation.as_ref().map_or(0, Observation::weight);
        open.observation = observation;
        self.drop_oldest();
    }

    pub(in crate::room) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Drops the oldest events above the limits. The newest event stays at any size.
    fn drop_oldest(&mut self) {
        while self.entries.len() > 1
            && (self.entries.len() > PAST_MAX || self.bytes > PAST_BYTES)
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes -= oldest.weight();
        }
    }
}

impl From<VecDeque<PastAction>> for PastActions {
    fn from(entries: VecDeque<PastAction>) -> Self {
        Self { bytes: entries.iter().map(PastAction::weight).sum(), entries }
    }
}

impl Serialize for PastActions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.entries.serialize(serializer)
    }
}

impl PastAction {
    /// The approximate size of its texts and values in bytes. Of the actions only a user's message
    /// counts: the agent's last action is one alone, and its size has a limit.
    fn weight(&self) -> usize {
        let text_bytes = match &self.action {
            Some(Action::Reply(reply)) => reply.content.as_ref().map_or(0, String::len),
            _ => 0,
        };
        text_bytes + self.observation.as_ref().map_or(0, Observation::weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, bytes: usize) -> PastAction {
        let observation = Observation::Success { content: "x".repeat(bytes) };
        PastAction { action: None, observation: Some(observation), seq }
    }

    fn numbers(actions: &PastActions) -> Vec<u64> {
        actions.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn the_oldest_of_too_many_events_is_dropped() {
        let mut actions = PastActions::default();
        let most = PAST_MAX as u64;
        (0..most).for_each(|seq| actions.push(event(seq, 1)));
        assert_eq!(numbers(&actions), (0..most).collect::<Vec<_>>());
        actions.push(event(most, 1));
        assert_eq!(numbers(&actions), (1..=most).collect::<Vec<_>>());
        actions.answer(Some(Observation::Null), most + 1);
        assert_eq!(numbers(&actions), (2..=most + 1).collect::<Vec<_>>());
        actions.clear();
        assert_eq!(actions, PastActions::default());
    }

    #[test]
    fn events_have_a_limit_in_bytes_and_the_newest_stays() {
        let mut actions = PastActions::default();
        let mut push = |seq: u64, bytes: usize| {
            actions.push(event(seq, bytes));
            numbers(&actions)
        };
        assert_eq!(push(0, PAST_BYTES / 2), [0]);
        assert_eq!(push(1, PAST_BYTES / 2), [0, 1]);
        assert_eq!(push(2, 1), [1, 2]);
        assert_eq!(push(3, 2 * PAST_BYTES), [3]);
        assert_eq!(push(4, 1), [4], "its bytes are counted only once");
    }

    #[test]
    fn the_observation_of_an_action_counts_too() {
        let mut actions = PastActions::default();
        actions.push(event(0, 1));
        actions.push(PastAction { action: Some(Action::Null), observation: None, seq: 1 });
        actions.answer(event(2, PAST_BYTES).observation, 2);
        assert_eq!(numbers(&actions), [1]);
    }

    #[test]
    fn restored_events_have_the_same_limit() {
        let mut actions = PastActions::default();
        actions.push(event(0, 7));
        actions.push(PastAction { action: Some(Action::Null), observation: None, seq: 1 });
        let text = serde_json::to_string(&actions).expect("events are serialisable");
        assert!(text.starts_with('['), "{text}");
        let restored: PastActions = serde_json::from_str(&text).expect("events are read back");
        assert_eq!(restored, actions);
    }
}
