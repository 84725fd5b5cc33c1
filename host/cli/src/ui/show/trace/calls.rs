//! Who is at work: which task a call belongs to, calls by their numbers, and calls that are told
//! together.

use std::collections::{BTreeMap, HashMap};

use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, RoomId, TaskName};

/// Calls in one message from which on they are told together: a screen full of the same line tells
/// nothing.
pub(super) const TOGETHER: usize = 4;

/// The calls of a run, as far as its trace has to know them.
#[derive(Debug, Default)]
pub(super) struct CallBook {
    /// The task of each call that is under way, and its number where it is one of a tool.
    calls: HashMap<(RoomId, CallId), (TaskName, Option<u64>)>,
    /// Tool calls of each room so far.
    numbers: HashMap<RoomId, u64>,
    /// Calls that are told together, by room and task.
    batches: HashMap<(RoomId, TaskName), CallGroup>,
    /// How far calls have come.
    progress: BTreeMap<(RoomId, CallId), CallProgress>,
}

/// Calls of one message that are told together.
#[derive(Debug, Default)]
struct CallGroup {
    left: usize,
    answered: usize,
    wall_us: u64,
    memory: u64,
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallProgress {
    pub(super) who: String,
    /// `4 of 30`.
    pub(super) done: String,
    /// The plugin's own words.
    pub(super) message: String,
    /// Nothing was said of it since.
    pub(super) is_told: bool,
}

impl CallBook {
    /// An agent's step begins.
    pub(super) fn begin_step(&mut self, room: &RoomId, call: CallId, task: &TaskName) {
        self.calls.insert((room.clone(), call), (task.clone(), None));
    }

    /// Returns the number of a tool call that begins.
    pub(super) fn begin(&mut self, room: &RoomId, call: CallId, task: &TaskName) -> u64 {
        let number = self.count(room);
        self.calls.insert((room.clone(), call), (task.clone(), Some(number)));
        number
    }

    /// Returns the number of a tool call for which no tool was started.
    pub(super) fn count(&mut self, room: &RoomId) -> u64 {
        let number = self.numbers.entry(room.clone()).or_default();
        *number += 1;
        *number
    }

    /// Returns the number of a tool call that has ended, and how far it had said it was.
    pub(super) fn end(
        &mut self,
        room: &RoomId,
        call: CallId,
    ) -> (Option<u64>, Option<CallProgress>) {
        let key = (room.clone(), call);
        (self.calls.remove(&key).and_then(|(_, number)| number), self.progress.remove(&key))
    }

    /// Returns the task that a call belongs to, and the number of a tool call.
    pub(super) fn find(&self, room: &RoomId, call: CallId) -> Option<(TaskName, Option<u64>)> {
        self.calls.get(&(room.clone(), call)).cloned()
    }

    /// Takes how far a call has come; true when it is the first that is heard of it.
    pub(super) fn progressed(
        &mut self,
        room: &RoomId,
        call: CallId,
        progress: CallProgress,
    ) -> bool {
        let is_first = !self.progress.contains_key(&(room.clone(), call));
        self.progress.insert((room.clone(), call), CallProgress { is_told: is_first, ..progress });
        is_first
    }

    /// Returns how far each call under way has come.
    pub(super) fn under_way(&self) -> Vec<CallProgress> {
        self.progress.values().cloned().collect()
    }

    /// So many calls of a task's message are told together.
    pub(super) fn begin_batch(&mut self, room: &RoomId, task: &TaskName, calls: usize) {
        self.batches.insert(
            (room.clone(), task.clone()),
            CallGroup { left: calls, ..CallGroup::default() },
        );
    }

    pub(super) fn is_batched(&self, room: &RoomId, task: &TaskName) -> bool {
        self.batches.contains_key(&(room.clone(), task.clone()))
    }

    /// Counts an answer of a batch. The last one returns how many there were and what they used
    /// together.
    pub(super) fn answer_batched(
        &mut self,
        room: &RoomId,
        task: &TaskName,
        report: &CallReport,
    ) -> Option<(usize, CallReport)> {
        let key = (room.clone(), task.clone());
        let batch = self.batches.get_mut(&key)?;
        batch.answered += 1;
        batch.wall_us += report.wall_us;
        batch.memory = batch.memory.max(report.memory);
        if batch.answered < batch.left {
            return None;
        }
        let batch = self.batches.remove(&key)?;
        Some((
            batch.answered,
            CallReport { wall_us: batch.wall_us, memory: batch.memory, ..CallReport::default() },
        ))
    }

    /// A turn of the room was stopped: its calls get no answers any more.
    pub(super) fn stop(&mut self, room: &RoomId) {
        self.batches.retain(|(of, _), _| of != room);
        self.progress.retain(|(of, _), _| of != room);
        self.calls.retain(|(of, _), _| of != room);
    }
}

/// Returns the task as a trace names it: one in a background room with the number of its work,
/// `writer (task-2)`.
pub(super) fn name_of(room: &RoomId, task: &TaskName) -> String {
    match room.as_str().split_once('/') {
        Some((_, path)) => format!("{task} (task-{})", path.replace('/', ".")),
        None => task.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_calls_have_numbers_and_steps_none() {
        let (room, task, mut book) =
            (RoomId::from("3f2a"), TaskName::from("main"), CallBook::default());
        book.begin_step(&room, CallId(1), &task);
        assert_eq!(
            (book.begin(&room, CallId(2), &task), book.begin(&room, CallId(5), &task)),
            (1, 2)
        );
        assert_eq!(book.find(&room, CallId(1)), Some((task.clone(), None)));
        assert_eq!(
            book.begin(&RoomId::from("3f2a/1"), CallId(2), &task),
            1,
            "each room counts its own"
        );
        assert_eq!(book.count(&room), 3, "one that was refused before it began");
        assert_eq!(
            (book.end(&room, CallId(5)), book.end(&room, CallId(5))),
            ((Some(2), None), (None, None))
        );
    }

    #[test]
    fn background_work_is_told_apart_from_its_task() {
        let named = |room: &str| name_of(&RoomId::from(room), &TaskName::from("writer"));
        assert_eq!(
            (named("3f2a"), named("3f2a/2"), named("3f2a/2/1")),
            ("writer".into(), "writer (task-2)".into(), "writer (task-2.1)".into())
        );
    }
}
