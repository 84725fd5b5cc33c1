//! The queue of the writer's thread. Callers wait only while it is full, and the thread never waits
//! for a caller, so every wait ends.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::ids::{Millis, RoomId};
use conclave_core::types::outcome::Outcome;
use conclave_core::types::usage::Spent;
use tokio::sync::{Notify, oneshot};

use super::engine::{Refusal, Taken};
#[cfg(feature = "postgres")]
use super::overlays::{ChangeAnswer, OverlayChange};
use super::{Collected, Retention};
use crate::storage::journal::{AppendFailure, JournalFailure};
use crate::storage::store::record::{EventRow, StoredBytes};
use crate::storage::store::sql::SqlError;
#[cfg(feature = "postgres")]
use crate::storage::store::sql::SqlErrorKind;

/// The number of records from which a commit is no longer delayed to collect more.
const ENOUGH: usize = 256;
/// The maximum number of records of one commit.
const GROUP_RECORDS: usize = 1_024;
/// The maximum delay of records whose consequences do not wait for them: `exit` promises that a
/// killed program loses no older ones.
const EXIT_DELAY: Duration = Duration::from_millis(2);
/// The maximum delay of everything else that no caller hurries. Nothing that leaves the host waits
/// for it, so it is long enough for most calls to end meanwhile and to share their commit.
const GROUP_DELAY: Duration = Duration::from_millis(10);
/// The maximum numbers of queued records and bytes, past which callers wait.
const FULL: usize = 4_096;
const FULL_BYTES: usize = 64 << 20;

/// The reason for a failure, cloned for each waiting caller.
#[derive(Clone, Debug)]
pub(in crate::storage::store) struct Cause {
    pub(in crate::storage::store) kind: io::ErrorKind,
    pub(in crate::storage::store) text: String,
    answer: AppendFailure,
}

impl Cause {
    pub(super) fn new(kind: io::ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), answer: AppendFailure::Other }
    }

    pub(super) fn of(error: &SqlError) -> Self {
        let answer = match error.kind {
            #[cfg(feature = "postgres")]
            SqlErrorKind::Unknown => AppendFailure::Unknown,
            _ => AppendFailure::Other,
        };
        Self { answer, ..Self::new(error.io_kind(), &*error.text) }
    }

    pub(super) fn of_refusal(refusal: Refusal) -> Self {
        let (answer, text) = match refusal {
            Refusal::Behind { next } => (
                AppendFailure::Behind,
                format!("its next record is {next}: another host has written to it"),
            ),
            Refusal::Fenced { epoch } => (
                AppendFailure::Fenced,
                format!("another host has taken the run over (epoch {epoch})"),
            ),
        };
        Self { answer, ..Self::new(io::ErrorKind::Other, text) }
    }

    pub(super) fn failure(&self, room: &RoomId, place: &str) -> JournalFailure {
        JournalFailure {
            room: room.clone(),
            place: place.to_owned(),
            answer: self.answer,
            cause: io::Error::new(self.kind, self.text.clone()),
        }
    }
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, Cause>>;

/// The state of a room that its journal and the writer's thread share.
#[derive(Debug)]
pub(super) struct RoomWriting {
    pub(super) room: RoomId,
    /// The epoch by which this process owns the room, once it does.
    epoch: OnceLock<u64>,
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The number of sent and uncommitted writes.
    waiting: usize,
    failed: Option<Cause>,
}

impl RoomWriting {
    pub(super) fn new(room: RoomId) -> Arc<Self> {
        Arc::new(Self { room, epoch: OnceLock::new(), state: Mutex::default() })
    }

    /// Notes the epoch by which this process owns the room.
    pub(super) fn own_by(&self, epoch: u64) {
        // A journal is opened once, so it has one epoch.
        let _ = self.epoch.set(epoch);
    }

    /// The epoch by which this process owns the room; 0 where no epochs are, or before it owns it.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get().copied().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failure of an earlier write, after which none is accepted: a later record would leave a
    /// gap.
    pub(super) fn failed(&self) -> Option<Cause> {
        self.state().failed.clone()
    }

    pub(super) fn fail(&self, cause: &Cause) {
        self.state().failed.get_or_insert_with(|| cause.clone());
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state().waiting > 0
    }

    pub(super) fn began(&self) {
        self.state().waiting += 1;
    }

    pub(super) fn ended(&self) {
        self.state().waiting -= 1;
    }
}

/// The columns for lists of runs, from the first record.
#[derive(Clone, Debug, Default)]
pub(super) struct Front {
    pub(super) entry: String,
    /// The names of the agents as JSON.
    pub(super) agents: String,
    pub(super) text: String,
}

/// The columns of a room that are set with its first record.
#[derive(Clone, Debug)]
pub(super) struct NewRoom {
    pub(super) durability: &'static str,
    pub(super) config: Option<String>,
    pub(super) command: String,
    pub(super) locked: bool,
    pub(super) approvals: String,
    pub(super) questions: String,
    /// The pool of workers that may take the run over; `None` if none may.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has no workers"))]
    pub(super) pool: Option<String>,
}

