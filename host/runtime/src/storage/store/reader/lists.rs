//! The lists of a store: runs, rooms, pending work and lines of the audit chain.

use std::collections::BTreeMap;

use conclave_core::inspect::room_row::RoomRowFold;
use conclave_core::journal::pending_work::{PendingWork, WaitKey};
use conclave_core::types::ids::{ControlId, Millis, RoomId, TimerId};
use conclave_core::types::outcome::Status;
use conclave_core::types::usage::Spent;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{AuditRow, RunFilter, RunMatch, StoreReader};
use crate::storage::store::rows::{RoomRow, RunRow, RunState, WaitRow};
use crate::storage::store::{chain, read};

/// The maximum number of names returned for an ambiguous prefix.
const SEVERAL: usize = 20;

macro_rules! runs_from {
    () => {
        "
    SELECT room, started,
        (SELECT max(changed) FROM rooms AS other WHERE other.run = rooms.room),
        ended, status, generation, entry, agents, text, reason, turns, tokens, cost_micro_usd,
        (SELECT count(*) FROM rooms AS other WHERE other.run = rooms.room),
        (SELECT sum(records) FROM rooms AS other WHERE other.run = rooms.room),
        durability, config, command, locked, principal, approvals,
        questions, stopped
    FROM rooms WHERE parent IS NULL AND started >= ? "
    };
}

/// The runs, newest first. Its order is that of the index `runs_by_start`: with a sort, SQLite
/// would count the rooms of every run before it returns the first.
const RUNS: &str = concat!(runs_from!(), "ORDER BY started DESC, rowid DESC");
/// The same without the runs that have ended, by the index `open_runs`: few of them are open, and
/// each start of a program looks for them.
const OPEN_RUNS: &str =
    concat!(runs_from!(), "AND status IS NULL ORDER BY started DESC, rowid DESC");

const ONE_RUN: &str = concat!(runs_from!(), "AND room = ?");

pub(super) fn one_run(reader: &StoreReader, run_id: &RoomId) -> rusqlite::Result<Option<RunRow>> {
    let live = reader.live()?;
    let mut query = reader.connection.prepare_cached(ONE_RUN)?;
    query.query_row(params![i64::MIN, run_id.as_str()], |row| run(reader, row, live)).optional()
}

pub(super) fn runs(reader: &StoreReader, filter: &RunFilter) -> rusqlite::Result<Vec<RunRow>> {
    let live = reader.live()?;
    let mut query = reader.connection.prepare_cached(filter.query())?;
    let since = filter.since.map_or(i64::MIN, |since| i64::try_from(since.0).unwrap_or(i64::MAX));
    let mut rows = query.query([since])?;
    let mut all = Vec::new();
    while all.len() < filter.most.unwrap_or(usize::MAX) {
        let Some(row) = rows.next()? else { break };
        let run = run(reader, row, live)?;
        if filter.takes(&run) {
            all.push(run);
        }
    }
    Ok(all)
}

impl RunFilter {
    fn query(&self) -> &'static str {
        match self.status.as_deref().map(plain).as_deref() {
            Some("running" | "interrupted") => OPEN_RUNS,
            _ => RUNS,
        }
    }

    fn takes(&self, run: &RunRow) -> bool {
        let word = run.state.word();
        self.status.as_ref().is_none_or(|status| plain(status) == word)
            && self.agent.as_ref().is_none_or(|agent| run.agents.contains(agent))
            && self
                .text
                .as_ref()
                .is_none_or(|text| run.message.to_lowercase().contains(&text.to_lowercase()))
            && self.cost.is_none_or(|cost| run.cost_micro_usd >= cost)
    }
}

/// A state's word as `RunState::word` writes it.
fn plain(word: &str) -> String {
    word.to_lowercase().replace('_', "-")
}

fn run(reader: &StoreReader, row: &Row<'_>, live: Option<i64>) -> rusqlite::Result<RunRow> {
    let number = |index: usize| {
        row.get::<_, Option<i64>>(index).map(|number| number.unwrap_or(0).cast_unsigned())
    };
    Ok(RunRow {
        run: RoomId::from(row.get::<_, String>(0)?),
        started: Millis(number(1)?),
        updated: Millis(number(2)?),
        ended: row.get::<_, Option<i64>>(3)?.map(|at| Millis(at.cast_unsigned())),
        state: state(row, 4, 5, live)?,
        entry: row.get(6)?,
        agents: json(&row.get::<_, String>(7)?, 7)?,
        message: row.get(8)?,
        reason: row.get(9)?,
        turns: number(10)?,
        tokens: number(11)?,
        cost_micro_usd: number(12)?,
        rooms: number(13)?,
        records: number(14)?,
        durability: row.get(15)?,
        config: row.get::<_, Option<String>>(16)?.map(Into::into),
        command: row.get(17)?,
        locked: row.get(18)?,
        principal: row.get(19)?,
        approvals: row.get(20)?,
        questions: row.get(21)?,
        stopped: row.get::<_, Option<i64>>(22)?.map(|at| Millis(at.cast_unsigned())),
        store: reader.folder.clone(),
    })
}

