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
    wanted: Notify,
}

impl CallPermits {
    pub(crate) fn new(places: usize) -> Self {
        // Without a permit, every call would wait forever.
        let all = places.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(AdmissionState {
            free: Semaphore::new(all),
            all,
            waiting: AtomicUsize::new(0),
            wanted: Notify::new(),
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
    pub(crate) async fn wanted(&self) {
        let mut wanted = std::pin::pin!(self.0.wanted.notified());
        // Enabled before the check, so that a notification in between is not lost.
        wanted.as_mut().enable();
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            wanted.await;
        }
    }

    /// Returns the number of permits in use.
    pub(crate) fn taken(&self) -> usize {
        self.0.all - self.0.free.available_permits().min(self.0.all)
    }
}

/// A waiter, counted until it is dropped.
struct WaiterCount<'a>(&'a AdmissionState);

impl<'a> WaiterCount<'a> {
    fn new(inner: &'a AdmissionState) -> Self {
        inner.waiting.fetch_add(1, Ordering::SeqCst);
        inner.wanted.notify_waiters();
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
        let places = CallPermits::new(1);
        let held = places.take().await;
        assert_eq!(places.taken(), 1);
        let wanted = tokio::spawn({
            let places = places.clone();
            async move { places.wanted().await }
        });
        let waits = tokio::spawn({
            let places = places.clone();
            async move { drop(places.take().await) }
        });
        wanted.await.unwrap();
        places.wanted().await;
        drop(held);
        waits.await.unwrap();
        assert_eq!(places.taken(), 0);
        assert_eq!(places.0.waiting.load(Ordering::SeqCst), 0);
    }
}
