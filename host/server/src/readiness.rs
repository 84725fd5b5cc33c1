//! Whether the server can work, for those who ask each second: a balancer, a supervisor. However many
//! ask, the store is asked once a second.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// The time for which an answer counts.
const FRESH: Duration = Duration::from_secs(1);

/// The last answer, and when it was given.
#[derive(Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// Returns the last answer if it is fresh, or asks. Those who come meanwhile wait for the answer.
    pub(crate) async fn is_ready(&self, ask: impl Future<Output = bool>) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, is_ready)) = *last
            && at.elapsed() < FRESH
        {
            return is_ready;
        }
        let is_ready = ask.await;
        *last = Some((Instant::now(), is_ready));
        is_ready
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn many_who_ask_at_once_ask_the_store_once() {
        let (readiness, count) = (Readiness::default(), AtomicUsize::new(0));
        let ask = || async {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            true
        };
        let one = || readiness.is_ready(ask());
        assert_eq!(tokio::join!(one(), one(), one()), (true, true, true));
        assert_eq!(count.load(Ordering::Relaxed), 1);
        *readiness.0.lock().await = Instant::now().checked_sub(FRESH).map(|at| (at, true));
        assert!(!readiness.is_ready(async { false }).await, "an old answer does not count");
    }
}
