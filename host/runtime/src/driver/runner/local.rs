//! The runner of one process: each task is a loop beside the others, at most so many at once.

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

use super::{ProgressStream, Reins, Submission, Submitted, TaskRunner};
use crate::driver::room_handle::WaitError;
use crate::support::clock::BoxFuture;

/// Runs background tasks in this process. Clones run the same tasks.
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
    /// Tasks that run at once; none: any number.
    limit: Option<NonZeroUsize>,
    state: Mutex<RunnerState>,
}

#[derive(Debug, Default)]
struct RunnerState {
    here: BTreeMap<RoomId, Here>,
    /// Those that have not begun, oldest first; some may be stopped already.
    queue: VecDeque<RoomId>,
    /// Loops that take one task after the other.
    workers: usize,
    /// Why nothing is taken any more.
    closed: Option<String>,
}

#[derive(Debug)]
struct Here {
    about: Submitted,
    reins: Reins,
    /// Until it begins.
    waiting: Option<Submission>,
    ended: watch::Sender<Option<Arc<EndedTask>>>,
}

impl LocalRunner {
    /// Any number of tasks at once: what a room may have under way its limits say.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many at once; the others wait, first come, first served. A task that waits for
    /// one of its own holds its place meanwhile, so a limit must be greater than the depth to which
    /// tasks delegate and wait (`limits.run.depth`).
    #[must_use]
    pub fn with_limit(at_once: NonZeroUsize) -> Self {
        Self(Arc::new(Registry { limit: Some(at_once), state: Mutex::default() }))
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next task to run here; none: the worker is done.
    fn next(&self) -> Option<Submission> {
        let mut state = self.lock();
        while let Some(room) = state.queue.pop_front() {
            let Some(here) = state.here.get_mut(&room) else { continue };
            if let Some(waiting) = here.waiting.take() {
                here.about.state = BackgroundState::Running;
                return Some(waiting);
            }
        }
        state.workers -= 1;
        None
    }

    fn over(&self, room: &RoomId, ended: Option<Arc<EndedTask>>) {
        let gone = self.lock().here.remove(room);
        if let (Some(here), Some(ended)) = (gone, ended) {
            here.ended.send_replace(Some(ended));
        }
    }

    /// Takes it out of those that have not begun.
    fn unbegun(&self, room: &RoomId) -> Option<Submission> {
        self.lock().here.get_mut(room)?.waiting.take()
    }

    fn stop(&self, room: &RoomId, reason: &str) -> bool {
        // Stopped outside the lock: whoever is told may ask the runner something.
        if let Some(submission) = self.unbegun(room) {
            let ended = submission.stop(reason);
            self.over(room, Some(ended));
            return true;
        }
        let reins = self.lock().here.get(room).map(|here| here.reins.clone());
        reins.map(|reins| reins.cancel(reason)).is_some()
    }
}

/// Takes one task after the other.
struct TaskWorker {
    registry: Arc<Registry>,
    /// What it has taken; when the worker is dropped, so is that.
    room: Option<RoomId>,
    is_done: bool,
}

impl TaskWorker {
    async fn work(mut self) {
        while let Some(submission) = self.registry.next() {
            let room = submission.room().clone();
            self.room = Some(room.clone());
            // A panic drops the submission, which tells the parent; the worker goes on.
            let ended = contained(submission.run()).await;
            self.room = None;
            self.registry.over(&room, ended);
        }
        // It was counted out where it was found that nothing waits.
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

/// None when the work panicked.
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
            drop(state);
            submission.stop(&reason);
            return;
        }
        let here = Here {
            about: submission.submitted(),
            reins: submission.reins(),
            waiting: Some(submission),
            ended: watch::Sender::new(None),
        };
        state.here.insert(room.clone(), here);
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
        self.0.lock().here.get(room).map(|here| here.reins.tell(id, text)).is_some()
    }

    fn wait(
        &self,
        room: &RoomId,
        at_most: Option<Duration>,
    ) -> BoxFuture<'static, Result<Arc<EndedTask>, WaitError>> {
        let ended = self.0.lock().here.get(room).map(|here| here.ended.subscribe());
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
        self.0.lock().here.values().map(|here| here.about.clone()).collect()
    }

    fn inspect(&self, room: &RoomId) -> Option<Submitted> {
        self.0.lock().here.get(room).map(|here| here.about.clone())
    }

    fn progress(&self, room: &RoomId) -> Option<ProgressStream> {
        self.0.lock().here.get(room).map(|here| here.reins.progress())
    }

    fn detach(&self, room: &RoomId) -> bool {
        self.0.lock().here.get_mut(room).map(|here| here.about.is_detached = true).is_some()
    }

    fn close(&self, reason: &str) -> BoxFuture<'static, ()> {
        let here: Vec<(RoomId, watch::Receiver<Option<Arc<EndedTask>>>)> = {
            let mut state = self.0.lock();
            state.closed.get_or_insert_with(|| reason.to_owned());
            state.here.iter().map(|(room, here)| (room.clone(), here.ended.subscribe())).collect()
        };
        // None comes after these: what is submitted from now on is stopped at once.
        for (room, _) in &here {
            self.0.stop(room, reason);
        }
        Box::pin(async move {
            for (_, mut ended) in here {
                // An error means that it is gone too.
                let _ = ended.wait_for(Option::is_some).await.is_ok();
            }
        })
    }
}

#[cfg(test)]
mod tests;
