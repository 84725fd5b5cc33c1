//! What the lists of a store hold about a room, by a fold of its records. The lists are written
//! beside the records and are not in the audit chain, so a decision is never taken from them alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::journal::ownership::OneHistory;
use crate::journal::pending_work::{PendingWork, WaitChange, WaitKey};
use crate::protocol::event::{Event, Record};
use crate::room::Room;
use crate::types::approval::ApprovalRequest;
use crate::types::ids::CallId;
use crate::types::outcome::{Outcome, Status};
use crate::types::usage::Spent;

/// A fold of a room's records to what the lists say about it.
#[derive(Debug, Default)]
pub struct RoomRowFold {
    room: Room,
    /// The epochs of the records, which decide whether a further one counts.
    history: OneHistory,
    waits: BTreeMap<WaitKey, PendingWork>,
    /// The end of a room that was stopped before it was opened.
    stopped: Option<Arc<Outcome>>,
}

impl RoomRowFold {
    /// Folds the next record.
    pub fn take(&mut self, record: Record) {
        if !self.history.counts(record.epoch) {
            return;
        }
        let over = WaitChange::of_event(&record.event);
        let settled = record.event.settled_call().filter(|call| self.room.is_in_flight(*call));
        if let Event::Cancelled { reason } = record.event.effective() {
            self.stopped = Some(Arc::new(Outcome::new(Status::Kill, reason.as_str())));
        }
        self.room.handle(record.event, record.at);
        while self.room.poll_notice().is_some() {}
        // An invalid decision leaves its question open.
        if settled.is_none_or(|call| !self.room.is_in_flight(call)) {
            over.into_iter().for_each(|change| self.apply(change));
        }
        while let Some(effect) = self.room.poll_effect() {
            WaitChange::of_effect(&effect).into_iter().for_each(|change| self.apply(change));
        }
    }

    fn apply(&mut self, change: WaitChange) {
        match change {
            WaitChange::Begun(work) => drop(self.waits.insert(work.key, work)),
            WaitChange::Over(key) => drop(self.waits.remove(&key)),
            WaitChange::Abandoned(call) => self.waits.retain(|key, _| key.call() != Some(call)),
            WaitChange::Finished => self.waits.clear(),
        }
    }

    /// The pending work. Timers that the room has dropped are here too.
    #[must_use]
    pub fn waits(&self) -> &BTreeMap<WaitKey, PendingWork> {
        &self.waits
    }

    /// The outcome of the room's last run; `None` if it has none yet.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.room.outcome().or(self.stopped.as_ref()).map(|outcome| &**outcome)
    }

    /// Returns what the room has spent.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.room.spent()
    }

    /// Returns what the approver of a call, or of a top-up, was asked, if that is still open.
    #[must_use]
    pub fn open_approval(&self, call: CallId) -> Option<&ApprovalRequest> {
        self.waits.get(&WaitKey::Call(call))?.request.as_deref()
    }
}

impl Extend<Record> for RoomRowFold {
    fn extend<I: IntoIterator<Item = Record>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.take(record));
    }
}
