//! Which host of a shared store runs what: hosts pull due runs of their pool. There is no leader,
//! and a run that sleeps needs no host.

use std::time::Duration;

use conclave_core::journal::ownership::LEASE_MS;
use conclave_core::journal::placement::Sleep;
use conclave_core::types::ids::{Millis, RoomId};
use serde::Serialize;

use super::closing::Closing;
use super::reader::lists;
use super::rows::WaitRow;
use super::sql::{Sql, SqlError, SqlErrorKind, SqlResult, Value};
use super::wake_at::WakeAt;
use super::{Store, StoreError, StoreReader};

/// Takes the run of a pool that is due longest. The index `runs_to_take` finds it, however many
/// sleep or are due: `now()` is one value for the statement, which `clock_timestamp()` is not, so
/// the index is not read behind it.
const CLAIM: &str = "
    UPDATE rooms SET host = ?1 WHERE room = (
        SELECT room FROM rooms WHERE parent IS NULL AND ended IS NULL AND pool = ?2
        AND wake_at <= CAST(extract(epoch FROM now()) * 1000 AS BIGINT)
        AND (host IS NULL OR NOT EXISTS
            (SELECT 1 FROM hosts WHERE hosts.host = rooms.host AND hosts.until > now()))
        AND room NOT IN (SELECT jsonb_array_elements_text(CAST(CAST(?3 AS TEXT) AS JSONB)))
        ORDER BY wake_at, started LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING room";

/// Hosts that people look for. The row of one that was lost stays for a day.
const WITH_LEASE_OR_RUNS: &str = "hosts.until > clock_timestamp() OR EXISTS
    (SELECT 1 FROM rooms WHERE rooms.host = hosts.host AND rooms.ended IS NULL)";

/// A process that writes to a shared store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostRow {
    /// The name that its runs name as their host.
    pub host: String,
    /// The command that it runs.
    pub command: String,
    /// The pools from which it takes runs, separated by spaces; `None` if it is no worker.
    pub pool: Option<String>,
    /// The number of runs that it takes at most; 0 if it is no worker.
    pub capacity: u64,
    /// The number of runs that it has now.
    pub runs: u64,
    /// The highest epoch of its runs; 0 without one.
    pub epoch: u64,
    /// The time at which it opened the store.
    pub started: Millis,
    /// The milliseconds since its last sign of life, by the clock of the database.
    pub silent_ms: u64,
    /// Whether its lease is valid; otherwise its runs can be taken by others.
    pub is_live: bool,
    /// Whether it is a worker that takes no runs: the store has a shared folder for large blobs, and
    /// the worker was started without it.
    pub lacks_blob_folder: bool,
}

impl HostRow {
    /// The milliseconds until its lease ends, unless it gives a sign of life; 0 if it is over.
    #[must_use]
    pub fn lease_ends_in_ms(&self) -> u64 {
        if self.is_live { LEASE_MS.saturating_sub(self.silent_ms) } else { 0 }
    }
}

impl Store {
    /// Notes for people that this host takes runs of these pools, up to a number at once. It must
    /// be called on a thread that may block, like all methods below.
    ///
    /// # Errors
    /// Fails with an error of the store; the same for all methods below.
    pub fn announce_worker(&self, pools: &[&str], capacity: usize) -> Result<(), StoreError> {
        let (Some(host), pools) = (self.0.host(), pools.join(" ")) else { return Ok(()) };
        let capacity = i64::try_from(capacity).unwrap_or(i64::MAX);
        let has_folder = self.0.has_blob_folder();
        self.0.ask_tables(move |tables| {
            let (host, pools) = (host.as_str().into(), pools.as_str().into());
            let values = [host, pools, capacity.into(), has_folder.into()];
            let statement =
                "UPDATE hosts SET pool = ?2, capacity = ?3, blob_folder = ?4 WHERE host = ?1";
            tables.execute(statement, &values).map(drop)
        })
    }

    /// Takes a due run of a pool that no living host has; `None` if there is none.
    ///
    /// # Errors
    /// `BlobFolder` if this host cannot read the large blobs of the store: it leaves the runs to
    /// hosts that can.
    pub fn claim(&self, pool: &str) -> Result<Option<RoomId>, StoreError> {
        let (Some(host), pool) = (self.0.host(), pool.to_owned()) else { return Ok(None) };
        let open = self.0.open_runs();
        self.0.ask_tables(move |tables| {
            tables.check_blob_folder()?;
            claim(tables, (&host, &open), &pool)
        })
    }

