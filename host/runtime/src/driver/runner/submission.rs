//! A task on its way to the code that runs it. The parent gets exactly one end, however the task
//! ends: by itself, by a panic or by being dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_core::protocol::control::ControlCommand;
use conclave_core::protocol::event::RunOpening;
use conclave_core::types::approval::ApprovalAuthor;
use conclave_core::types::delegation::BackgroundState;
use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use conclave_core::types::ids::{BackgroundId, ControlId, RoomId};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{ProgressStream, Progressing, Submitted};
use crate::driver::room_handle::RoomHandle;
use crate::support::clock::BoxFuture;

/// The end of a background task, and its usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// The status and output of the task.
    pub task: EndedTask,
    /// The total usage of the task, which counts against its parent's limits.
    pub spent: Spent,
    /// The usage by plugin; empty if the task was interrupted.
    pub used: UsedByPlugin,
}

/// The callback for the end; called once.
type Told = Box<dyn FnOnce(TaskEnd) + Send>;

/// Reports the end of a task. When dropped without one, it reports an interrupted task.
pub(crate) struct EndReporter {
    tell: Option<Told>,
    /// The usage reported for a task that broke off inside the host. Its real usage is unknown, so
    /// its whole reservation counts.
    limits: Spent,
}

impl EndReporter {
    pub(crate) fn new(limits: Spent, tell: impl FnOnce(TaskEnd) + Send + 'static) -> Self {
        Self { tell: Some(Box::new(tell)), limits }
    }

    pub(crate) fn finish(mut self, ended: TaskEnd) {
        if let Some(tell) = self.tell.take() {
            tell(ended);
        }
    }

    fn report_broken_off(&mut self, reason: String) {
        if let Some(tell) = self.tell.take() {
            tell(TaskEnd {
                task: EndedTask::interrupted(reason),
                spent: self.limits,
                used: UsedByPlugin::new(),
            });
        }
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        self.report_broken_off("its loop broke off inside the host".to_owned());
    }
}

/// The parent room's end of a running task. Dropping it drops the task, unless the task was
/// detached before.
#[derive(Debug)]
pub(crate) struct Lease {
    detach: oneshot::Sender<()>,
    over: oneshot::Receiver<()>,
    is_awaited: Arc<AtomicBool>,
}

/// The task's end of a [`Lease`].
#[derive(Debug)]
pub(crate) struct Leased {
    parent: oneshot::Receiver<()>,
    /// Dropped when the task is over, which resolves [`Lease::over`].
    _over: oneshot::Sender<()>,
}

impl Lease {
    pub(crate) fn new() -> (Self, Leased) {
        let ((detach, parent), (alive, over)) = (oneshot::channel(), oneshot::channel());
        (
            Self { detach, over, is_awaited: Arc::new(AtomicBool::new(true)) },
            Leased { parent, _over: alive },
        )
    }

    /// The flag that is true until the task is detached; its end is not reported after that.
    pub(crate) fn is_awaited(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_awaited)
    }

    /// Detaches the task: it runs without its parent.
    pub(crate) fn detach(self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        // The task may have ended.
        let _ = self.detach.send(());
    }

    /// Waits until the task is over and its journal complete.
    pub(crate) async fn over(&mut self) {
        let _ = (&mut self.over).await;
    }
}

impl Leased {
    /// Resolves when the parent is gone without having detached the task.
    pub(crate) async fn given_up(&mut self) {
        if (&mut self.parent).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// Controls a running task. Calls have no effect once it has ended.
#[derive(Clone, Debug)]
pub struct TaskControl {
    room: RoomHandle,
    progressing: Progressing,
}

impl TaskControl {
    /// Stops the task, even in the middle of a step.
    pub fn cancel(&self, reason: &str) {
        self.room.stop(reason);
    }

    /// Sends a message to the task, which its agent reads in its next step. A message repeated
    /// under the same id is read once.
    pub fn tell(&self, id: &ControlId, text: &str) {
        let tell = ControlCommand::Tell { task: None, text: text.to_owned() };
        self.room.control_once(id, tell, ApprovalAuthor::Program);
    }

    /// The progress of the task's plugins from now on.
    #[must_use]
    pub fn progress(&self) -> ProgressStream {
        self.progressing.follow()
    }
}

/// The child room of a submission.
pub(crate) struct Child {
    pub(crate) parent: RoomId,
    pub(crate) id: BackgroundId,
    pub(crate) opening: Box<RunOpening>,
    pub(crate) handle: RoomHandle,
    pub(crate) progressing: Progressing,
}

/// A background task that is to be run: a child room with its loop, and the reporter of its end.
pub struct Submission {
    parent: RoomId,
    id: BackgroundId,
    opening: Box<RunOpening>,
    control: TaskControl,
    run: BoxFuture<'static, TaskEnd>,
    place: EndReporter,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("room", self.room())
            .field("parent", &self.parent)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Submission {
    pub(crate) fn new(child: Child, run: BoxFuture<'static, TaskEnd>, place: EndReporter) -> Self {
        let Child { parent, id, opening, handle, progressing } = child;
        let control = TaskControl { room: handle, progressing };
        Self { parent, id, opening, control, run, place }
    }

    /// The child room.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.opening.room
    }

    /// The opening of the child room, for a runner that opens it elsewhere.
    #[must_use]
    pub fn opening(&self) -> &RunOpening {
        &self.opening
    }

    /// The entry that a runner lists before the task runs.
    #[must_use]
    pub fn submitted(&self) -> Submitted {
        Submitted {
            room: self.room().clone(),
            parent: self.parent.clone(),
            id: self.id.clone(),
            worker: self.opening.entry.clone(),
            state: BackgroundState::Pending,
            is_detached: false,
        }
    }

    /// The controls of the task; they work before it runs too.
    #[must_use]
    pub fn control(&self) -> TaskControl {
        self.control.clone()
    }

    /// Runs the child room to its end in this process. The parent gets the end when the future
    /// completes or is dropped.
    pub async fn run(self) -> Arc<EndedTask> {
        let Self { run, place, .. } = self;
        let ended = run.await;
        let task = Arc::new(ended.task.clone());
        place.finish(ended);
        task
    }

    /// Reports the end of a task that ran elsewhere.
    pub fn finish(self, ended: TaskEnd) {
        let Self { run, place, .. } = self;
        // Dropped first, so that the child is over before its parent receives the end.
        drop(run);
        place.finish(ended);
    }

    /// Stops the task before it began; its usage is zero.
    pub fn stop(self, reason: &str) -> Arc<EndedTask> {
        let task = EndedTask {
            status: BackgroundStatus::Cancelled,
            ..EndedTask::interrupted(reason.to_owned())
        };
        let reported = Arc::new(task.clone());
        self.finish(TaskEnd { task, spent: Spent::default(), used: UsedByPlugin::new() });
        reported
    }
}
