//! The timers of a room: one queue, whose nearest deadline the loop polls. Timers that the room no
//! longer waits for are removed, so a long-lived room does not accumulate them.

use std::collections::BTreeSet;

use conclave_core::types::ids::{Millis, TimerId};

use crate::support::clock::{BoxFuture, Clock};

/// The number of timers below which the queue is never searched for stale ones.
const CLEAN_AT: usize = 32;

/// The timers that have not fired, in order of their deadlines.
pub(super) struct Timers {
    waiting: BTreeSet<(Millis, TimerId)>,
    /// The sleep until the nearest deadline, once it was polled.
    sleep: Option<(Millis, BoxFuture<'static, ()>)>,
    /// The number of timers at which stale ones are removed.
    clean_at: usize,
}

impl Default for Timers {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), sleep: None, clean_at: CLEAN_AT }
    }
}

impl Timers {
    pub(super) fn set(&mut self, timer: TimerId, at: Millis) {
        self.waiting.insert((at, timer));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes stale timers. Those at the front are removed at once, so that the loop does not wake
    /// for them. The others are removed when the queue has doubled.
    pub(super) fn clean(&mut self, is_waited_for: impl Fn(TimerId) -> bool) {
        while self.waiting.first().is_some_and(|(_, timer)| !is_waited_for(*timer)) {
            self.waiting.pop_first();
        }
        if self.waiting.len() >= self.clean_at {
            self.waiting.retain(|(_, timer)| is_waited_for(*timer));
            // Twice the number that was left gives a constant amortised cost per timer.
            self.clean_at = CLEAN_AT.max(2 * self.waiting.len());
        }
        if self.waiting.is_empty() {
            self.sleep = None;
        }
    }

    /// Waits until the nearest deadline and removes the timers due then, in order. The future is
    /// cancel-safe. The room's time is `ahead_ms` milliseconds ahead of the clock.
    pub(super) async fn due(&mut self, clock: &dyn Clock, ahead_ms: u64) -> Vec<TimerId> {
        let Some((nearest, _)) = self.waiting.first().copied() else {
            return std::future::pending().await;
        };
        // A nearer timer was set, or the nearest one was removed, since the sleep began.
        if self.sleep.as_ref().is_some_and(|(at, _)| *at != nearest) {
            self.sleep = None;
        }
        let (_, sleep) = self.sleep.get_or_insert_with(|| {
            (nearest, clock.sleep_until(Millis(nearest.0.saturating_sub(ahead_ms))))
        });
        sleep.await;
        self.sleep = None;
        let mut due = Vec::new();
        while let Some((at, timer)) = self.waiting.pop_first() {
            if at > nearest {
                self.waiting.insert((at, timer));
                break;
            }
            due.push(timer);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::task::Poll;

    use futures_executor::block_on;

    use super::*;

    /// A manual clock that counts its sleepers.
    #[derive(Default)]
    struct Counting {
        now: Arc<AtomicU64>,
        sleeping: Arc<AtomicUsize>,
        most: AtomicUsize,
    }

    struct Sleeping(Arc<AtomicUsize>);

    impl Drop for Sleeping {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Clock for Counting {
        fn now(&self) -> Millis {
            Millis(self.now.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, at: Millis) -> BoxFuture<'static, ()> {
            let sleeping = self.sleeping.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(sleeping, Ordering::Relaxed);
            let (sleeping, now) = (Sleeping(Arc::clone(&self.sleeping)), Arc::clone(&self.now));
            Box::pin(std::future::poll_fn(move |_| {
                let _permit = &sleeping;
                if now.load(Ordering::Relaxed) >= at.0 { Poll::Ready(()) } else { Poll::Pending }
            }))
        }
    }

    /// Returns the timers that are due now; `None` if the nearest is not.
    fn poll(timers: &mut Timers, clock: &Counting) -> Option<Vec<u64>> {
        block_on(std::future::poll_fn(|context| {
            let mut due = std::pin::pin!(timers.due(clock, 0));
            Poll::Ready(match due.as_mut().poll(context) {
                Poll::Ready(due) => Some(due.into_iter().map(|timer| timer.0).collect()),
                Poll::Pending => None,
            })
        }))
    }

    #[test]
    fn one_sleep_serves_all_timers_and_cancelled_ones_leave() {
        let (clock, mut timers) = (Counting::default(), Timers::default());
        timers.set(TimerId(0), Millis(1_000_000));
        for number in 1..10_000_u64 {
            // Like an approval with a timeout that is answered: its timer is set and then goes
            // stale.
            timers.set(TimerId(number), Millis(2_000_000 + number));
            assert_eq!(poll(&mut timers, &clock), None);
            timers.clean(|timer| timer == TimerId(0));
            assert!(timers.waiting.len() <= CLEAN_AT, "{number}: {}", timers.waiting.len());
        }
        assert_eq!(
            (clock.most.load(Ordering::Relaxed), clock.sleeping.load(Ordering::Relaxed)),
            (1, 1)
        );
        // The nearest timer is cancelled too, so the sleep ends.
        timers.clean(|_| false);
        assert!(timers.is_empty());
        assert_eq!(clock.sleeping.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn timers_fire_in_order_and_a_nearer_one_comes_first() {
        let (clock, mut timers) = (Counting::default(), Timers::default());
        timers.set(TimerId(1), Millis(20));
        timers.set(TimerId(2), Millis(30));
        assert_eq!(poll(&mut timers, &clock), None);
        timers.set(TimerId(3), Millis(10));
        timers.set(TimerId(4), Millis(20));
        clock.now.store(10, Ordering::Relaxed);
        assert_eq!(poll(&mut timers, &clock), Some(vec![3]));
        assert_eq!(poll(&mut timers, &clock), None);
        clock.now.store(40, Ordering::Relaxed);
        assert_eq!(poll(&mut timers, &clock), Some(vec![1, 4]));
        assert_eq!(poll(&mut timers, &clock), Some(vec![2]));
        assert_eq!(poll(&mut timers, &clock), None, "nothing is left to fire");
        assert_eq!(clock.most.load(Ordering::Relaxed), 1);
    }
}
