//! Integrity checks of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::derived;
use crate::storage::store::chain::{ChainHead, hex};
use crate::storage::store::read;
use crate::storage::store::schema;
use crate::storage::store::snapshot;
use crate::storage::store::writer::StoreCheck;

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

pub(super) fn verify(
    connection: &Connection,
    expected: Option<&str>,
) -> rusqlite::Result<StoreCheck> {
    look(connection, expected, false)
}

pub(super) fn check(connection: &Connection) -> rusqlite::Result<StoreCheck> {
    look(connection, None, true)
}

/// Runs the checks on a snapshot.
fn look(
    connection: &Connection,
    expected: Option<&str>,
    all: bool,
) -> rusqlite::Result<StoreCheck> {
    let transaction = connection.unchecked_transaction()?;
    let (mut checked, mut problems) = (StoreCheck::default(), ProblemList::default());
    if all {
        let pages = schema::pages(&transaction, "integrity_check")?;
        pages.into_iter().for_each(|page| problems.add(|| format!("the file is damaged: {page}")));
    }
    lines(&transaction, expected, &mut checked, &mut problems)?;
    derived::tables(&transaction, &mut problems)?;
    loose(&transaction, &mut problems)?;
    rooms(&transaction, &mut checked, &mut problems)?;
    derived::rows(&transaction, &mut problems)?;
    blobs(&transaction, &mut checked, &mut problems)?;
    let damaged = snapshot::damaged(&transaction)?;
    for room in snapshot::forged(&transaction, &damaged)? {
        problems.add(|| {
            format!("the snapshot of room {room} is not the state that its records lead to")
        });
    }
    for room in damaged {
        problems.add(|| format!("the snapshot of room {room} is not what was written"));
    }
    checked.bytes = bytes(&transaction)?;
    checked.problems = problems.into_list();
    Ok(checked)
}

/// Checks each line of the chain against the one before, and its record against it.
fn lines(
    connection: &Connection,
    expected: Option<&str>,
    checked: &mut StoreCheck,
    problems: &mut ProblemList,
) -> rusqlite::Result<()> {
    let expected = expected.map(|expected| expected.trim().to_lowercase());
    let (mut head, mut is_in_chain) = (ChainHead::default(), false);
    let columns = read::COLUMNS;
    let mut query = connection.prepare(&format!(
        "SELECT audit.number, audit.room, audit.seq, audit.at, audit.record, audit.hash,
         events.number IS NOT NULL, events.room, events.kind, {columns} FROM audit LEFT JOIN events USING (number) ORDER BY audit.number"
    ))?;
    let mut removed = RemovedRuns { connection, known: BTreeMap::new() };
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(0)?.cast_unsigned();
        let (room, record): (String, Vec<u8>) = (row.get(1)?, row.get(4)?);
        let (seq, at) =
            (row.get::<_, i64>(2)?.cast_unsigned(), row.get::<_, i64>(3)?.cast_unsigned());
        let hash: Vec<u8> = row.get(5)?;
        // The hash of a line after a gap cannot be verified, so only the gap is reported.
        if number != head.number + 1 {
            problems.add(|| {
                format!(
                    "lines {} to {} of the audit chain are missing",
                    head.number + 1,
                    number.saturating_sub(1)
                )
            });
        } else {
            let next =
                <[u8; 32]>::try_from(&record[..]).map(|record| head.next(&room, seq, at, &record));
            if next.map_or(true, |next| next.hash[..] != hash[..]) {
                problems.add(|| {
                    format!("line {number} of the audit chain was changed, or one before it")
                });
            }
        }
        // Continues with the stored hash, so that one changed line is reported only once.
        head = ChainHead { number, hash: <[u8; 32]>::try_from(&hash[..]).unwrap_or_default() };
        is_in_chain |= expected.as_deref().is_some_and(|expected| hex(&hash) == expected);
        if !row.get::<_, bool>(6)? {
            // Retention removes records but keeps their lines.
            if !removed.is(&room, number)? {
                problems.add(|| format!("record {seq} of room {room} (line {number} of the audit chain) was taken out"));
            }
            continue;
        }
        let (event, stored) = read::row(row, 9)?;
        let is_same = row.get::<_, String>(7)? == room
            && event.seq == seq
            && event.at == at
            && row.get::<_, String>(8)? == event.kind();
        if !is_same || event.hash(&room)[..] != record[..] || stored != record {
            problems.add(|| format!("record {seq} of room {room} (line {number} of the audit chain) is not what was written"));
        }
        checked.records += 1;
    }
    checked.head = (head.number > 0).then(|| hex(&head.hash));
    if let Some(expected) = expected.filter(|_| !is_in_chain) {
        problems.add(|| format!("the hash {expected} is not in the audit chain: what was written up to it was changed or taken out"));
    }
    Ok(())
}

