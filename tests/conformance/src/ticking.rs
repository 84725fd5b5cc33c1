//! A clock that advances by a millisecond with each reading, and whose timers never fire. A run
//! exceeds its time at the end of a step and never within one, on any machine.

use std::sync::atomic::{AtomicU64, Ordering};

use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::ids::Millis;

/// The milliseconds since its start.
#[derive(Debug, Default)]
pub(crate) struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Millis {
        Millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Millis) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
