//! How many webhooks came in, and what the operator reads of those that were refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval between two reports: strangers must not fill the operator's log.
const REPORTS: Duration = Duration::from_secs(60);

/// The webhooks that came to a config, by the code of their answers.
#[derive(Default)]
pub(crate) struct HookCounts(Mutex<BTreeMap<String, u64>>);

impl HookCounts {
    /// Counts a request with this code, which is one of the server's own.
    pub(super) fn add(&self, code: &str) {
        *self.counts().entry(code.to_owned()).or_default() += 1;
    }

    /// The number of requests since the start of the server, by their codes.
    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.counts().clone()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refused webhooks since the last report to the operator.
#[derive(Default)]
pub(crate) struct HookReports(Mutex<OpenReport>);

#[derive(Default)]
struct OpenReport {
    last: Option<Instant>,
    count: u64,
}

impl HookReports {
    /// Counts a refused request. Returns the number since the last report, if there is to be one.
    pub(crate) fn due(&self, now: Instant) -> Option<u64> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.count += 1;
        if open.last.is_some_and(|last| now.duration_since(last) < REPORTS) {
            return None;
        }
        open.last = Some(now);
        Some(std::mem::take(&mut open.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_reads_of_the_first_and_then_once_a_minute() {
        let (reports, began) = (HookReports::default(), Instant::now());
        assert_eq!(reports.due(began), Some(1));
        for second in 1..60 {
            assert_eq!(reports.due(began + Duration::from_secs(second)), None);
        }
        assert_eq!(reports.due(began + REPORTS), Some(60));
    }
}