    /// Returns why attachments of runs cannot be stored at present, such as a full shared folder, once
    /// for each cause. Their plugins only learn that a change was refused.
    pub(crate) fn report_rejection(&self) -> Option<StoreError> {
        self.0.report_rejection()
    }

    /// The epoch by which this host owns a run; `None` if it does not.
    #[must_use]
    pub fn epoch(&self, run: &RoomId) -> Option<u64> {
        self.0.epoch(run)
    }

    /// Gives a run back that this host owned by this epoch and has dropped; `None` if it claimed the
    /// run and could not take it. It is due again at `not_before`, and if it sleeps, when the sleep
    /// ends or a message for it arrives.
    pub fn give_back(
        &self,
        run: &RoomId,
        epoch: Option<u64>,
        not_before: Millis,
    ) -> Result<(), StoreError> {
        self.give_back_as(run, epoch, move |tables, run| {
            RunOutlook::default().next_take(tables, run, WakeAt::Time(not_before))
        })
    }

    /// Does the same with what is known of the run beside its pending work.
    pub(crate) fn give_back_asleep(
        &self,
        run: &RoomId,
        epoch: Option<u64>,
        outlook: RunOutlook,
    ) -> Result<(), StoreError> {
        self.give_back_as(run, epoch, move |tables, run| {
            outlook.next_take(tables, run, WakeAt::Now)
        })
    }

    /// Gives a run back that is due again after this time, whatever it waits for.
    pub(crate) fn give_back_due(
        &self,
        run: &RoomId,
        epoch: Option<u64>,
        rest: Duration,
    ) -> Result<(), StoreError> {
        let (Some(host), run) = (self.0.host(), run.clone()) else { return Ok(()) };
        // A run whose records could not be written rests, too: a run that is not given back here is
        // due at once, and fails again. A record that is written later has an old epoch.
        let _ = self.0.written_so_far();
        self.0.ask_tables(move |tables| {
            // The take that failed has released a run that was only claimed, so it is known by its
            // epoch, too.
            let of_claimed =
                "SELECT epoch FROM rooms WHERE room = ?1 AND (host IS NULL OR host = ?2)";
            let epoch = match epoch {
                Some(epoch) => Some(epoch),
                None => tables.first(
                    of_claimed,
                    &[run.as_str().into(), host.as_str().into()],
                    |row| row.get(0),
                )?,
            };
            let rest = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
            let wakes_at = match rest {
                0 => WakeAt::Now,
                rest => WakeAt::Time(now(tables)?.plus(rest)),
            };
            let next = NextTake { wakes_at, is_asleep: false };
            give_back(tables, (&host, epoch), &run, next)
        })
    }

    /// Gives a run back with the time from which it is due, or its sleep.
    fn give_back_as(
        &self,
        run: &RoomId,
        epoch: Option<u64>,
        due: impl FnOnce(&dyn Sql, &RoomId) -> SqlResult<NextTake> + Send + 'static,
    ) -> Result<(), StoreError> {
        let (Some(host), run) = (self.0.host(), run.clone()) else { return Ok(()) };
        // What the run did last decides whether it sleeps.
        self.0.written_so_far()?;
        self.0.ask_tables(move |tables| {
            let due = due(tables, &run)?;
            give_back(tables, (&host, epoch), &run, due)
        })
    }

    /// Gives back the runs that this host has claimed and does not have open. The answer of a claim
    /// may have been lost, and a run may not have been given back; without this, such a run would
    /// wait for the end of its host.
    pub(crate) fn give_back_unopened(&self) -> Result<(), StoreError> {
        let Some(host) = self.0.host() else { return Ok(()) };
        let of_host = host.clone();
        let mut runs = self.0.ask_tables(move |tables| runs_of(tables, &of_host))?;
        // Asked afterwards: a run that is taken from now on gets another epoch than was read.
        let open = self.0.open_runs();
        runs.retain(|(run, _)| !open.contains(run));
        if runs.is_empty() {
            return Ok(());
        }
        self.0.ask_tables(move |tables| {
            runs.iter().try_for_each(|run| give_back_unopened(tables, &host, run))
        })
    }

