//! The queues between a run and its observers. The rooms of the run add events that are durable,
//! and a task beside the run takes them out. A full queue is the only way in which an observer can
//! make a run wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conclave_core::protocol::notice::Notice;
use conclave_core::setup::{ObserverRule, Setup};
use conclave_core::types::ids::{Millis, PluginName, RoomId};
use conclave_core::types::observed::{ObservedEvent, ObservedPosition};
use tokio::sync::Notify;

/// The number of events of one call. A call is journalled with its events, and its guest holds all
/// of them in memory.
pub(crate) const BATCH_MAX: usize = 100;
/// The bytes of events after which a batch takes no more.
pub(crate) const BATCH_BYTES: usize = 256 << 10;

/// An event that waits for observers, with its notice as the room gave it: most notices share their
/// large parts.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    pub(crate) room: RoomId,
    pub(crate) position: ObservedPosition,
    pub(crate) time: Millis,
    pub(crate) notice: Notice,
    /// The observers that receive it by the setup of its run.
    pub(crate) receivers: Vec<PluginName>,
}

/// The queues of all observers of a run; none for a run without observers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObserverQueues(Arc<[Arc<ObserverQueue>]>);

impl ObserverQueues {
    pub(crate) fn new(queues: impl IntoIterator<Item = Arc<ObserverQueue>>) -> Self {
        Self(queues.into_iter().collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ObserverQueue>> {
        self.0.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The observers that receive events of this kind by the setup of their run.
    pub(crate) fn receivers(&self, setup: &Setup, kind: &str) -> Vec<PluginName> {
        let receives = |observer: &PluginName| {
            let rule = setup.observers.iter().find(|rule| rule.plugin == *observer);
            rule.is_some_and(|rule| rule.receives(kind))
        };
        self.0.iter().map(|queue| &queue.observer).filter(|name| receives(name)).cloned().collect()
    }

    /// Adds a durable event to the queue of each observer that receives it.
    pub(crate) fn push(&self, event: QueuedEvent) {
        let event = Arc::new(event);
        for queue in self.0.iter().filter(|queue| event.receivers.contains(&queue.observer)) {
            queue.push(Arc::clone(&event));
        }
    }

    /// A queue that makes the run wait.
    pub(crate) fn full(&self) -> Option<&Arc<ObserverQueue>> {
        self.0.iter().find(|queue| queue.is_full())
    }
}

/// The events on their way to one observer.
#[derive(Debug)]
pub(crate) struct ObserverQueue {
    pub(crate) run: RoomId,
    pub(crate) observer: PluginName,
    limit: usize,
    state: Mutex<QueueState>,
    /// Wakes the observer's task, waiting rooms, and those who wait for the end.
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Arc<QueuedEvent>>,
    /// The number of events of the call under way, which are the first in the queue.
    under_way: usize,
    /// Whether the queue was full and is not half empty yet.
    is_full: bool,
    /// Whether a room reported that it waits.
    is_reported: bool,
    /// Whether the observer still gets events from the journal.
    is_catching_up: bool,
    /// Whether the run is over and adds no more events.
    is_closed: bool,
    /// The number of events that came too late, or were waiting when the observer was stopped.
    undelivered: u64,
    /// The reason why the observer takes no more events.
    stopped: Option<String>,
    /// Whether the observer's task has ended.
    is_over: bool,
}

/// The state of an observer's queue for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverBacklog {
    /// The root room of the run.
    pub run: RoomId,
    /// The observer's name in the config.
    pub observer: PluginName,
    /// The number of events that wait for the observer. Events that are only in the journal are
    /// not counted.
    pub undelivered: u64,
    /// Whether it still gets events from the journal.
    pub is_catching_up: bool,
    /// The reason why it gets no more events; `None` if it only needs more time.
    pub stopped: Option<String>,
}

impl ObserverQueue {
    pub(crate) fn new(run: RoomId, rule: &ObserverRule) -> Self {
        Self {
            run,
            observer: rule.plugin.clone(),
            limit: usize::try_from(rule.queue).unwrap_or(usize::MAX),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut QueueState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Waits until `ready` returns a value.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&mut QueueState) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that no change between the two is lost.
            changed.as_mut().enable();
            if let Some(value) = ready(&mut self.lock()) {
                return value;
            }
            changed.await;
        }
    }

    fn push(&self, event: Arc<QueuedEvent>) {
        self.change(|state| {
            // A stopped observer gets its events from the journal, when the run is resumed.
            if state.stopped.is_some() || state.is_over {
                state.undelivered += 1;
                return;
            }
            state.events.push_back(event);
            state.is_full |= state.events.len() >= self.limit;
        });
    }

    fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// Returns the number of waiting events, for the first room that waits for the queue since it
    /// became full.
    pub(crate) fn begin_wait(&self) -> Option<u64> {
        let mut state = self.lock();
        let is_first = !std::mem::replace(&mut state.is_reported, true);
        is_first.then_some(state.events.len() as u64)
    }

    /// Waits until the queue is half empty, or the observer is stopped. Half, so that a slow
    /// observer does not make the run wait for each single event.
    pub(crate) async fn has_space(&self) {
        self.wait_for(|state| (!state.is_full).then_some(())).await;
    }

    /// Returns whether the queue is no longer full, once after each reported wait.
    pub(crate) fn end_wait(&self) -> bool {
        let mut state = self.lock();
        !state.is_full && std::mem::take(&mut state.is_reported)
    }

    /// Waits for events and returns the next batch: events of one room, in order. `None` if the run
    /// is over and all were taken. They stay in the queue until
    /// [`remove_batch`](Self::remove_batch).
    pub(crate) async fn next(&self) -> Option<Vec<ObservedEvent>> {
        let events = self
            .wait_for(|state| match state.events.front() {
                Some(first) => {
                    let room = first.room.clone();
                    let of_room = state.events.iter().take_while(|event| event.room == room);
                    Some(of_room.take(BATCH_MAX).cloned().collect())
                }
                None if state.is_closed => Some(Vec::new()),
                None => None,
            })
            .await;
        // Outside the lock, because a notice may be large.
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for event in &events {
            let QueuedEvent { room, position, time, notice, .. } = &**event;
            let event = notice.observed(room.clone(), *position, *time);
            bytes += event.weight();
            if !batch.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            batch.push(event);
        }
        self.lock().under_way = batch.len();
        (!batch.is_empty()).then_some(batch)
    }

    /// Removes the events of the last batch: the observer took them.
    pub(crate) fn remove_batch(&self) {
        self.change(|state| {
            let count = std::mem::take(&mut state.under_way);
            state.events.drain(..count);
            state.is_full &= state.events.len() > self.limit / 2;
        });
    }

    /// Marks whether the observer gets events from the journal at present.
    pub(crate) fn catches_up(&self, is_catching_up: bool) {
        self.change(|state| state.is_catching_up = is_catching_up);
    }

    /// Ends the deliveries in this process. Returns the number of events that were waiting.
    pub(crate) fn stop(&self, reason: String) -> u64 {
        self.change(|state| {
            state.stopped = Some(reason);
            state.is_full = false;
            state.undelivered += state.events.len() as u64;
            state.events.clear();
            state.undelivered
        })
    }

    /// Marks the run as over: no more events come.
    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Marks the observer's task as over.
    pub(crate) fn end(&self) {
        self.change(|state| {
            state.is_over = true;
            state.is_full = false;
        });
    }

    /// Whether nothing more can come from this queue.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits until the observer took all events so far, or is stopped; after the run also until its
    /// room is closed.
    pub(crate) async fn idle(&self) {
        self.wait_for(|state| {
            let is_done = state.events.is_empty() && !state.is_closed && !state.is_catching_up;
            (state.is_over || is_done).then_some(())
        })
        .await;
    }

    /// Returns what the observer has not taken; `None` if it took everything.
    pub(crate) fn backlog(&self) -> Option<ObserverBacklog> {
        let state = self.lock();
        let undelivered = state.events.len() as u64 + state.undelivered;
        let is_left = undelivered > 0 || state.is_catching_up || state.stopped.is_some();
        is_left.then(|| ObserverBacklog {
            run: self.run.clone(),
            observer: self.observer.clone(),
            undelivered,
            is_catching_up: state.is_catching_up,
            stopped: state.stopped.clone(),
        })
    }
}
