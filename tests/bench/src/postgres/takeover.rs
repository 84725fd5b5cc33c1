//! The time until the runs of a killed worker go on at another one.

use std::time::{Duration, Instant};

use conclave_test_servers::TestDatabase;

use super::workers::{WorkerKind, Workers};
use crate::BenchError;

/// The number of runs that are taken over.
const RUNS: usize = 8;
/// Its model waits for longer than any measurement.
const WAITS: WorkerKind = WorkerKind { model_ms: 600_000, at_once: RUNS };

/// Kills a worker whose tasks wait for their models, and returns the time until another worker has
/// asked all of these models again.
pub(super) async fn time(database: &TestDatabase) -> Result<Duration, BenchError> {
    let workers = Workers::prepare(database).await?;
    workers.enqueue(RUNS).await?;
    let killed = workers.start(WAITS)?;
    workers.give_out().await?;
    killed.wait_for("asked", RUNS)?;
    let other = workers.start(WAITS)?;
    let began = Instant::now();
    killed.kill();
    other.wait_for("asked", RUNS)?;
    Ok(began.elapsed())
}
