//! Where background tasks run: each is a child room with a loop of its own. A runner starts, stops
//! and lists them, and holds no truth: what a task did and how it ended is in the event log, so a
//! runner that is lost with its host loses nothing. Not what a task is allowed, nor what becomes of
//! its result, which are its parent room's.

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
pub use submission::{Reins, Submission, TaskEnd};

pub(crate) use progress::Progressing;
pub(crate) use submission::{Child, EndReporter, Lease};

/// Runs background tasks, for any number of rooms. Tasks are told apart by their child room, whose
/// name is never used twice.
///
/// [`LocalRunner`] is the default, and runs them in this process. One that spreads them over
/// machines by a broker (NATS JetStream, say) plugs in here, with an event log that all machines
/// reach:
///
/// 1. `submit` publishes [`Submission::opening`] under the child room's name (the broker drops a
///    second message of that name), and keeps the submission, whose own [`run`](Submission::run) is
///    for whoever works in this process.
/// 2. A worker on another machine, with the same config, opens that room over the shared log, runs
///    it to its end, and publishes the [`Ended`], which can be serialised. One that dies is
///    replaced: the message comes again, and the room is gone on with from its log.
/// 3. The runner that submitted hands the answer to [`Submission::finish`]. Should it have died
///    too, the parent is gone on with from its log, and submits the same child again; a worker that
///    finds the room over publishes the end that the log holds.
/// 4. `cancel` and `message` are published under the child room's name, and the worker hands them
///    to the room.
///
/// So the broker carries, and the log decides: whatever the broker repeats or loses, a room has one
/// end.
pub trait TaskRunner: Send + Sync + 'static {
    /// Takes a task. It must come to [`run`](Submission::run), [`finish`](Submission::finish) or
    /// [`stop`](Submission::stop), or be dropped, and its parent gets one end in each case.
    fn submit(&self, submission: Submission);

    /// Stops a task, also in the middle of a step; false when it is not here. Its end is told as
    /// ever.
    fn cancel(&self, room: &RoomId, reason: &str) -> bool;

    /// Says something to a task; false when it is not here. What comes under the same id again,
    /// because a host went on after it had stopped, is heard once: the id goes to the room with the
    /// text.
    fn message(&self, room: &RoomId, id: &ControlId, text: &str) -> bool;

    /// Waits until a task is over, and leaves it alone whatever comes of that.
    ///
    /// # Errors
    /// `Unknown` when it is not here (the log has those that are over), `TimedOut`.
    fn wait(
        &self,
        room: &RoomId,
        at_most: Option<Duration>,
    ) -> BoxFuture<'static, Result<Arc<EndedTask>, WaitError>>;

    /// The tasks that are here, in order of their rooms' names.
    fn list(&self) -> Vec<Submitted>;

    /// One of them; none when it is not here.
    fn inspect(&self, room: &RoomId) -> Option<Submitted>;

    /// What its guests say of their progress from now on; none when it is not here.
    fn progress(&self, room: &RoomId) -> Option<ProgressStream>;

    /// From now on it goes on without its parent; false when it is not here.
    fn detach(&self, room: &RoomId) -> bool;

    /// Takes no more tasks, stops those that are here, those submitted meanwhile too, and waits
    /// until none is left.
    fn close(&self, reason: &str) -> BoxFuture<'static, ()>;
}

/// A task that a runner has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The child room.
    pub room: RoomId,
    /// The room that wants it done.
    pub parent: RoomId,
    /// What it is called there.
    pub id: BackgroundId,
    /// The task of the config that works.
    pub agent: TaskName,
    /// `Pending` while it waits for its turn, then `Running`.
    pub state: BackgroundState,
    /// Its parent does not wait for it any more.
    pub is_detached: bool,
}
