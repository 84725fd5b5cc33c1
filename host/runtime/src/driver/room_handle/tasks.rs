//! The background tasks of a room as its handles see them: the last state that the room reported.
//! They stay readable after the room is over. The handling of a task belongs to the core.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::types::channel::Binding;
use conclave_core::types::delegation::BackgroundRecord;
use conclave_core::types::ids::{BackgroundId, ChannelId};
use tokio::sync::oneshot;

/// The number of settled tasks that stay; the oldest are dropped first. As many as the room itself
/// keeps, so a persistent room does not accumulate them.
const SETTLED_MAX: usize = 1_000;

/// The reason why a wait returned without the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The task runs on, and can be waited for again.
    #[error("the task has not ended in this time; it goes on")]
    TimedOut,
    /// There is no task of that name.
    #[error("there is no task of that name here")]
    Unknown,
    /// The room's run is over and the task had not ended: it was detached, or its host gave up.
    #[error("the room is over, and nobody waits for this task any more")]
    RoomOver,
}

/// The state of a room as its handles see it, updated by its loop.
#[derive(Debug, Default)]
pub(crate) struct RoomView(Mutex<TaskStates>);

#[derive(Debug, Default)]
struct TaskStates {
    /// The tasks by their number, in the order in which they began.
    tasks: BTreeMap<u64, Arc<BackgroundRecord>>,
    numbers: HashMap<BackgroundId, u64>,
    /// The number of the next task.
    next: u64,
    /// The numbers of the tasks that nothing changes any more.
    settled: BTreeSet<u64>,
    waiting: HashMap<BackgroundId, Vec<oneshot::Sender<()>>>,
    bindings: Arc<BTreeMap<ChannelId, Binding>>,
    /// Whether no run is active, so that nothing here changes.
    is_over: bool,
    /// The reason why the run is paused.
    pause: Option<String>,
}

impl TaskStates {
    /// Replaces the state of a task, or adds it.
    fn keep(&mut self, record: Arc<BackgroundRecord>) {
        let number = *self.numbers.entry(record.id.clone()).or_insert_with(|| {
            self.next += 1;
            self.next
        });
        if record.is_settled() {
            self.settled.insert(number);
        } else {
            self.settled.remove(&number);
        }
        self.tasks.insert(number, record);
        if self.settled.len() > SETTLED_MAX
            && let Some(oldest) = self.settled.pop_first()
            && let Some(record) = self.tasks.remove(&oldest)
        {
            self.numbers.remove(&record.id);
        }
    }
}

impl RoomView {
    fn lock(&self) -> MutexGuard<'_, TaskStates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the room as open when a run begins or is resumed.
    pub(crate) fn open(&self) {
        self.lock().is_over = false;
    }

