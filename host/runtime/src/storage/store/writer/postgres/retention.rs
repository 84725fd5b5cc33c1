//! Retention in PostgreSQL: removes ended runs that no host has, messages that nobody will receive,
//! and blobs without references.

use std::collections::HashSet;

use conclave_core::types::ids::RoomId;

use super::chain::HostChain;
use super::{BlobFolder, Collected, HostEntry, Link, Retention};
use super::{SqlError, SqlErrorKind, SqlResult};
use crate::storage::store::mail;
use crate::storage::store::writer::retention::find_digests;
use crate::support::clock::{Clock, SystemClock};

/// The number of records up to which reading all of them is always cheap enough.
const FEW: i64 = 10_000;
/// Above that, all records are read once one in this many has been removed.
const PART: i64 = 8;

/// The ended runs to remove, oldest first, each locked against a host that would take it.
const RUNS: &str = "SELECT room FROM rooms WHERE parent IS NULL AND (?4 = '' OR config = ?4) AND ended < ?1
    AND NOT EXISTS (SELECT 1 FROM rooms AS other WHERE other.run = rooms.run AND other.ended IS NULL)
    AND NOT EXISTS (SELECT 1 FROM hosts WHERE hosts.host = rooms.host AND hosts.host <> ?3
        AND hosts.until > clock_timestamp())
    AND room NOT IN (SELECT room FROM rooms WHERE parent IS NULL AND (?4 = '' OR config = ?4)
        ORDER BY started DESC, number DESC LIMIT ?2)
    ORDER BY started, number FOR UPDATE";

/// A reference is a digest in the JSON of an event or of its parts, or in a message to a run. Those of
/// large parts, which are files, are passed. Attachments that another host has stored within a day are
/// spared, and blobs that one has just stored, because its records may be under way. A host counts up
/// to an hour after its lease, because it may only be cut off. Records that refer to a removed blob
/// later are refused.
const BLOBS: &str = "WITH others AS (
        SELECT host FROM hosts WHERE host <> ?2 AND until > clock_timestamp() - INTERVAL '1 hour'),
    parts AS (
        SELECT DISTINCT found[1] AS sha256 FROM events, regexp_matches(parts, '[0-9a-f]{64}', 'g') AS found),
    used AS (
        SELECT found[1] AS sha256 FROM events, regexp_matches(body, '[0-9a-f]{64}', 'g') AS found
        UNION SELECT found[1] FROM inbox, regexp_matches(body, '[0-9a-f]{64}', 'g') AS found
        UNION SELECT sha256 FROM parts
        UNION SELECT content FROM overlay_files WHERE content IS NOT NULL
        UNION SELECT found[1] FROM parts JOIN blobs USING (sha256),
            regexp_matches(convert_from(bytes, 'UTF8'), '[0-9a-f]{64}', 'g') AS found
        UNION SELECT held_blobs.sha256 FROM held_blobs JOIN others USING (host)
            WHERE since > now() - INTERVAL '1 day'),
    gone AS (
        DELETE FROM blobs WHERE NOT EXISTS (SELECT 1 FROM used WHERE used.sha256 = blobs.sha256)
        AND sha256 <> ALL (?1) AND sha256 <> ALL (?3)
        AND (stored < now() - INTERVAL '1 hour' OR NOT EXISTS (SELECT 1 FROM others))
        RETURNING length)
    SELECT count(*), CAST(coalesce(sum(length), 0) AS BIGINT) FROM gone";

/// The parts of events that are files.
const LARGE_PARTS: &str = "SELECT DISTINCT sha256
    FROM events, regexp_matches(parts, '[0-9a-f]{64}', 'g') AS found
    JOIN blobs ON sha256 = found[1] WHERE bytes IS NULL";

/// The digests in parts of events that are files.
#[derive(Default)]
struct LargeParts {
    read: HashSet<String>,
    references: HashSet<String>,
}

impl LargeParts {
    /// Reads the parts that were not read before.
    fn read(&mut self, link: &Link, folder: Option<&BlobFolder>) -> SqlResult<()> {
        let Some(folder) = folder else { return Ok(()) };
        for row in link.rows(LARGE_PARTS, &[])? {
            let sha256: String = row.try_get(0)?;
            if self.read.contains(&sha256) {
                continue;
            }
            let Some(bytes) = folder.read(&sha256)? else {
                let what = format!("the blob {sha256} is missing, so what it refers to is unknown");
                return Err(SqlError::new(SqlErrorKind::Damaged, what));
            };
            find_digests(&bytes, &mut self.references);
            self.read.insert(sha256);
        }
        Ok(())
    }
}

