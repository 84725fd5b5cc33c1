//! The event loop of a room: receives events, appends them to the journal, passes them to the core
//! and performs the effects. It makes no decisions.
//!
//! One loop is the only writer of its room. Work that waits runs in tasks beside the loop and
//! returns as an event. After a run has ended, `begin` and `run` start another one. An interrupted
//! room is resumed from its journal with `reopen` and `run`.

pub mod approve;
mod approving;
mod backpressure;
pub mod channel;
mod children;
mod commit;
mod event_queue;
mod held;
pub(crate) mod observing;
pub mod outgoing;
mod pausing;
mod perform;
mod port;
pub(crate) mod registry;
mod resume;
pub(crate) mod room_handle;
pub mod runner;
mod side_effects;
mod timers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use conclave_core::journal::admission;
use conclave_core::journal::recovery::{InFlight, Resumption};
use conclave_core::protocol::call_log::CallLog;
use conclave_core::protocol::control::SentCommand;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RunOpening};
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::completion::ModelError;
use conclave_core::types::history::History;
use conclave_core::types::ids::{
    CallId, ControlId, Millis, ModelName, PluginName, RoomId, TaskName,
};
use conclave_core::types::observed::ObservedPosition;
use conclave_core::types::outcome::Outcome;
use conclave_core::types::room_secret::RoomSecret;
use conclave_core::types::usage::UsedByPlugin;
use conclave_models::ModelClient;
use tokio::task::{AbortHandle, JoinSet};

use crate::calls::Plugins;
use crate::driver::approve::Approver;
use crate::driver::backpressure::HeldWork;
use crate::driver::channel::Channels;
use crate::driver::observing::{ObserverQueue, ObserverQueues};
use crate::driver::outgoing::ChannelEndpoints;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::{RoomClients, RoomHandle};
use crate::driver::runner::{Lease, Progressing, TaskRunner};
use crate::imports::folder::RunOverlays;
use crate::observe::subscribe::{FollowGate, Publisher, Subscribers};
use crate::storage::journal::{
    AppendFailure, Journal, JournalFailure, Journals, Opening as JournalOpening,
};
use crate::support::clock::{BoxFuture, Clock};
use crate::support::fail_points::kill_point;
use children::LeftChildren;
use event_queue::{EventQueue, EventSender, event_queue};
use held::{HeldOutput, OutputBuffer};
use port::WaitingRequests;
use side_effects::WaitingSideEffects;
use timers::Timers;

/// The number of events that are committed together, with one append.
const COMMIT_MAX: usize = 64;

/// The number of entries in `under_way` below which it is never searched for ended calls.
const CLEAN_AT: usize = 32;

/// Called before the records of a run's end are durable. Returns whether it passed the answer on.
pub(crate) type EarlyAnswer<'a> = Box<dyn FnOnce() -> bool + Send + 'a>;

/// The clients of a config's models.
pub(crate) type Models = HashMap<ModelName, Arc<dyn ModelClient>>;

/// The state shared by the rooms of a run.
#[derive(Clone)]
pub(crate) struct RunContext {
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) models: Arc<Models>,
    pub(crate) channels: Arc<dyn Channels>,
    /// The channels that the host serves itself, whatever `channels` serves.
    pub(crate) endpoints: Arc<ChannelEndpoints>,
    pub(crate) runner: Arc<dyn TaskRunner>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journals: Arc<dyn Journals>,
    /// The overlays of granted folders, opened with the first call and until the run is over; `None`
    /// if it is not stored.
    pub(crate) overlays: OnceLock<Option<Arc<RunOverlays>>>,
    pub(crate) subscribers: Subscribers,
    /// The queues of the run's observers.
    pub(crate) observers: ObserverQueues,
    pub(crate) principal: Principal,
    pub(crate) rooms: Arc<RoomRegistry>,
    /// Whether a run is left, and can be resumed, when its model is not available.
    pub(crate) leaves_without_model: bool,
    /// The setup of the plugins as loaded now. A resumed room may have been opened with another
    /// one.
    pub(crate) admitted: Arc<Setup>,
}

