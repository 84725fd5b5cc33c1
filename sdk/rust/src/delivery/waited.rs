//! How long results have waited, remembered between calls: an instance lives for one.

use serde::{Deserialize, Serialize};

use super::EndedTask;

/// How long the oldest of the waiting results has waited. It goes into the scratch, and is as small
/// with ten thousand results as with one: when the oldest one is told, the next one's time begins.
///
/// ```
/// use conclave_sdk::delivery::{Waited, harness::ended};
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
    /// Milliseconds that the first of them is seen to wait, at the context's `now_ms`; 0 when none
    /// waits.
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