    /// Whether a call of one of these runs is in progress, other than a background task.
    pub(crate) fn have_calls(&self, runs: Vec<RoomId>) -> Result<bool, StoreError> {
        self.0.ask_tables(move |tables| {
            for run in &runs {
                let waits = lists::waits(tables, None, Some(run))?;
                if waits.iter().any(|row| row.wait.is_call()) {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Those of these runs that need no host now.
    pub(crate) fn sleepers(
        &self,
        runs: Vec<(RoomId, RunOutlook)>,
    ) -> Result<Vec<RoomId>, StoreError> {
        self.0.ask_tables(move |tables| {
            let mut sleepers = Vec::new();
            for (run, outlook) in runs {
                match outlook.sleep_state(tables, &run) {
                    Ok(Some(_)) => sleepers.push(run),
                    Ok(None) => {}
                    // A damaged row of one run must not keep the others from their sleep.
                    Err(error) if error.kind == SqlErrorKind::Damaged => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(sleepers)
        })
    }

    /// Ends the lease of this host, and releases its runs although it has them open: its process ends
    /// at once, and others may take them. What it still writes counts until another host has taken
    /// its run, and is refused from then on.
    pub fn leave(&self) -> Result<(), StoreError> {
        let Some(host) = self.0.host() else { return Ok(()) };
        self.0.ask_tables(move |tables| {
            let host = [host.as_str().into()];
            tables.execute("UPDATE rooms SET host = NULL WHERE host = ?1", &host)?;
            tables.execute("DELETE FROM hosts WHERE host = ?1", &host).map(drop)
        })
    }

    /// Begins the end of this process's work: while this lasts, the store waits for its database
    /// only for a short time. What it cannot release in this time is free when the lease of this
    /// host is over.
    pub(crate) fn begin_close(&self) -> Closing {
        self.0.begin_close()
    }
}

/// What the host of a run knows beside the pending work that is noted for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunOutlook {
    /// The time before which a timer that was due is dropped, because its loop has not fired it. A
    /// room drops a timer without a record.
    pub(crate) dropped_before: Millis,
    /// Whether a person paused the run.
    pub(crate) is_paused: bool,
}

/// When workers take a run that is given back.
struct NextTake {
    wakes_at: WakeAt,
    is_asleep: bool,
}

impl RunOutlook {
    /// When workers take the run: at the end of its sleep, or when it is `due` if it needs a host.
    fn next_take(self, tables: &dyn Sql, run: &RoomId, due: WakeAt) -> SqlResult<NextTake> {
        let sleep = self.sleep_state(tables, run)?;
        let wakes_at = match sleep {
            None => due,
            Some(_) if self.is_paused => WakeAt::PauseLifted,
            Some(sleep) => sleep.wakes_at.map_or(WakeAt::Message, WakeAt::Time),
        };
        Ok(NextTake { wakes_at, is_asleep: sleep.is_some() })
    }

    /// The sleep of a run; `None` if it needs a host.
    fn sleep_state(self, tables: &dyn Sql, run: &RoomId) -> SqlResult<Option<Sleep>> {
        let waits = lists::waits(tables, None, Some(run))?;
        if self.is_paused {
            return Ok(Sleep::of_paused(waits.iter().map(|row| &row.wait)));
        }
        let counts = |row: &&WaitRow| row.wait.at.is_none_or(|at| at >= self.dropped_before);
        let waits = waits.iter().filter(counts).map(|row| (&row.room, &row.wait));
        // A room that this host has not reopened yet waits for nothing by its rows, but for the timer
        // of its limit, and may be in the middle of a step. Its first record here has the new epoch.
        let reopened_later = "SELECT 1 FROM rooms JOIN events ON events.room = rooms.room
            AND events.seq = rooms.records - 1
            WHERE rooms.run = ?1 AND rooms.ended IS NULL AND events.epoch < rooms.epoch";
        if tables.first(reopened_later, &[run.as_str().into()], |_| Ok(()))?.is_some() {
            return Ok(None);
        }
        // By the clock that a claim goes by. By another one, a run could be asleep and due at once.
        Ok(Sleep::of(waits, now(tables)?))
    }
}

impl StoreReader {
    /// The hosts of a shared store, live ones first; empty for a store with one writing process. Of
    /// those whose lease is over, only the ones that still have runs.
    pub fn hosts(&self) -> Result<Vec<HostRow>, StoreError> {
        if self.folder().is_some() {
            return Ok(Vec::new());
        }
        self.of(hosts(&*self.tables, WITH_LEASE_OR_RUNS, &[]))
    }

    /// The host of a shared store that has a run, even if its lease is over; `None` if none has it.
    pub fn host_of(&self, run: &RoomId) -> Result<Option<HostRow>, StoreError> {
        if self.folder().is_some() {
            return Ok(None);
        }
        let of_run = "hosts.host = (SELECT rooms.host FROM rooms WHERE rooms.room = ?2)";
        self.of(hosts(&*self.tables, of_run, &[run.as_str().into()]).map(|mut hosts| hosts.pop()))
    }
}

/// Claims a run for a host that has these runs open. It may have one whose lease is over, and
/// another host may have given one back that it has lost and not dropped yet.
fn claim(
    tables: &dyn Sql,
    (host, open): (&str, &[RoomId]),
    pool: &str,
) -> SqlResult<Option<RoomId>> {
    let open = serde_json::to_string(open).unwrap_or_default();
    let values = [host.into(), pool.into(), open.as_str().into()];
    let run = tables.first(CLAIM, &values, |row| row.get::<String>(0))?;
    Ok(run.map(RoomId::from))
}

fn give_back(
    tables: &dyn Sql,
    (host, epoch): (&str, Option<u64>),
    run: &RoomId,
    NextTake { wakes_at, is_asleep }: NextTake,
) -> SqlResult<()> {
    let is_asleep = is_asleep.into();
    let values =
        [run.as_str().into(), host.into(), epoch.into(), wakes_at.column().into(), is_asleep];
    let call = "SELECT 1 FROM (SELECT give_back(?1, ?2, ?3, ?4, ?5)) AS given";
    tables.has_row(call, &values).map(drop)
}

/// The runs that are noted for a host, with their epochs.
fn runs_of(tables: &dyn Sql, host: &str) -> SqlResult<Vec<(RoomId, u64)>> {
    let runs = "SELECT room, epoch FROM rooms WHERE host = ?1";
    tables.rows(runs, &[host.into()], |row| {
        Ok((RoomId::from(row.get::<String>(0)?), row.get::<u64>(1)?))
    })
}

/// Gives a run back unless it was taken since its epoch was read.
fn give_back_unopened(tables: &dyn Sql, host: &str, (run, epoch): &(RoomId, u64)) -> SqlResult<()> {
    let unopened = "UPDATE rooms SET host = NULL WHERE room = ?1 AND host = ?2 AND epoch = ?3";
    tables.execute(unopened, &[run.as_str().into(), host.into(), (*epoch).into()]).map(drop)
}

/// The time by the clock of the database.
fn now(tables: &dyn Sql) -> SqlResult<Millis> {
    let now = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
    let now = tables.first(now, &[], |row| row.get::<u64>(0))?;
    now.map(Millis).ok_or_else(|| SqlError::new(SqlErrorKind::Other, "the database has no clock"))
}

/// Returns the hosts that meet a condition, whose parameters begin with `?2`.
fn hosts(tables: &dyn Sql, condition: &str, values: &[Value<'_>]) -> SqlResult<Vec<HostRow>> {
    let query = format!(
        "SELECT hosts.host, hosts.command, hosts.pool, hosts.capacity,
             (SELECT count(*) FROM rooms WHERE rooms.host = hosts.host AND rooms.ended IS NULL),
             (SELECT coalesce(max(rooms.epoch), 0) FROM rooms WHERE rooms.host = hosts.host),
             CAST(extract(epoch FROM hosts.started) * 1000 AS BIGINT),
             CAST(extract(epoch FROM clock_timestamp() - hosts.until) * 1000 AS BIGINT) + ?1,
             hosts.until > clock_timestamp(),
             coalesce(hosts.blob_folder, 1) = 0 AND EXISTS (SELECT 1 FROM meta WHERE name = 'blob_folder')
         FROM hosts WHERE {condition} ORDER BY 9 DESC, hosts.started, hosts.host"
    );
    let values: Vec<Value<'_>> =
        std::iter::once(LEASE_MS.into()).chain(values.iter().copied()).collect();
    tables.rows(&query, &values, |row| {
        Ok(HostRow {
            host: row.get(0)?,
            command: row.get(1)?,
            pool: row.get(2)?,
            capacity: row.get(3)?,
            runs: row.get(4)?,
            epoch: row.get(5)?,
            started: Millis(row.get(6)?),
            silent_ms: row.get::<i64>(7)?.max(0).cast_unsigned(),
            is_live: row.get(8)?,
            lacks_blob_folder: row.get(9)?,
        })
    })
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;
    use crate::storage::store::{StoreAddress, TestDatabase};
    use crate::support::clock::{Clock as _, SystemClock};

    /// Half of the runs wait for a person. The others are due.
    const RUNS: &str = "
        INSERT INTO rooms (room, run, started, changed, entry, agents, text, turns, tokens,
            cost_micro_usd, spent, records, durability, command, locked, principal, approvals,
            questions, epoch, pool, wake_at)
        SELECT 'r' || n, 'r' || n, 5000 - n, n, 'a', '[]', '', 0, 0, 0, '{}', 1, 'group', 'worker', 1,
            'ada', '', '', 1, 'pool', CASE WHEN n % 2 = 0 THEN 9223372036854775807 ELSE 0 END
        FROM generate_series(1, 4000) AS n;
        ANALYZE rooms";

    #[test]
    fn a_claim_on_postgres_reads_no_table_and_sorts_nothing() {
        let Some(database) = TestDatabase::new() else { return };
        let _store = Store::open(StoreAddress::Postgres(database.address.clone())).unwrap();
        let link = database.link();
        link.batch(RUNS).unwrap();
        let statement = CLAIM.replace("?1", "'host'").replace("?2", "'pool'").replace("?3", "'[]'");
        let plan = link.rows(&format!("EXPLAIN {statement}"), &[]).unwrap();
        let plan: Vec<&str> = plan.iter().map(|line| line.get(0)).collect();
        let plan = plan.join("\n");
        // A condition of the index, and not a filter of what it yields.
        let index = "Index Scan using runs_to_take on rooms";
        let found = "Index Cond: ((pool = 'pool'::text) AND (wake_at <= ";
        assert!(plan.contains(index) && plan.contains(found), "{plan}");
        for node in ["Seq Scan on rooms", "Sort"] {
            assert!(!plan.contains(node), "{plan}");
        }
        let run = claim(&link, ("host", &[]), "pool").unwrap();
        assert_eq!(run, Some(RoomId::from("r3999")), "the one that began first");
        // That host has no lease, so its claim keeps nobody out.
        let open = ["r3999", "r3997"].map(RoomId::from);
        let run = claim(&link, ("host", &open), "pool").unwrap();
        assert_eq!(run, Some(RoomId::from("r3995")), "not one that this process has open");
    }

    #[test]
    fn an_unopened_run_is_not_given_back_once_it_was_taken() {
        let Some(database) = TestDatabase::new() else { return };
        let _store = Store::open(StoreAddress::Postgres(database.address.clone())).unwrap();
        let link = database.link();
        link.batch(RUNS).unwrap();
        let run = claim(&link, ("host", &[]), "pool").unwrap().unwrap();
        let unopened = runs_of(&link, "host").unwrap();
        assert_eq!(unopened, [(run.clone(), 1)]);
        link.batch("UPDATE rooms SET epoch = 2 WHERE room = 'r3999'").unwrap();
        give_back_unopened(&link, "host", &unopened[0]).unwrap();
        assert_eq!(runs_of(&link, "host").unwrap(), [(run.clone(), 2)]);
        give_back_unopened(&link, "host", &(run, 2)).unwrap();
        assert_eq!(runs_of(&link, "host").unwrap(), []);
    }

    #[test]
    fn a_host_that_leaves_has_no_run_and_no_lease() {
        let Some(database) = TestDatabase::new() else { return };
        let store = Store::open(StoreAddress::Postgres(database.address.clone())).unwrap();
        database.link().batch(RUNS).unwrap();
        assert!(store.claim("pool").unwrap().is_some());
        let counts = || {
            ["SELECT count(*) FROM rooms WHERE host IS NOT NULL", "SELECT count(*) FROM hosts"]
                .map(|statement| database.number(statement))
        };
        assert_eq!(counts(), [1, 1]);
        store.leave().unwrap();
        assert_eq!(counts(), [0, 0]);
    }

    /// A host whose clock is behind would give a run back for a timer that is due for every claim,
    /// and take it again at once.
    #[test]
    fn whether_a_run_sleeps_goes_by_the_clock_of_the_database() {
        let Some(database) = TestDatabase::new() else { return };
        let _store = Store::open(StoreAddress::Postgres(database.address.clone())).unwrap();
        let link = database.link();
        link.batch(RUNS).unwrap();
        // The database is an hour ahead of this host.
        link.batch(
            "CREATE FUNCTION conclave.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql
                 AS $$ SELECT pg_catalog.clock_timestamp() + INTERVAL '1 hour' $$;
             SET search_path = conclave, pg_catalog",
        )
        .unwrap();
        let sleep_with_timer_in = |minutes: u64| {
            let at = SystemClock.now().plus(minutes * 60_000).0;
            let timer = "INSERT INTO timers (room, timer, at, since) VALUES ('r1', 1, ?1, 0)
                ON CONFLICT (room, timer) DO UPDATE SET at = EXCLUDED.at";
            link.execute(timer, &[at.into()]).unwrap();
            let sleep = RunOutlook::default().sleep_state(&link, &RoomId::from("r1")).unwrap();
            (at, sleep)
        };
        assert_eq!(sleep_with_timer_in(30).1, None, "its timer is due");
        let (at, sleep) = sleep_with_timer_in(90);
        assert_eq!(sleep, Some(Sleep { wakes_at: Some(Millis(at)) }));
    }
}