/// A room with its event loop.
pub(crate) struct Driver {
    shared: Arc<RunContext>,
    setup: Arc<Setup>,
    id: RoomId,
    /// The secret that a new room is opened with. A resumed room has its secret from its journal.
    secret: RoomSecret,
    publisher: Publisher,
    /// Holds back the log lines of calls until the records that began them are published.
    follow: Arc<FollowGate>,
    /// Boxed, because it is large and the driver moves several times before it runs.
    room: Box<Room>,
    /// Milliseconds by which the room's time is ahead of the clock. The last record of its journal
    /// may be later than the clock's time.
    ahead_ms: u64,
    journal: RoomJournal,
    /// Resolves when another host has taken the room over.
    loss: Option<BoxFuture<'static, ()>>,
    seq: u64,
    sender: EventSender,
    events: EventQueue,
    /// The event that begins the next run; handled before every other event.
    first: Option<Event>,
    /// The event handled after `first`, or after the resumption.
    second: Option<Event>,
    /// The messages of other processes that arrived while the room was interrupted.
    messages: Vec<SentCommand>,
    /// The steps that resume an interrupted room.
    resumption: Option<Resumption>,
    /// Whether the run was resumed, so that a component that was exchanged since may fail at once.
    checks_exchanged: bool,
    /// The exchanged component that failed at once, with its fault; it stopped the loop.
    pub(crate) failed_exchange: Option<(PluginName, String)>,
    /// The model that was not available, with the reason; it stopped the loop.
    pub(crate) missing_model: Option<(ModelName, String)>,
    /// The call logs of calls that are run again, taken when they start.
    traces: HashMap<CallId, Arc<CallLog>>,
    /// The work in flight for the journal's snapshots; `None` if it keeps none.
    in_flight: Option<InFlight>,
    /// The output that waits until its records are durable.
    buffer: OutputBuffer,
    /// An empty list with capacity for the output of a batch.
    output: Vec<HeldOutput>,
    /// The setup that the room's core has; `None` before the room was opened.
    opened: Option<Arc<Setup>>,
    /// The plugin call that began last, before its first poll.
    started_call: Option<(CallId, CallWork)>,
    under_way: HashMap<CallId, UnderWay>,
    /// The length of `under_way` at which ended calls are removed.
    clean_at: usize,
    /// Whether the room did nothing so far but compute, so that its answer may precede its records.
    only_computes: bool,
    /// The work that waits for space in an observer's queue.
    held_work: VecDeque<HeldWork>,
    /// Whether the wait for a queue was reported and its end was not.
    reports_wait: bool,
    /// The reason why the run is paused; its child rooms are paused with it.
    paused: Option<String>,
    waiting: Arc<WaitingRequests>,
    side_effects: Arc<WaitingSideEffects>,
    /// The state shared with the handles of the room.
    clients: Arc<RoomClients>,
    /// The sink for the progress of its plugins; `None` for a root room.
    progressing: Option<Progressing>,
    timers: Timers,
    /// Model requests; aborted when the room ends.
    beside: JoinSet<()>,
    /// Tasks that write the missing end into journals of child rooms; awaited when the room ends.
    ends: JoinSet<Result<(), JournalFailure>>,
    /// The abort handles of the model requests in `beside`, by call.
    asking: Vec<(CallId, AbortHandle)>,
    /// Child rooms; awaited when the room ends.
    children: BTreeMap<CallId, Lease>,
    left_children: LeftChildren,
}

/// A plugin call that sends its answer to the loop.
type CallWork = BoxFuture<'static, ()>;

/// The work that runs for a call.
enum UnderWay {
    /// A task; aborting it drops its sandbox.
    Work(AbortHandle),
    /// A child room; it is cancelled by an event, so that its journal gets an end.
    Child(RoomHandle),
}

/// The journal of a room. It opens in the background, and the room's first event waits for it.
enum RoomJournal {
    Opening(JournalOpening),
    Open(Box<dyn Journal>),
    /// The journal could not be opened, and the room's run has returned the failure.
    Failed,
}

