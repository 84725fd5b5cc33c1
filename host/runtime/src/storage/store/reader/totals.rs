//! The figures of all runs of a config, added up by the engine.

use std::collections::BTreeMap;
use std::path::Path;

use super::StoreReader;
use super::lists;
use crate::storage::store::sql::SqlResult;

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
