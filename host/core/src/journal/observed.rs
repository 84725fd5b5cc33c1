//! The events of a room for observers, derived from its records once more: an observer that missed
//! some after a crash or a stop gets those that it would have got.

use crate::protocol::event::Record;
use crate::protocol::notice::Notice;
use crate::room::Room;
use crate::types::ids::{PluginName, RoomId};
use crate::types::observed::{ObservedEvent, ObservedPosition};

/// The fold of a room's records to the events of one observer.
#[derive(Debug)]
pub struct ObservedFold {
    room: Room,
    observer: PluginName,
    children: Vec<RoomId>,
}

impl ObservedFold {
    /// Returns a fold before the first record.
    #[must_use]
    pub fn new(observer: PluginName) -> Self {
        Self { room: Room::new(), observer, children: Vec::new() }
    }

    /// Takes the next record, and returns its events that the observer receives by the setup of
    /// that time. A run whose config did not name the observer has none for it.
    pub fn take(&mut self, record: Record) -> Vec<ObservedEvent> {
        let (seq, at) = (record.seq, record.at);
        self.room.handle(record.event, at);
        let mut events = Vec::new();
        for index in 0.. {
            let Some(notice) = self.room.poll_notice() else { break };
            if let Notice::BackgroundStarted { room, .. } = &notice {
                self.children.push(room.clone());
            }
            let rules = &self.room.setup().observers;
            let rule = rules.iter().find(|rule| rule.plugin == self.observer);
            if rule.is_some_and(|rule| rule.receives(notice.kind())) {
                let position = ObservedPosition { seq, index };
                events.push(notice.observed(self.room.id().clone(), position, at));
            }
        }
        // The fold performs no effects; undrained queues would grow with the journal.
        while self.room.poll_task().is_some() {}
        while self.room.poll_effect().is_some() {}
        events
    }

    /// Returns the rooms of the background tasks that the records start.
    #[must_use]
    pub fn into_children(self) -> Vec<RoomId> {
        self.children
    }
}
