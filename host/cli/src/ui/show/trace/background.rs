//! The background tasks of a run, for its trace: each task's room, how it ended, and how much of it
//! was shown.

use std::collections::{HashMap, HashSet};

use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use conclave_core::types::ids::{BackgroundId, RoomId, TaskName};
use conclave_core::types::outcome::Status;

use super::calls::name_of;

/// The background tasks of a run.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks {
    /// The room of each task, by the room that started it and its id.
    rooms: HashMap<(RoomId, BackgroundId), RoomId>,
    /// Tasks that have not ended.
    open: HashSet<(RoomId, BackgroundId)>,
    /// Tasks whose start was shown, so that their receipts need not be.
    unread_receipts: HashSet<(RoomId, BackgroundId)>,
    /// The state of each child room.
    child_rooms: HashMap<RoomId, ChildRoom>,
}

/// A room in which a background task works.
#[derive(Debug, Default)]
struct ChildRoom {
    outermost: Option<TaskName>,
    status: Option<Status>,
    /// The task's speech that was shown last.
    last_text: Option<String>,
}

impl BackgroundTasks {
    /// Records the start of a background task.
    pub(super) fn begin(&mut self, room: &RoomId, id: &BackgroundId, child: &RoomId) {
        let key = (room.clone(), id.clone());
        self.unread_receipts.insert(key.clone());
        self.open.insert(key.clone());
        self.rooms.insert(key, child.clone());
    }

    /// Whether the content is the receipt of background work whose start was shown.
    pub(super) fn take_receipt(&mut self, room: &RoomId, content: &str) -> bool {
        if self.unread_receipts.is_empty() {
            return false;
        }
        let receipt: Option<serde_json::Value> = serde_json::from_str(content).ok();
        let id = receipt.as_ref().and_then(|receipt| receipt.get("task_id")?.as_str());
        id.is_some_and(|id| self.unread_receipts.remove(&(room.clone(), BackgroundId::from(id))))
    }

    /// Records the start of a task in a child room. The first one is the background task itself.
    pub(super) fn task_started(&mut self, room: &RoomId, task: &TaskName) {
        if is_child(room) {
            self.child_rooms
                .entry(room.clone())
                .or_default()
                .outermost
                .get_or_insert_with(|| task.clone());
        }
    }

    /// Records the text of a task that was shown.
    pub(super) fn remember_text(&mut self, room: &RoomId, text: &str) {
        if is_child(room) {
            self.child_rooms.entry(room.clone()).or_default().last_text = Some(text.to_owned());
        }
    }

    /// Records the end of a task. Returns true if it is a background task, whose parent reports the
    /// end.
    pub(super) fn task_ended(&mut self, room: &RoomId, task: &TaskName, status: Status) -> bool {
        let Some(child) = self.child_rooms.get_mut(room) else { return false };
        if child.outermost.as_ref() != Some(task) {
            return false;
        }
        child.status = Some(status);
        true
    }

    /// Whether a background task has not ended, as far as its parent reported it.
    pub(super) fn is_under_way(&self) -> bool {
        !self.open.is_empty()
    }

    /// Records the end of a background task, as its parent reports it.
    pub(super) fn end(&mut self, room: &RoomId, ended: &EndedTask) -> ShownEnd {
        let key = (room.clone(), ended.id.clone());
        self.open.remove(&key);
        let child = self
            .rooms
            .get(&key)
            .and_then(|child| self.child_rooms.remove(child))
            .unwrap_or_default();
        let output = ended.output.as_deref().unwrap_or_default();
        ShownEnd {
            name: self.name(room, &ended.worker, &ended.id),
            status: status_word(ended.status, child.status),
            is_output_shown: child.last_text.is_some_and(|last| last.trim() == output.trim()),
            is_end_known: child.status.is_some(),
        }
    }

    /// The name of a background task in a trace: `writer (task-2)`.
    pub(super) fn name(&self, room: &RoomId, agent: &TaskName, id: &BackgroundId) -> String {
        let child = self.rooms.get(&(room.clone(), id.clone()));
        child.map_or_else(|| format!("{agent} ({id})"), |child| name_of(child, agent))
    }
}

/// How the end of a background task is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownEnd {
    pub(super) name: String,
    pub(super) status: &'static str,
    /// Whether its output is the speech that was shown last.
    pub(super) is_output_shown: bool,
    /// Whether its own room reported the end.
    pub(super) is_end_known: bool,
}

