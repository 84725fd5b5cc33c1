//! The time until the runs of a killed worker go on at another one.

use std::time::{Duration, Instant};

use conclave_test_servers::TestDatabase;

use super::workers::{AT_ONCE, Workers};
use crate::BenchError;

/// Longer than any measurement.
const FOREVER_MS: u64 = 600_000;

/// Kills a worker whose tasks wait for their models, and returns the time until another worker has
/// asked all of these models again.
pub(super) async fn time(database: &TestDatabase) -> Result<Duration, BenchError> {
    let workers = Workers::prepare(database).await?;
    workers.enqueue(AT_ONCE).await?;
    let killed = workers.start(FOREVER_MS)?;
    workers.give_out().await?;
    killed.wait_for("asked", AT_ONCE)?;
    let other = workers.start(FOREVER_MS)?;
    let began = Instant::now();
    killed.kill();
    other.wait_for("asked", AT_ONCE)?;
    Ok(began.elapsed())
}
