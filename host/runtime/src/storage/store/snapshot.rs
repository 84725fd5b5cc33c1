//! Snapshots of rooms in the store: one row for each room, replaced by the next. A snapshot is bound
//! to the record that it follows, so it is never used without that record. The records are the
//! truth: a snapshot that cannot be used is reported and ignored.

use std::collections::BTreeSet;

use conclave_core::journal::recovery::Unfinished;
use conclave_core::journal::snapshot::SnapshotError;
use conclave_core::protocol::event::RULES;
use conclave_core::types::ids::RoomId;
use sha2::{Digest, Sha256};

use super::read;
use super::record::Hash;
use super::sql::{Sql, SqlResult};

/// The reason why a snapshot is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableSnapshot {
    #[error("the record before it is not there")]
    NoRecord,
    #[error("its bytes are not what was written, or not after that record")]
    Hash,
    #[error("its room was folded by rules {rules}; this host folds rules {RULES}")]
    OtherRules { rules: u32 },
    #[error(transparent)]
    Unreadable(#[from] SnapshotError),
    #[error("its setup and grants are not those of the room's records")]
    OtherSetup,
}

/// Writes the snapshot of a room with its text, unless the record before it is not in the store.
/// Returns whether it was written. Removes the room's timers that will not fire: the room drops a
/// timer without a record, so nothing else removes them while it stays open.
pub(super) fn write(
    tables: &dyn Sql,
    room: &RoomId,
    snapshot: &Unfinished,
    body: &str,
) -> SqlResult<bool> {
    let (room, next, body) = (room.as_str(), snapshot.next, body.as_bytes());
    let before = "SELECT hash FROM events WHERE room = ?1 AND seq = ?2";
    let record: Option<Vec<u8>> =
        tables.first(before, &[room.into(), last(next).into()], |row| row.get(0))?;
    let Some(record) = record else { return Ok(false) };
    tables.execute(
        "INSERT INTO snapshots (room, next, body, hash) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (room) DO UPDATE
         SET next = excluded.next, body = excluded.body, hash = excluded.hash",
        &[room.into(), next.into(), body.into(), hash(&record, body)[..].into()],
    )?;
    let pending: BTreeSet<u64> = snapshot.in_flight.timers().map(|timer| timer.0).collect();
    let stored = "SELECT timer FROM timers WHERE room = ?1";
    let stored = tables.rows(stored, &[room.into()], |row| row.get::<u64>(0))?;
    for timer in stored.into_iter().filter(|timer| !pending.contains(timer)) {
        let delete = "DELETE FROM timers WHERE room = ?1 AND timer = ?2";
        tables.execute(delete, &[room.into(), timer.into()])?;
    }
    Ok(true)
}

/// Returns the room of its snapshot; `None` if it has none, or none that can be used.
pub(super) fn read(tables: &dyn Sql, room: &str) -> SqlResult<Option<Box<Unfinished>>> {
    let found = tables.first(
        "SELECT snapshots.body, snapshots.hash, events.hash, events.rules FROM snapshots
         LEFT JOIN events ON events.room = snapshots.room AND events.seq = snapshots.next - 1
         WHERE snapshots.room = ?1",
        &[room.into()],
        |row| Ok(usable(row.bytes(0)?, row.bytes(1)?, row.get(2)?, row.get(3)?)),
    )?;
    let usable = match found {
        Some(Ok(snapshot)) if !has_setups_of_records(tables, room, &snapshot)? => {
            Err(UnusableSnapshot::OtherSetup)
        }
        Some(usable) => usable,
        None => return Ok(None),
    };
    Ok(usable.map(Box::new).map_err(|reason| report_unused(room, &reason)).ok())
}

