//! The threads of a store, and the wait for their ends. A folder's threads are waited for however long
//! they take. Those of a database may hang in an outage, and what they hold is released by the end
//! of the host's lease.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time for which the end of a database's threads is waited for.
const CLOSE: Duration = Duration::from_secs(10);

/// The time at which a store that closes stops waiting for its database; none while nothing closes
/// it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CloseTime(Arc<Mutex<CloseState>>);

#[derive(Debug, Default)]
struct CloseState {
    /// The time of the closing that is in progress.
    current: Weak<Instant>,
    /// The same, once the store itself closes: its threads may outlive whatever closes it.
    last: Option<Arc<Instant>>,
}

/// A closing that is in progress. When it is dropped, the store waits for its database as before.
pub(crate) struct Closing {
    until: Arc<Instant>,
    time: CloseTime,
}

impl CloseTime {
    fn state(&self) -> MutexGuard<'_, CloseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to close, or joins the closing in progress.
    pub(super) fn begin(&self) -> Closing {
        let mut state = self.state();
        let until = state.current.upgrade().unwrap_or_else(|| {
            let until = Arc::new(Instant::now() + CLOSE);
            state.current = Arc::downgrade(&until);
            until
        });
        Closing { until, time: self.clone() }
    }

    /// Begins to close for good. Returns the time.
    pub(super) fn begin_last(&self) -> Instant {
        self.begin().make_last()
    }

    /// The earlier one of the time and `other`.
    #[cfg(feature = "postgres")]
    pub(super) fn or(&self, other: Instant) -> Instant {
        self.state().current.upgrade().map_or(other, |close| other.min(*close))
    }
}

impl Closing {
    /// The time until which the store waits for its database.
    #[cfg(feature = "postgres")]
    pub(crate) fn until(&self) -> Instant {
        *self.until
    }

    /// Makes this the closing of the store itself: it is dropped next, and nothing else of it waits
    /// longer. Returns the time.
    pub(crate) fn make_last(self) -> Instant {
        let until = *self.until;
        self.time.state().last = Some(self.until);
        until
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

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    /// A worker that stops closes nothing but itself: its caller may go on with the store.
    #[test]
    fn a_store_is_patient_again_after_a_closing_unless_it_was_the_last() {
        let time = CloseTime::default();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(time.or(later), later);
        let (one, two) = (time.begin(), time.clone().begin());
        assert_eq!(one.until(), two.until(), "they share the time");
        assert_eq!(time.or(later), one.until());
        drop(one);
        assert_eq!(time.or(later), two.until());
        drop(two);
        assert_eq!(time.or(later), later);
        let until = time.begin().make_last();
        assert_eq!((time.or(later), time.begin_last()), (until, until));
    }
}
