//! The events of a room for observers, derived from its records once more: an observer that missed
//! some after a crash or a stop gets those that it would have got.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::event::{Event, Record};
use crate::protocol::notice::Notice;
use crate::room::Room;
use crate::types::ids::{PluginName, RoomId};
use crate::types::observed::{ObservedEvent, ObservedPosition, observer_of_room, observer_room};

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

    /// The rooms of the background tasks that the records start.
    #[must_use]
    pub fn into_children(self) -> Vec<RoomId> {
        self.children
    }
}

/// The number of events that each observer of a run did not take; observers that took all
/// of them are left out. `rooms` are the records of all rooms of the run, its root's first and those
/// of its observers included.
#[must_use]
pub fn undelivered(rooms: &[Vec<Record>]) -> BTreeMap<PluginName, u64> {
    let room_of = |records: &[Record]| {
        records.iter().find_map(|record| match &record.event {
            Event::RoomOpened { opening, .. } => Some(opening.room.clone()),
            _ => None,
        })
    };
    let rooms: Vec<(RoomId, &[Record])> =
        rooms.iter().filter_map(|records| Some((room_of(records)?, &records[..]))).collect();
    let Some((root, first)) = rooms.first() else { return BTreeMap::new() };
    let setups = first.iter().filter_map(|record| record.event.setup());
    let observers: BTreeSet<&PluginName> =
        setups.flat_map(|setup| &setup.observers).map(|rule| &rule.plugin).collect();
    let backlogs = observers.into_iter().map(|observer| {
        let own = observer_room(root, observer);
        let positions = rooms
            .iter()
            .find(|(room, _)| *room == own)
            .map(|(_, records)| positions_taken(records));
        let positions = positions.unwrap_or_default();
        let is_left = |event: &ObservedEvent| {
            positions.get(&event.room).is_none_or(|last| event.position > *last)
        };
        let observed = rooms.iter().filter(|(room, _)| observer_of_room(room).is_none());
        let counts = observed.map(|(_, records)| {
            let mut fold = ObservedFold::new(observer.clone());
            let events = records.iter().flat_map(|record| fold.take(record.clone()));
            events.filter(is_left).count() as u64
        });
        (observer.clone(), counts.sum())
    });
    backlogs.filter(|(_, count)| *count > 0).collect()
}

/// The last event of each room that an observer took, by the records of its own room.
fn positions_taken(records: &[Record]) -> BTreeMap<RoomId, ObservedPosition> {
    let mut room = Room::new();
    for record in records {
        room.handle(record.event.clone(), record.at);
        while room.poll_notice().is_some() {}
        while room.poll_task().is_some() {}
        while room.poll_effect().is_some() {}
    }
    room.observed().clone()
}
