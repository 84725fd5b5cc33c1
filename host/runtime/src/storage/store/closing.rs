//! The threads of a store, and the wait for their ends. A folder's threads are waited for however long
//! they take. Those of a database may hang in an outage, and what they hold is released by the end
//! of the host's lease.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time for which the end of a database's threads is waited for.
const CLOSE: Duration = Duration::from_secs(10);

/// The time at which a store that closes stops waiting for its database; none while it is open.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CloseTime(Arc<OnceLock<Instant>>);

impl CloseTime {
    /// Begins to close, unless that has begun. Returns the time.
    pub(super) fn begin(&self) -> Instant {
        *self.0.get_or_init(|| Instant::now() + CLOSE)
    }

    /// The earlier one of the time and `other`.
    #[cfg(feature = "postgres")]
    pub(super) fn or(&self, other: Instant) -> Instant {
        self.0.get().map_or(other, |close| other.min(*close))
    }
}

/// A thread whose end can be waited for until a time.
pub(super) struct StoreThread {
    thread: JoinHandle<()>,
    /// Its sender is dropped when the thread ends. A mutex, because a store is shared by threads.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl StoreThread {
    pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (running, ended) = mpsc::channel();
        let run = move || {
            let _running: mpsc::Sender<()> = running;
            run();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { thread, ended: Mutex::new(ended) })
    }

    /// Waits until the thread has ended, or until this time: then it is left to itself.
    pub(super) fn join(self, until: Option<Instant>) {
        if let Some(until) = until {
            let rest = until.saturating_duration_since(Instant::now());
            let ended = self.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
            if ended.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
        // A thread that panicked has already answered all waiting callers.
        let _ = self.thread.join();
    }
}
