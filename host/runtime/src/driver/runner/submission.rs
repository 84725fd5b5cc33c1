//! A task on its way to whoever runs it. However it ends, by itself, by a panic, by being dropped,
//! its parent is told once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conclave_core::protocol::event::{Event, RunOpening};
use conclave_core::types::delegation::BackgroundState;
use conclave_core::types::delivery::{BackgroundStatus, EndedTask};
use conclave_core::types::ids::{BackgroundId, ControlId, RoomId};
use conclave_core::types::usage::{Spent, UsedByPlugin};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::{ProgressStream, Progressing, Submitted};
use crate::support::clock::BoxFuture;

/// How a background task ended, and what it used up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskEnd {
    pub task: EndedTask,
    pub spent: Spent,
    pub used: UsedByPlugin,
}

/// Told of the end; called once.
type Told = Box<dyn FnOnce(TaskEnd) + Send>;

/// Tells the end, with the fallback when nobody else has.
pub(crate) struct EndReporter {
    tell: Option<Told>,
    /// What is told when the task broke off inside the host: nobody can say what it used, so all
    /// that was set aside for it counts.
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

/// What a parent room holds of a task that runs for it: without it the task is dropped, unless it
/// was let go before.
#[derive(Debug)]
pub(crate) struct Lease {
    detach: oneshot::Sender<()>,
    over: oneshot::Receiver<()>,
    is_awaited: Arc<AtomicBool>,
}

/// The other end, which the task holds.
#[derive(Debug)]
pub(crate) struct Leased {
    parent: oneshot::Receiver<()>,
    /// Dropped when the task is over.
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

    /// False once it goes on alone: nobody is told of its end.
    pub(crate) fn is_awaited(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_awaited)
    }

    /// The task goes on alone.
    pub(crate) fn detach(self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        // It may be over.
        let _ = self.detach.send(());
    }

    /// Waits until the task is over, its journal whole.
    pub(crate) async fn over(&mut self) {
        let _ = (&mut self.over).await;
    }
}

impl Leased {
    /// Comes to an end when the parent is gone and did not let the task go on.
    pub(crate) async fn given_up(&mut self) {
        if (&mut self.parent).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// Speaks to a task that runs. It may be over; then nobody hears it.
#[derive(Clone)]
pub struct Reins {
    events: UnboundedSender<Event>,
    progressing: Progressing,
}

impl Reins {
    /// Stops it, also in the middle of a step.
    pub fn cancel(&self, reason: &str) {
        let _ = self.events.send(Event::Cancelled { reason: reason.to_owned() });
    }

    /// Says something to it; its agent reads it in its next step, once however often it comes under
    /// this id.
    pub fn tell(&self, id: &ControlId, text: &str) {
        let message = Box::new(Event::UserSaid {
            task: None,
            text: text.to_owned(),
            attachments: Vec::new(),
        });
        let _ = self.events.send(Event::ControlReceived { id: id.clone(), message });
    }

    /// What its guests say of their progress from now on.
    #[must_use]
    pub fn progress(&self) -> ProgressStream {
        self.progressing.follow()
    }
}

impl fmt::Debug for Reins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reins").finish_non_exhaustive()
    }
}

/// What a submission is about.
pub(crate) struct Child {
    pub(crate) parent: RoomId,
    pub(crate) id: BackgroundId,
    pub(crate) opening: Box<RunOpening>,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) progressing: Progressing,
}

/// A background task that is to be run: a child room with its loop, and whoever waits for its end.
pub struct Submission {
    parent: RoomId,
    id: BackgroundId,
    opening: Box<RunOpening>,
    reins: Reins,
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
        let Child { parent, id, opening, events, progressing } = child;
        Self { parent, id, opening, reins: Reins { events, progressing }, run, place }
    }

    /// The child room.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.opening.room
    }

    /// What the child room begins with, for a runner that has it opened elsewhere.
    #[must_use]
    pub fn opening(&self) -> &RunOpening {
        &self.opening
    }

    /// As a runner lists it before it runs.
    #[must_use]
    pub fn submitted(&self) -> Submitted {
        Submitted {
            room: self.room().clone(),
            parent: self.parent.clone(),
            id: self.id.clone(),
            agent: self.opening.entry.clone(),
            state: BackgroundState::Pending,
            is_detached: false,
        }
    }

    /// What speaks to it; before it runs too.
    #[must_use]
    pub fn reins(&self) -> Reins {
        self.reins.clone()
    }

    /// Runs the child room to its end, here. Its parent is told when the future has ended or is
    /// dropped.
    pub async fn run(self) -> Arc<EndedTask> {
        let Self { run, place, .. } = self;
        let ended = run.await;
        let task = Arc::new(ended.task.clone());
        place.finish(ended);
        task
    }

    /// It ran elsewhere.
    pub fn finish(self, ended: TaskEnd) {
        let Self { run, place, .. } = self;
        // The child is over before its parent hears of it.
        drop(run);
        place.finish(ended);
    }

    /// It is stopped before it began: it used nothing.
    pub fn stop(self, reason: &str) -> Arc<EndedTask> {
        let task = EndedTask {
            status: BackgroundStatus::Cancelled,
            ..EndedTask::interrupted(reason.to_owned())
        };
        let told = Arc::new(task.clone());
        self.finish(TaskEnd { task, spent: Spent::default(), used: UsedByPlugin::new() });
        told
    }
}
