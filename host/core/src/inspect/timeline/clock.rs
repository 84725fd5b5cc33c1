//! The run's own time: milliseconds from its start, without downtime of the host.

use crate::types::ids::Millis;

/// Spans of downtime, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct HostClock {
    /// Start and end of each span.
    down: Vec<(u64, u64)>,
}

impl HostClock {
    /// Adds a span of downtime that ended at `at`.
    pub(super) fn down(&mut self, at: Millis, down_ms: u64) {
        self.down.push((at.0.saturating_sub(down_ms), at.0));
    }

    /// The clock with overlapping spans merged: each room of a run reports the same downtime.
    pub(super) fn settled(&self) -> Self {
        let mut down = self.down.clone();
        down.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in down {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        Self { down: joined }
    }

    /// The milliseconds of the run from `start` to `at`.
    pub(super) fn between(&self, start: Millis, at: Millis) -> u64 {
        let passed = at.since(start);
        let down =
            self.down.iter().map(|(from, to)| (*to).min(at.0).saturating_sub((*from).max(start.0)));
        passed.saturating_sub(down.sum())
    }

    /// The total downtime in milliseconds.
    pub(super) fn all_down(&self) -> u64 {
        self.down.iter().map(|(from, to)| to - from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_no_host_ran_is_left_out_once() {
        let mut clock = HostClock::default();
        clock.down(Millis(10_500), 9_000);
        clock.down(Millis(10_700), 9_400);
        let clock = clock.settled();
        let at = |at| clock.between(Millis(1_000), Millis(at));
        assert_eq!(
            [at(500), at(1_000), at(1_200), at(5_000), at(10_700), at(10_900)],
            [0, 0, 200, 300, 300, 500]
        );
        assert_eq!(clock.all_down(), 9_400);
    }

    #[test]
    fn a_clock_that_jumps_back_loses_nothing_but_the_time() {
        let mut clock = HostClock::default();
        clock.down(Millis(5), u64::MAX);
        let clock = clock.settled();
        assert_eq!(clock.between(Millis(100), Millis(50)), 0);
        assert_eq!(clock.between(Millis(0), Millis(50)), 45);
    }
}
