//! The loop around a room: wait for events, append them to the journal, hand them to the core, perform the effects. No decisions.
//!
//! One loop is the one writer of its room. Everything that takes time runs beside it and comes back as an event. A room that is over can be
//! given another run: `begin`, then `run` again.

mod approving;
mod perform;
mod port;
mod side_effects;

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::event::{Event, Opening, Principal, RULES, Record};
use conclave_core::history::History;
use conclave_core::ids::{CallId, ModelName, RoomId, TaskName};
use conclave_core::outcome::Outcome;
use conclave_core::room::Room;
use conclave_core::setup::Setup;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use crate::approve::Approver;
use crate::calls::Plugins;
use crate::channel::Channels;
use crate::clock::Clock;
use crate::journal::{Journal, JournalFailure, Journals};
use crate::models::ModelClient;
use crate::subscribe::{Subscribers, Teller, What};
use port::WaitingModels;
use side_effects::WaitingSideEffects;

/// Events that are taken at once: one append for all of them.
const BATCH: usize = 64;

/// The clients of a config's models.
pub(crate) type Models = HashMap<ModelName, Arc<dyn ModelClient>>;

/// What the rooms of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) plugins: Arc<dyn Plugins>,
    pub(crate) models: Arc<Models>,
    pub(crate) channels: Arc<dyn Channels>,
    pub(crate) approver: Arc<dyn Approver>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) journals: Arc<dyn Journals>,
    pub(crate) subscribers: Subscribers,
    pub(crate) principal: Principal,
}

/// A room with its loop.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    setup: Arc<Setup>,
    id: RoomId,
    teller: Teller,
    room: Room,
    journal: Box<dyn Journal>,
    seq: u64,
    sender: UnboundedSender<Event>,
    events: UnboundedReceiver<Event>,
    /// What begins the next run; before whatever else comes.
    first: Option<Event>,
    /// What the room knows of; none before it was opened.
    opened: Option<Arc<Setup>>,
    under_way: HashMap<CallId, UnderWay>,
    waiting: Arc<WaitingModels>,
    side_effects: Arc<WaitingSideEffects>,
    /// Model requests and timers; stopped when the room ends.
    beside: JoinSet<()>,
    /// Those of them that are model requests.
    asking: Vec<(CallId, AbortHandle)>,
    /// Child rooms; waited for when the room ends.
    children: JoinSet<()>,
}

/// Something that runs for a call.
enum UnderWay {
    /// Stopping it drops its sandbox.
    Work(AbortHandle),
    /// A child room is told, so that its journal has an end.
    Child(UnboundedSender<Event>),
}

impl Driver {
    /// A room that nothing happens in yet.
    pub(crate) fn new(shared: Arc<Shared>, setup: Arc<Setup>, id: RoomId) -> Result<Self, JournalFailure> {
        let journal = shared.journals.open(&id)?;
        let (sender, events) = unbounded_channel();
        let teller = Teller::new(shared.subscribers.clone(), id.clone(), Arc::clone(&shared.clock));
        Ok(Self {
            shared,
            setup,
            id,
            teller,
            room: Room::new(),
            journal,
            seq: 0,
            sender,
            events,
            first: None,
            opened: None,
            under_way: HashMap::new(),
            waiting: Arc::default(),
            side_effects: Arc::default(),
            beside: JoinSet::new(),
            asking: Vec::new(),
            children: JoinSet::new(),
        })
    }

    /// Later runs go on with these; between two runs.
    pub(crate) fn reconfigure(&mut self, setup: Arc<Setup>, plugins: Arc<dyn Plugins>, models: Arc<Models>) {
        self.shared = Arc::new(Shared { plugins, models, ..Shared::clone(&self.shared) });
        self.setup = setup;
    }

    /// What later runs go on with.
    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    /// The history of a task's agent as it is now.
    pub(crate) fn history(&self, task: &TaskName) -> History {
        self.room.history(task)
    }

    /// A run is to begin: the room's first, or another after the one before is over. Nothing happens before [`run`](Self::run).
    pub(crate) fn begin(&mut self, opening: Opening) {
        self.forget_stale();
        let setup = Arc::clone(&self.setup);
        self.first = Some(match &self.opened {
            None => Event::RoomOpened { setup, opening },
            Some(before) => Event::RunStarted { setup: (!Arc::ptr_eq(before, &setup)).then_some(setup), opening },
        });
    }

