//! The lease of a host: a row that its own connection renews. The database's clock says how long it
//! lasts. It only tells others that the host's runs are not free; what keeps a host that lost its
//! runs from writing to them is their epoch.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use conclave_core::journal::ownership::{EFFECTS_WITHIN_MS, LEASE_MS, RENEW_EVERY_MS};

use super::link::Link;
use super::session::{Session, SessionError};
use crate::storage::store::PostgresAddress;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// The time between two renewals.
const RENEW_EVERY: Duration = Duration::from_millis(RENEW_EVERY_MS);
/// The time since the last renewal in which the host still begins effects.
const EFFECTS_WITHIN: Duration = Duration::from_millis(EFFECTS_WITHIN_MS);
/// The time since the last renewal in which others take no run of the host.
const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// The least time for an attempt: a connection to each of two servers that are not far.
const SHORTEST: Duration = Duration::from_millis(500);
/// The time for an attempt when nothing is left to lose.
const LONGEST: Duration = Duration::from_secs(15);
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
    let (mut pause, mut renewed_at) = (RENEW_EVERY, Instant::now());
    while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
        let began = Instant::now();
        session.set_attempt(time_of_attempt(began - renewed_at));
        if session.retry(|link| entry.renew(link)).is_ok() {
            (pause, renewed_at) = (RENEW_EVERY, began);
        } else {
            pause = RETRY;
        }
    }
}

/// The time for an attempt to renew a lease that was renewed so long ago, with a new connection if
/// need be. It is half of what is left until the host begins no more effects, and then until others
/// take its runs, so that one that hangs, as at a failover, leaves time for others.
fn time_of_attempt(since: Duration) -> Duration {
    match [EFFECTS_WITHIN, LEASE].into_iter().find(|end| since < *end) {
        Some(end) => ((end - since) / 2).max(SHORTEST),
        None => LONGEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When attempts begin and end after a renewal, if each hangs for all of its time.
    fn hanging() -> impl Iterator<Item = (Duration, Duration)> {
        let attempt = |began: Duration| (began, began + time_of_attempt(began));
        std::iter::successors(Some(attempt(RENEW_EVERY)), move |(_, ended)| {
            Some(attempt(*ended + RETRY))
        })
    }

    #[test]
    fn several_attempts_that_hang_end_before_the_lease_does() {
        let within = |end| hanging().take_while(|(_, ended)| *ended < end).count();
        assert!(within(EFFECTS_WITHIN) >= 2, "before effects stop");
        assert!(within(LEASE) >= 5, "before others take the runs");
        let first = hanging().next().unwrap().1;
        assert!(first <= Duration::from_millis(7_500), "the first one leaves most of the time");
    }

    #[test]
    fn no_attempt_is_too_short_and_none_hurries_when_the_lease_is_over() {
        let times = (0..200).map(|tenths| Duration::from_millis(tenths * 100));
        for since in times {
            let time = time_of_attempt(since);
            assert!(time >= SHORTEST, "{since:?}");
            assert_eq!(time == LONGEST, since >= LEASE, "{since:?}");
        }
    }
}
