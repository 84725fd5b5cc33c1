//! Clocks for the driver and the engine. The core gets the time as an argument; tests use a clock
//! that stands still.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conclave_core::types::ids::Millis;

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The source of event timestamps, of the time that plugins see, and of `limits.run.wall` and other
/// timers. The limits of one call (`limits.wall`, `limits.cpu`) use the machine's clock.
///
/// ```
/// use std::sync::Arc;
///
/// use conclave_runtime::RunOptions;
/// use conclave_runtime::clock::{BoxFuture, Clock};
/// use conclave_runtime::ids::Millis;
///
/// /// Always the same moment: no run is ever over time.
/// struct Noon;
///
/// impl Clock for Noon {
///     fn now(&self) -> Millis {
///         Millis(43_200_000)
///     }
///
///     fn sleep_until(&self, _: Millis) -> BoxFuture<'static, ()> {
///         Box::pin(std::future::pending())
///     }
/// }
///
/// let options = RunOptions { clock: Arc::new(Noon), ..RunOptions::default() };
/// # drop(options);
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The milliseconds since the Unix epoch.
    fn now(&self) -> Millis;

    /// Completes at this time or later.
    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()>;

    /// A clock that starts at the current time and never jumps, for a session. `None` if a session
    /// should use this clock itself.
    fn steady(&self) -> Option<Arc<dyn Clock>> {
        None
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        let wait = at.since(self.now());
        Box::pin(tokio::time::sleep(Duration::from_millis(wait)))
    }

    fn steady(&self) -> Option<Arc<dyn Clock>> {
        Some(Arc::new(SteadyClock::new(self.now())))
    }
}

/// A clock that never jumps after its start, so changes of the machine's clock do not affect
/// deadlines. Time in suspend counts, if the system reports it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyClock {
    start: Millis,
    began: Duration,
}

impl SteadyClock {
    /// Returns a clock that shows `start` now.
    #[must_use]
    pub fn new(start: Millis) -> Self {
        Self { start, began: since_boot() }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Millis {
        let passed = since_boot().saturating_sub(self.began);
        self.start.plus(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(at.since(self.now()))))
    }
}

/// The time since some fixed moment, including suspended time.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    // `Instant` leaves suspended time out on Linux, and a session that runs overnight would show
    // its guests the wrong date.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// The time since the first call in this process.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// The clock for suspending calls: their computing time, the delay before they give their sandbox
/// back, and their remaining `limits.wall`. Unlike [`Clock`] it never goes back.
pub trait MonotonicClock: Debug + Send + Sync + 'static {
    /// The current instant, which is never before an earlier one.
    fn now(&self) -> Instant;

    /// Completes after this time or later.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMonotonicClock;

impl MonotonicClock for SystemMonotonicClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_goes_by_a_clock_that_starts_at_the_machines_time_and_never_goes_back() {
        let before = SystemClock.now();
        let steady = SystemClock.steady().expect("the machine's clock can jump");
        let first = steady.now();
        assert!(first >= before && steady.now() >= first);
        assert!(steady.steady().is_none(), "it is one already");
    }
}
