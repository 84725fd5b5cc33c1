//! A value that takes long to compute: computed by one task for all who ask, and again once it is
//! old. Whoever goes away while it is computed does not stop it, so that requests cannot pile up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conclave_core::types::ids::Millis;

use crate::http::now;

/// A computed value with the time of its computation.
#[derive(Debug)]
pub(crate) struct Computed<T> {
    pub(crate) value: T,
    pub(crate) at: Millis,
    computed: Instant,
    took: Duration,
}

/// The value for all who ask. Clones share it.
#[derive(Debug)]
pub(crate) struct Cached<T>(Arc<CachedState<T>>);

#[derive(Debug)]
struct CachedState<T> {
    newest: Mutex<Option<Arc<Computed<T>>>>,
    /// Held while a task computes the value.
    computing: Arc<tokio::sync::Mutex<()>>,
}

/// The share of time in which a value is computed: 1 of this.
const SHARE: u32 = 20;

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Arc::new(CachedState { newest: Mutex::default(), computing: Arc::default() }))
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// The value, computed again if it is older than `age`, or the last one if that takes longer
    /// than `patience`. `None` if there is none yet.
    pub(crate) async fn get<F>(
        &self,
        (age, patience): (Duration, Duration),
        compute: impl FnOnce() -> F,
    ) -> Option<Arc<Computed<T>>>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let newest = self.0.newest();
        // What takes long is computed less often.
        let is_fresh = |it: &Computed<T>| it.computed.elapsed() < age.max(it.took * SHARE);
        if newest.as_deref().is_some_and(is_fresh) {
            return newest;
        }
        if let Ok(guard) = Arc::clone(&self.0.computing).try_lock_owned() {
            let (state, value) = (Arc::clone(&self.0), compute());
            tokio::spawn(async move {
                let (_guard, at, began) = (guard, now(), Instant::now());
                if let Some(value) = value.await {
                    let (computed, took) = (Instant::now(), began.elapsed());
                    *state.newest.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(Arc::new(Computed { value, at, computed, took }));
                }
            });
        }
        let _ = tokio::time::timeout(patience, self.0.computing.lock()).await;
        self.0.newest()
    }
}

impl<T> CachedState<T> {
    fn newest(&self) -> Option<Arc<Computed<T>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_value_is_computed_once_for_all_who_ask_until_it_is_old() {
        let (cached, times) = (Cached::default(), Arc::new(AtomicU32::new(0)));
        let get = |age| {
            let times = Arc::clone(&times);
            cached.get(
                (age, LONG),
                move || async move { Some(times.fetch_add(1, Ordering::Relaxed)) },
            )
        };
        let (one, other) = tokio::join!(get(LONG), get(LONG));
        assert_eq!((one.unwrap().value, other.unwrap().value), (0, 0));
        assert_eq!(get(LONG).await.unwrap().value, 0);
        // Once the share of its time is over, too.
        while get(Duration::ZERO).await.unwrap().value == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_goes_away_does_not_stop_it_and_a_failure_leaves_what_was_there() {
        let (cached, (go, wait)) = (Cached::default(), tokio::sync::oneshot::channel());
        let first = cached.get((LONG, Duration::ZERO), move || async move {
            wait.await.ok();
            Some(7)
        });
        assert!(first.await.is_none(), "it is computed still");
        go.send(()).unwrap();
        let other = cached.get((LONG, LONG), || async { unreachable!("one task is at work") });
        assert_eq!(other.await.unwrap().value, 7);
        let failed = cached.get((Duration::ZERO, LONG), || std::future::ready(None));
        assert_eq!(failed.await.unwrap().value, 7);
    }
}