/// The channel for a room's events. It exists before the room's journal, so events are accepted
/// while the journal opens.
struct Inlet {
    id: RoomId,
    sender: EventSender,
    events: EventQueue,
    clients: Arc<RoomClients>,
}

impl Inlet {
    fn new(shared: &RunContext, id: RoomId) -> Self {
        let (sender, events) = event_queue();
        let clients =
            Arc::new(RoomClients::new(Arc::clone(&shared.runner), Arc::clone(&shared.clock)));
        shared.rooms.add(&id, &sender, &clients);
        Self { id, sender, events, clients }
    }

    fn handle(&self) -> RoomHandle {
        RoomHandle::new(self.id.clone(), &self.sender, Arc::clone(&self.clients))
    }
}

impl Driver {
    /// Returns a new room without events.
    ///
    /// # Errors
    /// Fails when no journal can be opened, or the system has no randomness for the room's secret.
    pub(crate) fn new(
        shared: Arc<RunContext>,
        setup: Arc<Setup>,
        id: RoomId,
    ) -> Result<Self, JournalFailure> {
        let inlet = Inlet::new(&shared, id);
        Self::opening(shared, setup, inlet)
    }

    fn opening(
        shared: Arc<RunContext>,
        setup: Arc<Setup>,
        inlet: Inlet,
    ) -> Result<Self, JournalFailure> {
        let secret = draw_secret(&inlet.id)?;
        let journal = RoomJournal::Opening(shared.journals.open(&inlet.id)?);
        Ok(Self::with(shared, setup, inlet, secret, journal))
    }

    fn with(
        shared: Arc<RunContext>,
        setup: Arc<Setup>,
        inlet: Inlet,
        secret: RoomSecret,
        journal: RoomJournal,
    ) -> Self {
        let Inlet { id, sender, events, clients } = inlet;
        let publisher =
            Publisher::new(shared.subscribers.clone(), id.clone(), Arc::clone(&shared.clock));
        Self {
            shared,
            setup,
            id,
            secret,
            follow: Arc::new(FollowGate::new(publisher.clone())),
            publisher,
            room: Box::new(Room::new()),
            ahead_ms: 0,
            journal,
            loss: None,
            seq: 0,
            sender,
            events,
            first: None,
            second: None,
            messages: Vec::new(),
            resumption: None,
            checks_exchanged: false,
            failed_exchange: None,
            missing_model: None,
            traces: HashMap::new(),
            in_flight: None,
            buffer: OutputBuffer::default(),
            output: Vec::new(),
            opened: None,
            started_call: None,
            under_way: HashMap::new(),
            clean_at: CLEAN_AT,
            only_computes: true,
            held_work: VecDeque::new(),
            reports_wait: false,
            paused: None,
            waiting: Arc::default(),
            side_effects: Arc::default(),
            clients,
            progressing: None,
            timers: Timers::default(),
            beside: JoinSet::new(),
            ends: JoinSet::new(),
            asking: Vec::new(),
            children: BTreeMap::new(),
            left_children: LeftChildren::default(),
        }
    }

