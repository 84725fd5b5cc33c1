//! Retention: removes ended runs, and blobs without references. The audit chain keeps its lines.

use std::collections::HashSet;

use conclave_core::types::ids::RoomId;

use super::{Collected, Retention};
use crate::storage::store::schema;
use crate::storage::store::sql::{Sql, SqlResult, Value};
use crate::support::clock::{Clock, SystemClock};

/// The number of records up to which reading all of them is always cheap enough.
const FEW: i64 = 10_000;
/// Above that, all records are read once one in this many has been removed.
const PART: i64 = 8;
/// The key in `meta` for the number of records removed since the last search for blobs.
const REMOVED: &str = "removed";

/// Removes ended runs except the `live` ones and those with changes in their overlays, and blobs
/// without references except the `stored` ones. The caller has a transaction open.
pub(super) fn collect(
    tables: &dyn Sql,
    keep: &Retention,
    (live, stored): (&HashSet<RoomId>, &HashSet<String>),
    has_changes: &dyn Fn(&str) -> bool,
) -> SqlResult<Collected> {
    let mut collected = Collected::default();
    for run in runs(tables, keep)?.into_iter().filter(|run| !live.contains(run.as_str())) {
        if keep.is_full(collected.runs.len()) {
            break;
        }
        if has_changes(&run) {
            collected.remaining_runs.push(RoomId::from(run));
            continue;
        }
        remove(tables, &run, &mut collected)?;
        collected.runs.push(RoomId::from(run));
    }
    if is_worth_it(tables, keep, collected.records)? {
        blobs(tables, stored, &mut collected)?;
    }
    Ok(collected)
}

/// Whether to search for blobs without references. A collection without conditions searches at
/// once.
fn is_worth_it(tables: &dyn Sql, keep: &Retention, removed: u64) -> SqlResult<bool> {
    if keep.before.is_none() && keep.runs.is_none() {
        return Ok(true);
    }
    if removed == 0 {
        return Ok(false);
    }
    let since =
        schema::meta(tables, REMOVED)?.saturating_add(i64::try_from(removed).unwrap_or(i64::MAX));
    let remaining = number(tables, "SELECT CAST(sum(records) AS BIGINT) FROM rooms", &[])?;
    // The search reads every record, so it waits until enough records were removed.
    let is_worth_it = remaining <= FEW || since.saturating_mul(PART) >= remaining;
    schema::set_meta(tables, REMOVED, if is_worth_it { 0 } else { since })?;
    Ok(is_worth_it)
}

/// Returns the number that an aggregate has; 0 if it is over no row.
fn number(tables: &dyn Sql, statement: &str, values: &[Value<'_>]) -> SqlResult<i64> {
    Ok(tables.first(statement, values, |row| row.get(0))?.flatten().unwrap_or(0))
}

/// Returns the runs to remove, oldest first. A run with an open room is never removed.
fn runs(tables: &dyn Sql, keep: &Retention) -> SqlResult<Vec<String>> {
    if keep.before.is_none() && keep.runs.is_none() {
        return Ok(Vec::new());
    }
    let before = keep.before.map_or(i64::MAX, |before| i64::try_from(before.0).unwrap_or(i64::MAX));
    let newest = keep.runs.map_or(0, |runs| i64::try_from(runs).unwrap_or(i64::MAX));
    let (order, config) = (tables.engine().room_order(), keep.config_text());
    let of_config = "parent IS NULL AND (?3 = '' OR config = ?3)";
    let ended = format!(
        "SELECT room FROM rooms WHERE {of_config} AND ended < ?1
         AND NOT EXISTS (SELECT 1 FROM rooms AS other WHERE other.run = rooms.run AND other.ended IS NULL)
         AND room NOT IN (SELECT room FROM rooms WHERE {of_config} ORDER BY started DESC, {order} DESC LIMIT ?2)
         ORDER BY started, {order}"
    );
    tables.rows(&ended, &[before.into(), newest.into(), (&*config).into()], |row| row.get(0))
}

fn remove(tables: &dyn Sql, run: &str, collected: &mut Collected) -> SqlResult<()> {
    let of_run = "room IN (SELECT room FROM rooms WHERE run = ?1)";
    let run = [run.into()];
    let bytes =
        format!("SELECT CAST(sum(octet_length(body)) AS BIGINT) FROM events WHERE {of_run}");
    let bytes = number(tables, &bytes, &run)?;
    // Checks accept missing records of the run only up to this line.
    let last = format!("SELECT max(number) FROM events WHERE {of_run}");
    let last = number(tables, &last, &run)?;
    let records = tables.execute(&format!("DELETE FROM events WHERE {of_run}"), &run)?;
    for table in ["waits", "timers", "snapshots"] {
        tables.execute(&format!("DELETE FROM {table} WHERE {of_run}"), &run)?;
    }
    tables.execute("DELETE FROM rooms WHERE run = ?1", &run)?;
    let at = i64::try_from(SystemClock.now().0).unwrap_or(i64::MAX);
    tables.execute(
        "INSERT INTO removed (run, at, last) VALUES (?1, ?2, ?3)
         ON CONFLICT (run) DO UPDATE SET at = excluded.at, last = excluded.last",
        &[run[0], at.into(), last.into()],
    )?;
    collected.records += records;
    collected.bytes += bytes.cast_unsigned();
    Ok(())
}

/// Removes blobs without references. A reference is a digest in the JSON of an event, so none is
/// overlooked.
fn blobs(tables: &dyn Sql, retained: &HashSet<String>, collected: &mut Collected) -> SqlResult<()> {
    let used = used_digests(tables)?;
    let all = tables.rows("SELECT sha256, length FROM blobs", &[], |row| {
        Ok((row.get::<String>(0)?, row.get::<u64>(1)?))
    })?;
    for (sha256, length) in
        all.into_iter().filter(|(sha256, _)| !used.contains(sha256) && !retained.contains(sha256))
    {
        tables.execute("DELETE FROM blobs WHERE sha256 = ?1", &[(&sha256).into()])?;
        collected.blobs += 1;
        collected.bytes += length;
    }
    Ok(())
}

/// Returns the digests in events and in their parts.
fn used_digests(tables: &dyn Sql) -> SqlResult<HashSet<String>> {
    let (mut used, mut parts) = (HashSet::new(), HashSet::new());
    tables.each("SELECT body, coalesce(parts, '') FROM events", &[], |row| {
        find_digests(row.bytes(0)?, &mut used);
        find_digests(row.bytes(1)?, &mut parts);
        Ok(())
    })?;
    for sha256 in parts {
        let part = "SELECT bytes FROM blobs WHERE sha256 = ?1";
        tables.each(part, &[(&sha256).into()], |row| {
            find_digests(row.bytes(0)?, &mut used);
            Ok(())
        })?;
        used.insert(sha256);
    }
    Ok(used)
}

/// Collects the words of 64 lower-case hexadecimal digits.
pub(super) fn find_digests(text: &[u8], found: &mut HashSet<String>) {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    for word in text.split(|byte| !is_digit(byte)).filter(|word| word.len() == 64) {
        found.insert(String::from_utf8_lossy(word).into_owned());
    }
}
