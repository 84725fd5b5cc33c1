//! Laws of snapshots: they spare reading, and are never the truth.

use conclave_runtime::ids::{Millis, RoomId};
use conclave_runtime::journal::Unfinished;

use crate::rooms::{OpenRoom, records};
use crate::{
    LawFailure, LawResult, TestedHost, TestedStore, change, ensure, ensure_equal, open, wait,
};

/// The number of the first record that was read, and whether the resumed room is what all records
/// lead to.
fn resumed(host: &dyn TestedHost, room: &str) -> LawResult<(u64, bool)> {
    let reopened = wait(host.journals().reopen(&RoomId::from(room), Millis(1_000)))??;
    let missing = || LawFailure::Broken(format!("the room {room} is not there"));
    let reopened = reopened.ok_or_else(missing)?;
    let mut state = reopened.snapshot.map(|snapshot| *snapshot).unwrap_or_default();
    let first = state.next;
    state.extend(reopened.records);
    let is_fold = state.is_fold_of(records(host, room)?)?;
    Ok((first, is_fold && state.next >= first))
}

/// A resumed room is the state that all of its records lead to, wherever its snapshot is.
pub fn a_resumed_room_is_the_fold_of_its_records(store: &dyn TestedStore) -> LawResult {
    for (name, count) in [("few", 5), ("at", 20), ("behind", 37)] {
        let host = open(store)?;
        let mut room = OpenRoom::new(&*host, name)?;
        room.append_with_snapshots(count)?;
        let written = Unfinished::fold(room.records.iter().cloned());
        let has_snapshot = count >= 20 && room.journal.snapshot_due().is_some();
        // The host closes the store, and with it writes what is due.
        drop(host);
        drop(room);
        let (first, is_fold) = resumed(&*open(store)?, name)?;
        ensure(first > 0 || !has_snapshot, || "the snapshot is not used".to_owned())?;
        ensure(is_fold, || format!("the room of {count} records, from {first} on, is another"))?;
        ensure(first <= written.next, || format!("the snapshot is newer than {count} records"))?;
    }
    Ok(())
}

/// A snapshot that does not follow the record before it is ignored.
pub fn a_snapshot_that_was_changed_is_ignored(store: &dyn TestedStore) -> LawResult {
    let host = open(store)?;
    let mut room = OpenRoom::new(&*host, "a")?;
    room.append_with_snapshots(25)?;
    drop((room, host));
    let host = open(store)?;
    let (first, is_fold) = resumed(&*host, "a")?;
    ensure(is_fold, || "the room is another".to_owned())?;
    drop(host);
    change(store, "UPDATE snapshots SET next = next - 1")?;
    if first == 0 {
        return Err(LawFailure::NotTried("it has no snapshots"));
    }
    let (first, is_fold) = resumed(&*open(store)?, "a")?;
    ensure_equal("the first record that was read", &first, &0)?;
    ensure(is_fold, || "the room is another".to_owned())
}
