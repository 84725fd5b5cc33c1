//! Time, as the driver and the engine need it. The core gets it as an argument; tests put in one that stands still.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conclave_core::ids::Millis;

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where time comes from: what is stamped on events, what plugins see, when `limits.run.wall` and other timers are over. Limits of one
/// call (`limits.wall`, `limits.cpu`) are counted by the machine.
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
}

/// Where the engine takes the time from by which it parks calls: how long a call has computed, how long it waits before it gives its
/// sandbox back, and what is left of `limits.wall` while it is parked. Unlike [`Clock`] it never goes back.
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
