//! A room that is open, as the program around the host speaks to it: messages on its channels,
//! tasks in its background, its close. Each request is journalled before its reply is given. Not
//! what a room does with it, which is the core's.

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
    Announcement, Inbound, Refusal, RefusalCode, RequestId, RequestReply, RoomRequest,
};
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

use crate::driver::runner::{ProgressStream, TaskRunner};
use crate::support::clock::Clock;

pub(crate) use controls::Controls;
pub(crate) use requests::{Requests, next_request};
pub(crate) use tasks::RoomView;
pub use tasks::WaitError;

/// What a room's loop and its handles share.
pub(crate) struct RoomClients {
    pub(crate) requests: Requests,
    pub(crate) controls: Controls,
    pub(crate) known: RoomView,
    runner: Arc<dyn TaskRunner>,
    clock: Arc<dyn Clock>,
}

impl RoomClients {
    pub(crate) fn new(runner: Arc<dyn TaskRunner>, clock: Arc<dyn Clock>) -> Self {
        Self {
            requests: Requests::default(),
            controls: Controls::default(),
            known: RoomView::default(),
            runner,
            clock,
        }
    }

    /// A run begins, or goes on.
    pub(crate) fn open(&self) {
        self.requests.open();
        self.controls.open();
        self.known.open();
    }

    /// No run goes on any more.
    pub(crate) fn close(&self) {
        self.requests.close();
        self.controls.close();
        self.known.close();
    }
}

/// Speaks to a room while it is open. Clones speak to the same; none of them holds the room open.
/// [`Prepared::open_room`] gives one, and [`Session::handle`].
///
/// Every method that asks something is refused with `room_closed` when no run goes on in the room,
/// or none goes on any more when the reply would come.
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
/// [`Prepared::open_room`]: crate::Prepared::open_room
/// [`Session::handle`]: crate::Session::handle
#[derive(Clone)]
pub struct RoomHandle {
    room: RoomId,
    /// The room's loop holds the other end, and one like it that keeps it open.
    events: WeakUnboundedSender<Event>,
    outside: Arc<RoomClients>,
}

impl fmt::Debug for RoomHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomHandle").field("room", &self.room).finish_non_exhaustive()
    }
}

/// A message that a room took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its number in the room's timeline, without gaps.
    pub index: u64,
    /// It came before, under the same key; the number is that of the first.
    pub duplicate: bool,
}

/// What became of an announcement so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub delivery: DeliveryRecord,
    /// It came before, under the same key.
    pub duplicate: bool,
}

/// A background task that was asked for: the receipt, and ways to wait for it and to stop it.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    pub id: BackgroundId,
    /// The child room that it works in.
    pub room: RoomId,
    pub agent: TaskName,
    /// The same was delegated before, and has its result.
    pub from_cache: bool,
    parent: RoomHandle,
}

impl TaskHandle {
    /// Waits for its end, as [`RoomHandle::wait`].
    ///
    /// # Errors
    /// As there.
    pub async fn wait(
        &self,
        at_most: Option<Duration>,
    ) -> Result<Arc<BackgroundRecord>, WaitError> {
        self.parent.wait(&self.id, at_most).await
    }

    /// Stops it, as [`RoomHandle::cancel`].
    ///
    /// # Errors
    /// As there.
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<bool, Refusal> {
        self.parent.cancel(&self.id, reason).await
    }
}

impl RoomHandle {
    pub(crate) fn new(
        room: RoomId,
        events: &UnboundedSender<Event>,
        outside: Arc<RoomClients>,
    ) -> Self {
        Self { room, events: events.downgrade(), outside }
    }

    /// The room's id.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// Asks something of the room. The journal holds what came of it when the reply is there.
    ///
    /// # Errors
    /// Why it came to nothing; `room_closed` too when the room is over before it answers.
    pub async fn ask(&self, what: RoomRequest) -> Result<RequestReply, Refusal> {
        let (request, reply) = self.outside.requests.enter().ok_or_else(requests::over)?;
        let sent = self
            .events
            .upgrade()
            .is_some_and(|events| events.send(Event::Requested { request, what }).is_ok());
        if !sent {
            return Err(requests::over());
        }
        reply.await.unwrap_or_else(|_| Err(requests::over()))
    }

    /// The same, and nobody waits for a reply.
    pub(crate) fn notify(&self, what: RoomRequest) {
        if let Some(events) = self.events.upgrade() {
            let _ = events.send(Event::Requested { request: RequestId::NO_REPLY, what });
        }
    }

    /// Takes a message in on one of the room's channels.
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

    /// The same for a text of nobody in particular.
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

