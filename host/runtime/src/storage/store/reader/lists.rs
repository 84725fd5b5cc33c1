//! The lists of a store: runs, rooms, pending work and lines of the audit chain.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use conclave_core::inspect::questions::{Question, QuestionFold};
use conclave_core::journal::pending_work::{PendingWork, WaitKey};
use conclave_core::types::ids::{ControlId, Millis, RoomId, TimerId};
use conclave_core::types::outcome::Status;
use conclave_core::types::usage::Spent;

use super::{AuditRow, RunFilter, RunListPlace, RunMatch, StoreReader, WithDamaged};
use crate::storage::store::rows::{DamagedRow, QuestionRow, RoomRow, RunRow, RunState, WaitRow};
use crate::storage::store::sql::{
    EngineKind, Sql, SqlError, SqlErrorKind, SqlResult, SqlRow, Value,
};
use crate::storage::store::{chain, read};

/// The maximum number of names returned for an ambiguous prefix.
const SEVERAL: usize = 20;

/// The minimum number of rows that a limited list of runs asks the engine for at once.
const PAGE: usize = 50;

/// The query for runs that meet a further condition, or in an order.
fn runs_query(engine: EngineKind, condition: &str) -> String {
    let live = live_column(engine);
    format!(
        "SELECT room, started,
            (SELECT max(changed) FROM rooms AS other WHERE other.run = rooms.room),
            ended, status, {live}, entry, agents, text, reason, turns, tokens, cost_micro_usd,
            (SELECT count(*) FROM rooms AS other WHERE other.run = rooms.room),
            (SELECT CAST(sum(records) AS BIGINT) FROM rooms AS other WHERE other.run = rooms.room),
            durability, config, command, locked, principal, approvals,
            questions, stopped
        FROM rooms WHERE parent IS NULL AND started >= ?1 {condition}"
    )
}

/// The column of `rooms` that has the value of [`StoreReader::live`] if a process has the room
/// open: the generation of that process; or 1 if the host that owns the run has a lease and has
/// reopened the room if it is a child, 2 if the run waits for a worker, and 3 if it sleeps.
pub(super) fn live_column(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::Sqlite => "generation",
        #[cfg(feature = "postgres")]
        EngineKind::Postgres => {
            "(SELECT CASE WHEN hosts.until > now() THEN
                 CASE WHEN rooms.parent IS NULL OR root.epoch =
                     (SELECT last.epoch FROM events AS last WHERE last.room = rooms.room
                      ORDER BY last.seq DESC LIMIT 1) THEN 1 ELSE 0 END
                 WHEN root.pool IS NULL THEN 0
                 WHEN root.wake_at > CAST(extract(epoch FROM now()) * 1000 AS BIGINT) THEN 3 ELSE 2 END
             FROM rooms AS root LEFT JOIN hosts ON hosts.host = root.host
             WHERE root.room = rooms.run)"
        }
    }
}

pub(super) fn one_run(reader: &StoreReader, run_id: &RoomId) -> SqlResult<Option<RunRow>> {
    let live = reader.live()?;
    let query = one_run_query(reader.tables.engine());
    let values = [i64::MIN.into(), run_id.as_str().into()];
    reader.tables.first(&query, &values, |row| run(reader, row, live))
}

fn one_run_query(engine: EngineKind) -> String {
    runs_query(engine, "AND room = ?2")
}

