//! The rows of a store on PostgreSQL, on a server of their own on the loopback: durable steps
//! beside bare appends, workers, and runs that sleep.

mod bare;
mod sleepers;
mod steps;
mod takeover;
mod workers;

use std::time::Duration;

use conclave_runtime::store::{Store, StoreAddress, StoreOptions};
use conclave_test_servers::{TestDatabase, TestPostgres};

use crate::BenchError;
use crate::measure::{self, Effort, Plan, Times};
use crate::report::{Reach, Report, Row, Rows, Side, Size};
use bare::BareRooms;
use sleepers::Sleepers;
use steps::StoredRooms;
use workers::Workers;
pub(crate) use workers::{WorkerKind, work};

const STEP: &str = "a durable step on PostgreSQL";
const AT_ONCE: &str = "a durable step in each of 64 rooms at once, on PostgreSQL";
const WORKERS: &str = "240 tasks that wait 20 ms for a model each, workers of one task at a time";
const TAKE_OVER: &str = "take-over of the 8 runs of a killed worker";
const CLAIM: &str = "a look for due runs";
const CLAIM_DUE: &str = "taking a due run";

/// The tasks of the row about workers: many, because the first and the last wait for a look of a
/// worker.
const TASKS: usize = 240;
/// One task at a time, so that the wait for models bounds the row. One worker of 8 keeps two
/// processors busy, and then the row measures the machine.
const ONE_BY_ONE: WorkerKind = WorkerKind { model_ms: 20, at_once: 1 };
/// Until an enqueued run has moved to another host: the lease, and two seconds.
const TAKE_OVER_WITHIN: Duration = Duration::from_secs(17);
const SLEEPING: u32 = 100_000;

/// Measures the `wanted` rows. Where PostgreSQL is not installed, the report says so.
pub(crate) async fn all(
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Report, BenchError> {
    let mut rows = Rows::default();
    match TestPostgres::start() {
        Ok(server) => measure_rows(&server, effort, wanted, &mut rows).await?,
        Err(reason) => rows.skip("the rows on PostgreSQL", reason.to_string()),
    }
    Ok(Report::new(effort == Effort::Quick, rows))
}

async fn measure_rows(
    server: &TestPostgres,
    effort: Effort,
    wanted: &dyn Fn(&str) -> bool,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    if wanted(STEP) {
        let times = steps(&database(server)?, 1, Plan::medium(effort)).await?;
        rows.keep(compared(STEP, ("bare fenced append", times.0), ("Conclave", times.1), 1.3));
    }
    if wanted(AT_ONCE) {
        let times = steps(&database(server)?, 64, Plan::long(effort)).await?;
        rows.keep(compared(
            AT_ONCE,
            ("64 bare fenced appends on 64 connections", times.0),
            ("Conclave", times.1),
            1.3,
        ));
    }
    if wanted(WORKERS) {
        let workers = Workers::prepare(&database(server)?).await?;
        let (mut one, mut three) = (Vec::new(), Vec::new());
        for _ in 0..if effort == Effort::Quick { 1 } else { 3 } {
            one.push(workers.end_tasks((1, ONE_BY_ONE), TASKS).await?);
            three.push(workers.end_tasks((3, ONE_BY_ONE), TASKS).await?);
        }
        rows.keep(Row {
            what: WORKERS,
            baseline: Some(Side::new("one worker", Times::of(one))),
            subject: Side::new("three workers", Times::of(three)),
            reach: Reach::Faster(2.5),
        });
    }
    if wanted(TAKE_OVER) {
        let mut times = Vec::new();
        for _ in 0..if effort == Effort::Quick { 1 } else { 5 } {
            times.push(takeover::time(&database(server)?).await?);
        }
        rows.keep(Row {
            what: TAKE_OVER,
            baseline: None,
            subject: Side::new("from the kill to the last model request", Times::of(times)),
            reach: Reach::AtMostMicros(TAKE_OVER_WITHIN.as_secs_f64() * 1e6),
        });
    }
    if wanted(CLAIM) || wanted(CLAIM_DUE) {
        sleeping(server, effort, rows).await?;
    }
    Ok(())
}

/// The times of a bare append in each of so many rooms, and of a step of Conclave in each.
async fn steps(
    database: &TestDatabase,
    rooms: usize,
    plan: Plan,
) -> Result<(Times, Times), BenchError> {
    let store = open(database)?;
    let mut stored = StoredRooms::open(&store, rooms).await?;
    let mut bare = BareRooms::open(database, rooms).await?;
    measure::by_turns(plan, async || bare.append().await, async || stored.append().await).await
}

/// Measures claims where nothing sleeps, beside claims where many runs do; then claims of runs that
/// are due.
async fn sleeping(
    server: &TestPostgres,
    effort: Effort,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let few = Sleepers::open(&database(server)?).await?;
    let many = Sleepers::open(&database(server)?).await?;
    many.fall_asleep(SLEEPING).await?;
    let scans = many.scans().await?;
    let before = crate::durable::resident();
    let plan = Plan::medium(effort);
    let (none, asleep) =
        measure::by_turns(plan, async || few.find_none(), async || many.find_none()).await?;
    let grown = crate::durable::resident().saturating_sub(before) * 1024;
    if many.scans().await? != scans {
        return Err(BenchError::Answer("a claim read the whole table of rooms".to_owned()));
    }
    let subject = Side::new("100 000 runs asleep", asleep).with(Size::Memory(grown));
    let baseline = Some(Side::new("none asleep", none));
    rows.keep(Row { what: CLAIM, baseline, subject, reach: Reach::AtMost(1.5) });
    few.fall_asleep(1_000).await?;
    few.wake_up().await?;
    many.wake_up().await?;
    let plan = Plan::long(effort);
    let (few, many) = measure::by_turns(plan, async || few.take(), async || many.take()).await?;
    rows.keep(compared(CLAIM_DUE, ("1 000 due", few), ("100 000 due", many), 1.5));
    Ok(())
}

fn compared(
    what: &'static str,
    (baseline, of_baseline): (&'static str, Times),
    (subject, of_subject): (&'static str, Times),
    most: f64,
) -> Row {
    Row {
        what,
        baseline: Some(Side::new(baseline, of_baseline)),
        subject: Side::new(subject, of_subject),
        reach: Reach::AtMost(most),
    }
}

fn database(server: &TestPostgres) -> Result<TestDatabase, BenchError> {
    server.database().map_err(|failure| BenchError::Postgres(failure.to_string()))
}

fn address(url: &str) -> Result<StoreAddress, BenchError> {
    url.parse().map_err(|_| BenchError::Postgres(format!("{url} is no address of a database")))
}

fn open(database: &TestDatabase) -> Result<Store, BenchError> {
    open_at(&database.url())
}

fn open_at(url: &str) -> Result<Store, BenchError> {
    let options = StoreOptions {
        host: "bench".to_owned(),
        command: "bench".to_owned(),
        ..StoreOptions::default()
    };
    Store::open_with(address(url)?, &options).map_err(failed)
}

/// A connection of the bench's own.
async fn connect(database: &TestDatabase) -> Result<tokio_postgres::Client, BenchError> {
    let (client, connection) =
        tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Conclave(error.to_string())
}
