//! One commit: all changes of a group of records, in one transaction.

use std::collections::{BTreeMap, HashSet};

use conclave_core::journal::recovery::Unfinished;
use conclave_core::types::ids::{Millis, RoomId};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::pending_work::{PendingChanges, PendingWorkRows};
use super::queue::{RoomWriting, Write};
use crate::storage::store::chain::ChainHead;
use crate::storage::store::reached::ReachedFile;
use crate::storage::store::record::StoredBytes;
use crate::storage::store::snapshot;
use crate::storage::store::sql::SqlResult;
use crate::support::fail_points::kill_point;

/// The maximum number of cached digests of blobs in the file; past it the cache is cleared.
const KNOWN: usize = 4_096;

/// The thread's state of the file.
#[derive(Default)]
pub(super) struct DatabaseFile {
    pub(super) head: ChainHead,
    pub(super) generation: i64,
    pub(super) known: HashSet<String>,
    /// Whether a commit without an fsync is pending.
    pub(super) unsynced: bool,
    pub(super) is_full: Option<bool>,
    pub(super) reached: ReachedFile,
}

/// The content of one commit.
#[derive(Default)]
pub(super) struct CommitGroup<'a> {
    pub(super) writes: Vec<&'a Write>,
    pub(super) blobs: &'a [StoredBytes],
    /// The attachments of this process that an earlier commit stored and these records refer to.
    /// Where other hosts remove blobs, they must still be there.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite has one writer"))]
    pub(super) references: &'a [String],
    /// The rooms that this process opens (true) or closes (false).
    pub(super) claims: Vec<(&'a RoomWriting, bool)>,
    /// Whether everything must survive a power loss afterwards.
    pub(super) durable: bool,
}

impl DatabaseFile {
    /// Writes a group in one transaction.
    pub(super) fn commit(
        &mut self,
        connection: &mut Connection,
        group: &CommitGroup<'_>,
    ) -> rusqlite::Result<()> {
        let durable = group.durable || group.writes.iter().any(|write| write.durable);
        let is_empty = group.writes.is_empty() && group.blobs.is_empty() && !durable;
        // Set before the transaction begins, because SQLite refuses a change inside it.
        if self.is_full != Some(durable) && !is_empty {
            connection.pragma_update(
                None,
                "synchronous",
                if durable { "FULL" } else { "NORMAL" },
            )?;
            self.is_full = Some(durable);
        }
        let mut head = self.head;
        let mut added = Vec::new();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let parts = group.blobs.iter().chain(group.writes.iter().flat_map(|write| &write.parts));
        for part in parts.filter(|part| !self.known.contains(&part.sha256)) {
            keep_blob(&transaction, part)?;
            added.push(part.sha256.clone());
        }
        let mut waits: BTreeMap<&RoomId, PendingWorkRows> = BTreeMap::new();
        for write in &group.writes {
            head = events(&transaction, write, head)?;
            waits.entry(&write.writing.room).or_default().add(write);
        }
        for write in latest(&group.writes) {
            room(&transaction, write, self.generation)?;
        }
        for (room, waits) in &waits {
            put(&transaction, room, &waits.changes())?;
        }
        for (writing, is_claimed) in &group.claims {
            let generation = if *is_claimed { self.generation } else { 0 };
            // Whether a process runs the room only matters until its run has ended. Most rooms are
            // closed after that, and their closing writes nothing.
            transaction
                .prepare_cached(
                    "UPDATE rooms SET generation = ?1 WHERE room = ?2 AND (?3 OR ended IS NULL)",
                )?
                .execute(params![generation, writing.room.as_str(), is_claimed])?;
        }
        if durable && self.unsynced && group.writes.is_empty() {
            // An fsync happens only with a write, and covers everything written before.
            transaction
                .prepare_cached("UPDATE meta SET value = value + 1 WHERE name = 'settled'")?
                .execute([])?;
        }
        kill_point!("before-commit");
        transaction.commit()?;
        kill_point!("after-commit");
        // Only after the commit: a failed transaction must not advance the chain.
        self.head = head;
        self.unsynced =
            !durable && (self.unsynced || !group.writes.is_empty() || !group.blobs.is_empty());
        // Clearing is safe: a digest that is not cached is looked up in the file.
        if self.known.len() + added.len() > KNOWN {
            self.known.clear();
        }
        self.known.extend(added);
        if durable {
            // The note must never be ahead of the log, so it follows the fsync.
            self.reached.note(&self.head);
        }
        Ok(())
    }
}