/// The runs that retention removed, each queried once.
struct RemovedRuns<'a> {
    connection: &'a Connection,
    known: BTreeMap<String, i64>,
}

impl RemovedRuns<'_> {
    fn is(&mut self, room: &str, number: u64) -> rusqlite::Result<bool> {
        let run = room.split('/').next().unwrap_or(room);
        if !self.known.contains_key(run) {
            let last = self
                .connection
                .query_row("SELECT last FROM removed WHERE run = ?", [run], |row| row.get(0))
                .optional()?;
            self.known.insert(run.to_owned(), last.unwrap_or(0));
        }
        Ok(self.known.get(run).is_some_and(|last| number.cast_signed() <= *last))
    }
}

/// Reports rows without an owner.
fn loose(connection: &Connection, problems: &mut ProblemList) -> rusqlite::Result<()> {
    let mut query = connection.prepare(
        "SELECT 'record ' || seq || ' of room ' || room || ' is not in the audit chain' FROM events
         WHERE NOT EXISTS (SELECT 1 FROM audit WHERE audit.number = events.number)
         UNION ALL SELECT 'records of room ' || room || ' belong to no room of the list' FROM
         (SELECT DISTINCT room FROM events WHERE room NOT IN (SELECT room FROM rooms))
         UNION ALL SELECT 'room ' || room || ' is not in the list, and something is noted as what it waits for' FROM
         (SELECT room FROM waits UNION SELECT room FROM timers) WHERE room NOT IN (SELECT room FROM rooms)
         UNION ALL SELECT 'room ' || room || ' belongs to a run that is not in the list' FROM rooms
         WHERE run NOT IN (SELECT room FROM rooms AS root WHERE root.parent IS NULL)",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let what: String = row.get(0)?;
        problems.add(|| what);
    }
    Ok(())
}

/// Checks that each room has its noted number of records, without a gap.
fn rooms(
    connection: &Connection,
    checked: &mut StoreCheck,
    problems: &mut ProblemList,
) -> rusqlite::Result<()> {
    let mut query = connection.prepare(
        "SELECT rooms.room, rooms.records, count(events.seq), coalesce(max(events.seq) + 1, 0) FROM rooms LEFT JOIN events USING (room)
         GROUP BY rooms.room",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
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
    }
    Ok(())
}

/// Checks that each blob with a reference exists, and that its bytes match its digest.
fn blobs(
    connection: &Connection,
    checked: &mut StoreCheck,
    problems: &mut ProblemList,
) -> rusqlite::Result<()> {
    let mut references = connection.prepare(
        "SELECT DISTINCT events.room, events.seq, part.value FROM events, json_each(events.parts) AS part
         WHERE events.parts IS NOT NULL AND json_valid(events.parts) AND part.value NOT IN (SELECT sha256 FROM blobs)",
    )?;
    let mut rows = references.query([])?;
    while let Some(row) = rows.next()? {
        let (room, seq, sha256): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        problems.add(|| {
            format!("record {seq} of room {room} refers to a blob that is not there: {sha256}")
        });
    }
    let mut blobs = connection.prepare("SELECT sha256, length FROM blobs")?;
    let mut rows = blobs.query(params![])?;
    while let Some(row) = rows.next()? {
        let (sha256, length): (String, i64) = (row.get(0)?, row.get(1)?);
        checked.blobs += 1;
        let bytes: Option<Arc<[u8]>> = read::blob(connection, &sha256)?;
        if bytes.is_some_and(|bytes| {
            bytes.len() as i64 != length || crate::support::digest::sha256(&bytes) != sha256
        }) {
            problems.add(|| format!("the blob {sha256} is not what was written"));
        }
    }
    Ok(())
}

/// Returns the size of the file in bytes.
fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let of = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    Ok((of("page_count")? * of("page_size")?).cast_unsigned())
}
