//! Handles to an open room for the embedding program: messages on its channels, its background
//! tasks and its close. Each request is journalled before its reply is given. The handling of a
//! request belongs to the core.

mod commands;
mod controls;
mod requests;
mod tasks;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conclave_core::protocol::event::Event;
use conclave_core::types::channel::{Activity, Binding};
use conclave_core::types::delegation::{BackgroundRecord, Delegation};
use conclave_core::types::delivery::DeliveryRecord;
use conclave_core::types::ids::{BackgroundId, ChannelId, RoomId, TaskName};
use conclave_core::types::request::{
    Announcement, Inbound, Refusal, RefusalCode, RequestReply, RoomRequest,
};

use crate::driver::event_queue::{EventSender, WeakEventSender};
use crate::driver::runner::{ProgressStream, TaskRunner};
use crate::support::clock::Clock;

pub(crate) use controls::Controls;
pub(crate) use requests::Requests;
pub(crate) use tasks::RoomView;
pub use tasks::WaitError;

/// The state shared by a room's loop and its handles.
pub(crate) struct RoomClients {
    pub(crate) requests: Requests,
    pub(crate) controls: Controls,
    pub(crate) view: RoomView,
    runner: Arc<dyn TaskRunner>,
    clock: Arc<dyn Clock>,
}

impl RoomClients {
    pub(crate) fn new(runner: Arc<dyn TaskRunner>, clock: Arc<dyn Clock>) -> Self {
        Self {
            requests: Requests::default(),
            controls: Controls::default(),
            view: RoomView::default(),
            runner,
            clock,
        }
    }

    /// Opens the room to requests when a run begins or is resumed.
    pub(crate) fn open(&self) {
        self.requests.open();
        self.controls.open();
        self.view.open();
    }

    /// Refuses further requests: no run is active.
    pub(crate) fn close(&self) {
        self.requests.close();
        self.controls.close();
        self.view.close();
    }
}

/// A handle to a room: it stops, pauses and messages the active run, and sends requests to a room
/// that stays open. Clones refer to the same room, and none of them keeps it open.
///
/// A command such as [`stop`](Self::stop) has no reply, and no effect if no run is active. Every
/// method that sends a request is refused with `room_closed` then, or if the run ends before the
/// reply.
///
/// ```
/// use conclave_runtime::native::{self, Plugin, Step};
/// use conclave_runtime::request::RefusalCode;
/// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let echo = Plugin::agent("echo", |step: Step| async move { Ok(native::finish(step.text())) });
/// let host = Host::new(HostOptions { native: vec![echo], ..HostOptions::default() })?;
/// let config = Config::parse("a.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:echo'\n[tasks.a]\nagent = 'a'\n")?;
/// let (room, hosted) = host.load(&config).await?.open_room(RunOptions::default())?;
/// room.close("that was all").await.unwrap();
/// hosted.closed().await?;
/// assert_eq!(room.say("terminal", "Is anybody there?").await.unwrap_err().error, RefusalCode::RoomClosed);
/// # Ok(())
/// # }
/// ```
///
/// A run is stopped from elsewhere:
/// ```
/// use conclave_runtime::native::{Failure, Plugin};
/// use conclave_runtime::{Host, HostOptions, RunOptions, config::Config, outcome::Status};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let slow = Plugin::agent("slow", |_| std::future::pending::<Result<String, Failure>>());
/// let host = Host::new(HostOptions { native: vec![slow], ..HostOptions::default() })?;
/// let config = Config::parse("slow.toml", "", "entry = 'a'\n[plugins.a]\nsource = 'native:slow'\n[tasks.a]\nagent = 'a'\n")?;
/// let run = host.load(&config).await?.start(Some("Think.".to_owned()), RunOptions::default())?;
/// let handle = run.handle();
/// let running = tokio::spawn(run.outcome());
/// handle.stop("that is enough");
/// let outcome = running.await??;
/// assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Kill, "that is enough"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RoomHandle {
    room: RoomId,
    /// A weak sender: the room's loop holds the receiver and the strong sender that keeps it open.
    events: WeakEventSender,
    clients: Arc<RoomClients>,
}

impl fmt::Debug for RoomHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomHandle").field("room", &self.room).finish_non_exhaustive()
    }
}

/// A message that a room accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The index of the message in the room's timeline, which has no gaps.
    pub index: u64,
    /// Whether a message with the same key came before; `index` is then that of the first.
    pub duplicate: bool,
}

/// The delivery state of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The state of the delivery and the number of its attempts.
    pub delivery: DeliveryRecord,
    /// Whether an announcement with the same key came before.
    pub duplicate: bool,
}

