//! The records of all rooms of a run, in the order in which they became durable.

use std::fmt;
use std::str::FromStr;

use conclave_core::protocol::event::Record;
use conclave_core::types::ids::RoomId;

use crate::storage::store::read::{self, ReadError};
use crate::storage::store::record::RowError;
use crate::storage::store::sql::{EngineKind, Sql, SqlResult, SqlRow, Value};

/// The place of a record among those of all rooms of its run. A run has one owner at a time, whose
/// epoch is higher than that of the owner before; each numbers its records as it commits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunPosition {
    epoch: u64,
    number: u64,
}

/// A record of one of a run's rooms.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The place of the record in its run.
    pub position: RunPosition,
    /// The room that has the record.
    pub room: RoomId,
    /// The record, checked against its hash.
    pub record: Record,
}

impl fmt::Display for RunPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.epoch, self.number)
    }
}

/// The text is not one that a position was written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position in a run is written as `EPOCH.NUMBER`")]
pub struct NoRunPosition;

impl FromStr for RunPosition {
    type Err = NoRunPosition;

    fn from_str(text: &str) -> Result<Self, NoRunPosition> {
        let (epoch, number) = text.split_once('.').ok_or(NoRunPosition)?;
        let parsed = |part: &str| part.parse().map_err(|_| NoRunPosition);
        Ok(Self { epoch: parsed(epoch)?, number: parsed(number)? })
    }
}

/// The epoch of a record, the condition by which it follows the position `?2`, `?3`, and the order.
fn order(engine: EngineKind) -> (&'static str, &'static str, &'static str) {
    match engine {
        // One process writes, so the number alone is the order. Its condition needs no row, because
        // each index of the table has it.
        EngineKind::Sqlite => ("0", "events.number > ?3 AND ?2 IS NOT NULL", "events.number"),
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => (
            "events.epoch",
            "(events.epoch, events.number) > (?2, ?3)",
            "events.epoch, events.number",
        ),
    }
}

fn position(row: &SqlRow<'_>) -> SqlResult<RunPosition> {
    Ok(RunPosition { epoch: row.get(0)?, number: row.get(1)? })
}

/// Returns at most `most` records of a run that follow a position. A host that has lost the run
/// commits nothing to it, so no later record belongs before one that was returned.
pub(super) fn run_records(
    tables: &dyn Sql,
    run: &RoomId,
    after: Option<RunPosition>,
    most: u64,
) -> Result<Vec<RunRecord>, ReadError> {
    let engine = tables.engine();
    let ((epoch, condition, order), columns) = (order(engine), read::columns(engine));
    // The rows are chosen without their bodies, which are large.
    let statement = format!(
        "SELECT {epoch}, events.number, events.room, {columns} FROM events JOIN (
             SELECT events.room, events.seq FROM events
             WHERE events.room IN (SELECT room FROM rooms WHERE run = ?1) AND {condition}
             ORDER BY {order} LIMIT ?4
         ) AS chosen ON events.room = chosen.room AND events.seq = chosen.seq ORDER BY {order}"
    );
    let [epoch, number] =
        after.map_or([(-1_i64).into(); 2], |after| [after.epoch.into(), after.number.into()]);
    let values = [Value::from(run.as_str()), epoch, number, most.into()];
    let rows = tables.rows(&statement, &values, |row| {
        Ok((position(row)?, row.get::<String>(2)?, read::row(row, 3)?))
    })?;
    rows.into_iter()
        .map(|(position, room, (row, hash))| {
            let record = match row.hash(&room)[..] == *hash {
                true => read::parsed(tables, &row)?,
                false => Err(RowError::Hash),
            };
            let failed = |cause| ReadError::Row { room: room.clone(), seq: row.seq, cause };
            let record = record.map_err(failed)?;
            Ok(RunRecord { position, room: RoomId::from(room), record })
        })
        .collect()
}

/// Returns the position of a run's newest record; `None` if it has none.
pub(super) fn run_end(tables: &dyn Sql, run: &RoomId) -> SqlResult<Option<RunPosition>> {
    let (epoch, _, order) = order(tables.engine());
    let newest = order.replace("number", "number DESC").replace("epoch", "epoch DESC");
    let statement = format!(
        "SELECT {epoch}, events.number FROM events
         WHERE events.room IN (SELECT room FROM rooms WHERE run = ?1) ORDER BY {newest} LIMIT 1"
    );
    tables.first(&statement, &[run.as_str().into()], position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let position = RunPosition { epoch: 3, number: 41 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "3", "3.", ".4", "3.4.5", "a.4", "-1.4"] {
            assert_eq!(wrong.parse::<RunPosition>(), Err(NoRunPosition), "{wrong}");
        }
    }
}
