//! The task runner of one process: each task is a loop of its own, with an optional limit on
//! concurrent tasks.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use conclave_core::types::delegation::BackgroundState;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::ids::{ControlId, RoomId};
use tokio::sync::watch;

use super::{ProgressStream, Submission, Submitted, TaskControl, TaskRunner};
use crate::driver::room_handle::WaitError;
use crate::support::clock::BoxFuture;

/// Runs background tasks in this process. Clones share their tasks.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::runner::LocalRunner;
///
/// // Whatever the rooms of this program delegate, no more than eight tasks run at once; the others wait their turn.
/// let runner = LocalRunner::with_limit(8.try_into().unwrap());
/// let options = RunOptions { runner: Arc::new(runner.clone()), ..RunOptions::default() };
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LocalRunner(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    /// The maximum number of concurrent tasks; `None` for no limit.
    limit: Option<NonZeroUsize>,
    state: Mutex<RunnerState>,
}

#[derive(Debug, Default)]
struct RunnerState {
    tasks: BTreeMap<RoomId, LocalTask>,
    /// The tasks that have not begun, oldest first; some may be stopped already.
    queue: VecDeque<RoomId>,
    /// The number of workers; each takes one task after the other.
    workers: usize,
    /// The reason why no more tasks are accepted.
    closed: Option<String>,
}

#[derive(Debug)]
struct LocalTask {
    about: Submitted,
    control: TaskControl,
    /// The submission, until the task begins.
    waiting: Option<Submission>,
    ended: watch::Sender<Option<Arc<EndedTask>>>,
}

impl LocalRunner {
    /// Returns a runner without a limit: only the limits of the rooms apply.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a runner with at most `at_once` concurrent tasks; the others are queued in order. A
    /// task that waits for one of its own keeps its permit. The limit must therefore exceed the
    /// depth to which tasks delegate and wait (`limits.run.depth`).
    #[must_use]
    pub fn with_limit(at_once: NonZeroUsize) -> Self {
        Self(Arc::new(Registry { limit: Some(at_once), state: Mutex::default() }))
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task to run; `None` if the worker is done.
    fn next(&self) -> Option<Submission> {
        let mut state = self.lock();
        while let Some(room) = state.queue.pop_front() {
            // It was stopped while it was queued.
            let Some(task) = state.tasks.get_mut(&room) else { continue };
            if let Some(waiting) = task.waiting.take() {
                task.about.state = BackgroundState::Running;
                return Some(waiting);
            }
        }
        state.workers -= 1;
        None
    }

    fn over(&self, room: &RoomId, ended: Option<Arc<EndedTask>>) {
        let removed = self.lock().tasks.remove(room);
        if let (Some(task), Some(ended)) = (removed, ended) {
            task.ended.send_replace(Some(ended));
        }
    }

    /// Removes and returns a task that has not begun.
    fn unbegun(&self, room: &RoomId) -> Option<Submission> {
        self.lock().tasks.get_mut(room)?.waiting.take()
    }

    fn stop(&self, room: &RoomId, reason: &str) -> bool {
        // Stopped outside the lock, because the parent's callback may call the runner.
        if let Some(submission) = self.unbegun(room) {
            let ended = submission.stop(reason);
            self.over(room, Some(ended));
            return true;
        }
        let control = self.lock().tasks.get(room).map(|task| task.control.clone());
        control.map(|control| control.cancel(reason)).is_some()
    }
}

/// A worker, which runs one task after the other.
struct TaskWorker {
    registry: Arc<Registry>,
    /// The task that it runs; dropped with the worker.
    room: Option<RoomId>,
    is_done: bool,
}

impl TaskWorker {
    async fn work(mut self) {
        while let Some(submission) = self.registry.next() {
            let room = submission.room().clone();
            self.room = Some(room.clone());
            // A panic drops the submission, which reports the end to the parent. The worker
            // continues.
            let ended = contained(submission.run()).await;
            self.room = None;
            self.registry.over(&room, ended);
        }
        // `next` has already reduced the number of workers.
        self.is_done = true;
    }
}

impl Drop for TaskWorker {
    fn drop(&mut self) {
        if !self.is_done {
            self.registry.lock().workers -= 1;
        }
        if let Some(room) = self.room.take() {
            self.registry.over(&room, None);
        }
    }
}

/// Returns the output of the work; `None` if it panicked.
async fn contained<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

impl TaskRunner for LocalRunner {
    fn submit(&self, submission: Submission) {
        let room = submission.room().clone();
        let mut state = self.0.lock();
        if let Some(reason) = state.closed.clone() {
            // Released first: `stop` calls back into the parent.
            drop(state);
            submission.stop(&reason);
            return;
        }
        let task = LocalTask {
            about: submission.submitted(),
            control: submission.control(),
            waiting: Some(submission),
            ended: watch::Sender::new(None),
        };
        state.tasks.insert(room.clone(), task);
        state.queue.push_back(room);
        if self.0.limit.is_none_or(|limit| state.workers < limit.get()) {
            state.workers += 1;
            let worker = TaskWorker { registry: Arc::clone(&self.0), room: None, is_done: false };
            drop(state);
            tokio::spawn(worker.work());
        }
    }

    fn cancel(&self, room: &RoomId, reason: &str) -> bool {
        self.0.stop(room, reason)
    }

    fn message(&self, room: &RoomId, id: &ControlId, text: &str) -> bool {
        self.0.lock().tasks.get(room).map(|task| task.control.tell(id, text)).is_some()
    }

    fn wait(
        &self,
        room: &RoomId,
        at_most: Option<Duration>,
    ) -> BoxFuture<'static, Result<Arc<EndedTask>, WaitError>> {
        let ended = self.0.lock().tasks.get(room).map(|task| task.ended.subscribe());
        Box::pin(async move {
            let mut ended = ended.ok_or(WaitError::Unknown)?;
            let ending = ended.wait_for(Option::is_some);
            let ending = match at_most {
                Some(at_most) => {
                    tokio::time::timeout(at_most, ending).await.map_err(|_| WaitError::TimedOut)?
                }
                None => ending.await,
            };
            ending.ok().and_then(|ended| ended.clone()).ok_or(WaitError::RoomOver)
        })
    }

    fn list(&self) -> Vec<Submitted> {
        self.0.lock().tasks.values().map(|task| task.about.clone()).collect()
    }

    fn inspect(&self, room: &RoomId) -> Option<Submitted> {
        self.0.lock().tasks.get(room).map(|task| task.about.clone())
    }

    fn progress(&self, room: &RoomId) -> Option<ProgressStream> {
        self.0.lock().tasks.get(room).map(|task| task.control.progress())
    }

    fn detach(&self, room: &RoomId) -> bool {
        self.0.lock().tasks.get_mut(room).map(|task| task.about.is_detached = true).is_some()
    }

    fn close(&self, reason: &str) -> BoxFuture<'static, ()> {
        let tasks: Vec<(RoomId, watch::Receiver<Option<Arc<EndedTask>>>)> = {
            let mut state = self.0.lock();
            state.closed.get_or_insert_with(|| reason.to_owned());
            state.tasks.iter().map(|(room, task)| (room.clone(), task.ended.subscribe())).collect()
        };
        // No task comes after these: one submitted from now on is stopped at once.
        for (room, _) in &tasks {
            self.0.stop(room, reason);
        }
        Box::pin(async move {
            for (_, mut ended) in tasks {
                // An error means that the task is gone too.
                let _ = ended.wait_for(Option::is_some).await.is_ok();
            }
        })
    }
}

#[cfg(test)]
mod tests;
