//! The observers of a run. Each has a room of its own beside the run, in which it is called with
//! batches of events: its grants, limits, journal and audit are those of any room, and the journal
//! is its cursor. The core decides about filters, repetitions and pauses.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::journal::observed::ObservedFold;
use conclave_core::journal::record::setup_in_force;
use conclave_core::protocol::event::RULES;
use conclave_core::setup::Setup;
use conclave_core::types::ids::{PluginName, RoomId};
use conclave_core::types::observed::{
    ObservedEvent, ObservedPosition, observer_of_room, observer_room,
};
use conclave_core::types::request::RoomRequest;

use crate::driver::approve::NoApprover;
use crate::driver::channel::UnattendedChannel;
use crate::driver::observing::{BATCH_BYTES, BATCH_MAX, ObserverQueue, ObserverQueues};
use crate::driver::room_handle::RoomHandle;
use crate::driver::runner::LocalRunner;
use crate::host::prepared::RunOptions;
use crate::host::session::{RoomGuard, Session, SessionParts};
use crate::observe::subscribe::{Publisher, RunEvent};
use crate::storage::journal::JournalFailure;

/// The result of a delivery of missed events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverReport {
    /// The observer's name in the config.
    pub observer: PluginName,
    /// The number of events that it took.
    pub delivered: u64,
    /// The reason why others are left; `None` if it has all of them now.
    pub stopped: Option<String>,
}

/// The observers of a session. Their tasks begin with the first run; dropping this ends them once
/// they have delivered the events of the run.
#[derive(Default)]
pub(crate) struct Observers {
    queues: ObserverQueues,
    waiting: Mutex<Vec<Delivery>>,
}

impl Observers {
    /// The observers that the setup names; none for the room of an observer. With `is_resumed` they
    /// first get the events that they missed.
    pub(crate) fn new(
        parts: &SessionParts,
        options: &RunOptions,
        run: &RoomId,
        is_resumed: bool,
    ) -> Self {
        if parts.setup.observers.is_empty() || observer_of_room(run).is_some() {
            return Self::default();
        }
        let deliveries = deliveries(parts, options, run, is_resumed);
        let queues = deliveries.iter().map(|delivery| Arc::clone(&delivery.queue));
        Self { queues: ObserverQueues::new(queues), waiting: Mutex::new(deliveries) }
    }

    pub(crate) fn queues(&self) -> &ObserverQueues {
        &self.queues
    }

    /// Marks a new run of the room: its observers' limits start anew. After an interruption they do
    /// not, because the run is the same.
    pub(crate) fn run_begins(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter_mut().for_each(|delivery| delivery.is_same_run = false);
    }

    /// Narrows the observers to the effective setup of a run that is resumed.
    pub(crate) fn narrow(&self, effective: &Setup) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter_mut().for_each(|delivery| delivery.narrow(effective));
    }

    /// Begins the deliveries, on the executor that this is called on. Later calls do nothing.
    pub(crate) fn begin(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for delivery in waiting {
            delivery.parts.rooms.add_observer(&delivery.queue);
            tokio::spawn(delivery.run());
        }
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.close());
    }
}

/// Delivers the missed events of a run to its observers, and waits for the end.
pub(crate) async fn deliver_missed(
    parts: &SessionParts,
    options: &RunOptions,
    run: &RoomId,
) -> Vec<ObserverReport> {
    let mut reports = Vec::new();
    let effective = effective_setup(&parts.setup, options, run).await;
    for mut delivery in deliveries(parts, options, run, true) {
        let effective = match &effective {
            Ok(effective) => effective,
            // Without it an observer could have more rights than the run had.
            Err(failure) => {
                let (observer, stopped) = (delivery.queue.observer.clone(), failure.to_string());
                reports.push(ObserverReport { observer, delivered: 0, stopped: Some(stopped) });
                continue;
            }
        };
        effective.iter().for_each(|effective| delivery.narrow(effective));
        let queue = Arc::clone(&delivery.queue);
        queue.close();
        let delivered = delivery.run().await;
        let stopped = queue.backlog().and_then(|backlog| backlog.stopped);
        reports.push(ObserverReport { observer: queue.observer.clone(), delivered, stopped });
    }
    reports
}

/// Returns what both the last setup of a run and today's allow; `None` if there is no such run, which
/// the delivery reports.
///
/// # Errors
/// If its journal cannot be read.
async fn effective_setup(
    today: &Setup,
    options: &RunOptions,
    run: &RoomId,
) -> Result<Option<Setup>, JournalFailure> {
    let records = options.journals.records(run).await?.unwrap_or_default();
    Ok(setup_in_force(&records).map(|setup| setup.narrowed_by(today)))
}