/// A write of one room's records.
pub(super) struct Write {
    pub(super) writing: Arc<RoomWriting>,
    pub(super) rows: Vec<EventRow>,
    pub(super) parts: Vec<StoredBytes>,
    pub(super) waits: Vec<WaitChange>,
    pub(super) new_room: Arc<NewRoom>,
    /// Set if these records open the room.
    pub(super) front: Option<Front>,
    /// The beginning of the first message from a channel in these records. It stands for the first
    /// message of a room that was opened without one.
    pub(super) inbound: Option<String>,
    /// Whether these records begin another run in the room.
    pub(super) begins: bool,
    pub(super) outcome: Option<Arc<Outcome>>,
    pub(super) spent: Spent,
    /// Whether an fsync is requested.
    pub(super) durable: bool,
    pub(super) answer: Option<Answer<()>>,
}

/// A task for the writer's thread, executed in the order of the queue.
pub(super) enum WriterTask {
    Write(Box<Write>),
    /// A snapshot of a room after the records that were written before it.
    Snapshot(Arc<RoomWriting>, Box<Unfinished>),
    Blob(StoredBytes),
    /// Takes a room for this host before its journal is read.
    Take(RoomId, Millis, Answer<Taken>),
    /// Marks the room as open in this process.
    Claim(Arc<RoomWriting>),
    /// Marks the room as closed.
    Release(Arc<RoomWriting>),
    /// Makes everything before it survive a power loss.
    Settle(Answer<()>),
    /// Makes everything before it readable.
    Barrier(Answer<()>),
    Collect(Retention, Answer<Collected>),
    /// Records a change of an overlay with its content, after the records before it.
    #[cfg(feature = "postgres")]
    Overlay(Box<OverlayChange>, Answer<ChangeAnswer>),
    /// Notes that this process stops running its rooms at this time.
    NoteStop(Millis, Answer<()>),
}

impl WriterTask {
    fn records(&self) -> usize {
        if let Self::Write(write) = self { write.rows.len() } else { 0 }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write(write) => write.rows.iter().map(|row| row.body.len()).sum::<usize>(),
            Self::Blob(part) => part.bytes.len(),
            #[cfg(feature = "postgres")]
            Self::Overlay(change, _) => {
                change.content.as_ref().map_or(0, |content| content.bytes.len())
            }
            _ => 0,
        }
    }

    fn is_awaited(&self) -> bool {
        #[cfg(feature = "postgres")]
        if let Self::Overlay(..) = self {
            return true;
        }
        matches!(
            self,
            Self::Settle(_)
                | Self::Barrier(_)
                | Self::Take(..)
                | Self::Collect(..)
                | Self::NoteStop(..)
        )
    }

    /// Whether the task is a write whose room does not wait for it.
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Write(write) if write.answer.is_none())
    }
}

#[derive(Default)]
struct PendingCommit {
    work: VecDeque<WriterTask>,
    records: usize,
    bytes: usize,
    /// Whether a caller waits for the content.
    urgent: bool,
    /// The time by which the content is committed; `None` while there is none.
    due: Option<Instant>,
    closing: bool,
    broken: Option<Cause>,
}

/// The queue between the callers and the thread.
#[derive(Default)]
pub(super) struct WriterQueue {
    waiting: Mutex<PendingCommit>,
    wake: Condvar,
    space: Condvar,
    freed: Notify,
    /// The delay instead of [`GROUP_DELAY`].
    group_delay: Option<Duration>,
}