/// Whether the room of a snapshot has the setups of its records. A snapshot is not in the audit
/// chain, so what a run may do is never taken from it alone.
fn has_setups_of_records(tables: &dyn Sql, room: &str, snapshot: &Unfinished) -> SqlResult<bool> {
    let numbers = tables.rows(
        "SELECT seq FROM events WHERE room = ?1 AND seq < ?2
         AND kind IN ('room-opened', 'run-started', 'resumed') ORDER BY seq",
        &[room.into(), snapshot.next.into()],
        |row| row.get::<u64>(0),
    )?;
    let mut records = Vec::new();
    for seq in numbers {
        match read::record(tables, room, seq) {
            Ok(record) => records.push(record),
            Err(read::ReadError::Sql(error)) => return Err(error),
            // An unreadable record is reported when the room is read from its first one.
            Err(_) => return Ok(false),
        }
    }
    Ok(snapshot.has_setups_of(&records))
}

/// Returns the rooms whose snapshot is not the fold of their records, although its hash is right:
/// those that are not `damaged`. A snapshot that no resumption of this host would use is left out.
pub(super) fn forged(tables: &dyn Sql, damaged: &[String]) -> SqlResult<Vec<String>> {
    let mut forged = Vec::new();
    tables.each("SELECT room, next, body FROM snapshots ORDER BY room", &[], |row| {
        let (room, next): (String, u64) = (row.get(0)?, row.get(1)?);
        if damaged.contains(&room) {
            return Ok(());
        }
        let numbers = 0..=next.saturating_sub(1);
        let snapshot = std::str::from_utf8(row.bytes(2)?).map(Unfinished::from_snapshot);
        let records = read::each(tables, &room, numbers, |row, blob| row.record(blob));
        if let (Ok(Ok(snapshot)), Ok(records)) = (snapshot, records)
            && snapshot.is_fold_of(records).is_ok_and(|is_fold| !is_fold)
        {
            forged.push(room);
        }
        Ok(())
    })?;
    Ok(forged)
}

fn usable(
    body: &[u8],
    expected: &[u8],
    record: Option<Vec<u8>>,
    rules: Option<u32>,
) -> Result<Unfinished, UnusableSnapshot> {
    let (Some(record), Some(rules)) = (record, rules) else {
        return Err(UnusableSnapshot::NoRecord);
    };
    if hash(&record, body)[..] != *expected {
        return Err(UnusableSnapshot::Hash);
    }
    if rules != RULES {
        return Err(UnusableSnapshot::OtherRules { rules });
    }
    // The hash matches, so the bytes are the text that was written.
    let text = std::str::from_utf8(body).map_err(|_| UnusableSnapshot::Hash)?;
    Ok(Unfinished::from_snapshot(text)?)
}

/// Returns the rooms whose snapshot was changed since it was written, or follows no record.
pub(super) fn damaged(tables: &dyn Sql) -> SqlResult<Vec<String>> {
    let all = "SELECT snapshots.room, snapshots.body, snapshots.hash, events.hash FROM snapshots
         LEFT JOIN events ON events.room = snapshots.room AND events.seq = snapshots.next - 1
         ORDER BY snapshots.room";
    let mut damaged = Vec::new();
    tables.each(all, &[], |row| {
        let record: Option<Vec<u8>> = row.get(3)?;
        let is_whole = match &record {
            Some(record) => hash(record, row.bytes(1)?)[..] == *row.bytes(2)?,
            None => false,
        };
        if !is_whole {
            damaged.push(row.get(0)?);
        }
        Ok(())
    })?;
    Ok(damaged)
}

/// The number of the record that a snapshot follows.
fn last(next: u64) -> i64 {
    next.cast_signed() - 1
}

/// The hash that binds a snapshot to the record before it. The exact bytes are in
/// docs/reference/journal-format.md.
fn hash(record: &[u8], body: &[u8]) -> Hash {
    let mut hash = Sha256::new();
    hash.update(record);
    hash.update(body);
    hash.finalize().into()
}

/// Reports a snapshot that is not used. Its room is folded from its first record.
pub(super) fn report_unused(room: &str, reason: &dyn std::error::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "conclave", room, %reason, "snapshot not used");
    #[cfg(not(feature = "tracing"))]
    let _ = (room, reason);
}
