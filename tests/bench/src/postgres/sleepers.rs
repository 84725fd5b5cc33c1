//! Runs that wait for a time or a person: rows of a table, and nothing in a process.

use std::time::Duration;

use conclave_runtime::store::Store;
use conclave_test_servers::TestDatabase;
use tokio_postgres::Client;

use super::failed;
use crate::BenchError;

const POOL: &str = "bench";

/// Half of the runs wait for a person, the others for a time that is far away.
const FALL_ASLEEP: &str = "
    INSERT INTO conclave.rooms (room, run, started, changed, entry, agents, text, turns, tokens,
        cost_micro_usd, spent, records, durability, command, locked, principal, approvals,
        questions, epoch, pool, wake_at)
    SELECT 's' || n, 's' || n, n, n, 'a', '[\"a\"]', 'go', 1, 100, 0, '{}', 10, 'group', 'worker', 1,
        'ada', '', '', 1, $1, CASE WHEN n % 2 = 0 THEN 9223372036854775807 ELSE 4102444800000 + n END
    FROM generate_series(1, $2::BIGINT) AS n";

/// The interval after which a server process adds its counters to the shared ones.
const COUNTED: Duration = Duration::from_millis(1_100);

/// A store whose runs sleep.
pub(super) struct Sleepers {
    store: Store,
    client: Client,
}

impl Sleepers {
    pub(super) async fn open(database: &TestDatabase) -> Result<Self, BenchError> {
        let store = super::open(database)?;
        Ok(Self { store, client: super::connect(database).await? })
    }

    pub(super) async fn fall_asleep(&self, runs: u32) -> Result<(), BenchError> {
        self.client.execute(FALL_ASLEEP, &[&POOL, &i64::from(runs)]).await?;
        self.settle().await
    }

    /// Makes all runs due, as after a long outage.
    pub(super) async fn wake_up(&self) -> Result<(), BenchError> {
        self.client.execute("UPDATE conclave.rooms SET wake_at = 0", &[]).await?;
        self.settle().await
    }

    /// Does what the server does by itself within a minute.
    async fn settle(&self) -> Result<(), BenchError> {
        Ok(self.client.batch_execute("VACUUM ANALYZE conclave.rooms").await?)
    }

    /// Looks for a due run; there is none.
    pub(super) fn find_none(&self) -> Result<(), BenchError> {
        match self.store.claim(POOL).map_err(failed)? {
            None => Ok(()),
            Some(run) => Err(BenchError::Answer(format!("{run} was due"))),
        }
    }

    /// Takes a due run.
    pub(super) fn take(&self) -> Result<(), BenchError> {
        match self.store.claim(POOL).map_err(failed)? {
            Some(_) => Ok(()),
            None => Err(BenchError::Answer("no run was due".to_owned())),
        }
    }

    /// The number of statements that read the whole table of rooms.
    pub(super) async fn scans(&self) -> Result<i64, BenchError> {
        tokio::time::sleep(COUNTED).await;
        // The server process adds its counters at the end of a statement.
        self.find_none()?;
        let scans =
            "SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'conclave.rooms'::regclass";
        Ok(self.client.query_one(scans, &[]).await?.try_get(0)?)
    }
}