/// Returns the runs that match a filter, and the rows of runs that cannot be read.
pub(super) fn runs(reader: &StoreReader, filter: &RunFilter) -> SqlResult<WithDamaged<RunRow>> {
    let (live, most) = (reader.live()?, filter.most.unwrap_or(usize::MAX));
    // Of a limited list the engine need not prepare all rows. It does not know which are left out.
    let page = filter.most.map(|most| most.max(PAGE) as u64);
    let (mut all, mut damaged) = (Vec::new(), Vec::new());
    let mut after = filter.after.clone();
    while all.len() < most {
        let (query, values) = filter.query(reader.tables.engine(), after.as_ref(), page);
        let values: Vec<Value<'_>> = values.iter().map(FilterValue::of).collect();
        let (mut rows, mut last) = (0, None);
        reader.tables.query(&query, &values, &mut |row| {
            rows += 1;
            let run_id = RoomId::from(row.get::<String>(0)?);
            let started = Millis(row.get::<Option<u64>>(1)?.unwrap_or_default());
            last = Some(RunListPlace { started, run: run_id });
            match run(reader, row, live) {
                Ok(run) if filter.takes(&run) => all.push(run),
                Ok(_) => {}
                Err(error) => damaged.push(damaged_row(row, &error)?),
            }
            Ok(if all.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if page.is_none_or(|page| rows < page) {
            break;
        }
        after = last;
    }
    Ok((all, damaged))
}

/// A row whose first column is its room, and that cannot be read because of an error.
fn damaged_row(row: &SqlRow<'_>, error: &SqlError) -> SqlResult<DamagedRow> {
    Ok(DamagedRow { room: RoomId::from(row.get::<String>(0)?), what: error.to_string() })
}

/// A value of the query of a filter.
enum FilterValue {
    Number(i64),
    Text(String),
}

impl FilterValue {
    fn of(&self) -> Value<'_> {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.into(),
        }
    }
}

impl RunFilter {
    /// The query for the runs that can match, newest first, and its values. In SQLite its order is
    /// that of the index `runs_by_start`: with a sort, it would count the rooms of every run before
    /// it returns the first. Those without an outcome have their own index, `open_runs`: few of them
    /// are open, and each start of a program looks for them.
    fn query(
        &self,
        engine: EngineKind,
        after: Option<&RunListPlace>,
        page: Option<u64>,
    ) -> (String, Vec<FilterValue>) {
        let since = self.since.map_or(i64::MIN, |at| i64::try_from(at.0).unwrap_or(i64::MAX));
        let mut values = vec![FilterValue::Number(since)];
        let mut condition = String::new();
        let mut add = |text: &str, value: FilterValue| {
            values.push(value);
            condition.push_str(&text.replace("?", &format!("?{}", values.len())));
        };
        let order = engine.room_order();
        if let Some(config) = &self.config {
            add("AND config = ? ", FilterValue::Text(config.to_string_lossy().into_owned()));
        }
        if let Some(principal) = &self.principal {
            add("AND principal = ? ", FilterValue::Text(principal.0.to_string()));
        }
        if let Some(after) = after {
            let started = i64::try_from(after.started.0).unwrap_or(i64::MAX);
            add(&format!("AND (started, {order}) < (?, "), FilterValue::Number(started));
            let last = i64::MAX;
            let of_run = format!("COALESCE((SELECT {order} FROM rooms WHERE room = ?), {last})) ");
            add(&of_run, FilterValue::Text(after.run.as_str().to_owned()));
        }
        let status = self.status.as_deref().map(plain);
        if let Some("running" | "interrupted" | "queued" | "asleep") = status.as_deref() {
            condition.push_str("AND status IS NULL ");
        }
        condition.push_str(&format!("ORDER BY started DESC, {order} DESC"));
        if let Some(page) = page {
            condition.push_str(&format!(" LIMIT {page}"));
        }
        (runs_query(engine, &condition), values)
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

fn run(reader: &StoreReader, row: &SqlRow<'_>, live: Option<i64>) -> SqlResult<RunRow> {
    let number = |index: usize| row.get::<Option<u64>>(index).map(Option::unwrap_or_default);
    Ok(RunRow {
        run: RoomId::from(row.get::<String>(0)?),
        started: Millis(number(1)?),
        updated: Millis(number(2)?),
        ended: row.get::<Option<u64>>(3)?.map(Millis),
        state: state(row, 4, 5, live)?,
        entry: row.get(6)?,
        agents: json(&row.get::<String>(7)?, 7)?,
        message: row.get(8)?,
        reason: row.get(9)?,
        turns: number(10)?,
        tokens: number(11)?,
        cost_micro_usd: number(12)?,
        rooms: number(13)?,
        records: number(14)?,
        durability: row.get(15)?,
        config: row.get::<Option<String>>(16)?.map(Into::into),
        command: row.get(17)?,
        locked: row.get(18)?,
        principal: row.get(19)?,
        approvals: row.get(20)?,
        questions: row.get(21)?,
        stopped: row.get::<Option<u64>>(22)?.map(Millis),
        store: reader.address.clone(),
    })
}

pub(super) fn state(
    row: &SqlRow<'_>,
    status: usize,
    live_column: usize,
    live: Option<i64>,
) -> SqlResult<RunState> {
    match row.get::<Option<String>>(status)? {
        Some(word) => json::<Status>(&format!("{word:?}"), status).map(RunState::Ended),
        None if live == Some(row.get(live_column)?) => Ok(RunState::Running),
        #[cfg(feature = "postgres")]
        None if matches!(row, SqlRow::Postgres(_)) => Ok(match row.get(live_column)? {
            2_i64 => RunState::Queued,
            3 => RunState::Asleep,
            _ => RunState::Interrupted,
        }),
        None => Ok(RunState::Interrupted),
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str, column: usize) -> SqlResult<T> {
    serde_json::from_str(text).map_err(|error| {
        SqlError::new(SqlErrorKind::Damaged, format!("column {column} cannot be read: {error}"))
    })
}

/// Finds a room by its name, in which the id of its run may be abbreviated.
pub(super) fn find(tables: &dyn Sql, name: &str) -> SqlResult<RunMatch> {
    if tables.has_row("SELECT 1 FROM rooms WHERE room = ?1", &[name.into()])? {
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
    let mut found = tables.rows(
        "SELECT room FROM rooms WHERE room = run || ?1 AND substr(run, 1, length(?2)) = ?2 ORDER BY started DESC, room LIMIT ?3",
        &[(&rest).into(), run_prefix.into(), (SEVERAL as u64).into()],
        |row| row.get::<String>(0).map(RoomId::from),
    )?;
    Ok(match found.len() {
        0 => RunMatch::Nothing,
        1 => RunMatch::One(found.remove(0)),
        _ => RunMatch::Several(found),
    })
}

pub(super) fn rooms(reader: &StoreReader, run: &RoomId) -> SqlResult<Vec<RoomRow>> {
    let (live, engine) = (reader.live()?, reader.tables.engine());
    let (live_column, order) = (live_column(engine), engine.room_order());
    let rooms = format!(
        "SELECT room, parent, status, {live_column}, started, ended, entry, records, spent
         FROM rooms WHERE run = ?1 ORDER BY length(room) - length(replace(room, '/', '')), {order}"
    );
    reader.tables.rows(&rooms, &[run.as_str().into()], |row| {
        Ok(RoomRow {
            room: RoomId::from(row.get::<String>(0)?),
            parent: row.get::<Option<String>>(1)?.map(RoomId::from),
            state: state(row, 2, 3, live)?,
            started: Millis(row.get(4)?),
            ended: row.get::<Option<u64>>(5)?.map(Millis),
            entry: row.get(6)?,
            records: row.get(7)?,
            spent: json::<Spent>(&row.get::<String>(8)?, 8)?,
        })
    })
}

pub(super) fn down_ms(tables: &dyn Sql, run: &RoomId) -> SqlResult<u64> {
    let mut all: u64 = 0;
    bodies(tables, run, "resumed", |body| {
        let down = body.get("down_ms").and_then(serde_json::Value::as_u64);
        all = all.saturating_add(down.unwrap_or_default());
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

pub(in crate::storage::store) fn has_received(
    tables: &dyn Sql,
    room: &RoomId,
    id: &ControlId,
) -> SqlResult<bool> {
    let mut has_received = false;
    // An id is small, so it is never moved to a blob.
    bodies(tables, room, "control-received", |body| {
        has_received = body.get("id").and_then(serde_json::Value::as_str) == Some(id.as_str());
        if has_received { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(has_received)
}

/// Passes the JSON of a room's records of a kind to `take`, until it breaks.
fn bodies(
    tables: &dyn Sql,
    room: &RoomId,
    kind: &str,
    mut take: impl FnMut(&serde_json::Value) -> ControlFlow<()>,
) -> SqlResult<()> {
    let bodies = "SELECT body FROM events WHERE room = ?1 AND kind = ?2";
    tables.query(bodies, &[room.as_str().into(), kind.into()], &mut |row| {
        // A record that cannot be parsed is reported by `check`, not here.
        Ok(take(&serde_json::from_slice(row.bytes(0)?).unwrap_or_default()))
    })
}

/// Returns the pending work of one run's rooms, or of all rooms, oldest first. `live` is
/// [`StoreReader::live`].
#[cfg(feature = "postgres")]
pub(in crate::storage::store) fn waits(
    tables: &dyn Sql,
    live: Option<i64>,
    run: Option<&RoomId>,
) -> SqlResult<Vec<WaitRow>> {
    tables.rows(&waits_query(tables), &[run.map(RoomId::as_str).into()], |row| wait(row, live))
}

/// Does the same, and returns the rows that cannot be read beside the others.
pub(super) fn readable_waits(
    reader: &StoreReader,
    run: Option<&RoomId>,
) -> SqlResult<WithDamaged<WaitRow>> {
    let (tables, live) = (&*reader.tables, reader.live()?);
    let (mut all, mut damaged) = (Vec::new(), Vec::new());
    tables.each(&waits_query(tables), &[run.map(RoomId::as_str).into()], |row| {
        match wait(row, live) {
            Ok(wait) => all.push(wait),
            Err(error) => damaged.push(damaged_row(row, &error)?),
        }
        Ok(())
    })?;
    Ok((all, damaged))
}

fn waits_query(tables: &dyn Sql) -> String {
    let live_column = live_column(tables.engine());
    // Timers come before other work of the same time, by their numbers.
    format!(
        "SELECT waits.room, key, 0 AS timer, kind, target, NULL AS at, since, {live_column}
         FROM waits JOIN rooms USING (room) WHERE CAST(?1 AS TEXT) IS NULL OR run = ?1
         UNION ALL
         SELECT timers.room, '', timer, 'timer', '', at, since, {live_column}
         FROM timers JOIN rooms USING (room) WHERE CAST(?1 AS TEXT) IS NULL OR run = ?1
         ORDER BY 7, 1, 2, 3"
    )
}

fn wait(row: &SqlRow<'_>, live: Option<i64>) -> SqlResult<WaitRow> {
    let at = row.get::<Option<u64>>(5)?.map(Millis);
    let key = match at {
        Some(_) => WaitKey::Timer(TimerId(row.get(2)?)),
        None => json(&row.get::<String>(1)?, 1)?,
    };
    Ok(WaitRow {
        room: RoomId::from(row.get::<String>(0)?),
        since: Millis(row.get(6)?),
        wait: PendingWork { key, kind: row.get(3)?, target: row.get(4)?, at, request: None },
        is_live: live == Some(row.get(7)?),
    })
}

/// Returns each wait with the question that the records of its room lead to, and the rooms whose
/// records cannot be folded.
pub(super) fn with_questions(
    reader: &StoreReader,
    waits: Vec<WaitRow>,
) -> WithDamaged<QuestionRow> {
    let mut folds: BTreeMap<RoomId, Option<QuestionFold>> = BTreeMap::new();
    let mut damaged = Vec::new();
    let with_question = |wait: WaitRow| {
        let fold = folds.entry(wait.room.clone()).or_insert_with(|| {
            let fold = read::fold(&*reader.tables, wait.room.as_str());
            fold.inspect_err(|error| {
                damaged.push(DamagedRow { room: wait.room.clone(), what: error.to_string() });
            })
            .ok()
        });
        let call = wait.wait.key.call();
        let question = call.zip(fold.as_ref()).and_then(|(call, fold)| fold.of_call(call));
        let question = question.filter(|question| question.is_open()).cloned();
        QuestionRow { wait, question }
    };
    let rows = waits.into_iter().map(with_question).collect();
    (rows, damaged)
}

/// Returns the waits for an approver, each with its request, and the rows that cannot be read.
pub(super) fn approvals(
    reader: &StoreReader,
    run: Option<&RoomId>,
) -> SqlResult<WithDamaged<WaitRow>> {
    let (mut waits, damaged) = readable_waits(reader, run)?;
    waits.retain(|row| row.wait.asks_approval());
    let (rows, _) = with_questions(reader, waits);
    let with_request = |QuestionRow { mut wait, question }: QuestionRow| {
        wait.wait.request = question.and_then(Question::into_request);
        wait
    };
    Ok((rows.into_iter().map(with_request).collect(), damaged))
}

pub(super) fn audit(
    tables: &dyn Sql,
    of_chain: u64,
    first: u64,
    most: usize,
) -> SqlResult<Vec<AuditRow>> {
    let engine = tables.engine();
    let (columns, chain_column) = (read::columns(engine), engine.chain("audit"));
    let record_of_line = engine.record_of_line();
    let lines = format!(
        "SELECT audit.number, audit.room, audit.seq, audit.at, audit.hash, {columns} FROM audit LEFT JOIN events ON {record_of_line}
         WHERE {chain_column} = ?3 AND audit.number >= ?1 ORDER BY audit.number LIMIT ?2"
    );
    let limited = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let values = [limited(first), i64::try_from(most).unwrap_or(i64::MAX), limited(of_chain)];
    tables.rows(&lines, &values.map(Into::into), |row| {
        let is_there = row.get::<Option<u64>>(5)?.is_some();
        // A record that cannot be parsed is omitted here; `verify` reports it.
        let record =
            if is_there { read::parsed(tables, &read::row(row, 5)?.0)?.ok() } else { None };
        Ok(AuditRow {
            chain: of_chain,
            number: row.get(0)?,
            room: RoomId::from(row.get::<String>(1)?),
            seq: row.get(2)?,
            at: Millis(row.get(3)?),
            hash: chain::hex(row.bytes(4)?),
            record,
        })
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

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
            let filter = RunFilter { status, ..RunFilter::default() };
            let after = "17.a".parse().unwrap();
            let plan = plan(&filter.query(EngineKind::Sqlite, Some(&after), Some(50)).0);
            let says = |words: &str| plan.iter().any(|step| step.contains(words));
            assert!(says(index) && !says("TEMP B-TREE"), "{plan:?}");
        }
    }

    #[test]
    fn one_run_is_found_by_its_name() {
        let plan = plan(&one_run_query(EngineKind::Sqlite));
        assert!(plan[0].starts_with("SEARCH rooms USING INDEX") && plan[0].contains("room=?"));
    }
}
