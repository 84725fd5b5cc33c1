//! Time, as the driver and the engine need it. The core gets it as an argument; tests put in one
//! that stands still.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conclave_core::types::ids::Millis;

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where time comes from: what is stamped on events, what plugins see, when `limits.run.wall` and
/// other timers are over. Limits of one call (`limits.wall`, `limits.cpu`) are counted by the
/// machine.
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
    /// Milliseconds since the Unix epoch.
    fn now(&self) -> Millis;

    /// Ends at this time or later.
    fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()>;

    /// Returns a clock that shows the time of now and goes on evenly from there, whatever this one
    /// is set to later: a session goes by it. `None`: a session goes by this clock itself.
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

/// A clock that was set once and never jumps: deadlines and durations hold although somebody sets
/// the machine's clock. Time in which the machine is suspended counts, where the system can tell.
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

/// Returns the time since some moment before, suspended time included: Rust's own [`Instant`]
/// leaves that out on Linux, and a session that outlasts a night would tell its guests the date of
/// yesterday.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

/// Returns the time since the process asked first.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// Where the engine takes the time from by which it parks calls: how long a call has computed, how
/// long it waits before it gives its sandbox back, and what is left of `limits.wall` while it is
/// parked. Unlike [`Clock`] it never goes back.
pub trait MonotonicClock: Debug + Send + Sync + 'static {
    fn now(&self) -> Instant;

    /// Ends once this much time has passed, or later.
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