fn state(
    row: &Row<'_>,
    status: usize,
    generation: usize,
    live: Option<i64>,
) -> rusqlite::Result<RunState> {
    match row.get::<_, Option<String>>(status)? {
        Some(word) => json::<Status>(&format!("{word:?}"), status).map(RunState::Ended),
        None if live == Some(row.get(generation)?) => Ok(RunState::Running),
        None => Ok(RunState::Interrupted),
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

/// Finds a room by its name, in which the id of its run may be abbreviated.
pub(super) fn find(connection: &Connection, name: &str) -> rusqlite::Result<RunMatch> {
    let exact = connection
        .prepare_cached("SELECT 1 FROM rooms WHERE room = ?")?
        .query_row([name], |_| Ok(()))
        .optional()?;
    if exact.is_some() {
        return Ok(RunMatch::One(RoomId::from(name)));
    }
    // Only the run's part of a child room's name can be abbreviated.
    let (run_prefix, rest) = match name.split_once('/') {
        Some((run, rest)) => (run, format!("/{rest}")),
        None => (name, String::new()),
    };
    if run_prefix.is_empty() {
        return Ok(RunMatch::Nothing);
    }
    let mut query = connection.prepare_cached(
        "SELECT room FROM rooms WHERE room = run || ?1 AND substr(run, 1, length(?2)) = ?2 ORDER BY started DESC, room LIMIT ?3",
    )?;
    let found = query
        .query_map(params![rest, run_prefix, SEVERAL as i64], |row| row.get::<_, String>(0))?;
    let mut found: Vec<RoomId> =
        found.map(|room| room.map(RoomId::from)).collect::<rusqlite::Result<_>>()?;
    Ok(match found.len() {
        0 => RunMatch::Nothing,
        1 => RunMatch::One(found.remove(0)),
        _ => RunMatch::Several(found),
    })
}

pub(super) fn rooms(reader: &StoreReader, run: &RoomId) -> rusqlite::Result<Vec<RoomRow>> {
    let live = reader.live()?;
    let mut query = reader.connection.prepare_cached(
        "SELECT room, parent, status, generation, started, ended, entry, records, spent
         FROM rooms WHERE run = ? ORDER BY length(room) - length(replace(room, '/', '')), rowid",
    )?;
    let rows = query.query_map([run.as_str()], |row| {
        let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
        Ok(RoomRow {
            room: RoomId::from(row.get::<_, String>(0)?),
            parent: row.get::<_, Option<String>>(1)?.map(RoomId::from),
            state: state(row, 2, 3, live)?,
            started: Millis(number(4)?),
            ended: row.get::<_, Option<i64>>(5)?.map(|at| Millis(at.cast_unsigned())),
            entry: row.get(6)?,
            records: number(7)?,
            spent: json::<Spent>(&row.get::<_, String>(8)?, 8)?,
        })
    })?;
    rows.collect()
}

pub(super) fn down_ms(connection: &Connection, run: &RoomId) -> rusqlite::Result<u64> {
    let mut query =
        connection.prepare_cached("SELECT body FROM events WHERE room = ? AND kind = 'resumed'")?;
    let rows = query.query_map([run.as_str()], |row| row.get::<_, String>(0))?;
    let mut all: u64 = 0;
    for body in rows {
        // A record that cannot be parsed is reported by `check`, not here.
        let body: serde_json::Value = serde_json::from_str(&body?).unwrap_or_default();
        all = all.saturating_add(
            body.get("down_ms").and_then(serde_json::Value::as_u64).unwrap_or_default(),
        );
    }
    Ok(all)
}

pub(super) fn has_received(
    connection: &Connection,
    room: &RoomId,
    id: &ControlId,
) -> rusqlite::Result<bool> {
    let mut query = connection
        .prepare_cached("SELECT body FROM events WHERE room = ? AND kind = 'control-received'")?;
    let rows = query.query_map([room.as_str()], |row| row.get::<_, String>(0))?;
    for body in rows {
        // An id is small, so it is never moved to a blob.
        let body: serde_json::Value = serde_json::from_str(&body?).unwrap_or_default();
        if body.get("id").and_then(serde_json::Value::as_str) == Some(id.as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn waits(reader: &StoreReader, run: Option<&RoomId>) -> rusqlite::Result<Vec<WaitRow>> {
    let live = reader.live()?;
    let mut query = reader.connection.prepare_cached(
        "SELECT waits.room, key, kind, target, NULL, since, generation FROM waits JOIN rooms USING (room) WHERE ?1 IS NULL OR run = ?1
         UNION ALL
         SELECT timers.room, timer, 'timer', '', at, since, generation FROM timers JOIN rooms USING (room) WHERE ?1 IS NULL OR run = ?1
         ORDER BY 6, 1, 2",
    )?;
    let rows = query.query_map([run.map(RoomId::as_str)], |row| {
        let at = row.get::<_, Option<i64>>(4)?.map(|at| Millis(at.cast_unsigned()));
        let key = match at {
            Some(_) => WaitKey::Timer(TimerId(row.get::<_, i64>(1)?.cast_unsigned())),
            None => json(&row.get::<_, String>(1)?, 1)?,
        };
        Ok(WaitRow {
            room: RoomId::from(row.get::<_, String>(0)?),
            since: Millis(row.get::<_, i64>(5)?.cast_unsigned()),
            wait: PendingWork { key, kind: row.get(2)?, target: row.get(3)?, at, request: None },
            is_live: live == Some(row.get(6)?),
        })
    })?;
    rows.collect()
}

/// Returns the waits for an approver, each with the request that the records of its room lead to.
/// A request stays out if this host cannot fold the records, or if they ask for no approval.
pub(super) fn approvals(
    reader: &StoreReader,
    run: Option<&RoomId>,
) -> rusqlite::Result<Vec<WaitRow>> {
    let mut waits = waits(reader, run)?;
    waits.retain(|row| row.wait.asks_approval());
    let mut folds: BTreeMap<RoomId, Option<RoomRowFold>> = BTreeMap::new();
    for row in &mut waits {
        if !folds.contains_key(&row.room) {
            folds.insert(row.room.clone(), read::fold(&reader.connection, row.room.as_str()).ok());
        }
        let fold = folds.get(&row.room).and_then(Option::as_ref);
        let request =
            row.wait.key.call().zip(fold).and_then(|(call, fold)| fold.open_approval(call));
        row.wait.request = request.cloned().map(Box::new);
    }
    Ok(waits)
}

pub(super) fn audit(
    connection: &Connection,
    first: u64,
    most: usize,
) -> rusqlite::Result<Vec<AuditRow>> {
    let columns = read::COLUMNS;
    let mut query = connection.prepare_cached(&format!(
        "SELECT audit.number, audit.room, audit.seq, audit.at, audit.hash, {columns} FROM audit LEFT JOIN events USING (number)
         WHERE audit.number >= ? ORDER BY audit.number LIMIT ?"
    ))?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = query.query_map(params![i64::try_from(first).unwrap_or(i64::MAX), most], |row| {
        let number = |index: usize| row.get::<_, i64>(index).map(i64::cast_unsigned);
        let is_there = row.get::<_, Option<i64>>(5)?.is_some();
        // A record that cannot be parsed is omitted here; `verify` reports it.
        let record = if is_there {
            read::row(row, 5)?.0.record(|sha256| read::blob(connection, sha256).ok().flatten()).ok()
        } else {
            None
        };
        Ok(AuditRow {
            number: number(0)?,
            room: RoomId::from(row.get::<_, String>(1)?),
            seq: number(2)?,
            at: Millis(number(3)?),
            hash: chain::hex(&row.get::<_, Vec<u8>>(4)?),
            record,
        })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::store::schema;

    fn plan(query: &str) -> Vec<String> {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, 0).unwrap();
        let mut query = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let steps = query.raw_query().mapped(|row| row.get(3));
        steps.collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn runs_are_listed_without_a_sort_of_all_and_open_ones_without_the_ended() {
        for (filter, index) in [(None, "runs_by_start"), (Some("Interrupted"), "open_runs")] {
            let status = filter.map(str::to_owned);
            let plan = plan(RunFilter { status, ..RunFilter::default() }.query());
            let says = |words: &str| plan.iter().any(|step| step.contains(words));
            assert!(says(index) && !says("TEMP B-TREE"), "{plan:?}");
        }
    }

    #[test]
    fn one_run_is_found_by_its_name() {
        let plan = plan(ONE_RUN);
        assert!(plan[0].starts_with("SEARCH rooms USING INDEX") && plan[0].contains("room=?"));
    }
}
