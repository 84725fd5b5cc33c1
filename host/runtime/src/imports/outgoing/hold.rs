//! Limits the response bytes of one call in the host's memory. A guest that keeps many responses
//! gets no further one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of maximum-size responses that one call may hold.
const ANSWERS: u64 = 4;

/// The counter of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding(Arc<AtomicU64>);

impl Holding {
    /// Counts bytes until the hold is dropped; `None` if the total would exceed the limit.
    pub(crate) fn hold(&self, bytes: u64, response_bytes: u64) -> Option<Hold> {
        let most = response_bytes.saturating_mul(ANSWERS);
        let add = |count: u64| count.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Hold { count: self.clone(), bytes })
    }
}

/// Counted bytes.
#[derive(Debug)]
pub(crate) struct Hold {
    count: Holding,
    bytes: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.count.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_can_be_held_again() {
        let holding = Holding::default();
        let holds: Vec<_> = (0..4).map_while(|_| holding.hold(10, 10)).collect();
        assert_eq!(holds.len(), 4);
        assert!(holding.hold(1, 10).is_none() && holding.hold(u64::MAX, 10).is_none());
        drop(holds);
        assert!(holding.hold(40, 10).is_some());
    }
}