    /// Starts a background task on the program's own behalf: no agent's grants count, the run's
    /// limits do. The reply is a receipt; the task's end is waited for with [`wait`](Self::wait).
    ///
    /// # Errors
    /// `unknown_agent`, `empty_task`, `limit_reached`, `channel_not_shared`, `blocked`,
    /// `room_closed`.
    pub async fn delegate(&self, delegation: Delegation) -> Result<TaskHandle, Refusal> {
        self.delegate_by(None, delegation).await
    }

    /// The same on behalf of a task, whose agent's grants then count.
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
            RequestReply::Delegated { task, room, agent, from_cache } => {
                Ok(TaskHandle { id: task, room, agent, from_cache, parent: self.clone() })
            }
            other => Err(unfit(&other)),
        }
    }

    /// Stops a background task, also in the middle of a step; false when there is none of that
    /// name, or it had ended.
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

    /// Says something to a background task that runs; its agent reads it in its next step.
    ///
    /// # Errors
    /// `unknown_task`, `task_ended`, `room_closed`.
    pub async fn tell(&self, task: &BackgroundId, text: impl Into<String>) -> Result<(), Refusal> {
        self.done(RoomRequest::TellTask { task: task.clone(), text: text.into() }).await
    }

    /// Tells something in the room that nobody there asked for.
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

    /// Attaches a channel to the room, or changes what it may do there.
    ///
    /// # Errors
    /// `bad_arguments`, `room_closed`.
    pub async fn bind(
        &self,
        channel: impl Into<ChannelId>,
        binding: Binding,
    ) -> Result<(), Refusal> {
        self.done(RoomRequest::Bind { channel: channel.into(), binding: Some(binding) }).await
    }

    /// Detaches a channel; one that is not attached is detached already.
    ///
    /// # Errors
    /// `room_closed`.
    pub async fn unbind(&self, channel: impl Into<ChannelId>) -> Result<(), Refusal> {
        self.done(RoomRequest::Bind { channel: channel.into(), binding: None }).await
    }

    /// Reports what keeps a channel busy: strategies that wait for quiet are asked again when it
    /// changes.
    ///
    /// # Errors
    /// `unknown_channel`, `room_closed`.
    pub async fn activity(
        &self,
        channel: impl Into<ChannelId>,
        activity: Activity,
    ) -> Result<(), Refusal> {
        self.done(RoomRequest::Activity { channel: channel.into(), activity }).await
    }

    /// Closes the room: it takes nothing new, and each background task goes the way of its
    /// `on_close`. A room that is over is closed.
    ///
    /// # Errors
    /// None today; a reply that could not be kept is `room_closed`, which this takes as done.
    pub async fn close(&self, reason: impl Into<String>) -> Result<(), Refusal> {
        match self.done(RoomRequest::Close { reason: reason.into() }).await {
            Err(refusal) if refusal.error == RefusalCode::RoomClosed => Ok(()),
            done => done,
        }
    }

    async fn done(&self, what: RoomRequest) -> Result<(), Refusal> {
        self.ask(what).await.map(drop)
    }

    /// The background tasks of the room, ended ones included, in the order in which they began;
    /// also after the room is over. Asks nothing of the room, so nothing is journalled.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<BackgroundRecord>> {
        self.outside.known.tasks()
    }

    /// One of them; likewise.
    #[must_use]
    pub fn task(&self, id: &BackgroundId) -> Option<Arc<BackgroundRecord>> {
        self.outside.known.task(id)
    }

    /// Waits for the end of a task, and not for the delivery of its result, which has a record of
    /// its own. However the wait ends, the task is left alone. `at_most` is counted by the run's
    /// clock.
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
        let ended = self.outside.known.ended(id);
        let Some(at_most) = at_most else { return ended.await };
        let clock = &self.outside.clock;
        let at = clock.now().plus(u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX));
        tokio::select! {
            biased;
            ended = ended => ended,
            () = clock.sleep_until(at) => Err(WaitError::TimedOut),
        }
    }

    /// What the guests of a background task say of their progress from now on; none when it is not
    /// at work here.
    #[must_use]
    pub fn progress(&self, id: &BackgroundId) -> Option<ProgressStream> {
        let task = self.task(id)?;
        self.outside.runner.progress(&task.room)
    }

    /// The channels of the room as they are bound now; also after the room is over.
    #[must_use]
    pub fn bindings(&self) -> Arc<BTreeMap<ChannelId, Binding>> {
        self.outside.known.bindings()
    }
}

/// A reply that does not belong to its request is a fault of the host's.
fn unfit(reply: &RequestReply) -> Refusal {
    Refusal::new(
        RefusalCode::Busy,
        format!("the host gave a reply that does not belong to the request: {reply:?}"),
    )
}
