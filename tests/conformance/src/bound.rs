//! The bound of an endless scenario: a number of events, never a time, so that a busy machine plays
//! the same scenario as an idle one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conclave_runtime::subscribe::{Published, RunEvent, Subscriber};
use tokio::sync::Notify;

/// The default maximum number of events in the journals of one scenario. The largest scenario has a
/// tenth of it.
pub const EVENTS: u64 = 200_000;

tokio::task_local! {
    static COUNT: Arc<Count>;
}

/// The number of events of one scenario, over all of its rooms.
#[derive(Debug, Default)]
struct Count {
    most: u64,
    events: AtomicU64,
    is_full: Notify,
}

impl Subscriber for Count {
    fn on(&self, happening: &Published) {
        if matches!(happening.what, RunEvent::Recorded { .. })
            && self.events.fetch_add(1, Ordering::Relaxed) == self.most
        {
            self.is_full.notify_one();
        }
    }
}

/// Plays a scenario to its end.
///
/// # Errors
/// If it records more than so many events.
pub(crate) async fn bounded<T>(most: u64, playing: impl Future<Output = T>) -> Result<T, String> {
    let count = Arc::new(Count { most, ..Count::default() });
    let full = Arc::clone(&count);
    tokio::select! {
        biased;
        () = full.is_full.notified() => Err(format!("it does not end: it records more than {most} events")),
        played = COUNT.scope(count, playing) => Ok(played),
    }
}

/// Returns a subscriber that counts a room's events for the current scenario. Counts nothing
/// outside of one.
pub(crate) fn counter() -> Arc<dyn Subscriber> {
    COUNT.try_with(Arc::clone).unwrap_or_default()
}