/// The receipt of a delegated background task, with methods to wait for it and to stop it.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    /// The id of the task in its parent room, such as `task-1`.
    pub id: BackgroundId,
    /// The child room that the task runs in.
    pub room: RoomId,
    /// The task of the config that does the work.
    pub worker: TaskName,
    /// Whether the task took the result of an identical earlier delegation.
    pub from_cache: bool,
    parent: RoomHandle,
}

impl TaskHandle {
    /// Waits for the end of the task, as [`RoomHandle::wait`] does.
    ///
    /// # Errors
    /// As [`RoomHandle::wait`].
    pub async fn wait(
        &self,
        at_most: Option<Duration>,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        self.parent.wait(&self.id, at_most).await
    }

    /// Stops the task, as [`RoomHandle::cancel`] does.
    ///
    /// # Errors
    /// As [`RoomHandle::cancel`].
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<bool, Refusal> {
        self.parent.cancel(&self.id, reason).await
    }
}

impl RoomHandle {
    pub(crate) fn new(room: RoomId, events: &EventSender, clients: Arc<RoomClients>) -> Self {
        Self { room, events: events.downgrade(), clients }
    }

    /// The room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// Sends a request to the room. Its result is journalled before the reply is given.
    ///
    /// # Errors
    /// Returns why the request was refused; `room_closed` also if the room ends before it answers.
    pub async fn ask(&self, what: RoomRequest) -> Result<RequestReply, Refusal> {
        let (request, reply) = self.clients.requests.enter().ok_or_else(requests::room_closed)?;
        if !self.send(Event::Requested { request, what }) {
            return Err(requests::room_closed());
        }
        reply.await.unwrap_or_else(|_| Err(requests::room_closed()))
    }

    /// Accepts a message on one of the room's channels.
    ///
    /// # Errors
    /// `unknown_channel`, `no_access`, `rate_limited`, `chain_depth`, `blocked` by a gate,
    /// `room_closed`.
    pub async fn inbound(&self, inbound: Inbound) -> Result<Accepted, Refusal> {
        match self.ask(RoomRequest::Inbound { inbound }).await? {
            RequestReply::Accepted { index, duplicate } => Ok(Accepted { index, duplicate }),
            other => Err(unfit(&other)),
        }
    }

    /// Accepts a text without a sender.
    ///
    /// # Errors
    /// As [`inbound`](Self::inbound).
    pub async fn say(
        &self,
        channel: impl Into<ChannelId>,
        text: impl Into<String>,
    ) -> Result<Accepted, Refusal> {
        self.inbound(Inbound::new(channel, text)).await
    }

    /// Starts a background task on behalf of the program: no agent's grants apply, but the run's
    /// limits do. The reply is a receipt; [`wait`](Self::wait) waits for the end of the task.
    ///
    /// # Errors
    /// `unknown_agent`, `empty_task`, `limit_reached`, `channel_not_shared`, `blocked`,
    /// `room_closed`.
    pub async fn delegate(&self, delegation: Delegation) -> Result<TaskHandle, Refusal> {
        self.delegate_by(None, delegation).await
    }

    /// Starts a background task on behalf of a task, with the grants of that task's agent.
    ///
    /// # Errors
    /// As [`delegate`](Self::delegate), and `not_granted`.
    pub async fn delegate_for(
        &self,
        task: impl Into<TaskName>,
        delegation: Delegation,
    ) -> Result<TaskHandle, Refusal> {
        self.delegate_by(Some(task.into()), delegation).await
    }

    async fn delegate_by(
        &self,
        by: Option<TaskName>,
        delegation: Delegation,
    ) -> Result<TaskHandle, Refusal> {
        match self.ask(RoomRequest::Delegate { delegation: Box::new(delegation), by }).await? {
            RequestReply::Delegated { task, room, worker: agent, from_cache } => {
                Ok(TaskHandle { id: task, room, worker: agent, from_cache, parent: self.clone() })
            }
            other => Err(unfit(&other)),
        }
    }

    /// Stops a background task, even in the middle of a step. Returns false if it does not exist or
    /// had ended.
    ///
    /// # Errors
    /// `room_closed`.
    pub async fn cancel(
        &self,
        task: &BackgroundId,
        reason: impl Into<String>,
    ) -> Result<bool, Refusal> {
        match self
            .ask(RoomRequest::CancelTask { task: task.clone(), reason: reason.into() })
            .await?
        {
            RequestReply::Cancelled { cancelled } => Ok(cancelled),
            other => Err(unfit(&other)),
        }
    }

    /// Sends a message to a running background task, which its agent reads in its next step.
    ///
    /// # Errors
    /// `unknown_task`, `task_ended`, `room_closed`.
    pub async fn tell(&self, task: &BackgroundId, text: impl Into<String>) -> Result<(), Refusal> {
        self.perform(RoomRequest::TellTask { task: task.clone(), text: text.into() }).await
    }

