//! The calls of a run: each call's task and number, and the calls that are combined into one line.

use std::collections::{BTreeMap, HashMap};

use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, RoomId, TaskName};

/// Calls of one message that are combined into one line, at least: many similar lines would fill
/// the screen. Of the calls that a tool makes, as many are shown.
pub(super) const TOGETHER: usize = 4;

/// The calls of a run, for its trace.
#[derive(Debug, Default)]
pub(super) struct CallBook {
    /// The task of each call in progress, and the number of a tool call.
    calls: HashMap<(RoomId, CallId), (TaskName, Option<u64>)>,
    /// The number of tool calls in each room.
    numbers: HashMap<RoomId, u64>,
    /// Calls that are combined, by room and task.
    batches: HashMap<(RoomId, TaskName), CallGroup>,
    /// The progress of calls.
    progress: BTreeMap<(RoomId, CallId), CallProgress>,
    /// The place of each nested call in progress among those of its tool's call.
    nested: HashMap<(RoomId, CallId), usize>,
    /// The number of nested calls of each call in progress.
    nested_of: HashMap<(RoomId, CallId), usize>,
}

/// Calls of one message that are combined into one line.
#[derive(Debug, Default)]
struct CallGroup {
    expected: usize,
    answered: usize,
    wall_us: u64,
    memory: u64,
}

/// The progress of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallProgress {
    pub(super) who: String,
    /// The part of the work that is done: `4 of 30`.
    pub(super) amount: String,
    /// The plugin's own words.
    pub(super) message: String,
    /// Whether this progress was shown.
    pub(super) is_told: bool,
}

impl CallBook {
    /// Begins an agent's step.
    pub(super) fn begin_step(&mut self, room: &RoomId, call: CallId, task: &TaskName) {
        self.calls.insert((room.clone(), call), (task.clone(), None));
    }

    /// Begins a tool call. Returns its number.
    pub(super) fn begin(&mut self, room: &RoomId, call: CallId, task: &TaskName) -> u64 {
        let number = self.count(room);
        self.calls.insert((room.clone(), call), (task.clone(), Some(number)));
        number
    }

    /// Counts a call that the tool of another call makes. Returns whether it is shown.
    pub(super) fn nest(&mut self, room: &RoomId, call: CallId, within: CallId) -> bool {
        let count = self.nested_of.entry((room.clone(), within)).or_default();
        *count += 1;
        let place = *count;
        self.nested.insert((room.clone(), call), place);
        place <= TOGETHER
    }

    /// Ends a nested call. Returns whether it is shown; `None` for a call of an agent.
    pub(super) fn end_nested(&mut self, room: &RoomId, call: CallId) -> Option<bool> {
        let place = self.nested.remove(&(room.clone(), call))?;
        Some(place <= TOGETHER)
    }

    /// Ends a call. Returns the number of calls that its tool made, if some were not shown.
    pub(super) fn take_nested(&mut self, room: &RoomId, call: CallId) -> Option<usize> {
        let count = self.nested_of.remove(&(room.clone(), call));
        count.filter(|count| *count > TOGETHER)
    }

    /// Returns the number of a tool call for which no tool was started.
    pub(super) fn count(&mut self, room: &RoomId) -> u64 {
        let number = self.numbers.entry(room.clone()).or_default();
        *number += 1;
        *number
    }

    /// Ends a tool call. Returns its number and its latest progress.
    pub(super) fn end(
        &mut self,
        room: &RoomId,
        call: CallId,
    ) -> (Option<u64>, Option<CallProgress>) {
        let key = (room.clone(), call);
        (self.calls.remove(&key).and_then(|(_, number)| number), self.progress.remove(&key))
    }

    /// The task that a call belongs to, and the number of a tool call.
    pub(super) fn find(&self, room: &RoomId, call: CallId) -> Option<(TaskName, Option<u64>)> {
        self.calls.get(&(room.clone(), call)).cloned()
    }

    /// Records the progress of a call. Returns true if it is the call's first.
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

    /// The progress of each call in progress.
    pub(super) fn under_way(&self) -> Vec<CallProgress> {
        self.progress.values().cloned().collect()
    }

    /// Begins to combine this many calls of a task's message.
    pub(super) fn begin_batch(&mut self, room: &RoomId, task: &TaskName, calls: usize) {
        self.batches.insert(
            (room.clone(), task.clone()),
            CallGroup { expected: calls, ..CallGroup::default() },
        );
    }

    pub(super) fn is_batched(&self, room: &RoomId, task: &TaskName) -> bool {
        self.batches.contains_key(&(room.clone(), task.clone()))
    }

    /// Counts an answer of a combined call. The last one returns the number of calls and their
    /// total usage.
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
        if batch.answered < batch.expected {
            return None;
        }
        let batch = self.batches.remove(&key)?;
        Some((
            batch.answered,
            CallReport { wall_us: batch.wall_us, memory: batch.memory, ..CallReport::default() },
        ))
    }

    /// Forgets the calls of a stopped turn, which get no answers any more.
    pub(super) fn stop(&mut self, room: &RoomId) {
        self.batches.retain(|(of, _), _| of != room);
        self.progress.retain(|(of, _), _| of != room);
        self.calls.retain(|(of, _), _| of != room);
        self.nested.retain(|(of, _), _| of != room);
        self.nested_of.retain(|(of, _), _| of != room);
    }
}

/// The name of a task in a trace, with the number of its work in a background room: `writer
/// (task-2)`.
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
    fn the_first_nested_calls_are_shown_and_all_are_counted() {
        let (room, mut book) = (RoomId::from("3f2a"), CallBook::default());
        let tool = CallId(1);
        let visible: Vec<bool> = (2..8).map(|call| book.nest(&room, CallId(call), tool)).collect();
        assert_eq!(visible, [true, true, true, true, false, false]);
        let ended: Vec<_> = [2, 6, 9].map(|call| book.end_nested(&room, CallId(call))).into();
        assert_eq!(ended, [Some(true), Some(false), None]);
        assert_eq!((book.take_nested(&room, tool), book.take_nested(&room, tool)), (Some(6), None));
        book.nest(&room, CallId(11), CallId(10));
        assert_eq!(book.take_nested(&room, CallId(10)), None, "all were shown");
    }

    #[test]
    fn background_work_is_told_apart_from_its_task() {
        let name_in = |room: &str| name_of(&RoomId::from(room), &TaskName::from("writer"));
        assert_eq!(
            (name_in("3f2a"), name_in("3f2a/2"), name_in("3f2a/2/1")),
            ("writer".into(), "writer (task-2)".into(), "writer (task-2.1)".into())
        );
    }
}
