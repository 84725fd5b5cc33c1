//! The questions of a room that wait for the answer of its user, by a fold of its records.

use std::collections::BTreeMap;

use crate::protocol::effect::Effect;
use crate::protocol::event::Record;
use crate::room::Room;
use crate::types::ids::{CallId, ChannelId, TaskName};

/// A question that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    pub call: CallId,
    /// The task that asks.
    pub task: TaskName,
    pub channel: ChannelId,
    pub prompt: String,
}

/// The questions that wait at the end of a room's records, oldest first.
#[must_use]
pub fn open_questions(records: impl IntoIterator<Item = Record>) -> Vec<OpenQuestion> {
    let (mut room, mut questions) = (Room::new(), BTreeMap::new());
    for record in records {
        room.handle(record.event, record.at);
        while room.poll_notice().is_some() {}
        questions.extend(std::iter::from_fn(|| room.poll_effect()).filter_map(
            |effect| match effect {
                Effect::AskUser { call, task, channel, prompt } => {
                    Some((call, OpenQuestion { call, task, channel, prompt }))
                }
                _ => None,
            },
        ));
    }
    questions.retain(|call, _| room.is_in_flight(*call));
    questions.into_values().collect()
}
