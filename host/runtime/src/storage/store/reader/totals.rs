//! The figures of all runs of a config, added up by the engine.

use std::collections::BTreeMap;
use std::path::Path;

use conclave_core::inspect::timeline::TimelineFold;
use conclave_core::types::ids::{Millis, Principal, RoomId};
use conclave_core::types::usage::Spent;

use super::StoreReader;
use super::lists;
use crate::storage::store::StoreError;
use crate::storage::store::sql::{Sql, SqlResult};

/// Records that are read at once.
const RECORDS: u64 = 500;

/// The runs of a config in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// The number of runs by the word of their state.
    pub states: BTreeMap<String, u64>,
    /// The turns of all runs.
    pub turns: u64,
    /// The tokens of all model requests.
    pub tokens: u64,
    /// The cost in micro-US-dollars.
    pub cost_micro_usd: u64,
    /// The records of all rooms.
    pub records: u64,
    /// The calls and limits that wait for an approver.
    pub approvals: u64,
}

/// What a run has spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpent {
    /// The root room.
    pub run: RoomId,
    /// The time of its first record.
    pub started: Millis,
    /// The tokens and the cost of all its rooms, also of those that have not ended.
    pub spent: Spent,
}

/// The runs of a principal with a record since this time. An ended room below has its part in that of
/// its parent.
pub(super) fn spent_since(
    tables: &dyn Sql,
    (config, principal): (&Path, &Principal),
    since: Millis,
) -> SqlResult<Vec<RunSpent>> {
    let part = |column: &str| {
        format!(
            "CAST(sum(CASE WHEN parent IS NULL OR ended IS NULL THEN {column} ELSE 0 END) AS BIGINT)"
        )
    };
    let runs = format!(
        "SELECT run, min(started), {}, {} FROM rooms WHERE run IN
             (SELECT room FROM rooms WHERE parent IS NULL AND config = ?1 AND principal = ?2)
         GROUP BY run HAVING max(changed) >= ?3",
        part("tokens"),
        part("cost_micro_usd"),
    );
    let config = config.to_string_lossy();
    tables.rows(&runs, &[(&*config).into(), (&*principal.0).into(), since.0.into()], |row| {
        let (tokens, cost_micro_usd) = (row.get(2)?, row.get(3)?);
        Ok(RunSpent {
            run: RoomId::from(row.get::<String>(0)?),
            started: Millis(row.get(1)?),
            spent: Spent { tokens, cost_micro_usd, ..Spent::default() },
        })
    })
}

/// Folds the records of a run before a moment.
pub(super) fn spent_before(
    reader: &StoreReader,
    run: &RoomId,
    at: Millis,
) -> Result<Spent, StoreError> {
    let mut fold = TimelineFold::default();
    for row in reader.rooms(run)?.into_iter().filter(|row| row.started < at) {
        let mut next = 0;
        loop {
            let records = reader.records_from(&row.room, next, RECORDS)?;
            let (read, is_late) = (records.len() as u64, records.iter().any(|it| it.at >= at));
            next += read;
            let earlier = records.into_iter().filter(|record| record.at < at);
            earlier.for_each(|record| fold.take(&row.room, record));
            if is_late || read < RECORDS {
                break;
            }
        }
    }
    let mut all = Spent::default();
    for (index, room) in fold.rooms().enumerate() {
        // An ended room below has its part in that of its parent.
        if index == 0 || room.outcome().is_none() {
            all = all.plus(room.spent());
        }
    }
    Ok(all)
}

pub(super) fn run_totals(reader: &StoreReader, config: &Path) -> SqlResult<RunTotals> {
    let (live, tables) = (reader.live()?, &*reader.tables);
    let live_column = lists::live_column(tables.engine());
    let config = config.to_string_lossy();
    // Only a run without an outcome is open, and the engine looks up the hosts of no other.
    let by_state = format!(
        "SELECT status, CASE WHEN status IS NULL THEN {live_column} END, count(*),
             CAST(sum(turns) AS BIGINT), CAST(sum(tokens) AS BIGINT),
             CAST(sum(cost_micro_usd) AS BIGINT)
         FROM rooms WHERE parent IS NULL AND config = ?1 GROUP BY 1, 2"
    );
    let mut totals = RunTotals::default();
    tables.each(&by_state, &[(&*config).into()], |row| {
        let state = lists::state(row, 0, 1, live)?;
        *totals.states.entry(state.word()).or_default() += row.get::<u64>(2)?;
        totals.turns = totals.turns.saturating_add(row.get(3)?);
        totals.tokens = totals.tokens.saturating_add(row.get(4)?);
        totals.cost_micro_usd = totals.cost_micro_usd.saturating_add(row.get(5)?);
        Ok(())
    })?;
    let runs = "SELECT room FROM rooms WHERE parent IS NULL AND config = ?1";
    let sums = format!(
        "SELECT (SELECT CAST(sum(records) AS BIGINT) FROM rooms WHERE run IN ({runs})),
             (SELECT count(*) FROM waits JOIN rooms USING (room)
              WHERE kind IN ('approval', 'top-up') AND run IN ({runs}))"
    );
    tables.each(&sums, &[(&*config).into()], |row| {
        totals.records = row.get::<Option<u64>>(0)?.unwrap_or_default();
        totals.approvals = row.get(1)?;
        Ok(())
    })?;
    Ok(totals)
}
