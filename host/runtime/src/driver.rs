//! The loop around a room: wait for events, append them to the journal, hand them to the core,
//! perform the effects. No decisions.
//!
//! One loop is the one writer of its room. Everything that takes time runs beside it and comes back
//! as an event. A room that is over can be given another run: `begin`, then `run` again. One that
//! was cut off goes on from its journal: `reopen`, then `run`.

pub mod approve;
mod approving;
pub mod channel;
mod children;
mod held;
mod pausing;
mod perform;
mod port;
pub(crate) mod registry;
mod resume;
pub mod room_handle;
pub mod runner;
mod side_effects;
mod timers;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use conclave_core::journal::pending_work::WaitChange;
use conclave_core::journal::recovery::{Resumption, Start};
use conclave_core::protocol::call_log::CallLog;
use conclave_core::protocol::effect::Effect;
use conclave_core::protocol::event::{Event, Principal, RULES, Record, RunOpening};
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use conclave_core::types::completion::ModelError;
use conclave_core::types::history::History;
use conclave_core::types::ids::{CallId, ControlId, Millis, ModelName, RoomId, TaskName};
use conclave_core::types::outcome::Outcome;
use conclave_core::types::room_secret::RoomSecret;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use crate::calls::Plugins;
use crate::driver::approve::Approver;
use crate::driver::channel::Channels;
use crate::driver::registry::RoomRegistry;
use crate::driver::room_handle::{RoomClients, RoomHandle};
use crate::driver::runner::{Lease, Progressing, TaskRunner};
use crate::models::ModelClient;
use crate::observe::subscribe::{FollowGate, Publisher, RunEvent, Subscribers};
use crate::storage::journal::{
    Journal, JournalBatch, JournalFailure, Journals, Keeping, Opening as JournalOpening,
};
use crate::support::clock::Clock;
use crate::support::fail_points::kill_point;
use held::{HeldOutput, OutputBuffer};
use port::WaitingModels;
use side_effects::WaitingSideEffects;
use timers::Timers;

/// Events that are taken at once: one append for all of them.
const BATCH: usize = 64;

/// Things under way that need not be looked through.
const CLEAN_AT: usize = 32;

/// The clients of a config's models.
pub(crate) type Models = HashMap<ModelName, Arc<dyn ModelClient>>;

/// What the rooms of a run share.
#[derive(Clone)]
pub(crate) struct RunContext {
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) models: Arc<Models>,
    pub(crate) channels: Arc<dyn Channels>,
    pub(crate) runner: Arc<dyn TaskRunner>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) subscribers: Subscribers,
    pub(crate) principal: Principal,
    pub(crate) everything: Arc<RoomRegistry>,
    /// What the plugins are now; a room that is gone on with may have been opened with others.
    pub(crate) admitted: Arc<Setup>,
}

/// A room with its loop.
pub(crate) struct Driver {
    shared: Arc<RunContext>,
    setup: Arc<Setup>,
    id: RoomId,
    /// What the room is opened with; one that is gone on with has it from its journal.
    secret: RoomSecret,
    teller: Publisher,
    /// What calls say of themselves while what began them is not yet told.
    follow: Arc<FollowGate>,
    room: Room,
    /// Milliseconds by which the room's time is ahead of the clock: its journal may end later than
    /// the clock says it is.
    ahead_ms: u64,
    journal: RoomJournal,
    seq: u64,
    sender: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    /// What begins the next run; before whatever else comes.
    first: Option<Event>,
    /// What follows on that, or on the resumption.
    second: Option<Event>,
    /// How a room that was cut off goes on.
    resumption: Option<Resumption>,
    /// What calls that are run again were told before; taken when they start.
    traces: HashMap<CallId, Arc<CallLog>>,
    /// What waits until the records behind it are kept.
    held: OutputBuffer,
    /// What the room knows of; none before it was opened.
    opened: Option<Arc<Setup>>,
    under_way: HashMap<CallId, UnderWay>,
    /// When it has so many, those that are over are taken out.
    clean_at: usize,
    /// Why the run is paused; its child rooms are then too.
    paused: Option<String>,
    waiting: Arc<WaitingModels>,
    side_effects: Arc<WaitingSideEffects>,
    /// What those outside who speak to the room share with it.
    outside: Arc<RoomClients>,
    /// Where its guests tell their progress; none: no room above runs it.
    progressing: Option<Progressing>,
    timers: Timers,
    /// Model requests; stopped when the room ends.
    beside: JoinSet<()>,
    /// Journals of child rooms that get the end which they had no time for; waited for when the
    /// room ends.
    ends: JoinSet<()>,
    /// Those of them that are model requests.
    asking: Vec<(CallId, AbortHandle)>,
    /// Child rooms; waited for when the room ends.
    children: BTreeMap<CallId, Lease>,
}