/// Writes a snapshot in a transaction of its own, so that one that does not fit takes no record
/// with it. Returns whether it was written.
pub(super) fn keep_snapshot(
    connection: &mut Connection,
    room: &RoomId,
    snapshot: &Unfinished,
    body: &str,
) -> SqlResult<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_kept = snapshot::write(&*transaction, room, snapshot, body)?;
    kill_point!("before-snapshot");
    transaction.commit()?;
    kill_point!("after-snapshot");
    Ok(is_kept)
}

/// Notes in the rooms that this process runs that it stops at this time.
pub(super) fn note_stop(
    connection: &Connection,
    generation: i64,
    at: Millis,
) -> rusqlite::Result<()> {
    connection
        // A note that a power cut takes away only makes the downtime an upper bound, so it needs no
        // fsync of its own.
        .prepare_cached("UPDATE rooms SET stopped = ? WHERE generation = ? AND ended IS NULL")?
        .execute(params![at.0.cast_signed(), generation])?;
    Ok(())
}

fn keep_blob(transaction: &Transaction<'_>, part: &StoredBytes) -> rusqlite::Result<()> {
    let length = i64::try_from(part.bytes.len()).unwrap_or(i64::MAX);
    transaction
        // The digest names the bytes, so a row that is there already is the same.
        .prepare_cached("INSERT OR IGNORE INTO blobs (sha256, length, bytes) VALUES (?, ?, ?)")?
        .execute(params![part.sha256, length, &part.bytes[..]])?;
    Ok(())
}

fn events(
    transaction: &Transaction<'_>,
    write: &Write,
    mut head: ChainHead,
) -> rusqlite::Result<ChainHead> {
    let room = write.writing.room.as_str();
    let mut event = transaction.prepare_cached(
        "INSERT INTO events (number, room, seq, at, kind, principal, rules, body, parts, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let mut line = transaction.prepare_cached(
        "INSERT INTO audit (number, room, seq, at, record, hash) VALUES (?, ?, ?, ?, ?, ?)",
    )?;
    for row in &write.rows {
        let record = row.hash(room);
        head = head.next(room, row.seq, row.at, &record);
        let (number, seq, at) =
            (head.number.cast_signed(), row.seq.cast_signed(), row.at.cast_signed());
        event.execute(params![
            number,
            room,
            seq,
            at,
            row.kind(),
            row.principal,
            row.rules,
            row.body,
            row.parts,
            record
        ])?;
        line.execute(params![number, room, seq, at, record, head.hash])?;
    }
    Ok(head)
}

/// The writes that update the rows of rooms: those that open a room or begin a run, then the newest
/// of each room.
fn latest<'a>(writes: &[&'a Write]) -> Vec<&'a Write> {
    let mut newest: BTreeMap<&RoomId, usize> = BTreeMap::new();
    for (index, write) in writes.iter().enumerate() {
        newest.insert(&write.writing.room, index);
    }
    let is_due = |index: usize, write: &Write| {
        newest.get(&write.writing.room) == Some(&index)
            || is_first(write)
            || write.front.is_some()
            || write.begins
            || write.inbound.is_some()
            || write.outcome.is_some()
    };
    writes
        .iter()
        .enumerate()
        .filter(|(index, write)| is_due(*index, write))
        .map(|(_, write)| *write)
        .collect()
}

fn is_first(write: &Write) -> bool {
    write.rows.first().is_some_and(|row| row.seq == 0)
}

