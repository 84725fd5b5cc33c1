//! The background tasks of a run, by a fold of the records of its rooms.

use std::collections::BTreeMap;

use crate::room::Room;
use crate::types::delegation::BackgroundRecord;
use crate::types::delivery::EndedTask;
use crate::types::ids::{Millis, RoomId};

/// A task and the room that started it.
#[derive(Clone, Debug)]
pub struct TaskRow {
    /// The name to type, unique within the run.
    pub name: String,
    pub parent: RoomId,
    pub record: BackgroundRecord,
}

/// The background tasks of the root room of a run and of all rooms below it.
#[derive(Debug, Default)]
pub struct BackgroundTasks {
    rows: Vec<TaskRow>,
    ends: BTreeMap<RoomId, (EndedTask, Millis)>,
}

impl BackgroundTasks {
    /// Adds the tasks that a room of the run has started, as its records lead to it.
    pub fn take(&mut self, run: &RoomId, folded: &Room) {
        let room = folded.id();
        let place = room.as_str().strip_prefix(run.as_str()).unwrap_or_default();
        let place = place.trim_start_matches('/');
        let mut of_room: Vec<TaskRow> = folded
            .tasks()
            .map(|record| TaskRow {
                name: if place.is_empty() {
                    record.id.to_string()
                } else {
                    format!("{place}/{}", record.id)
                },
                parent: room.clone(),
                record: BackgroundRecord::clone(record),
            })
            .collect();
        of_room.sort_by_key(|task| task.record.started);
        self.rows.extend(of_room);
        if let Some(outcome) = folded.outcome() {
            self.ends.insert(room.clone(), (EndedTask::from_outcome(outcome), folded.now()));
        }
    }

    /// The tasks, room by room, each room's in the order of their starts.
    #[must_use]
    pub fn into_rows(mut self) -> Vec<TaskRow> {
        // A detached task does not report to its parent, so its own room's end counts.
        for task in self.rows.iter_mut().filter(|task| task.record.detached) {
            if let Some((ended, at)) = self.ends.remove(&task.record.room) {
                let record = &mut task.record;
                (record.state, record.ended) = (ended.status.into(), Some(at));
                (record.output, record.error) = (ended.output, ended.error);
            }
        }
        self.rows
    }
}
