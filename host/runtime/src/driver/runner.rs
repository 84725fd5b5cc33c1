//! Task runners, which run background tasks: each task is a child room with its own loop. A runner
//! starts, stops and lists tasks. The event log holds what a task did and how it ended, so losing a
//! runner with its host loses nothing. A task's permissions and the delivery of its result belong
//! to the parent room.

mod local;
mod progress;
mod submission;

use std::sync::Arc;
use std::time::Duration;

use conclave_core::types::delegation::BackgroundState;
use conclave_core::types::delivery::EndedTask;
use conclave_core::types::ids::{BackgroundId, ControlId, RoomId, TaskName};

use crate::driver::room_handle::WaitError;
use crate::support::clock::BoxFuture;

pub use local::LocalRunner;
pub use progress::{ProgressStream, TaskProgress};
pub use submission::{Submission, TaskControl, TaskEnd};

pub(crate) use progress::Progressing;
pub(crate) use submission::{Child, EndReporter, Lease, Leased};

/// Runs background tasks, for any number of rooms. A task is identified by its child room, whose
/// name is never reused.
///
/// [`LocalRunner`] is the default and runs tasks in this process. A runner over several machines
/// uses a broker such as NATS JetStream and an event log that all machines can reach:
///
/// 1. `submit` publishes [`Submission::opening`] under the child room's name, by which the broker
///    removes duplicates. It keeps the submission, whose own [`run`](Submission::run) is for
///    workers in this process.
/// 2. A worker on another machine, with the same config, opens that room over the shared log. It
///    runs the room to its end and publishes the [`TaskEnd`], which can be serialised. If it dies,
///    the broker redelivers the message, and another worker resumes the room from its log.
/// 3. The runner that submitted passes the answer to [`Submission::finish`]. If it has died too,
///    the parent is resumed from its log and submits the same child again. A worker that finds the
///    room ended publishes the end from the log.
/// 4. `cancel` and `message` are published under the child room's name, and the worker passes them
///    to the room.
///
/// The broker only carries messages and the log decides: if the broker repeats or loses a message,
/// a room still has one end.
pub trait TaskRunner: Send + Sync + 'static {
    /// Accepts a task. It must be passed to [`run`](Submission::run),
    /// [`finish`](Submission::finish) or [`stop`](Submission::stop), or be dropped; its parent gets
    /// exactly one end in each case.
    fn submit(&self, submission: Submission);

    /// Stops a task, even in the middle of a step. Returns false if it is not here. Its end is
    /// reported as usual.
    fn cancel(&self, room: &RoomId, reason: &str) -> bool;

    /// Sends a message to a task; returns false if it is not here. The id goes to the room with the
    /// text. A message repeated under the same id, such as after a host restart, is handled once.
    fn message(&self, room: &RoomId, id: &ControlId, text: &str) -> bool;

    /// Waits until a task has ended. The wait never affects the task.
    ///
    /// # Errors
    /// `Unknown` if the task is not here (the log has ended ones), `TimedOut` if the time is up.
    fn wait(
        &self,
        room: &RoomId,
        at_most: Option<Duration>,
    ) -> BoxFuture<'static, Result<Arc<EndedTask>, WaitError>>;

    /// The tasks that are here, ordered by the names of their rooms.
    fn list(&self) -> Vec<Submitted>;

    /// One task; `None` if it is not here.
    fn inspect(&self, room: &RoomId) -> Option<Submitted>;

    /// The progress of a task's plugins from now on; `None` if the task is not here.
    fn progress(&self, room: &RoomId) -> Option<ProgressStream>;

    /// Detaches a task from its parent; returns false if it is not here.
    fn detach(&self, room: &RoomId) -> bool;

    /// Accepts no more tasks, stops the present ones, and waits until none is left. Tasks submitted
    /// meanwhile are stopped too.
    fn close(&self, reason: &str) -> BoxFuture<'static, ()>;
}

/// A task that a runner holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The child room.
    pub room: RoomId,
    /// The parent room.
    pub parent: RoomId,
    /// The id of the task in the parent room.
    pub id: BackgroundId,
    /// The task of the config that does the work.
    pub worker: TaskName,
    /// `Pending` while it is queued, then `Running`.
    pub state: BackgroundState,
    /// Whether its parent no longer waits for it.
    pub is_detached: bool,
}