pub(super) fn collect(
    link: &Link,
    folder: Option<&BlobFolder>,
    (entry, chain): (&HostEntry, &mut HostChain),
    keep: &Retention,
    (live, stored): (&HashSet<RoomId>, &HashSet<String>),
) -> SqlResult<Collected> {
    let host = entry.host.as_str();
    // Before the locks, because many files take their time.
    let mut large = LargeParts::default();
    large.read(link, folder)?;
    link.batch("BEGIN")?;
    let mut collected = Collected::default();
    let is_bounded = keep.before.is_some() || keep.runs.is_some();
    if is_bounded {
        let before = keep.before.map_or(i64::MAX, |at| i64::try_from(at.0).unwrap_or(i64::MAX));
        let newest = keep.runs.map_or(0, |runs| i64::try_from(runs).unwrap_or(i64::MAX));
        let config = keep.config_text();
        for row in link.rows(RUNS, &[&before, &newest, &host, &&*config])? {
            if keep.is_full(collected.runs.len()) {
                break;
            }
            let run = RoomId::from(row.try_get::<_, String>(0)?);
            if live.contains(&run) {
                continue;
            }
            let has_changes = "SELECT 1 FROM overlay_files WHERE run = ?1 LIMIT 1";
            if link.rows(has_changes, &[&run.as_str()])?.is_empty() {
                remove(link, &run, (entry, chain), &mut collected)?;
                collected.runs.push(run);
            } else {
                collected.remaining_runs.push(run);
            }
        }
    }
    mail::delete_undeliverable(link)?;
    if !is_bounded || is_worth_it(link, collected.records)? {
        // Hosts that store a blob wait here, and find it gone.
        link.batch("LOCK TABLE blobs IN SHARE ROW EXCLUSIVE MODE")?;
        large.read(link, folder)?;
        let stored: Vec<&str> = stored.iter().map(String::as_str).collect();
        let referred: Vec<&str> = large.references.iter().map(String::as_str).collect();
        link.run(
            "DELETE FROM held_blobs WHERE host NOT IN (SELECT host FROM hosts)
             OR since < now() - INTERVAL '1 day'",
            &[],
        )?;
        let removed = link.row(BLOBS, &[&stored, &host, &referred])?;
        collected.blobs += removed.try_get::<_, i64>(0)?.cast_unsigned();
        collected.bytes += removed.try_get::<_, i64>(1)?.cast_unsigned();
    }
    // A dry run performs the deletions and rolls them back, so its counts are exact.
    link.batch(if keep.dry { "ROLLBACK" } else { "COMMIT" })?;
    Ok(collected)
}

/// Whether to search for blobs without references. The search reads every record, so it waits until
/// enough records were removed.
fn is_worth_it(link: &Link, removed: u64) -> SqlResult<bool> {
    if removed == 0 {
        return Ok(false);
    }
    let row = link.row(
        "INSERT INTO meta (name, value) VALUES ('removed', ?1)
         ON CONFLICT (name) DO UPDATE SET value = meta.value + EXCLUDED.value
         RETURNING value, (SELECT CAST(coalesce(sum(records), 0) AS BIGINT) FROM rooms)",
        &[&removed.cast_signed()],
    )?;
    let (since, remaining): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let is_worth_it = remaining <= FEW || since.saturating_mul(PART) >= remaining;
    if is_worth_it {
        link.run("UPDATE meta SET value = 0 WHERE name = 'removed'", &[])?;
    }
    Ok(is_worth_it)
}

fn remove(
    link: &Link,
    run: &RoomId,
    (entry, chain): (&HostEntry, &mut HostChain),
    collected: &mut Collected,
) -> SqlResult<()> {
    let rows = link.rows(
        "WITH gone AS (DELETE FROM events WHERE room IN (SELECT room FROM rooms WHERE run = ?1)
             RETURNING chain, number, octet_length(body) AS bytes)
         SELECT chain, max(number), count(*), CAST(sum(bytes) AS BIGINT) FROM gone
         GROUP BY chain ORDER BY chain",
        &[&run.as_str()],
    )?;
    // Checks accept missing records of the run only up to the noted line of each chain.
    let mut up_to = Vec::with_capacity(rows.len());
    for row in rows {
        up_to.push((row.try_get(0)?, row.try_get(1)?));
        collected.records += row.try_get::<_, i64>(2)?.cast_unsigned();
        collected.bytes += row.try_get::<_, i64>(3)?.cast_unsigned();
    }
    let at = SystemClock.now().0.cast_signed();
    chain.note_removal(link, entry, run.as_str(), at, &up_to)?;
    for table in ["waits", "timers", "snapshots", "inbox"] {
        let of_run = "room IN (SELECT room FROM rooms WHERE run = ?1)";
        link.run(&format!("DELETE FROM {table} WHERE {of_run}"), &[&run.as_str()])?;
    }
    for table in ["rooms", "overlays", "overlay_decisions"] {
        link.run(&format!("DELETE FROM {table} WHERE run = ?1"), &[&run.as_str()])?;
    }
    Ok(())
}
