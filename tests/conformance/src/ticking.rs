//! A clock that goes on by a millisecond each time somebody looks at it, and whose timers never
//! end: a run is over time at the end of a step and never within one, on any machine.

use std::sync::atomic::{AtomicU64, Ordering};

use conclave_runtime::clock::{BoxFuture, Clock};
use conclave_runtime::ids::Millis;

/// Milliseconds since it began.
#[derive(Debug, Default)]
pub struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Millis {
        Millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Millis) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
