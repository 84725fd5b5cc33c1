//! Integrity checks of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use conclave_core::types::ids::{Millis, RoomId};

#[cfg(feature = "postgres")]
use conclave_core::overlay::changes::ChangeRecord;

use super::derived;
#[cfg(feature = "postgres")]
use crate::storage::store::chain::removal_hash;
use crate::storage::store::chain::{ChainHead, hex};
use crate::storage::store::sql::{EngineKind, Sql, SqlErrorKind, SqlResult};
use crate::storage::store::writer::{ChainCheck, RemovedRun, StoreCheck};
use crate::storage::store::{read, schema, snapshot};
#[cfg(feature = "postgres")]
use crate::support::overlay_files::content_name;

/// The maximum number of problems listed; the rest are counted.
const TOLD: usize = 50;

/// The list of problems, of limited length.
#[derive(Default)]
pub(super) struct ProblemList {
    problems: Vec<String>,
    more: usize,
}

impl ProblemList {
    pub(super) fn add(&mut self, what: impl FnOnce() -> String) {
        if self.problems.len() < TOLD { self.problems.push(what()) } else { self.more += 1 }
    }

    fn into_list(mut self) -> Vec<String> {
        if self.more > 0 {
            self.problems.push(format!("and {} more", self.more));
        }
        self.problems
    }
}

pub(super) fn verify(tables: &dyn Sql, noted_heads: &[&str]) -> SqlResult<StoreCheck> {
    look(tables, noted_heads, false)
}

pub(super) fn check(tables: &dyn Sql) -> SqlResult<StoreCheck> {
    look(tables, &[], true)
}

/// Runs the checks on a snapshot.
fn look(tables: &dyn Sql, noted_heads: &[&str], all: bool) -> SqlResult<StoreCheck> {
    let _snapshot = tables.snapshot()?;
    let (mut checked, mut problems) = (StoreCheck::default(), ProblemList::default());
    // A database's server checks its own pages, and its tables are compared when it is opened.
    let is_file = tables.engine() == EngineKind::Sqlite;
    if all && is_file {
        let pages = schema::pages(tables, "integrity_check")?;
        pages.into_iter().for_each(|page| problems.add(|| format!("the file is damaged: {page}")));
    }
    lines(tables, noted_heads, &mut checked, &mut problems)?;
    if is_file {
        derived::tables(tables, &mut problems)?;
    } else {
        shared(tables, &mut problems)?;
        #[cfg(feature = "postgres")]
        changes(tables, &mut problems)?;
    }
    loose(tables, &mut problems)?;
    rooms(tables, &mut checked, &mut problems)?;
    derived::rows(tables, &mut problems)?;
    blobs(tables, &mut checked, &mut problems)?;
    let damaged = snapshot::damaged(tables)?;
    for room in snapshot::forged(tables, &damaged)? {
        problems.add(|| {
            format!("the snapshot of room {room} is not the state that its records lead to")
        });
    }
    for room in damaged {
        problems.add(|| format!("the snapshot of room {room} is not what was written"));
    }
    checked.removed_runs = removed_runs(tables)?;
    checked.bytes = bytes(tables)?;
    checked.problems = problems.into_list();
    Ok(checked)
}