impl WriterQueue {
    /// Returns a queue whose tasks wait this long for others to share their commit.
    pub(super) fn new(group_delay: Option<Duration>) -> Self {
        Self { group_delay, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PendingCommit> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a task, even to a full queue. Callers with records wait for [`free`](Self::free)
    /// before, so the excess is at most one batch of each room.
    ///
    /// # Errors
    /// Fails when the store accepts no more tasks.
    pub(super) fn push(&self, work: WriterTask) -> Result<(), Cause> {
        self.put(self.lock(), work)
    }

    /// Waits for space and appends a task, on a thread that may block.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub(super) fn push_when_free(&self, work: WriterTask) -> Result<(), Cause> {
        let mut waiting = self.lock();
        while waiting.is_full() {
            waiting.urgent = true;
            self.wake.notify_one();
            waiting = self.space.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        self.put(waiting, work)
    }

    fn put(
        &self,
        mut waiting: MutexGuard<'_, PendingCommit>,
        work: WriterTask,
    ) -> Result<(), Cause> {
        if let Some(broken) = &waiting.broken {
            return Err(broken.clone());
        }
        waiting.records += work.records();
        waiting.bytes += work.bytes();
        waiting.urgent |= work.is_awaited();
        let delay =
            if work.is_unanswered() { EXIT_DELAY } else { self.group_delay.unwrap_or(GROUP_DELAY) };
        let due = Instant::now() + delay;
        // The thread sleeps until the earliest time, so a later one need not wake it.
        let is_earlier = waiting.due.is_none_or(|other| due < other);
        if is_earlier {
            waiting.due = Some(due);
        }
        let is_ready = is_earlier || waiting.is_ready();
        waiting.work.push_back(work);
        drop(waiting);
        if is_ready {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until there is space. The thread never waits for a caller, so the wait ends, and it
    /// needs no executor.
    pub(super) async fn free(&self) {
        loop {
            // Registered before the check, so that space freed in between is not missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut waiting = self.lock();
                if !waiting.is_full() {
                    return;
                }
                waiting.urgent = true;
            }
            self.wake.notify_one();
            freed.await;
        }
    }

    /// Makes the thread commit at once, because a caller waits.
    pub(super) fn urge(&self) {
        let mut waiting = self.lock();
        // Without a task there is nothing to hurry, and the next one would lose its delay.
        if waiting.due.is_some() && !std::mem::replace(&mut waiting.urgent, true) {
            drop(waiting);
            self.wake.notify_one();
        }
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// Refuses all further tasks for this reason.
    pub(super) fn break_off(&self, cause: &Cause) {
        self.lock().broken.get_or_insert_with(|| cause.clone());
        self.space.notify_all();
        self.freed.notify_waiters();
    }

    /// Drops the queued tasks, so that their callers get an error.
    pub(super) fn forget(&self) {
        // Dropped without the lock, because that wakes the callers.
        let forgotten = std::mem::take(&mut self.lock().work);
        drop(forgotten);
    }

    pub(super) fn broken(&self) -> Option<Cause> {
        self.lock().broken.clone()
    }

    /// Waits for the next group of tasks; `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Vec<WriterTask>> {
        let mut waiting = self.lock();
        loop {
            let Some(due) = waiting.due else {
                if waiting.closing {
                    return None;
                }
                waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let rest = due.saturating_duration_since(Instant::now());
            if waiting.is_ready() || rest.is_zero() {
                let group = waiting.take();
                self.space.notify_all();
                self.freed.notify_waiters();
                return Some(group);
            }
            // A short delay lets more records share one commit.
            waiting =
                self.wake.wait_timeout(waiting, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl PendingCommit {
    /// Whether the content is committed without a further delay.
    fn is_ready(&self) -> bool {
        self.urgent || self.closing || self.records >= ENOUGH
    }

    /// A broken store never counts as full, so that callers get its error instead of waiting.
    fn is_full(&self) -> bool {
        self.broken.is_none() && (self.records >= FULL || self.bytes >= FULL_BYTES)
    }

    /// Takes the next group from the front; a collection and a note run alone. A snapshot ends its
    /// group, so that it is committed before any record behind it.
    fn take(&mut self) -> Vec<WriterTask> {
        let mut group = Vec::new();
        let mut records = 0;
        while let Some(work) = self.work.pop_front() {
            let is_exclusive = matches!(work, WriterTask::Collect(..) | WriterTask::NoteStop(..));
            let is_last = is_exclusive || matches!(work, WriterTask::Snapshot(..));
            if !group.is_empty() && (is_exclusive || records + work.records() > GROUP_RECORDS) {
                self.work.push_front(work);
                break;
            }
            records += work.records();
            self.records -= work.records();
            self.bytes -= work.bytes();
            group.push(work);
            if is_last {
                break;
            }
        }
        if self.work.is_empty() {
            (self.urgent, self.due) = (false, None);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(bytes: usize) -> WriterTask {
        WriterTask::Blob(StoredBytes { sha256: String::new(), bytes: vec![0; bytes].into() })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_queue_holds_up_who_waits_for_it_and_nobody_else() {
        let queue = Arc::new(WriterQueue::default());
        queue.free().await;
        queue.push(blob(FULL_BYTES)).unwrap();
        let (waits, free) = (Arc::clone(&queue), oneshot::channel());
        let waiting = tokio::spawn(async move {
            free.0.send(()).unwrap();
            waits.free().await;
        });
        // It waits, while this task runs beside it on the same thread.
        free.1.await.unwrap();
        assert!(!waiting.is_finished());
        assert!(queue.lock().urgent, "the thread is told to begin");
        assert_eq!(queue.next().unwrap().len(), 1);
        waiting.await.unwrap();
        // A broken queue delays no caller and accepts no task.
        queue.push(blob(FULL_BYTES)).unwrap();
        let waits = Arc::clone(&queue);
        let waiting = tokio::spawn(async move { waits.free().await });
        tokio::task::yield_now().await;
        queue.break_off(&Cause::new(io::ErrorKind::Other, "broken"));
        waiting.await.unwrap();
        assert_eq!(queue.push(blob(1)).unwrap_err().text, "broken");
    }
}
