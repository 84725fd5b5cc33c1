//! All rooms that a host has under way, so that one word stops them all, and whoever is not part of a run finds one by its name. It holds
//! no run alive.

use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::event::Event;
use conclave_core::ids::RoomId;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// Where the events of rooms go in; child rooms too.
#[derive(Debug, Default)]
pub(crate) struct Everything(Mutex<Vec<(RoomId, WeakUnboundedSender<Event>)>>);

impl Everything {
    fn lock(&self) -> MutexGuard<'_, Vec<(RoomId, WeakUnboundedSender<Event>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, room: &RoomId, events: &UnboundedSender<Event>) {
        let mut rooms = self.lock();
        if rooms.len() == rooms.capacity() {
            // Before it grows: those that are over have no receiver any more.
            rooms.retain(|(_, events)| events.upgrade().is_some_and(|events| !events.is_closed()));
        }
        rooms.push((room.clone(), events.downgrade()));
    }

    /// Where the events of a room go in; none when it is not under way here.
    pub(crate) fn get(&self, room: &RoomId) -> Option<UnboundedSender<Event>> {
        let rooms = self.lock();
        let mut of_name = rooms.iter().rev().filter(|(name, _)| name == room);
        of_name.find_map(|(_, events)| events.upgrade().filter(|events| !events.is_closed()))
    }

    /// Stops what goes on; gives how many were told. What a stopped room has in child rooms it stops itself.
    pub(crate) fn stop(&self, reason: &str) -> usize {
        let rooms = self.lock();
        let roots = rooms.iter().filter(|(room, _)| !room.as_str().contains('/'));
        let told = roots.filter_map(|(_, events)| events.upgrade());
        told.filter(|events| events.send(Event::Cancelled { reason: reason.to_owned() }).is_ok()).count()
    }
}