    /// Between two runs nobody waits for an answer, and there is nothing to stop; only what is for the journal is kept.
    fn forget_stale(&mut self) {
        let mut kept = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            if matches!(event, Event::PluginReplaced { .. }) {
                kept.push(event);
            }
        }
        for event in kept {
            // The loop holds the other end, so this cannot fail.
            let _ = self.sender.send(event);
        }
    }

    /// Takes an event now, between two runs.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) fn take_now(&mut self, event: Event) -> Result<(), JournalFailure> {
        self.take(&mut vec![event])?;
        self.perform_all();
        Ok(())
    }

    /// Ends a run that nobody waits for any more: what it does is stopped now, and the journal says so.
    ///
    /// # Errors
    /// When the journal fails.
    pub(crate) fn give_up(&mut self, reason: &str) -> Result<(), JournalFailure> {
        if self.first.take().is_some() {
            // It never began.
            return Ok(());
        }
        if self.room.outcome().is_none() {
            self.take_now(Event::Cancelled { reason: reason.to_owned() })?;
        }
        self.stop_what_is_left();
        Ok(())
    }

    /// Where events from outside go in, such as `Cancelled`.
    pub(crate) fn sender(&self) -> UnboundedSender<Event> {
        self.sender.clone()
    }

    /// Runs what was begun to its end.
    ///
    /// # Errors
    /// When the journal fails: what it does not hold must not be performed.
    pub(crate) async fn run(&mut self) -> Result<Arc<Outcome>, JournalFailure> {
        let mut batch = Vec::with_capacity(BATCH);
        if let Some(first) = self.first.take() {
            self.opened = Some(Arc::clone(&self.setup));
            batch.push(first);
        }
        loop {
            if batch.is_empty() {
                // The loop holds a sender itself, so there is always one more event to wait for until the room has finished.
                self.events.recv_many(&mut batch, BATCH).await;
            }
            self.take(&mut batch)?;
            self.perform_all();
            if let Some(outcome) = self.room.outcome() {
                let outcome = Arc::clone(outcome);
                self.wait_for_children().await;
                return Ok(outcome);
            }
            while self.beside.try_join_next().is_some() {}
            while self.children.try_join_next().is_some() {}
        }
    }

    fn perform_all(&mut self) {
        while let Some(effect) = self.room.poll_effect() {
            self.perform(effect);
        }
    }

    /// Journal first, then the core.
    fn take(&mut self, batch: &mut Vec<Event>) -> Result<(), JournalFailure> {
        let now = self.shared.clock.now();
        let records: Vec<Arc<Record>> = batch
            .drain(..)
            .map(|event| {
                let seq = self.seq;
                self.seq += 1;
                Arc::new(Record { seq, at: now, principal: self.shared.principal.clone(), rules: RULES, event })
            })
            .collect();
        self.journal.append(&records)?;
        for record in records {
            let seq = record.seq;
            if self.shared.subscribers.is_empty() {
                self.room.handle(Arc::unwrap_or_clone(record).event, now);
            } else {
                self.tell(What::Recorded { record: Arc::clone(&record) });
                self.room.handle(record.event.clone(), now);
            }
            self.end_answered();
            while let Some(told) = self.room.poll_notice() {
                self.teller.tell_of(Some(seq), || What::Told { told });
            }
        }
        Ok(())
    }

    /// Forgets what ran for calls that have been answered.
    fn end_answered(&mut self) {
        if self.under_way.len() > 32 {
            let in_flight: std::collections::HashSet<CallId> = self.room.calls_in_flight().collect();
            self.under_way.retain(|call, _| in_flight.contains(call));
        }
    }

    fn tell(&self, what: What) {
        self.teller.tell(|| what);
    }

    /// Children that were told to stop end by themselves; their journals are whole before the run is over.
    async fn wait_for_children(&mut self) {
        self.stop_what_is_left();
        while let Some(ended) = self.children.join_next().await {
            drop(ended);
        }
    }

    /// Nothing of a run that is over goes on into the next one.
    fn stop_what_is_left(&mut self) {
        for (_, under_way) in self.under_way.drain() {
            match under_way {
                UnderWay::Work(work) => work.abort(),
                UnderWay::Child(child) => drop(child.send(Event::Cancelled { reason: "the run is over".to_owned() })),
            }
        }
        self.waiting.clear();
        self.side_effects.clear();
        self.asking.clear();
        self.beside.abort_all();
    }
}

impl Drop for Driver {
    /// A dropped run stops its guests: nobody would take their answers.
    fn drop(&mut self) {
        for under_way in self.under_way.values() {
            if let UnderWay::Work(work) = under_way {
                work.abort();
            }
        }
    }
}
