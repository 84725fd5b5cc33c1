//! All rooms that a host has under way, so that one word stops them all, and whoever is not part of a run finds one by its name. It holds
//! no run alive.

use std::sync::{Mutex, MutexGuard, PoisonError};

use conclave_core::event::Event;
use conclave_core::ids::RoomId;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};

/// Where the events of rooms go in; child rooms too.
#[derive(Debug, Default)]
pub(crate) struct Everything(Mutex<Vec<Open>>);

#[derive(Debug)]
struct Open {
    room: RoomId,
    events: WeakUnboundedSender<Event>,
    /// No room above stops it.
    is_alone: bool,
}

impl Everything {
    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, room: &RoomId, events: &UnboundedSender<Event>) {
        let mut rooms = self.lock();
        if rooms.len() == rooms.capacity() {
            // Before it grows: those that are over have no receiver any more.
            rooms.retain(|open| open.events.upgrade().is_some_and(|events| !events.is_closed()));
        }
        rooms.push(Open { room: room.clone(), events: events.downgrade(), is_alone: !room.as_str().contains('/') });
    }

    /// From now on the room is stopped here and by nobody above.
    pub(crate) fn detach(&self, room: &RoomId) {
        if let Some(open) = self.lock().iter_mut().rev().find(|open| open.room == *room) {
            open.is_alone = true;
        }
    }

    /// Where the events of a room go in; none when it is not under way here.
    pub(crate) fn get(&self, room: &RoomId) -> Option<UnboundedSender<Event>> {
        let rooms = self.lock();
        let mut of_name = rooms.iter().rev().filter(|open| open.room == *room);
        of_name.find_map(|open| open.events.upgrade().filter(|events| !events.is_closed()))
    }

    /// Stops what goes on; gives how many were told. What a stopped room has in child rooms it stops itself.
    pub(crate) fn stop(&self, reason: &str) -> usize {
        let rooms = self.lock();
        let alone = rooms.iter().filter(|open| open.is_alone);
        let told = alone.filter_map(|open| open.events.upgrade());
        told.filter(|events| events.send(Event::Cancelled { reason: reason.to_owned() }).is_ok()).count()
    }
}