/// The deliveries to the observers of a setup.
fn deliveries(
    parts: &SessionParts,
    options: &RunOptions,
    run: &RoomId,
    is_resumed: bool,
) -> Vec<Delivery> {
    let clock = options.clock.steady().unwrap_or_else(|| Arc::clone(&options.clock));
    let publisher = Publisher::new(options.subscribers.clone(), run.clone(), clock);
    let of_rule = |rule| {
        let queue = Arc::new(ObserverQueue::new(run.clone(), rule));
        let room = observer_room(run, &rule.plugin);
        let setup = Arc::new(parts.setup.of_observer(&rule.plugin)?);
        Some(Delivery {
            queue,
            parts: SessionParts { setup, ..parts.clone() },
            // What a run has beside its plugins is not for its observers: no channel, no approver,
            // and no task.
            options: RunOptions {
                ids: Arc::new(room.clone()),
                channels: Arc::new(UnattendedChannel),
                runner: Arc::new(LocalRunner::new()),
                approver: Arc::new(NoApprover),
                ..options.clone()
            },
            room,
            publisher: publisher.clone(),
            is_resumed,
            is_same_run: is_resumed,
            positions: BTreeMap::new(),
            delivered: 0,
            open: None,
        })
    };
    parts.setup.observers.iter().filter_map(of_rule).collect()
}

/// The delivery of a run's events to one observer.
struct Delivery {
    queue: Arc<ObserverQueue>,
    parts: SessionParts,
    options: RunOptions,
    room: RoomId,
    publisher: Publisher,
    is_resumed: bool,
    /// Whether the run is the same as before: the observer keeps what its grants were and what it
    /// used of them.
    is_same_run: bool,
    /// The last event of each room that the observer took before.
    positions: BTreeMap<RoomId, ObservedPosition>,
    delivered: u64,
    /// The observer's room. It opens with the first batch: a run without events has none.
    open: Option<(RoomHandle, RoomGuard)>,
}

impl Delivery {
    /// Narrows the observer to what the effective setup of its run leaves it.
    fn narrow(&mut self, effective: &Setup) {
        if let Some(setup) = effective.of_observer(&self.queue.observer) {
            self.parts.setup = Arc::new(setup);
        }
    }

    /// Delivers events until the run is over and the observer took all of them, or is stopped.
    /// Returns the number of delivered events.
    async fn run(mut self) -> u64 {
        if let Err(reason) = self.deliver_all().await {
            let (observer, undelivered) =
                (self.queue.observer.clone(), self.queue.stop(reason.clone()));
            self.publisher.tell(|| RunEvent::ObserverStopped { observer, undelivered, reason });
        }
        if let Some((room, guard)) = self.open.take() {
            // Neither can fail in a way that changes what was delivered.
            let _ = room.close("no more events come").await;
            let _ = guard.closed().await;
        }
        self.delivered
    }

    async fn deliver_all(&mut self) -> Result<(), String> {
        if self.is_resumed {
            self.queue.catches_up(true);
            self.deliver_missed().await?;
            self.queue.catches_up(false);
        }
        while let Some(batch) = self.queue.next().await {
            self.deliver(batch).await?;
            self.queue.remove_batch();
        }
        Ok(())
    }

    /// Delivers the events in the journal that the observer did not take. Events of the run that
    /// arrive meanwhile wait in the queue; the observer's room leaves out those that are in both.
    async fn deliver_missed(&mut self) -> Result<(), String> {
        self.reopen().await?;
        let mut rooms = VecDeque::from([self.queue.run.clone()]);
        while let Some(room) = rooms.pop_front() {
            let records = self.options.journals.records(&room).await;
            let Some(records) = records.map_err(|failure| failure.to_string())? else { continue };
            let mut fold = ObservedFold::new(self.queue.observer.clone());
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for record in records {
                if record.rules != RULES {
                    return Err(format!(
                        "the events of {room} cannot be derived again: another version of the host wrote them"
                    ));
                }
                for event in fold.take(record) {
                    if self.positions.get(&room).is_some_and(|last| event.position <= *last) {
                        continue;
                    }
                    bytes += event.weight();
                    batch.push(event);
                    if batch.len() == BATCH_MAX || bytes > BATCH_BYTES {
                        bytes = 0;
                        self.deliver(std::mem::take(&mut batch)).await?;
                    }
                }
                tokio::task::consume_budget().await;
            }
            if !batch.is_empty() {
                self.deliver(batch).await?;
            }
            rooms.extend(fold.into_children());
        }
        Ok(())
    }

    /// Delivers a batch. It returns after the observer took it.
    async fn deliver(&mut self, events: Vec<ObservedEvent>) -> Result<(), String> {
        if self.open.is_none() {
            let session = Session::open(self.parts.clone(), self.options.clone());
            self.open(session.map_err(|failure| failure.to_string())?);
        }
        let Some((room, _)) = &self.open else { return Err("its room is not open".to_owned()) };
        let (observer, count) = (self.queue.observer.clone(), events.len() as u64);
        let what = RoomRequest::Observe { observer, events: Arc::new(events) };
        room.ask(what).await.map_err(|refusal| refusal.message)?;
        self.delivered += count;
        Ok(())
    }

    /// Opens the observer's room again, if it has one.
    async fn reopen(&mut self) -> Result<(), String> {
        let (parts, options) = (self.parts.clone(), self.options.clone());
        let session = Session::reopen_observer(parts, options, &self.room, self.is_same_run).await;
        if let Some(session) = session.map_err(|failure| failure.to_string())? {
            self.positions = session.observed().clone();
            self.open(session);
        }
        Ok(())
    }

    fn open(&mut self, session: Session) {
        self.open = Some(session.open_observer_room(self.is_same_run));
    }
}

impl Drop for Delivery {
    /// Releases the run: also a delivery that panicked, or that never began, must not hold it up.
    fn drop(&mut self) {
        self.queue.end();
    }
}