/// The word for an end. The status of the task's own room is used if it ended there.
fn status_word(ended: BackgroundStatus, room: Option<Status>) -> &'static str {
    match (ended, room) {
        (BackgroundStatus::Completed, Some(status)) => status.as_str(),
        (BackgroundStatus::Completed, None) => Status::Done.as_str(),
        (BackgroundStatus::Failed, Some(status)) if !status.is_success() => status.as_str(),
        (BackgroundStatus::Failed, _) => "FAILED",
        (BackgroundStatus::TimedOut, _) => "TIMED OUT",
        (BackgroundStatus::Cancelled, _) => "CANCELLED",
        (BackgroundStatus::Interrupted, _) => "INTERRUPTED",
    }
}

fn is_child(room: &RoomId) -> bool {
    room.as_str().contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: BackgroundStatus, output: Option<&str>) -> EndedTask {
        let output = output.map(str::to_owned);
        let (id, agent) = (BackgroundId::from("task-1"), TaskName::from("writer"));
        EndedTask { id, worker: agent, status, output, ..EndedTask::interrupted(String::new()) }
    }

    #[test]
    fn the_end_of_a_background_task_is_reported_once_with_its_status() {
        let (room, child) = (RoomId::from("3f2a"), RoomId::from("3f2a/1"));
        let (writer, helper) = (TaskName::from("writer"), TaskName::from("helper"));
        let mut tasks = BackgroundTasks::default();
        tasks.begin(&room, &BackgroundId::from("task-1"), &child);
        assert!(tasks.is_under_way());
        tasks.task_started(&child, &writer);
        tasks.task_started(&child, &helper);
        assert!(
            !tasks.task_ended(&child, &helper, Status::Error),
            "a task within it ends by itself"
        );
        assert!(tasks.task_ended(&child, &writer, Status::Stalled), "its parent reports this one");
        let end = tasks.end(&room, &ended(BackgroundStatus::Failed, None));
        let expected = ShownEnd {
            name: "writer (task-1)".to_owned(),
            status: "STALLED",
            is_output_shown: false,
            is_end_known: true,
        };
        assert_eq!(end, expected);
        assert!(!tasks.is_under_way());
        assert!(
            !tasks.task_ended(&room, &writer, Status::Done),
            "the run's own task is none of them"
        );
    }

    #[test]
    fn an_end_that_only_the_parent_knows_has_a_word_too() {
        use BackgroundStatus::{Cancelled, Completed, Failed, Interrupted, TimedOut};
        let words = [Completed, Failed, TimedOut, Cancelled, Interrupted]
            .map(|status| status_word(status, None));
        assert_eq!(words, ["DONE", "FAILED", "TIMED OUT", "CANCELLED", "INTERRUPTED"]);
        let own =
            [(Completed, Status::FixedTurns), (Failed, Status::Done), (TimedOut, Status::Timeout)];
        let words = own.map(|(status, own)| status_word(status, Some(own)));
        assert_eq!(words, ["FIXED_TURNS", "FAILED", "TIMED OUT"]);
    }

    #[test]
    fn an_output_that_was_shown_is_known() {
        let (room, child) = (RoomId::from("3f2a"), RoomId::from("3f2a/1"));
        let mut tasks = BackgroundTasks::default();
        let id = BackgroundId::from("task-1");
        for (text, expected) in [("It is lit.", true), ("I look.", false)] {
            tasks.begin(&room, &id, &child);
            tasks.task_started(&child, &"writer".into());
            tasks.remember_text(&child, text);
            let end = tasks.end(&room, &ended(BackgroundStatus::Completed, Some("It is lit.\n")));
            assert_eq!(end.is_output_shown, expected, "{text}");
        }
    }

    #[test]
    fn a_receipt_is_taken_once() {
        let room = RoomId::from("3f2a");
        let mut tasks = BackgroundTasks::default();
        tasks.begin(&room, &BackgroundId::from("task-1"), &RoomId::from("3f2a/1"));
        let receipt = r#"{"status":"delegated","task_id":"task-1"}"#;
        assert!(!tasks.take_receipt(&room, r#"{"task_id":"task-2"}"#));
        assert!(tasks.take_receipt(&room, receipt) && !tasks.take_receipt(&room, receipt));
    }
}