/// Something that runs for a call.
enum UnderWay {
    /// Stopping it drops its sandbox.
    Work(AbortHandle),
    /// A child room is told, so that its journal has an end.
    Child { room: RoomId, events: UnboundedSender<Event> },
}

/// The journal of a room, which is opened where nobody waits for it: before the room's first event
/// is taken.
enum RoomJournal {
    Opening(JournalOpening),
    Open(Box<dyn Journal>),
    /// It could not be opened, and its room has been told so.
    Failed,
}

/// Where a room's events come in. It is there before the room's journal is, so that the room can be
/// spoken to meanwhile.
struct Inlet {
    id: RoomId,
    sender: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    outside: Arc<RoomClients>,
}

impl Inlet {
    fn new(shared: &RunContext, id: RoomId) -> Self {
        let (sender, events) = unbounded_channel();
        let outside =
            Arc::new(RoomClients::new(Arc::clone(&shared.runner), Arc::clone(&shared.clock)));
        shared.everything.add(&id, &sender, &outside);
        Self { id, sender, events, outside }
    }
}

impl Driver {
    /// A room that nothing happens in yet.
    ///
    /// # Errors
    /// When it cannot have a journal, or the machine gives no randomness for its secret.
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
        let Inlet { id, sender, events, outside } = inlet;
        let teller =
            Publisher::new(shared.subscribers.clone(), id.clone(), Arc::clone(&shared.clock));
        Self {
            shared,
            setup,
            id,
            secret,
            follow: Arc::new(FollowGate::new(teller.clone())),
            teller,
            room: Room::new(),
            ahead_ms: 0,
            journal,
            seq: 0,
            sender,
            events,
            first: None,
            second: None,
            resumption: None,
            traces: HashMap::new(),
            held: OutputBuffer::default(),
            opened: None,
            under_way: HashMap::new(),
            clean_at: CLEAN_AT,
            paused: None,
            waiting: Arc::default(),
            side_effects: Arc::default(),
            outside,
            progressing: None,
            timers: Timers::default(),
            beside: JoinSet::new(),
            ends: JoinSet::new(),
            asking: Vec::new(),
            children: BTreeMap::new(),
        }
    }

    /// Waits until the journal is open. Dropping the future loses nothing.
    async fn journal_opened(&mut self) -> Result<(), JournalFailure> {
        if let RoomJournal::Opening(opening) = &mut self.journal {
            match opening.await {
                Ok(journal) => self.journal = RoomJournal::Open(journal),
                Err(failure) => {
                    self.journal = RoomJournal::Failed;
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Returns the room's time. Never before the last record, so that nothing took less than no
    /// time.
    pub(crate) fn now(&self) -> Millis {
        self.shared.clock.now().plus(self.ahead_ms).max(self.room.now())
    }

    fn journal(&mut self) -> Result<&mut dyn Journal, JournalFailure> {
        match &mut self.journal {
            RoomJournal::Open(journal) => Ok(&mut **journal),
            RoomJournal::Opening(_) | RoomJournal::Failed => {
                let cause = std::io::Error::new(std::io::ErrorKind::NotConnected, "it is not open");
                Err(JournalFailure {
                    room: self.id.clone(),
                    place: "its journal".to_owned(),
                    cause,
                })
            }
        }
    }

    /// Later runs go on with these; between two runs.
    pub(crate) fn reconfigure(
        &mut self,
        setup: Arc<Setup>,
        plugins: Arc<dyn Plugins>,
        models: Arc<Models>,
    ) {
        self.shared = Arc::new(RunContext {
            plugins,
            models,
            admitted: Arc::clone(&setup),
            ..RunContext::clone(&self.shared)
        });
        self.setup = setup;
    }

    /// The next run begins with what was admitted now, not with what the room was opened with.
    pub(crate) fn renew(&mut self) {
        self.setup = Arc::clone(&self.shared.admitted);
    }

    /// The task that the room's conversation was handed to, if later runs still have it.
    pub(crate) fn handed_to(&self) -> Option<TaskName> {
        self.room.handed_to().filter(|task| self.setup.tasks.contains_key(*task)).cloned()
    }

    /// What later runs go on with.
    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// How the last run ended; none while it goes on, or there was none.
    pub(crate) fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.room.outcome()
    }

    /// The history of a task's agent as it is now.
    pub(crate) fn history(&self, task: &TaskName) -> History {
        self.room.history(task)
    }

    /// A run is to begin: the room's first, or another after the one before is over. Nothing
    /// happens before [`run`](Self::run).
    pub(crate) fn begin(&mut self, opening: RunOpening) {
        self.forget_stale();
        self.begin_with(opening);
    }

    /// The same, with the events that came before: a child room is stopped, paused and spoken to
    /// while its journal is being opened.
    fn begin_with(&mut self, opening: RunOpening) {
        self.outside.open();
        let setup = Arc::clone(&self.setup);
        if self.opened.is_none() {
            self.outside.known.bind(&setup.channels);
        }
        self.first = Some(match &self.opened {
            None => Event::RoomOpened { setup, opening, secret: self.secret.clone() },
            Some(before) => Event::RunStarted {
                setup: (!Arc::ptr_eq(before, &setup)).then_some(setup),
                opening,
            },
        });
    }

    /// Between two runs nobody waits for an answer, and there is nothing to stop; only what is for
    /// the journal is kept.
    fn forget_stale(&mut self) {
        let mut kept = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::PluginReplaced { .. } => kept.push(event),
                // Not confirmed, so it is received again.
                Event::ControlReceived { id, .. } => drop(self.outside.controls.take(&id)),
                _ => {}
            }
        }
        for event in kept {
            // The loop holds the other end, so this cannot fail.
            let _ = self.sender.send(event);
        }
    }

    /// Takes an event now, between two runs, and waits until it is kept.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) async fn take_now(&mut self, event: Event) -> Result<(), JournalFailure> {
        self.take_and_perform(&mut vec![event]).await?;
        self.all_kept().await?;
        self.perform_free();
        Ok(())
    }

    /// Ends a run that nobody waits for any more: what it does is stopped now, and the journal says
    /// so.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) async fn give_up(&mut self, reason: &str) -> Result<(), JournalFailure> {
        self.outside.close();
        if self.first.take().is_some() {
            // It never began.
            return Ok(());
        }
        // Stopped also when the journal fails.
        let taken = match self.room.outcome() {
            None => {
                self.take_and_perform(&mut vec![Event::Cancelled { reason: reason.to_owned() }])
                    .await
            }
            Some(_) => Ok(()),
        };
        self.stop_what_is_left();
        taken?;
        // Whoever dropped the run may drop what it is kept in next.
        self.all_kept().await?;
        self.perform_free();
        Ok(())
    }

    /// A run was begun, or cut off, and is to be brought to its end.
    pub(crate) fn is_begun(&self) -> bool {
        self.first.is_some() || self.resumption.is_some()
    }

    /// Where events from outside go in, such as `Cancelled`.
    pub(crate) fn sender(&self) -> UnboundedSender<Event> {
        self.sender.clone()
    }

    /// Who speaks to the room while it is open.
    pub(crate) fn handle(&self) -> RoomHandle {
        RoomHandle::new(self.id.clone(), &self.sender, Arc::clone(&self.outside))
    }

    /// Runs what was begun to its end, or what was cut off.
    ///
    /// # Errors
    /// When the journal fails: what it does not hold must not be performed.
    pub(crate) async fn run(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        // Of a run that was given up: they were told to stop, and nothing of theirs belongs to this
        // one.
        self.children_over().await;
        let ended = self.run_on().await;
        self.outside.close();
        if ended.is_err() {
            // What the journal does not hold must not go on.
            self.stop_what_is_left();
        }
        ended
    }

    async fn run_on(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        self.journal_opened().await?;
        if self.progressing.is_none() {
            self.shared.channels.opened(&self.handle());
        }
        let mut later = Vec::new();
        if let Some(resumption) = self.resumption.take() {
            later = self.resume(resumption).await?;
        }
        let mut batch = Vec::with_capacity(BATCH);
        if let Some(first) = self.first.take() {
            self.opened = Some(Arc::clone(&self.setup));
            batch.push(first);
        }
        batch.extend(self.second.take());
        batch.extend(later);
        loop {
            if !batch.is_empty() {
                self.take_and_perform(&mut batch).await?;
            }
            if let Some(outcome) = self.room.outcome().map(Arc::clone) {
                self.all_kept().await?;
                self.perform_free();
                // What was asked and not taken any more is answered before children are waited for.
                self.outside.close();
                self.stop_what_is_left();
                self.children_over().await;
                kill_point!("before-settle");
                self.journal()?.settle().await?;
                kill_point!("after-settle");
                return Ok(outcome);
            }
            while self.beside.try_join_next().is_some() {}
            while self.ends.try_join_next().is_some() {}
            let room = &self.room;
            self.timers.clean(|timer| room.waits_for(timer));
            tokio::select! {
                biased;
                kept = self.held.kept(), if !self.held.is_empty() => {
                    kept?;
                    self.perform_free();
                }
                due = self.timers.due(&*self.shared.clock, self.ahead_ms), if !self.timers.is_empty() => {
                    // What came in before the deadline counts, however late this loop gets to it.
                    batch.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
                    batch.extend(due.into_iter().map(|timer| Event::TimerFired { timer }));
                }
                // The loop holds a sender itself, so there is always one more event to wait for
                // until the room has finished.
                _ = self.events.recv_many(&mut batch, BATCH) => {}
            }
        }
    }

    async fn take_and_perform(&mut self, batch: &mut Vec<Event>) -> Result<(), JournalFailure> {
        self.journal_opened().await?;
        self.journal()?.ready().await?;
        if self.take(batch)? {
            self.all_kept().await?;
        }
        self.perform_free();
        Ok(())
    }

    /// Waits until all that was handed over is kept.
    async fn all_kept(&mut self) -> Result<(), JournalFailure> {
        while !self.held.is_empty() {
            self.held.kept().await?;
        }
        Ok(())
    }

    /// Does what may be done, in the order in which it came up.
    fn perform_free(&mut self) {
        while let Some(told) = self.held.next() {
            match told {
                HeldOutput::What(seq, what) => self.teller.report_of(seq, || what),
                HeldOutput::Batch(number) => self.follow.told_through(number),
                HeldOutput::Task(task) => self.outside.known.put(task),
                HeldOutput::Control(id) => self.confirm(&id),
                HeldOutput::Effect(effect, start) => {
                    if self.is_wanted(&effect) {
                        kill_point!("before-perform");
                        self.perform(effect, start.map(|start| *start));
                        kill_point!("after-perform");
                    }
                }
            }
        }
    }

    /// Tells the sender of a control message that its record is kept, once it is safe from a kill
    /// and a loss of power too.
    fn confirm(&mut self, id: &ControlId) {
        let Some(waiting) = self.outside.controls.take(id) else { return };
        let Ok(journal) = self.journal() else { return };
        let settled = journal.settle();
        // Without an executor nobody confirms it: the message is received again, and ignored.
        if let Ok(executor) = tokio::runtime::Handle::try_current() {
            // Not beside the loop: a message that ends the room is confirmed too.
            executor.spawn(async move {
                if settled.await.is_ok() {
                    let _ = waiting.send(());
                }
            });
        }
    }

    /// A call can be abandoned while the records before it are being kept.
    fn is_wanted(&self, effect: &Effect) -> bool {
        if let Effect::CallModel { call, ordinal, .. } = effect
            && !self.room.is_in_flight(*call)
        {
            // The room has set something aside for it.
            let given_up = ModelError::Other {
                message: "the request was given up before it was sent".to_owned(),
            };
            let _ = self.sender.send(Event::ModelAnswered {
                call: *call,
                ordinal: *ordinal,
                answer: Err(given_up),
                trouble: None,
            });
            return false;
        }
        if let Effect::StartBackground { id, .. } = effect
            && self.room.task(id).is_some_and(|task| task.detached)
        {
            // It was let go before it had begun, and goes on alone all the same.
            return true;
        }
        effect.starts().is_none_or(|call| self.room.is_in_flight(call))
    }

    /// The journal gets the records and what came of them; what may be done before they are kept is
    /// ready to be done then. True: nothing may be done before all is kept.
    fn take(&mut self, batch: &mut Vec<Event>) -> Result<bool, JournalFailure> {
        let now = self.now();
        let (is_kept, is_followed) = (self.journal()?.keeps(), !self.shared.subscribers.is_empty());
        let was_over = self.room.outcome().is_some();
        let mut may_bind = false;
        let mut repeated = Vec::new();
        let (mut records, mut waits, mut told, mut pauses) =
            (Vec::with_capacity(batch.len()), Vec::new(), Vec::new(), Vec::new());
        for event in batch.drain(..) {
            if let Event::TimerFired { timer } = &event
                && !self.room.waits_for(*timer)
            {
                // Nobody waits for it any more.
                continue;
            }
            let control = if let Event::ControlReceived { id, .. } = &event {
                Some(id.clone())
            } else {
                None
            };
            if let Some(id) = control.as_ref().filter(|id| self.room.has_received(id)) {
                // It took effect before; its sender is told once that record is kept.
                repeated.push(HeldOutput::Control(id.clone()));
                continue;
            }
            let seq = self.seq;
            self.seq += 1;
            let decided = if let Event::Decided { call, .. } = event.effective() {
                Some(*call).filter(|call| self.room.is_in_flight(*call))
            } else {
                None
            };
            let over = WaitChange::of_event(&event).filter(|_| is_kept);
            pauses.extend(self.note_pause(&event));
            if let Event::BackgroundEnded { call, .. } = &event {
                // Its loop was over before.
                self.children.remove(call);
            }
            may_bind |= matches!(
                event.effective(),
                Event::RoomOpened { .. } | Event::RunStarted { .. } | Event::Requested { .. }
            );
            if is_kept || is_followed {
                let record = Arc::new(Record {
                    seq,
                    at: now,
                    principal: self.shared.principal.clone(),
                    rules: RULES,
                    event,
                });
                if is_followed {
                    told.push(HeldOutput::What(
                        Some(seq),
                        RunEvent::Recorded { record: Arc::clone(&record).without_secret() },
                    ));
                }
                self.room.handle(record.event.clone(), now);
                records.push(record);
            } else {
                self.room.handle(event, now);
            }
            // A decision that was none leaves its question open.
            if !decided.is_some_and(|call| self.room.is_in_flight(call)) {
                waits.extend(over);
            }
            if let Some(call) = decided.filter(|call| !self.room.is_in_flight(*call)) {
                // Whoever else was asked about it need not answer any more.
                self.let_go(call);
            }
            told.extend(control.map(HeldOutput::Control));
            self.end_answered();
            while let Some(notice) = self.room.poll_notice() {
                if is_followed {
                    told.push(HeldOutput::What(Some(seq), RunEvent::Told { told: notice }));
                }
            }
            while let Some(task) = self.room.poll_task() {
                told.push(HeldOutput::Task(task));
            }
            while let Some(effect) = self.room.poll_effect() {
                if is_kept {
                    waits.extend(WaitChange::of_effect(&effect));
                }
                // As the room is now: that is what a call that is run again begins with too.
                let start = Start::of(&effect, &self.room).map(Box::new);
                told.push(HeldOutput::Effect(effect, start));
            }
        }
        if may_bind {
            self.outside.known.bind(self.room.bindings());
        }
        if records.is_empty() && told.is_empty() && is_kept {
            // Only timers that nobody waits for, and messages that were received before.
            self.held.add_after_all(repeated);
            return Ok(false);
        }
        let outcome = self.room.outcome().filter(|_| !was_over).map(Arc::clone);
        let entry = JournalBatch {
            records: &records,
            waits: &waits,
            outcome: outcome.as_ref(),
            spent: self.room.spent(),
        };
        kill_point!("before-append");
        let keeping = self.journal()?.append(&entry)?;
        kill_point!("after-append");
        self.report_children(pauses);
        let (kept, first) = match keeping {
            Keeping::Kept => (None, false),
            Keeping::Soon(kept) => (Some(kept), false),
            Keeping::First(kept) => (Some(kept), true),
        };
        self.held.add(told, kept, |effect| !first && !effect.leaves(self.room.setup()));
        self.held.add_after_all(repeated);
        Ok(first)
    }

    /// Forgets what ran for calls that have been answered.
    fn end_answered(&mut self) {
        if self.under_way.len() > self.clean_at {
            let room = &self.room;
            self.under_way.retain(|call, _| room.is_in_flight(*call));
            // Not at each event: thousands may be under way.
            self.clean_at = CLEAN_AT.max(2 * self.under_way.len());
        }
    }

    /// Stops whoever was asked for an answer that has come from elsewhere.
    fn let_go(&mut self, call: CallId) {
        if let Some(UnderWay::Work(work)) = self.under_way.remove(&call) {
            work.abort();
        }
    }

    /// Children that were told to stop end by themselves; their journals are whole before the run
    /// is over.
    async fn children_over(&mut self) {
        // One at a time and in its place: dropping this future must not let go of any.
        while let Some(mut child) = self.children.first_entry() {
            child.get_mut().over().await;
            self.children.pop_first();
        }
        while self.ends.join_next().await.is_some() {}
    }

    /// Nothing of a run that is over goes on into the next one.
    fn stop_what_is_left(&mut self) {
        for (_, under_way) in self.under_way.drain() {
            match under_way {
                UnderWay::Work(work) => work.abort(),
                UnderWay::Child { room, .. } => {
                    self.shared.runner.cancel(&room, "the run is over");
                }
            }
        }
        self.waiting.clear();
        self.side_effects.clear();
        self.asking.clear();
        self.timers.clear();
        self.beside.abort_all();
    }
}

impl Drop for Driver {
    /// A dropped run stops its guests: nobody would take their answers.
    fn drop(&mut self) {
        self.outside.close();
        for under_way in self.under_way.values() {
            if let UnderWay::Work(work) = under_way {
                work.abort();
            }
        }
    }
}

/// Draws the secret of a new room from the operating system.
fn draw_secret(room: &RoomId) -> Result<RoomSecret, JournalFailure> {
    let mut bytes = [0; RoomSecret::LENGTH];
    getrandom::fill(&mut bytes).map_err(|error| JournalFailure {
        room: room.clone(),
        place: "its first record, which holds a secret drawn from this machine's randomness"
            .to_owned(),
        cause: std::io::Error::other(error.to_string()),
    })?;
    Ok(RoomSecret::new(bytes))
}
