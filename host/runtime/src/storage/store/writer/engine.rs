//! The committing side of a store. The writer's thread owns it and calls it with one group of tasks
//! after the other.

use std::collections::HashSet;

use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::ids::{Millis, RoomId};

use super::commit::CommitGroup;
#[cfg(feature = "postgres")]
use super::overlays::{ChangeAnswer, OverlayChange};
use super::{Collected, Retention};
use crate::storage::store::record::StoredBytes;
use crate::storage::store::sql::SqlResult;

pub(super) trait Engine: Send {
    /// Writes a group in one transaction.
    fn commit(&mut self, group: &CommitGroup<'_>) -> SqlResult<Committed>;

    /// Takes a room for this host before its journal is read, and fences whoever had it. `now` is
    /// the time of the host's clock.
    fn take(&mut self, room: &RoomId, now: Millis) -> SqlResult<Taken>;

    /// Writes a snapshot in a transaction of its own, so that one that does not fit takes no record
    /// with it. Returns whether it was written.
    fn keep_snapshot(
        &mut self,
        room: &RoomId,
        snapshot: &Unfinished,
        body: &str,
    ) -> SqlResult<bool>;

    /// Stores the contents of changes of overlays, and records the changes in one transaction, each
    /// with an answer. A store in a folder has its overlays in files.
    #[cfg(feature = "postgres")]
    fn change_overlays(&mut self, changes: &[OverlayChange]) -> SqlResult<Vec<ChangeAnswer>> {
        Ok(vec![ChangeAnswer::Fenced; changes.len()])
    }

    /// Notes in the rooms that this process runs that it stops at this time.
    fn note_stop(&mut self, at: Millis) -> SqlResult<()>;

    /// Removes ended runs except the `live` ones, and blobs without references except the `stored`
    /// ones.
    fn collect(
        &mut self,
        keep: &Retention,
        live: &HashSet<RoomId>,
        stored: &HashSet<String>,
    ) -> SqlResult<Collected>;

    /// Commits the last attachments and gives up what this process holds.
    fn close(&mut self, blobs: &[StoredBytes]);
}

/// The result of a commit.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Whether the store has changed.
    pub(super) has_changed: bool,
    /// The writes that were refused, by their index in the group. All others are committed.
    pub(super) refused: Vec<(usize, Refusal)>,
}

/// The reason why a host may not write to a room.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has one writer"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The room has records that this host did not write.
    Behind {
        /// The number of the room's next record.
        next: u64,
    },
    /// Another host has taken the room.
    Fenced {
        /// The epoch of the room now.
        epoch: u64,
    },
}

/// The result of taking a room.
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has one writer"))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// This host may write records of this epoch. 0 where the store has one writing process.
    Owned { epoch: u64 },
    /// Another host has the run in progress.
    Busy { host: String },
    /// There is no such room.
    Missing,
}
