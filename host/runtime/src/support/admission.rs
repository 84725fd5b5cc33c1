//! A semaphore for calls, first come, first served. A holder that is waiting for something else can
//! learn that its permit is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// The permits; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct CallPermits(Arc<AdmissionState>);

#[derive(Debug)]
struct AdmissionState {
    free: Semaphore,
    all: usize,
    waiting: AtomicUsize,
    demand: Notify,
}

impl CallPermits {
    pub(crate) fn new(permits: usize) -> Self {
        // Without a permit, every call would wait forever.
        let all = permits.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(AdmissionState {
            free: Semaphore::new(all),
            all,
            waiting: AtomicUsize::new(0),
            demand: Notify::new(),
        }))
    }

    /// Waits for a permit.
    pub(crate) async fn take(&self) -> SemaphorePermit<'_> {
        // The fast path is not counted as a waiter, so it suspends no other call.
        if let Ok(place) = self.0.free.try_acquire() {
            return place;
        }
        let _waits = WaiterCount::new(&self.0);
        self.0.free.acquire().await.expect("the semaphore is never closed")
    }

    /// Returns when a call waits for a permit.
    pub(crate) async fn wait_for_demand(&self) {
        let mut notified = std::pin::pin!(self.0.demand.notified());
        // Enabled before the check, so that a notification in between is not lost.
        notified.as_mut().enable();
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            notified.await;
        }
    }

    /// The number of permits in use.
    pub(crate) fn in_use(&self) -> usize {
        self.0.all - self.0.free.available_permits().min(self.0.all)
    }
}

/// A waiter, counted until it is dropped.
struct WaiterCount<'a>(&'a AdmissionState);

impl<'a> WaiterCount<'a> {
    fn new(inner: &'a AdmissionState) -> Self {
        inner.waiting.fetch_add(1, Ordering::SeqCst);
        inner.demand.notify_waiters();
        Self(inner)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_wanted_while_somebody_waits_for_it() {
        let permits = CallPermits::new(1);
        let permit = permits.take().await;
        assert_eq!(permits.in_use(), 1);
        let waiter = tokio::spawn({
            let permits = permits.clone();
            async move { permits.wait_for_demand().await }
        });
        let waits = tokio::spawn({
            let permits = permits.clone();
            async move { drop(permits.take().await) }
        });
        waiter.await.unwrap();
        permits.wait_for_demand().await;
        drop(permit);
        waits.await.unwrap();
        assert_eq!(permits.in_use(), 0);
        assert_eq!(permits.0.waiting.load(Ordering::SeqCst), 0);
    }
}