    /// Waits until the journal is open. The future is cancel-safe.
    async fn journal_opened(&mut self) -> Result<(), JournalFailure> {
        if let RoomJournal::Opening(opening) = &mut self.journal {
            match opening.await {
                Ok(mut journal) => {
                    self.loss = journal.watch_loss();
                    self.journal = RoomJournal::Open(journal);
                    self.track(InFlight::default());
                }
                Err(failure) => {
                    self.journal = RoomJournal::Failed;
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// The room's time. It never precedes the last record, so no duration is negative.
    pub(crate) fn now(&self) -> Millis {
        self.shared.clock.now().plus(self.ahead_ms).max(self.room.now())
    }

    fn journal(&mut self) -> Result<&mut dyn Journal, JournalFailure> {
        match &mut self.journal {
            RoomJournal::Open(journal) => Ok(&mut **journal),
            RoomJournal::Opening(_) | RoomJournal::Failed => {
                let cause = std::io::Error::new(std::io::ErrorKind::NotConnected, "it is not open");
                Err(JournalFailure::new(self.id.clone(), "its journal".to_owned(), cause))
            }
        }
    }

    /// Replaces the setup, plugins and models for later runs. Called between two runs.
    pub(crate) fn reconfigure(
        &mut self,
        setup: Arc<Setup>,
        plugins: Arc<dyn Plugins>,
        models: Arc<Models>,
        endpoints: Arc<ChannelEndpoints>,
    ) {
        self.shared = Arc::new(RunContext {
            plugins,
            models,
            endpoints,
            admitted: Arc::clone(&setup),
            ..RunContext::clone(&self.shared)
        });
        self.setup = setup;
    }

    /// Begins the next run with the setup as loaded now instead of the one that the room was opened
    /// with.
    pub(crate) fn renew(&mut self) {
        self.setup = Arc::clone(&self.shared.admitted);
    }

    /// Does the same, within the setup with which the room's last run began.
    pub(crate) fn renew_within(&mut self) {
        self.setup = Arc::new(self.room.begun_setup().narrowed_by(&self.shared.admitted));
    }

    /// The task that the conversation was handed to, if the setup still has it.
    pub(crate) fn handed_to(&self) -> Option<TaskName> {
        self.room.handed_to().filter(|task| self.setup.tasks.contains_key(*task)).cloned()
    }

    /// The setup that later runs begin with.
    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    pub(crate) fn channels(&self) -> &dyn Channels {
        &*self.shared.channels
    }

    /// The outcome of the last run; `None` while a run is active or before the first one.
    pub(crate) fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.room.outcome()
    }

    /// The current history of a task's agent.
    pub(crate) fn history(&self, task: &TaskName) -> History {
        self.room.history(task)
    }

    /// Prepares a run: the room's first, or the next after one has ended. Nothing happens before
    /// [`run`](Self::run).
    pub(crate) fn begin(&mut self, opening: RunOpening) {
        self.only_computes = true;
        self.forget_stale();
        self.begin_with(opening);
    }

    /// Does the same but keeps the events that already arrived: a child room can be stopped, paused
    /// and sent messages while its journal opens.
    fn begin_with(&mut self, opening: RunOpening) {
        self.clients.open();
        self.checks_exchanged = false;
        let setup = Arc::clone(&self.setup);
        if self.opened.is_none() {
            // Handles see the config's channels until the room's first event is handled.
            self.clients.view.bind(Arc::clone(&setup.channels));
        }
        self.first = Some(match &self.opened {
            None => Event::RoomOpened { setup, opening, secret: self.secret.clone() },
            Some(before) => Event::RunStarted {
                // An unchanged setup is the same allocation, and the record of the run need not
                // repeat it.
                setup: (!Arc::ptr_eq(before, &setup)).then_some(setup),
                opening,
            },
        });
    }

    /// Discards the events that arrived between two runs: there is no run to stop and no reply to
    /// give.
    fn forget_stale(&mut self) {
        let mut current = Vec::new();
        while let Some(event) = self.events.try_recv() {
            match event {
                // Plugin replacements stay, because they belong in the journal.
                Event::PluginReplaced { .. } => current.push(event),
                // Dropping the sender leaves the message unconfirmed, so it is delivered again.
                Event::ControlReceived { id, .. } => drop(self.clients.controls.take(&id)),
                _ => {}
            }
        }
        for event in current {
            // The loop holds the receiver, so sending cannot fail.
            let _ = self.sender.send(event);
        }
    }

    /// Handles an event between two runs and waits until its record is durable.
    ///
    /// # Errors
    /// Fails when the journal fails.
    pub(crate) async fn take_now(&mut self, event: Event) -> Result<(), JournalFailure> {
        self.commit_and_perform(&mut vec![event]).await?;
        // Between two runs the loop does not run, and nothing else would hurry the record.
        self.hurry_all().await?;
        self.perform_free();
        Ok(())
    }

    /// Ends an abandoned run: stops its work now and records the cancellation.
    ///
    /// # Errors
    /// Fails when the journal fails.
    pub(crate) async fn give_up(&mut self, reason: &str) -> Result<(), JournalFailure> {
        // First, so that no request is accepted that this end would drop.
        self.clients.close();
        if self.first.take().is_some() {
            // The run never began, so the journal needs no end for it.
            return Ok(());
        }
        // The result is checked later: the work stops even if the journal fails.
        let stopped = match self.room.outcome() {
            None => {
                self.commit_and_perform(&mut vec![Event::Cancelled { reason: reason.to_owned() }])
                    .await
            }
            Some(_) => Ok(()),
        };
        self.stop_what_is_left();
        stopped?;
        // The caller may drop the store next, so the end is made durable first.
        self.hurry_all().await?;
        self.perform_free();
        Ok(())
    }

    /// Ends an interrupted run without resuming it, as [`give_up`](Self::give_up) does.
    ///
    /// # Errors
    /// Fails when the journal fails.
    pub(crate) async fn give_up_interrupted(&mut self, reason: &str) -> Result<(), JournalFailure> {
        if self.resumption.take().is_some() {
            self.give_up(reason).await?;
        }
        Ok(())
    }

    /// Journals the beginning of the run, and performs and publishes nothing: whoever resumes the
    /// run does.
    ///
    /// # Errors
    /// Fails when the journal fails.
    pub(crate) async fn enqueue(&mut self) -> Result<(), JournalFailure> {
        self.clients.close();
        self.journal_opened().await?;
        let mut events: Vec<Event> = self.first.take().into_iter().collect();
        self.journal()?.ready().await?;
        self.commit(&mut events)?;
        self.hurry_all().await?;
        self.journal()?.settle().await
    }

    /// The last event of each room that an observer took in this one.
    pub(crate) fn observed(&self) -> &BTreeMap<RoomId, ObservedPosition> {
        self.room.observed()
    }

    /// Returns what the room's last run used of its plugins' grants.
    pub(crate) fn used(&self) -> &UsedByPlugin {
        self.room.used()
    }

    /// Whether a run was begun or interrupted and still has to end.
    pub(crate) fn is_begun(&self) -> bool {
        self.first.is_some() || self.resumption.is_some()
    }

    /// A handle to the room; it works while a run is open.
    pub(crate) fn handle(&self) -> RoomHandle {
        RoomHandle::new(self.id.clone(), &self.sender, Arc::clone(&self.clients))
    }

    /// Runs the room until the begun or interrupted run ends.
    ///
    /// # Errors
    /// Fails when the journal fails: an effect without a record must not be performed.
    pub(crate) async fn run(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        self.run_and_answer(None).await
    }

    /// Runs the room until the run ends, and calls `answer` before the last records are durable if the
    /// run did nothing but compute.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn run_and_answer(
        &mut self,
        answer: Option<EarlyAnswer<'_>>,
    ) -> Result<Arc<Outcome>, JournalFailure> {
        // Children of an abandoned run may still be stopping. Their events must not reach this run.
        self.children_over().await;
        let ended = self.run_on(answer).await;
        self.clients.close();
        if ended.is_err() {
            // Whoever resumes the run resumes its children too. A cancelled one would end, and its
            // journal may be whole.
            self.children.clear();
            self.under_way.retain(|_, work| matches!(work, UnderWay::Work(_)));
            // Work that the journal does not hold must not continue.
            self.stop_what_is_left();
        }
        ended
    }

    async fn run_on(
        &mut self,
        answer: Option<EarlyAnswer<'_>>,
    ) -> Result<Arc<Outcome>, JournalFailure> {
        let outcome = self.run_to_outcome().await?;
        let is_answered = answer.is_some_and(|answer| self.only_computes && answer());
        if is_answered {
            // Nothing waits for these records any more, so they share a commit with others.
            self.all_kept().await?;
        } else {
            self.hurry_all().await?;
        }
        self.perform_free();
        // Refuses pending requests before the wait for child rooms, which can take long.
        self.clients.close();
        self.stop_what_is_left();
        self.children_over().await;
        kill_point!("before-settle");
        self.journal()?.settle().await?;
        kill_point!("after-settle");
        Ok(outcome)
    }

    /// Runs the room until it has an outcome, whose records may not be durable.
    async fn run_to_outcome(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        self.journal_opened().await?;
        // Only child rooms have `progressing`, and `opened` is called for root rooms only.
        if self.progressing.is_none() {
            self.shared.channels.opened(&self.handle());
        }
        let mut later = Vec::new();
        if let Some(resumption) = self.resumption.take() {
            // Boxed, because few runs are resumed and each would keep the space.
            later = Box::pin(self.resume(resumption)).await?;
        }
        // An event is large, and most arrive alone. A list that grows from nothing has four places.
        let mut events = Vec::with_capacity(1);
        if let Some(first) = self.first.take() {
            self.opened = Some(Arc::clone(&self.setup));
            events.push(first);
        }
        events.extend(self.second.take());
        events.extend(later);
        loop {
            if !events.is_empty() {
                self.commit_and_perform(&mut events).await?;
            }
            if let Some(outcome) = self.room.outcome().map(Arc::clone) {
                return Ok(outcome);
            }
            // Ended tasks are taken out, or a long run would collect them.
            while self.beside.try_join_next().is_some() {}
            while let Some(ended) = self.ends.try_join_next() {
                // A task that panicked leaves its room open; closing the ended run closes it too.
                ended.unwrap_or(Ok(()))?;
            }
            let room = &self.room;
            self.timers.clean(|timer| room.waits_for(timer));
            // Only while the room is idle: a busy one would need the space again at once.
            if self.events.is_empty() {
                self.room.release_space();
            }
            tokio::select! {
                // Durable output and timers come first, so that a stream of events cannot delay
                // them.
                biased;
                durable = self.buffer.wait_durable(), if !self.buffer.is_empty() => {
                    durable?;
                    self.perform_free();
                }
                () = resolved(&mut self.loss), if self.loss.is_some() => {
                    return Err(self.taken_over());
                }
                child = self.left_children.next(), if !self.children.is_empty() => {
                    return Err(self.leave_with(*child));
                }
                due = self.timers.due(&*self.shared.clock, self.ahead_ms), if !self.timers.is_empty() => {
                    // Events that arrived before the deadline are handled first, however late this
                    // loop polls the timer.
                    events.extend(std::iter::from_fn(|| self.events.try_recv()));
                    events.extend(due.into_iter().map(|timer| Event::TimerFired { timer }));
                }
                () = has_space(self.shared.observers.full().map(Arc::clone)), if self.reports_wait || !self.held_work.is_empty() => {
                    self.perform_held_work();
                }
                // The loop holds a sender itself, so the channel stays open until the room has
                // ended.
                _ = self.events.recv_many(&mut events, COMMIT_MAX) => {}
            }
        }
    }

    /// The failure of a room that another host has taken over while this one only waited.
    fn taken_over(&self) -> JournalFailure {
        let cause = std::io::Error::other("another host has taken the run over");
        let failure = JournalFailure::new(self.id.clone(), "its journal".to_owned(), cause);
        JournalFailure { answer: AppendFailure::Fenced, ..failure }
    }

    async fn commit_and_perform(&mut self, events: &mut Vec<Event>) -> Result<(), JournalFailure> {
        self.journal_opened().await?;
        self.journal()?.ready().await?;
        // Before the commit: an unrecorded failure is tried again when the run is resumed.
        self.check_exchanged(events)?;
        let is_left = self.leave_without_model(events);
        if self.commit(events)? {
            self.hurry_all().await?;
        }
        self.perform_free();
        if is_left {
            // What was committed above must be there when the run is resumed.
            self.hurry_all().await?;
            return Err(self.abandoned_run());
        }
        Ok(())
    }

    /// Makes every append so far durable without a delay, and waits for it.
    async fn hurry_all(&mut self) -> Result<(), JournalFailure> {
        if !self.buffer.is_empty() {
            self.journal()?.hurry();
        }
        self.all_kept().await
    }

    /// Waits until every append so far is durable.
    async fn all_kept(&mut self) -> Result<(), JournalFailure> {
        while !self.buffer.is_empty() {
            self.buffer.wait_durable().await?;
        }
        Ok(())
    }

    /// Performs the free output in its original order.
    fn perform_free(&mut self) {
        while let Some(output) = self.buffer.next() {
            match output {
                HeldOutput::Publish(seq, what) => self.publisher.report_of(seq, || *what),
                HeldOutput::Observe(event) => self.shared.observers.push(*event),
                HeldOutput::CommitPublished(number) => self.follow.told_through(number),
                HeldOutput::Task(task) => self.clients.view.put(task),
                HeldOutput::Control(id) => self.confirm(&id),
                HeldOutput::Effect(effect, start) => self.perform_or_hold(effect, start),
            }
        }
        self.poll_begun();
    }

    /// Confirms a control message to its sender once the journal is settled, which covers process
    /// kills and power loss.
    fn confirm(&mut self, id: &ControlId) {
        let Some(waiting) = self.clients.controls.take(id) else { return };
        let Ok(journal) = self.journal() else { return };
        let settled = journal.settle();
        // Without an executor there is no confirmation: the message is delivered again and ignored
        // then.
        if let Ok(executor) = tokio::runtime::Handle::try_current() {
            // Spawned outside `beside`, which is aborted at the end: a message that ends the room
            // is confirmed too.
            executor.spawn(async move {
                if settled.await.is_ok() {
                    let _ = waiting.send(());
                }
            });
        }
    }

    /// Whether an effect is still to be performed. Its call may have been abandoned while its
    /// records became durable.
    fn is_wanted(&self, effect: &Effect) -> bool {
        let is_wanted = admission::is_wanted(effect, &self.room);
        if let Effect::CallModel { call, ordinal, .. } = effect
            && !is_wanted
        {
            // The room reserved budget for the request, so it needs an answer.
            let given_up = ModelError::Other {
                message: "the request was given up before it was sent".to_owned(),
            };
            let _ = self.sender.send(Event::ModelAnswered {
                call: *call,
                ordinal: *ordinal,
                answer: Err(given_up),
                trouble: None,
                was_shown: false,
            });
        }
        is_wanted
    }

    /// Waits until all child rooms have ended and their journals are complete.
    async fn children_over(&mut self) {
        // Each lease stays in the map while it is awaited: dropping this future must not release a
        // child.
        while let Some(mut child) = self.children.first_entry() {
            child.get_mut().over().await;
            self.children.pop_first();
        }
        while self.ends.join_next().await.is_some() {}
        // This run is over, and the next one has other children.
        self.left_children = LeftChildren::default();
    }

    /// Stops all remaining work, so that nothing of this run reaches the next one.
    fn stop_what_is_left(&mut self) {
        for (_, under_way) in self.under_way.drain() {
            match under_way {
                UnderWay::Work(work) => work.abort(),
                UnderWay::Child(child) => {
                    self.shared.runner.cancel(child.room(), "the run is over");
                }
            }
        }
        self.held_work.clear();
        self.waiting.clear();
        self.side_effects.clear();
        self.asking.clear();
        self.timers.clear();
        self.beside.abort_all();
    }
}

impl Drop for Driver {
    /// Aborts the work of a dropped run, since its answers would be lost.
    fn drop(&mut self) {
        self.clients.close();
        for under_way in self.under_way.values() {
            if let UnderWay::Work(work) = under_way {
                work.abort();
            }
        }
    }
}

/// Waits until a queue has space; ready at once without a full queue.
async fn has_space(full: Option<Arc<ObserverQueue>>) {
    if let Some(queue) = full {
        queue.has_space().await;
    }
}

/// Waits for a future that may be there; it is gone afterwards.
async fn resolved(future: &mut Option<BoxFuture<'static, ()>>) {
    if let Some(waiting) = future {
        waiting.await;
        *future = None;
    }
}

/// Draws the secret of a new room from the operating system.
fn draw_secret(room: &RoomId) -> Result<RoomSecret, JournalFailure> {
    let mut bytes = [0; RoomSecret::LENGTH];
    getrandom::fill(&mut bytes).map_err(|error| {
        JournalFailure::new(
            room.clone(),
            "its first record, which holds a secret drawn from this machine's randomness"
                .to_owned(),
            std::io::Error::other(error.to_string()),
        )
    })?;
    Ok(RoomSecret::new(bytes))
}
