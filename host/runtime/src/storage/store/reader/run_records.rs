//! The records of all rooms of a run, in the order in which they became durable.
//!
//! Each record has a place in the store, which grows over all rooms of its run, and so with the
//! sequence numbers of each room. A reader's position is one such place. What follows it is searched for
//! in each room by the key of its records, so that a look costs as much as it finds, however long the
//! run is.

use std::fmt;
use std::str::FromStr;

use conclave_core::protocol::event::Record;
use conclave_core::types::ids::RoomId;

use crate::storage::store::read::{self, ReadError};
use crate::storage::store::record::{EventRow, RowError};
use crate::storage::store::sql::{EngineKind, Sql, SqlResult, SqlRow, Value};

/// The position of a record among those of all rooms of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunPosition {
    /// The number of the record, which is higher than those of all records before it.
    place: u64,
    /// The highest epoch up to there, by which a later record of an older epoch is recognised. 0 in a
    /// store with one writing process.
    epoch: u64,
}

/// A record of one of a run's rooms.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The position of the record in its run.
    pub position: RunPosition,
    /// The room that has the record.
    pub room: RoomId,
    /// The record, checked against its hash.
    pub record: Record,
}

impl fmt::Display for RunPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.epoch, self.place)
    }
}

/// The text is not one that a position of this store was written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position in a run is written as `EPOCH-PLACE`")]
pub struct NoRunPosition;

impl FromStr for RunPosition {
    type Err = NoRunPosition;

    fn from_str(text: &str) -> Result<Self, NoRunPosition> {
        // `0.PLACE` is how hosts of before wrote the positions of a folder. What they wrote for a
        // database, with another epoch, was a line of a chain, and leads to no place.
        let parts = text.split_once('-').or_else(|| text.split_once('.').filter(|it| it.0 == "0"));
        let (epoch, place) = parts.ok_or(NoRunPosition)?;
        let parsed = |part: &str| part.parse().map_err(|_| NoRunPosition);
        Ok(Self { epoch: parsed(epoch)?, place: parsed(place)? })
    }
}

/// The columns of `events` and `rooms` by which records of a run are ordered.
struct OrderColumns {
    /// The number of a record. Where one process writes, it is the number in the whole store.
    place: &'static str,
    /// The epoch of a run.
    run_epoch: &'static str,
}

fn order(engine: EngineKind) -> OrderColumns {
    match engine {
        EngineKind::Sqlite => OrderColumns { place: "events.number", run_epoch: "0" },
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => OrderColumns { place: "events.place", run_epoch: "rooms.epoch" },
    }
}

/// Returns at most `most` records of a run that follow a position, without void ones.
pub(super) fn run_records(
    tables: &dyn Sql,
    run: &RoomId,
    after: Option<RunPosition>,
    most: u64,
) -> Result<Vec<RunRecord>, ReadError> {
    // The statement adds it to the number of a record.
    let most = most.min(u32::MAX.into());
    let mut position = after.unwrap_or(RunPosition { place: 0, epoch: 0 });
    loop {
        let rows = rows_after(tables, run, position.place, most)?;
        let is_last = (rows.len() as u64) < most;
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            let is_void = row.event.epoch < position.epoch && has_newer_before(tables, &row)?;
            position = RunPosition { place: row.place, epoch: position.epoch.max(row.event.epoch) };
            if !is_void {
                records.push(row.checked(tables, position)?);
            }
        }
        if is_last || !records.is_empty() {
            return Ok(records);
        }
    }
}

/// A row of `events` with its number in the run.
struct PlacedRow {
    place: u64,
    room: String,
    event: EventRow,
    hash: Vec<u8>,
}

impl PlacedRow {
    fn checked(self, tables: &dyn Sql, position: RunPosition) -> Result<RunRecord, ReadError> {
        let record = match self.event.hash(&self.room)[..] == *self.hash {
            true => read::parsed(tables, &self.event)?,
            false => Err(RowError::Hash),
        };
        let failed = |cause| ReadError::Row { room: self.room.clone(), seq: self.event.seq, cause };
        let record = record.map_err(failed)?;
        Ok(RunRecord { position, room: RoomId::from(self.room), record })
    }
}

/// Returns at most `most` rows that follow a place.
fn rows_after(tables: &dyn Sql, run: &RoomId, place: u64, most: u64) -> SqlResult<Vec<PlacedRow>> {
    let values = [run.as_str().into(), place.into(), most.into()];
    tables.rows(&statement(tables.engine()), &values, |row| {
        let (event, hash) = read::row(row, 2)?;
        Ok(PlacedRow { place: row.get(0)?, room: row.get(1)?, event, hash })
    })
}