fn room(transaction: &Transaction<'_>, write: &Write, generation: i64) -> rusqlite::Result<()> {
    let Some(last) = write.rows.last() else { return Ok(()) };
    let (room, at, new_room) =
        (write.writing.room.as_str(), last.at.cast_signed(), &write.new_room);
    // SQLite's integers are signed.
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (turns, tokens, cost) =
        (number(write.spent.turns), number(write.spent.tokens), number(write.spent.cost_micro_usd));
    let spent = serde_json::to_string(&write.spent).unwrap_or_default();
    if is_first(write) {
        let front = write.front.clone().unwrap_or_default();
        let run = room.split('/').next().unwrap_or(room);
        let parent = room.rsplit_once('/').map(|(parent, _)| parent);
        let agents = if front.agents.is_empty() { "[]" } else { &front.agents };
        transaction
            .prepare_cached(
                "INSERT INTO rooms (room, run, parent, started, changed, entry, agents, text, turns, tokens, cost_micro_usd, spent, records,
                 durability, config, command, locked, principal, generation, approvals, questions)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, '{}', 0, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                room,
                run,
                parent,
                write.rows[0].at.cast_signed(),
                at,
                front.entry,
                agents,
                front.text,
                new_room.durability,
                new_room.config,
                new_room.command,
                new_room.locked,
                last.principal,
                generation,
                new_room.approvals,
                new_room.questions
            ])?;
    }
    transaction
        .prepare_cached("UPDATE rooms SET changed = ?, turns = ?, tokens = ?, cost_micro_usd = ?, spent = ?, records = ? WHERE room = ?")?
        .execute(params![at, turns, tokens, cost, spent, last.seq.cast_signed() + 1, room])?;
    if let Some(text) = &write.inbound {
        transaction
            .prepare_cached("UPDATE rooms SET text = ? WHERE room = ? AND text = ''")?
            .execute(params![text, room])?;
    }
    // An ended room is open again. A resumption needs the origin of this run, not of the first, and
    // lists order rooms by their newest run.
    if write.begins {
        let first = write.rows.iter().find(|row| row.kind() == "run-started").unwrap_or(last);
        transaction
            .prepare_cached(
                "UPDATE rooms SET started = ?, ended = NULL, status = NULL, reason = NULL,
                 durability = ?, config = ?, command = ?, locked = ?, approvals = ?,
                 questions = ? WHERE room = ?",
            )?
            .execute(params![
                first.at.cast_signed(),
                new_room.durability,
                new_room.config,
                new_room.command,
                new_room.locked,
                new_room.approvals,
                new_room.questions,
                room
            ])?;
    }
    // After the reset above, because one write can both begin a run and end it.
    if let Some(outcome) = &write.outcome {
        transaction
            .prepare_cached("UPDATE rooms SET ended = ?, status = ?, reason = ? WHERE room = ?")?
            .execute(params![at, outcome.status.as_str(), outcome.reason, room])?;
    }
    Ok(())
}

/// Changes the lists of what a room waits for.
fn put(
    transaction: &Transaction<'_>,
    room: &RoomId,
    changes: &PendingChanges<'_>,
) -> rusqlite::Result<()> {
    let room = room.as_str();
    if changes.is_over {
        transaction.prepare_cached("DELETE FROM waits WHERE room = ?")?.execute([room])?;
        transaction.prepare_cached("DELETE FROM timers WHERE room = ?")?.execute([room])?;
    }
    for call in &changes.calls_over {
        transaction
            .prepare_cached("DELETE FROM waits WHERE room = ? AND call = ?")?
            .execute(params![room, call])?;
    }
    for timer in &changes.timers_over {
        transaction
            .prepare_cached("DELETE FROM timers WHERE room = ? AND timer = ?")?
            .execute(params![room, timer])?;
    }
    for key in &changes.waits_over {
        transaction
            .prepare_cached("DELETE FROM waits WHERE room = ? AND key = ?")?
            .execute(params![room, key])?;
    }
    for wait in &changes.waits {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO waits (room, key, call, kind, target, since) VALUES (?, ?, ?, ?, ?, ?)")?
            .execute(params![room, wait.key, wait.call, wait.kind, wait.target, wait.since])?;
    }
    for timer in &changes.timers {
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO timers (room, timer, at, since) VALUES (?, ?, ?, ?)",
            )?
            .execute(params![room, timer.timer, timer.at, timer.since])?;
    }
    Ok(())
}
