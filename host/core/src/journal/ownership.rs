//! Which of several hosts runs a room, where they share a store. Only decisions: the store performs
//! them. They are explored with lost and late answers, and with pauses of any length, in
//! `tests/ownership_model`.

use serde::{Deserialize, Serialize};

use crate::protocol::event::Record;
use crate::types::ids::Millis;

/// The milliseconds after its last renewal in which no other host takes a room.
pub const LEASE_MS: u64 = 15_000;
/// The milliseconds between two renewals of a lease: two may fail before it is over.
pub const RENEW_EVERY_MS: u64 = 5_000;
/// The milliseconds after its last renewal in which a host starts effects. It is shorter than the
/// lease by the time that an effect of average length takes, so that few are interrupted.
pub const EFFECTS_WITHIN_MS: u64 = 10_000;

/// The one history of a room: its records without those of a host that had lost it.
///
/// A record of an older epoch than one before it is void. A store refuses such a record; but a
/// store that lets one in, because it was delayed on its way, must not give two readers two rooms.
/// So the epoch travels in the record and the reader judges. Void records have sequence numbers
/// like all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OneHistory {
    /// The highest epoch so far.
    epoch: u64,
}

impl OneHistory {
    /// Returns the history after a record of this epoch.
    #[must_use]
    pub fn after(epoch: u64) -> Self {
        Self { epoch }
    }

    /// Takes the epoch of the next record. Returns false if the record is void.
    #[must_use]
    pub fn counts(&mut self, epoch: u64) -> bool {
        let counts = epoch >= self.epoch;
        self.epoch = self.epoch.max(epoch);
        counts
    }

    /// Whether only one host ever wrote records, so that a snapshot need not hold the epoch.
    pub(super) fn has_no_epochs(&self) -> bool {
        self.epoch == 0
    }
}

/// The records of a room that count, in order; `records` begin with the room's first. A reader that
/// looks through records, instead of folding them by [`Unfinished`](super::recovery::Unfinished) or
/// [`RoomRowFold`](crate::inspect::room_row::RoomRowFold), passes them through this.
pub fn one_history(records: impl IntoIterator<Item = Record>) -> impl Iterator<Item = Record> {
    let mut history = OneHistory::default();
    records.into_iter().filter(move |record| history.counts(record.epoch))
}

/// What a room shows to a host that does not know whether its append was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomHead {
    /// The highest epoch of the room.
    pub epoch: u64,
    /// The epoch of the record that has the sequence number of the append's first record; `None` if
    /// the room has fewer records.
    pub in_place: Option<u64>,
}

/// What a host does after an append whose outcome is unknown: the connection was lost, the answer
/// timed out, or the store answered `behind`, which it also does when an earlier attempt of the same
/// append was stored meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUnknown {
    /// The append was stored.
    Stored,
    /// The append was not stored. The same records are appended again, at the same sequence number:
    /// if the first attempt still arrives, only one of them is stored.
    AppendAgain,
    /// The room has another owner, which has answered everybody. The host stops and reports nothing.
    Stop,
}

impl AfterUnknown {
    /// Returns what a host does that owns the room by epoch `own`, and sees this head.
    ///
    /// It is not for an unknown outcome of taking a room: two hosts that take it at once use the
    /// same epoch, and then a record of this epoch may be the other's. Such an attempt is given up,
    /// and the room is taken anew with the next epoch.
    #[must_use]
    pub fn of(head: RoomHead, own: u64) -> Self {
        match head.in_place {
            // The highest epoch is compared, and not that of the last record: a late record may
            // stand behind the record of the new owner.
            _ if head.epoch > own => Self::Stop,
            Some(epoch) if epoch == own => Self::Stored,
            None if head.epoch == own => Self::AppendAgain,
            // The store let a late record into the place, or lost the host's own records in a
            // failover. What this host knows is not what the room is, so the room is taken anew.
            _ => Self::Stop,
        }
    }
}

/// The lease of a room as its owner sees it, by its own monotonic clock. The store judges the same
/// lease by the store's clock.
///
/// The lease is for liveness only. A host may be paused between this check and what it does next, for
/// longer than any lease; what keeps an effect from happening twice is that its
/// `side-effect-asked` was acknowledged under the host's own epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseClock {
    renewed: Millis,
}

impl LeaseClock {
    /// Returns the clock of a lease that was taken or renewed by a request sent at `sent`. The time
    /// of sending counts, because the store's clock starts the lease after it.
    #[must_use]
    pub fn renewed_by_request_at(sent: Millis) -> Self {
        Self { renewed: sent }
    }

    /// The time of the next renewal.
    #[must_use]
    pub fn renew_at(self) -> Millis {
        self.renewed.plus(RENEW_EVERY_MS)
    }

    /// Whether the host may start an effect now.
    #[must_use]
    pub fn may_start_effects(self, now: Millis) -> bool {
        now.since(self.renewed) < EFFECTS_WITHIN_MS
    }

    /// Whether another host may have taken the room, so that this one lets go of it.
    #[must_use]
    pub fn is_over(self, now: Millis) -> bool {
        now.since(self.renewed) >= LEASE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_older_epoch_than_one_before_it_is_void() {
        let mut history = OneHistory::default();
        let counts: Vec<bool> =
            [0, 0, 2, 0, 1, 2, 3, 2].into_iter().map(|epoch| history.counts(epoch)).collect();
        assert_eq!(counts, [true, true, true, false, false, true, true, false]);
        assert_eq!(history, OneHistory::after(3));
    }

    #[test]
    fn an_unknown_outcome_is_decided_by_the_record_in_its_place() {
        let after = |epoch, in_place| AfterUnknown::of(RoomHead { epoch, in_place }, 3);
        assert_eq!(after(3, Some(3)), AfterUnknown::Stored);
        assert_eq!(after(3, None), AfterUnknown::AppendAgain);
        // Another host owns the room, even if the own record was stored before.
        for in_place in [None, Some(2), Some(3), Some(4)] {
            assert_eq!(after(4, in_place), AfterUnknown::Stop, "{in_place:?}");
        }
        // A late record in the place, and a store that lost the own epoch.
        assert_eq!(after(3, Some(2)), AfterUnknown::Stop);
        assert_eq!(after(2, None), AfterUnknown::Stop);
    }

    #[test]
    fn a_lease_is_renewed_in_time_and_effects_end_before_it() {
        let clock = LeaseClock::renewed_by_request_at(Millis(1_000));
        assert_eq!(clock.renew_at(), Millis(6_000));
        let may = |now| (clock.may_start_effects(Millis(now)), clock.is_over(Millis(now)));
        assert_eq!([may(0), may(10_999)], [(true, false); 2]);
        assert_eq!([may(11_000), may(15_999)], [(false, false); 2]);
        assert_eq!(may(16_000), (false, true));
    }
}