/// The query for the rows of run `?1` that follow the place `?2`, at most `?3`. In each room that has
/// news, the first one is found by halving, because the numbers of a room's records grow with `seq`:
/// it is one of the `width` records from `low` on, or the one behind them.
///
/// Subqueries and `CROSS JOIN` say in which order the tables are read. SQLite has no figures about the
/// tables, and PostgreSQL would read a small table as a whole.
pub(in crate::storage::store) fn statement(engine: EngineKind) -> String {
    let (OrderColumns { place: number, .. }, columns) = (order(engine), read::columns(engine));
    // The rows are chosen without their bodies, which are large.
    format!(
        "SELECT {number}, events.room, {columns} FROM (
             WITH RECURSIVE search (room, low, width) AS (
                 SELECT rooms.room, CAST(0 AS BIGINT), rooms.records FROM rooms
                 WHERE rooms.run = ?1 AND (SELECT {number} FROM events
                     WHERE events.room = rooms.room AND events.seq = rooms.records - 1) > ?2
             UNION ALL
                 SELECT search.room, low + CASE WHEN (SELECT {number} FROM events
                     WHERE events.room = search.room AND events.seq = low + width / 2 - 1) > ?2
                     THEN 0 ELSE width / 2 END, width - width / 2
                 FROM search WHERE width > 1
             )
             SELECT events.room, events.seq FROM search CROSS JOIN events
             WHERE width = 1 AND events.room = search.room
                 AND events.seq BETWEEN low AND low + ?3 AND {number} > ?2
             ORDER BY {number} LIMIT ?3
         ) AS chosen CROSS JOIN events
         WHERE events.room = chosen.room AND events.seq = chosen.seq ORDER BY {number}"
    )
}

/// Whether a record of a newer epoch is before this one in its room, so that this one is void. Asked
/// only about a record of an older epoch than one before it in the run: a store refuses such a record.
fn has_newer_before(tables: &dyn Sql, row: &PlacedRow) -> SqlResult<bool> {
    let values = [(&row.room).into(), row.event.seq.into(), Value::from(row.event.epoch)];
    tables.has_row("SELECT 1 FROM events WHERE room = ?1 AND seq < ?2 AND epoch > ?3", &values)
}

/// Returns the position behind a run's newest record; `None` if it has none.
pub(super) fn run_end(tables: &dyn Sql, run: &RoomId) -> SqlResult<Option<RunPosition>> {
    let OrderColumns { place, run_epoch } = order(tables.engine());
    let statement = format!(
        "SELECT {place}, {run_epoch} FROM rooms JOIN events
             ON events.room = rooms.room AND events.seq = rooms.records - 1
         WHERE rooms.run = ?1 ORDER BY {place} DESC LIMIT 1"
    );
    let position = |row: &SqlRow<'_>| Ok(RunPosition { place: row.get(0)?, epoch: row.get(1)? });
    tables.first(&statement, &[run.as_str().into()], position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::schema;

    #[test]
    fn what_follows_a_position_is_found_by_the_key_of_records() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        let query = format!("EXPLAIN QUERY PLAN {}", statement(EngineKind::Sqlite));
        let mut query = connection.prepare(&query).unwrap();
        let steps = query.raw_query().mapped(|row| row.get::<_, String>(3));
        let steps: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
        let of_tables =
            |step: &&String| step.split(' ').any(|word| word == "events" || word == "rooms");
        // The newest record of each room, the middle one of a search, the chosen ones and their rows.
        let is_keyed = |step: &String| {
            step.starts_with("SEARCH events USING") && step.contains("(room=? AND seq")
                || step.starts_with("SEARCH rooms USING INDEX rooms_of_a_run")
        };
        let of_tables: Vec<&String> = steps.iter().filter(of_tables).collect();
        assert!(of_tables.len() == 5 && of_tables.into_iter().all(is_keyed), "{steps:?}");
    }

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let position = RunPosition { epoch: 3, place: 41 };
        assert_eq!(position.to_string().parse(), Ok(position));
        assert_eq!("0.41".parse(), Ok(RunPosition { epoch: 0, place: 41 }), "of a folder, before");
        for wrong in ["", "3", "3-", "-4", "3-4-5", "a-4", "-1-4", "3.41", "0."] {
            assert_eq!(wrong.parse::<RunPosition>(), Err(NoRunPosition), "{wrong}");
        }
    }
}
