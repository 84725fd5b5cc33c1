//! Events as observers receive them: a notice with its address in the journal.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::ids::{Millis, PluginName, RoomId, TaskName};

/// The kinds that an observer can receive, in the order of their declaration. Notices about
/// observers are not among them: an observer that observes itself would never end.
pub const EVENT_KINDS: [&str; 55] = [
    "task-started",
    "invariant-violated",
    "message-posted",
    "step-ended",
    "step-stalled",
    "question-unanswered",
    "tool-called",
    "tool-answered",
    "plugin-faulted",
    "denied",
    "side-effect-started",
    "side-effect-ended",
    "approval-asked",
    "approval-given",
    "top-up-asked",
    "topped-up",
    "price-unknown",
    "attempt-lost",
    "step-started",
    "model-called",
    "model-answered",
    "history-cut",
    "resumed",
    "plugin-replaced",
    "turn-stopped",
    "plan-changed",
    "agent-state-changed",
    "agent-stuck",
    "run-paused",
    "run-unpaused",
    "user-message-read",
    "user-message-dropped",
    "history-condensed",
    "knowledge-added",
    "gate-blocked",
    "gate-modified",
    "answer-overruled",
    "result-replaced",
    "handed-off",
    "handoff-rejected",
    "inbound",
    "inbound-refused",
    "channel-refused",
    "channel-bound",
    "channel-unbound",
    "room-closed",
    "background-started",
    "background-ended",
    "delivered",
    "not-delivered",
    "dead-letter",
    "results-relayed",
    "results-read",
    "task-ended",
    "result-ready",
];

/// The address of an event within its room. Positions ascend in the order of the events.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ObservedPosition {
    /// The number of the journal record that the event follows from.
    pub seq: u64,
    /// The position among the notices of that record, from 0. Kinds that a filter leaves out count
    /// too, so the address does not depend on the config.
    pub index: u32,
}

/// An event of a run for an observer. Its room and position identify it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedEvent {
    pub room: RoomId,
    #[serde(flatten)]
    pub position: ObservedPosition,
    /// The time of the record.
    pub time: Millis,
    /// The kind of the notice, such as `task-started`.
    pub kind: String,
    /// The task that the event is about; `None` if it is about no particular task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskName>,
    /// The notice, as `docs/embed/events.md` shows it.
    pub details: Value,
}

impl ObservedEvent {
    /// The bytes that the event takes up in a batch, approximately.
    #[must_use]
    pub fn weight(&self) -> usize {
        weight(&self.details)
    }
}

/// The bytes of the texts of a value, and of its keys.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(entries) => entries.iter().map(weight).sum::<usize>() + 2,
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>() + 2
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// The part of a room's name that marks the rooms of observers.
const ROOM: &str = "observer-";

/// The name of the room in which an observer of a run is called: `3f2a91c0/observer-hook`. It
/// belongs to the run, so listings, audits and retention treat it like the run's other rooms.
#[must_use]
pub fn observer_room(run: &RoomId, observer: &PluginName) -> RoomId {
    RoomId::from(format!("{run}/{ROOM}{observer}"))
}

/// The observer that is called in a room; `None` if it is no such room.
#[must_use]
pub fn observer_of_room(room: &RoomId) -> Option<PluginName> {
    let (_, name) = room.as_str().split_once('/')?;
    name.strip_prefix(ROOM).map(PluginName::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_observers_are_recognised_by_their_name() {
        let (run, hook) = (RoomId::from("3f2a91c0"), PluginName::from("hook"));
        assert_eq!(observer_of_room(&observer_room(&run, &hook)), Some(hook));
        assert_eq!(observer_of_room(&RoomId::from("3f2a91c0/1")), None);
        assert_eq!(observer_of_room(&run), None);
    }
}
