//! The lease of a host: a row that its own connection renews. The database's clock says how long it
//! lasts. It only tells others that the host's runs are not free; what keeps a host that lost its
//! runs from writing to them is their epoch.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use conclave_core::journal::ownership::{LEASE_MS, RENEW_EVERY_MS};

use super::link::Link;
use super::session::{Session, SessionError};
use crate::storage::store::PostgresAddress;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// The time between two renewals.
const RENEW_EVERY: Duration = Duration::from_millis(RENEW_EVERY_MS);
/// The time for a renewal.
const RENEW_WITHIN: Duration = Duration::from_secs(3);
/// The pause after a renewal that failed.
const RETRY: Duration = Duration::from_millis(500);
/// Renews the lease, or begins it.
const RENEW: &str = "INSERT INTO hosts (host, command, pool, capacity, until)
    VALUES (?1, ?2, ?3, ?4, clock_timestamp() + INTERVAL '1 ms' * CAST(?5 AS BIGINT))
    ON CONFLICT (host) DO UPDATE SET until = EXCLUDED.until";
/// Rows of hosts that ended without a goodbye. Nobody needs them but people.
const FORGET: &str = "DELETE FROM hosts WHERE until < clock_timestamp() - INTERVAL '1 day'";

/// A host as others see it.
#[derive(Clone, Debug, Default)]
pub(in crate::storage::store) struct HostEntry {
    /// The unique name of the process.
    pub(in crate::storage::store) host: String,
    pub(in crate::storage::store) command: String,
    pub(in crate::storage::store) pool: Option<String>,
    /// The number of runs that it takes as a worker; 0 if it is none.
    pub(in crate::storage::store) capacity: i64,
}

impl HostEntry {
    /// Begins or renews the lease.
    pub(in crate::storage::store) fn renew(&self, link: &Link) -> SqlResult<()> {
        let Self { host, command, pool, capacity } = self;
        link.run(RENEW, &[host, command, pool, capacity, &LEASE_MS.cast_signed()])?;
        Ok(())
    }
}

/// A lease, and the thread that renews it.
pub(in crate::storage::store) struct Lease {
    /// Dropped to end the thread.
    ending: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Begins a lease.
    pub(in crate::storage::store) fn begin(
        address: &PostgresAddress,
        entry: &HostEntry,
    ) -> Result<Self, SessionError> {
        let mut session = Session::open(address)?;
        session.retry(|link| {
            link.run(FORGET, &[])?;
            entry.renew(link)
        })?;
        let (ending, ended) = mpsc::channel();
        let entry = entry.clone();
        let thread = std::thread::Builder::new()
            .name("postgres-lease".to_owned())
            .spawn(move || renew_until(&ended, session, &entry))
            .map_err(|error| SqlError::new(SqlErrorKind::Other, error.to_string()))?;
        Ok(Self { ending: Some(ending), thread: Some(thread) })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ending.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn renew_until(ended: &mpsc::Receiver<()>, session: Session, entry: &HostEntry) {
    // A renewal that fails is tried again after a pause, with another connection if it was lost.
    let mut session = session.with_patience(Duration::ZERO);
    let mut pause = RENEW_EVERY;
    while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
        // Two that hang leave time for a third within the lease.
        let renew = |link: &Link| link.patiently(RENEW_WITHIN, |link| entry.renew(link));
        let renewed = session.retry(renew);
        pause = if renewed.is_ok() { RENEW_EVERY } else { RETRY };
    }
}
