//! Retention: removes ended runs, and blobs without references. The audit chain keeps its lines.

use std::collections::HashSet;

use conclave_core::types::ids::RoomId;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::sqlite::SqliteEngine;
use super::{Collected, Retention};
use crate::storage::store::schema;
use crate::support::clock::{Clock, SystemClock};
use crate::support::overlay_files::count_changes;

/// The maximum number of pages freed at once, which limits the time that the file is locked.
const PAGES: u32 = 10_000;
/// The number of records up to which reading all of them is always cheap enough.
const FEW: i64 = 10_000;
/// Above that, all records are read once one in this many has been removed.
const PART: i64 = 8;
/// The key in `meta` for the number of records removed since the last search for blobs.
const REMOVED: &str = "removed";

pub(super) fn collect(
    thread: &mut SqliteEngine,
    keep: &Retention,
    live: &HashSet<RoomId>,
    stored: &HashSet<String>,
) -> rusqlite::Result<Collected> {
    let transaction =
        thread.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut collected = Collected::default();
    for run in runs(&transaction, keep)?.into_iter().filter(|run| !live.contains(run.as_str())) {
        if count_changes(&thread.folder, &run) > 0 {
            collected.remaining_runs.push(RoomId::from(run));
            continue;
        }
        remove(&transaction, &run, &mut collected)?;
        collected.runs.push(RoomId::from(run));
    }
    if is_worth_it(&transaction, keep, collected.records)? {
        blobs(&transaction, stored, &mut collected)?;
    }
    // A dry run performs the deletions and rolls them back, so its counts are exact.
    if keep.dry {
        transaction.rollback()?;
        return Ok(collected);
    }
    transaction.commit()?;
    // The cache may hold digests of blobs that were just removed.
    thread.file.known.clear();
    let mut vacuum = thread.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    Ok(collected)
}

/// Whether to search for blobs without references. A collection without conditions searches at
/// once.
fn is_worth_it(
    transaction: &Transaction<'_>,
    keep: &Retention,
    removed: u64,
) -> rusqlite::Result<bool> {
    if keep.before.is_none() && keep.runs.is_none() {
        return Ok(true);
    }
    if removed == 0 {
        return Ok(false);
    }
    let since = schema::meta(transaction, REMOVED)?
        .saturating_add(i64::try_from(removed).unwrap_or(i64::MAX));
    let remaining: i64 =
        transaction
            .query_row("SELECT coalesce(sum(records), 0) FROM rooms", [], |row| row.get(0))?;
    // The search reads every record, so it waits until enough records were removed.
    let is_worth_it = remaining <= FEW || since.saturating_mul(PART) >= remaining;
    schema::set_meta(transaction, REMOVED, if is_worth_it { 0 } else { since })?;
    Ok(is_worth_it)
}

/// Returns the runs to remove, oldest first. A run with an open room is never removed.
fn runs(connection: &Connection, keep: &Retention) -> rusqlite::Result<Vec<String>> {
    if keep.before.is_none() && keep.runs.is_none() {
        return Ok(Vec::new());
    }
    let before = keep.before.map_or(i64::MAX, |before| i64::try_from(before.0).unwrap_or(i64::MAX));
    let newest = keep.runs.map_or(0, |runs| i64::try_from(runs).unwrap_or(i64::MAX));
    let mut query = connection.prepare(
        "SELECT room FROM rooms WHERE parent IS NULL AND ended < ?1
         AND NOT EXISTS (SELECT 1 FROM rooms AS other WHERE other.run = rooms.run AND other.ended IS NULL)
         AND room NOT IN (SELECT room FROM rooms WHERE parent IS NULL ORDER BY started DESC, rowid DESC LIMIT ?2)
         ORDER BY started, rowid",
    )?;
    query.query_map([before, newest], |row| row.get(0))?.collect()
}

fn remove(
    transaction: &Transaction<'_>,
    run: &str,
    collected: &mut Collected,
) -> rusqlite::Result<()> {
    let of_run = "room IN (SELECT room FROM rooms WHERE run = ?1)";
    let bytes: i64 = transaction.query_row(
        &format!("SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM events WHERE {of_run}"),
        [run],
        |row| row.get(0),
    )?;
    // Checks accept missing records of the run only up to this line.
    let last: Option<i64> = transaction
        .query_row(&format!("SELECT max(number) FROM events WHERE {of_run}"), [run], |row| {
            row.get(0)
        })
        .optional()?
        .flatten();
    let records = transaction.execute(&format!("DELETE FROM events WHERE {of_run}"), [run])?;
    transaction.execute(&format!("DELETE FROM waits WHERE {of_run}"), [run])?;
    transaction.execute(&format!("DELETE FROM timers WHERE {of_run}"), [run])?;
    transaction.execute(&format!("DELETE FROM snapshots WHERE {of_run}"), [run])?;
    transaction.execute("DELETE FROM rooms WHERE run = ?1", [run])?;
    let at = i64::try_from(SystemClock.now().0).unwrap_or(i64::MAX);
    transaction.execute(
        "INSERT OR REPLACE INTO removed (run, at, last) VALUES (?, ?, ?)",
        params![run, at, last.unwrap_or(0)],
    )?;
    collected.records += records as u64;
    collected.bytes += bytes.cast_unsigned();
    Ok(())
}

/// Removes blobs without references. A reference is a digest in the JSON of an event, so none is
/// overlooked.
fn blobs(
    transaction: &Transaction<'_>,
    retained: &HashSet<String>,
    collected: &mut Collected,
) -> rusqlite::Result<()> {
    let used = used_digests(transaction)?;
    let mut query = transaction.prepare("SELECT sha256, length FROM blobs")?;
    let all = query
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    for (sha256, length) in
        all.into_iter().filter(|(sha256, _)| !used.contains(sha256) && !retained.contains(sha256))
    {
        transaction.prepare_cached("DELETE FROM blobs WHERE sha256 = ?")?.execute([sha256])?;
        collected.blobs += 1;
        collected.bytes += length.cast_unsigned();
    }
    Ok(())
}

/// Returns the digests in events and in their parts.
fn used_digests(connection: &Connection) -> rusqlite::Result<HashSet<String>> {
    let (mut used, mut parts) = (HashSet::new(), HashSet::new());
    let mut events = connection.prepare("SELECT body, parts FROM events")?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        digests(row.get_ref(0)?.as_bytes()?, &mut used);
        if let Some(parts_text) = row.get_ref(1)?.as_bytes_or_null()? {
            digests(parts_text, &mut parts);
        }
    }
    let mut part = connection.prepare("SELECT bytes FROM blobs WHERE sha256 = ?")?;
    for sha256 in parts {
        let mut rows = part.query([&sha256])?;
        if let Some(row) = rows.next()? {
            digests(row.get_ref(0)?.as_bytes()?, &mut used);
        }
        used.insert(sha256);
    }
    Ok(used)
}

/// Collects the words of 64 lower-case hexadecimal digits.
fn digests(text: &[u8], found: &mut HashSet<String>) {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    for word in text.split(|byte| !is_digit(byte)).filter(|word| word.len() == 64) {
        found.insert(String::from_utf8_lossy(word).into_owned());
    }
}
