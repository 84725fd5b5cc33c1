//! The lease of a host: a row that its own connection renews. The database's clock says how long it
//! lasts for others, and this process's own clock for itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::link::Link;
use super::session::{Session, SessionError};
use crate::storage::store::PostgresAddress;
use crate::storage::store::sql::SqlResult;

/// The time between two renewals.
const RENEW_EVERY: Duration = Duration::from_millis(5_000);
/// The time after a renewal up to which a host believes that the runs are its own.
const EFFECTS_WITHIN: Duration = Duration::from_millis(10_000);
/// Renews the lease of 15 s, or begins it.
const RENEW: &str = "INSERT INTO hosts (host, name, command, pool, started, until, capacity)
    VALUES (?1, ?2, ?3, ?4, ?5, clock_timestamp() + INTERVAL '15 s', ?6)
    ON CONFLICT (host) DO UPDATE SET until = clock_timestamp() + INTERVAL '15 s',
    rooms = (SELECT count(*) FROM rooms WHERE rooms.host = ?1 AND status IS NULL)";
/// Rows of hosts that ended without a goodbye. Nobody needs them but people.
const FORGET: &str = "DELETE FROM hosts WHERE until < clock_timestamp() - INTERVAL '1 day'";

/// A host as others see it.
#[derive(Clone, Debug, Default)]
pub(in crate::storage::store) struct HostEntry {
    /// The unique name of the process.
    pub(in crate::storage::store) host: String,
    /// The name for people, such as that of the machine.
    pub(in crate::storage::store) name: String,
    pub(in crate::storage::store) command: String,
    pub(in crate::storage::store) pool: Option<String>,
    /// The start in milliseconds since the Unix epoch.
    pub(in crate::storage::store) started: i64,
    /// The number of rooms that it runs at once; `None` for no limit.
    pub(in crate::storage::store) capacity: Option<i64>,
}

impl HostEntry {
    /// Begins or renews the lease.
    pub(in crate::storage::store) fn renew(&self, link: &Link) -> SqlResult<()> {
        let Self { host, name, command, pool, started, capacity } = self;
        link.run(RENEW, &[host, name, command, pool, started, capacity])?;
        Ok(())
    }
}

/// When the lease was last known to be valid, by this process's own clock.
#[derive(Debug)]
struct LeaseState {
    /// The time at which the newest renewal was sent that was acknowledged.
    renewed: Instant,
    is_ending: bool,
}

struct Shared {
    state: Mutex<LeaseState>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease, and the thread that renews it.
pub(in crate::storage::store) struct Lease {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Begins a lease.
    pub(in crate::storage::store) fn begin(
        address: &PostgresAddress,
        entry: &HostEntry,
    ) -> Result<Self, SessionError> {
        let mut session = Session::open(address)?;
        let sent = Instant::now();
        session.again(|link| {
            link.run(FORGET, &[])?;
            entry.renew(link)
        })?;
        let shared = Arc::new(Shared {
            state: Mutex::new(LeaseState { renewed: sent, is_ending: false }),
            wake: Condvar::new(),
        });
        let (of_thread, entry) = (Arc::clone(&shared), entry.clone());
        let thread = std::thread::Builder::new()
            .name("postgres-lease".to_owned())
            .spawn(move || renew_until_the_end(session, &entry, &of_thread));
        let thread = thread.map_err(|error| {
            crate::storage::store::sql::SqlError::new(
                crate::storage::store::sql::SqlErrorKind::Other,
                error.to_string(),
            )
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Notes that the server acknowledged something that was sent then and that only the owner can
    /// do.
    pub(in crate::storage::store) fn note(&self, sent: Instant) {
        let mut state = self.shared.lock();
        state.renewed = state.renewed.max(sent);
    }

    /// Whether effects may start: the lease was renewed a short time ago.
    pub(in crate::storage::store) fn is_fresh(&self) -> bool {
        self.shared.lock().renewed.elapsed() <= EFFECTS_WITHIN
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn renew_until_the_end(session: Session, entry: &HostEntry, shared: &Shared) {
    let mut session = session.with_patience(Duration::ZERO);
    let mut state = shared.lock();
    loop {
        let next = state.renewed + RENEW_EVERY;
        let pause = next.saturating_duration_since(Instant::now()).max(Duration::from_millis(500));
        let waited = shared.wake.wait_timeout(state, pause);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_ending {
            return;
        }
        drop(state);
        let sent = Instant::now();
        let renewed = session.again(|link| entry.renew(link));
        state = shared.lock();
        // A renewal that failed is tried again after the shortest pause.
        if renewed.is_ok() {
            state.renewed = state.renewed.max(sent);
        }
    }
}