    /// Marks the room as over and releases all waiting handles.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.waiting.clear();
    }

    /// Stores the reason why the run is paused, if it is.
    pub(crate) fn set_pause(&self, reason: Option<String>) {
        self.lock().pause = reason;
    }

    /// The reason why the run is paused, or was when it was active last.
    #[cfg(feature = "postgres")]
    pub(crate) fn pause(&self) -> Option<String> {
        self.lock().pause.clone()
    }

    /// Stores the current state of a task.
    pub(crate) fn put(&self, record: Arc<BackgroundRecord>) {
        let mut state = self.lock();
        let is_settled = record.state.is_end() || record.detached;
        let settled = is_settled.then(|| state.waiting.remove(&record.id)).flatten();
        state.keep(record);
        // Unlocked first, so that no waiting handle wakes up under the lock.
        drop(state);
        for waiting in settled.into_iter().flatten() {
            let _ = waiting.send(());
        }
    }

    /// Stores the current channel bindings.
    pub(crate) fn bind(&self, bindings: Arc<BTreeMap<ChannelId, Binding>>) {
        self.lock().bindings = bindings;
    }

    pub(super) fn bindings(&self) -> Arc<BTreeMap<ChannelId, Binding>> {
        Arc::clone(&self.lock().bindings)
    }

    pub(super) fn tasks(&self) -> Vec<Arc<BackgroundRecord>> {
        self.lock().tasks.values().cloned().collect()
    }

    pub(super) fn task(&self, id: &BackgroundId) -> Option<Arc<BackgroundRecord>> {
        let state = self.lock();
        state.tasks.get(state.numbers.get(id)?).cloned()
    }

    /// Returns the end of a task, or a receiver that resolves when it has ended or the room is
    /// over.
    fn end_or_wait(
        &self,
        id: &BackgroundId,
    ) -> Result<Result<Arc<BackgroundRecord>, oneshot::Receiver<()>>, WaitError> {
        let mut state = self.lock();
        let record = state
            .numbers
            .get(id)
            .and_then(|number| state.tasks.get(number))
            .cloned()
            .ok_or(WaitError::Unknown)?;
        if record.state.is_end() {
            return Ok(Ok(record));
        }
        if state.is_over || record.detached {
            return Err(WaitError::RoomOver);
        }
        let (sender, receiver) = oneshot::channel();
        let waiting = state.waiting.entry(id.clone()).or_default();
        // Receivers of waits that timed out are closed.
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(sender);
        Ok(Err(receiver))
    }

    pub(super) async fn ended(
        &self,
        id: &BackgroundId,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        loop {
            match self.end_or_wait(id)? {
                Ok(record) => return Ok(record),
                // The receiver also resolves when the room is over; the next pass returns the
                // reason.
                Err(fired) => drop(fired.await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use conclave_core::types::delegation::BackgroundState;
    use conclave_core::types::delivery::{DeliveryRecord, DeliveryState};
    use conclave_core::types::ids::{Millis, RoomId, TaskName};

    use super::*;

    fn record(id: &str, state: BackgroundState) -> Arc<BackgroundRecord> {
        Arc::new(BackgroundRecord {
            id: BackgroundId::from(id),
            worker: TaskName::from("worker"),
            description: "count".to_owned(),
            room: RoomId::from("r/1"),
            notify: TaskName::from("desk"),
            state,
            started: Millis(0),
            ended: None,
            output: None,
            error: None,
            metadata: serde_json::Value::Null,
            delivery: DeliveryRecord::default(),
            by: None,
            chain_depth: 0,
            detached: false,
        })
    }

    #[tokio::test]
    async fn many_wait_for_one_task_and_each_is_told() {
        let known = Arc::new(RoomView::default());
        known.put(record("task-1", BackgroundState::Running));
        let (one, other) = (BackgroundId::from("task-1"), BackgroundId::from("task-9"));
        assert_eq!(known.ended(&other).await, Err(WaitError::Unknown));
        let ((), first, second) = tokio::join!(
            async {
                tokio::task::yield_now().await;
                known.put(record("task-1", BackgroundState::Cancelled));
            },
            known.ended(&one),
            known.ended(&one)
        );
        assert_eq!(first.unwrap().state, BackgroundState::Cancelled);
        assert_eq!(second.unwrap().state, BackgroundState::Cancelled);
        known.close();
        assert_eq!(
            known.ended(&one).await.unwrap().state,
            BackgroundState::Cancelled,
            "readable after the room is over"
        );
    }

    #[test]
    fn a_room_that_stays_open_lists_the_newest_settled_tasks_and_all_others() {
        let known = RoomView::default();
        let late = |state, delivery| {
            let mut record = BackgroundRecord::clone(&record("late", state));
            record.delivery.state = delivery;
            Arc::new(record)
        };
        known.put(record("runs", BackgroundState::Running));
        known.put(late(BackgroundState::Completed, DeliveryState::Waiting));
        for number in 0..2 * SETTLED_MAX {
            known.put(record(&format!("task-{number}"), BackgroundState::Running));
            known.put(record(&format!("task-{number}"), BackgroundState::Completed));
        }
        let listed = known.tasks();
        assert_eq!(listed.len(), SETTLED_MAX + 2);
        assert_eq!((listed[0].id.as_str(), listed[1].id.as_str()), ("runs", "late"));
        assert_eq!(listed[2].id.as_str(), format!("task-{SETTLED_MAX}"));
        assert!(known.task(&BackgroundId::from("task-0")).is_none());
        // Once it is settled, it is the oldest.
        known.put(late(BackgroundState::Completed, DeliveryState::Delivered));
        assert!(known.task(&BackgroundId::from("late")).is_none());
        let state = known.lock();
        assert_eq!((state.numbers.len(), state.settled.len()), (SETTLED_MAX + 1, SETTLED_MAX));
    }

    #[tokio::test]
    async fn a_room_that_ends_leaves_nobody_waiting() {
        let known = RoomView::default();
        known.put(record("task-1", BackgroundState::Running));
        let id = BackgroundId::from("task-1");
        let (waited, ()) = tokio::join!(known.ended(&id), async { known.close() });
        assert_eq!(waited, Err(WaitError::RoomOver));
    }

    #[tokio::test]
    async fn whoever_gave_up_leaves_no_place_behind() {
        let known = RoomView::default();
        known.put(record("task-1", BackgroundState::Running));
        let id = BackgroundId::from("task-1");
        for _ in 0..100 {
            tokio::select! {
                biased;
                ended = known.ended(&id) => panic!("it runs on: {ended:?}"),
                () = std::future::ready(()) => {}
            }
        }
        assert!(known.lock().waiting[&id].len() <= 1);
    }
}