/// Checks what only a store of several hosts has: the place at which each chain goes on, and the
/// epochs by which hosts may write. Chains are numbered from 1 without gaps.
fn shared(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<()> {
    let differing = "SELECT coalesce(chains.chain, ends.chain) FROM chains FULL JOIN
            (SELECT chain, max(number) AS number FROM audit GROUP BY chain) AS ends USING (chain)
        WHERE chains.number IS DISTINCT FROM coalesce(ends.number, 0)
            OR (chains.number > 0 AND NOT EXISTS (SELECT 1 FROM audit WHERE audit.chain = chains.chain
                AND audit.number = chains.number AND audit.hash = chains.hash))
        UNION SELECT missing.chain FROM generate_series(1, (SELECT max(chain) FROM chains)) AS missing (chain)
        WHERE missing.chain NOT IN (SELECT chain FROM chains) ORDER BY 1";
    for chain in tables.rows(differing, &[], |row| row.get::<u64>(0))? {
        problems.add(|| {
            format!("audit chain {chain} would not go on behind its newest line: it was cut off, or the table chains was changed")
        });
    }
    let behind = "SELECT rooms.room FROM rooms JOIN events ON events.room = rooms.room
        AND events.seq = rooms.records - 1 WHERE events.epoch > rooms.epoch";
    for room in tables.rows(behind, &[], |row| row.get::<String>(0))? {
        problems.add(|| format!("the epoch of room {room} is lower than that of its last record"));
    }
    Ok(())
}

/// Checks that each changed file of an overlay has its content, and its path and its length are those
/// of what was written. The bytes are compared as those of any blob.
#[cfg(feature = "postgres")]
fn changes(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<()> {
    let statement = "SELECT run, path, name, change, content, overlay_files.length, blobs.length
        FROM overlay_files LEFT JOIN blobs ON blobs.sha256 = content ORDER BY run, path";
    tables.each(statement, &[], |row| {
        let (run, path, name): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let content: Option<String> = row.get(4)?;
        let (length, blob_length): (Option<u64>, Option<u64>) = (row.get(5)?, row.get(6)?);
        if content.is_some() && blob_length.is_none() {
            problems
                .add(|| format!("the content of {path:?}, which run {run} changed, is not there"));
        }
        let change = serde_json::from_slice(row.bytes(3)?).ok();
        let is_whole = match change {
            Some(ChangeRecord::Written { path: changed, .. }) => {
                changed == path && content.is_some()
            }
            Some(ChangeRecord::Removed { path: changed, .. }) => {
                changed == path && content.is_none()
            }
            Some(ChangeRecord::Reverted { .. }) | None => false,
        };
        let has_length = blob_length.is_none() || length == blob_length;
        if !is_whole || !has_length || content_name(&path) != name {
            problems.add(|| format!("the change of {path:?} by run {run} is not what was written"));
        }
        Ok(())
    })
}

/// Checks each line of a chain against the one before, and its record against it.
fn lines(
    tables: &dyn Sql,
    noted_heads: &[&str],
    checked: &mut StoreCheck,
    problems: &mut ProblemList,
) -> SqlResult<()> {
    let mut noted_heads: Vec<String> =
        noted_heads.iter().map(|hash| hash.trim().to_lowercase()).collect();
    let (mut chain, mut head, mut broken_at) = (1, ChainHead::default(), None);
    let engine = tables.engine();
    let (columns, chain_column) = (read::columns(engine), engine.chain("audit"));
    let record_of_line = engine.record_of_line();
    let all = format!(
        "SELECT audit.number, audit.room, audit.seq, audit.at, audit.record, audit.hash,
         events.number IS NOT NULL, events.room, events.kind, {chain_column} AS chain, {columns}
         FROM audit LEFT JOIN events ON {record_of_line} ORDER BY chain, audit.number"
    );
    let removed = RemovedRuns::read(tables, problems)?;
    tables.each(&all, &[], |row| {
        let number: u64 = row.get(0)?;
        let (room, record): (String, Vec<u8>) = (row.get(1)?, row.get(4)?);
        let (seq, at): (u64, u64) = (row.get(2)?, row.get(3)?);
        let hash: Vec<u8> = row.get(5)?;
        let of_chain: u64 = row.get(9)?;
        if of_chain != chain {
            checked.add_chain(chain, head, broken_at.take());
            (chain, head) = (of_chain, ChainHead::default());
        }
        // A store with one writing process has one chain, which needs no number.
        let the_chain = match chain {
            1 => "the audit chain".to_owned(),
            other => format!("audit chain {other}"),
        };
        // The hash of a line after a gap cannot be verified, so only the gap is reported.
        if number != head.number + 1 {
            let (first, last) = (head.number + 1, number.saturating_sub(1));
            broken_at.get_or_insert(first);
            problems.add(|| format!("lines {first} to {last} of {the_chain} are missing"));
        } else {
            let next =
                <[u8; 32]>::try_from(&record[..]).map(|record| head.next(&room, seq, at, &record));
            if next.map_or(true, |next| next.hash[..] != hash[..]) {
                broken_at.get_or_insert(number);
                problems
                    .add(|| format!("line {number} of {the_chain} was changed, or one before it"));
            }
        }
        // Continues with the stored hash, so that one changed line is reported only once.
        head = ChainHead { number, hash: <[u8; 32]>::try_from(&hash[..]).unwrap_or_default() };
        noted_heads.retain(|noted_head| *noted_head != hex(&hash));
        if !row.get::<bool>(6)? {
            // Retention removes records but keeps their lines.
            if !removed.covers(&room, chain, number) {
                broken_at.get_or_insert(number);
                problems.add(|| {
                    format!("record {seq} of room {room} (line {number} of {the_chain}) was taken out")
                });
            }
            return Ok(());
        }
        let (event, stored) = read::row(row, 10)?;
        let is_same = row.get::<String>(7)? == room
            && event.seq == seq
            && event.at == at
            && row.get::<String>(8)? == event.kind();
        if !is_same || event.hash(&room)[..] != record[..] || stored != record {
            broken_at.get_or_insert(number);
            problems.add(|| {
                format!("record {seq} of room {room} (line {number} of {the_chain}) is not what was written")
            });
        }
        checked.records += 1;
        Ok(())
    })?;
    checked.add_chain(chain, head, broken_at);
    for hash in noted_heads {
        problems.add(|| format!("the hash {hash} is not in the audit chain: what was written up to it was changed or taken out"));
    }
    Ok(())
}

impl StoreCheck {
    /// Adds a chain that has lines.
    fn add_chain(&mut self, chain: u64, head: ChainHead, broken_at: Option<u64>) {
        if head.number > 0 {
            let (lines, head) = (head.number, hex(&head.hash));
            self.heads.push(head.clone());
            self.chains.push(ChainCheck { chain, lines, head, broken_at });
        }
    }
}

/// The runs that retention removed.
#[derive(Default)]
struct RemovedRuns {
    /// The newest line of a chain up to which records of a run may be missing.
    last: HashMap<(String, u64), u64>,
    /// The lines that note a removal, by chain and number. None has a record.
    lines: HashSet<(u64, u64)>,
}

impl RemovedRuns {
    /// Reads the removals. In a database, where anyone who may write could add one, only those count
    /// that a chain has.
    fn read(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<Self> {
        #[cfg(not(feature = "postgres"))]
        let _ = problems;
        let mut removed = Self::default();
        let all = match tables.engine() {
            EngineKind::Sqlite => "SELECT run, 1, last, at, 0, 0, NULL FROM removed",
            #[cfg(feature = "postgres")]
            EngineKind::Postgres => {
                "SELECT run, removed.chain, last, removed.at, coalesce(line_chain, 0),
                 coalesce(line_number, 0), audit.record FROM removed LEFT JOIN audit
                 ON audit.chain = line_chain AND audit.number = line_number AND audit.room = run"
            }
        };
        tables.each(all, &[], |row| {
            let (run, chain, last): (String, u64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            #[cfg(feature = "postgres")]
            if tables.engine() == EngineKind::Postgres {
                let digest: Option<Vec<u8>> = row.get(6)?;
                if digest.as_deref() != Some(&removal_hash(&run, chain, last, row.get(3)?)[..]) {
                    problems.add(|| {
                        format!(
                            "run {run} is noted as removed, and no line of an audit chain says so"
                        )
                    });
                    return Ok(());
                }
                removed.lines.insert((row.get(4)?, row.get(5)?));
            }
            let newest = removed.last.entry((run, chain)).or_default();
            *newest = last.max(*newest);
            Ok(())
        })?;
        Ok(removed)
    }

    /// Whether the record of a line is missing because of a removal, or the line notes one.
    fn covers(&self, room: &str, chain: u64, number: u64) -> bool {
        let run = room.split('/').next().unwrap_or(room);
        let last = self.last.get(&(run.to_owned(), chain));
        last.is_some_and(|last| number <= *last) || self.lines.contains(&(chain, number))
    }
}

/// Returns the runs that are noted as removed, oldest first.
pub(super) fn removed_runs(tables: &dyn Sql) -> SqlResult<Vec<RemovedRun>> {
    let all = "SELECT run, max(at) FROM removed GROUP BY run ORDER BY 2, 1";
    tables.rows(all, &[], |row| {
        Ok(RemovedRun { run: RoomId::from(row.get::<String>(0)?), at: Millis(row.get(1)?) })
    })
}

/// Reports rows without an owner.
fn loose(tables: &dyn Sql, problems: &mut ProblemList) -> SqlResult<()> {
    let record_of_line = tables.engine().record_of_line();
    let misplaced = match tables.engine() {
        // The place is the number in the audit chain.
        EngineKind::Sqlite => "",
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => {
            "UNION ALL SELECT 'record ' || seq || ' of room ' || room || ' has the place of an earlier one in its run' FROM
             (SELECT room, seq, place, lag(place) OVER (PARTITION BY room ORDER BY seq) AS last FROM events) AS placed
             WHERE place <= last"
        }
    };
    let all = format!(
        "SELECT 'record ' || seq || ' of room ' || room || ' is not in the audit chain' FROM events
         WHERE NOT EXISTS (SELECT 1 FROM audit WHERE {record_of_line})
         UNION ALL SELECT 'records of room ' || room || ' belong to no room of the list' FROM
         (SELECT DISTINCT room FROM events WHERE NOT EXISTS (SELECT 1 FROM rooms WHERE rooms.room = events.room)) AS unlisted
         UNION ALL SELECT 'room ' || room || ' is not in the list, and something is noted as what it waits for' FROM
         (SELECT room FROM waits UNION SELECT room FROM timers) AS waiting WHERE NOT EXISTS (SELECT 1 FROM rooms WHERE rooms.room = waiting.room)
         UNION ALL SELECT 'room ' || room || ' belongs to a run that is not in the list' FROM rooms
         WHERE NOT EXISTS (SELECT 1 FROM rooms AS root WHERE root.room = rooms.run AND root.parent IS NULL)
         {misplaced}"
    );
    tables.each(&all, &[], |row| {
        let what = row.get(0)?;
        problems.add(|| what);
        Ok(())
    })
}

/// Checks that each room has its noted number of records, without a gap.
fn rooms(tables: &dyn Sql, checked: &mut StoreCheck, problems: &mut ProblemList) -> SqlResult<()> {
    let all =
        "SELECT rooms.room, rooms.records, count(events.seq), coalesce(max(events.seq) + 1, 0)
         FROM rooms LEFT JOIN events USING (room) GROUP BY rooms.room";
    tables.each(all, &[], |row| {
        let (room, recorded, found, next): (String, i64, i64, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        checked.rooms += 1;
        if recorded != found || found != next {
            problems.add(|| {
                format!(
                    "room {room} has {found} records, the last of them {}; {recorded} were written",
                    next - 1
                )
            });
        }
        Ok(())
    })
}

/// Checks that each blob with a reference exists, and that its bytes match its digest.
fn blobs(tables: &dyn Sql, checked: &mut StoreCheck, problems: &mut ProblemList) -> SqlResult<()> {
    let all = tables.rows("SELECT sha256, length FROM blobs", &[], |row| {
        Ok((row.get::<String>(0)?, row.get::<u64>(1)?))
    })?;
    let stored: HashSet<&str> = all.iter().map(|(sha256, _)| sha256.as_str()).collect();
    let parts = "SELECT room, seq, parts FROM events WHERE parts IS NOT NULL ORDER BY room, seq";
    tables.each(parts, &[], |row| {
        // Parts that are no such JSON are not what was written, which another check reports.
        let parts: BTreeMap<String, String> =
            serde_json::from_slice(row.bytes(2)?).unwrap_or_default();
        let missing: BTreeSet<&String> =
            parts.values().filter(|sha256| !stored.contains(sha256.as_str())).collect();
        let (room, seq): (String, u64) = (row.get(0)?, row.get(1)?);
        for sha256 in missing {
            problems.add(|| {
                format!("record {seq} of room {room} refers to a blob that is not there: {sha256}")
            });
        }
        Ok(())
    })?;
    let is_sqlite = tables.engine() == EngineKind::Sqlite;
    for (sha256, length) in &all {
        checked.blobs += 1;
        let bytes = match read::blob(tables, sha256) {
            // A file of the shared folder is missing.
            Err(missing) if !is_sqlite && missing.kind == SqlErrorKind::Damaged => {
                problems.add(|| missing.to_string());
                continue;
            }
            bytes => bytes?,
        };
        if bytes.is_some_and(|bytes| {
            bytes.len() as u64 != *length || crate::support::digest::sha256(&bytes) != *sha256
        }) {
            problems.add(|| format!("the blob {sha256} is not what was written"));
        }
    }
    Ok(())
}

/// Returns the size of the file or database in bytes.
fn bytes(tables: &dyn Sql) -> SqlResult<u64> {
    let number = |query: &str| tables.first(query, &[], |row| row.get::<u64>(0));
    match tables.engine() {
        EngineKind::Sqlite => {
            let (pages, size) = (number("PRAGMA page_count")?, number("PRAGMA page_size")?);
            Ok(pages.unwrap_or(0) * size.unwrap_or(0))
        }
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => {
            Ok(number("SELECT pg_database_size(current_database())")?.unwrap_or(0))
        }
    }
}
