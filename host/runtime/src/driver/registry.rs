//! The registry of a host's open rooms. It stops all of them at once and finds one by its name. It
//! keeps no run alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use conclave_core::protocol::control::ControlCommand;
use conclave_core::types::ids::RoomId;

use crate::driver::event_queue::{EventSender, WeakEventSender};
use crate::driver::observing::ObserverQueue;
use crate::driver::room_handle::{RoomClients, RoomHandle};

/// The number of rooms below which the list is never searched for ended ones.
const CLEAN_AT: usize = 32;

/// The number of backlogs of ended observers that are kept.
const BACKLOGS: usize = 1_000;

/// The senders for the events of open rooms, child rooms included.
#[derive(Debug, Default)]
pub(crate) struct RoomRegistry(Mutex<Rooms>, Mutex<Vec<Arc<ObserverQueue>>>);

#[derive(Debug)]
struct Rooms {
    open: Vec<OpenRoom>,
    /// The number of rooms at which ended ones are removed. It is twice the number left the last
    /// time, so adding a room has a constant amortised cost, independent of the list's capacity.
    clean_at: usize,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { open: Vec::new(), clean_at: CLEAN_AT }
    }
}

struct OpenRoom {
    room: RoomId,
    events: WeakEventSender,
    clients: Weak<RoomClients>,
    /// Whether the room has no parent that stops it.
    is_alone: bool,
}

impl std::fmt::Debug for OpenRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open")
            .field("room", &self.room)
            .field("is_alone", &self.is_alone)
            .finish_non_exhaustive()
    }
}

impl OpenRoom {
    /// A handle to the room; `None` if the room is over.
    fn handle(&self) -> Option<RoomHandle> {
        let events = self.events.upgrade().filter(|events| !events.is_closed())?;
        Some(RoomHandle::new(self.room.clone(), &events, self.clients.upgrade()?))
    }
}

impl RoomRegistry {
    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, room: &RoomId, events: &EventSender, clients: &Arc<RoomClients>) {
        let mut rooms = self.lock();
        if rooms.open.len() >= rooms.clean_at {
            rooms.open.retain(|open| open.handle().is_some());
            rooms.clean_at = CLEAN_AT.max(2 * rooms.open.len());
        }
        let is_alone = !room.as_str().contains('/');
        rooms.open.push(OpenRoom {
            room: room.clone(),
            events: events.downgrade(),
            clients: Arc::downgrade(clients),
            is_alone,
        });
    }

    /// Registers the queue of an observer until its task has ended with nothing left.
    pub(crate) fn add_observer(&self, queue: &Arc<ObserverQueue>) {
        let mut observers = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        observers.retain(|queue| !queue.is_over() || queue.backlog().is_some());
        // A program that never takes the backlogs must not collect them for ever.
        let excess = observers.len().saturating_sub(BACKLOGS);
        let mut excess = observers.iter().filter(|queue| queue.is_over()).take(excess).count();
        observers.retain(|queue| {
            let is_kept = excess == 0 || !queue.is_over();
            excess -= usize::from(!is_kept);
            is_kept
        });
        observers.push(Arc::clone(queue));
    }

    /// Returns the queues of the host's observers, and forgets those that are over.
    pub(crate) fn take_observers(&self) -> Vec<Arc<ObserverQueue>> {
        let mut observers = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        let all = observers.clone();
        observers.retain(|queue| !queue.is_over());
        all
    }

    /// Marks a room as detached: it is stopped here, and no longer by its parent.
    pub(crate) fn detach(&self, room: &RoomId) {
        if let Some(open) = self.lock().open.iter_mut().rev().find(|open| open.room == *room) {
            open.is_alone = true;
        }
    }

    /// A handle to a room; `None` if it does not run here.
    pub(crate) fn handle(&self, room: &RoomId) -> Option<RoomHandle> {
        let rooms = self.lock();
        // The newest entry wins: a reopened room is registered again under its name.
        rooms.open.iter().rev().filter(|open| open.room == *room).find_map(OpenRoom::handle)
    }

    /// Cancels all rooms without a parent and returns their number. A cancelled room stops its own
    /// child rooms.
    pub(crate) fn stop(&self, reason: &str) -> usize {
        let rooms = self.lock();
        let detached = rooms.open.iter().filter(|open| open.is_alone).filter_map(OpenRoom::handle);
        let stop = || ControlCommand::Stop { reason: reason.to_owned() };
        detached.filter(|room| room.control(stop())).count()
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::event_queue::event_queue;

    use super::*;
    use crate::driver::runner::LocalRunner;
    use crate::support::clock::SystemClock;

    #[test]
    fn rooms_that_are_over_are_taken_out_in_time() {
        let registry = RoomRegistry::default();
        let clients =
            Arc::new(RoomClients::new(Arc::new(LocalRunner::new()), Arc::new(SystemClock)));
        // Reserves the capacity of a list that was long once.
        registry.lock().open.reserve(100_000);
        let (lasting, _events) = event_queue();
        registry.add(&RoomId::from("lasting"), &lasting, &clients);
        for number in 0..10_000 {
            let (sender, _over) = event_queue();
            registry.add(&RoomId::from(number.to_string()), &sender, &clients);
            assert!(
                registry.lock().open.len() <= CLEAN_AT,
                "at most one is open beside the lasting one: {number}"
            );
        }
        assert!(
            registry.handle(&RoomId::from("lasting")).is_some()
                && registry.handle(&RoomId::from("1")).is_none()
        );
    }
}