    /// Announces a text in the room that no task there requested.
    ///
    /// # Errors
    /// `unknown_channel`, `unknown_agent`, `no_access`, `chain_depth`, `blocked`, `room_closed`.
    pub async fn announce(&self, announcement: Announcement) -> Result<Announced, Refusal> {
        match self.ask(RoomRequest::Deliver { announcement }).await? {
            RequestReply::Delivery { record, duplicate } => {
                Ok(Announced { delivery: record, duplicate })
            }
            other => Err(unfit(&other)),
        }
    }

    /// Attaches a channel to the room, or changes its permissions there.
    ///
    /// # Errors
    /// `bad_arguments`, `room_closed`.
    pub async fn bind(
        &self,
        channel: impl Into<ChannelId>,
        binding: Binding,
    ) -> Result<(), Refusal> {
        self.perform(RoomRequest::Bind { channel: channel.into(), binding: Some(binding) }).await
    }

    /// Detaches a channel; succeeds for a channel that is not attached.
    ///
    /// # Errors
    /// `room_closed`.
    pub async fn unbind(&self, channel: impl Into<ChannelId>) -> Result<(), Refusal> {
        self.perform(RoomRequest::Bind { channel: channel.into(), binding: None }).await
    }

    /// Reports the activity of a channel. Strategies that wait for quiet are asked again when it
    /// changes.
    ///
    /// # Errors
    /// `unknown_channel`, `room_closed`.
    pub async fn activity(
        &self,
        channel: impl Into<ChannelId>,
        activity: Activity,
    ) -> Result<(), Refusal> {
        self.perform(RoomRequest::Activity { channel: channel.into(), activity }).await
    }

    /// Closes the room: it accepts no more requests, and each background task ends as its
    /// `on_close` says. Closing a room that is over succeeds.
    ///
    /// # Errors
    /// None today: `room_closed`, also from a reply that could not be kept, counts as success.
    pub async fn close(&self, reason: impl Into<String>) -> Result<(), Refusal> {
        match self.perform(RoomRequest::Close { reason: reason.into() }).await {
            Err(refusal) if refusal.error == RefusalCode::RoomClosed => Ok(()),
            reply => reply,
        }
    }

    async fn perform(&self, what: RoomRequest) -> Result<(), Refusal> {
        self.ask(what).await.map(drop)
    }

    /// The room's background tasks in the order in which they began. Of those that have ended and
    /// whose result was delivered, the newest thousand are included. It works after the room is
    /// over, and sends no request.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<BackgroundRecord>> {
        self.clients.view.tasks()
    }

    /// One background task, under the same conditions.
    #[must_use]
    pub fn task(&self, id: &BackgroundId) -> Option<Arc<BackgroundRecord>> {
        self.clients.view.task(id)
    }

    /// Waits for the end of a task, but not for the delivery of its result, which has its own
    /// record. The wait never affects the task. `at_most` is measured by the run's clock.
    ///
    /// # Errors
    /// `TimedOut`, `Unknown`, `RoomOver`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use conclave_runtime::ids::BackgroundId;
    /// use conclave_runtime::{RoomHandle, WaitError};
    ///
    /// /// Says so when it takes long.
    /// async fn patient(room: &RoomHandle, task: &BackgroundId) -> Result<String, WaitError> {
    ///     let ended = match room.wait(task, Some(Duration::from_secs(10))).await {
    ///         Err(WaitError::TimedOut) => {
    ///             let _ = room.say("terminal", "This takes a little longer.").await;
    ///             room.wait(task, None).await?
    ///         }
    ///         ended => ended?,
    ///     };
    ///     Ok(ended.output.clone().unwrap_or_default())
    /// }
    /// ```
    pub async fn wait(
        &self,
        id: &BackgroundId,
        at_most: Option<Duration>,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        let ended = self.clients.view.ended(id);
        let Some(at_most) = at_most else { return ended.await };
        let clock = &self.clients.clock;
        let at = clock.now().plus(u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX));
        tokio::select! {
            biased;
            ended = ended => ended,
            () = clock.sleep_until(at) => Err(WaitError::TimedOut),
        }
    }

    /// The progress of a background task's plugins from now on; `None` if the task does not run
    /// here.
    #[must_use]
    pub fn progress(&self, id: &BackgroundId) -> Option<ProgressStream> {
        let task = self.task(id)?;
        self.clients.runner.progress(&task.room)
    }

    /// The current channel bindings of the room, also after it is over.
    #[must_use]
    pub fn bindings(&self) -> Arc<BTreeMap<ChannelId, Binding>> {
        self.clients.view.bindings()
    }
}

/// The refusal for a reply of the wrong kind, which is a bug of the host.
fn unfit(reply: &RequestReply) -> Refusal {
    Refusal::new(
        RefusalCode::Busy,
        format!("the host gave a reply that does not belong to the request: {reply:?}"),
    )
}
