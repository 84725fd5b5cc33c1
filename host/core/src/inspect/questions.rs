//! The questions of a room that wait for the answer of its user, and the calls that wait for an
//! approval, by a fold of its records.

use std::collections::BTreeMap;

use crate::protocol::effect::Effect;
use crate::protocol::event::Record;
use crate::room::Room;
use crate::types::approval::ApprovalRequest;
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

/// Returns the questions that wait at the end of a room's records, oldest first.
#[must_use]
pub fn open_questions(records: impl IntoIterator<Item = Record>) -> Vec<OpenQuestion> {
    let questions = in_flight(records, |effect| match effect {
        Effect::AskUser { call, task, channel, prompt } => {
            Some((call, OpenQuestion { call, task, channel, prompt }))
        }
        _ => None,
    });
    questions.into_values().collect()
}

/// Returns what the approver of a call was asked, if the call waits at the end of a room's records.
#[must_use]
pub fn open_approval(
    records: impl IntoIterator<Item = Record>,
    of: CallId,
) -> Option<ApprovalRequest> {
    let mut asked = in_flight(records, |effect| match effect {
        Effect::AskApproval { call, request } if call == of => Some((call, request)),
        _ => None,
    });
    asked.remove(&of)
}

/// Returns the calls in flight at the end of a room's records that `read` takes from its effects.
fn in_flight<T>(
    records: impl IntoIterator<Item = Record>,
    read: impl Fn(Effect) -> Option<(CallId, T)>,
) -> BTreeMap<CallId, T> {
    let (mut room, mut found) = (Room::new(), BTreeMap::new());
    for record in records {
        room.handle(record.event, record.at);
        while room.poll_notice().is_some() {}
        found.extend(std::iter::from_fn(|| room.poll_effect()).filter_map(&read));
    }
    found.retain(|call, _| room.is_in_flight(*call));
    found
}
