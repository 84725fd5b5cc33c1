//! The waiting time of results, remembered between calls, since an instance lives for one call.

use serde::{Deserialize, Serialize};

use super::EndedTask;

/// The waiting time of the oldest result. It is stored in the scratch, and is equally small for any
/// number of results. When the oldest one is delivered, the next one's time begins.
///
/// ```
/// use conclave_sdk::delivery::Waited;
/// use conclave_sdk::testing::ended;
///
/// let mut waited = Waited::default();
/// assert_eq!(waited.ms(&[ended("a"), ended("b")], 1_000), 0);
/// assert_eq!(waited.ms(&[ended("a"), ended("b")], 1_400), 400);
/// assert_eq!(waited.ms(&[ended("b")], 1_500), 0, "b has a time of its own");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    oldest: String,
    since_ms: u64,
}

impl Waited {
    /// Returns the milliseconds for which the first result has been seen to wait at `now_ms`, the
    /// context's time. 0 if none waits.
    pub fn ms(&mut self, waiting: &[EndedTask], now_ms: u64) -> u64 {
        let Some(oldest) = waiting.first() else {
            *self = Self::default();
            return 0;
        };
        if self.oldest != oldest.task_id {
            *self = Self { oldest: oldest.task_id.clone(), since_ms: now_ms };
        }
        now_ms.saturating_sub(self.since_ms)
    }
}
